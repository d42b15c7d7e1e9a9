"""The replies of a party, as frozen values. Each is checked when it is made, as far as it can be alone."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium import limits
from collegium.data.values import PoolState, check_party_name, require
from collegium.errors import CollegiumError, error_for_code
from collegium.protocol.v1 import secure_sum_pb2


@dataclass(frozen=True)
class Description:
    """A party's description of itself. Nothing in it depends on a private record.

    ``ledger_head`` is the last entry of the coordinator's ledger that the party was shown, ``SEQ:HASH`` or empty.
    """

    party: str
    software: str
    teachers: int
    teacher_kind: str
    ledger_head: str = ""

    def __post_init__(self) -> None:
        check_party_name(self.party)
        require(len(self.ledger_head) <= 96, "a ledger's head is short")
        require(len(self.software) <= 64 and len(self.teacher_kind) <= 64, "a description's texts are short")
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

    ``signature`` is the party's own, under `chain.followed`; empty in simulations.
    """

    head: str
    signature: bytes = b""

    def __post_init__(self) -> None:
        require(len(self.head) <= 96 and len(self.signature) <= 64, "a ledger's head is short")


@dataclass(frozen=True, eq=False)
class _Counts:
    """Counts of one party per query and class, or per query and interval of distances; int64 ``[queries, classes]``."""

    counts: NDArray[np.int64] = field(repr=False)
    most: ClassVar[int]

    def __post_init__(self) -> None:
        require(self.counts.ndim == 2 and self.counts.dtype == np.int64, "counts are whole numbers [queries, classes]")
        queries, classes = self.counts.shape
        require(0 < queries <= limits.MAX_QUERIES_PER_ROUND, "a round has 1 to 100,000 queries")
        require(0 < classes <= limits.MAX_CLASSES, "at most 1,000 classes")
        lowest, highest = int(self.counts.min()), int(self.counts.max())
        require(lowest >= 0 and highest <= self.most, f"counts are 0 to {self.most}")


@dataclass(frozen=True, eq=False)
class Votes(_Counts):
    """The votes of one party's teachers per query and class.

    Every row sums to the number of teachers. The coordinator checks that with `check_votes`.
    """

    most = limits.MAX_TEACHERS_PER_PARTY


@dataclass(frozen=True, eq=False)
class Neighbours(_Counts):
    """Sums of one party's records per query and class, or per query and interval of distances."""

    most = limits.MAX_NEIGHBOUR_COUNT


@dataclass(frozen=True, eq=False)
class Sums:
    """The sum over one party's records; int64 ``[1, length]``."""

    counts: NDArray[np.int64] = field(repr=False)

    def __post_init__(self) -> None:
        require(self.counts.ndim == 2 and self.counts.dtype == np.int64, "sums are whole numbers [1, length]")
        require(len(self.counts) == 1 and 0 < self.counts.size <= limits.MAX_SUM_LENGTH, "an answer is one vector")
        highest = limits.MAX_SUM_ENTRY
        require(-highest <= int(self.counts.min()) <= int(self.counts.max()) <= highest, "an entry is too large")


@dataclass(frozen=True)
class Prepared:
    """The votes of a round are ready to be summed."""

    round_id: str


@dataclass(frozen=True)
class SecureSumAnswer:
    """A party's reply in one phase of a secure sum."""

    message: secure_sum_pb2.SecureSumReply = field(repr=False)


@dataclass(frozen=True)
class Failure:
    """Why there is no answer: an error of the party, or of the connection to it."""

    code: str
    message: str

    @classmethod
    def of(cls, error: CollegiumError) -> "Failure":
        """What others may be told about ``error``: its constant text if it has one, else its message."""
        return cls(error.code, (error.told or str(error))[: limits.MAX_TEXT_CHARS])

    def error(self) -> CollegiumError:
        return error_for_code(self.code, self.message)


ReplyBody = (
    Description | PoolState | LedgerHead | Fitted | Votes | Neighbours | Sums | Prepared | SecureSumAnswer | Failure
)


def check_votes(votes: Votes, *, queries: int, classes: int, teachers: int) -> None:
    """Raise ProtocolViolation unless every one of ``queries`` rows holds ``teachers`` votes over ``classes``."""
    require(votes.counts.shape == (queries, classes), f"votes of shape {votes.counts.shape}, not {(queries, classes)}")
    require(bool((votes.counts.sum(axis=1) == teachers).all()), f"a row of votes does not sum to {teachers} teachers")
