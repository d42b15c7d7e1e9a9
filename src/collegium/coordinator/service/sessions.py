"""The parties over gRPC: each has one session, and a request is delivered even if a connection breaks meanwhile.

Everything about sessions happens on one asyncio loop in a thread of its own (`PartyServicer`); `GrpcParties`
is the synchronous face that rounds call from other threads.
"""

import logging
import math
import queue
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from collegium.coordinator.rounds.rounds import OnReply
from collegium.coordinator.service.outstanding import Pending, Posted, Waiting
from collegium.coordinator.service.party_servicer import PartyServicer, SessionLimits
from collegium.coordinator.service.peer_events import OnEvent, SessionEvent
from collegium.data.task import Task
from collegium.errors import QuorumNotReached, StorageError
from collegium.latest import Latest
from collegium.logs import event as named
from collegium.protocol.channels import require_tls13, server_credentials, split_address
from collegium.protocol.identities import Credentials
from collegium.protocol.loop_thread import LoopThread
from collegium.protocol.messages import Request
from collegium.protocol.replies import Failure, ReplyBody
from collegium.protocol.requests import RequestBody
from collegium.protocol.roster import Roster

logger = logging.getLogger("collegium.sessions")

MOST_TIMEOUTS = 12
"""So many times as long as for an answer a party is waited for that says that it goes on computing."""


class EventLog:
    """Writes events to the log ``collegium.sessions``; the same one again only after ten minutes.

    So a scanner that knocks all day fills neither the disk nor the memory.
    """

    QUIET_S = 600.0
    REMEMBERED = 1024

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_at_s: Latest[tuple[str, str | None, str], float] = Latest(self.REMEMBERED)

    def __call__(self, event: SessionEvent) -> None:
        told = named(event.kind, party=event.party, peer=event.peer, detail=event.detail, code=event.code)
        if event.kind in ("connected", "disconnected"):
            logger.info("%s %s: %s", event.party, event.kind, event.detail, extra=told)
            return
        same = (event.kind, event.party, event.detail)
        now_s = self._clock()
        if now_s - self._said_at_s.of(same, lambda: -math.inf) < self.QUIET_S:
            return
        self._said_at_s[same] = now_s
        who = event.party or "somebody"
        logger.warning("%s: %s at %s: %s", event.kind, who, event.peer, event.detail, extra=told)


class GrpcParties:
    """The parties that dialled in (a `Parties`), behind mutual TLS 1.3.

    Parameters
    ----------
    credentials
        The coordinator's own identity.
    renewed
        Its identity as it is now; see `server_credentials`.
    roster
        Whom to admit; `replace_roster` changes it while running.
    task
        Sent to every party on arrival.
    run_id
        Goes with every request.
    on_event
        Called on the server's thread, so it must be quick, for every connection, disconnection,
        refusal and breach of the protocol; `EventLog` by default.
    session_limits
        Timeouts; see `SessionLimits`.
    rehearsal
        Whether parties that rehearse are admitted, and no others.

    Attributes
    ----------
    traffic
        Bytes of the messages to and from each party.
    """

    def __init__(  # noqa: PLR0913 -- what a server is given once, by name
        self,
        *,
        credentials: Credentials,
        renewed: Callable[[], Credentials] | None = None,
        roster: Roster,
        task: Task,
        run_id: str,
        on_event: OnEvent | None = None,
        session_limits: SessionLimits = SessionLimits(),  # noqa: B008 -- frozen
        rehearsal: bool = False,
    ) -> None:
        self._credentials, self._run_id = server_credentials(credentials, renewed), run_id
        self._servicer = PartyServicer(roster, task, on_event or EventLog(), session_limits, rehearsal=rehearsal)
        self.traffic = self._servicer.traffic
        self._thread = LoopThread("sessions")
        self._server: Any = None

    def start(self, address: str) -> int:
        """Listen at ``host:port`` (port 0 takes a free one) and return the port.

        StorageError when the port cannot be had; ConfigurationError when it would accept TLS 1.2.
        """
        host, _ = split_address(address)
        self._thread.start()
        try:
            self._server, port = self._thread.run(self._servicer.listen(address, self._credentials))
        except (RuntimeError, OSError) as error:
            self.close()
            raise StorageError(f"cannot listen at {address}: in use, or not an address of this machine") from error
        try:
            require_tls13({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)
        except BaseException:
            self.close()
            raise
        return port

    def names(self) -> list[str]:
        """Parties that are connected now, sorted."""
        with self._servicer.changed:
            return sorted(self._servicer.present)

    def wait_for(self, wanted: Collection[str], *, timeout_s: float) -> list[str]:
        """Wait until these parties are connected; return who is.

        QuorumNotReached, naming the missing ones, when ``timeout_s`` passes first.
        """
        servicer = self._servicer
        with servicer.changed:
            servicer.changed.wait_for(lambda: servicer.present.issuperset(wanted), timeout_s)
            present = sorted(servicer.present)
        if missing := sorted(set(wanted) - set(present)):
            shown = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
            raise QuorumNotReached(f"not connected within {timeout_s:g} s: {shown}; start them")
        return present

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        """Send each party its request; see `Parties.ask`.

        A party that loses its connection is asked again, under the same request id, when it comes back
        within ``SessionLimits.reconnect_grace_s``. One that says that it goes on computing is waited for ``timeout_s``
        from then on, `MOST_TIMEOUTS` times as long in all. ``on_reply`` is called on the caller's thread.
        May be called from several threads at once.
        """
        began = time.monotonic()
        waiting = Waiting(requests, began + timeout_s)
        answers: queue.SimpleQueue[tuple[str, ReplyBody | None]] = queue.SimpleQueue()
        request_id = secrets.token_hex(16)
        posted: dict[int, Posted] = {}
        pending: list[Pending] = []
        for name, body in requests.items():
            shared = posted.setdefault(id(body), Posted(Request(request_id, self._run_id, body)))
            pending.append(Pending(name, shared, answers))
        replies: dict[str, ReplyBody] = {}
        self._thread.call(self._servicer.post, pending)
        try:
            while waiting.ends_s:
                try:
                    name, reply = answers.get(timeout=max(0.0, waiting.last_s() - time.monotonic()))
                except queue.Empty:
                    break
                if reply is None:
                    if waiting.ends_s[name] == began + timeout_s:
                        told = named("computing", party=name)
                        logger.info("%s: it is computing, and is waited for", name, extra=told)
                    most_s = began + MOST_TIMEOUTS * timeout_s
                    waiting.put_off(name, min(time.monotonic() + timeout_s, most_s))
                    continue
                waiting.answered(name)
                held = None if on_reply is None else on_reply(name, reply)
                replies[name] = reply if held is None else held
        finally:
            self._thread.call_if_running(self._servicer.requests.withdraw, pending)
        present = set(self.names())
        for name in requests:
            if name not in replies:
                replies[name] = (
                    Failure("deadline", f"no answer within {timeout_s:g} s")
                    if name in present
                    else Failure("unreachable", "its connection is lost")
                )
        return replies

    def replace_roster(self, newest: Callable[[], Roster]) -> None:
        """Admit by the ``newest`` roster from now on; who is no longer on it is cut off.

        It is called when the change is made: of two changes at the same time neither puts an older roster back.
        """
        self._thread.run(self._servicer.replace_roster(newest))

    def announce(self, roster: Roster) -> None:
        """Give every party, those that come later too, the roster of the rounds from now on.

        Between rounds alone: parties refuse a sum over another roster than theirs.
        """
        self._thread.run(self._servicer.announce(roster))

    def farewell(self, reason: str, *, timeout_s: float = 10.0) -> None:
        """Tell every party, those that come back later too, that the run is over."""
        self._thread.run(self._servicer.farewell(reason, timeout_s))

    def welcome_again(self) -> None:
        """Hold whoever comes from now on, after a farewell: parties that stay wait on their connections."""
        self._thread.run(self._servicer.welcome_again())

    def close(self) -> None:
        """Stop listening and cut every session; parties come back later unless they were told farewell."""
        self._thread.close(self._stop_server)

    async def _stop_server(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=None)
            self._server = None

    def __enter__(self) -> "GrpcParties":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["EventLog", "GrpcParties", "OnEvent", "SessionEvent", "SessionLimits"]
