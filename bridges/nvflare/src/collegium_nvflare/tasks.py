"""The three tasks that the controller gives to a site, and what each carries.

A site joins (its signing request for a certificate), is admitted (certificate, authority, roster), and answers
requests. A request and its reply are the bytes of our own protocol. A reply of any task may be a failure.
"""

from nvflare.apis.shareable import Shareable

from collegium.errors import CannotServe, CollegiumError, IdentityError, ProtocolViolation
from collegium.limits import MAX_ROSTER_BYTES
from collegium.protocol.replies import Failure

JOIN, ADMIT, REQUEST = "collegium_join", "collegium_admit", "collegium_request"
SIGNING_REQUEST, CERTIFICATE, AUTHORITY, ROSTER = "signing_request", "certificate", "authority", "roster"
DIGEST = "digest"
DATA, REPLY = "data", "reply"
_ERROR, _TEXT = "collegium_error", "collegium_text"


def carrying(**content: str | bytes) -> Shareable:
    """A Shareable with this content."""
    shareable = Shareable()
    shareable.update(content)
    return shareable


def failed(error: Exception) -> Shareable:
    """What a site says that could not do a task: a code and a constant text, for the error's own may quote a record."""
    code = error.code if isinstance(error, CollegiumError) else ""
    if isinstance(error, ProtocolViolation):
        return carrying(**{_ERROR: code, _TEXT: str(error)})
    if isinstance(error, IdentityError):
        return carrying(**{_ERROR: code, _TEXT: "it accepts neither its certificate nor its issuer: its log says why"})
    reasons = CannotServe.reasons
    return carrying(**{_ERROR: CannotServe.code, _TEXT: reasons.get(code, reasons["records"])})


def failure_in(shareable: Shareable) -> Failure | None:
    """The failure that a site reported, or that NVFlare reports of it; None where there is none."""
    if (code := shareable.get(_ERROR)) is not None:
        return Failure(str(code)[:64], str(shareable.get(_TEXT, ""))[:1000])
    returned = shareable.get_return_code()
    if returned != "OK":
        return Failure("unreachable", f"NVFlare returned {str(returned)[:64]}: the site's log says why")
    return None


def text_in(shareable: Shareable, name: str) -> str:
    """A text of limited length; ProtocolViolation where the other side sent none."""
    value = shareable.get(name)
    if not isinstance(value, str) or len(value) > MAX_ROSTER_BYTES:
        raise ProtocolViolation(f"a task without {name}: update collegium-nvflare")
    return value


def bytes_in(shareable: Shareable, name: str) -> bytes:
    """Bytes; ProtocolViolation where the other side sent none."""
    value = shareable.get(name)
    if not isinstance(value, bytes):
        raise ProtocolViolation(f"a task without {name}: update collegium-nvflare")
    return value
