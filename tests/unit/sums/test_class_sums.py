"""Class sums: neighbouring data sets move the sum by no more than is charged, and the parties' noise is all there.

The same check is made of versions with a planted bug, each of which it catches.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2
from support.sums_scene import LENGTH, POOL, SPEC, TASK, Consortium, lengths_left, records, squared

from collegium.data import Examples
from collegium.errors import ConfigurationError, ProtocolViolation
from collegium.models.codes import Codes, Weights
from collegium.models.coverage import CoverageSpec
from collegium.models.features import Features
from collegium.models.kernels import KernelMap
from collegium.parties.answer_book import AnswerBook
from collegium.parties.kinds.class_sums import RecordsOfClasses
from collegium.parties.policy import Policy, PolicyConfig
from collegium.protocol.kinds.coverage import CountCoverage
from collegium.protocol.messages import Request
from collegium.protocol.question import QuestionTerms
from collegium.protocol.replies import Failure
from collegium.protocol.requests import Ask
from collegium_accounting.game.laws import block_epsilon
from collegium_accounting.mechanisms.class_sums import ONE, ClassSums, bound_squared, code_one, count_of_one
from collegium_accounting.mechanisms.record_counts import RecordCounts
from collegium_accounting.noise.distributed import NoiseShare
from collegium_accounting.units import Adjacency, Unit

BOUND_SQUARED = bound_squared(3)
STEPS = itertools.product((0.0, 0.5, 1.0), (0.0, 1.0), (0.0,), (0.0, 1.0), (0.0, 1.0), (0.0,))
GRID = np.concatenate([POOL[[0, 5]], np.array(list(STEPS), np.float32)])
SMALL = [(row, label) for row in range(len(GRID)) for label in range(3)]
"""Every record of a small grid: two landmarks, which have the longest vectors, and 24 inputs; × 3 classes."""


def sums_of(
    kernel: KernelMap,
    members: list[tuple[int, int]],
    groups: list[str] | None = None,
    weights: Weights | None = None,
) -> np.ndarray:
    if not members:
        return np.zeros(LENGTH, dtype=np.int64)
    rows, labels = (np.array(part) for part in zip(*members, strict=True))
    persons = None if groups is None else np.array(groups)
    return RecordsOfClasses(Examples(GRID[rows], labels, persons), TASK).sums(kernel, weights)


def largest_moves(kernel: KernelMap, weights: Weights | None = None) -> tuple[int, int]:
    """The largest squared changes of the sum by adding a record to none or to another, and by replacing one."""
    alone = [sums_of(kernel, [record], weights=weights) for record in SMALL]
    replaced = max(squared(one - other) for one, other in itertools.combinations(alone, 2))
    pairs = np.random.default_rng(0).integers(0, len(SMALL), (200, 2)).tolist()
    added = max(
        squared(
            sums_of(kernel, [SMALL[first], SMALL[second]], weights=weights)
            - sums_of(kernel, [SMALL[first]], weights=weights)
        )
        for first, second in pairs
    )
    return max(added, *(squared(vector) for vector in alone)), replaced


def sure(size: float) -> Weights:
    """Weights that give records shares near 0 and 1, most of them in a wrong class."""
    return Weights.of(size * np.random.default_rng(6).normal(size=(SPEC.dimensions, 3)))


@pytest.mark.bits
@pytest.mark.parametrize("weights", [None, sure(3.0), sure(1e12)], ids=["first round", "later", "hostile"])
def test_no_neighbour_moves_the_sum_by_more_than_is_charged(kernel: KernelMap, weights: Weights | None) -> None:
    """Brute force over a small grid: every record alone, pairs, and every replacement, whatever the weights."""
    added, replaced = largest_moves(kernel, weights)
    assert 0.9 * BOUND_SQUARED < added <= BOUND_SQUARED
    assert BOUND_SQUARED < replaced <= 4 * BOUND_SQUARED
    assert ClassSums(5.0, 3).stages[0].moved(Unit(1, Adjacency.ADD_REMOVE)) == 1.0  # type: ignore[attr-defined]
    assert ClassSums(5.0, 3).stages[0].moved(Unit(1, Adjacency.REPLACE)) == 2.0  # type: ignore[attr-defined]


def counted_twice(kernel: KernelMap, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = RecordsOfClasses.sums
    monkeypatch.setattr(RecordsOfClasses, "sums", lambda *asked: honest(*asked) * 2)


def without_shortening(kernel: KernelMap, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record's vector as long as the whitening makes it."""
    lengths_left(monkeypatch)


def code_too_long(kernel: KernelMap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes of 2·C·e − 2 in place of C·e − 1."""
    honest = RecordsOfClasses.sums

    def longer(*asked: Any) -> np.ndarray:
        vector = honest(*asked)
        vector[:-1] *= 2
        return vector

    monkeypatch.setattr(RecordsOfClasses, "sums", longer)


def residual_not_shortened(kernel: KernelMap, monkeypatch: pytest.MonkeyPatch) -> None:
    """C·F·(e − p) as it is: a record that is surely in a wrong class has a residual of length √2."""
    monkeypatch.setattr("collegium.models.codes.longest_code_squared", lambda classes: 10**12)


@pytest.mark.bits
@pytest.mark.parametrize(
    ("planted", "weights"),
    [
        (counted_twice, None),
        (without_shortening, None),
        (code_too_long, None),
        (residual_not_shortened, sure(1e3)),
    ],
)
def test_the_brute_force_catches_a_planted_bug(
    kernel: KernelMap, monkeypatch: pytest.MonkeyPatch, planted: Callable[..., None], weights: Weights | None
) -> None:
    planted(kernel, monkeypatch)
    added, _ = largest_moves(kernel, weights)
    assert added > BOUND_SQUARED


@pytest.mark.parametrize("weights", [None, sure(3.0)], ids=["first round", "later"])
def test_a_record_is_counted_whatever_stands_beside_it(kernel: KernelMap, weights: Weights | None) -> None:
    """The sum over 5,000 records is the sum of the sums over its parts, and of its records one by one."""
    many = records(1, 5000)
    whole = RecordsOfClasses(many, TASK).sums(kernel, weights)
    parts = [RecordsOfClasses(many.take(np.arange(start, 5000, 7)), TASK).sums(kernel, weights) for start in range(7)]
    assert (whole == np.sum(parts, axis=0)).all()
    assert whole[-1] == 5000 * count_of_one(3)
    some = many.take(np.arange(300))
    each = [RecordsOfClasses(some.take(np.arange(row, row + 1)), TASK).sums(kernel, weights) for row in range(300)]
    assert (RecordsOfClasses(some, TASK).sums(kernel, weights) == np.sum(each, axis=0)).all()


def test_vectors_that_were_kept_from_the_round_before_give_the_same_sum(
    kernel: KernelMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, weights = records(1, 3000), sure(2.0)
    asked_before = RecordsOfClasses(many, TASK)
    asked_before.sums(kernel)
    kept = asked_before.sums(kernel, weights)
    monkeypatch.setattr("collegium.parties.kinds.class_sums._MOST_KEPT", 0)
    assert (RecordsOfClasses(many, TASK).sums(kernel, weights) == kept).all()


def test_weights_of_nothing_ask_what_the_first_round_asks(kernel: KernelMap) -> None:
    nothing = Weights.of(np.zeros((SPEC.dimensions, 3)))
    own = RecordsOfClasses(records(1, 50), TASK)
    assert (own.sums(kernel, nothing) == own.sums(kernel)).all()


def test_weights_that_do_not_fit_or_leave_the_exact_numbers_are_refused(
    consortium: Callable[..., Consortium],
) -> None:
    terms = QuestionTerms.of(ClassSums(5.0, 3, 2), "clear", "")
    fitting = sure(2.0)
    consortium().request("clear", terms=terms, number=2, weights=fitting)
    with pytest.raises(ProtocolViolation, match="a row for each dimension"):
        consortium().request("clear", terms=terms, number=2, weights=Weights(fitting.whole[1:], 0))
    with pytest.raises(ProtocolViolation, match="without weights"):
        consortium().request("clear", terms=terms, number=2, weights=fitting, per_party=True)
    for whole, exponent in (
        (fitting.whole.astype(np.int64), 0),
        (np.full((3, 3), 2**30 + 1, np.int32), 0),
        (fitting.whole, 101),
    ):
        with pytest.raises(ProtocolViolation):
            Weights(whole, exponent)
    with pytest.raises(ProtocolViolation, match="no weights"):
        Weights.from_bytes(b"collegium-weights-v1 0 2 2\n123")


def test_a_person_with_many_records_moves_the_sum_by_no_more_than_one_record(kernel: KernelMap) -> None:
    generator = np.random.default_rng(2)
    for count in (2, 3, 10):
        for _ in range(30):
            members = [SMALL[number] for number in generator.integers(0, len(SMALL), count)]
            assert squared(sums_of(kernel, members, ["one"] * count)) <= BOUND_SQUARED
    apart = squared(sums_of(kernel, [SMALL[0]] * 3, ["a", "b", "c"]))
    assert apart > BOUND_SQUARED  # three persons


@pytest.mark.parametrize("count", [0, 1, 3, 50])
def test_a_whole_party_moves_one_unit_whatever_its_records(kernel: KernelMap, count: int) -> None:
    alike = Examples(np.repeat(GRID[SMALL[5][0] : SMALL[5][0] + 1], count, 0), np.full(count, SMALL[5][1]))
    for examples in (alike, records(3, count)):
        vector = RecordsOfClasses(examples, TASK).direction(kernel)
        assert vector[-1] == 0 and squared(vector) <= BOUND_SQUARED
        assert count == 0 or squared(vector) > 0.999 * BOUND_SQUARED


def test_few_records_of_a_class_are_heard_beside_many_of_another(kernel: KernelMap) -> None:
    """Of 1 and 100 records the one has a tenth of the other's weight, not a hundredth."""
    labels = np.array([0] + [1] * 100)
    vector = RecordsOfClasses(Examples(np.repeat(GRID[:1], 101, 0), labels), TASK).direction(kernel)
    first, second, third = vector[:-1].reshape(3, -1).astype(np.float64)
    assert np.linalg.norm(first - third) == pytest.approx(0.1 * np.linalg.norm(second - third), rel=1e-3)


def test_a_sum_where_the_party_is_protected_would_move_too_far(kernel: KernelMap) -> None:
    """The planted bug: a party sends its sum in place of one vector."""
    assert squared(RecordsOfClasses(records(3, 50), TASK).sums(kernel)) > BOUND_SQUARED


@pytest.mark.parametrize("classes", [2, 3, 10, 77, 1000])
def test_the_bound_covers_every_code(classes: int) -> None:
    code = Codes(classes).of_scores(None, np.array([0]))[0].astype(object)
    assert code.tolist() == [code_one(classes) * (classes - 1)] + [-code_one(classes)] * (classes - 1)
    longest = ONE**2 * sum(entry**2 for entry in code) + count_of_one(classes) ** 2
    assert longest == bound_squared(classes)


def test_clear_sums_are_the_sum_of_all_records(consortium: Callable[..., Consortium], kernel: KernelMap) -> None:
    parties = consortium()
    exact = np.sum([RecordsOfClasses(own, TASK).sums(kernel) for own in parties.examples.values()], axis=0)
    assert (parties.asks(parties.request("clear")) == exact).all()


def noise_found(parties: Consortium, kernel: KernelMap, sigma: float) -> np.ndarray:
    exact = np.sum([RecordsOfClasses(own, TASK).sums(kernel) for own in parties.examples.values()], axis=0)
    rounds = [parties.asks(parties.request("masked+noised", sigma=sigma)) for _ in range(8)]
    return np.concatenate([total - exact for total in rounds]) / np.sqrt(BOUND_SQUARED)


def enough_noise(found: np.ndarray, sigma: float) -> bool:
    """Whether noise of at least σ explains it; an honest sum fails with probability 1e-6 (296 entries)."""
    return float(np.square(found / sigma).sum()) >= chi2.ppf(1e-6, len(found))


@pytest.mark.bits
def test_the_parties_noise_is_all_in_the_sum(
    consortium: Callable[..., Consortium], kernel: KernelMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = consortium()
    assert enough_noise(noise_found(parties, kernel, 7.0), 7.0)
    draw = NoiseShare.draw
    monkeypatch.setattr(NoiseShare, "draw", lambda *given: draw(*given) // 2)  # the planted bug
    assert not enough_noise(noise_found(parties, kernel, 7.0), 7.0)


def accounted(folder: Path, policy: PolicyConfig) -> dict[str, Callable[[str], object]]:
    return {
        "policy": lambda name: Policy(policy),
        "account": lambda name: AnswerBook(_made(folder / name), name, policy, None),
        "folder": lambda name: folder / name,
        "split_key": lambda name: None,
    }


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_an_answer_is_charged_to_each_record_once_and_repeated_free(
    consortium: Callable[..., Consortium], tmp_path: Path
) -> None:
    policy = PolicyConfig(minimum_noise_sums=2.0, queries=2, record_epsilon=1.0, sum_modes=("clear",))
    parties = consortium(**accounted(tmp_path, policy))
    first = parties.asks(parties.request("clear"))
    account = AnswerBook(tmp_path / "alpha", "alpha", policy, None)
    spent = account.record_spent()
    assert 0.7 < spent < 0.9 and account.queries_answered() == 1 and account.spent() == 0.0
    again = parties.asks(parties.request("clear"))  # a round that is repeated
    assert (again == first).all() and account.record_spent() == spent


@pytest.mark.parametrize("kind", ["class sums", "shares of records"])
def test_one_record_may_turn_the_vector_of_its_party_and_is_stated_to_cost_what_a_replaced_party_does(
    consortium: Callable[..., Consortium], tmp_path: Path, kind: str
) -> None:
    policy = PolicyConfig(minimum_noise_sums=2.0, queries=2, record_epsilon=100.0, epsilon=100.0, sum_modes=("clear",))
    parties = consortium(**accounted(tmp_path, policy))
    asked: Any = parties.request("clear", per_party=True)
    if kind == "shares of records":
        cells = CoverageSpec(Features("raw"), (0, 1), (0, 1), (1, 1000))
        counted = QuestionTerms.of(RecordCounts(5.0, 1, cells.cells), "clear")
        asked = CountCoverage(counted, "ledger", True, cells, parties.pool_sha256)
    parties.asks(asked)
    account, stage = AnswerBook(tmp_path / "alpha", "alpha", policy, None), asked.terms.described().stages[0]
    stated = account.record_spent_altogether()[0]
    moved, replaced = (block_epsilon({stage.law(Unit(1, kind)): 1}, 1e-5) for kind in Adjacency)
    assert stated == pytest.approx(max(moved, replaced), rel=1e-6) and stated > 1.3 * min(moved, replaced)
    account.close()


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"sigma": 1.5}, "refused-noise"),
        ({"mode": "masked"}, "refused-mode"),
        ({"kernel": replace(SPEC, bandwidth_squared=7)}, "refused-cost"),
        ({"per_party": True}, "refused-cost"),
        ({"mode": "masked+noised", "kernel": replace(SPEC, bandwidth_squared=7)}, "refused-cost"),
        ({"mode": "masked+noised", "per_party": True}, "refused-cost"),
    ],
)
def test_weak_noise_and_further_sums_are_refused(
    consortium: Callable[..., Consortium], tmp_path: Path, changed: dict[str, Any], code: str
) -> None:
    """Another kernel is another question, and so is a whole party's vector: both cost again, to records or party.

    Under masks they are given with the parties' noise alone, as nobody need see a clean vector.
    """
    modes = ("clear", "masked+noised")
    policy = PolicyConfig(minimum_noise_sums=2.0, record_epsilon=1.0, epsilon=0.1, sum_modes=modes)
    parties = consortium(**accounted(tmp_path, policy))
    parties.asks(parties.request("clear"))
    asked = parties.request(**({"mode": "clear"} | changed))
    reply = parties.parties.ask({"alpha": Ask("round-2", asked)}, timeout_s=1.0)["alpha"]
    assert isinstance(reply, Failure) and reply.code == code


def test_a_request_that_does_not_fit_the_task_is_refused(consortium: Callable[..., Consortium]) -> None:
    parties = consortium()
    for asked in (
        parties.request("clear", terms=parties.request("clear").terms.of(ClassSums(5.0, 4), "clear")),
        parties.request("clear", pool_sha256="0" * 64),
    ):
        assert isinstance(parties.parties.ask({"alpha": Ask("round-2", asked)}, timeout_s=1.0)["alpha"], Failure)
    with pytest.raises(ProtocolViolation, match="64 hexadecimal digits"):
        parties.request("clear", pool_sha256="0")


def test_a_request_travels_as_it_is(consortium: Callable[..., Consortium]) -> None:
    asked = Request("id", "run-1", Ask("round-1", consortium().request("masked", per_party=True)))
    read = Request.from_bytes(asked.to_bytes())
    assert read.to_bytes() == asked.to_bytes()
    assert read.body.question.asked == asked.body.question.asked  # type: ignore[union-attr]


def test_a_mechanism_of_one_class_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="classes"):
        ClassSums(5.0, 1)


@pytest.mark.parametrize(("most", "told"), [(3, 5), (32, 2), (34, 0)])
def test_what_passes_the_cap_on_records_is_cut_off_and_the_institution_alone_is_told(
    consortium: Callable[..., Consortium], caplog: pytest.LogCaptureFixture, most: int, told: int
) -> None:
    """The five have 30 to 34 records."""
    parties = consortium()
    asked = parties.request("clear")
    asked = replace(asked, terms=replace(asked.terms, most_records=most))
    total = parties.asks(asked)
    assert np.abs(total).max() <= 5 * asked.high == 5 * most * asked.of_one
    said = [record.getMessage() for record in caplog.records if record.__dict__.get("event") == "records-over-cap"]
    assert len(said) == told
    if told:
        assert f"party epsilon has 34 records, over the consortium's cap of {most}" in said[-1]
