"""What a round of sampled nearest neighbours asks: inputs of the pool, and the intervals of distance around each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.config import NeighboursConfig, RunConfig
from collegium.coordinator.mechanisms import Adjacency
from collegium.coordinator.neighbours.finding import STUDENT, features_of
from collegium.coordinator.neighbours.geometry import nearest_edges_squared
from collegium.coordinator.rounds import round_id
from collegium.protocol.features import extract
from collegium.protocol.messages import CountNearest, PoolRange, Terms

if TYPE_CHECKING:
    from collegium.coordinator.students import Student


class NearestQuestions:
    """Inputs put to a sample of the records.

    Parameters
    ----------
    ledger_id : names the ledger under which the labels are released.
    student : of the labels so far, where the settings want its features.
    """

    adjacency = Adjacency.ADD_REMOVE
    votes_per_unit: Mapping[str, int] = {"record": 1}
    teacher = None
    round_per_stage = True

    def __init__(
        self,
        config: RunConfig,
        settings: NeighboursConfig,
        pool: NDArray[Any],
        ledger_id: str,
        student: Student | None = None,
    ) -> None:
        self._config, self._settings, self._pool = config, settings, pool
        self._ledger_id, self._share, self._bins = ledger_id, settings.share, settings.bins
        self.want_student = settings.features == STUDENT
        self.features = features_of(settings, pool, config.task.inputs, student)
        self._values = extract(self.features, pool, config.task.inputs)

    def informed_by(self, student: Student) -> NearestQuestions:
        return NearestQuestions(self._config, self._settings, self._pool, self._ledger_id, student)

    def request(
        self, mechanism: str, parameters: Mapping[str, float], mode: str, asked: PoolRange, purpose: str
    ) -> CountNearest:
        """The first request of a round; `nearest_sum.NearestSum` derives the second from its sum."""
        terms = Terms(mechanism, dict(parameters), self.adjacency.value, mode)
        positions = np.asarray(asked.indices, dtype=np.int64)
        edges = nearest_edges_squared(self._values, positions, self._share, self._bins)
        name = round_id(asked.pool_sha256, asked.indices, (terms, self.features.digest(), edges.tolist(), purpose))
        return CountNearest(terms, self.features, asked, edges, False, purpose, name, self._ledger_id)
