"""Charge, draw, release: what is paid, when, and what a crash leaves behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from support.coordinators import Crash
from support.labels_at_hand import LabelsAtHand

from collegium.coordinator.kinds.labels import mark
from collegium.coordinator.noise import CoordinatorNoise
from collegium.coordinator.statement import Slot, Statement
from collegium.errors import ConfigurationError
from collegium.privacy.ledger.entry import Charge, Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.steps import law_of
from collegium.privacy.ledger.verifier import verify
from collegium_accounting.game.laws import VectorLaw, block_epsilon
from collegium_accounting.mechanisms import (
    ABSTAIN,
    COORDINATOR,
    NEXT_STAGE,
    LabelMechanism,
    LabelStage,
    Mechanism,
    Noise,
    Stage,
    Unit,
    create,
)
from collegium_accounting.renyi import RenyiCurve, gaussian_curve

KEYS = [f"q{n}" for n in range(10)]
COUNTS = np.array([[10, 0] if n % 2 else [5, 5] for n in range(10)], dtype=np.int64)
"""Odd queries have consensus, even ones have none."""


@dataclass(frozen=True)
class Noisy(LabelStage):
    """Costs what Gaussian noise costs."""

    sigma: float

    @property
    def noise_votes(self) -> float:
        return self.sigma

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return gaussian_curve(unit.votes, self.sigma, orders)


@dataclass(frozen=True)
class Screen(Noisy):
    """Passes on what has a clear winner."""

    name: str = "screen"
    sigma: float = 40.0

    def run(self, counts: NDArray[np.int64], noise: Noise) -> NDArray[np.int64]:
        return np.where(counts.max(axis=1) > 7, NEXT_STAGE, ABSTAIN)


@dataclass(frozen=True)
class Answer(Noisy):
    """The winner itself; the noise does not matter here."""

    name: str = "answer"
    sigma: float = 4.0

    def run(self, counts: NDArray[np.int64], noise: Noise) -> NDArray[np.int64]:
        return counts.argmax(axis=1)


@dataclass(frozen=True)
class TwoStages(LabelMechanism):
    """Screen, then answer."""

    name: ClassVar[str] = "two-stages"
    source: ClassVar[str] = "test"

    @property
    def stages(self) -> tuple[LabelStage, ...]:
        return (Screen(), Answer())

    def parameters(self) -> dict[str, float | int | str]:
        return {"sigma1": 40.0, "sigma2": 4.0}


Open = Callable[..., Ledger]


@pytest.fixture
def ledger_at(tmp_path: Path) -> Iterator[Open]:
    opened: list[Ledger] = []

    def open_ledger(epsilon: float = 100.0) -> Ledger:
        ledger = Ledger.open(
            tmp_path / "ledger.sqlite",
            signer=None,
            delta=1e-5,
            terms=Terms(epsilon_budget=epsilon),
            name="test",
        )
        opened.append(ledger)
        return ledger

    yield open_ledger
    for ledger in opened:
        ledger.close()


SCREEN, ANSWER = Screen().law(Unit()), Answer().law(Unit())


def rounds(ledger: Ledger) -> dict[str, int]:
    """Rounds charged by purpose."""
    found: Counter[str] = Counter()
    for entry in ledger.entries():
        if isinstance(entry.content, Charge):
            found[entry.content.purpose] += entry.content.queries
    return dict(found)


def stated(ledger: Ledger) -> float:
    """ε of the largest numbers of rounds that the terms in force allow."""
    return block_epsilon({b.laws["record"]: b.rounds or 0 for b in ledger.terms().blocks.values()}, 1e-5)


def labeller(ledger: Ledger) -> LabelsAtHand:
    return LabelsAtHand(ledger, TwoStages(), Unit(), CoordinatorNoise(1))


def expected() -> dict[str, int]:
    return {key: 0 if n % 2 else ABSTAIN for n, key in enumerate(KEYS)}


def test_each_stage_is_charged_for_the_queries_that_reach_it(ledger_at: Open) -> None:
    ledger = ledger_at()
    assert labeller(ledger).label(KEYS, COUNTS)
    assert labeller(ledger).labels.held(KEYS) == expected()
    assert rounds(ledger) == {"screen": 10, "answer": 5}
    assert ledger.epsilon() == stated(ledger) > 0.0


@pytest.mark.slow
def test_rounds_that_a_study_of_two_classes_left_are_not_charged_by_its_law(ledger_at: Open) -> None:
    """The same mechanism costs more with three classes; blocks of the same names are in force with room left."""
    ledger, noise, gnmax = ledger_at(), CoordinatorNoise(1), create("gnmax", sigma=4.0)
    LabelsAtHand(ledger, gnmax, Unit(), noise, queries=50, classes=2).label(["other"], np.array([[9, 1]]))
    assert LabelsAtHand(ledger, gnmax, Unit(), noise, queries=10, classes=3).label(KEYS, np.tile([9, 1, 0], (10, 1)))
    ((law, of_two),) = (
        (block.laws["record"], gnmax.stages[0].law(Unit(), 2)) for block in ledger.terms().blocks.values()
    )
    assert law == gnmax.stages[0].law(Unit(), 3) != of_two
    assert ledger.epsilon() > block_epsilon({law: 10}, 1e-5)


def test_a_charge_by_the_law_of_another_run_that_came_between_is_refused(tmp_path: Path) -> None:
    """Between two stages of the first, the second stated blocks of the same names that cost less."""
    mechanism = create("confident-gnmax", sigma1=30.0, sigma2=4.0, threshold=10.0)
    terms = Terms(epsilon_budget=30.0)
    with (
        Ledger.open(tmp_path / "ledger.sqlite", signer=None, delta=1e-5, terms=terms, name="x") as one,
        Ledger.open(tmp_path / "ledger.sqlite", signer=None, delta=1e-5, terms=terms, name="x") as two,
    ):

        class Interrupted(CoordinatorNoise):
            def outcomes(self, stage: Stage, counts: Any, queries: Sequence[str]) -> Any:
                second.label(["other"], np.array([[60, 5]]))
                return super().outcomes(stage, counts, queries)

        first = LabelsAtHand(one, mechanism, Unit(), Interrupted(1), queries=4, classes=3)
        second = LabelsAtHand(two, mechanism, Unit(), CoordinatorNoise(1), queries=4, classes=2)
        with pytest.raises(ConfigurationError, match="another run uses this ledger"):
            first.label(["one", "two"], np.tile([90, 1, 0], (2, 1)))


def counts_of(sigma: float, parts: int = 1) -> Slot:
    counts = create("record-counts", sigma=sigma, parts=parts, cells=20)
    return Slot.once("evaluation", counts, COORDINATOR, "record", Unit())


@pytest.mark.parametrize("same_mechanism", [True, False])
@pytest.mark.parametrize("what", ["counts beside the labels", "one sum over all records", "a run"])
def test_what_is_paid_once_is_not_charged_by_the_law_of_another_run_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, same_mechanism: bool
) -> None:
    """The second states its blocks, with a hundred times the noise, between the first one's look and its charge."""

    def begun(sigma: float) -> tuple[Ledger, LabelsAtHand]:
        mechanism, beside = create("gnmax", sigma=40.0), []
        if what == "counts beside the labels":
            beside = [counts_of(sigma)]
        elif what == "a run":
            mechanism = create("individual-knn", sigma=4 * sigma, participations=2)
        else:
            mechanism = create("class-sums", sigma=sigma, classes=3)
        draw, unit = CoordinatorNoise(1), mechanism.unit(1)
        named = {} if same_mechanism else {"sigma": sigma}
        terms = Terms(epsilon_budget=30.0, adjacency=unit.adjacency.value, mechanism=named)
        ledger = Ledger.open(tmp_path / "ledger.sqlite", signer=None, delta=1e-5, terms=terms, name="x")
        return ledger, LabelsAtHand(ledger, mechanism, unit, draw, queries=4, classes=3, beside=beside)

    ledger, first = begun(2.0)
    evaluation, honest = counts_of(2.0), ledger.charge

    def charge(*arguments: Any, **named: Any) -> int:
        other, second = begun(200.0)
        second.statement._allow(4)
        other.close()
        return honest(*arguments, **named)

    monkeypatch.setattr(ledger, "charge", charge)
    with pytest.raises(ConfigurationError, match="another run uses this ledger"):
        if what == "counts beside the labels":
            first.statement.pay(evaluation, ["the first one's"])
        elif what == "a run":
            first.label(["one"], np.array([[90, 1, 0]]))
        else:
            first.statement.pay(first.statement.sums, ["which sum"])
    assert ledger.epsilon() == 0.0
    ledger.close()


def test_an_unspent_charge_is_good_for_a_release_of_its_own_law_alone(ledger_at: Open) -> None:
    """Its name alone may have been charged by the law of other noise."""
    ledger = ledger_at()
    cheap, dear = ({"record": VectorLaw(mu)} for mu in (0.01, 1.0))
    charge = ledger.charge("evaluation", ["mine"], cheap)
    assert ledger.unspent(["mine"], cheap) == charge
    assert ledger.unspent(["mine"], dear) is None and ledger.unspent(["yours"], cheap) is None
    ledger.spend(charge)
    assert ledger.unspent(["mine"], cheap) is None


@pytest.mark.slow
def test_studies_between_the_starts_of_a_run_raise_none_of_its_numbers(tmp_path: Path) -> None:
    mechanism = create("confident-gnmax", sigma1=30.0, sigma2=20.0, threshold=10.0)

    def begun(mechanism: Mechanism, queries: int) -> tuple[Ledger, LabelsAtHand]:
        terms = Terms(epsilon_budget=30.0, mechanism={"name": mechanism.name})
        ledger = Ledger.open(tmp_path / "ledger.sqlite", signer=None, delta=1e-5, terms=terms, name="x")
        return ledger, LabelsAtHand(ledger, mechanism, Unit(), CoordinatorNoise(1), queries=queries, classes=2)

    for start in range(4):
        ledger, first = begun(mechanism, 20)
        fresh = first.labels.worth_asking([f"q{n}" for n in range(5 * start, 5 * start + 5)])
        assert len(fresh) == 5 and first.label(fresh, np.tile([90, 1], (5, 1)))
        assert {block.rounds for block in ledger.terms().blocks.values()} == {20}
        ledger.close()
        ledger, other = begun(create("gnmax", sigma=200.0), 4)
        assert other.label([f"other {start}"], np.array([[90, 1]]))
        ledger.close()


SLOTS = {"evaluation": counts_of(20.0, 3), "pool_check": replace(counts_of(20.0), purpose="pool_check")}
"""Vectors that are fixed with the labels and released once each."""


def start(path: Path, mechanism: Mechanism, beside: Sequence[str]) -> tuple[Ledger, LabelsAtHand]:
    unit, draw = mechanism.unit(1), CoordinatorNoise(1)
    held = {"name": mechanism.name, **mechanism.parameters()}
    terms = Terms(epsilon_budget=30.0, adjacency=unit.adjacency.value, mechanism=held)
    ledger = Ledger.open(path, signer=None, delta=1e-5, terms=terms, name="x")
    slots = [SLOTS[name] for name in beside]
    return ledger, LabelsAtHand(ledger, mechanism, unit, draw, queries=5, bound="classic", classes=3, beside=slots)


def labelled(work: LabelsAtHand, number: int) -> bool:
    return work.label([f"{number}-{n}" for n in range(5)], np.tile([90, 1, 0], (5, 1)))


def test_a_vector_that_is_wanted_after_labels_counts_apart_and_the_labels_go_on(tmp_path: Path) -> None:
    """Labels that went on beside it counted as begun anew: 30 labels and an evaluation cost 6.79 in place of 5.33."""
    gnmax = create("gnmax", sigma=20.0)
    law = law_of(gnmax.stages[0], "classic", Unit())
    for number, beside in enumerate(([], ["evaluation"], ["evaluation"])):
        ledger, work = start(tmp_path / "ledger.sqlite", gnmax, beside)
        if number == 1:
            work.statement.pay(SLOTS["evaluation"], ["mine"])
        assert labelled(work, number)
        spent = ledger.epsilon()
        ledger.close()
    apart = [block_epsilon({one: count}, 5e-6) for one, count in ((law, 15), (SLOTS["evaluation"].laws["record"], 1))]
    assert spent == pytest.approx(sum(apart))
    assert verify(tmp_path / "ledger.sqlite").bounds("record", "replace")[0] <= spent


@pytest.mark.parametrize("name", ["gnmax", "individual-knn"])
def test_a_vector_that_was_paid_before_a_setting_was_edited_is_not_counted_again(tmp_path: Path, name: str) -> None:
    """Where a run is charged once, no label was given any more: its ledger held that not all of the run was paid."""
    less = {"participations": 2} if name == "individual-knn" else {}
    first, then = (create(name, sigma=sigma, **less) for sigma in (20.0, 25.0))
    ledger, work = start(tmp_path / "ledger.sqlite", first, ["evaluation"])
    work.statement.pay(SLOTS["evaluation"], ["mine"])
    ledger.close()
    for number in range(2):
        ledger, work = start(tmp_path / "ledger.sqlite", then, ["evaluation"])
        work.statement.take_apart("evaluation")
        assert labelled(work, number)
        spent = ledger.epsilon()
        ledger.close()
    law = law_of(then.stages[0], "classic", then.unit(1))
    labels = block_epsilon({law: then.charged_queries(10)}, 5e-6)
    assert spent == pytest.approx(labels + block_epsilon({SLOTS["evaluation"].laws["record"]: 1}, 5e-6))


def test_a_vector_that_joins_one_which_was_paid_stops_no_label(tmp_path: Path) -> None:
    """A pool check was paid, then an evaluation was set too: one of them was never paid beside these labels."""
    knn = create("individual-knn", sigma=60.0, participations=2)
    ledger, work = start(tmp_path / "ledger.sqlite", knn, ["pool_check"])
    paid = work.statement.pay(SLOTS["pool_check"], ["its own"])
    ledger.close()
    for number in range(2):
        ledger, work = start(tmp_path / "ledger.sqlite", knn, ["evaluation", "pool_check"])
        assert work.statement.pay(SLOTS["pool_check"], ["its own"]) == paid
        work.statement.pay(SLOTS["evaluation"], ["mine"])
        work.statement.take_apart("pool_check")
        assert labelled(work, number)
        ledger.close()


def test_a_budget_that_was_lowered_forbids_no_free_label_and_breaks_no_ledger(tmp_path: Path) -> None:
    """The next start said that the ledger was damaged, and its verifier that the terms do not allow the label."""
    path, mechanism = tmp_path / "ledger.sqlite", create("individual-knn", sigma=8.0, participations=3)
    spent = []
    for epsilon, key in ((3.0, "one"), (0.1, "two"), (3.0, "three")):
        terms = Terms(epsilon_budget=epsilon, adjacency="add-remove", mechanism={"name": mechanism.name})
        with Ledger.open(path, signer=None, delta=1e-5, terms=terms, name="x") as ledger:
            work = LabelsAtHand(ledger, mechanism, mechanism.unit(1), CoordinatorNoise(), classes=2)
            assert work.label([key], np.array([[60, 5]]))
            spent.append(ledger.epsilon())
        verify(path)
    assert spent[0] == spent[1] == spent[2] > 0.1


def test_a_label_released_before_is_free_and_does_not_change(ledger_at: Open) -> None:
    ledger = ledger_at()
    labeller(ledger).label(KEYS, COUNTS)
    spent = ledger.epsilon()
    turned = COUNTS[:, ::-1].copy()
    assert labeller(ledger).label(KEYS, turned)
    assert labeller(ledger).labels.held(KEYS) == expected()
    assert ledger.epsilon() == spent


def test_a_query_enters_only_if_the_budget_takes_it_through_every_stage(ledger_at: Open) -> None:
    one = block_epsilon({SCREEN: 1, ANSWER: 1}, 1e-5)
    ledger = ledger_at(one * 1.5)
    work = labeller(ledger)
    assert not work.label(KEYS, COUNTS)
    held = ledger.labels()
    halfway = [key for key in KEYS if mark(key, Screen()) in held and key not in held]
    assert not halfway and 0 < len(work.labels.held(KEYS)) < 10
    assert ledger.epsilon() <= one * 1.5
    assert work.labels.worth_asking(KEYS) == []


def test_abstentions_leave_their_budget_to_the_queries_behind_them(ledger_at: Open) -> None:
    two = block_epsilon({SCREEN: 8, ANSWER: 2}, 1e-5)
    ledger = ledger_at(two)
    work = labeller(ledger)
    no_consensus = np.full((8, 2), 5, dtype=np.int64)
    assert work.label(KEYS[:8], no_consensus), "eight abstentions cost no answer, though two answers were affordable"


def dying(target: type, method: str, at: int, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    honest, calls = getattr(target, method), [0]

    def wrapped(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == at and not after:
            raise Crash
        result = honest(*arguments, **options)
        if calls[0] == at:
            raise Crash
        return result

    monkeypatch.setattr(target, method, wrapped)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("method", ["charge", "release"])
def test_a_crash_around_any_write_pays_nothing_twice_and_loses_no_label(
    method: str, stage: int, after: bool, ledger_at: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_at()
    with monkeypatch.context() as patch:
        dying(Ledger, method, stage, patch, after)
        with pytest.raises(Crash):
            labeller(ledger).label(KEYS, COUNTS)
    ledger.close()
    again = ledger_at()
    work = labeller(again)
    asked = work.labels.worth_asking(KEYS)
    assert work.label(asked, COUNTS[[KEYS.index(key) for key in asked]])
    assert work.labels.held(KEYS) == expected()
    assert rounds(again) == {"screen": 10, "answer": 5}


def test_a_charge_for_other_queries_is_never_taken_up(ledger_at: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = ledger_at()
    with monkeypatch.context() as patch:
        dying(Ledger, "release", 1, patch, after=False)
        with pytest.raises(Crash):
            labeller(ledger).label(KEYS[:5], COUNTS[:5])
    labeller(ledger).label(KEYS[5:], COUNTS[5:])
    assert ledger.queries_charged() == 5 + 5 + 3


def test_when_another_process_was_first_its_labels_count(ledger_at: Open) -> None:
    ledger = ledger_at()

    class Overtaken(CoordinatorNoise):
        def outcomes(self, stage: Stage, counts: Any, queries: Sequence[str]) -> Any:
            if stage.name == "screen":
                charge = ledger.charge("other", 1, {"record": SCREEN})
                ledger.release(charge, {queries[0]: 1})
            return super().outcomes(stage, counts, queries)

    work = LabelsAtHand(ledger, TwoStages(), Unit(), Overtaken(1))
    assert work.label(KEYS[:1], COUNTS[:1])
    assert work.labels.held(KEYS[:1]) == {"q0": 1}


def test_where_another_process_spent_what_was_left_nothing_is_released(
    ledger_at: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the votes are in, and before they are paid for."""
    budget = 2.0 * block_epsilon({SCREEN: 10, ANSWER: 10}, 1e-5)
    ledger, other, honest = ledger_at(budget), ledger_at(budget), Statement.pay

    def overtaken(own: Statement, *given: Any, **more: Any) -> int:
        most = other.affordable("other", 10_000, {"record": SCREEN})
        if most:
            other.charge("other", most, {"record": SCREEN})
        return honest(own, *given, **more)

    monkeypatch.setattr(Statement, "pay", overtaken)
    work = labeller(ledger)
    assert not work.label(KEYS, COUNTS)
    assert not ledger.labels() and rounds(ledger).keys() == {"other"} and ledger.epsilon() <= budget
