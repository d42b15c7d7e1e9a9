"""The first sum where the pool is drawn: of the inputs themselves, and what is drawn by what it says."""

import itertools
from dataclasses import replace
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.misbehaving import Misbehaving
from support.sums_scene import TASK as NUMBERS
from support.sums_scene import squared

import collegium as cg
from collegium.coordinator.contradictions import check_sums, counted_by_sums
from collegium.coordinator.journal import Part
from collegium.coordinator.settings.run_config import RunConfig
from collegium.data import Examples, PoolStore
from collegium.data.drawn_pool import (
    BINS,
    DRAWN,
    cells_of,
    column_cells,
    drawn_by,
    drawn_pool,
    even_shares,
    read_shares,
    starts_of,
)
from collegium.data.task import CategoryColumn, NumberColumn, TableInputs, Task, VectorInputs
from collegium.errors import Contradiction, DataError, ProtocolViolation
from collegium.models import input_sums as module
from collegium.models.features import Features
from collegium.models.input_sums import code_of_one, entry_of_one, shares_of
from collegium.models.kernels import KernelMap, KernelSpec
from collegium.models.noisy_sums import NoisySums, Round
from collegium.parties.kind import Institution
from collegium.parties.kinds.class_sums import PartyClassSums, RecordsOfClasses
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.question import Question, QuestionTerms, decode, encode
from collegium.settings import validate_config
from collegium_accounting.mechanisms.class_sums import ClassSums, bound_squared, count_of_one

TABLE = TableInputs(
    columns=(
        NumberColumn(name="age", low=0, high=90),
        CategoryColumn(name="ward", categories=("east", "north", "west")),
        NumberColumn(name="pulse", low=30, high=200),
    )
)
TASK = Task(classes=("no", "perhaps", "yes"), inputs=TABLE)
CELLS = column_cells(TABLE)
GRID = drawn_pool(TABLE)[:40]
SMALL = list(itertools.product(range(8), range(3)))
"""Every record of a small grid: eight inputs × three classes."""


def of_inputs(rows: list[int], labels: list[int], persons: list[str] | None = None, task: Task = TASK) -> np.ndarray:
    x = GRID[np.array(rows, dtype=np.int64)]
    groups = None if persons is None else np.array(persons)
    return RecordsOfClasses(Examples(x, np.array(labels), groups), task).of_inputs()


def counted(values: np.ndarray, classes: int = 3) -> np.ndarray:
    """Records in cells ``[classes, cells]``, by sums without noise."""
    return values[:-1].reshape(classes, -1)[:, :-1] / code_of_one(classes) / entry_of_one(len(TABLE.columns))


@pytest.mark.parametrize("classes", [2, 3, 10, 77])
def test_no_record_moves_the_sum_by_more_than_is_charged(classes: int) -> None:
    """Brute force over a small grid: alone, beside another, and in place of another; nor does one person's."""
    task = Task(classes=tuple(map(str, range(classes))), inputs=TABLE)
    bound = bound_squared(classes)
    alone = [of_inputs([row], [label], task=task) for row, label in SMALL if label < classes]
    assert 0.98 * bound < max(map(squared, alone)) <= bound
    assert max(squared(one - other) for one, other in itertools.combinations(alone, 2)) <= 4 * bound
    both = of_inputs([0, 5], [0, 1], task=task)
    assert squared(both - of_inputs([5], [1], task=task)) <= bound
    several = of_inputs([0, 1, 2, 3, 3], [0, 1, 1, 0, 0], ["p"] * 5, task=task)
    assert 0 < squared(several) <= bound


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("entry_of_one", lambda columns: isqrt(module.REST)),
        ("code_of_one", lambda classes: 2 * code_of_one(classes)),
        ("CONSTANT", 2**16),
    ],
)
def test_a_planted_bug_is_caught(name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, name, wrong)
    with pytest.raises(AssertionError):
        test_no_record_moves_the_sum_by_more_than_is_charged(3)


VECTORS = Task(classes=("a", "b", "c"), inputs=VectorInputs(size=12))
LONG = (
    np.random.default_rng(3).normal(1.0, 1.0, (60, 12)).astype(np.float32)
    * np.logspace(-3, 3, 60, dtype=np.float32)[:, None]
)


def of_vectors(rows: list[int], persons: list[str] | None = None) -> np.ndarray:
    groups = None if persons is None else np.array(persons)
    examples = Examples(LONG[np.array(rows)], np.array(rows) % 3, groups)
    return RecordsOfClasses(examples, VECTORS).of_inputs()


def test_no_vector_moves_the_sum_by_more_than_is_charged_however_long_it_is() -> None:
    bound = bound_squared(3)
    alone = [of_vectors([row]) for row in range(len(LONG))]
    assert all(0.98 * bound < squared(one) <= bound for one in alone)
    assert max(squared(one - other) for one, other in itertools.combinations(alone, 2)) <= 4 * bound
    assert squared(of_vectors([3, 4, 5, 5], ["p"] * 4)) <= bound
    assert (of_vectors(list(range(60))) == np.sum(alone, axis=0)).all(), "whatever stands beside it"
    assert (of_vectors(list(range(60)))[14:-1].reshape(-1) == 0)[: 12 * 2].all(), "all of them add to the first class"


def test_vectors_as_long_as_they_come_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "of_length", lambda vectors, most: 40 * vectors)
    with pytest.raises(AssertionError):
        test_no_vector_moves_the_sum_by_more_than_is_charged_however_long_it_is()


def test_vectors_are_drawn_about_the_mean_of_the_records() -> None:
    """With little noise as far from it as they are; where noise hides it, about none."""
    random = np.random.default_rng(5)
    x = (np.linspace(0.2, 1.0, 12) + 0.4 * random.normal(size=(2000, 12))).astype(np.float32)
    values = RecordsOfClasses(Examples(x, random.integers(0, 3, 2000)), VECTORS).of_inputs()
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    for sigma, near in ((1.0, 1.0), (3000.0, 0.0)):
        noise = sigma * np.sqrt(bound_squared(3))
        shares = shares_of(noisy(values, noise), noise, 3, VECTORS.inputs)
        rows, classes = drawn_by(shares, VECTORS.inputs)
        assert rows.shape == (DRAWN, 12) and len(classes) == 0 and (drawn_by(shares, VECTORS.inputs)[0] == rows).all()
        assert rows.mean(axis=0) == pytest.approx(near * unit.mean(axis=0), abs=0.05)
        assert np.square(rows).sum(axis=1).mean() == pytest.approx(1.0, abs=0.05)
    for spoilt in (shares[:-4], shares[:-4] + np.int32(2**22).tobytes()):
        with pytest.raises(ProtocolViolation):
            drawn_by(spoilt, VECTORS.inputs)


@pytest.mark.parametrize("sigma", [0.0, 5.0, 20.0])
def test_vectors_are_never_drawn_all_alike(sigma: float) -> None:
    """Where records are much alike, noise may make their mean longer than they are. The map would tell none apart."""
    random = np.random.default_rng(5)
    x = (np.linspace(0.2, 1.0, 12) + 0.02 * random.normal(size=(200, 12))).astype(np.float32)
    values = RecordsOfClasses(Examples(x, random.integers(0, 3, 200)), VECTORS).of_inputs()
    noise = sigma * np.sqrt(bound_squared(3))
    for seed in range(10):
        rows, _ = drawn_by(shares_of(noisy(values, noise, seed), noise, 3, VECTORS.inputs), VECTORS.inputs)
        assert rows.std(axis=0).min() > 0.02
        assert np.square(rows).sum(axis=1).mean() == pytest.approx(1.0, abs=0.05)


def test_a_record_is_in_one_cell_of_each_column_whatever_stands_beside_it() -> None:
    """To the last bit in blocks of 1, 7 and all; also at the ends of a range, and where a value is missing."""
    found = cells_of(GRID, TABLE)
    starts = np.array([*starts_of(TABLE), CELLS])
    assert ((found >= starts[:-1]) & (found < starts[1:])).all()
    for block in (1, 7):
        parts = [cells_of(GRID[start : start + block], TABLE) for start in range(0, len(GRID), block)]
        assert (np.concatenate(parts) == found).all()
    ends = np.array([[0, 0, 1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 0, 1, 0, 1]], dtype=np.float32)
    assert cells_of(ends, TABLE).tolist() == [[0, 17, 21 + BINS - 1], [BINS - 1, 20, 21 + BINS]]
    strange = np.full((3, 8), [[-5.0], [np.inf], [0.0]], dtype=np.float32)
    with np.errstate(invalid="ignore"):
        beyond = cells_of(strange, TABLE)
    assert ((beyond >= starts[:-1]) & (beyond < starts[1:])).all(), "a row that no file gives has its cells too"


def test_the_sum_counts_the_records_of_each_class_in_each_cell() -> None:
    labels = (np.arange(40) % 3).tolist()
    values = of_inputs(list(range(40)), labels)
    expected = np.zeros((3, CELLS))
    for row, label in enumerate(labels):
        expected[label, cells_of(GRID[row : row + 1], TABLE)[0]] += 1
    assert counted(values) == pytest.approx(expected)
    assert values[-1] == 40 * count_of_one(3)
    said = counted_by_sums(Part(values, 1.0, ("a",)), 3, of_inputs=True)
    assert said.per_class is not None
    assert said.per_class == pytest.approx([14, 13, 13], rel=1e-3) and said.total == pytest.approx(40)


def noisy(values: np.ndarray, noise: float, seed: int = 0) -> np.ndarray:
    return values + np.rint(np.random.default_rng(seed).normal(0.0, noise, len(values))).astype(np.int64)


def many(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Records of which those of class 2 are old, and all are in the ward to the east."""
    random = np.random.default_rng(seed)
    x = np.zeros((count, 8), dtype=np.float32)
    labels = random.choice(3, count, p=[0.6, 0.3, 0.1])
    x[:, 0] = np.where(labels == 2, 0.9, 0.1) + 0.09 * random.random(count)
    x[:, 2], x[:, 6] = 1.0, random.random(count)
    return x, labels


def test_rows_that_are_drawn_are_like_the_records() -> None:
    x, labels = many(3000)
    values = RecordsOfClasses(Examples(x, labels), TASK).of_inputs()
    noise = 2.0 * np.sqrt(bound_squared(3))
    shares = shares_of(noisy(values, noise), noise, 3, TABLE)
    rows, classes = drawn_by(shares, TABLE)
    again, _ = drawn_by(shares, TABLE)
    assert (rows == again).all() and rows.shape == (DRAWN, 8) and rows.dtype == np.float32
    assert (rows >= 0).all() and (rows <= 1).all() and (rows[:, 2:6].sum(axis=1) == 1).all()
    assert np.bincount(classes) / DRAWN == pytest.approx([0.6, 0.3, 0.1], abs=0.05)
    assert rows[:, 2].mean() > 0.9, "nearly all are in one ward"
    old = rows[:, 0] > 0.8
    assert old[classes == 2].mean() > 0.8 and old[classes == 0].mean() < 0.1


def test_where_noise_hides_all_cells_rows_are_drawn_evenly() -> None:
    """As the schema alone has it: what is seen of 200 records is less than so much noise explains."""
    x, labels = many(200)
    values = RecordsOfClasses(Examples(x, labels), TASK).of_inputs()
    table = read_shares(shares_of(values, 1e4 * np.sqrt(bound_squared(3)), 3, TABLE), TABLE)
    for column, evenly in zip(np.split(table[:, 1:], starts_of(TABLE)[1:], axis=1), even_shares(TABLE), strict=True):
        assert column / column.sum(axis=1, keepdims=True) == pytest.approx(np.stack([evenly] * 3), abs=1e-5)
    pool, even = cells_of(drawn_pool(TABLE), TABLE), np.concatenate(even_shares(TABLE))
    assert np.bincount(pool.reshape(-1), minlength=CELLS) / DRAWN == pytest.approx(even, abs=0.025)


@pytest.mark.parametrize("spoilt", [lambda b: b[:-1], lambda b: b"", lambda b: b[:4] + bytes(len(b) - 4)])
def test_shares_that_no_sum_gives_are_refused(spoilt: Any) -> None:
    shares = shares_of(of_inputs([0, 1], [0, 1]), 1.0, 3, TABLE)
    with pytest.raises(ProtocolViolation):
        drawn_by(spoilt(shares), TABLE)
    with pytest.raises(ProtocolViolation):
        read_shares(shares, VectorInputs(size=8))


def of(values: np.ndarray) -> None:
    check_sums(Part(values, 1e6, ("a", "b")), 3, most_records=100, per_party=False, of_inputs=True)


def test_what_no_records_give_is_refused() -> None:
    honest = noisy(of_inputs(list(range(40)), [row % 3 for row in range(40)]), 1e6)
    of(honest)
    for spoilt in (
        np.append(50 * honest[:-1], honest[-1]),
        np.append(honest[:-1], 10 * honest[-1]),
        np.append(-honest[:-1], honest[-1]),
    ):
        with pytest.raises(Contradiction):
            of(spoilt)


def asked(**fields: Any) -> SumClasses:
    terms = QuestionTerms.of(ClassSums(5.0, 3, 8), "clear", "")
    usual = {"terms": terms, "ledger_id": "l", "per_party": False, "kernel": None, "pool_sha256": "ab" * 32}
    return SumClasses(**(usual | {"entries": CELLS} | fields))


SHARES = np.ones((3, 1 + CELLS), dtype="<u4").tobytes()
DRAWN_MAP = KernelSpec(Features("raw"), (0, 1, 2), 900, shares=SHARES)


@pytest.mark.parametrize(
    "fields",
    [
        {"entries": 0},
        {"entries": -1},
        {"entries": 2**18},
        {"number": 2},
        {"per_party": True},
        {"kernel": DRAWN_MAP},
        {"kernel": DRAWN_MAP, "entries": 0, "per_party": True},
    ],
)
def test_a_question_that_is_no_first_sum_of_inputs_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ProtocolViolation):
        asked(**fields)


def test_a_question_is_read_as_it_was_written_and_other_shares_are_another_map() -> None:
    for question in (asked(), asked(kernel=DRAWN_MAP, entries=0, number=2)):
        assert encode(decode("class-sums", encode(question))) == encode(question)
    other = replace(DRAWN_MAP, shares=(2 * np.ones((3, 1 + CELLS), dtype="<u4")).tobytes())
    digests = {one.digest() for one in (DRAWN_MAP, other, replace(DRAWN_MAP, shares=None))}
    assert len(digests) == 3
    assert asked().tells_classes_apart is False
    assert asked(kernel=DRAWN_MAP, entries=0, number=2).tells_classes_apart is True


@pytest.mark.parametrize(
    ("task", "question", "why"),
    [
        (NUMBERS, asked(), "entries of inputs"),
        (Task(classes=TASK.classes, inputs=VectorInputs(size=8)), asked(), "this task has 8"),
        (
            TASK,
            asked(kernel=replace(DRAWN_MAP, shares=SHARES[: len(SHARES) // 3]), entries=0, number=2),
            "are of other than 3 classes",
        ),
    ],
)
def test_a_party_refuses_what_is_not_of_its_task(task: Task, question: SumClasses, why: str, tmp_path: Path) -> None:
    own = Institution(
        "a", Examples(GRID, np.zeros(40, dtype=np.int64)), task, PoolStore(tmp_path), b"k" * 32, None, "cpu",
        lambda _: None, lambda: None, 1.0,  # type: ignore[arg-type, return-value]
    )  # fmt: skip
    with pytest.raises((DataError, ProtocolViolation), match=why):
        PartyClassSums(own).validate(question)


def test_before_the_first_round_the_drawn_rows_stand_for_the_records() -> None:
    """Where only the sum in cells could be had, its classes are told apart by it."""
    x, labels = many(3000)
    values = RecordsOfClasses(Examples(x, labels), TASK).of_inputs()
    noise = 2.0 * np.sqrt(bound_squared(3))
    released = noisy(values, noise)
    shares = shares_of(released, noise, 3, TABLE)
    spec = KernelSpec(Features("raw"), tuple(range(200)), 800**2, shares=shares)
    sums = NoisySums(spec, (), drawn=True, of_inputs=Round(released, noise))
    found = sums.of_pool(drawn_pool(TABLE), TASK)
    test, truth = many(1000, 1)
    old = found.student.predict(test)[truth == 2]
    assert (old == 2).mean() > 0.8
    kernel = KernelMap.of_pool(spec, drawn_pool(TABLE), TABLE)
    assert len(kernel.landmarks) == 200, "landmarks are among the rows that are drawn, not among the pool"


@pytest.mark.parametrize(
    ("others", "entries"),
    [
        ({}, CELLS),
        ({"sums": {"rounds": 4}}, CELLS),
        ({"sums": {"rounds": 3}}, 0),
        ({"task": {"classes": ["a", "b"], "inputs": {"kind": "vector", "size": 8}}}, 8),
        ({"pool": {"source": "pool.csv"}}, 0),
    ],
)
def test_public_facts_decide_whether_there_is_a_sum_of_inputs(others: dict[str, Any], entries: int) -> None:
    given = {"name": "run", "task": TASK.model_dump(), "budget": {"epsilon": 1.0}} | others
    config = validate_config(given, RunConfig, "consortium.toml")
    assert config.input_entries == entries
    assert ("by what the first sum says of the inputs" in config.choice) == bool(entries)


def test_before_the_first_round_vectors_say_nothing_of_classes() -> None:
    values = of_vectors(list(range(60)))
    shares = shares_of(values, 1.0, 3, VECTORS.inputs)
    spec = KernelSpec(Features("unit"), tuple(range(50)), 4000**2, shares=shares)
    found = NoisySums(spec, (), drawn=True, of_inputs=Round(values, 1.0)).of_pool(drawn_pool(VECTORS.inputs), VECTORS)
    assert found.probabilities == pytest.approx(np.full((DRAWN, 3), 1 / 3), abs=1e-6)


@pytest.mark.bits
def test_a_run_without_a_pool_tells_a_rare_class_in_a_corner_of_the_schema(tmp_path: Path) -> None:
    """End to end, in seven rounds after the sum in cells. Evenly drawn rows are hardly ever in that ward and so old."""
    x, labels = many(600)
    records = {f"p{number}": (x[number::5], labels[number::5]) for number in range(5)}
    parties = cg.LocalParties(records, TASK, folder=tmp_path / "parties", seed=1)
    coordinator = cg.Coordinator(parties, epsilon=3.0, folder=tmp_path / "run")
    coordinator.label()
    student = coordinator.fit()
    test, truth = many(500, 1)
    assert (student.predict(test)[truth == 2] == "yes").mean() > 0.5


@pytest.mark.bits
def test_a_lie_in_the_first_sum_under_a_map_is_left_out_and_the_run_goes_on(tmp_path: Path) -> None:
    """So much noise that only the sum of inputs is by groups: nobody can be named, and later sums are by groups."""
    x, labels = many(900)

    def lie(question: Question, vector: np.ndarray) -> np.ndarray:
        second = isinstance(question, SumClasses) and question.number == 2
        return np.clip(vector * 5000, question.low, question.high) if second else vector

    parties = {f"p{number}": (x[number::9], labels[number::9]) for number in range(9)}
    local = Misbehaving(parties, TASK, folder=tmp_path / "parties", seed=1)
    local.lies("p0", lie)
    coordinator = cg.Coordinator(local, epsilon=0.15, folder=tmp_path / "run", evaluation_share=0.2)
    assert len(coordinator.label()) == DRAWN
    coordinator.fit()
    assert coordinator.evaluation is not None, "what it counts is not held against the sum that was left out"
    assert coordinator.epsilon <= 0.15
