"""Queries in rounds: what each choice picks, what an interruption leaves, and what it all costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.coordinators import coordinator_for
from support.scripted_parties import LocalParties, ScriptedParty

from collegium.coordinator.run.coordinator import Progress
from collegium.coordinator.run.run_folder import RunFolder, read_labels
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.selection.queries import (
    class_balanced,
    farthest_first,
    least_confident,
    representatives,
)
from collegium.coordinator.selection.query_selector import Plan, all_labelled
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.coordinator.students import fit_student
from collegium.data import DataSource, Examples, array_spec, default_task, load
from collegium.errors import BudgetExceeded, ConfigurationError
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.settings import validate_config

pytestmark = pytest.mark.slow

TASK = default_task("digits")
CHOICES = ["random", "representative", "farthest-first", "least-confident", "class-balanced"]
NONE = np.empty(0, dtype=np.int64)


@pytest.fixture(scope="module")
def digits() -> Examples:
    return load(DataSource(source="digits", split="all", shuffle_seed=0, stop=120), TASK, data_root=None)


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
        "queries": {"count": 30, "batch": 7, "rounds": 3, "choice": "least-confident"},
        "student": {"method": "supervised", "options": {"steps": 6, "network": "linear"}},
        "votes": {"mode": "clear", "quorum": 0.5},
        "seed": 3,
    }
    for dotted, value in changes.items():
        section, _, key = dotted.partition("__")
        values[section] = {**values[section], key: value} if key else value
    return validate_config(values, RunConfig, "test")


Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(parties: LocalParties, digits: Examples, tmp_path: Path) -> Run:
    def go(folder: str = "run", tell: Any = None, **changes: Any) -> dict[str, Any]:
        coordinator = coordinator_for(
            settings(**changes), parties, tmp_path / folder, public=PublicData(digits), on_progress=tell
        )
        return coordinator.label()

    return go


def chosen(record: RunRecord) -> list[list[int]]:
    return [entry.indices for entry in record.chosen]


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_gives_distinct_queries_in_rounds_of_their_sizes(choice: str, run: Run, digits: Examples) -> None:
    record = run(queries__choice=choice)
    rounds = chosen(record)
    assert [len(indices) for indices in rounds] == [10, 10, 10]
    every = [index for indices in rounds for index in indices]
    assert len(set(every)) == 30 and set(every) < set(range(120))
    assert record.labels.answered == 30 and record.labels.left_out == 0
    assert sum(batch.queries for batch in record.rounds) == 30
    assert max(batch.queries for batch in record.rounds) <= 7


@pytest.mark.parametrize("features", ["hog", "raw", "pretrained", "student"])
def test_inputs_are_compared_by_the_features_asked_for(features: str, run: Run, tmp_path: Path) -> None:
    record = run(
        queries__choice="representative", queries__features=features, queries__pretraining={"steps": 2, "batch": 8},
        student={"method": "supervised", "options": {"steps": 4}},
    )  # fmt: skip
    assert record.labels.answered == 30
    learned = tmp_path / "run" / "learned"
    kinds = Counter(path.name.partition("-")[0] for path in learned.iterdir()) if learned.exists() else Counter()
    assert kinds["pretrained"] == (features in ("pretrained", "student"))
    assert kinds["student"] == (2 if features == "student" else 0)


def test_the_least_confident_of_the_student_so_far_are_asked(run: Run, digits: Examples) -> None:
    record = run(queries__sizes=[12, 10, 8])
    first, second, third = chosen(record)
    for so_far, picked in ((first, second), (first + second, third)):
        student = fit_student(
            "supervised", digits.x, so_far, digits.labels()[so_far], TASK, seed=3,
            options={"steps": 6, "network": "linear"},
        )  # fmt: skip
        sureness = student.probabilities(digits.x).max(axis=1)
        others = np.setdiff1d(np.arange(120), so_far + picked)
        assert sureness[picked].max() <= sureness[others].min()


def test_least_confident_leaves_out_what_was_asked_and_begins_with_the_least_sure() -> None:
    probabilities = np.array([[0.9, 0.1], [0.5, 0.5], [0.4, 0.6], [0.3, 0.7]])
    assert least_confident(probabilities, 2, np.array([1])).tolist() == [2, 3]


def test_class_balanced_evens_out_labels_and_predictions_together() -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(200, 4))
    predicted = generator.choice(4, 200, p=[0.7, 0.1, 0.1, 0.1]).astype(np.int64)
    issued = [6, 0, 2, 1]
    picked = class_balanced(features, predicted, issued, 19, NONE, seed=0)
    assert len(set(picked.tolist())) == 19
    assert (np.bincount(predicted[picked], minlength=4) + issued).tolist() == [7, 7, 7, 7]
    early = class_balanced(features, predicted, issued, 4, NONE, seed=0)
    assert predicted[early].tolist() == [1, 1, 3, 1], "the class that has least goes first"


def test_class_balanced_takes_what_there_is_of_a_rare_class() -> None:
    predicted = np.array([0] * 20 + [1, 1, 1], dtype=np.int64)
    picked = class_balanced(np.arange(23.0)[:, None], predicted, [0, 0], 8, np.array([20]), seed=0)
    assert sorted(picked.tolist())[-2:] == [21, 22] and len(set(picked.tolist())) == 8 and 20 not in picked


def test_class_balanced_rounds_follow_the_students_predictions(
    run: Run, digits: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a student that is right, as many labels of each class as can be: 30 of ten classes, three each."""
    from collegium.models.whole_networks import WholeNetwork

    def right(student: Any, x: NDArray[Any]) -> NDArray[np.int64]:
        return digits.labels()[: len(x)]

    monkeypatch.setattr(WholeNetwork, "predict", right)
    record = run(queries__choice="class-balanced", queries__sizes=[6, 12, 12])
    assert {row.labels for row in record.labels.per_class} == {3}


@pytest.mark.parametrize("pick", [representatives, farthest_first])
def test_later_representatives_go_where_nothing_was_asked(pick: Any) -> None:
    """Six heaps, three of them asked: the next three are in the others, the largest heap first by clusters."""
    heaps = np.repeat(np.array([[0, 0], [9, 0], [0, 9], [9, 9], [20, 0], [0, 20]]), [20, 20, 20, 20, 30, 40], axis=0)
    features = heaps + np.random.default_rng(0).random(heaps.shape)
    heap_of = np.repeat(np.arange(6), [20, 20, 20, 20, 30, 40])
    picked = pick(features, 3, np.array([0, 25, 45]), seed=0)
    assert set(heap_of[picked]) == {3, 4, 5}
    if pick is representatives:
        assert heap_of[picked].tolist() == [5, 4, 3]


class Crash(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("choice", ["representative", "least-confident", "class-balanced"])
def test_a_run_killed_at_everything_it_tells_asks_the_same_and_pays_once(choice: str, run: Run, tmp_path: Path) -> None:
    changes = {"queries__choice": choice, "queries__features": "raw" if choice == "class-balanced" else "student"}
    changes |= {"queries__pretraining": {"steps": 3, "batch": 8}}  # type: ignore[dict-item]
    if choice == "representative":
        changes["student__options"] = {"steps": 3}  # type: ignore[assignment]
    whole = run("whole", **changes)
    survived: set[tuple[str, int, int, int]] = set()
    labelled = [0]

    def tell(at: Progress) -> None:
        if at.step == "labels":
            labelled[0] = at.done
        point = (at.step, at.done, at.total, labelled[0])
        if at.step in ("pretraining", "interim student", "votes", "labels") and point not in survived:
            survived.add(point)
            raise Crash

    deaths = 0
    while True:
        try:
            broken = run("broken", tell, **changes)
            break
        except Crash:
            deaths += 1
    assert deaths > 20
    assert {"interim student", "votes", "labels"} <= {step for step, *_ in survived}
    assert chosen(broken) == chosen(whole)
    assert read_labels(tmp_path / "broken" / "labels.csv") == read_labels(tmp_path / "whole" / "labels.csv")
    with Ledger.read(tmp_path / "broken" / "ledger.sqlite") as ledger:
        assert ledger.queries_charged() == len(verify(ledger.path).labels) == 30


def test_a_run_killed_between_a_choice_and_its_note_chooses_the_same(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, honest = run("whole"), RunRecord.note_choice
    for death in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(
                RunRecord, "note_choice", lambda record, number, *rest, at=death: (
                    (_ for _ in ()).throw(Crash()) if number == at else honest(record, number, *rest)
                )
            )  # fmt: skip
            with pytest.raises(Crash):
                run("broken")
    assert chosen(run("broken")) == chosen(whole)


def test_students_of_earlier_rounds_lost_or_damaged_are_fitted_again(run: Run, tmp_path: Path) -> None:
    whole = run("whole")
    run("broken", queries__sizes=[10, 10, 10])
    for path in (tmp_path / "broken" / "learned").iterdir():
        path.write_bytes(b"damaged")
    folder = RunFolder(tmp_path / "broken")
    record = folder.read()
    record.chosen = record.chosen[:1]
    folder.write(record)
    assert chosen(run("broken")) == chosen(whole)


def test_another_student_keeps_the_queries_that_are_paid_for(run: Run, parties: LocalParties) -> None:
    first, asked = run(), parties.votes_cast()
    second = run(student__options={"steps": 9, "network": "linear"})
    assert chosen(second) == chosen(first) and parties.votes_cast() == asked


def test_a_further_round_keeps_the_earlier_ones(run: Run, tmp_path: Path) -> None:
    first = run(queries={"count": 20, "rounds": 2, "sizes": [10, 10], "choice": "least-confident"})
    more = run(queries={"count": 26, "rounds": 3, "sizes": [10, 10, 6], "choice": "least-confident"})
    assert chosen(more)[:2] == chosen(first) and len(chosen(more)[2]) == 6
    with Ledger.read(tmp_path / "run" / "ledger.sqlite") as ledger:
        assert ledger.queries_charged() == 26


def test_a_budget_that_ends_within_a_round_stops_there_and_a_raised_one_goes_on(
    run: Run, parties: LocalParties, tmp_path: Path
) -> None:
    whole = run("whole")
    small = run(budget__epsilon=14.0)
    assert small.privacy.epsilon <= 14.0
    answered = small.labels.answered
    assert 10 < answered < 30 and small.labels.left_out == 30 - answered
    assert "budget.epsilon" in small.labels.stopped
    rounds = len(small.chosen)
    assert rounds == -(-answered // 10), "no round is chosen that cannot be asked"
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
        run(budget__epsilon=0.1, queries__features="pretrained")
    assert all(not party.asked for party in parties.by_name.values())
    assert not (tmp_path / "run" / "learned").exists()


def test_labels_that_teach_nothing_leave_the_choice_as_in_the_first_round(run: Run, parties: LocalParties) -> None:
    """All votes for one class: no student can be fitted, and the run goes on without one."""
    for party in parties.by_name.values():
        assert isinstance(party, KnowingParty)
        party.truth = dict.fromkeys(party.truth, 4)
    record = run()
    assert [entry.choice for entry in record.chosen] == ["representative"] * 3
    assert record.labels.answered == 30


def test_a_finished_plan_is_known_as_one_before_parties_are_waited_for(
    run: Run, digits: Examples, tmp_path: Path
) -> None:
    def done(record: dict[str, Any], config: RunConfig) -> bool:
        with Ledger.read(tmp_path / "run" / "ledger.sqlite") as ledger:
            return all_labelled(Plan(config, array_spec(digits.x)), record, digits.x, ledger.labels())

    stopped = run(budget__epsilon=14.0)
    assert not done(stopped, settings())
    assert done(run(), settings())
    assert not done(run(), settings(queries__count=33))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"count": 121, "rounds": 1, "choice": "random"}, "the pool has 120 inputs"),
        ({"count": 121, "choice": "representative"}, "the pool has 120 inputs"),
        ({"rounds": 1}, "rounds of at least 2"),
        ({"sizes": [10, 10, 11]}, "add up to 30"),
        ({"sizes": [20, 10]}, "3 numbers"),
        ({"sizes": [30, 0, 0]}, "above 0"),
        ({"count": 2}, "cannot fill 3 rounds"),
        ({"count": 100_001, "batch": 100_001}, "set it to at most 100000"),
        ({"choice": "boldest"}, "queries.choice"),
    ],
)
def test_settings_that_cannot_be_met_are_named(changes: dict[str, Any], says: str, run: Run) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        run(**{f"queries__{key}": value for key, value in changes.items()})
    assert "\n" not in str(caught.value)


def test_a_bad_setting_of_the_pretraining_is_named_before_anything_is_asked(
    parties: LocalParties, digits: Examples, tmp_path: Path
) -> None:
    config = settings(queries__pretraining={"steps": 0})
    coordinator = coordinator_for(config, parties, tmp_path / "run", public=PublicData(digits))
    with pytest.raises(ConfigurationError, match=r"queries\.pretraining\.steps"):
        coordinator.check()
