"""Students learn from few labels on public inputs, are the same for the same seed, and travel as safetensors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from collegium.coordinator.students import LearningProblem, chosen_method, fit_student, method_names
from collegium.coordinator.students.networks import fit_beside, neighbours_agree, normalise_by
from collegium.data import DataSource, Examples, default_task, load
from collegium.data.task import Task
from collegium.errors import CollegiumError, ConfigurationError, DataError, StorageError
from collegium.models.networks import FittedNetwork, build_network, network_inputs
from collegium.models.quantising import quantised
from collegium.models.students import Student, read_student
from collegium.models.whole_networks import WholeNetwork

TASK = default_task("digits")
FEW: dict[str, dict[str, Any]] = {
    "supervised": {"steps": 60},
    "consistency": {"steps": 60},
    "vat": {"steps": 60, "unlabelled_batch": 32},
    "gan": {"steps": 80, "network": "mlp", "batch": 40, "labelled_batch": 40, "learning_rate": 1e-3},
    "random-forest": {"trees": 20},
}
"""Enough to be far above chance on 100 labels."""


@pytest.fixture(scope="module")
def table() -> tuple[Task, Examples]:
    task = default_task("breast-cancer")
    return task, load(DataSource(source="breast-cancer", split="all", shuffle_seed=0), task, data_root=None)


def learn(digits: Examples, method: str, seed: int = 0, **options: Any) -> Student:
    return fit_student(
        method,
        digits.x[:300],
        np.arange(100),
        digits.labels()[:100],
        TASK,
        seed=seed,
        device="cpu",
        options=FEW[method] | options,
    )


def briefly(method: str) -> dict[str, Any]:
    return {"trees": 3} if method == "random-forest" else {"steps": 5}


def test_every_method_is_known() -> None:
    assert set(method_names()) >= {*FEW, "contrastive"}


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(FEW))
def test_a_student_learns_more_than_chance(method: str, digits: Examples) -> None:
    """Chance is 10 %: of 200 unseen digits, 70 right by chance has probability below 1e-15."""
    predicted = learn(digits, method).predict(digits.x[300:])
    assert (predicted == digits.labels()[300:]).sum() > 70


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(FEW))
def test_a_student_learns_a_table_beyond_its_most_frequent_class(method: str, table: tuple[Task, Examples]) -> None:
    task, rows = table
    student = fit_student(
        method, rows.x[:400], np.arange(60), rows.labels()[:60], task, seed=0, device="cpu",
        options=FEW[method] | ({"steps": 150} if method != "random-forest" else {}),
    )  # fmt: skip
    truth = rows.labels()[400:]
    assert (student.predict(rows.x[400:]) == truth).mean() > max(truth.mean(), 1 - truth.mean()) + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(FEW))
def test_the_seed_alone_decides(method: str, digits: Examples) -> None:
    first, again, other = (
        learn(digits, method, seed, **briefly(method)).probabilities(digits.x[:20]) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("method", sorted(FEW))
def test_the_seed_decides_over_dropout_too(method: str, table: tuple[Task, Examples]) -> None:
    task, rows = table
    before = torch.random.get_rng_state()
    first, again = (
        fit_student(
            method, rows.x[:200], np.arange(60), rows.labels()[:60], task, seed=0, device="cpu",
            options=briefly(method) | ({"network": "mlp"} if method == "gan" else {}),
        ).probabilities(rows.x[:20])
        for _ in range(2)
    )  # fmt: skip
    np.testing.assert_array_equal(first, again)
    assert torch.equal(torch.random.get_rng_state(), before)


FIRST = """
import sys
import numpy as np
from collegium.coordinator.students import fit_student
from collegium.data import default_task
task, draws, threads = default_task("digits"), np.random.default_rng(0), set()
x, y = draws.integers(0, 17, (40, 8, 8, 1)).astype(np.uint8), np.arange(40) % 10
def tell(done, total):
    threads.add(sys.modules["torch"].get_num_threads())
def fitted(batch):
    options = {"steps": 2, "batch": batch}
    student = fit_student(
        "supervised", x, np.arange(40), y, task, seed=5, device="cpu", threads=2, options=options, progress=tell
    )
    return student.probabilities(x)
assert "torch" not in sys.modules
first = fitted(1024)
assert threads == {2} and (first == fitted(1024)).all()
threads.clear()
fitted(64)
assert threads == {1} and sys.modules["torch"].get_num_threads() == 2
"""


@pytest.mark.slow
def test_the_first_student_of_a_process_is_fitted_as_the_next_is() -> None:
    """Torch is loaded by the first, which had as many threads as there are cores. A small batch has one."""
    environment = os.environ | {"OMP_NUM_THREADS": "3"}
    said = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, env=environment)
    assert said.returncode == 0, said.stderr


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(FEW))
def test_a_published_student_predicts_as_the_fitted_one(method: str, digits: Examples, tmp_path: Path) -> None:
    student = learn(digits, method, **briefly(method))
    student.save(tmp_path / "student.safetensors")
    published = read_student(tmp_path / "student.safetensors", device="cpu")
    assert published.task == TASK
    ours, theirs = student.probabilities(digits.x[:20]), published.probabilities(digits.x[:20])
    np.testing.assert_allclose(theirs, ours, atol=1e-6)
    np.testing.assert_array_equal(published.predict(digits.x[:20]), student.predict(digits.x[:20]))
    assert ours.shape == (20, 10) and (ours >= 0).all()
    np.testing.assert_allclose(ours.sum(axis=1), 1.0, atol=1e-6)


def test_what_a_mirror_shows_is_learned_only_where_it_keeps_the_class(digits: Examples) -> None:
    assert neighbours_agree(network_inputs(digits.x[:300]), torch.as_tensor(digits.labels()[:300])) == (True, False)
    draws = torch.Generator().manual_seed(0)
    bright = torch.rand((200, 1, 1, 1), generator=draws)
    anywhere = bright.expand(200, 1, 8, 8) + 0.01 * torch.rand((200, 1, 8, 8), generator=draws)
    assert neighbours_agree(anywhere, (bright.flatten() > 0.5).long()) == (True, True)
    assert neighbours_agree(anywhere, torch.randint(10, (200,), generator=draws))[0] is False  # 0.1 ± 0.02 agree
    sides = torch.arange(200) % 2
    arrows = anywhere.clone()
    arrows[sides == 0, :, :, :4] += 2.0
    arrows[sides == 1, :, :, 4:] += 2.0
    assert neighbours_agree(arrows, sides) == (
        True,
        False,
    )  # a mirrored arrow looks like a real one, of the other class


@pytest.mark.parametrize(("quantile", "learned"), [(0.2, 240), (0.8, 300)])
def test_a_second_network_learns_what_the_first_is_sure_of_unless_that_is_little(
    digits: Examples, monkeypatch: pytest.MonkeyPatch, quantile: float, learned: int
) -> None:
    """A first network that is sure of images whose mean is above a quantile; the sums' classifier knows all labels."""
    pool = digits.x[:300]
    threshold, seen = np.quantile(pool.mean(axis=(1, 2, 3)), quantile) / 255, []

    class Brightness(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.eye(10)[[3] * len(x)] * 20.0 * (x.mean(dim=(1, 2, 3)) > threshold)[:, None]

    def fit(problem: LearningProblem, *_: object) -> FittedNetwork:
        seen.append(problem.indices)
        return FittedNetwork(TASK, Brightness(), "cpu")

    def plain(pair: list[torch.nn.Module], task: Task, public: torch.Tensor) -> WholeNetwork:
        assert [type(network) for network in pair] == [Brightness, Brightness]
        return quantised([build_network("linear", task)], task, public)

    monkeypatch.setattr("collegium.coordinator.students.networks.fit_labelled", fit)
    monkeypatch.setattr("collegium.coordinator.students.networks.quantised", plain)
    nothing = np.zeros(0, dtype=np.int64)
    problem = LearningProblem(TASK, pool, nothing, nothing, 0, "cpu", lambda done, total: None)
    fit_beside(problem, np.eye(10)[digits.labels()[:300]], 10)
    first, second = seen
    assert len(first) == 300 and len(second) == learned
    assert (pool[second].mean(axis=(1, 2, 3)) / 255 > threshold).all() or learned == 300


def test_a_pair_gives_the_mean_of_both_networks(digits: Examples) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        pair = [build_network("student-cnn", TASK, width=2).eval() for _ in range(2)]
    alone, both = ([quantised(some, TASK, network_inputs(digits.x[:50]))] for some in (pair[:1], pair))
    other = quantised(pair[1:], TASK, network_inputs(digits.x[:50]))
    expected = (alone[0].probabilities(digits.x[:5]) + other.probabilities(digits.x[:5])) / 2
    assert np.array_equal(both[0].probabilities(digits.x[:5]), expected)


def test_batch_normalisation_is_by_the_images_themselves_whatever_the_network_saw_before() -> None:
    draws = torch.Generator().manual_seed(0)
    layer = torch.nn.BatchNorm2d(3).train()
    network = torch.nn.Sequential(layer)
    network(torch.full((4, 3, 2, 2), 50.0))
    images = torch.randn((1001, 3, 2, 2), generator=draws) * 4.0 + 7.0
    normalise_by(network, images)
    assert not network.training
    torch.testing.assert_close(layer.running_mean, images.mean(dim=(0, 2, 3)), rtol=0.0, atol=1e-2)
    torch.testing.assert_close(layer.running_var, images.var(dim=(0, 2, 3)), rtol=1e-2, atol=0.0)


def test_progress_ends_with_all_steps(digits: Examples) -> None:
    seen: list[tuple[int, int]] = []
    fit_student(
        "supervised",
        digits.x[:50],
        np.arange(20),
        digits.labels()[:20],
        TASK,
        seed=0,
        options={"steps": 4},
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (4, 4) and seen == sorted(seen)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([], "no query got a label"),
        ([3, 3, 3], "two classes"),
        ([0, 10, 1], "outside the task's 10 classes"),
    ],
)
def test_labels_that_teach_nothing_are_refused(labels: list[int], words: str, digits: Examples) -> None:
    with pytest.raises(DataError, match=words):
        fit_student("supervised", digits.x, np.arange(len(labels)), labels, TASK, seed=0)


def test_labels_beyond_the_pool_are_refused(digits: Examples) -> None:
    with pytest.raises(DataError, match="pool of 500 inputs"):
        fit_student("supervised", digits.x, [0, 500], [0, 1], TASK, seed=0)


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        (
            "telepathy",
            {},
            r"consistency, contrastive, gan, kernel, patches, random-forest, (stand-in, )?supervised, vat",
        ),
        ("gan", {"batch": 1}, "student.options.batch"),
        ("vat", {"radius": -1}, "student.options.radius"),
        ("random-forest", {"trees": 0}, "student.options.trees"),
        ("supervised", {"stpes": 3}, "student.options.stpes"),
        ("consistency", {"steps": 0}, "student.options.steps"),
        ("supervised", {"steps": "many"}, "student.options.steps"),
    ],
)
def test_unknown_methods_and_options_are_named(
    method: str, options: dict[str, float | int | str | bool], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        chosen_method(method, options, TASK)


@pytest.mark.parametrize("content", [None, b"", b"no tensors", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "])
def test_what_is_no_student_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "student.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CollegiumError) as refused:
        read_student(path)
    assert isinstance(refused.value, DataError | StorageError)
