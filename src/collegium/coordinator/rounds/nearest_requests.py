"""Requests to the nearest of a sample of the records: inputs of the pool, with intervals of distance around each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.rounds.record_requests import RecordRequests
from collegium.coordinator.rounds.rounds import round_id
from collegium.coordinator.selection.pool_geometry import nearest_edges_squared
from collegium.protocol.messages import CountNearest, PoolRange, Terms


class NearestRequests(RecordRequests):
    """Requests about inputs of the pool that the nearest of a sample of the records answer."""

    def _ask(self, terms: Terms, asked: PoolRange, positions: NDArray[np.int64]) -> CountNearest:
        """The first request of a round; `nearest_sum.NearestSum` derives the second from its sum."""
        edges = nearest_edges_squared(self._values, positions, self._settings.share, self._settings.bins)
        name = round_id(asked.pool_sha256, asked.indices, (terms, self.features.digest(), edges.tolist()))
        return CountNearest(terms, self.features, asked, edges, False, name, self._ledger_id)
