"""Cells by which a private record says how well a public pool covers it: which region it lies in, or how far away.

A landmark is an input of the pool. Each landmark belongs to a *region*. A record counts in the region of its nearest
landmark. Where it lies further from that landmark than the first edge, it counts in an interval of distance instead,
whatever the region. So a record adds to one cell, which depends on that record and on public facts alone.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium import limits
from collegium.data.task import Inputs
from collegium.data.values import require
from collegium.models.features import Features, check_landmarks, distances_squared, extract, features_of_landmarks

_AT_ONCE = 2048


@dataclass(frozen=True)
class CoverageSpec:
    """What both sides must agree on to count alike; all of it is public.

    Parameters
    ----------
    features : the features by which inputs are compared.
    landmarks : positions in the pool, distinct.
    regions : the region of each landmark; the regions are numbered from 0.
    edges_squared : where each interval of distance begins, squared, ascending; a distance on an edge is below it.
    """

    features: Features
    landmarks: tuple[int, ...]
    regions: tuple[int, ...]
    edges_squared: tuple[int, ...]

    def __post_init__(self) -> None:
        edges = self.edges_squared
        check_landmarks(self.landmarks)
        require(len(self.regions) == len(self.landmarks), "every landmark has its region")
        require(0 <= min(self.regions) <= max(self.regions) < limits.MAX_CLASSES, "a region is a small number")
        require(1 <= len(edges) < limits.MAX_CLASSES, f"a coverage has 1 to {limits.MAX_CLASSES - 1} edges")
        require(edges[0] >= 0 and edges[-1] <= limits.MAX_RADIUS_SQUARED, "an edge is a squared distance")
        require(list(edges) == sorted(edges), "edges are ascending")

    @property
    def intervals_from(self) -> int:
        """The number of regions; the intervals of distance follow them."""
        return max(self.regions) + 1

    @property
    def cells(self) -> int:
        """The number of cells: regions, then intervals of distance."""
        return self.intervals_from + len(self.edges_squared)

    def cells_of(self, x: NDArray[Any], pool: NDArray[Any], inputs: Inputs, device: str = "cpu") -> NDArray[np.int64]:
        """The cell of each of ``x`` ``[n, …]``, shape ``[n]``; ``pool`` holds the landmarks.

        Raises
        ------
        ProtocolViolation
            If a landmark lies outside the pool.
        DataError
            If the features do not suit the task.
        """
        landmarks = features_of_landmarks(self.features, self.landmarks, pool, inputs, device)
        cells = np.empty(len(x), dtype=np.int64)
        for start in range(0, len(x), _AT_ONCE):
            squared = distances_squared(extract(self.features, x[start : start + _AT_ONCE], inputs, device), landmarks)
            interval = np.searchsorted(self.edges_squared, squared.min(axis=1), side="left")
            region = np.asarray(self.regions)[squared.argmin(axis=1)]
            cells[start : start + _AT_ONCE] = np.where(interval == 0, region, self.intervals_from + interval - 1)
        return cells
