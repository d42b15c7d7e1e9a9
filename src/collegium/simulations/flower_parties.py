"""Flower carries the messages: the coordinator's side of it, and that of the virtual parties.

A request travels as bytes in a ConfigRecord of a ``query.collegium`` message; so does the reply.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from weakref import WeakKeyDictionary

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from collegium.coordinator.rounds.rounds import OnReply
from collegium.errors import CollegiumError, QuorumNotReached, Unreachable
from collegium.logs import printable
from collegium.parties.party import Party
from collegium.protocol.messages import Reply, Request
from collegium.protocol.replies import Description, Failure, ReplyBody
from collegium.protocol.requests import Ask, Describe, RequestBody, SecureSumStep
from collegium.simulations.cohort import virtual_party

MESSAGE_TYPE = "query.collegium"
RECORD = "collegium"
TRAIL = "collegium-round"
"""The name under which a node keeps the requests of the round under way."""
_POLL_S = 0.05
_SEEN: "WeakKeyDictionary[Party, list[bytes]]" = WeakKeyDictionary()
"""The requests of the round under way that this process has handled, by party."""
_log = logging.getLogger(__name__)


class FlowerParties:
    """`Parties` over a Flower grid.

    Parameters
    ----------
    expected : nodes to wait for; fewer than that after ``wait_s`` seconds raise QuorumNotReached.
    at_once : how many requests the engine holds at a time. In memory it looks through all of them for each node, again
        and again.
    stop : once set, whoever waits for answers gets Unreachable: nobody answers when the engine is gone.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        run_id: str,
        expected: int,
        at_once: int = 256,
        wait_s: float = 120.0,
        stop: threading.Event | None = None,
    ) -> None:
        self._grid, self._run_id, self._at_once = grid, run_id, at_once
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
        name_of = {self._node_of[name]: name for name in requests if name in self._node_of}
        stranger = Failure("unreachable", "not one of this engine's nodes")
        late = Failure("deadline", f"no answer within {timeout_s:g} s")
        answers: dict[str, ReplyBody] = {name: late if name in self._node_of else stranger for name in requests}

        def take(node: int, answer: ReplyBody) -> None:
            answers[name_of[node]] = answer
            if on_reply is not None:
                on_reply(name_of[node], answer)

        self._exchange({node: requests[name] for node, name in name_of.items()}, timeout_s, take)
        return answers

    def _exchange(
        self,
        bodies: Mapping[int, RequestBody],
        timeout_s: float,
        take: Callable[[int, ReplyBody], None],
    ) -> None:
        """Send each node its request, and ``take`` (node, reply) until all have replied or the time is over."""
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
        waiting, sent, lost = set[str](), 0, list[str]()
        deadline = time.monotonic() + timeout_s
        while (waiting or sent < len(messages)) and time.monotonic() < deadline:
            if following := messages[sent : sent + self._at_once - len(waiting)]:
                waiting.update(self._grid.push_messages(following))
                sent += len(following)
            for message in self._grid.pull_messages(waiting):
                waiting.discard(message.metadata.reply_to_message_id)
                node = message.metadata.src_node_id
                if message.has_error():
                    lost.append(printable(str(message.error.reason)))
                take(node, self._body(message, request_of, node))
            self._pause()
        if lost:
            _log.warning("the engine lost %d of %d requests: %.300s", len(lost), len(messages), lost[0])

    def _pause(self) -> None:
        if self._stop.wait(_POLL_S):
            raise Unreachable("the engine has stopped; start the run again, and it goes on")

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
        descriptions: dict[int, ReplyBody] = {}
        self._exchange(dict.fromkeys(nodes[:expected], Describe()), wait_s, descriptions.__setitem__)
        for node, body in descriptions.items():
            if isinstance(body, Description):
                found[body.party] = node
            elif isinstance(body, Failure) and body.code != "unreachable":
                raise body.error()
        if not found:
            raise QuorumNotReached(f"no node answered within {wait_s:g} s; start the run again")
        return found


def _answer(message: Message, context: Context, folder: Path) -> Message:
    """The reply of the party that this node plays to one request.

    Flower may give a node's next message to another worker process. The requests of the round under way are therefore
    kept in the node's own state: a process that has not seen them handles them first, and drops these replies.
    """
    party = virtual_party(folder, int(context.node_config["partition-id"]))
    data = message.content.config_records[RECORD]["request"]
    data = data if isinstance(data, bytes) else b""
    request = Request.from_bytes(data)
    if isinstance(request.body, Ask | SecureSumStep):
        trail = _trail(context) if isinstance(request.body, SecureSumStep) else []
        for earlier in trail:
            if earlier not in _SEEN.get(party, ()):
                party.handle(Request.from_bytes(earlier))
        _SEEN[party] = [*trail, data]
        context.state.config_records[TRAIL] = ConfigRecord({"requests": _SEEN[party]})
    reply = party.handle(request)
    return Message(RecordDict({RECORD: ConfigRecord({"reply": reply.to_bytes()})}), reply_to=message)


def _trail(context: Context) -> list[bytes]:
    kept = context.state.config_records.get(TRAIL)
    requests = kept["requests"] if kept is not None else []
    return [item for item in requests if isinstance(item, bytes)] if isinstance(requests, list) else []


def apps_for(
    folder_of: Callable[[Context], Path], drive: Callable[[Grid, Context], None]
) -> tuple[ServerApp, ClientApp]:
    """A server app that runs ``drive``, and a client app that plays the parties of the folder of a context."""
    client, server = ClientApp(), ServerApp()

    @client.query("collegium")
    def _query(message: Message, context: Context) -> Message:
        return _answer(message, context, folder_of(context))

    server.main()(drive)
    return server, client
