"""Who may join the consortium, who has, and who has left: pure values, and the file that holds them.

`members.json` is the operator's own (mode 0600): it holds digests of join codes, never a code. `roster.json` is made
from it and may be shown to anybody.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from pydantic import Field, ValidationError

from collegium.errors import IdentityError, StorageError
from collegium.limits import MAX_PARTIES
from collegium.protocol.certificates import (
    Authority,
    is_for,
    read_certificate,
    read_request,
    read_subject,
)
from collegium.protocol.enrolment import AskEnrolment, code_digest, is_code
from collegium.protocol.roster import Hex32, PartyName, Roster, RosterEntry
from collegium.settings import Frozen
from collegium.whole_files import exclusive, read_whole, storing, write_whole

WRONG_ATTEMPTS = 10
"""So many wrong codes for one name, and its code is void."""

_NOT_KNOWN = "the name or the join code is wrong, or the code was used already: ask the consortium for a new code"

_NOT_SIGNED = "the request is here, and the consortium signs it by hand: run the same line again later, without code"
RENEW_BEFORE = timedelta(days=30)
"""A certificate with less than this left is made anew."""

Result = TypeVar("Result")


class JoinCode(Frozen):
    """A code that was given out and not used yet."""

    digest: Hex32
    expires_utc: datetime
    wrong_attempts: int = 0


class Member(Frozen):
    """One party as the operator sees it."""

    code: JoinCode | None = None
    request_pem: str | None = None
    """Its signing request, where the authority is kept apart and has not signed it yet."""
    certificate_pem: str | None = None
    """The newest certificate of the signing key that it is known by."""
    left: bool = False
    """Revoked, and not enrolled again since."""
    revoked_keys: tuple[Hex32, ...] = ()
    """Ed25519 keys that are never certified again."""

    @property
    def signing_key(self) -> str | None:
        if self.certificate_pem is None:
            return None
        return read_subject(read_certificate(self.certificate_pem.encode())).signing_key.hex()

    @property
    def enrolled(self) -> bool:
        return self.certificate_pem is not None and not self.left

    @property
    def expected(self) -> bool:
        """Enrolled, or may still enrol."""
        return self.enrolled or self.code is not None or self.request_pem is not None

    @property
    def membership(self) -> str:
        """``enrolled``, ``expected`` or ``left``."""
        return "enrolled" if self.enrolled else "expected" if self.expected else "left"


class Members(Frozen):
    """The consortium's membership."""

    version: Literal[1] = 1
    consortium: str
    members: dict[PartyName, Member] = Field(default_factory=dict, max_length=MAX_PARTIES)
    """The parties."""

    def with_member(self, name: str, member: Member) -> "Members":
        return self.model_copy(update={"members": {**self.members, name: member}})

    def with_code(self, name: str, code: str, now: datetime, hours: float) -> "Members":
        """Let ``name`` enrol by this code, in place of any earlier code."""
        fresh = JoinCode(digest=code_digest(name, code), expires_utc=now + timedelta(hours=hours))
        return self.with_member(name, self.members.get(name, Member()).model_copy(update={"code": fresh}))

    def without(self, name: str) -> "Members":
        """Revoke a party: its keys are never certified again. IdentityError when nobody has the name."""
        if name not in self.members:
            raise IdentityError(f"nobody is called {name}; there are {', '.join(sorted(self.members)) or 'none'}")
        member = self.members[name]
        gone = (member.signing_key,) if member.signing_key else ()
        revoked = tuple(dict.fromkeys(member.revoked_keys + gone))
        update = {"code": None, "request_pem": None, "left": True, "revoked_keys": revoked}
        return self.with_member(name, member.model_copy(update=update))

    def certified(self, certificate_pem: str) -> "Members":
        """Enrol a party by what the authority issued; IdentityError where nobody asked for it."""
        subject = read_subject(read_certificate(certificate_pem.encode()))
        member = self.members.get(subject.name, Member())
        asked = None if member.request_pem is None else read_request(member.request_pem.encode())
        if asked != (subject.name, subject.role, subject.signing_key):
            raise IdentityError(f"nobody asked for the certificate of {subject.role} {subject.name} that is here")
        return self.with_member(subject.name, _enrolled(member, certificate_pem, subject.signing_key.hex()))

    def expected(self) -> list[str]:
        """Names of parties that are enrolled or may still enrol, sorted."""
        return sorted(name for name, member in self.members.items() if member.expected)

    def roster(self) -> Roster:
        """The parties, as everybody may know them."""
        entries = {
            name: RosterEntry(
                signing_key=member.signing_key, admitted=member.enrolled, certificate_pem=member.certificate_pem
            )
            for name, member in sorted(self.members.items())
            if member.signing_key is not None
        }
        return Roster(consortium=self.consortium, parties=entries)


class Decision(NamedTuple):
    """What becomes of a request to be enrolled.

    Parameters
    ----------
    members : as they are after it.
    answer : a certificate, PEM, or the reason why there is none.
    """

    members: Members
    answer: bytes | IdentityError


def decide(members: Members, authority: Authority, ask: AskEnrolment, *, days: int, now: datetime) -> Decision:
    """Enrol a party by its code, or renew the certificate of one that shows the keys it is known by.

    A request proves possession of its keys. A renewal needs no code for that reason, and keys that were revoked
    are never certified again: their old request would serve whoever stole them.
    """
    name, request_pem = ask.name, ask.request_pem.encode()
    try:
        asked, role, key = read_request(request_pem)
    except IdentityError as error:
        return Decision(members, error)
    if (asked, role) != (name, "party"):
        return Decision(members, IdentityError(f"the signing request is not for the party {name[:64]!r}"))
    member = members.members.get(name, Member())
    if member.enrolled and member.signing_key == key.hex():
        return _certify(members, authority, member, request_pem, days=days, now=now)
    if member.request_pem is not None and read_request(member.request_pem.encode())[2] == key:
        return Decision(members, IdentityError(_NOT_SIGNED))
    # Compared in any case, so that the answer to an unknown name takes as long.
    held = member.code or JoinCode(digest="0" * 64, expires_utc=now)
    if not is_code(name, ask.code, held.digest):
        return Decision(_note_wrong(members, name, member), IdentityError(_NOT_KNOWN))
    if now > held.expires_utc:
        expired = f"the join code of {name} expired on {held.expires_utc.date()}: ask the consortium for a new one"
        return Decision(members, IdentityError(expired))
    others = {other.signing_key for known, other in members.members.items() if known != name}
    if key.hex() in member.revoked_keys or key.hex() in others:
        spent = "these keys were revoked or are another's: enrol in a new folder, which makes new ones"
        return Decision(members, IdentityError(spent))
    return _certify(members, authority, member, request_pem, days=days, now=now)


def _certify(
    members: Members, authority: Authority, member: Member, request_pem: bytes, *, days: int, now: datetime
) -> Decision:
    """Issue a certificate; where the authority is kept apart, give what it has signed, or keep the request for it."""
    name, role, key = read_request(request_pem)
    if authority.key is not None:
        certificate = authority.issue(request_pem, name=name, role=role, days=days, now=now)
        enrolled = _enrolled(member, certificate.decode(), key.hex())
        return Decision(members.with_member(name, enrolled), certificate)
    held = None if member.certificate_pem is None else read_certificate(member.certificate_pem.encode())
    fits = held is not None and member.enrolled and is_for(held, request_pem)
    if held is None or not fits or held.not_valid_after_utc - now < RENEW_BEFORE:
        kept = member.model_copy(update={"code": None, "request_pem": request_pem.decode()})
        members = members.with_member(name, kept)
    if fits and member.certificate_pem is not None:
        return Decision(members, member.certificate_pem.encode())
    return Decision(members, IdentityError(_NOT_SIGNED))


def _enrolled(member: Member, certificate_pem: str, key: str) -> Member:
    """The member with this certificate; another key that it had before is revoked."""
    gone = (member.signing_key,) if member.signing_key not in (None, key) else ()
    revoked = tuple(dict.fromkeys(member.revoked_keys + gone))
    update = {"code": None, "request_pem": None, "certificate_pem": certificate_pem, "left": False}
    return member.model_copy(update={**update, "revoked_keys": revoked})


def _note_wrong(members: Members, name: str, member: Member) -> Members:
    if member.code is None:
        return members
    wrong = member.code.wrong_attempts + 1
    code = None if wrong >= WRONG_ATTEMPTS else member.code.model_copy(update={"wrong_attempts": wrong})
    return members.with_member(name, member.model_copy(update={"code": code}))


class MembersFile:
    """`members.json` and `roster.json` of a consortium's folder; every change is one locked step."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path, self.roster_path = folder, folder / "members.json", folder / "roster.json"

    def read(self) -> Members:
        """StorageError when there is none, or it is no such file."""
        try:
            return Members.model_validate_json(read_whole(self.path, "; run collegium provision first"))
        except ValidationError as error:
            raise StorageError(f"{self.path} is damaged: restore it from a copy") from error

    def stamp(self) -> tuple[int, int]:
        """Changes when the file does."""
        with storing(f"read {self.path}"):
            state = self.path.stat()
        return state.st_mtime_ns, state.st_ino

    def change(self, step: Callable[[Members], tuple[Members, Result]], *, first: Members | None = None) -> Result:
        """Replace the members by what ``step`` makes of them, and return what else it says.

        ``first`` is what there is where there is no file yet.
        """
        with exclusive(self.folder / ".members.lock"):
            exists = self.path.exists()
            before = first if first is not None and not exists else self.read()
            after, result = step(before)
            if after != before or not exists:
                self._write(after)
            return result

    def _write(self, members: Members) -> None:
        write_whole(self.path, members.model_dump_json(indent=1) + "\n", mode=0o600)
        members.roster().save(self.roster_path)
