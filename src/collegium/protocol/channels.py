"""gRPC as both sides use it: mutual TLS 1.3, limits and keepalive, waiting times, errors to status codes and back."""

import contextlib
import ipaddress
import resource
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from collegium import limits
from collegium.errors import (
    CollegiumError,
    ConfigurationError,
    IdentityError,
    ProtocolViolation,
    Unreachable,
    VersionMismatch,
    error_for_code,
)
from collegium.protocol.certificates import Role, Subject, read_certificate, read_subject
from collegium.protocol.grpc_tls13 import grpc
from collegium.protocol.identities import Credentials
from collegium.protocol.v1 import collegium_pb2 as pb
from collegium.version import SOFTWARE

SERVICE = "collegium.v1.Consortium"
ATTEND = f"/{SERVICE}/Attend"
ERROR_CODE_KEY = "collegium-error"
"""The key of the trailing metadata with our error code. Several codes share one gRPC status."""

KEEPALIVE_S, KEEPALIVE_TIMEOUT_S = 30, 20
HANDSHAKE_TIMEOUT_S = 10
CONNECT_TIMEOUT_S = 20

_TLS_HANDSHAKE = b"\x16"

Options = list[tuple[str, Any]]

_MARGIN_BYTES = 64 * 1024
"""gRPC receives a little more than is allowed, so that we can refuse a message that is slightly too long with a named
error. For longer ones gRPC itself ends the stream, as if the connection were lost, as soon as it knows the length."""

_SHARED_OPTIONS: Options = [
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.keepalive_time_ms", KEEPALIVE_S * 1000),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_S * 1000),
    ("grpc.http2.max_pings_without_data", 0),
]

_SERVER_OPTIONS: Options = [
    *_SHARED_OPTIONS,
    ("grpc.max_receive_message_length", limits.MAX_REPLY_BYTES + _MARGIN_BYTES),
    ("grpc.max_send_message_length", limits.MAX_MESSAGE_BYTES),
    # What a peer may send before anybody reads it does not grow: 64 KiB a stream.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 4),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_S * 1000),
    ("grpc.max_connection_idle_ms", 3 * HANDSHAKE_TIMEOUT_S * 1000),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_S * 500),
]

MIN_CONNECTIONS = 2048
"""The smallest limit on connections to a coordinator, whatever the size of its roster."""
OTHER_FILES = 256
"""Files that a coordinator needs for everything else: its ledger, logs, enrolment, the status page."""


def server_options(parties: int) -> Options:
    """Options of a coordinator that expects so many parties.

    At most twice as many connections are accepted, or as many as this process may open, so that neither memory nor
    files run out. The limit on open files is raised as far as the system allows.
    """
    wanted = max(MIN_CONNECTIONS, 2 * parties)
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed < wanted + OTHER_FILES:
        allowed = wanted + OTHER_FILES if most == resource.RLIM_INFINITY else min(most, wanted + OTHER_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    connections = min(wanted, max(1, allowed - OTHER_FILES))
    return [*_SERVER_OPTIONS, ("grpc.max_allowed_incoming_connections", connections)]


STATUS_OF_CODE: dict[str, grpc.StatusCode] = {
    "configuration": grpc.StatusCode.FAILED_PRECONDITION,
    "data": grpc.StatusCode.FAILED_PRECONDITION,
    "pool-mismatch": grpc.StatusCode.DATA_LOSS,
    "identity": grpc.StatusCode.UNAUTHENTICATED,
    "version": grpc.StatusCode.FAILED_PRECONDITION,
    "protocol": grpc.StatusCode.INVALID_ARGUMENT,
    "unreachable": grpc.StatusCode.UNAVAILABLE,
    "quorum": grpc.StatusCode.ABORTED,
    "refused": grpc.StatusCode.PERMISSION_DENIED,
    "budget": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "unsupported-accounting": grpc.StatusCode.FAILED_PRECONDITION,
    "ledger-corrupt": grpc.StatusCode.DATA_LOSS,
    "storage": grpc.StatusCode.INTERNAL,
}
"""The gRPC status of each error code. An error without an entry has the status of its base class, else UNKNOWN."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[ipv6]:port``. Raises ConfigurationError for anything else."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(f"{address!r} is not an address: write host:port, as in coordinator.example.org:7443")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether a connection to ``host`` stays on this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def channel_options(address: str) -> Options:
    """Options of a party's channel: a connection of its own, and no proxy to this machine itself."""
    proxy = int(not is_loopback(split_address(address)[0]))
    return [
        *_SHARED_OPTIONS,
        ("grpc.max_receive_message_length", limits.MAX_MESSAGE_BYTES + _MARGIN_BYTES),
        ("grpc.max_send_message_length", limits.MAX_REPLY_BYTES),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", proxy),
    ]


def server_credentials(
    credentials: Credentials, renewed: Callable[[], Credentials] | None = None
) -> grpc.ServerCredentials:
    """Credentials of a server with this identity; a peer must show a certificate of the same authority.

    ``renewed`` is called at every handshake, on gRPC's threads. It returns the present credentials, the same object
    while nothing has changed, and never raises. Open connections stay open.
    """
    served = credentials

    def fetch() -> Any:
        nonlocal served
        current = served if renewed is None else renewed()
        if current is served:
            return None
        served = current
        return _shown(current)

    return grpc.dynamic_ssl_server_credentials(_shown(credentials), fetch, require_client_authentication=True)


def _shown(credentials: Credentials) -> Any:
    return grpc.ssl_server_certificate_configuration(
        [(credentials.tls_key_pem, credentials.certificate_pem)], root_certificates=credentials.authority_pem
    )


def channel_credentials(credentials: Credentials) -> grpc.ChannelCredentials:
    """Credentials of a client with this identity; the server must have a certificate of that authority for its host."""
    return grpc.ssl_channel_credentials(credentials.authority_pem, credentials.tls_key_pem, credentials.certificate_pem)


def certified(context: "grpc.aio.ServicerContext[bytes, bytes]", role: Role) -> Subject:
    """The holder of the peer's certificate, which TLS has checked against the authority.

    Raises IdentityError if it is not a certificate of this role.
    """
    chain = list(context.auth_context().get("x509_pem_cert", ()))
    if not chain:
        raise IdentityError("no certificate was shown")
    subject = read_subject(read_certificate(chain[0]))
    if subject.role != role:
        raise IdentityError(f"this is the certificate of a {subject.role}, not of a {role}")
    return subject


def refusal(error: CollegiumError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
    """The gRPC status, text and trailing metadata that tell the peer of an error."""
    codes = [kind.code for kind in type(error).__mro__ if issubclass(kind, CollegiumError)]
    status = next((STATUS_OF_CODE[code] for code in codes if code in STATUS_OF_CODE), grpc.StatusCode.UNKNOWN)
    return status, str(error)[: limits.MAX_TEXT_CHARS], ((ERROR_CODE_KEY, error.code),)


def error_of(status: grpc.StatusCode, details: str | None, metadata: Iterable[Any] | None) -> CollegiumError:
    """The error that a peer sent by `refusal`, or what gRPC itself reports about the connection."""
    text = (details or "")[: limits.MAX_TEXT_CHARS]
    for key, value in metadata or ():
        if key == ERROR_CODE_KEY and isinstance(value, str):
            return error_for_code(value, text)
    if status is grpc.StatusCode.UNIMPLEMENTED:
        return VersionMismatch("the coordinator does not know this protocol: install the same version on both sides")
    return Unreachable(f"the connection failed: {text or status.name}")


def require_version(said: pb.Hello | pb.Welcome, speaker: str, reader: str) -> None:
    """Raise VersionMismatch, which names both versions, unless ``speaker`` speaks the protocol of ``reader``."""
    if said.protocol_version != limits.PROTOCOL_VERSION:
        plain = 0 < len(said.software) <= 64 and said.software.isprintable()
        raise VersionMismatch(
            f"{speaker} ({said.software if plain else 'an unknown version'}) speaks version {said.protocol_version} of "
            f"the protocol, {reader} ({SOFTWARE}) {limits.PROTOCOL_VERSION}: install the same version of Collegium on "
            "both sides"
        )


def patience(then: Callable[[], object]) -> threading.Timer:
    """A timer, running, that calls ``then`` where nobody cancels it within the time that a connection may take."""
    timer = threading.Timer(CONNECT_TIMEOUT_S, then)
    timer.daemon = True
    timer.start()
    return timer


def require_tls13(host: str, port: int) -> None:
    """Raise ConfigurationError if the TLS server on this port accepts anything older than TLS 1.3."""
    if _first_byte_to_tls12(host, port) == _TLS_HANDSHAKE:
        raise ConfigurationError(
            "gRPC was loaded by other code first and would accept TLS 1.2: import collegium.protocol.channels before "
            "it, or start with GRPC_SSL_CIPHER_SUITES=ECDHE-RSA-AES256-GCM-SHA384 in the environment"
        )


def _first_byte_to_tls12(host: str, port: int) -> bytes:
    """The first byte of a server's answer to a ClientHello of TLS 1.2; no byte where it closes the connection.

    It is that of a handshake record if the server accepts TLS 1.2, else of an alert. The handshake ends there,
    because without a client's certificate it would fail in either case.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(received, sent).do_handshake()
    try:
        with socket.create_connection((host, port), CONNECT_TIMEOUT_S) as plain:
            plain.sendall(sent.read())
            return plain.recv(1)
    except ConnectionError:
        return b""


def explain_failure(address: str, credentials: Credentials) -> CollegiumError:
    """Find out why a connection failed, which gRPC does not say, by one TLS 1.3 handshake of our own.

    The result is an IdentityError if the server's certificate is of another authority, expired or for another host, a
    ProtocolViolation if the server does not accept TLS 1.3, and Unreachable otherwise.
    """
    host, port = split_address(address)
    context = ssl.create_default_context(cadata=credentials.authority_pem.decode("ascii"))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host, port), CONNECT_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return Unreachable(f"the coordinator at {address} closed the connection")
    except ssl.SSLCertVerificationError as error:
        return IdentityError(
            f"the coordinator at {address} is not the one of this consortium: {error.verify_message}; check the "
            "address, and that authority.pem is the consortium's"
        )
    except ssl.SSLEOFError:  # a proxy whose coordinator is down does this; TLS itself was not refused
        return Unreachable(f"the connection to the coordinator at {address} was closed during the handshake")
    except ssl.SSLError as error:
        return ProtocolViolation(f"no TLS 1.3 at {address}: {error.reason or error}; check the address")
    except OSError as error:
        return Unreachable(f"cannot reach the coordinator at {address}: {error.strerror or error}")


@dataclass(frozen=True)
class Backoff:
    """Waiting times between attempts. They double, with random jitter, so that not all callers come back together."""

    first_s: float = 0.5
    longest_s: float = 30.0

    def delay_s(self, failures: int, uniform: Callable[[float, float], float]) -> float:
        """Seconds to wait before the next attempt, after ``failures`` failed attempts in a row (at least 1)."""
        ceiling: float = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 32))
        return uniform(ceiling / 2, ceiling)
