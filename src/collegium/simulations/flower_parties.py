"""The coordinator's way to its parties when Flower carries the messages.

A request travels as bytes in a ConfigRecord of a ``query.collegium`` message; so does the reply.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from collegium.coordinator.rounds.rounds import OnReply
from collegium.errors import CollegiumError, QuorumNotReached, Unreachable
from collegium.protocol.messages import Describe, Description, Failure, Reply, ReplyBody, Request, RequestBody

MESSAGE_TYPE = "query.collegium"
RECORD = "collegium"
_POLL_S = 0.05


class FlowerParties:
    """`Parties` over a Flower grid.

    Parameters
    ----------
    expected : nodes to wait for; fewer than that after ``wait_s`` seconds raise QuorumNotReached.
    stop : once set, whoever waits for answers gets Unreachable: nobody answers when the engine is gone.
    """

    def __init__(
        self, grid: Grid, *, run_id: str, expected: int, wait_s: float = 120.0, stop: threading.Event | None = None
    ) -> None:
        self._grid = grid
        self._run_id = run_id
        self._asked = 0
        self._stop = stop or threading.Event()
        self._node_of = self._meet(expected, wait_s)

    def names(self) -> list[str]:
        """Every party that described itself at the start."""
        return sorted(self._node_of)

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        """See `Parties.ask`."""
        by_node = {self._node_of[name]: (name, body) for name, body in requests.items() if name in self._node_of}
        stranger = Failure("unreachable", "not one of this engine's nodes")
        answers: dict[str, ReplyBody] = {name: stranger for name in requests if name not in self._node_of}
        bodies = {node: body for node, (_, body) in by_node.items()}
        for node, answer in self._exchange(bodies, timeout_s, by_node, on_reply):
            answers[by_node[node][0]] = answer
        for name, _ in by_node.values():
            answers.setdefault(name, Failure("deadline", f"no answer within {timeout_s:g} s"))
        return answers

    def _exchange(
        self,
        bodies: Mapping[int, RequestBody],
        timeout_s: float,
        names: Mapping[int, tuple[str, RequestBody]] | None = None,
        on_reply: OnReply | None = None,
    ) -> list[tuple[int, ReplyBody]]:
        self._asked += 1
        group = f"{self._run_id}:{self._asked}"
        request_of: dict[str, int] = {}
        messages = []
        for node, body in bodies.items():
            request = Request(f"{group}:{node}", self._run_id, body)
            request_of[request.request_id] = node
            record = ConfigRecord({"request": request.to_bytes()})
            messages.append(
                Message(RecordDict({RECORD: record}), dst_node_id=node, message_type=MESSAGE_TYPE, group_id=group)
            )
        waiting = set(self._grid.push_messages(messages))
        deadline = time.monotonic() + timeout_s
        answers: list[tuple[int, ReplyBody]] = []
        while waiting and time.monotonic() < deadline:
            for message in self._grid.pull_messages(waiting):
                waiting.discard(message.metadata.reply_to_message_id)
                node = message.metadata.src_node_id
                answer = self._body(message, request_of, node)
                answers.append((node, answer))
                if on_reply is not None and names is not None and node in names:
                    on_reply(names[node][0], answer)
            self._pause()
        return answers

    def _pause(self) -> None:
        if self._stop.wait(_POLL_S):
            raise Unreachable("the engine has stopped; start the run again, it goes on where it was")

    @staticmethod
    def _body(message: Message, request_of: Mapping[str, int], node: int) -> ReplyBody:
        if message.has_error():
            return Failure("unreachable", f"the party's process failed: {message.error.reason}"[:1000])
        try:
            data = message.content.config_records[RECORD]["reply"]
            reply = Reply.from_bytes(data if isinstance(data, bytes) else b"")
        except CollegiumError as error:
            return Failure.of(error)
        except KeyError:
            return Failure("protocol", "a reply without content")
        if request_of.get(reply.request_id) != node:
            return Failure("protocol", "a reply to another request")
        return reply.body

    def _meet(self, expected: int, wait_s: float) -> dict[str, int]:
        deadline = time.monotonic() + wait_s
        nodes = list(self._grid.get_node_ids())
        while len(nodes) < expected and time.monotonic() < deadline:
            self._pause()
            nodes = list(self._grid.get_node_ids())
        if len(nodes) < expected:
            raise QuorumNotReached(f"{len(nodes)} of {expected} nodes joined within {wait_s:g} s; start as many")
        found: dict[str, int] = {}
        for node, body in self._exchange(dict.fromkeys(nodes[:expected], Describe()), wait_s):
            if isinstance(body, Description):
                found[body.party] = node
            elif isinstance(body, Failure) and body.code != "unreachable":
                raise body.error()
        if not found:
            raise QuorumNotReached("no node answered; look at the engine's log")
        return found
