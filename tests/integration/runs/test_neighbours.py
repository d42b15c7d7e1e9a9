"""Records that vote on their neighbours, over Flower's engine and over real processes: the same runs as in one process.

Both mechanisms ask the same parties, one after the other; the processes lose a party between the two sums of a round
of sampled neighbours.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collegium_reproduction.nearest import coordinator as nearest_sum
from support.runs import InProcess, but_for_time, failures, labels_csv, paid, tiny

from collegium.coordinator.rounds.rounds import Parties
from collegium.coordinator.run import open_run
from collegium.coordinator.run.coordinator import CoordinatorRun
from collegium.coordinator.run.factories import announced_terms
from collegium.coordinator.run.run_record import RunRecord
from collegium.parties.cli import LEDGER_HEAD
from collegium.parties.neighbours.budgets import FILE
from collegium.protocol.replies import Failure, ReplyBody
from collegium.protocol.requests import RequestBody
from collegium.protocol.roster import AnnouncedTerms
from collegium.simulations import launcher
from collegium.simulations.cohort import ROSTER, CohortMember, PreparedRun, prepare_run
from collegium.simulations.launcher import PartyProcess, launch, write_party_config
from collegium.simulations.simulate import coordinator_of, on_engine

pytest.importorskip("flwr")

RADIUS: dict[str, Any] = {
    # Within the ρ that a party's policy allows a record unless it says otherwise.
    "mechanism": {"name": "individual-knn", "parameters": {"sigma": 8.0, "participations": 1}},
    "neighbours": {"share": 0.1, "dimensions": 16},
    "partition": {"parties": 4},
}
SAMPLED: dict[str, Any] = {
    "mechanism": {
        "name": "knn",
        "parameters": {"threshold": 6.0, "sigma1": 1.0, "sigma2": 1.0, "sampling_rate": 0.5},
    },
    "neighbours": {"features": "student", "dimensions": 8, "share": 0.03, "k": 8},
    "queries": {"count": 12, "batch": 5, "rounds": 2},
    "partition": {"parties": 4},
    "votes": {"quorum": 0.7},
    "student": {"method": "supervised", "options": {"steps": 2, "network": "mlp"}},
}
"""By gradient histograms, then by what the student of the first six queries has learned."""
KINDS = {"even": (0, 2, 4, 6, 8), "loop": (0, 6, 8, 9), "large": (5, 6, 7, 8, 9)}
SEVERAL: dict[str, Any] = {
    "task": {"classes": list(KINDS), "multilabel": True},
    "mechanism": {"name": "multilabel-knn", "parameters": {"tau": 2.0, "sigma": 1.0, "sampling_rate": 0.5}},
    "neighbours": {"features": "hog", "dimensions": 8, "share": 0.03, "k": 8},
    "queries": {"count": 12, "batch": 12},
    "student": {"method": "supervised", "options": {"steps": 2, "network": "linear"}},
}
"""Digits by kinds of which each is several."""
RUNS = {"radius": RADIUS, "sampled": SAMPLED}
LEAVES = "party-3"
Done = tuple[Path, RunRecord]


class Leaving(InProcess):
    """A party that can be taken away."""

    gone: frozenset[str] = frozenset()

    def ask(self, requests: Mapping[str, RequestBody], **options: Any) -> dict[str, ReplyBody]:
        heard = {name: body for name, body in requests.items() if name not in self.gone}
        silent = requests.keys() - heard.keys()
        return super().ask(heard, **options) | dict.fromkeys(silent, Failure("unreachable", "gone"))


class InTurn:
    """Coordinators of several runs, one after the other in the place of one."""

    def __init__(self, folder: Path, coordinators: list[CoordinatorRun]) -> None:
        self.folder, self._coordinators = folder, coordinators

    def check(self) -> None:
        for one in self._coordinators:
            one.check()

    def run(self) -> list[RunRecord]:
        said = []
        for one in self._coordinators:
            said.append(one.run())
            for kept in self.folder.rglob(LEDGER_HEAD):
                kept.unlink()  # the institutions agree to the ledger of the next run
        return said


@pytest.fixture(scope="module")
def between_sums() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Has something done once, between the first two sums of sampled neighbours: of the threshold and the release."""
    original = nearest_sum.votes_of_nearest
    waiting: list[Callable[[], None]] = []

    def watched(*arguments: Any) -> Any:
        if waiting:
            waiting.pop()()
        return original(*arguments)

    def plan(act: Callable[[], None]) -> None:
        waiting[:] = [act]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest_sum, "votes_of_nearest", watched)
        # Ledgers of other names draw other samples; here runs are compared label by label.
        patch.setattr(open_run, "ledger_id", lambda ledger: "ledger")
        yield plan


def prepared(folder: Path) -> list[PreparedRun]:
    """Two runs by the parties of the first."""
    runs = [prepare_run(tiny(**changes), folder / name, data_root=None) for name, changes in RUNS.items()]
    shutil.copy(runs[0].folder / ROSTER, runs[1].folder / ROSTER)
    return runs


def finished(runs: list[PreparedRun], said: list[RunRecord]) -> dict[str, Done]:
    return {name: (run.folder, record) for name, run, record in zip(RUNS, runs, said, strict=True)}


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory, between_sums: Any) -> dict[str, Done]:
    runs, said = prepared(tmp_path_factory.mktemp("flower")), []

    def drive(parties: Parties) -> None:
        said.extend(coordinator_of(run, parties, None).run() for run in runs)

    on_engine(runs[0], drive)
    return finished(runs, said)


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory, between_sums: Any) -> dict[str, Done]:
    runs = prepared(tmp_path_factory.mktemp("processes"))

    def both(_: PreparedRun, parties: Parties, on_progress: Any, **options: Any) -> InTurn:
        return InTurn(runs[0].folder, [coordinator_of(run, parties, on_progress, **options) for run in runs])

    def on_started(started: list[PartyProcess]) -> None:
        (leaving,) = (party.process for party in started if party.name == LEAVES)

        def kill() -> None:
            leaving.kill()
            leaving.wait()

        between_sums(kill)

    def agreed_to_both(*_: Any) -> AnnouncedTerms:
        """The policies of the first run's parties agree to the smaller noise and to the answers of both runs."""
        terms = [announced_terms(run.config, run.config.queries.count, run.public.spec) for run in runs]
        smallest = min(one.noise_votes for one in terms)
        return terms[0].model_copy(update={"noise_votes": smallest, "answers": 2 * sum(one.answers for one in terms)})

    def asked_twice(run: PreparedRun, member: CohortMember, port: int) -> Path:
        """A party leaves for good between two sums: the others must agree to answer these inputs once more."""
        path = write_party_config(run, member, port)
        policy = member.folder / launcher.POLICY
        agreed = policy.read_text(encoding="utf-8").replace('"individual-knn"]', '"individual-knn", "knn"]')
        policy.write_text(agreed + "times_per_query = 2\n", encoding="utf-8")
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launcher, "coordinator_of", both)
        patch.setattr(launcher, "announced_terms", agreed_to_both)
        patch.setattr(launcher, "write_party_config", asked_twice)
        said: Any = launch(runs[0], on_started=on_started)
    return finished(runs, said)


@pytest.fixture(scope="module")
def in_process(tmp_path_factory: pytest.TempPathFactory, between_sums: Any) -> Callable[..., Done]:
    def run(name: str, *, leaving: bool = False) -> Done:
        chosen = prepare_run(tiny(**RUNS[name]), tmp_path_factory.mktemp(name), data_root=None)
        parties = Leaving(chosen)
        if leaving:
            between_sums(lambda: setattr(parties, "gone", frozenset({LEAVES})))
        return chosen.folder, coordinator_of(chosen, parties, None).run()

    return run


def same(one: Done, other: Done) -> None:
    (folder, of_one), (beside, of_other) = one, other
    assert labels_csv(folder) == labels_csv(beside) and len(labels_csv(folder).splitlines()) == 13
    assert paid(folder).epsilon == paid(beside).epsilon
    for key in ("asked", "labels", "privacy", "pool", "student", "state"):
        assert getattr(but_for_time(of_one), key) == getattr(but_for_time(of_other), key), key
    assert of_one.state == "finished" and of_one.sum_mode == "masked"


def test_records_within_a_radius_answer_alike_over_every_transport(
    flower: dict[str, Done], processes: dict[str, Done], in_process: Callable[..., Done]
) -> None:
    here = in_process("radius")
    for done in (flower["radius"], processes["radius"]):
        same(done, here)
        assert failures(done[1]) == {} and done[1].labels.answered == 12


def test_every_party_keeps_the_budgets_of_its_records(flower: dict[str, Done], processes: dict[str, Done]) -> None:
    for folder in (flower["radius"][0], processes["radius"][0]):
        assert len(list((folder / "parties").glob(f"*/{FILE}"))) == 4
        assert not (folder / FILE).exists()


def test_the_nearest_of_a_sample_answer_alike_over_flower(
    flower: dict[str, Done], in_process: Callable[..., Done]
) -> None:
    folder, run = flower["sampled"]
    same((folder, run), in_process("sampled"))
    assert failures(run) == {} and 2 < run.labels.answered < run.labels.asked == 12
    assert list((folder / "learned").glob("student-*.safetensors")), "the second round is found by a student"


def test_a_process_killed_between_the_sums_of_two_stages_is_in_the_first_alone(
    processes: dict[str, Done], in_process: Callable[..., Done]
) -> None:
    folder, run = processes["sampled"]
    same((folder, run), in_process("sampled", leaving=True))
    assert list(failures(run)) == [LEAVES] and failures(run)[LEAVES][0].outcome == "unreachable"
    assert [done.answered for done in run.rounds] == [4] + [3] * (len(run.rounds) - 1)
    assert (folder / "report.html").is_file()


def test_records_of_several_labels_answer_alike_as_real_processes(tmp_path: Path, between_sums: Any) -> None:
    from sklearn.datasets import load_digits

    bunch, file = load_digits(), tmp_path / "kinds.npz"
    held = np.stack([np.isin(bunch.target, kind) for kind in KINDS.values()], axis=1)
    np.savez(file, x=(bunch.images * 15.9).astype(np.uint8)[..., None], y=held.astype(np.int64))
    parts = {"private": (0, 600), "pool": (1200, 1300), "holdout": (1500, 1700)}
    sources = {
        part: {"source": str(file), "shuffle_seed": None, "start": start, "stop": stop}
        for part, (start, stop) in parts.items()
    }
    here, processes = (prepare_run(tiny(**SEVERAL, **sources), tmp_path / name, data_root=None) for name in "ab")
    run = launch(processes)
    same((processes.folder, run), (here.folder, coordinator_of(here, InProcess(here), None).run()))
    assert failures(run) == {} and labels_csv(processes.folder).startswith("index,even,loop,large\n")
    assert run.labels.quality.accuracy > 0.8
