"""Requests that wait for an answer, and the sessions that they are sent over. All of it lives on the server's loop."""

import asyncio
import heapq
import queue
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from collegium.errors import CollegiumError
from collegium.protocol.certificates import Subject
from collegium.protocol.messages import Request
from collegium.protocol.replies import Failure, ReplyBody
from collegium.protocol.v1 import collegium_pb2 as pb


class Posted:
    """A request to several parties. It is encoded once, when the first session sends it."""

    def __init__(self, request: Request) -> None:
        self.request = request

    @cached_property
    def data(self) -> bytes:
        return pb.FromCoordinator(request=self.request.to_proto()).SerializeToString()


@dataclass(eq=False)
class Pending:
    """A request to one party that waits for its answer."""

    party: str
    posted: Posted
    answers: queue.SimpleQueue[tuple[str, ReplyBody | None]]
    """None where a party says that it goes on computing."""
    given_up: asyncio.TimerHandle | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.party, self.posted.request.request_id)

    def keep(self) -> None:
        """Do not give it up: it is sent again, or nobody waits for its answer any more."""
        if self.given_up is not None:
            self.given_up.cancel()
            self.given_up = None


@dataclass(eq=False)
class Session:
    """One party's open stream. The outbox holds keys of pending requests, so its length is bounded by them."""

    subject: Subject
    peer: str
    replies_left: int
    notes_left: int = 0
    told_farewell: bool = False
    over: bool = False
    outbox: asyncio.Queue[tuple[str, str] | pb.RosterUpdate | CollegiumError | None] = field(
        default_factory=asyncio.Queue
    )
    """A request to send; a roster to send; an error to end with; None for the farewell."""

    def send(self, request: Pending) -> None:
        request.keep()
        self.outbox.put_nowait(request.key)


class Waiting:
    """Until when the answer of each party is waited for.

    Attributes
    ----------
    ends_s : dict
        By party that has not answered, seconds of a monotonic clock.
    """

    def __init__(self, parties: Iterable[str], end_s: float) -> None:
        self.ends_s = dict.fromkeys(parties, end_s)
        self._heap = [(-end_s, party) for party in sorted(self.ends_s)]  # also of what was put off or answered since

    def put_off(self, party: str, end_s: float) -> None:
        """Wait for this party until then."""
        self.ends_s[party] = end_s
        heapq.heappush(self._heap, (-end_s, party))

    def answered(self, party: str) -> None:
        del self.ends_s[party]

    def last_s(self) -> float:
        """When nobody is waited for any more. It takes no longer with more parties: it is asked for each answer."""
        while self.ends_s.get(self._heap[0][1]) != -self._heap[0][0]:
            heapq.heappop(self._heap)
        return -self._heap[0][0]


class Outstanding:
    """The requests that wait for an answer, by party and number."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str], Pending] = {}

    def add(self, request: Pending) -> None:
        self._requests[request.key] = request

    def find(self, key: tuple[str, str]) -> Pending | None:
        """The request, unless it was answered or given up."""
        return self._requests.get(key)

    def of(self, party: str) -> list[Pending]:
        return [request for request in self._requests.values() if request.party == party]

    def withdraw(self, requests: Iterable[Pending]) -> None:
        """Nobody waits for their answers any more."""
        for request in requests:
            self._requests.pop(request.key, None)
            request.keep()

    def answer(self, request: Pending, body: ReplyBody) -> None:
        if self._requests.get(request.key) is request:
            self.withdraw([request])
            request.answers.put((request.party, body))

    def computes(self, key: tuple[str, str]) -> None:
        """Tell whoever waits for an answer that its party goes on computing."""
        if (request := self._requests.get(key)) is not None:
            request.answers.put((request.party, None))

    def give_up_after(self, wait_s: float, request: Pending, why: str) -> None:
        """Answer for a party that is gone, unless the request is sent again before."""
        loop = asyncio.get_running_loop()
        request.given_up = loop.call_later(wait_s, self.answer, request, Failure("unreachable", why))
