"""The coordinator's way over Flower: whatever a node does, every asked party has one answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from collegium.coordinator.rounds.rounds import OnReply
from collegium.errors import DataError, QuorumNotReached, Unreachable
from collegium.protocol.messages import Reply, Request
from collegium.protocol.replies import Description, Failure, ReplyBody
from collegium.protocol.requests import Describe, HoldPool, RequestBody
from collegium.settings import validate_config
from collegium.simulations.cohort import PreparedRun, prepare_run, virtual_party
from collegium.simulations.config import SimulationConfig
from collegium.simulations.flower_parties import MESSAGE_TYPE, RECORD, FlowerParties, _answer
from collegium.simulations.simulate import coordinator_of


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Flower sets in a process that runs an app; a message cannot be made without it."""
    monkeypatch.setattr(TaskIdentity, "_run_id", 1)
    monkeypatch.setattr(TaskIdentity, "_node_id", 1)
    monkeypatch.setattr(TaskIdentity, "_task_id", 1)


Answer = Callable[[Request, Message], Message | None]


def described(request: Request, message: Message) -> Message:
    name = f"party-{message.metadata.dst_node_id}"
    return replying(message, Reply(request.request_id, Description(name, "test", 1, "none")).to_bytes())


def replying(message: Message, data: Any) -> Message:
    return Message(RecordDict({RECORD: ConfigRecord({"reply": data})}), reply_to=message)


class Grid:
    """A grid of nodes that answer at once, or never."""

    def __init__(self, nodes: Iterable[int] = (1, 2, 3)) -> None:
        self.nodes = list(nodes)
        self.answers: dict[int, Answer] = {}
        self.inbox: list[tuple[str, Message]] = []
        self.groups: list[str] = []

    def get_node_ids(self) -> list[int]:
        return self.nodes

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for number, message in enumerate(messages):
            message.metadata._message_id = f"m{len(self.groups)}-{number}"
            ids.append(message.metadata.message_id)
            self.groups.append(message.metadata.group_id)
            data = message.content.config_records[RECORD]["request"]
            assert isinstance(data, bytes)
            answer = self.answers.get(message.metadata.dst_node_id, described)
            reply = answer(Request.from_bytes(data), message)
            if reply is not None:
                self.inbox.append((message.metadata.message_id, reply))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        wanted = set(message_ids)
        found = [reply for sent, reply in self.inbox if sent in wanted]
        self.inbox = [(sent, reply) for sent, reply in self.inbox if sent not in wanted]
        return found


def parties(grid: Grid, expected: int = 3, wait_s: float = 5.0) -> FlowerParties:
    return FlowerParties(grid, run_id="run-1", expected=expected, wait_s=wait_s)  # type: ignore[arg-type]


def asked(grid: Grid, answer: Answer, timeout_s: float = 5.0) -> Any:
    met = parties(grid)
    grid.answers[2] = answer
    replies = met.ask(dict.fromkeys(met.names(), Describe()), timeout_s=timeout_s)
    assert set(replies) == {"party-1", "party-2", "party-3"}
    assert isinstance(replies["party-1"], Description) and isinstance(replies["party-3"], Description)
    return replies["party-2"]


def test_nodes_are_known_by_the_names_that_their_parties_give() -> None:
    assert parties(Grid()).names() == ["party-1", "party-2", "party-3"]


def test_every_answer_is_told_as_it_comes() -> None:
    met, heard = parties(Grid()), []
    met.ask(dict.fromkeys(met.names(), Describe()), timeout_s=5, on_reply=lambda name, _: heard.append(name))
    assert sorted(heard) == met.names()


def test_the_engine_holds_few_requests_at_a_time_and_a_slow_node_keeps_no_other_waiting() -> None:
    grid = Grid(range(1, 8))
    met = FlowerParties(grid, run_id="run-1", expected=7, at_once=2)  # type: ignore[arg-type]
    held, most, late, push, pull = set[str](), [0], list[Message](), grid.push_messages, grid.pull_messages

    def slow(request: Request, message: Message) -> None:
        late.append(described(request, message))

    def pushed(messages: Iterable[Message]) -> list[str]:
        ids = push(messages)
        held.update(ids)
        most[0] = max(most[0], len(held))
        return ids

    def pulled(message_ids: Iterable[str]) -> list[Message]:
        found = pull(message_ids)
        held.difference_update(message.metadata.reply_to_message_id for message in found)
        heard.extend(message.metadata.src_node_id for message in found)
        if len(heard) == 6 and late:  # all others have answered
            grid.inbox.append((late[0].metadata.reply_to_message_id, late.pop()))
        return found

    heard = list[int]()
    grid.push_messages, grid.pull_messages = pushed, pulled  # type: ignore[method-assign]
    grid.answers[1] = slow
    replies = met.ask(dict.fromkeys(met.names(), Describe()), timeout_s=600)
    assert most == [2] and heard[-1] == 1
    assert all(isinstance(reply, Description) for reply in replies.values()) and len(replies) == 7


def test_a_node_that_says_nothing_has_missed_the_deadline() -> None:
    assert asked(Grid(), lambda request, message: None, timeout_s=0.2) == Failure("deadline", "no answer within 0.2 s")


def test_a_node_whose_process_failed_is_unreachable_and_one_line_says_why(caplog: pytest.LogCaptureFixture) -> None:
    failure = asked(Grid(), lambda request, message: Message(Error(code=0, reason="no\nmemory"), reply_to=message))
    assert isinstance(failure, Failure) and failure.code == "unreachable" and "memory" in failure.message
    assert caplog.messages == ["the engine lost 1 of 3 requests: no?memory"]


@pytest.mark.parametrize("data", [b"\xff\xff", b"", "text", 3])
def test_bytes_that_are_no_reply_break_the_protocol(data: Any) -> None:
    failure = asked(Grid(), lambda request, message: replying(message, data))
    assert isinstance(failure, Failure) and failure.code == "protocol"


def test_a_reply_without_content_breaks_the_protocol() -> None:
    failure = asked(Grid(), lambda request, message: Message(RecordDict(), reply_to=message))
    assert failure == Failure("protocol", "a reply without content")


def test_a_reply_to_another_request_breaks_the_protocol() -> None:
    stale = Reply("another", Description("party-2", "test", 1, "none")).to_bytes()
    failure = asked(Grid(), lambda request, message: replying(message, stale))
    assert failure == Failure("protocol", "a reply to another request")


def test_a_failure_that_a_party_reports_arrives_as_it_is() -> None:
    failed = Failure.of(DataError("no records"))
    answer = asked(Grid(), lambda request, message: replying(message, Reply(request.request_id, failed).to_bytes()))
    assert answer == failed


def test_whoever_waits_is_told_when_the_engine_stops() -> None:
    grid, stop = Grid([1]), threading.Event()
    met = FlowerParties(grid, run_id="run-1", expected=1, wait_s=5.0, stop=stop)  # type: ignore[arg-type]

    def stopping(request: Request, message: Message) -> None:
        stop.set()

    grid.answers[1] = stopping
    with pytest.raises(Unreachable, match="start the run again"):
        met.ask({"party-1": Describe()}, timeout_s=600)


def test_a_name_that_nobody_has_is_unreachable() -> None:
    replies = parties(Grid()).ask({"elsewhere": Describe()}, timeout_s=5)
    assert isinstance(replies["elsewhere"], Failure) and replies["elsewhere"].code == "unreachable"


def test_too_few_nodes_end_the_wait_and_are_counted() -> None:
    with pytest.raises(QuorumNotReached, match="3 of 5 nodes"):
        parties(Grid(), expected=5, wait_s=0.1)


def test_a_party_that_cannot_be_made_ends_the_start_with_its_own_error() -> None:
    grid = Grid()
    failed = Failure.of(DataError("party-2 has no records"))
    grid.answers[2] = lambda request, message: replying(message, Reply(request.request_id, failed).to_bytes())
    with pytest.raises(DataError, match="party-2 has no records"):
        parties(grid)


def test_no_two_exchanges_share_a_group() -> None:
    grid = Grid([1])
    met = parties(grid, expected=1)
    for _ in range(3):
        met.ask({"party-1": Describe()}, timeout_s=5)
    assert len(set(grid.groups)) == 4


def test_requests_arrive_whole() -> None:
    grid, seen = Grid([1]), []
    met = parties(grid, expected=1)

    def note(request: Request, message: Message) -> Message:
        seen.append(request)
        return described(request, message)

    grid.answers[1] = note
    met.ask({"party-1": Describe()}, timeout_s=5)
    assert [(request.run_id, request.body) for request in seen] == [("run-1", Describe())]
    assert not isinstance(seen[0].body, HoldPool)


class Played:
    """`Parties` that `_answer` plays, each message in this process or, as another process would, afresh."""

    def __init__(self, run: PreparedRun, *, afresh: bool) -> None:
        self._run, self._afresh, self._asked = run, afresh, 0
        self._contexts = {
            member.name: Context(1, number, {"partition-id": number}, RecordDict(), {})
            for number, member in enumerate(run.cohort)
        }

    def names(self) -> list[str]:
        return list(self._contexts)

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        replies = {}
        for name, body in requests.items():
            if self._afresh:
                virtual_party.cache_clear()
            self._asked += 1
            record = ConfigRecord({"request": Request(f"r{self._asked}", "run", body).to_bytes()})
            message = Message(RecordDict({RECORD: record}), dst_node_id=1, message_type=MESSAGE_TYPE)
            answered = _answer(message, self._contexts[name], self._run.folder)
            data = answered.content.config_records[RECORD]["reply"]
            assert isinstance(data, bytes)
            replies[name] = Reply.from_bytes(data).body
        return replies


@pytest.mark.slow
def test_a_party_is_played_by_one_process_or_by_another_for_each_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another process first handles what it has not seen of a round; one that has seen it is not asked twice."""
    task = {
        "classes": ["a", "b"],
        "inputs": {"kind": "table", "columns": [{"kind": "number", "name": "x", "low": 0, "high": 1}]},
    }
    values = np.linspace(0.0, 1.0, 90, dtype=np.float32)[:, None]
    np.savez(tmp_path / "private.npz", x=values, y=np.arange(90) // 45)
    np.savez(tmp_path / "pool.npz", x=values[::3])
    sources = {name: {"source": str(tmp_path / f"{name}.npz")} for name in ("private", "pool")}
    config = validate_config(
        {"name": "run", "seed": 3, "task": task, "partition": {"kind": "iid", "parties": 3}, "budget": {"epsilon": 4.0}}
        | {"sums": {"rounds": 2}}
        | sources,
        SimulationConfig,
        "test",
    )
    labels = []
    for afresh in (False, True):
        run = prepare_run(config, tmp_path / str(afresh), data_root=None)
        coordinator_of(run, Played(run, afresh=afresh), None).label()
        labels.append((run.folder / "labels.csv").read_text())
    assert labels[0] == labels[1] and len(labels[0].splitlines()) == 31
    assert "asked-twice" not in caplog.text
