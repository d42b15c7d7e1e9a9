"""How a party without a certificate asks for one: join codes, messages, TLS pinned by a fingerprint.

Each connection carries one exchange over TLS 1.3: one line of JSON to the coordinator, one line back. A party asks
twice. First it asks for the authority's certificate, over a connection whose certificate is not checked: the answer is
public, and the fingerprint that the party was given shows whether it is right. Then the party asks to be enrolled,
over a connection whose certificate that authority issued, so that nobody else receives the join code.
"""

import getpass
import hashlib
import hmac
import secrets
import socket
import ssl
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from pydantic import Field, TypeAdapter, ValidationError

from collegium.data.task import Task
from collegium.errors import (
    CollegiumError,
    ConfigurationError,
    IdentityError,
    ProtocolViolation,
    StorageError,
    Unreachable,
    error_for_code,
)
from collegium.limits import MAX_JSON_BYTES, MAX_PARTIES, MAX_ROSTER_BYTES, MAX_TEXT_CHARS
from collegium.protocol.certificates import read_certificate, read_subject
from collegium.protocol.channels import split_address
from collegium.protocol.identities import AUTHORITY, CERTIFICATE, TLS_KEY, create_identity
from collegium.protocol.roster import AnnouncedTerms
from collegium.settings import Frozen
from collegium.whole_files import make_folder

EXCHANGE_S = 10.0
"""How long one exchange may take, with its handshake."""
MAX_ASK_BYTES = 32 * 1024
MAX_ANSWER_BYTES = MAX_ROSTER_BYTES + 4 * MAX_JSON_BYTES

_CODE_PURPOSE = b"collegium/v1/join-code/"
_CODE_DIGITS = 32


class AskAuthority(Frozen):
    """Ask for the certificate of the authority that issues certificates here."""

    ask: Literal["authority"] = "authority"


class AskEnrolment(Frozen):
    """Ask for a certificate of these keys. ``code`` is empty when a known party renews the certificate of its keys."""

    ask: Literal["enrol"] = "enrol"
    name: str = Field(max_length=64)
    code: str = Field(max_length=128)
    request_pem: str = Field(max_length=16 * 1024)


class AuthorityIs(Frozen):
    """The answer to `AskAuthority`."""

    authority_pem: str


class Enrolled(Frozen):
    """The answer to `AskEnrolment`."""

    certificate_pem: str
    roster_json: str
    expected: tuple[str, ...] = Field(default=(), max_length=MAX_PARTIES)
    """Names of the parties that are enrolled or may still enrol."""
    terms: AnnouncedTerms
    tasks: tuple[Task, ...] = ()
    """What the consortium means to learn, which the party keeps."""
    sessions: str
    """The ``host:port`` where parties open their sessions."""


class Declined(Frozen):
    """The answer to either request where it fails: the code and the message of an error."""

    error: str
    message: str


Answer = TypeVar("Answer", AuthorityIs, Enrolled)

_ASK: TypeAdapter[AskAuthority | AskEnrolment] = TypeAdapter(
    Annotated[AskAuthority | AskEnrolment, Field(discriminator="ask")]
)


def new_code() -> str:
    """A join code of 128 random bits, in groups of four hexadecimal digits."""
    digits = secrets.token_hex(_CODE_DIGITS // 2)
    return "-".join(digits[start : start + 4] for start in range(0, _CODE_DIGITS, 4))


def code_digest(name: str, code: str) -> str:
    """SHA-256 of name and join code, hexadecimal: all that is kept of a code. 128 random bits need no slow hash."""
    digits = "".join(code.lower().replace("-", "").split())
    return hashlib.sha256(_CODE_PURPOSE + name.encode() + b"\x00" + digits.encode()).hexdigest()


def given_code(code: str, code_file: str | None) -> str:
    """The join code from the option, from a file, or typed by the user (``-`` as the file).

    Raises StorageError if the file cannot be read, and ConfigurationError if both options are given.
    """
    if code_file is None:
        return code
    if code:
        raise ConfigurationError("give the join code or a file that holds it, not both")
    if code_file == "-":
        return getpass.getpass("join code: ")
    try:
        return Path(code_file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"cannot read a join code from {code_file}: {error}") from error


def is_code(name: str, code: str, digest: str) -> bool:
    """Whether ``digest`` was made of this code. The comparison takes the same time for every code."""
    return hmac.compare_digest(code_digest(name, code), digest)


def server_context(folder: Path) -> ssl.SSLContext:
    """TLS 1.3 for a server with the certificate in ``folder``. Its clients show no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    load_chain(context, folder)
    return context


def load_chain(context: ssl.SSLContext, folder: Path) -> None:
    """Use the certificate in ``folder`` from the next connection on."""
    context.load_cert_chain(folder / CERTIFICATE, folder / TLS_KEY)


def read_ask(line: bytes) -> AskAuthority | AskEnrolment:
    """The request in a line of JSON. Raises ProtocolViolation for anything else."""
    try:
        return _ASK.validate_json(line)
    except ValidationError as error:
        raise ProtocolViolation("not a request for enrolment: install the same version of Collegium") from error


def fetch_authority(address: str, fingerprint: str) -> bytes:
    """The authority's certificate, PEM. Raises IdentityError if it does not have that fingerprint."""
    wanted = "".join(fingerprint.lower().replace(":", "").split())
    if len(wanted) != 64 or set(wanted) - set("0123456789abcdef"):
        raise ConfigurationError("a fingerprint has 64 hexadecimal digits: copy it from the consortium's own line")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    pem = _exchange(address, context, AskAuthority(), AuthorityIs).authority_pem.encode()
    found = read_certificate(pem).fingerprint(hashes.SHA256()).hex()
    if not hmac.compare_digest(found, wanted):
        raise IdentityError(
            f"the authority at {address} has the fingerprint {found}, not the one given: check both with the "
            "consortium, by telephone; nothing was sent"
        )
    return pem


def request_certificate(address: str, name: str, code: str, fingerprint: str, folder: Path) -> tuple[Enrolled, bytes]:
    """Make the keys that ``folder`` lacks and have them certified. Returns the answer and the authority's PEM.

    The authority at ``address`` is checked against the fingerprint, and the coordinator against the authority,
    before the code is sent. The caller checks the answer; `install_certificate` then writes it into the folder.

    Raises
    ------
    IdentityError
        Wrong fingerprint, name or code; expired code; revoked keys; a folder of another consortium or name.
    ConfigurationError, ProtocolViolation, StorageError, Unreachable
    """
    authority_pem = fetch_authority(address, fingerprint)
    held = folder / AUTHORITY
    if held.exists() and read_certificate(held.read_bytes()) != read_certificate(authority_pem):
        raise IdentityError(f"{folder} holds the keys for another consortium: choose another folder")
    make_folder(folder.parent, mode=0o700)
    request_pem = create_identity(folder, name, "party").decode()
    context = ssl.create_default_context(cadata=authority_pem.decode("ascii"))
    ask = AskEnrolment(name=name, code=code, request_pem=request_pem)
    return _exchange(address, context, ask, Enrolled), authority_pem


def _exchange(address: str, context: ssl.SSLContext, ask: AskAuthority | AskEnrolment, kind: type[Answer]) -> Answer:
    host, port = split_address(address)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        with (
            socket.create_connection((host, port), EXCHANGE_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            if context.verify_mode is ssl.CERT_REQUIRED:
                _require_coordinator(secured)
            secured.sendall(ask.model_dump_json().encode() + b"\n")
            with secured.makefile("rb") as reader:
                line = reader.readline(MAX_ANSWER_BYTES + 1)
    except ssl.SSLCertVerificationError as error:
        raise IdentityError(
            f"what listens at {address} is not this consortium's coordinator: {error.verify_message}; check the address"
        ) from error
    except ssl.SSLError as error:
        raise ProtocolViolation(f"no TLS 1.3 at {address}: {error.reason or error}; check the address") from error
    except OSError as error:
        raise Unreachable(f"cannot reach the enrolment at {address}: {error.strerror or error}") from error
    return _read_answer(address, line, kind)


def _require_coordinator(secured: ssl.SSLSocket) -> None:
    """A party's certificate comes from the same authority, and parties must not get each other's codes."""
    shown = secured.getpeercert(binary_form=True)
    assert shown is not None
    if read_subject(x509.load_der_x509_certificate(shown)).role != "coordinator":
        raise IdentityError("what listens there is a party, not the coordinator: check the address")


def _read_answer(address: str, line: bytes, kind: type[Answer]) -> Answer:
    if not line.endswith(b"\n"):
        raise ProtocolViolation(f"the enrolment at {address} gave no whole answer: check the address, or try again")
    either: Any = kind | Declined
    try:
        answer: Answer | Declined = TypeAdapter(either).validate_json(line)
    except ValidationError as error:
        raise ProtocolViolation(f"what answers at {address} is no enrolment: check the address") from error
    if isinstance(answer, Declined):
        raise error_for_code(answer.error, answer.message[:MAX_TEXT_CHARS])
    return answer


def answer_line(answer: AuthorityIs | Enrolled | CollegiumError) -> bytes:
    """The line that carries an answer."""
    if isinstance(answer, CollegiumError):
        return Declined(error=answer.code, message=str(answer)[:MAX_TEXT_CHARS]).model_dump_json().encode() + b"\n"
    return answer.model_dump_json().encode() + b"\n"
