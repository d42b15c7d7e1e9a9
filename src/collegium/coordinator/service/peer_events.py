"""What happens to connections at the coordinator's port, and how a task reads from one."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Result = TypeVar("Result")

EventKind = Literal["connected", "disconnected", "refused", "violation"]


@dataclass(frozen=True)
class SessionEvent:
    """Something that happened to a connection. Holds nothing secret and nothing that a party computed."""

    kind: EventKind
    party: str | None
    """The name in the certificate; None where there is none."""
    peer: str
    """The network address."""
    detail: str
    code: str = ""
    """The code of the error, if there was one."""


OnEvent = Callable[[SessionEvent], None]


def uncancelled(reading: Coroutine[Any, Any, Result]) -> asyncio.Future[Result]:
    """A task that reads from a stream and ends with the stream, even if nobody waits for it any more.

    It must not be cancelled: gRPC would then keep the received part of the present message for ever.
    """
    work = asyncio.ensure_future(reading)
    work.add_done_callback(look_at)
    return work


def look_at(work: asyncio.Future[Any]) -> None:
    """Read the result of a finished task, so that asyncio does not report an exception that nobody reads."""
    if not work.cancelled():
        work.exception()
