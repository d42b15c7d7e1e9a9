"""Counts of another package that are taken in rounds: paid before the first is asked, and each once."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from support.coordinators import purposes

import collegium as cg
from collegium.coordinator.kinds.record_counts import OtherCounts
from collegium.coordinator.run.run_record import Table
from collegium.coordinator.settings import kinds
from collegium.coordinator.settings.kinds import round_names
from collegium.coordinator.settings.run_config import CountsConfig
from collegium.coordinator.statement import Slot, Statement
from collegium.coordinator.watching.stages import asked_of, here
from collegium.data.task import NumberColumn, TableInputs, Task
from collegium.errors import BudgetExceeded
from collegium.parties import kind
from collegium.parties.kind import Asked, PartyKind
from collegium.protocol import question
from collegium.protocol.kinds.record_counts import CountRecords
from collegium.protocol.question import QuestionTerms
from collegium_accounting.game.gaussian import gaussian_mechanism_profile
from collegium_accounting.mechanisms.record_counts import ONE
from collegium_accounting.units import IntArray

ROUNDS = 3
X = np.random.default_rng(0).uniform(0, 1, (300, 2))
TASK = cg.Task.from_array(X[:100], ["a", "b"])


@dataclass(frozen=True)
class AboveLimit(CountRecords):
    """How many records' first number lies at or above a limit, in thousandths, and how many below."""

    kind: ClassVar[str] = "test-above"
    limit: int

    @property
    def parts(self) -> int:
        return 1

    @property
    def length(self) -> int:
        return 2


class Above(PartyKind[AboveLimit]):
    question = AboveLimit
    asked: ClassVar[list[int]] = []

    def compute(self, question: AboveLimit, asked: Asked) -> IntArray:
        self.asked.append(question.limit)
        above = int((self.own.examples.x[:, 0] >= question.limit / 1000).sum())
        return np.array([[above * ONE, (len(self.own.examples) - above) * ONE]])


class Died(Exception):
    """The process, as far as the test goes."""


class MedianBySteps(OtherCounts):
    """Each round halves where the median lies."""

    question, settings = AboveLimit, CountsConfig
    dies_in: ClassVar[int | None] = None

    @classmethod
    def rounds_of(cls, settings: Any) -> int:
        return ROUNDS

    @classmethod
    def parts_and_cells(cls, config: Any, settings: Any) -> tuple[int, int]:
        return 1, 2

    def ask(self, terms: QuestionTerms, ledger_id: str, per_party: bool) -> AboveLimit:
        if len(self.before) + 1 == self.dies_in:
            raise Died
        limit, step = 500, 250
        for known in self.before:
            limit, step = limit + (step if known.counts[0] > known.counts[1] else -step), step // 2
        return AboveLimit(terms, ledger_id, per_party, limit)

    def table(self, counts: Any, error: float) -> Table:
        return Table(columns=("rounds", "above"), rows=((len(self.before) + 1, float(counts[0])),))


@pytest.fixture(autouse=True)
def known_here(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ((question._by_name, AboveLimit), (kind._by_name, Above), (kinds._counts, MedianBySteps))
    for registry, part in known:
        monkeypatch.setitem(registry.loaded(), AboveLimit.kind, part)
    monkeypatch.setattr(Above, "asked", [])


def coordinator(parties: cg.LocalParties, folder: Path, epsilon: float = 2.0) -> cg.Coordinator:
    counts, labels = {AboveLimit.kind: {"share": 0.5}}, cg.ClassSums(sigma=40.0, classes=2)
    return cg.Coordinator(parties, X[:20], labels, epsilon=epsilon, counts=counts, folder=folder)


def clinics(*questions: str) -> cg.LocalParties:
    policy = cg.PolicyConfig(questions=("class-sums", *questions), minimum_noise_sums=0.5)
    records = {f"clinic-{n}": (X[n::5], np.where(X[n::5, 1] > 0.5, "a", "b")) for n in range(5)}
    return cg.LocalParties(records, TASK, policy=policy, seed=3)


def test_each_round_follows_from_those_before_and_all_cost_what_one_share_allows(tmp_path: Path) -> None:
    run = coordinator(clinics(AboveLimit.kind), tmp_path)
    run.label(2)
    counts = run.record.counts
    assert [*counts] == round_names(AboveLimit.kind, None) and len(set(Above.asked)) == ROUNDS
    assert [one.found.rows[0][0] for one in counts.values() if one.found is not None] == [1, 2, 3]
    (sigma,) = {one.sigma for one in counts.values()}
    assert gaussian_mechanism_profile(ROUNDS**0.5 / sigma).epsilon(1e-5) == pytest.approx(0.5 * 2.0, rel=1e-5)
    assert 1.0 < run.epsilon <= 1.1
    stages = asked_of(run.record.config)
    assert {here(stages, name) for name in counts} == {2}


@pytest.mark.slow
def test_a_run_that_dies_between_rounds_goes_on_with_the_next_and_pays_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = clinics(AboveLimit.kind)
    monkeypatch.setattr(MedianBySteps, "dies_in", 2)
    with pytest.raises(Died):
        coordinator(parties, tmp_path).label(2)
    before = Counter(purposes(tmp_path))
    assert {before[name] for name in round_names(AboveLimit.kind, None)} == {1}, "all rounds are paid before the first"
    assert len(set(Above.asked)) == 1
    monkeypatch.setattr(MedianBySteps, "dies_in", None)
    again = coordinator(parties, tmp_path)
    again.label(2)
    assert len(Above.asked) == 5 * ROUNDS and again.record.counts[AboveLimit.kind].found is not None
    assert {Counter(purposes(tmp_path))[name] for name in round_names(AboveLimit.kind, None)} == {1}


def test_rounds_after_one_that_parties_refuse_are_not_asked(tmp_path: Path) -> None:
    run = coordinator(clinics(), tmp_path)
    run.label(2)
    first, *later = run.record.counts.values()
    assert Above.asked == [] and "refused" in str(first.why_not)
    assert [one.why_not for one in later] == ["a round before this one was not released"] * (ROUNDS - 1)


def test_rounds_that_the_budget_does_not_take_are_not_asked_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run spent it in the meantime, say: no party counts anything, and the labels go on."""
    honest = Statement.pay

    def pay(own: Statement, slot: Slot, names: Any, **more: Any) -> int:
        if slot.purpose.startswith(AboveLimit.kind):
            raise BudgetExceeded("another run was first")
        return honest(own, slot, names, **more)

    monkeypatch.setattr(Statement, "pay", pay)
    for _ in range(2):
        run = coordinator(clinics(AboveLimit.kind), tmp_path)
        run.label(2)
        first = next(iter(run.record.counts.values()))
        assert Above.asked == [] and not any(name.startswith(AboveLimit.kind) for name in Counter(purposes(tmp_path)))
        assert first.why_not == "another run was first" and first.found is None
        assert run.record.labels is not None and run.record.labels.answered


def test_a_column_that_the_schema_does_not_have_is_named() -> None:
    columns = tuple(NumberColumn(name=name, low=0, high=1) for name in ("age", "dose"))
    config: Any = SimpleNamespace(task=Task(classes=("a", "b"), inputs=TableInputs(columns=columns)))
    assert MedianBySteps.columns_at(config, ["dose", "age"]) == [1, 0]
    for wanted, of in ((["dose", "weight"], config), (["weight"], SimpleNamespace(task=TASK))):
        with pytest.raises(ValueError, match=r"counts\.test-above: the schema has no column weight"):
            MedianBySteps.columns_at(of, wanted)
