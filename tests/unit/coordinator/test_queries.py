"""Which inputs are asked: what each choice picks, what an interruption leaves, and what it all costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.coordinators import Crash, coordinator_for, run_config
from support.data import first_digits
from support.scripted_parties import LocalParties, ScriptedParty

from collegium.coordinator.run.coordinator import Progress
from collegium.coordinator.run.run_folder import read_labels
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.selection.plan import Plan
from collegium.coordinator.selection.queries import representatives
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples, default_task
from collegium.errors import BudgetExceeded, ConfigurationError
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify

pytestmark = pytest.mark.slow

TASK = default_task("digits")
CHOICES = ["random", "representative"]
PRETRAINED = {"method": "contrastive", "options": {"contrast_steps": 3, "contrast_batch": 8}}
"""A student that has its own pretraining, a short one."""


@pytest.fixture(scope="module")
def digits() -> Examples:
    return first_digits(120)


@dataclass
class KnowingParty(ScriptedParty):
    """Its teachers know the digits of the pool."""

    truth: dict[bytes, int] = field(default_factory=dict)

    def votes(self, x: NDArray[Any]) -> NDArray[np.int64]:
        counts = np.zeros((len(x), len(TASK.classes)), dtype=np.int64)
        for row, one in enumerate(x):
            counts[row, self.truth[one.tobytes()]] = self.teachers
        return counts


@pytest.fixture
def parties(digits: Examples) -> LocalParties:
    truth = {one.tobytes(): int(label) for one, label in zip(digits.x, digits.labels(), strict=True)}
    return LocalParties({f"party-{n}": KnowingParty(f"party-{n}", truth=truth) for n in range(3)})


def settings(**changes: Any) -> RunConfig:
    values: dict[str, Any] = {
        "name": "rounds",
        "task": TASK.model_dump(mode="json"),
        "pool": {"source": "digits"},
        "teachers": {"per_party": 5},
        "mechanism": {"name": "gnmax", "parameters": {"sigma": 2.0}},
        "budget": {"epsilon": 100.0},
        "queries": {"count": 30, "batch": 7, "choice": "representative"},
        "student": {"method": "supervised", "options": {"steps": 6, "network": "linear"}},
        "votes": {"mode": "clear", "quorum": 0.5},
        "seed": 3,
    }
    return run_config(values, changes)


Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(parties: LocalParties, digits: Examples, tmp_path: Path) -> Run:
    def go(folder: str = "run", tell: Any = None, **changes: Any) -> dict[str, Any]:
        coordinator = coordinator_for(
            settings(**changes), parties, tmp_path / folder, public=PublicData(digits), on_progress=tell
        )
        return coordinator.label()

    return go


def chosen(record: RunRecord) -> list[int]:
    assert record.chosen is not None
    return record.chosen.indices


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_gives_distinct_queries_in_batches(choice: str, run: Run, digits: Examples) -> None:
    record = run(queries__choice=choice)
    every = chosen(record)
    assert len(every) == len(set(every)) == 30 and set(every) < set(range(120))
    assert record.labels.answered == 30 and record.labels.left_out == 0
    assert sum(batch.queries for batch in record.rounds) == 30
    assert max(batch.queries for batch in record.rounds) <= 7


@pytest.mark.parametrize("features", ["hog", "raw", "pretrained"])
def test_inputs_are_compared_by_the_features_asked_for(features: str, run: Run, tmp_path: Path) -> None:
    record = run(queries__features=features, student=PRETRAINED)
    assert record.labels.answered == 30
    learned = tmp_path / "run" / "learned"
    kinds = Counter(path.name.partition("-")[0] for path in learned.iterdir()) if learned.exists() else Counter()
    assert kinds["pretrained"] == (features == "pretrained")


def test_representatives_begin_with_the_largest_heap() -> None:
    """Six heaps of different sizes: one of each, the largest heap first."""
    heaps = np.repeat(np.array([[0, 0], [9, 0], [0, 9], [9, 9], [20, 0], [0, 20]]), [20, 10, 30, 15, 50, 40], axis=0)
    features = heaps + np.random.default_rng(0).random(heaps.shape)
    heap_of = np.repeat(np.arange(6), [20, 10, 30, 15, 50, 40])
    assert heap_of[representatives(features, 6, seed=0)].tolist() == [4, 5, 2, 0, 3, 1]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_run_killed_at_everything_it_tells_asks_the_same_and_pays_once(choice: str, run: Run, tmp_path: Path) -> None:
    changes = {"queries__choice": choice, "queries__features": "pretrained", "student": PRETRAINED}
    whole = run("whole", **changes)
    survived: set[tuple[str, int, int, int]] = set()
    labelled = [0]

    def tell(at: Progress) -> None:
        if at.step == "labels":
            labelled[0] = at.done
        point = (at.step, at.done, at.total, labelled[0])
        if at.step in ("pretraining", "votes", "labels") and point not in survived:
            survived.add(point)
            raise Crash

    deaths = 0
    while True:
        try:
            broken = run("broken", tell, **changes)
            break
        except Crash:
            deaths += 1
    assert deaths > 15
    steps = {"votes", "labels"} | ({"pretraining"} if choice == "representative" else set())
    assert steps == {step for step, *_ in survived}
    assert chosen(broken) == chosen(whole)
    assert read_labels(tmp_path / "broken" / "labels.csv") == read_labels(tmp_path / "whole" / "labels.csv")
    with Ledger.read(tmp_path / "broken" / "ledger.sqlite") as ledger:
        assert ledger.queries_charged() == len(verify(ledger.path).labels) == 30


def test_a_run_killed_between_a_choice_and_its_note_chooses_the_same(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, honest = run("whole"), Plan.choose

    def killed(*given: Any) -> None:
        honest(*given)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(Plan, "choose", killed)
        with pytest.raises(Crash):
            run("broken")
    assert chosen(run("broken")) == chosen(whole)


def test_another_student_keeps_the_queries_that_are_paid_for(run: Run, parties: LocalParties) -> None:
    first, asked = run(), parties.votes_cast()
    second = run(student__options={"steps": 9, "network": "linear"})
    assert chosen(second) == chosen(first) and parties.votes_cast() == asked


def test_a_budget_that_ends_within_the_queries_stops_there_and_a_raised_one_goes_on(
    run: Run, parties: LocalParties, tmp_path: Path
) -> None:
    whole = run("whole")
    small = run(budget__epsilon=14.0)
    assert small.privacy.epsilon <= 14.0
    answered = small.labels.answered
    assert 10 < answered < 30 and small.labels.left_out == 30 - answered
    assert "budget.epsilon" in small.labels.stopped
    raised = run()
    assert chosen(raised) == chosen(whole)
    with Ledger.read(tmp_path / "run" / "ledger.sqlite") as ledger:
        assert ledger.queries_charged() == 30


def test_more_queries_than_the_spent_budget_takes_keep_the_labels_that_are_there(run: Run) -> None:
    once = {"count": 20, "choice": "random"}
    answered = run(queries=once, budget__epsilon=14.0).labels.answered
    assert 10 < answered < 20
    more = run(queries=once | {"count": 25}, budget__epsilon=14.0).labels
    assert more.answered == answered and more.left_out == 25 - answered and "budget.epsilon" in more.stopped


def test_a_budget_for_nothing_chooses_nothing_and_asks_nobody(run: Run, parties: LocalParties, tmp_path: Path) -> None:
    with pytest.raises(BudgetExceeded, match=r"budget\.epsilon"):
        run(budget__epsilon=0.1, queries__features="pretrained", student=PRETRAINED)
    assert all(not party.asked for party in parties.by_name.values())
    assert not (tmp_path / "run" / "learned").exists()


def test_a_finished_plan_is_known_as_one_before_parties_are_waited_for(
    run: Run, digits: Examples, tmp_path: Path
) -> None:
    def done(record: dict[str, Any], config: RunConfig) -> bool:
        with Ledger.read(tmp_path / "run" / "ledger.sqlite") as ledger:
            return Plan(config, PublicData(digits)).all_labelled(record, ledger.labels())

    stopped = run(budget__epsilon=14.0)
    assert not done(stopped, settings())
    assert done(run(), settings())
    assert not done(run(), settings(queries__count=33))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"count": 121, "choice": "random"}, "the pool has 120 inputs"),
        ({"count": 121, "choice": "representative"}, "the pool has 120 inputs"),
        ({"count": 100_001, "batch": 100_001}, "set it to at most 100000"),
        ({"choice": "boldest"}, "queries.choice"),
    ],
)
def test_settings_that_cannot_be_met_are_named(changes: dict[str, Any], says: str, run: Run) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        run(**{f"queries__{key}": value for key, value in changes.items()})
    assert "\n" not in str(caught.value)
