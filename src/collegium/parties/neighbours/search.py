"""Exact distances at the price of single precision: a product of matrices first, whole numbers where it matters.

The product in single precision places every squared distance within a proven bound; only records for which that
bound does not decide are measured again in whole numbers. The result is the same for all sizes of blocks, numbers of
threads and linear algebra libraries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collegium.errors import DataError
from collegium.models.devices import resolve_device
from collegium.privacy.units import IntArray

_RECORDS_AT_ONCE = 4096
_DISTANCES_AT_ONCE = 2**24
_UNIT_ROUNDOFF = 2.0**-24


@dataclass(frozen=True, eq=False)
class DistanceView:
    """The records as seen from one query.

    Parameters
    ----------
    near : squared distances, float32 or float64 ``[records]``, each within ``error`` of the true one.
    """

    records: NDArray[np.int16]
    query: NDArray[np.int16]
    near: NDArray[np.float32] | NDArray[np.float64]
    error: float

    def exact(self, rows: IntArray) -> IntArray:
        """Squared distances of the records ``rows``, int64."""
        distances = np.empty(len(rows), dtype=np.int64)
        for start in range(0, len(rows), _RECORDS_AT_ONCE):
            difference = self.records[rows[start : start + _RECORDS_AT_ONCE]].astype(np.float64) - self.query
            # Sums of whole numbers far below 2^53 are exact in any order.
            distances[start : start + len(difference)] = np.einsum("ij,ij->i", difference, difference)
        return distances

    def intervals(self, rows: IntArray, edges_squared: IntArray) -> IntArray:
        """For each of ``rows``, how many of the ascending edges lie at or below its squared distance."""
        near = self.near[rows]
        if self.error == 0:
            return np.searchsorted(edges_squared, near, side="right")
        # Float64, so that an edge is not rounded on its way to the comparison.
        low = np.searchsorted(edges_squared, near.astype(np.float64) - self.error, side="right")
        high = np.searchsorted(edges_squared, near.astype(np.float64) + self.error, side="right")
        unsure = np.flatnonzero(low != high)
        low[unsure] = np.searchsorted(edges_squared, self.exact(rows[unsure]), side="right")
        return low

    def closest(self, rows: IntArray, k: int) -> tuple[IntArray, IntArray]:
        """Those of ``rows`` that can be among the ``k`` nearest of them, ties included, with exact distances."""
        if len(rows) > k:
            near = self.near[rows].astype(np.float64)
            reach = np.partition(near, k - 1)[k - 1] + 2 * self.error
            rows = rows[near <= reach]
        distances = self.exact(rows)
        if len(rows) > k:
            kept = distances <= np.partition(distances, k - 1)[k - 1]
            rows, distances = rows[kept], distances[kept]
        return rows, distances


class Search:
    """Distances from all of some records, by brute force.

    Memory beside the records (2 bytes per record and dimension): a block of 4,096 records in the precision of the
    product, and at most 2^24 distances, 64 MiB (128 MiB on a GPU), or one query's where there are more records.

    Parameters
    ----------
    records : int16 ``[n, dimensions]``.
    device : ``auto``, ``cpu``, ``cuda`` or ``cuda:<number>``; on a GPU the product is in double precision and exact.
    """

    def __init__(self, records: NDArray[np.int16], device: str = "cpu") -> None:
        self._records = records
        self._device = resolve_device(device)
        self._squared = np.empty(len(records))
        for start in range(0, len(records), _RECORDS_AT_ONCE):
            block = records[start : start + _RECORDS_AT_ONCE].astype(np.float64)
            self._squared[start : start + len(block)] = np.einsum("ij,ij->i", block, block)
        self._longest = float(np.sqrt(self._squared.max(initial=0.0)))

    def views(self, queries: NDArray[np.int16]) -> Iterator[DistanceView]:
        """The records as seen from each of ``queries``, int16 ``[queries, dimensions]``; valid until the next.

        Raises DataError when the dimensions differ.
        """
        if queries.shape[1] != self._records.shape[1]:
            raise DataError(
                f"features of {self._records.shape[1]} and of {queries.shape[1]} dimensions have no distance"
            )
        at_once = max(1, min(256, _DISTANCES_AT_ONCE // max(len(self._records), 1)))
        for start in range(0, len(queries), at_once):
            block = queries[start : start + at_once]
            near = self._near(block) if self._device == "cpu" else self._near_on_gpu(block)
            for query, row in zip(block, near, strict=True):
                yield DistanceView(self._records, query, row, self._error(query))

    def _near(self, queries: NDArray[np.int16]) -> NDArray[np.float32]:
        asked = queries.astype(np.float32)
        near = np.empty((len(queries), len(self._records)), dtype=np.float32)
        for start in range(0, len(self._records), _RECORDS_AT_ONCE):
            part = near[:, start : start + _RECORDS_AT_ONCE]
            part[:] = asked @ self._records[start : start + _RECORDS_AT_ONCE].astype(np.float32).T
            part *= -2.0
            part += self._squared[start : start + _RECORDS_AT_ONCE].astype(np.float32)
            part += _squared_length(queries)[:, None].astype(np.float32)
        return near

    def _near_on_gpu(self, queries: NDArray[np.int16]) -> NDArray[np.float64]:
        import torch

        asked = torch.from_numpy(queries).to(self._device).double()
        near = np.empty((len(queries), len(self._records)))
        for start in range(0, len(self._records), 16 * _RECORDS_AT_ONCE):
            block = torch.from_numpy(self._records[start : start + 16 * _RECORDS_AT_ONCE]).to(self._device).double()
            distances = torch.addmm((block**2).sum(1)[None], asked, block.T, alpha=-2.0)
            distances += (asked**2).sum(1)[:, None]
            near[:, start : start + len(block)] = distances.cpu().numpy()
        return near

    def _error(self, query: NDArray[np.int16]) -> float:
        """Bound on the error of `_near`: of a sum of products in any order (Higham 2002, section 3.1), and of the rest.

        With n products and unit roundoff u the product errs by at most nu/(1 − nu)·|x||q|, the squares and the two
        additions by at most 4u·(|x| + |q|)².
        """
        if self._device != "cpu":
            return 0.0
        length = float(np.sqrt(_squared_length(query[None])[0]))
        terms = (query.size + 2) * _UNIT_ROUNDOFF
        product = 2.0 * terms / (1.0 - terms) * self._longest * length
        return product + 8.0 * _UNIT_ROUNDOFF * (self._longest + length) ** 2


def _squared_length(queries: NDArray[np.int16]) -> NDArray[np.float64]:
    values = queries.astype(np.float64)
    squared: NDArray[np.float64] = np.einsum("ij,ij->i", values, values)
    return squared
