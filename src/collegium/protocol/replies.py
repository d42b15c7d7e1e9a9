"""The replies of a party, as frozen values. Each is checked when it is made, as far as it can be alone."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from collegium import limits
from collegium.data.values import PoolState, check_party_name, require
from collegium.errors import CollegiumError, error_for_code
from collegium.logs import printable
from collegium.protocol.v1 import secure_sum_pb2


@dataclass(frozen=True)
class Description:
    """A party's description of itself. Nothing in it depends on a private record.

    ``ledger_head`` is the last entry of the coordinator's ledger that the party was shown, ``SEQ:HASH`` or empty;
    ``persons`` whether its institution said that what counts as one record is a person.
    """

    party: str
    software: str
    teachers: int
    teacher_kind: str
    ledger_head: str = ""
    persons: bool = False

    def __post_init__(self) -> None:
        check_party_name(self.party)
        require(len(self.ledger_head) <= 96, "a ledger's head is short")
        require(len(self.software) <= 64 and len(self.teacher_kind) <= 64, "a description's texts are short")
        require((self.software + self.teacher_kind).isprintable(), "a description's texts are plain")
        require(0 <= self.teachers <= limits.MAX_TEACHERS_PER_PARTY, "a party has at most 1,000 teachers")


@dataclass(frozen=True)
class Fitted:
    """The number of teachers that are ready. How many were fitted just now would tell that records changed."""

    teachers: int

    def __post_init__(self) -> None:
        require(0 <= self.teachers <= limits.MAX_TEACHERS_PER_PARTY, "a party has at most 1,000 teachers")


@dataclass(frozen=True)
class LedgerHead:
    """The last entry of the coordinator's ledger that the party was shown, as ``SEQ:HASH``; empty for none.

    ``signature`` is the party's own, under `witness.followed`; empty in simulations. ``agreed`` is what it agreed to.
    """

    head: str
    signature: bytes = b""
    agreed: str = field(default="[]", repr=False)

    def __post_init__(self) -> None:
        require(len(self.head) <= 96 and len(self.signature) <= 64, "a ledger's head is short")
        require(len(self.agreed) <= limits.MAX_JSON_BYTES, "what a party agreed to is a JSON text of limited length")


@dataclass(frozen=True, eq=False)
class Counts:
    """One party's answer in the clear; int64 ``[rows, entries]``. The coordinator holds it to the question's bounds."""

    counts: NDArray[np.int64] = field(repr=False)

    def __post_init__(self) -> None:
        require(self.counts.ndim == 2 and self.counts.dtype == np.int64, "counts are whole numbers [rows, entries]")
        rows, entries = self.counts.shape
        require(0 < rows <= limits.MAX_QUERIES_PER_ROUND, "a round has 1 to 100,000 queries")
        require(entries > 0 and self.counts.size <= limits.MAX_COUNTS_PER_ANSWER, "an answer is too long")


@dataclass(frozen=True)
class Prepared:
    """The answer of a round is ready to be summed."""

    round_id: str


@dataclass(frozen=True)
class SecureSumAnswer:
    """A party's reply in one phase of a secure sum."""

    message: secure_sum_pb2.SecureSumReply = field(repr=False)


@dataclass(frozen=True)
class Failure:
    """Why there is no answer: an error of the party, or of the connection to it.

    Its text is another machine's and goes into logs, records, reports and terminals: whatever controls a terminal, or
    ends a line, is replaced when it is made.
    """

    code: str
    message: str

    def __post_init__(self) -> None:
        for name in ("code", "message"):
            object.__setattr__(self, name, printable(getattr(self, name)))

    @classmethod
    def of(cls, error: CollegiumError) -> "Failure":
        """What others may be told about ``error``: its constant text if it has one, else its message."""
        return cls(error.code, (error.told or str(error))[: limits.MAX_TEXT_CHARS])

    def error(self) -> CollegiumError:
        return error_for_code(self.code, self.message)


ReplyBody = Description | PoolState | LedgerHead | Fitted | Counts | Prepared | SecureSumAnswer | Failure
