"""Who calls at the coordinator's port, and what is noted about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import grpc
import grpc.aio

from collegium.protocol.certificates import Role, Subject, read_certificate, read_subject
from collegium.protocol.errors import IdentityError

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
