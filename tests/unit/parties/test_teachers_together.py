"""Teachers trained as one program are the teachers that a loop gives, and none depends on its companions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.party_requests import KEY
from support.teachers import ON_A_GPU, GpuTeacher, machine_with_a_gpu

from collegium.data import Examples
from collegium.data.task import ImageInputs, NumberColumn, TableInputs, Task, TeacherSettings
from collegium.data.teacher_kinds import BUILT_IN, installed_kinds
from collegium.parties.teachers.ensemble import TeacherEnsemble
from collegium.parties.teachers.kinds import find_kind
from collegium.parties.teachers.networks import NetworkTeacher
from collegium.parties.teachers.specs import TeacherFactory, TeacherStore, specs_of

STEPS = 8
KINDS: dict[str, dict[str, Any]] = {
    "linear": {},
    "mlp": {"hidden": 16, "dropout": 0.4},
    "paper-cnn": {"width": 4, "hidden": 16},
    "paper-cnn-svhn": {"width": 4, "hidden": 16},
    "private-knn-cnn": {"width": 4, "hidden": 16},
    "small-cnn": {"width": 4, "dropout": 0.4},
}
SIZES = (40, 3, 75)


def teacher(kind: str, task: Task, **options: Any) -> NetworkTeacher:
    built = find_kind(kind, allowed_imports=(kind,))(task, **{"steps": STEPS, "batch": 16, **KINDS[kind], **options})
    assert isinstance(built, NetworkTeacher)
    return built


@pytest.fixture
def splits(digits: Examples) -> list[Examples]:
    starts = np.cumsum([0, *SIZES[:-1]])
    return [digits.take(np.arange(start, start + size)) for start, size in zip(starts, SIZES, strict=True)]


def together(kind: str, task: Task, splits: Sequence[Examples], seeds: Sequence[int], **more: Any) -> list[Any]:
    teachers = [teacher(kind, task) for _ in splits]
    NetworkTeacher.fit_together(teachers, splits, seeds, device="cpu", **more)
    return teachers


def logits(fitted: NetworkTeacher, digits: Examples) -> torch.Tensor:
    with torch.no_grad():
        return fitted._logits(fitted._inputs(digits.x[1000:1100]))


def test_every_network_is_tried_here() -> None:
    networks = {kind for kind, path in (BUILT_IN | installed_kinds()).items() if ".networks:" in path}
    assert KINDS.keys() == networks


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_program_gives_what_the_loop_gives(kind: str, digits: Examples, task: Task, splits: list[Examples]) -> None:
    """Weights and running statistics agree to rounding; another seed of the dropout masks alone would show."""
    for seed, own, one in zip((5, 6, 7), splits, together(kind, task, splits, (5, 6, 7)), strict=True):
        alone = teacher(kind, task)
        alone.fit(own, seed=seed, device="cpu")
        assert torch.allclose(logits(one, digits), logits(alone, digits), rtol=1e-3, atol=1e-4)
        kept, made = alone._network.state_dict(), one._network.state_dict()
        for name, value in kept.items():
            # One weight whose gradient is all rounding may go another way under AdamW: hence the quantile.
            difference = (value.double() - made[name].double()).abs().flatten()
            assert difference.quantile(0.95) < 1e-4, name


def test_colour_images_are_read_alike(splits: list[Examples]) -> None:
    colour = Task(classes=tuple("0123456789"), inputs=ImageInputs(height=8, width=8, channels=3))
    tinted = [Examples(np.concatenate([own.x, own.x // 2, own.x // 3], axis=3), own.y) for own in splits]
    for seed, own, one in zip((1, 2, 3), tinted, together("small-cnn", colour, tinted, (1, 2, 3)), strict=True):
        alone = teacher("small-cnn", colour)
        alone.fit(own, seed=seed, device="cpu")
        assert np.array_equal(alone.predict(tinted[0].x), one.predict(tinted[0].x))


@pytest.mark.slow
def test_no_teacher_depends_on_its_companions(digits: Examples, task: Task, splits: list[Examples]) -> None:
    """Other records, other seeds, none at all, or broken ones beside it: the teacher stays as it is."""
    first = logits(together("small-cnn", task, splits, (5, 6, 7))[0], digits)
    others = [splits[0], digits.take(np.arange(500, 560)), digits.take(np.arange(600, 607))]
    assert torch.allclose(logits(together("small-cnn", task, others, (5, 60, 70))[0], digits), first, atol=1e-4)
    assert torch.allclose(logits(together("small-cnn", task, splits[:1], (5,))[0], digits), first, atol=1e-4)
    assert not torch.allclose(logits(together("small-cnn", task, splits[:1], (6,))[0], digits), first, atol=1e-2)


def test_a_teacher_that_diverges_takes_nobody_along(digits: Examples) -> None:
    columns = tuple(NumberColumn(name=f"pixel-{number}", low=0, high=1) for number in range(32))
    task = Task(classes=tuple("0123456789"), inputs=TableInputs(columns=columns))
    rows = (digits.x.reshape(-1, 64) / 255).astype(np.float32)
    splits = [Examples(rows[start : start + 40], digits.labels()[start : start + 40]) for start in (0, 40)]
    sound = together("mlp", task, splits, (1, 2))[0]
    beside = together("mlp", task, [splits[0], Examples(np.full_like(splits[1].x, np.inf), splits[1].y)], (1, 2))
    assert not torch.isfinite(beside[1]._network.state_dict()["1.weight"]).all()
    for name, value in sound._network.state_dict().items():
        assert torch.allclose(value, beside[0]._network.state_dict()[name], atol=1e-5), name


@pytest.mark.slow
def test_half_precision_learns_as_well(digits: Examples, task: Task) -> None:
    """What CUDA computes in; here on the CPU, where it is only slower."""
    options = {"steps": 60, "width": 8, "dropout": 0.1}
    own = digits.take(np.arange(250))
    whole, half = teacher("small-cnn", task, **options), teacher("small-cnn", task, **options)
    whole.fit(own, seed=1, device="cpu")
    NetworkTeacher.fit_together([half], [own], (1,), device="cpu", precision=torch.bfloat16)
    assert all(value.dtype != torch.bfloat16 for value in half._network.state_dict().values())
    right = [(one.predict(digits.x[1000:]) == digits.labels()[1000:]).mean() for one in (whole, half)]
    assert right[0] > 0.6
    assert abs(right[1] - right[0]) < 0.05


def ensemble(examples: Examples, task: Task, folder: Path, device: str = "auto", **changes: Any) -> TeacherEnsemble:
    settings = {"kind": ON_A_GPU, "per_party": 5, "options": {"steps": STEPS}} | changes
    factory = TeacherFactory(TeacherSettings.model_validate(settings), task, (ON_A_GPU,))
    specs = specs_of("alpha", examples, factory, key=KEY, store=TeacherStore(folder))
    return TeacherEnsemble(specs, device=device, threads=1)


@pytest.fixture
def gpu_asked_for() -> Iterator[list[bool]]:
    with machine_with_a_gpu() as asked:
        yield asked


@pytest.fixture
def programs(gpu_asked_for: list[bool]) -> list[int]:
    """The sizes of the programs run on a GPU."""
    return GpuTeacher.programs


def test_a_gpu_takes_all_teachers_of_a_party_as_one_program(
    private: Examples, task: Task, tmp_path: Path, programs: list[int], digits: Examples
) -> None:
    made = ensemble(private, task, tmp_path)
    assert programs == [5]
    again = ensemble(private, task, tmp_path)
    assert (again.reused, programs) == (5, [5])
    assert np.array_equal(made.votes(digits.x[:50]), again.votes(digits.x[:50]))


def test_constant_teachers_take_no_part_in_the_program(
    private: Examples, task: Task, tmp_path: Path, programs: list[int]
) -> None:
    few = private.take(np.arange(12))
    made = ensemble(few, task, tmp_path, per_party=10)
    assert len(made) == 10
    assert sum(programs) < 10


def test_a_program_too_large_for_the_device_is_run_in_halves(
    private: Examples, task: Task, tmp_path: Path, programs: list[int]
) -> None:
    GpuTeacher.most = 2
    assert len(ensemble(private, task, tmp_path)) == 5
    assert programs == [2, 2, 1]


def test_a_forest_is_not_asked_about_the_gpu(
    private: Examples, task: Task, tmp_path: Path, gpu_asked_for: list[bool]
) -> None:
    ensemble(private, task, tmp_path / "forest", kind="random-forest", per_party=2, options={"trees": 2})
    assert gpu_asked_for == []
    ensemble(private, task, tmp_path / "network")
    assert gpu_asked_for


def test_the_cpu_takes_the_loop(private: Examples, task: Task, tmp_path: Path, programs: list[int]) -> None:
    assert len(ensemble(private, task, tmp_path, "cpu")) == 5
    assert programs == []
