"""Class sums without a public pool: what is drawn in its place, and how rounds make up for what it does not know."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.sums_scene import TASK

import collegium as cg
from collegium.coordinator.settings.run_config import RunConfig, load_public
from collegium.coordinator.students.unusual import unusual
from collegium.data import Examples
from collegium.data.drawn_pool import DRAWN, drawn_pool
from collegium.data.task import CategoryColumn, ImageInputs, NumberColumn, TableInputs, Task, VectorInputs
from collegium.errors import ConfigurationError
from collegium.models.features import Features, extract
from collegium.models.kernels import KernelMap, KernelSpec
from collegium.models.noisy_sums import NoisySums, Round
from collegium.models.pool_spectrum import PoolSpectrum
from collegium.models.students import read_student
from collegium.parties.kinds.class_sums import RecordsOfClasses
from collegium.settings import validate_config
from collegium_accounting.mechanisms.class_sums import bound_squared
from collegium_onnx import export_onnx

TABLE = TableInputs(
    columns=(
        NumberColumn(name="age", low=0, high=90),
        CategoryColumn(name="ward", categories=("east", "north", "west")),
        NumberColumn(name="pulse", low=30, high=200),
    )
)
VECTORS = VectorInputs(size=24)
RARE = Task(
    classes=("no", "yes"),
    inputs=TableInputs(columns=tuple(NumberColumn(name=f"c{number}", low=0, high=1) for number in range(12))),
)


def test_the_schema_alone_decides_what_is_drawn() -> None:
    assert (drawn_pool(TABLE) == drawn_pool(TABLE)).all()
    other = TableInputs(columns=(NumberColumn(name="age", low=0, high=91), *TABLE.columns[1:]))
    assert (drawn_pool(other) != drawn_pool(TABLE)).any()


def test_drawn_inputs_are_such_as_the_schema_allows() -> None:
    """Each number in its range or missing, each category one of its own or another: as records are encoded."""
    x = drawn_pool(TABLE)
    assert x.shape == (DRAWN, *TABLE.shape) and x.dtype == np.float32 and (x >= 0).all() and (x <= 1).all()
    for column in (x[:, :2], x[:, 6:]):
        missing = column[:, 1] == 1
        assert (column[missing, 0] == 0).all() and 0.05 < missing.mean() < 0.15
    assert (x[:, 2:6].sum(axis=1) == 1).all()
    assert 0.05 < x[:, 5].mean() < 0.15 and (x[:, 2:5].mean(axis=0) > 0.25).all()


def test_drawn_vectors_have_length_one_and_no_direction() -> None:
    x = drawn_pool(VECTORS)
    assert np.linalg.norm(x, axis=1) == pytest.approx(1.0, abs=1e-6)
    assert np.linalg.norm(x.mean(axis=0)) < 0.1


def test_of_images_nothing_is_drawn() -> None:
    with pytest.raises(ConfigurationError, match="images need a public pool"):
        drawn_pool(ImageInputs(height=8, width=8))


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ({"task": {"classes": ["a", "b"], "inputs": {"kind": "image", "height": 8, "width": 8}}}, "images need"),
        ({"pool_check": {}}, "pool_check: there must be"),
        ({"teachers": {}}, "teachers: there must be"),
        ({"student": {"method": "random-forest"}}, "the student random-forest learns from"),
        ({"budget": {"epsilon": 1.0, "unit": "party"}}, "budget.unit = 'party' needs"),
    ],
)
def test_what_needs_a_pool_says_so(others: dict[str, Any], why: str) -> None:
    asked = {"name": "run", "task": TASK.model_dump(), "budget": {"epsilon": 1.0}}
    assert validate_config(asked, RunConfig, "consortium.toml").drawn
    with pytest.raises(ConfigurationError, match=why) as refused:
        validate_config(asked | others, RunConfig, "consortium.toml")
    assert "\n" not in str(refused.value) and "name unlabelled public inputs in the section pool" in str(refused.value)


def test_without_a_pool_there_are_eight_rounds_whatever_the_noise() -> None:
    for budget in (0.01, 1.0):
        asked = {"name": "run", "task": TASK.model_dump(), "budget": {"epsilon": budget}}
        config = validate_config(asked, RunConfig, "consortium.toml")
        assert config.class_sums == 8 and "drawn from the schema" in config.choice
        assert len(load_public(config, None).pool) == DRAWN


def test_vectors_of_any_length_have_the_features_of_their_direction() -> None:
    """Each by itself, to the last bit; one of length 0 has none."""
    x = np.random.default_rng(1).normal(size=(50, 24)).astype(np.float32)
    found = extract(Features("unit"), x, VECTORS)
    assert (extract(Features("unit"), 64.0 * x, VECTORS) == found).all()
    assert (np.concatenate([extract(Features("unit"), row[None], VECTORS) for row in x]) == found).all()
    assert np.sqrt(np.square(found.astype(float)).mean(axis=1)) == pytest.approx(1024, rel=1e-3)
    assert (extract(Features("unit"), np.zeros((1, 24), np.float32), VECTORS) == 0).all()


def spectrum(pool: np.ndarray) -> PoolSpectrum:
    kernel = KernelMap.of_pool(KernelSpec(Features("raw"), tuple(range(40)), 600**2), pool, TASK.inputs)
    return PoolSpectrum.of_pool(kernel, pool)


def moment(one: PoolSpectrum, vectors: np.ndarray | None = None) -> np.ndarray:
    """E[φφᵀ] by a spectrum, or of ``vectors`` in whole numbers."""
    if vectors is not None:
        return vectors.T @ vectors / len(vectors) / 2.0**32
    return one.moment_times(np.eye(len(one.mean) + 1))


@pytest.fixture(scope="module")
def apart() -> tuple[PoolSpectrum, np.ndarray]:
    """The spectrum of a drawn pool, and φ of records that lie in a corner."""
    own = spectrum(drawn_pool(TASK.inputs))
    corner = np.tile([0.05, 0.0], (500, 3)) + np.random.default_rng(3).random((500, 6)) * np.tile([0.1, 0.0], 3)
    return own, own.kernel(corner.astype(np.float32)).astype(float)


def test_what_rounds_show_of_records_raises_the_moment_where_they_show_it(
    apart: tuple[PoolSpectrum, np.ndarray],
) -> None:
    """Without noise, along the weights of the rounds, it comes at least half way from the pool's to the records'."""
    pool, records = apart
    weights = np.random.default_rng(4).normal(size=(41, 2))
    weights[:-1] += 5.0 * records.mean(axis=0)[:-1, None] / np.linalg.norm(records.mean(axis=0))
    seen = moment(pool, records) @ weights
    found = pool.raised(weights, seen, 0.0)
    before, after = (np.linalg.norm(seen - moment(one) @ weights) for one in (pool, found))
    assert after < 0.5 * before
    change = (moment(found) - moment(pool))[:-1, :-1]  # what the constant entry has with itself is known
    assert np.linalg.eigvalsh(change).min() > -1e-9, "it is never lowered"


def test_where_noise_explains_all_the_moment_is_the_pools(apart: tuple[PoolSpectrum, np.ndarray]) -> None:
    pool, records = apart
    weights = np.random.default_rng(4).normal(size=(41, 2))
    seen = moment(pool, records) @ weights
    assert pool.raised(weights, seen, 10.0) is pool


def test_where_nothing_differs_nothing_changes(apart: tuple[PoolSpectrum, np.ndarray]) -> None:
    pool, _ = apart
    weights = np.random.default_rng(4).normal(size=(41, 2))
    found = pool.raised(weights, moment(pool) @ weights, 0.0)
    assert moment(found) == pytest.approx(moment(pool), abs=1e-9)


def in_a_corner(count: int, seed: int) -> Examples:
    """Records of twelve columns that are mostly 0: what is drawn evenly is like none of them."""
    generator = np.random.default_rng(seed)
    x = np.zeros((count, 24))
    x[:, ::2] = generator.random((count, 12)) < np.linspace(0.02, 0.3, 12)
    chance = 1.0 / (1.0 + np.exp(1.0 - 2.0 * x[:, 12:24:2].sum(axis=1) + 2.0 * x[:, :12:2].sum(axis=1)))
    return Examples(x.astype(np.float32), (generator.random(count) < chance).astype(np.int64))


def asked(own: Examples, sigma: float, *, corrected: bool = True) -> Any:
    """The student of eight rounds; without correction as if the pool were one of the records' kind."""
    pool = drawn_pool(RARE.inputs)
    kernel = KernelMap.of_pool(KernelSpec(Features("raw"), tuple(range(300)), 2500**2), pool, RARE.inputs)
    of_pool, records = PoolSpectrum.of_pool(kernel, pool), RecordsOfClasses(own, RARE)
    noise, generator = sigma * np.sqrt(8 * bound_squared(2)), np.random.default_rng(9)
    sums, weights = NoisySums(KernelSpec(Features("raw"), tuple(range(300)), 2500**2), (), drawn=True), None
    for _ in range(8):
        values = records.sums(kernel, weights)
        drawn = np.rint(generator.normal(0.0, noise, len(values))).astype(np.int64)
        sums = replace(sums, rounds=(*sums.rounds, Round(values + drawn, noise, weights)))
        weights = (sums if corrected else replace(sums, drawn=False)).next_weights(of_pool, 2, 8)
    assert weights is not None
    if corrected:
        return sums.classifier(pool, RARE, spectrum=of_pool)
    return replace(sums.classifier(pool, RARE, spectrum=of_pool), coefficients=weights.values)


@pytest.mark.bits
def test_records_that_lie_in_a_corner_of_the_schema_are_told_apart() -> None:
    """As well as by always naming the larger class and 5 points more; Newton steps by the pool's moment are not."""
    own, test = in_a_corner(4000, 1), in_a_corner(4000, 2)
    right = {
        corrected: float((asked(own, 2.0, corrected=corrected).predict(test.x) == test.y).mean())
        for corrected in (True, False)
    }
    constant = max(float((test.y == number).mean()) for number in (0, 1))
    assert right[True] > constant + 0.05, (right, constant)
    assert right[True] > right[False], (right, constant)


def test_a_student_without_a_pool_is_read_back_exported_and_calls_no_input_unlike_its_pool(tmp_path: Path) -> None:
    own = in_a_corner(2000, 1)
    student = asked(own, 2.0)
    student.save(tmp_path / "student.safetensors")
    back = read_student(tmp_path / "student.safetensors")
    assert back.drawn and (back.probabilities(own.x) == student.probabilities(own.x)).all()
    assert "outside_pool" not in unusual(back, own.x, own.x)
    assert "outside_pool" in unusual(replace(back, drawn=False), own.x, own.x)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["table", "vector"])
def test_a_notebook_needs_records_a_task_and_a_budget(kind: str, tmp_path: Path) -> None:
    """Classes that lie apart; one class may be named for all that is drawn, and the student is there all the same."""
    generator = np.random.default_rng(5)
    inputs = VECTORS if kind == "vector" else RARE.inputs
    task, labels = Task(classes=("no", "yes"), inputs=inputs), generator.integers(0, 2, 900)
    width = 24 if kind == "vector" else 12
    x = generator.random((900, width)) / 3 + labels[:, None] * np.linspace(0.0, 0.6, width)
    parts = {name: (x[at], labels[at]) for name, at in zip("abc", np.split(np.arange(600), 3), strict=True)}
    coordinator = cg.Coordinator(cg.LocalParties(parts, task, seed=3), epsilon=2, folder=tmp_path)
    assert len(coordinator.label()) == DRAWN
    student = coordinator.fit()
    assert (student.predict(x[600:]) == np.array(["no", "yes"])[labels[600:]]).mean() > 0.9
    assert coordinator.epsilon <= 2 and coordinator.record.config.drawn
    for file in ("report.html", *(path.name for path in tmp_path.glob("*.md"))):
        assert "drawn from the schema" in (tmp_path / file).read_text(encoding="utf-8"), file
    assert export_onnx(student.student, tmp_path / "student.onnx")[1] < 1e-6
