"""The whole run over parties in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coordinators import Crash, labels_of
from support.scripted_parties import LocalParties

from collegium.coordinator.noise import CoordinatorNoise
from collegium.coordinator.rounds.rounds import quorum_count
from collegium.coordinator.run.coordinator import Progress
from collegium.coordinator.run.run_folder import read_run
from collegium.coordinator.run.run_record import BaselineRecord, PartyFailure
from collegium.coordinator.settings.run_config import PublicData
from collegium.errors import (
    BudgetExceeded,
    CannotServe,
    ConfigurationError,
    LedgerCorrupt,
    QuorumNotReached,
    StorageError,
)
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.protocol.replies import Counts, Description, Failure, Fitted
from collegium.protocol.requests import Ask, Describe, Fit
from collegium_accounting.analysis.account import account
from collegium_accounting.game.laws import block_epsilon
from collegium_accounting.mechanisms.gnmax import GNMax

Run = Callable[..., dict[str, Any]]


def queries_charged(folder: Path) -> int:
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        return ledger.queries_charged()


def test_a_run_leaves_its_six_files_and_says_what_it_did(run: Run, tmp_path: Path) -> None:
    record = run()
    folder = tmp_path / "run"
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert names == {"run.json", "labels.csv", "student.safetensors", "MODEL_CARD.md", "report.html", "ledger.sqlite"}
    written = read_run(folder)
    assert written.state == record.state == "finished"
    assert written.labels.answered == 20
    assert written.labels.quality.accuracy > 0.9
    assert written.student.quality.accuracy == 1.0
    assert [entry.queries for entry in written.rounds] == [8, 8, 4]
    assert sum(label != "" for label in labels_of(folder).values()) == 20


def test_both_privacy_units_are_reported(run: Run) -> None:
    privacy = run().privacy
    units, votes = privacy.units, privacy.terms.votes_per_unit
    assert votes == {"record": 1, "party": 5}
    assert units["record"] < units["party"]


def test_a_budget_at_party_level_pays_for_fewer_queries(run: Run) -> None:
    by_record = run("a", budget__epsilon=14.0).labels.answered
    by_party = run("b", budget={"epsilon": 14.0, "unit": "party"}).labels.answered
    assert 0 < by_party < by_record


def test_labelling_stops_hard_at_the_budget_and_says_why(run: Run, parties: LocalParties) -> None:
    record = run(budget__epsilon=4.0)
    answered = record.labels.answered
    assert 0 < answered < 20
    assert record.privacy.epsilon <= 4.0
    assert record.labels.left_out == 20 - answered
    assert "budget.epsilon" in record.labels.stopped
    asked = sum(len(ask.question.inputs.indices) for ask in parties.by_name["party-0"].rounds())
    assert asked == answered, "a party is not asked about queries that cannot be paid for"


def test_a_budget_too_small_for_one_query_fails_before_any_party_is_asked(run: Run, parties: LocalParties) -> None:
    with pytest.raises(BudgetExceeded, match=r"budget\.epsilon"):
        run(budget__epsilon=0.1)
    assert all(not party.asked for party in parties.by_name.values())


def test_a_raised_budget_continues_where_the_old_one_stopped(run: Run, tmp_path: Path) -> None:
    run(budget__epsilon=4.0)
    before = labels_of(tmp_path / "run")
    record = run(budget__epsilon=50.0)
    after = labels_of(tmp_path / "run")
    assert record.labels.answered == 20
    assert {index: label for index, label in before.items() if label} == {
        index: after[index] for index, label in before.items() if label
    }
    assert queries_charged(tmp_path / "run") == 20


def test_a_finished_run_asked_again_costs_nothing(
    run: Run, parties: LocalParties, student_fits: list[Any], tmp_path: Path
) -> None:
    first = run()
    labels, votes = labels_of(tmp_path / "run"), parties.votes_cast()
    second = run()
    assert labels_of(tmp_path / "run") == labels
    assert parties.votes_cast() == votes
    assert len(student_fits) == 1
    assert second.ledger.head == first.ledger.head
    assert second.student == first.student and second.parties == first.parties


def test_more_queries_keep_the_labels_already_issued(run: Run, tmp_path: Path) -> None:
    run(queries__count=10)
    before = labels_of(tmp_path / "run")
    run(queries__count=20)
    after = labels_of(tmp_path / "run")
    assert len(after) == 20 and before.items() <= after.items()
    assert queries_charged(tmp_path / "run") == 20


def test_inputs_of_equal_content_are_paid_for_once(run: Run, public: Any, tmp_path: Path) -> None:
    public.pool.x[:30] = public.pool.x[30]
    run()
    labels = labels_of(tmp_path / "run")
    distinct = {public.pool.x[index].tobytes() for index in labels}
    assert len(labels) == 20 and queries_charged(tmp_path / "run") == len(distinct) < 20


STEPS = ["describe", "hold_pool", "fit", "votes", "labels", "student", "baseline", "report"]


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_died_at_any_step_resumes_with_the_same_labels_and_pays_once(
    step: str, run: Run, tmp_path: Path
) -> None:
    run("whole")
    die = [True]

    def progress(at: Progress) -> None:
        if die and at.step == step:
            die.clear()
            raise Crash

    def baseline() -> BaselineRecord:
        progress(Progress("baseline", 0, 1))
        return BaselineRecord(method="supervised", records=100, accuracy=0.9)

    options = {"on_progress": progress, "baseline": baseline}
    with pytest.raises(Crash):
        run("broken", options)
    record = run("broken", options)
    assert record.state == "finished"
    assert labels_of(tmp_path / "broken") == labels_of(tmp_path / "whole")
    assert queries_charged(tmp_path / "broken") == queries_charged(tmp_path / "whole") == 20
    with Ledger.read(tmp_path / "broken" / "ledger.sqlite") as ledger:
        assert len(ledger.labels()) == len(verify(ledger.path).labels) == 20


@pytest.mark.parametrize("batch", range(3))
def test_a_charge_whose_noise_was_never_drawn_is_taken_up_again(
    batch: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("whole")
    calls = [0]
    honest = CoordinatorNoise.outcomes

    def dying(self: CoordinatorNoise, *arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == batch + 1:
            raise Crash
        return honest(self, *arguments)

    monkeypatch.setattr(CoordinatorNoise, "outcomes", dying)
    with pytest.raises(Crash):
        run("broken")
    assert queries_charged(tmp_path / "broken") == [8, 16, 20][batch], "charged before the noise is drawn"
    run("broken")
    assert queries_charged(tmp_path / "broken") == 20
    assert labels_of(tmp_path / "broken") == labels_of(tmp_path / "whole")


def test_an_interrupted_charge_is_taken_up_even_when_it_used_up_the_budget(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run("whole", budget__epsilon=4.0, queries__batch=20).labels.answered
    with monkeypatch.context() as patch:
        patch.setattr(CoordinatorNoise, "outcomes", lambda *_: (_ for _ in ()).throw(Crash()))
        with pytest.raises(Crash):
            run("broken", budget__epsilon=4.0, queries__batch=20)
    assert run("broken", budget__epsilon=4.0, queries__batch=20).labels.answered == whole
    assert labels_of(tmp_path / "broken") == labels_of(tmp_path / "whole")


def test_a_seed_gives_the_same_labels_however_the_queries_are_cut(run: Run, tmp_path: Path) -> None:
    run("a", queries__batch=3)
    run("b", queries__batch=20)
    assert labels_of(tmp_path / "a") == labels_of(tmp_path / "b")


def test_without_a_seed_the_noise_is_the_systems_and_the_run_is_private(run: Run) -> None:
    private, seeded = run("a", seed=None), run("b", seed=3)
    assert private.private and not private.cautions
    assert not seeded.private and "do not publish" in seeded.cautions[0]


def test_too_few_parties_name_how_many_and_who(run: Run, parties: LocalParties) -> None:
    for name in ("party-1", "party-2"):
        parties.by_name[name].answer = lambda request: Failure("deadline", "late") if isinstance(request, Ask) else None
    parties.away = {"party-3", "party-4"}
    roster = sorted(parties.by_name)
    with pytest.raises(QuorumNotReached, match="2 parties answered in time, 3 are needed") as caught:
        run(options={"roster": roster})
    assert "failed: party-1, party-2 (deadline);" in str(caught.value)


def test_a_party_that_is_away_counts_against_the_roster(run: Run, parties: LocalParties) -> None:
    parties.away = {"party-0", "party-1", "party-2", "party-3"}
    with pytest.raises(QuorumNotReached, match=r"2 parties are ready, 3 are needed.*party-0, party-1.* \(unr"):
        run(options={"roster": sorted(parties.by_name)})


def test_a_party_that_returns_is_asked_in_the_next_round(run: Run, parties: LocalParties) -> None:
    parties.away = {"party-5"}

    def progress(at: Progress) -> None:
        if at.step == "labels":
            parties.away = set()

    record = run(options={"roster": sorted(parties.by_name), "on_progress": progress})
    assert [entry.answered for entry in record.rounds] == [5, 6, 6]
    assert record.parties["party-5"].failures == [PartyFailure(when="preparation", outcome="unreachable")]


def test_a_party_that_could_not_use_its_records_is_asked_again_once_it_can(run: Run, parties: LocalParties) -> None:
    """As one whose database was down when it was started, and that was started again since."""
    told = Failure(CannotServe.code, CannotServe.reasons["records"])
    parties.by_name["party-5"].answer = lambda request: told

    def progress(at: Progress) -> None:
        if at.step == "labels":
            parties.by_name["party-5"].answer = lambda request: None

    record = run(options={"on_progress": progress})
    assert [entry.answered for entry in record.rounds] == [5, 6, 6]
    failure = PartyFailure(when="preparation", outcome=f"{told.code}: {told.message}")
    assert record.parties["party-5"].failures == [failure]


def test_of_nobody_no_quorum_is_counted() -> None:
    """A round of no party would release noise and call it an answer of all."""
    assert [quorum_count(0.8, roster) for roster in (1, 4, 5)] == [1, 4, 4]
    with pytest.raises(ConfigurationError, match="no party is on the roster"):
        quorum_count(0.0, 0)


GARBAGE = {
    "wrong shape": lambda: Counts(np.full((3, 4), 1, dtype=np.int64)),
    "rows that do not sum": lambda: Counts(np.full((8, 4), 9, dtype=np.int64)),
    "a vote too few": lambda: Counts(np.full((8, 4), 1, dtype=np.int64)),
    "no votes": lambda: Fitted(1),
    "a refusal": lambda: Failure("refused", "the policy asks for more noise"),
    "an error": lambda: Failure("protocol", "undecodable"),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_a_party_that_sends_garbage_is_left_out_and_named(kind: str, run: Run, parties: LocalParties) -> None:
    parties.by_name["party-2"].answer = lambda request: GARBAGE[kind]() if isinstance(request, Ask) else None
    record = run(queries__count=8)
    assert record.rounds[0].answered == 5 and record.rounds[0].teachers == 25
    [failure] = record.parties["party-2"].failures
    assert failure.when == "round 1"
    assert failure.outcome.split(":")[0] in ("protocol", "refused")
    assert record.labels.quality.accuracy > 0.9


def test_a_party_that_cannot_get_ready_is_named_and_the_run_goes_on(run: Run, parties: LocalParties) -> None:
    parties.by_name["party-1"].answer = lambda request: (
        Failure("data", "no label column 'diagnosis'") if isinstance(request, Fit) else None
    )
    parties.by_name["party-2"].answer = lambda request: Fitted(6) if isinstance(request, Fit) else None
    parties.by_name["party-3"].answer = lambda request: (
        Failure("version", "speaks version 9") if isinstance(request, Describe) else None
    )
    parties.by_name["party-4"].answer = lambda request: (
        Description("party-5", "test", 5, "scripted", "", False) if isinstance(request, Describe) else None
    )
    record = run(votes__quorum=0.3)
    outcomes = {name: party.status for name, party in record.parties.items()}
    assert outcomes["party-1"] == "data: no label column 'diagnosis'"
    assert outcomes["party-2"].startswith("protocol: has 6 teachers")
    assert outcomes["party-3"] == "version: speaks version 9"
    assert outcomes["party-4"] == "identity: calls itself party-5"
    assert record.rounds[0].answered == 2 and not parties.by_name["party-4"].rounds()


def test_a_run_folder_that_cannot_be_written_fails_before_any_work(
    run: Run, parties: LocalParties, tmp_path: Path
) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="choose another"):
        run()
    assert all(not party.asked for party in parties.by_name.values())


def test_a_corrupt_ledger_stops_the_run(run: Run, parties: LocalParties, tmp_path: Path) -> None:
    run()
    asked = parties.votes_cast()
    (tmp_path / "run" / "ledger.sqlite").write_bytes(b"not a database" * 100)
    for suffix in ("-wal", "-shm"):
        (tmp_path / "run" / f"ledger.sqlite{suffix}").unlink(missing_ok=True)
    with pytest.raises(LedgerCorrupt):
        run()
    assert parties.votes_cast() == asked


@pytest.mark.parametrize(
    ("change", "named"),
    [({"seed": 8}, "seed"), ({"teachers": {"per_party": 3}}, "teachers"), ({"pool": {"source": "iris"}}, "pool")],
)
def test_a_folder_refuses_another_run(change: dict[str, Any], named: str, run: Run) -> None:
    run()
    with pytest.raises(ConfigurationError, match=f"another {named}"):
        run(**change)


def test_a_pool_that_changed_since_the_run_began_is_refused(run: Run, public: Any) -> None:
    run()
    public.pool.x[0, 0, 0, 0] += 1
    with pytest.raises(ConfigurationError, match="pool's content"):
        run(options={"public": PublicData(public.pool, public.holdout)})


def test_two_processes_do_not_share_a_run_folder(run: Run, tmp_path: Path) -> None:
    def progress(at: Progress) -> None:
        if at.step == "fit":
            with pytest.raises(StorageError, match="another process"):
                run()
            raise Crash

    with pytest.raises(Crash):
        run(options={"on_progress": progress})


def test_more_queries_than_inputs_are_refused(run: Run) -> None:
    with pytest.raises(ConfigurationError, match="the pool has 60 inputs"):
        run(queries__count=61)


def test_the_classic_bound_is_charged_where_it_is_asked_for(run: Run) -> None:
    record = run(budget={"epsilon": 50.0, "bound": "classic"})
    asked = account(GNMax(sigma=4.0), queries=record.privacy.queries_charged, delta=1e-5, bound="classic")
    assert record.privacy.units["record"] == pytest.approx(asked.epsilon)


@pytest.mark.slow
def test_a_mechanism_whose_charges_depend_on_answers_costs_what_was_stated(run: Run, tmp_path: Path) -> None:
    mechanism = {"name": "confident-gnmax", "parameters": {"sigma1": 6.0, "sigma2": 4.0, "threshold": 24.0}}
    record = run(mechanism=mechanism, budget__epsilon=6.0)
    with Ledger.read(tmp_path / "run" / "ledger.sqlite") as ledger:
        blocks = ledger.terms().blocks
        stated = {block.laws["record"]: block.rounds or 0 for block in blocks.values()}
        assert ledger.epsilon() == pytest.approx(block_epsilon(stated, 1e-5)) and ledger.epsilon() <= 6.0
        assert blocks["threshold"].rounds == 20 > (blocks["release"].rounds or 0) > 0
    assert record.privacy.adaptive
    assert record.labels.answered > 0
    report = (tmp_path / "run" / "report.html").read_text()
    assert "numbers that were stated beforehand" in report
    again = run(mechanism=mechanism, budget__epsilon=40.0)
    assert again.labels.answered + again.labels.abstained >= record.labels.answered
