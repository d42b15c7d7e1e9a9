"""Who calls at the coordinator's port, and what is noted about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from collegium.errors import IdentityError
from collegium.protocol.certificates import Role, Subject, read_certificate, read_subject
from collegium.protocol.grpc_tls13 import grpc

Result = TypeVar("Result")

Service: TypeAlias = "grpc.GenericRpcHandler[Any, Any]"
"""Something that answers at the port."""

EventKind = Literal["connected", "disconnected", "refused", "violation"]


@dataclass(frozen=True)
class SessionEvent:
    """Something that happened to a connection. Holds nothing secret and nothing that a party computed."""

    kind: EventKind
    party: str | None
    """Whom the certificate names; None when there is no such name."""
    peer: str
    """Network address."""
    detail: str
    code: str = ""
    """Of the error, where there was one."""


OnEvent = Callable[[SessionEvent], None]


def uncancelled(reading: Coroutine[Any, Any, Result]) -> asyncio.Future[Result]:
    """A task that reads from a stream, and ends when the stream does if nobody waits for it any more.

    Not to be cancelled: gRPC would keep for ever what has arrived of the message that is being read.
    """
    work = asyncio.ensure_future(reading)
    work.add_done_callback(look_at)
    return work


def look_at(work: asyncio.Future[Any]) -> None:
    """Look at how it ended, so that asyncio does not report an end that nobody needs to know."""
    if not work.cancelled():
        work.exception()


def certified(context: grpc.aio.ServicerContext[bytes, bytes], role: Role) -> Subject:
    """Whom the peer's certificate names; TLS has verified it against the authority.

    IdentityError when it is not a certificate of this role.
    """
    chain = list(context.auth_context().get("x509_pem_cert", ()))
    if not chain:
        raise IdentityError("no certificate was shown")
    subject = read_subject(read_certificate(chain[0]))
    if subject.role != role:
        raise IdentityError(f"this is the certificate of a {subject.role}, not of a {role}")
    return subject
