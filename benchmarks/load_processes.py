"""The processes that `benchmarks.load` starts.

A coordinator, hosts of many parties' sessions each, and a simulation on Flower's engine. Each is told what to do,
and answers, over a pipe; an error goes through the pipe too.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.usage import tcp_bytes, tree_cpu_s, tree_memory_bytes, tree_pids
from collegium.coordinator.rounds.rounds import Parties, RoundResult, VoteRound, VoteSum
from collegium.coordinator.run.coordinator import CoordinatorRun, Reach, Storage
from collegium.coordinator.run.factories import vote_sum_of
from collegium.coordinator.run.run_record import reached
from collegium.coordinator.service.sessions import GrpcParties, SessionEvent
from collegium.data import PoolStore, load
from collegium.data.task import Task
from collegium.errors import CollegiumError
from collegium.parties.party import Party, unrestricted
from collegium.parties.session import PartySession
from collegium.parties.summing import Membership
from collegium.protocol.identities import Credentials
from collegium.protocol.messages import Reply, Request
from collegium.protocol.requests import Ask
from collegium.protocol.roster import Roster
from collegium.simulations.cohort import ROSTER, PreparedRun, find, prepare_run, read_settings
from collegium.simulations.simulate import on_engine
from collegium_accounting.mechanisms import AddedBy

HOST = "localhost"
COORDINATOR = "coordinator"
CONNECT_S = 600.0


@dataclass(frozen=True)
class Round:
    """One round as it was measured, from the request for votes to the opened sum."""

    seconds: float
    last_votes_s: float
    """Until the last party that answered had its votes ready."""
    answered: int
    cpu_s: Mapping[str, float]
    """By group of processes."""
    bytes_sent: int | None
    """By the coordinator, over all sessions, TLS and gRPC included, as the kernel counts them."""
    bytes_received: int | None


class MeasuredSum:
    """A `VoteSum` that notes what its last round cost."""

    def __init__(self, inner: VoteSum, groups: Mapping[str, Sequence[int]], port: int | None) -> None:
        self._inner, self._groups, self._port = inner, groups, port
        self.round: Round | None = None

    @property
    def mode(self) -> str:
        return self._inner.mode

    @property
    def added(self) -> AddedBy:
        return self._inner.added

    def sum_votes(self, round_: VoteRound) -> RoundResult:
        """See `VoteSum.sum_votes`."""
        began_s, last_s = time.monotonic(), 0.0
        cpu_before, traffic_before = self._cpu_s(), self._traffic()

        def heard(done: int, asked: int) -> None:
            nonlocal last_s
            last_s = time.monotonic() - began_s

        result = self._inner.sum_votes(replace(round_, on_answer=heard))
        seconds, cpu, traffic = time.monotonic() - began_s, self._cpu_s(), self._traffic()
        spent = {group: cpu[group] - cpu_before[group] for group in cpu}
        sent = received = None
        if traffic is not None and traffic_before is not None:
            sent, received = traffic[0] - traffic_before[0], traffic[1] - traffic_before[1]
        self.round = Round(seconds, last_s, len(result.answered), spent, sent, received)
        return result

    def _cpu_s(self) -> dict[str, float]:
        return {group: sum(map(tree_cpu_s, pids)) for group, pids in self._groups.items()}

    def _traffic(self) -> tuple[int, int] | None:
        return None if self._port is None else tcp_bytes(self._port)


def in_process(work: Callable[..., None], pipe: Connection, *arguments: Any) -> None:
    """Run a role; its error, if it is one of ours, is what the other end of the pipe hears last."""
    try:
        work(pipe, *arguments)
    except CollegiumError as error:
        pipe.send(error)


def coordinate(pipe: Connection, folder: Path) -> None:
    """Listen; once told the hosts' process ids and to go, run or hold; farewell when told."""
    run = prepare_run(read_settings(folder)[0], folder, data_root=None)
    credentials = Credentials.load(folder / COORDINATOR, "coordinator")
    lost = 0

    def note(event: SessionEvent) -> None:
        nonlocal lost
        lost += event.kind == "disconnected"

    began_s = time.monotonic()
    with GrpcParties(
        credentials=credentials,
        roster=Roster.load(folder / ROSTER),
        task=run.config.task,
        run_id=run.config.name,
        on_event=note,
    ) as parties:
        port = parties.start(f"{HOST}:0")
        pipe.send(port)
        parties.wait_for([member.name for member in run.cohort], timeout_s=CONNECT_S)
        connected_s = time.monotonic() - began_s
        sent, received = tcp_bytes(port)
        hosts, hold_s = pipe.recv()
        groups = {COORDINATOR: [os.getpid()], "parties": hosts}
        result: dict[str, Any] = {
            "connecting": {
                "seconds": connected_s,
                "cpu_s": {group: sum(map(tree_cpu_s, pids)) for group, pids in groups.items()},
                "bytes_sent": sent,
                "bytes_received": received,
                "coordinator_memory_bytes": tree_memory_bytes(os.getpid(), "VmRSS"),
            }
        }
        if hold_s is not None:
            cpu_before = {group: sum(map(tree_cpu_s, pids)) for group, pids in groups.items()}
            held = threading.Event()
            held.wait(hold_s)
            cpu = {group: sum(map(tree_cpu_s, pids)) - cpu_before[group] for group, pids in groups.items()}
            result["holding"] = {"seconds": hold_s, "connected": len(parties.names()), "lost": lost, "cpu_s": cpu}
        else:
            result["round"] = label(run, parties, groups, port, credentials)
        result["sessions_lost"] = lost
        result["coordinator_peak_memory_bytes"] = tree_memory_bytes(os.getpid())
        result["parties_peak_memory_bytes"] = sum(map(tree_memory_bytes, hosts))
        parties.farewell("the measurement is over", timeout_s=60.0)
    pipe.send(result)


def label(
    run: PreparedRun,
    parties: Parties,
    groups: Mapping[str, Sequence[int]],
    port: int | None,
    credentials: Credentials | None,
) -> dict[str, Any]:
    """A whole labelling run over ``parties``; what its round cost, and the run's other seconds."""
    keys = Roster.load(run.folder / ROSTER).signing_keys()
    measured = MeasuredSum(vote_sum_of(run.config, parties, keys), groups, port)
    coordinator = CoordinatorRun(
        run.config,
        Reach(parties, [member.name for member in run.cohort], vote_sum=measured),
        Storage(run.folder, signer=None if credentials is None else credentials.signing_key),
        public=run.public,
    )
    record = coordinator.label()
    assert measured.round is not None
    return asdict(measured.round) | {"labels_s": record.timings_s["labels"], "labels": reached(record.labels).answered}


class HostedParty:
    """One of a host's parties: it answers in its turn, and prepares its votes only after so many seconds.

    ``turns`` are few: hundreds of threads that compute at once would spend their time on the interpreter's lock.
    """

    def __init__(self, party: Party, turns: threading.BoundedSemaphore, delay_s: float) -> None:
        self._party, self._turns, self._delay_s = party, turns, delay_s

    def handle(self, request: Request) -> Reply:
        if isinstance(request.body, Ask):
            time.sleep(self._delay_s)
        with self._turns:
            return self._party.handle(request)


def host(pipe: Connection, folder: Path, port: int, indices: Sequence[int], slow: int, delay_s: float) -> None:
    """Serve the sessions of these parties, the cohort's first ``slow`` slowly, until the farewell."""
    config, cohort = read_settings(folder)[0], find(folder)
    roster = Roster.load(folder / ROSTER)
    keys = roster.signing_keys()
    pools = PoolStore(folder / "pools")
    ends: list[str] = []
    turns = threading.BoundedSemaphore(2)

    def serve(index: int) -> None:
        member = cohort[index]
        credentials = Credentials.load(member.credentials, "party")

        def answers(task: Task) -> HostedParty:
            sign = credentials.signing_key.sign
            party = Party(
                member.name,
                load(member.source, task, data_root=None),
                task,
                folder=member.folder,
                pools=pools,
                device="cpu",
                membership=Membership(roster.consortium, keys, sign, config.votes.collusion),
                policy=unrestricted,
            )
            return HostedParty(party, turns, delay_s if index < slow else 0.0)

        try:
            PartySession(answers, lambda: credentials, f"{HOST}:{port}").run()
            ends.append("farewell")
        except CollegiumError as error:
            ends.append(f"{member.name}: {error}")

    threads = [threading.Thread(target=serve, args=(index,), name=f"session-{index}", daemon=True) for index in indices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.send(ends)


def simulate_on_flower(pipe: Connection, folder: Path) -> None:
    """The same labelling run with virtual parties on Flower's simulation engine."""
    run = prepare_run(read_settings(folder)[0], folder, data_root=None)
    began_s, result = time.monotonic(), dict[str, Any]()

    def drive(parties: Parties) -> None:
        result["connecting"] = {"seconds": time.monotonic() - began_s}
        result["round"] = label(run, parties, {"engine": [os.getpid()]}, None, None)
        result["processes"] = len(tree_pids(os.getpid()))
        result["peak_memory_bytes"] = tree_memory_bytes(os.getpid())

    on_engine(run, drive)
    pipe.send(result)
