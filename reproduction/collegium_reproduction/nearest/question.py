"""Asks how many records of a sample lie between some distances of inputs of a pool: Private-kNN over many parties."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium import limits
from collegium.data.values import require
from collegium.models.features import Features
from collegium.protocol.question import ONE_RECORD, Cost, PoolRange, Question, register
from collegium_reproduction.clipped_votes import RESOLUTION
from collegium_reproduction.nearest import multilabel_knn  # noqa: F401  its mechanism is asked with as well
from collegium_reproduction.nearest.knn import SampledMechanism


@register
@dataclass(frozen=True, eq=False)
class CountNearest(Question):
    """Ask for the classes of a sample of the party's records, interval by interval of distance from some inputs.

    Parameters
    ----------
    terms : with the parameters ``k``, at which counts stop, and ``sampling_rate``; ``tau`` where records hold several
        labels. Each stage has a sample of its own.
    features : made from public data alone, like the edges.
    inputs : the queries, each once.
    classes : of the task.
    edges_squared : int64 ``[queries, edges]``, ascending in each row; interval i holds the squared distances
        from edge i − 1 on and below edge i.
    """

    kind: ClassVar[str] = "nearest-records"
    serves: ClassVar[type] = SampledMechanism
    per_stage: ClassVar[bool] = True
    several_sums: ClassVar[bool] = True
    per_row: ClassVar[tuple[str, ...]] = ("inputs", "edges_squared")

    features: Features
    inputs: PoolRange
    classes: int
    edges_squared: NDArray[np.int64] = field(repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.classes <= limits.MAX_CLASSES, f"at most {limits.MAX_CLASSES} classes")
        require(len(set(self.inputs.indices)) == len(self.inputs.indices), "a round asks an input once")
        edges = self.edges_squared
        require(edges.ndim == 2 and edges.dtype == np.int64, "edges are whole numbers per query")
        require(len(edges) == len(self.inputs.indices), "every query has its edges")
        require(0 < edges.shape[1] < limits.MAX_CLASSES, f"a query has 1 to {limits.MAX_CLASSES - 1} edges")
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
        """The L1 bound of a record's vote if a record has several labels. Entries then count parts of a vote."""
        return self.terms.parameters.get("tau")

    @property
    def intervals(self) -> int:
        """The intervals of distance: one before each edge, and one behind the last."""
        return int(self.edges_squared.shape[1]) + 1

    @property
    def per_interval(self) -> int:
        """Entries for one interval: the classes; of several labels, the number of records comes before them."""
        return self.classes + (self.tau is not None)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.inputs.indices), self.intervals * self.per_interval

    @property
    def high(self) -> int:
        """No more than k records of one class in one interval can be neighbours."""
        return self.k * (1 if self.tau is None else RESOLUTION)

    def cost(self) -> Cost:
        return Cost(per_party=False, unit=ONE_RECORD, record=ONE_RECORD)

    def detail(self, row: int) -> bytes:
        return np.ascontiguousarray(self.edges_squared[row], dtype="<i8").tobytes()

    def sample(self, run_id: str, content: bytes) -> bytes:
        """What names the sample of an input: all that its label is released under, and its content, but no distances.

        An input that stands in several places of a pool has one sample.
        """
        terms = self.terms
        under = (run_id, self.ledger_id, terms.stage, terms.mechanism, repr(sorted(terms.parameters.items())))
        return "|".join(("collegium-sample-v2", *under, self.features.digest())).encode() + b"|" + content
