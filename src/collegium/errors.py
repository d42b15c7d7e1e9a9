"""Every error that a user can meet. Its message says what is wrong and what to do.

An error has a stable ``code``, which messages and logs carry, and an exit status for the command line. To add an
error, add a class here: nothing else lists them.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from collegium_accounting.errors import CollegiumError as CollegiumError
from collegium_accounting.errors import ConfigurationError as ConfigurationError
from collegium_accounting.errors import DataError as DataError
from collegium_accounting.errors import MissingExtra as MissingExtra
from collegium_accounting.errors import StorageError as StorageError
from collegium_accounting.errors import UnsupportedAccounting as UnsupportedAccounting


class ColumnMissing(DataError):
    """A file lacks a column that the task or the settings name."""

    code = "data-column"
    told = "its file lacks a column of the task; at the institution, collegium party check names it"


class UnfitInputs(DataError, ValueError):
    """Inputs do not fit what a student takes. scikit-learn knows it as a ValueError."""

    code = "unfit-inputs"


class CannotServe(CollegiumError):
    """A party that was welcomed went at once, because it cannot serve the consortium's task."""

    code = "cannot-serve"
    exit_status = 3
    reasons: ClassVar[Mapping[str, str]] = {
        "data-column": ColumnMissing.told,
        "configuration": "its own settings do not let it serve this task; its log says which",
        "records": "it cannot use its records; its own log says why, and collegium party check there",
    }
    """What the coordinator's operator reads, by the code that the party sent: constant texts."""


class PoolMismatch(DataError):
    """The pool that one side holds is not the pool that the other side named by its SHA-256."""

    code = "pool-mismatch"


class PoolUnfit(DataError):
    """The pool does not cover the parties' records, as the pool check counted them."""

    code = "pool-unfit"


class IdentityError(CollegiumError):
    """A certificate, key or roster entry is missing, unknown, expired or revoked."""

    code = "identity"
    exit_status = 4


class UnnamedParties(IdentityError):
    """The coordinator's roster has parties that this institution did not name, or other keys of those that it named."""

    code = "unnamed-parties"
    text: ClassVar[str] = "the institution names no such party in its party.toml, or knows another key of it: "
    """How the message begins; the names follow, between commas."""


class VersionMismatch(CollegiumError):
    """The two sides speak different versions of the wire protocol."""

    code = "version"
    exit_status = 4


class ProtocolViolation(CollegiumError):
    """A peer sent something that the wire protocol does not allow."""

    code = "protocol"
    exit_status = 5


class Unreachable(CollegiumError):
    """A peer cannot be reached."""

    code = "unreachable"
    exit_status = 5


class OtherPurpose(Unreachable):
    """One side rehearses with invented records and the other does not: they have nothing to say to each other."""

    code = "other-purpose"
    study: ClassVar[str] = "the coordinator rehearses now, with invented records: this party waits for the study itself"
    rehearsal: ClassVar[str] = "the coordinator serves a study now: this party waits for a rehearsal"


class QuorumNotReached(CollegiumError):
    """Too few parties answered before the deadline; ``outcomes`` says by name how each fared, where that is known."""

    code = "quorum"
    exit_status = 6

    def __init__(self, message: str, outcomes: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.outcomes = dict(outcomes or {})


class ReleaseLost(CollegiumError):
    """A charge was spent and nothing released under it: too few parties could be told that it is spent."""

    code = "release-lost"
    exit_status = 6


class Refused(CollegiumError):
    """The party's own policy forbids the request.

    A refusal depends on the policy, on what the party answered before and on the request, never on votes or records.
    Each kind of refusal has one constant text, so that the text tells nothing else either.
    """

    code = "refused"
    exit_status = 6


class ModeRefused(Refused):
    """The party takes no part in sums of the requested mode."""

    code = "refused-mode"
    told = "the party takes no part in sums of this mode: its policy says which (sum_modes)"


class MechanismRefused(Refused):
    """The party does not agree to the mechanism, or cannot compute the cost of its terms."""

    code = "refused-mechanism"
    told = "the party does not agree to this mechanism with these terms: its policy says which (mechanisms)"


class NoiseRefused(Refused):
    """The noise is below what the party agreed to."""

    code = "refused-noise"
    told = "the noise is less than the party agreed to: its policy says how much (minimum_noise_votes)"


class HoursRefused(Refused):
    """The party gives no answers at this hour."""

    code = "refused-hours"
    told = "the party gives no answers at this hour: its policy says when (hours_utc)"


class PoolRefused(Refused):
    """The institution did not agree to this pool: copies of an input that differ a little would be other inputs."""

    code = "refused-pool"
    told = "the party does not agree to this pool: its policy names those that it does (pools)"


class LedgerRefused(Refused):
    """The coordinator's ledger does not hold an entry that the party was shown before."""

    code = "refused-ledger"
    told = "the party was shown an entry that this ledger lacks: restore the newest copy of the ledger"


class FewPartiesRefused(Refused):
    """An exact sum of so few parties may show single parties' votes, and the institution did not agree to that."""

    code = "refused-few-parties"
    told = "the party takes no part in exact sums of so few parties: its policy may allow them (few_parties)"


class QueriesRefused(Refused):
    """The party has answered as many queries as it agreed to, or has given the one exact sum of an input."""

    code = "refused-queries"
    told = "the party has answered as much as it agreed to: see queries in its policy; an input has one exact sum"


class CostRefused(Refused):
    """The answer would cost the party or a record more than it agreed to."""

    code = "refused-cost"
    told = "the answer would cost more than the party agreed to (epsilon, record_epsilon or record_rho of its policy)"


class FittingFailed(CollegiumError):
    """A process that fits a party's teachers failed or ended early."""

    code = "fitting-failed"
    exit_status = 10


class TrainingDiverged(CollegiumError):
    """A student's training went wrong: its loss is not finite, or it ended no better than it began."""

    code = "training-diverged"
    exit_status = 10


class BudgetExceeded(CollegiumError):
    """The next charge would pass the privacy budget."""

    code = "budget"
    exit_status = 7


class LabelConflict(CollegiumError):
    """Some queries already have another label in the ledger, and keep it. ``labels`` holds the labels that count."""

    code = "label-conflict"
    exit_status = 8

    def __init__(self, message: str, labels: Mapping[str, int] | None = None) -> None:
        super().__init__(message)
        self.labels = dict(labels or {})


class Contradiction(CollegiumError):
    """Released numbers cannot be what they are said to be: an institution sent what no records give."""

    code = "contradiction"
    exit_status = 11

    @property
    def why(self) -> str:
        """What was found, without what to do."""
        return str(self).partition(": ")[0]


class LedgerCorrupt(CollegiumError):
    """A ledger fails its own checks: its chain, a signature or the database itself."""

    code = "ledger-corrupt"
    exit_status = 8


def _kinds() -> Iterator[type[CollegiumError]]:
    """All classes of errors that are loaded."""
    pending: list[type[CollegiumError]] = [CollegiumError]
    while pending:
        kind = pending.pop()
        yield kind
        pending.extend(kind.__subclasses__())


def error_for_code(code: str, message: str) -> CollegiumError:
    """An error of the class that has ``code``, or of the base class where no class has it."""
    return next((kind for kind in _kinds() if kind.code == code), CollegiumError)(message)


def known_codes() -> frozenset[str]:
    """The codes of all classes of errors."""
    return frozenset(kind.code for kind in _kinds())
