"""What a round of sampled nearest neighbours asks: inputs of the pool, and the intervals of distance around each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.config import NeighboursConfig, RunConfig
from collegium.coordinator.mechanisms import Adjacency
from collegium.coordinator.neighbours.geometry import fit_features, nearest_edges_squared
from collegium.coordinator.neighbours.representatives import representatives
from collegium.coordinator.rounds import round_id
from collegium.protocol.features import extract
from collegium.protocol.messages import CountNearest, PoolRange, Terms


class NearestQuestions:
    """Inputs of the pool, put to a sample of the records.

    Parameters
    ----------
    ledger_id : names the ledger under which the labels are released.
    positions : which inputs; those that the configuration chooses where it is None.
    """

    adjacency = Adjacency.ADD_REMOVE
    votes_per_unit: Mapping[str, int] = {"record": 1}
    teacher = None

    def __init__(
        self,
        config: RunConfig,
        settings: NeighboursConfig,
        pool: NDArray[Any],
        ledger_id: str,
        positions: Sequence[int] | None = None,
    ) -> None:
        inputs = config.task.inputs
        self._ledger_id = ledger_id
        self.features = fit_features(settings.features, settings.dimensions, pool, inputs, settings.network_bytes())
        values = extract(self.features, pool, inputs)
        if positions is None:
            self.indices = representatives(values, config.queries.count, settings.choice, config.seed or 0)
        else:
            self.indices = np.asarray(positions, dtype=np.int64)
        edges = nearest_edges_squared(values, self.indices, settings.share, settings.bins)
        self._edges = dict(zip(self.indices.tolist(), edges, strict=True))

    def request(
        self, mechanism: str, parameters: Mapping[str, float], mode: str, asked: PoolRange, purpose: str
    ) -> CountNearest:
        """The first request of a round; `nearest_sum.NearestSum` derives the second from its sum."""
        terms = Terms(mechanism, dict(parameters), self.adjacency.value, mode)
        edges = np.stack([self._edges[index] for index in asked.indices])
        name = round_id(asked.pool_sha256, asked.indices, (terms, self.features.digest(), edges.tolist(), purpose))
        return CountNearest(terms, self.features, asked, edges, False, purpose, name, self._ledger_id)
