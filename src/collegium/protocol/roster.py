"""The roster: the parties that the consortium admits, and the signing key of each.

The roster names a party's Ed25519 key, so that its certificate can be renewed without a change of the roster. A stolen
certificate is revoked by its fingerprint. A party that leaves is no longer ``admitted``.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from collegium.data.task import PARTY_NAME
from collegium.errors import IdentityError
from collegium.limits import MAX_PARTIES, MAX_RECORDS_PER_PARTY
from collegium.protocol.certificates import Subject, read_certificate, read_subject, verify_issued
from collegium.protocol.question import about_all_records, own_kinds
from collegium.settings import Frozen, first_mistake
from collegium.whole_files import read_whole, replacing
from collegium_accounting.mechanisms import mechanism_named

Hex32 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
PartyName = Annotated[str, Field(pattern=rf"^{PARTY_NAME.pattern}$")]


class AnnouncedCounts(Frozen):
    """The mechanism of counts of records, and its noise in units of the largest contribution of one record."""

    sum_mode: str = Field(max_length=64)
    mechanism: str = Field(max_length=64)
    noise: float = Field(gt=0)


class AnnouncedLimits(Frozen):
    """What the consortium promises, and what its questions may cost as a party's own account counts them.

    The limits are those of what is planned, and of its costliest release once more.
    """

    unit: Literal["record", "party"] = "record"
    epsilon: float = Field(gt=0)
    """What was promised to a unit."""
    delta: float = Field(gt=0, lt=1)
    record_epsilon: float = Field(default=0.0, ge=0)
    """Most that sums, counts and votes may cost a record; nothing where it is left out."""
    party_epsilon: float | None = Field(default=None, gt=0)
    """Most that they may cost the party as a whole, where its own account is charged."""
    record_rho: float | None = Field(default=None, gt=0)
    """What records near public inputs may spend, where they vote."""

    @model_validator(mode="after")
    def _limits_its_unit(self) -> "AnnouncedLimits":
        if self.unit == "party" and self.party_epsilon is None and self.record_rho is None:
            raise ValueError("nothing limits what is promised to a party")
        return self

    def policy(self) -> dict[str, float]:
        """The settings of a policy that allows this much."""
        limits = {"record_epsilon": self.record_epsilon, "epsilon": self.party_epsilon, "record_rho": self.record_rho}
        return {"delta": self.delta, **{name: value for name, value in limits.items() if value is not None}}


class AnnouncedTerms(Frozen):
    """What the consortium is going to ask. The party writes it into its policy, and later refuses anything weaker."""

    sum_mode: str = Field(max_length=64)
    mechanism: str = Field(max_length=64)
    noise_votes: float = Field(gt=0)
    """The smallest noise of any stage, in votes."""
    pools: tuple[Hex32, ...] = Field(max_length=16)
    """SHA-256 of the public pool whose inputs are asked about."""
    answers: int = Field(ge=1)
    """How many answers one party gives in total: those that are planned, and one release more."""
    limits: AnnouncedLimits
    counts: tuple[AnnouncedCounts, ...] = Field(default=(), max_length=4)
    """How parties measure the student on their own records, and say how well the pool covers these, where they do."""
    questions: tuple[str, ...] = Field(default=(), max_length=16)
    """Kinds of questions from other packages that are asked."""
    most_records: int = Field(default=MAX_RECORDS_PER_PARTY, ge=1, le=MAX_RECORDS_PER_PARTY)
    """The cap on the records of one party."""

    def policy(self) -> dict[str, Any]:
        """The settings of a policy that agrees to this and to nothing weaker; never to sums in the clear."""
        modes, mechanisms = [self.sum_mode if self.sum_mode != "clear" else "masked"], [self.mechanism]
        of_sums = about_all_records(mechanism_named(self.mechanism))
        floors = {"minimum_noise_sums" if of_sums else "minimum_noise_votes": self.noise_votes}
        for counted in self.counts:
            modes += [counted.sum_mode] if counted.sum_mode not in (*modes, "clear") else []
            mechanisms += [counted.mechanism] if counted.mechanism not in mechanisms else []
            floors["minimum_noise_sums"] = min(counted.noise, floors.get("minimum_noise_sums", counted.noise))
        pools = list(self.pools)
        settings = {"sum_modes": modes, "mechanisms": mechanisms, "pools": pools, **floors, "queries": self.answers}
        settings |= self.limits.policy()
        return settings | ({"questions": [*own_kinds(), *self.questions]} if self.questions else {})


class RosterEntry(Frozen):
    """The roster's entry for one party."""

    signing_key: Hex32
    """Ed25519 public key."""
    admitted: bool = True
    revoked_certificates: tuple[Hex32, ...] = ()
    """SHA-256 fingerprints."""
    certificate_pem: str | None = Field(default=None, max_length=8192)
    """The certificate that proves, to anybody who trusts the authority, that name and key belong together."""


class Roster(Frozen):
    """The parties of a consortium by name."""

    version: Literal[1] = 1
    consortium: str = Field(min_length=1, max_length=128)
    parties: dict[PartyName, RosterEntry] = Field(max_length=MAX_PARTIES)

    @classmethod
    def of(cls, consortium: str, signing_keys: Mapping[str, bytes]) -> "Roster":
        """A roster that admits these parties; ``signing_keys`` are Ed25519 public keys by name."""
        entries = {name: RosterEntry(signing_key=key.hex()) for name, key in sorted(signing_keys.items())}
        return cls(consortium=consortium, parties=entries)

    @classmethod
    def load(cls, path: Path) -> "Roster":
        """Read a roster file. Raises StorageError or IdentityError if it cannot be used."""
        try:
            return cls.model_validate_json(read_whole(path))
        except ValidationError as error:
            raise IdentityError(f"the roster {path} is not valid: {first_mistake(error)}") from error

    def require_certified(self, authority_pem: bytes) -> None:
        """IdentityError unless this authority certified every admitted party, by this name, with this key."""
        authority = read_certificate(authority_pem)
        for name in self.admitted():
            entry = self.parties[name]
            if entry.certificate_pem is None:
                raise IdentityError(f"the roster shows no certificate of {name}")
            certificate = read_certificate(entry.certificate_pem.encode())
            verify_issued(certificate, authority)
            subject = read_subject(certificate)
            if (subject.name, subject.role, subject.signing_key.hex()) != (name, "party", entry.signing_key):
                raise IdentityError(f"the roster's entry for {name} is not what its certificate says")

    def save(self, path: Path) -> None:
        with replacing(path, "write the roster") as beside:
            beside.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    def only(self, names: Collection[str]) -> "Roster":
        """The part of this roster that is about these parties."""
        parties = {name: entry for name, entry in self.parties.items() if name in names}
        return self.model_copy(update={"parties": parties})

    def remembering(self, earlier: "Roster") -> "Roster":
        """This roster plus the parties that only ``earlier`` has, no longer admitted: their keys stay known."""
        gone = {
            name: entry.model_copy(update={"admitted": False})
            for name, entry in earlier.parties.items()
            if name not in self.parties
        }
        return self.model_copy(update={"parties": {**gone, **self.parties}})

    def admit(self, subject: Subject) -> None:
        """IdentityError unless the roster admits the holder of this certificate."""
        entry = self.parties.get(subject.name)
        if entry is None:
            raise IdentityError(f"{subject.name} is not on the roster of {self.consortium}: ask to be admitted")
        if not entry.admitted:
            raise IdentityError(f"{subject.name} is no longer admitted to {self.consortium}")
        if entry.signing_key != subject.signing_key.hex():
            raise IdentityError(f"{subject.name} is on the roster with another signing key: enrol it again")
        if subject.fingerprint in entry.revoked_certificates:
            raise IdentityError(f"this certificate of {subject.name} was revoked: ask for a new one")

    @property
    def digest(self) -> str:
        """80 bits over the consortium's name and every admitted party's name and key, for people to compare.

        To show two institutions two rosters with the same digest, somebody has to try 2^80 keys.
        """
        keys = {name: key.hex() for name, key in self.signing_keys().items()}
        text = json.dumps(["collegium/v1/roster", self.consortium, keys], sort_keys=True)
        digits = hashlib.sha256(text.encode()).hexdigest()[:20]
        return "-".join(digits[start : start + 4] for start in range(0, 20, 4))

    def admitted(self) -> list[str]:
        """Names of the admitted parties, sorted."""
        return sorted(name for name, entry in self.parties.items() if entry.admitted)

    def signing_keys(self) -> dict[str, bytes]:
        """Ed25519 public key of each admitted party, by name."""
        return {name: bytes.fromhex(self.parties[name].signing_key) for name in self.admitted()}
