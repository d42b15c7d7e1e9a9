"""The chaos command: a short run under faults with a kill among them, and that its judges see what is wrong."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.chaos import consortium
from benchmarks.chaos.__main__ import one_run, summary, table
from benchmarks.chaos.consortium import epsilon_of, needed_of
from benchmarks.chaos.faults import EDITS, MIX, Fault, Kind, faults
from benchmarks.chaos.judging import (
    forgotten_labels,
    left_files,
    left_processes,
    tracebacks,
    undercounted,
    unpaid_labels,
    wrong_end,
    wrong_labels,
)
from benchmarks.chaos.outcome import Outcome, is_typed_error
from benchmarks.chaos.stop_conditions import DECK, StopCondition, stop_conditions
from support.copied import POSSIBLE, Copied

from collegium.privacy.ledger.entry import Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium_accounting.game.laws import VectorLaw
from collegium_accounting.renyi import WIDE_ORDERS, RenyiCurve

NAMES = ("party-1", "party-2", "party-3")
AT_MOST, AT_LEAST = 14, 6
"""Faults: how many hit depends on how often parties had to connect again."""
SEED = 364
"""Of its faults the first that waits for labels, which every run gives, kills the coordinator."""
CHEAP: dict[Kind, int] = {
    "stall party": 2,
    "stall coordinator": 2,
    "cut, closed": 2,
    "cut, reset": 3,
    "kill coordinator": 1,
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("chaos") / "run"
    whole = StopCondition("every label", 0.3, NAMES[:1])
    with pytest.MonkeyPatch.context() as patch:
        if POSSIBLE:  # and what runs it is a process as any other
            patch.setattr(consortium, "subprocess", SimpleNamespace(Popen=Copied, PIPE=subprocess.PIPE))
        return one_run(folder, 1000 * SEED, whole, names=NAMES, queries=60, deadline_s=5.0, wanted=AT_MOST, mix=CHEAP)


def planned(number: int, mix: dict[Kind, int] = MIX, seed: int = 1000 * SEED) -> list[Fault]:
    return list(itertools.islice(faults(seed, NAMES, 5.0, mix), number))


def test_the_first_fault_after_a_label_kills_the_coordinator() -> None:
    after_labels = [fault.kind for fault in planned(60, CHEAP) if fault.moment == "labels"]
    assert after_labels[0] == "kill coordinator"


def test_a_run_under_faults_ends_with_the_right_labels_each_paid_once(outcome: Outcome) -> None:
    assert outcome.violations == []
    assert outcome.state == "finished"
    assert outcome.labels == outcome.queries_charged == 48, "60 inputs, a fifth of them twice"


def test_a_kill_was_among_the_faults_and_the_coordinator_was_started_again(outcome: Outcome) -> None:
    assert outcome.faults.total() >= AT_LEAST and set(outcome.faults) <= set(CHEAP)
    assert outcome.faults["kill coordinator"] >= 1
    stops = sum(line.startswith("coordinator: ") for line in outcome.clean_stops)
    assert outcome.lives == 1 + outcome.faults["kill coordinator"] + stops


def test_what_is_printed_counts_the_faults_and_names_what_was_violated(outcome: Outcome) -> None:
    result = summary([outcome, Outcome(state="hung", violations=["the run hangs"])], SEED)
    assert result["faults"] == outcome.faults.total() and result["runs"] == 2
    assert "run 2: the run hangs" in table(result)
    assert "nothing was violated" in table(summary([outcome], SEED))


def test_a_seed_gives_the_same_faults_again_and_all_kinds_come() -> None:
    assert planned(200) == planned(200) != planned(200, seed=1)
    assert {fault.kind for fault in planned(200)} == set(MIX)
    for fault in planned(200):
        assert (fault.party is None) == (fault.kind.endswith("coordinator") or fault.kind in EDITS)


def test_every_way_to_end_comes_in_a_few_runs_and_names_parties_that_no_round_can_do_without() -> None:
    four = ("a", "b", "c", "d")
    ways = list(itertools.islice(stop_conditions(3, four, needed_of(4)), 2 * len(DECK)))
    assert ways == list(itertools.islice(stop_conditions(3, four, needed_of(4)), 2 * len(DECK)))
    for block in (ways[: len(DECK)], ways[len(DECK) :]):
        assert sorted(way.kind for way in block) == sorted(DECK)
    assert needed_of(4) == 3 and all(len(set(way.parties)) == 2 and way.share < 0.5 for way in ways)


def test_an_end_other_than_the_one_that_was_due_is_seen() -> None:
    finished, stopped = Outcome(state="finished"), Outcome(state="stopped")
    refused = Outcome(state="stopped", clean_stops=["coordinator: QuorumNotReached: refused-noise: the noise"])
    told = Outcome(state="stopped", clean_stops=["coordinator: Interrupted. Nothing is lost"])
    right = [
        ("every label", finished, 100),
        ("every label", stopped, 40),
        ("budget spent", finished, 30),
        ("policies exhausted", refused, 31),
        ("parties lost", told, 32),
    ]
    for kind, outcome, labels in right:
        assert wrong_end(kind, outcome, labels, 100, 30) == []
    wrong = [
        ("every label", finished, 99),
        ("budget spent", finished, 31),
        ("budget spent", stopped, 30),
        ("policies exhausted", refused, 61),
        ("policies exhausted", told, 30),
        ("policies exhausted", finished, 100),
        ("parties lost", told, 29),
        ("parties lost", refused, 32),
        ("parties lost", finished, 100),
        ("parties lost", Outcome(state="hung"), 32),
    ]
    for kind, outcome, labels in wrong:
        assert len(wrong_end(kind, outcome, labels, 100, 30)) == 1, (kind, outcome)


def test_the_budget_of_a_run_that_has_to_end_early_buys_its_labels_and_no_more() -> None:
    labels = {str(number): 1 for number in range(30)}
    assert undercounted(epsilon_of(30), 1e-5, labels, 1.0) == []
    assert undercounted(epsilon_of(30), 1e-5, labels | {"x": 1}, 1.0) != []


def test_a_label_without_its_own_charge_is_seen(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite", signer=None, delta=1e-5, terms=Terms(), name="trial") as ledger:
        laws = {"record": VectorLaw(1.0)}
        whole = ledger.charge("release", ["a", "b"], laws)
        ledger.release(whole, {"a": 1, "b": 1})
        assert unpaid_labels(ledger.entries()) == []
        other = ledger.charge("release", ["c"], laws)
        ledger.release(other, {"d": 1})
        found = unpaid_labels(ledger.entries())
        assert found == [f"entry {other + 1} releases other labels than entry {other} paid for"]


def test_an_epsilon_that_is_too_small_is_seen() -> None:
    """Two labels at σ = 2 cost twice α/σ², by this project's own conversion as by the accountant of the judges."""
    labels = {"a": 1, "b": 1}
    due = RenyiCurve(WIDE_ORDERS, 2 * np.array(WIDE_ORDERS) / 2.0**2).to_epsilon(1e-5).epsilon
    assert undercounted(due, 1e-5, labels, 2.0) == []
    assert undercounted(0.999 * due, 1e-5, labels, 2.0) != []


def test_wrong_and_forgotten_labels_are_seen() -> None:
    assert wrong_labels({"a": 1}, {"a": 1, "b": 0}) == []
    assert wrong_labels({"a": 1}, {"a": 2}) == wrong_labels({"x": 1}, {}) == ["1 labels are wrong"]
    assert forgotten_labels({"a": 1, "b": 0}, [{"a": 1}]) == []
    assert forgotten_labels({"a": 1}, [{"a": 1}, {"a": 2}]) and forgotten_labels({}, [{"a": 1}])


def test_files_processes_and_errors_that_are_left_are_seen(tmp_path: Path) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    for kept in ("run.json", ".lock", ".serving.lock", "ledger.sqlite-wal"):
        (tmp_path / kept).touch()
    assert left_files(tmp_path, scratch) == []
    for left in (".run.json.17", "tmp/x", "teacher.partial"):
        (tmp_path / left).touch()
    assert len(left_files(tmp_path, scratch)) == 3
    log = tmp_path / "party.log"
    log.write_text("15:04:05 connected\n")
    assert tracebacks([log]) == []
    log.write_text("Traceback (most recent call last):\n")
    assert len(tracebacks([log])) == 1
    assert left_processes(str(tmp_path), set()) == []
    words = [sys.executable, "-c", "print(flush=True); input()", str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stdout.readline()  # its command line is there by now
        assert len(left_processes(str(tmp_path), set())) == 1
        running.kill()
    with subprocess.Popen(words[:-1], cwd=scratch, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as within:
        assert within.stdout is not None and within.stdout.readline()
        assert len(left_processes(str(tmp_path), set())) == 1, "what runs in a folder there is seen by that"
        assert left_processes(str(tmp_path), {within.pid}) == []
        within.kill()


def test_only_the_line_of_a_known_error_is_a_clean_stop() -> None:
    assert is_typed_error("QuorumNotReached: only 2 of 4 parties answered")
    for line in ("KeyError: 'x'", "", "Traceback (most recent call last):"):
        assert not is_typed_error(line)
