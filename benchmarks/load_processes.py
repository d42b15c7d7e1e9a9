"""The processes that `benchmarks.load` starts.

A coordinator, hosts of many parties' sessions each, and a simulation on Flower's engine. Each is told what to do,
and answers, over a pipe; an error goes through the pipe too.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.usage import tcp_bytes, tree_cpu_s, tree_memory_bytes, tree_pids
from collegium.coordinator.rounds.rounds import OnReply, Parties
from collegium.coordinator.run.coordinator import CoordinatorRun, Reach, Storage
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
from collegium.protocol.replies import Failure, ReplyBody
from collegium.protocol.requests import Ask, RequestBody, SecureSumStep
from collegium.protocol.roster import Roster
from collegium.simulations.cohort import ROSTER, PreparedRun, find, prepare_run, read_settings
from collegium.simulations.simulate import on_engine

HOST = "localhost"
COORDINATOR = "coordinator"
CONNECT_S = 600.0


@dataclass
class Question:
    """What one question to all parties cost: from its request until the next question's, or the end of the run."""

    name: str
    seconds: float = 0.0
    last_votes_s: float = 0.0
    """Until the last party that answered had its answer ready."""
    answered: int = 0
    """Parties whose answers are in the sum."""
    cpu_s: dict[str, float] = field(default_factory=dict)
    """By group of processes."""
    bytes_sent: int = 0
    """By the coordinator, over all sessions, TLS and gRPC included, as the kernel counts them."""
    bytes_received: int = 0
    peak_memory_bytes: dict[str, int] = field(default_factory=dict)
    """By group of processes, of all until then."""


class MeasuredParties:
    """`Parties` that note what each question cost; what comes before the first is the time to get ready."""

    def __init__(self, inner: Parties, groups: Mapping[str, Sequence[int]], port: int | None) -> None:
        self._inner, self._groups, self._port = inner, groups, port
        self.questions = [Question("ready")]
        self._began = self._now()

    def names(self) -> list[str]:
        """See `Parties.names`."""
        return self._inner.names()

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        """See `Parties.ask`."""
        first, heard_s = next(iter(requests.values()), None), 0.0
        if isinstance(first, Ask):
            self.end()
            self.questions.append(Question(first.question.kind))

        def heard(party: str, reply: ReplyBody) -> ReplyBody | None:
            nonlocal heard_s
            heard_s = time.monotonic() - self._began[0]
            return None if on_reply is None else on_reply(party, reply)

        replies = self._inner.ask(requests, timeout_s=timeout_s, on_reply=heard)
        if isinstance(first, Ask):
            self.questions[-1].last_votes_s = heard_s
        if isinstance(first, SecureSumStep):
            self.questions[-1].answered = sum(not isinstance(reply, Failure) for reply in replies.values())
        return replies

    def end(self) -> None:
        """The last question ends here."""
        began, now = self._began, self._now()
        asked = self.questions[-1]
        asked.seconds = now[0] - began[0]
        asked.peak_memory_bytes = {group: sum(map(tree_memory_bytes, pids)) for group, pids in self._groups.items()}
        asked.cpu_s = {group: spent - began[1][group] for group, spent in now[1].items()}
        asked.bytes_sent, asked.bytes_received = now[2][0] - began[2][0], now[2][1] - began[2][1]
        self._began = now

    def _now(self) -> tuple[float, dict[str, float], tuple[int, int]]:
        spent = {group: sum(map(tree_cpu_s, pids)) for group, pids in self._groups.items()}
        return time.monotonic(), spent, (0, 0) if self._port is None else tcp_bytes(self._port)


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
            result |= measured_run(run, parties, groups, port, credentials)
        result["sessions_lost"] = lost
        result["coordinator_peak_memory_bytes"] = tree_memory_bytes(os.getpid())
        result["parties_peak_memory_bytes"] = sum(map(tree_memory_bytes, hosts))
        parties.farewell("the measurement is over", timeout_s=60.0)
    pipe.send(result)


def measured_run(
    run: PreparedRun,
    parties: Parties,
    groups: Mapping[str, Sequence[int]],
    port: int | None,
    credentials: Credentials | None,
) -> dict[str, Any]:
    """A whole run over ``parties``, of votes until the labels alone; what its questions cost, and all in all."""
    measured = MeasuredParties(parties, groups, port)
    coordinator = CoordinatorRun(
        run.config,
        Reach(measured, [member.name for member in run.cohort], Roster.load(run.folder / ROSTER).signing_keys()),
        Storage(run.folder, signer=None if credentials is None else credentials.signing_key),
        public=run.public,
    )
    began_s, votes = time.monotonic(), run.config.teachers is not None
    record = coordinator.label() if votes else coordinator.run()
    measured.end()
    labels = {"labels_s": record.timings_s["labels"], "labels": reached(record.labels).answered}
    questions = [asdict(asked) for asked in measured.questions]
    if votes:
        return {"round": questions[-1] | labels}
    groups_of = [] if record.groups is None else record.groups.members
    return {"questions": questions, "seconds": time.monotonic() - began_s, "groups": len(groups_of), **labels}


class HostedParty:
    """One of a host's parties: it answers in its turn, and prepares its votes only after so many seconds.

    The host's parties share a ``turn``: threads that compute at once would spend their time on the interpreter's lock.
    """

    def __init__(self, party: Party, turn: threading.Lock, delay_s: float) -> None:
        self._party, self._turn, self._delay_s = party, turn, delay_s

    def handle(self, request: Request) -> Reply:
        if isinstance(request.body, Ask):
            time.sleep(self._delay_s)
        with self._turn:
            return self._party.handle(request)


def host(pipe: Connection, folder: Path, port: int, indices: Sequence[int], slow: int, delay_s: float) -> None:
    """Serve the sessions of these parties, the cohort's first ``slow`` slowly, until the farewell."""
    config, cohort = read_settings(folder)[0], find(folder)
    roster = Roster.load(folder / ROSTER)
    keys = roster.signing_keys()
    pools = PoolStore(folder / "pools")
    ends: list[str] = []
    turn = threading.Lock()

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
                membership=Membership(roster.consortium, keys, sign, config.votes.collusion, noise_seed=config.seed),
                policy=unrestricted,
            )
            return HostedParty(party, turn, delay_s if index < slow else 0.0)

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
        result.update(measured_run(run, parties, {"engine": [os.getpid()]}, None, None))
        result["processes"] = len(tree_pids(os.getpid()))
        result["peak_memory_bytes"] = tree_memory_bytes(os.getpid())

    on_engine(run, drive)
    pipe.send(result)
