"""The requests of the coordinator, as frozen values. Each is checked when it is made, as far as it can be alone."""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from collegium import limits
from collegium.data.coverage import CoverageSpec
from collegium.data.features import Features
from collegium.data.kernels import KernelSpec
from collegium.data.task import TeacherSettings
from collegium.data.values import IDENTIFIER, SHA256, ArraySpec, PoolChunk, require
from collegium.privacy.evaluation_cells import Layout
from collegium.protocol.v1 import secure_sum_pb2
from collegium_accounting.mechanisms.base import WHOLE_MECHANISM, Mechanism
from collegium_accounting.mechanisms.registry import from_numbers
from collegium_accounting.multilabel import RESOLUTION
from collegium_accounting.noise.distributed import NoiseShare

KERNELS = ("flat", "quadratic")
"""The names of the functions from distance to weight; see `weight_units`."""


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
    """

    after: str
    digests: tuple[bytes, ...] = field(repr=False)

    def __post_init__(self) -> None:
        require(len(self.after) <= 96, "a ledger's head is short")
        require(len(self.digests) <= limits.MAX_LEDGER_DIGESTS, "a ledger is shown in parts")
        require(all(len(digest) == 32 for digest in self.digests), "a digest has 32 bytes")


@dataclass(frozen=True)
class Terms:
    """What will be done with the votes. The party's policy decides on the basis of these terms.

    Parameters
    ----------
    mechanism : its registered name.
    parameters : all of its parameters, by name.
    adjacency : under which the coordinator accounts for it.
    sum_mode : how the votes are added up.
    stage : the stage of the mechanism that the sum serves; empty where one sum serves all of them.
    """

    mechanism: str
    parameters: Mapping[str, float]
    adjacency: str = "replace"
    sum_mode: str = "clear"
    stage: str = WHOLE_MECHANISM

    def __post_init__(self) -> None:
        require(IDENTIFIER.fullmatch(self.mechanism) is not None, "a mechanism has a name")
        require(len(self.parameters) <= 32, "a mechanism has at most 32 parameters")
        require(all(math.isfinite(value) for value in self.parameters.values()), "parameters are finite numbers")
        require(self.adjacency in ("replace", "add-remove"), "adjacency is replace or add-remove")
        require(self.sum_mode in ("clear", "masked", "masked+noised"), f"unknown sum mode {self.sum_mode[:32]!r}")
        require(len(self.stage) <= 64, "the name of a stage is short")

    @classmethod
    def of(cls, mechanism: Mechanism, sum_mode: str, stage: str = WHOLE_MECHANISM) -> "Terms":
        """The terms under which parties are asked to answer for ``mechanism``."""
        return cls(mechanism.name, mechanism.numbers(), mechanism.adjacencies[0].value, sum_mode, stage)

    def described(self) -> Mechanism:
        """The mechanism that the terms describe, from which check, charge and noise of an answer follow.

        Raises ConfigurationError for an unknown mechanism and for a wrong, missing or surplus parameter.
        """
        return from_numbers(self.mechanism, self.parameters)

    def share(self) -> NoiseShare | None:
        """The noise that each party adds to the sum; None where the coordinator adds the noise."""
        return self.described().stages_asked(self.stage)[0].share


@dataclass(frozen=True)
class PoolRange:
    """Inputs of a pool, named by their positions."""

    pool_sha256: str
    indices: tuple[int, ...]

    def __post_init__(self) -> None:
        require(SHA256.fullmatch(self.pool_sha256) is not None, "a pool is named by 64 hexadecimal digits")
        require(0 < len(self.indices) <= limits.MAX_QUERIES_PER_ROUND, "a round has 1 to 100,000 queries")


@dataclass(frozen=True)
class CastVotes:
    """Ask for the votes of the party's teachers on some inputs.

    Parameters
    ----------
    ledger_id : the ledger, and the study, under which the labels are released.
    """

    terms: Terms
    teacher: TeacherSettings
    inputs: PoolRange
    round_id: str
    ledger_id: str

    def __post_init__(self) -> None:
        require(IDENTIFIER.fullmatch(self.round_id) is not None, "a round has an id")
        require(IDENTIFIER.fullmatch(self.ledger_id) is not None, "a ledger has an id")

    @property
    def highest(self) -> int:
        """The largest entry of one party's answer; public."""
        return min(self.teacher.per_party, limits.MAX_TEACHERS_PER_PARTY)


@dataclass(frozen=True)
class CastNeighbours:
    """Ask for the classes of the party's records within a radius of some inputs of a pool.

    Parameters
    ----------
    terms : with the parameters ``sigma`` (noise on each entry of the sum), ``levels`` (what the largest weight
        counts in an entry) and ``participations`` (full-weight votes that one record may cast in the run).
    features : made from public data alone, like the radii.
    radii_squared : one per input, in the units of the features.
    kernel : how a record's weight falls with its distance; see `weight_units`.
    ledger_id : the ledger, and the study, under which the labels are released.
    per_party : whether all records of the party are one voter with one budget, which protects the party as a whole.
    """

    terms: Terms
    features: Features
    inputs: PoolRange
    radii_squared: tuple[int, ...]
    kernel: str
    round_id: str
    ledger_id: str
    per_party: bool = False

    def __post_init__(self) -> None:
        require(IDENTIFIER.fullmatch(self.round_id) is not None, "a round has an id")
        require(IDENTIFIER.fullmatch(self.ledger_id) is not None, "a ledger has an id")
        require(self.kernel in KERNELS, f"a kernel is one of {', '.join(KERNELS)}")
        require(len(self.radii_squared) == len(self.inputs.indices), "every query has its radius")
        require(len(set(self.inputs.indices)) == len(self.inputs.indices), "a round asks an input once")
        require(
            all(0 <= radius <= limits.MAX_RADIUS_SQUARED for radius in self.radii_squared),
            f"a squared radius lies between 0 and {limits.MAX_RADIUS_SQUARED}",
        )

    @property
    def highest(self) -> int:
        """The largest entry of one party's answer; public."""
        return limits.MAX_NEIGHBOUR_COUNT


@dataclass(frozen=True, eq=False)
class CountNearest:
    """Ask how many records of a sample lie between some distances of inputs of a pool.

    Parameters
    ----------
    terms : with the parameters ``k``, at which counts stop, and ``sampling_rate``; ``tau`` where records hold several
        labels. Each stage has a sample of its own.
    features : made from public data alone, like the edges.
    edges_squared : int64 ``[queries, edges]``, ascending in each row; interval i holds the squared distances
        from edge i − 1 on and below edge i.
    by_class : with two edges: count the classes in the first two intervals in place of the intervals; where records
        hold several labels, add up their clipped votes (`multilabel.clipped_votes`).
    ledger_id : the ledger, and the study, under which the labels are released; part of what names a sample.
    """

    terms: Terms
    features: Features
    inputs: PoolRange
    edges_squared: NDArray[np.int64] = field(repr=False)
    by_class: bool
    round_id: str
    ledger_id: str

    def __post_init__(self) -> None:
        require(IDENTIFIER.fullmatch(self.round_id) is not None, "a round has an id")
        require(IDENTIFIER.fullmatch(self.ledger_id) is not None, "a ledger has an id")
        require(len(set(self.inputs.indices)) == len(self.inputs.indices), "a round asks an input once")
        edges = self.edges_squared
        require(edges.ndim == 2 and edges.dtype == np.int64, "edges are whole numbers per query")
        require(len(edges) == len(self.inputs.indices), "every query has its edges")
        require(0 < edges.shape[1] < limits.MAX_CLASSES, f"a query has 1 to {limits.MAX_CLASSES - 1} edges")
        require(not self.by_class or edges.shape[1] == 2, "classes are counted below and between two edges")
        require(
            int(edges.min()) >= 0 and int(edges.max()) <= limits.MAX_RADIUS_SQUARED,
            f"an edge lies between 0 and {limits.MAX_RADIUS_SQUARED}",
        )
        require(bool((np.diff(edges, axis=1) >= 0).all()), "edges are ascending")
        k = self.terms.parameters.get("k", 0.0)
        require(k == int(k) and 0 < k <= limits.MAX_NEIGHBOUR_COUNT, "k is a positive whole number in the terms")
        require(0 < self.terms.parameters.get("sampling_rate", 0.0) <= 1, "the sampling rate lies in (0, 1]")
        if self.tau is not None:
            require(0 < self.tau < math.inf, "tau is a positive number")
            require(k * RESOLUTION <= limits.MAX_NEIGHBOUR_COUNT, "k is too large for clipped votes")

    @property
    def k(self) -> int:
        """The number of neighbours that vote."""
        return int(self.terms.parameters["k"])

    @property
    def tau(self) -> float | None:
        """The L1 bound of a record's vote if a record has several labels. Sums by class then count parts of a vote."""
        return self.terms.parameters.get("tau")

    @property
    def highest(self) -> int:
        """The largest entry of one party's answer; public. No more than k records of one class can be neighbours."""
        return self.k * (RESOLUTION if self.by_class and self.tau is not None else 1)

    def width(self, classes: int) -> int:
        """The number of entries per query in an answer."""
        return 2 * classes if self.by_class else self.edges_squared.shape[1] + 1


def weight_units(
    distances_squared: NDArray[np.int64], radius_squared: int, kernel: str, levels: int
) -> NDArray[np.int64]:
    """Weights of records in units of 1/``levels``, from 0 to ``levels``: 0 outside the radius.

    ``flat`` weighs 1 inside; ``quadratic`` weighs 1 − d²/r², rounded up to the next unit. All values are whole
    numbers. A record's weight is therefore the same in whatever batches it is computed, and depends only on the
    record itself and on public data.
    """
    inside = distances_squared <= radius_squared
    if kernel == "flat":
        return np.multiply(inside, levels, dtype=np.int64)
    clipped = np.minimum(distances_squared, radius_squared)
    units = levels - (clipped * levels) // max(radius_squared, 1)
    units *= inside
    return units


@dataclass(frozen=True)
class SumRecords(ABC):
    """Ask for one vector of whole numbers: what all of the party's records add up to.

    Derive a class for each kind of sum. The mechanism of the terms says what the sum costs one record, or the party;
    an answer is counted as one query and charged before it leaves.

    Parameters
    ----------
    ledger_id : the ledger under which the noisy sum is released and, where the coordinator adds the noise, the entry in
        it that pays: a release that is paid anew is another answer.
    per_party : whether the answer protects the party as a whole, and costs it what the mechanism charges, in place of
        each of its records.
    """

    terms: Terms
    round_id: str
    ledger_id: str
    per_party: bool

    def __post_init__(self) -> None:
        require(IDENTIFIER.fullmatch(self.round_id) is not None, "a round has an id")
        require(IDENTIFIER.fullmatch(self.ledger_id) is not None, "a ledger has an id")
        require(1 <= self.length <= limits.MAX_SUM_LENGTH, f"a sum has 1 to {limits.MAX_SUM_LENGTH} entries")

    @property
    @abstractmethod
    def length(self) -> int:
        """The entries of the vector."""

    @property
    @abstractmethod
    def question(self) -> bytes:
        """What is asked of the records, whatever the terms: 32 bytes. Another question is another answer."""

    @property
    def highest(self) -> int:
        """The largest size of an entry of one party's answer; public. Larger ones are cut off there."""
        return limits.MAX_SUM_ENTRY


@dataclass(frozen=True)
class SumClasses(SumRecords):
    """Ask for the class sums of the party's records (`mechanisms.class_sums`), ``[classes, dimensions]``, and a count.

    Parameters
    ----------
    terms : with the parameter ``classes``.
    kernel : the public map; its landmarks are inputs of the pool ``pool_sha256``.
    per_party : the party then sends one vector of the length of one contribution, in place of the sum of its records'
        contributions.
    number : which of the sums that the terms name (``rounds``) this is, from 1 on.
    """

    kernel: KernelSpec
    pool_sha256: str
    number: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(SHA256.fullmatch(self.pool_sha256) is not None, "a pool is named by 64 hexadecimal digits")
        require(1 <= self.number <= self.terms.parameters.get("rounds", 1.0), "the terms name so many class sums")

    @property
    def classes(self) -> int:
        """The number of classes of the task, as the terms have it."""
        classes = self.terms.parameters.get("classes", 0.0)
        require(classes == int(classes) and 2 <= classes <= limits.MAX_CLASSES, "the terms name the number of classes")
        return int(classes)

    @property
    def length(self) -> int:
        return self.classes * self.kernel.dimensions + 1

    @property
    def question(self) -> bytes:
        asked = [self.kernel.digest(), self.pool_sha256, self.classes, self.per_party, self.number]
        return hashlib.sha256(f"collegium-class-sums-v3|{asked}".encode()).digest()


@dataclass(frozen=True)
class CountRecords(SumRecords):
    """Ask how many of the party's records lie in each of some cells (`mechanisms.record_counts`).

    Derive a class for each kind of cells.

    Parameters
    ----------
    terms : with the parameters ``parts`` and ``cells``, which must be those of the cells that are asked for.
    per_party : the party then sends shares of its records.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        found = self.terms.parameters
        true = found.get("parts") == self.parts and found.get("cells") == self.length
        require(true, "the terms count the cells that are asked for")

    @property
    @abstractmethod
    def parts(self) -> int:
        """The cells that one record adds to."""


@dataclass(frozen=True)
class Evaluate(CountRecords):
    """Ask for the counts of an evaluation of classifiers on the party's records (`evaluation_cells`).

    Parameters
    ----------
    students : the classifiers' safetensors files.
    number_of_classes : of the task.
    """

    students: tuple[bytes, ...] = field(repr=False)
    number_of_classes: int

    def __post_init__(self) -> None:
        most = limits.MAX_CANDIDATES
        require(1 <= len(self.students) <= most, f"an evaluation is of 1 to {most} classifiers")
        require(2 <= self.number_of_classes <= limits.MAX_CLASSES, "a task has a number of classes")
        files = sum(map(len, self.students))
        require(files <= limits.MAX_EVALUATION_BYTES, f"classifiers have at most {limits.MAX_EVALUATION_BYTES} bytes")
        super().__post_init__()

    @property
    def parts(self) -> int:
        return len(self.students) * Layout(self.number_of_classes).parts

    @property
    def length(self) -> int:
        return len(self.students) * Layout(self.number_of_classes).length

    @property
    def question(self) -> bytes:
        files = "|".join(hashlib.sha256(student).hexdigest() for student in self.students)
        asked = f"collegium-evaluation-v1|{self.number_of_classes}|{self.per_party}|{files}"
        return hashlib.sha256(asked.encode()).digest()


@dataclass(frozen=True)
class CountCoverage(CountRecords):
    """Ask how well a pool covers the party's records (`data.coverage`).

    Parameters
    ----------
    coverage : the public cells; its landmarks are inputs of the pool ``pool_sha256``.
    """

    coverage: CoverageSpec
    pool_sha256: str

    def __post_init__(self) -> None:
        super().__post_init__()
        require(SHA256.fullmatch(self.pool_sha256) is not None, "a pool is named by 64 hexadecimal digits")

    @property
    def parts(self) -> int:
        return 1

    @property
    def length(self) -> int:
        return self.coverage.cells

    @property
    def question(self) -> bytes:
        asked = f"collegium-coverage-v1|{self.coverage.digest()}|{self.pool_sha256}|{self.per_party}"
        return hashlib.sha256(asked.encode()).digest()


@dataclass(frozen=True)
class ShowEvaluation:
    """Show what an evaluation came to, so that a party may compare its own records with it.

    Parameters
    ----------
    round_id : of the evaluation.
    counts : the noisy counts of the first classifier, in records; public.
    noise_variance : of each count, in records².
    """

    round_id: str
    counts: tuple[float, ...] = field(repr=False)
    noise_variance: float

    def __post_init__(self) -> None:
        require(IDENTIFIER.fullmatch(self.round_id) is not None, "a round has an id")
        require(0 < len(self.counts) <= limits.MAX_SUM_LENGTH, f"a sum has 1 to {limits.MAX_SUM_LENGTH} entries")
        require(all(map(math.isfinite, (self.noise_variance, *self.counts))), "counts are finite numbers")
        require(self.noise_variance >= 0.0, "a variance is at least 0")


VoteRequest = CastVotes | CastNeighbours | CountNearest | SumRecords
"""The requests that parties answer with counts or sums, which a round adds up."""


def lowest(request: VoteRequest) -> int:
    """The smallest entry of one party's answer; public."""
    return -request.highest if isinstance(request, SumRecords) else 0


@dataclass(frozen=True)
class SecureSumStep:
    """One phase of a secure sum. `secure_sum.messages` checks its content."""

    message: secure_sum_pb2.SecureSumRequest = field(repr=False)


RequestBody = Describe | HoldPool | PoolChunk | ShowLedger | Fit | VoteRequest | ShowEvaluation | SecureSumStep
