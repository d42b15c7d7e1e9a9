"""The requests of the coordinator, as frozen values. Each is checked when it is made, as far as it can be alone."""

import hashlib
import math
from dataclasses import dataclass, field

from collegium import limits
from collegium.data.task import TeacherSettings
from collegium.data.values import IDENTIFIER, ArraySpec, PoolChunk, require
from collegium.protocol.question import Question
from collegium.protocol.v1 import secure_sum_pb2


@dataclass(frozen=True)
class Describe:
    """Ask a party for its `Description`."""


@dataclass(frozen=True)
class HoldPool:
    """Ask whether the party holds the pool already."""

    pool: ArraySpec


@dataclass(frozen=True)
class Fit:
    """Ask a party to fit the teachers that it does not have yet."""

    teacher: TeacherSettings


@dataclass(frozen=True)
class ShowLedger:
    """Show a party how the ledger goes on after the entry that it was shown last.

    Parameters
    ----------
    after : that entry as ``SEQ:HASH``; empty before the first.
    digests : SHA-256 of the line of each entry since then.
    settled : the set-ups of sums that were opened and whose results are kept: nobody needs their secrets any more.
    terms : the lines of those that state terms, in their order.
    """

    after: str
    digests: tuple[bytes, ...] = field(repr=False)
    settled: tuple[bytes, ...] = field(default=(), repr=False)
    terms: tuple[bytes, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        require(len(self.after) <= 96, "a ledger's head is short")
        require(len(self.digests) <= limits.MAX_LEDGER_DIGESTS, "a ledger is shown in parts")
        require(len(self.settled) <= limits.MAX_SETTLED_SUMS, "settled sums are told in parts")
        require(all(len(digest) == 32 for digest in (*self.digests, *self.settled)), "a digest has 32 bytes")
        shown = {hashlib.sha256(line).digest() for line in self.terms}
        require(shown <= set(self.digests), "terms that are shown are entries of the ledger")


@dataclass(frozen=True)
class Ask:
    """Put a question to a party, in one round.

    In the mode ``clear`` the reply holds the counts. In the masked modes the party keeps them under the round's id,
    says that they are ready, and adds them to the secure sum of that round.
    """

    round_id: str
    question: Question

    def __post_init__(self) -> None:
        require(IDENTIFIER.fullmatch(self.round_id) is not None, "a round has an id")


@dataclass(frozen=True)
class ShowReleased:
    """Show what was released for a question, so that a party may compare its own records with it.

    Parameters
    ----------
    round_id : in which the question was asked.
    kind : of the question.
    counts : the noisy counts; public.
    noise_variance : of each count.
    """

    round_id: str
    kind: str
    counts: tuple[float, ...] = field(repr=False)
    noise_variance: float

    def __post_init__(self) -> None:
        require(IDENTIFIER.fullmatch(self.round_id) is not None, "a round has an id")
        require(IDENTIFIER.fullmatch(self.kind) is not None, "a kind of question has a name")
        require(0 < len(self.counts) <= limits.MAX_SUM_LENGTH, f"a sum has 1 to {limits.MAX_SUM_LENGTH} entries")
        require(all(map(math.isfinite, (self.noise_variance, *self.counts))), "counts are finite numbers")
        require(self.noise_variance >= 0.0, "a variance is at least 0")


@dataclass(frozen=True)
class SecureSumStep:
    """One phase of a secure sum. `secure_sum.messages` checks its content."""

    message: secure_sum_pb2.SecureSumRequest = field(repr=False)


RequestBody = Describe | HoldPool | PoolChunk | ShowLedger | Fit | Ask | ShowReleased | SecureSumStep
