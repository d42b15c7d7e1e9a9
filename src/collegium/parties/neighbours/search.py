"""Exact distances at the price of single precision: a product of matrices first, whole numbers where it matters.

The product in single precision places every squared distance within a proven bound; only records for which that
bound does not decide are measured again in whole numbers. The result is the same for all sizes of blocks, numbers of
threads and linear algebra libraries.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data import Examples
from collegium.data.task import Inputs
from collegium.errors import DataError
from collegium.latest import Latest
from collegium.models.devices import resolve_device
from collegium.models.features import Features, extract
from collegium_accounting.units import IntArray

_RECORDS_AT_ONCE = 4096
_QUERIES_AT_ONCE = 128
_DISTANCES_AT_ONCE = 2**23
_UNIT_ROUNDOFF = 2.0**-24


@dataclass(frozen=True, eq=False)
class DistanceView:
    """Some of the records as seen from one query. A *place* is a position in ``rows``.

    Parameters
    ----------
    records : all records, int16 ``[n, dimensions]``.
    query : int16 ``[dimensions]``.
    rows : numbers of the records that are seen, ascending, shape ``[seen]``.
    near : their squared distances, float32 or float64 ``[seen]``, each within ``error`` of the true one.
    """

    records: NDArray[np.int16]
    query: NDArray[np.int16]
    rows: IntArray
    near: NDArray[np.float32] | NDArray[np.float64]
    error: float

    def exact(self, places: IntArray) -> IntArray:
        """Squared distances of the records at ``places``, int64."""
        distances = np.empty(len(places), dtype=np.int64)
        for start in range(0, len(places), _RECORDS_AT_ONCE):
            rows = self.rows[places[start : start + _RECORDS_AT_ONCE]]
            difference = self.records[rows].astype(np.float64) - self.query
            # Sums of whole numbers far below 2^53 are exact in any order.
            distances[start : start + len(rows)] = np.einsum("ij,ij->i", difference, difference)
        return distances

    def steps(self, places: IntArray, function: Callable[[IntArray], IntArray]) -> IntArray:
        """``function`` of the squared distances at ``places``.

        Parameters
        ----------
        function : of whole numbers ``[m]``, element by element, that never falls or never rises. Where it is the same
            at both ends of what the error allows, it is that at the true distance too; elsewhere the distance is
            measured in whole numbers.
        """
        near = self.near.take(places).astype(np.float64)
        least = function((near - self.error).astype(np.int64))
        most = function((near + self.error).astype(np.int64))
        unsure = np.flatnonzero(least != most)
        if len(unsure):
            least[unsure] = function(self.exact(places[unsure]))
        return least


class Search:
    """Distances from all of some records, by brute force.

    Memory beside the records, which may be mapped from a file (2 bytes per record and dimension): a block of 4,096
    records in the precision of the product, and at most 2^23 distances, 32 MiB (64 MiB on a GPU); `views` needs those
    of 16 queries where there are more than half a million records.

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
        """All records as seen from each of ``queries``, int16 ``[queries, dimensions]``; valid until the next.

        Raises DataError when the dimensions differ.
        """
        everyone = np.arange(len(self._records))
        at_once = min(_QUERIES_AT_ONCE, max(16, _DISTANCES_AT_ONCE // max(len(self._records), 1)))
        buffer = self._buffer(min(at_once, len(queries)), len(self._records))
        for block in self._blocks(queries, at_once):
            near = self._near(block, 0, len(self._records), buffer)
            near = near if self._device == "cpu" else near.cpu().numpy()
            for query, row in zip(block, near, strict=True):
                yield DistanceView(self._records, query, everyone, row, self._error(query))

    def within(self, queries: NDArray[np.int16], radii_squared: IntArray) -> Iterator[DistanceView]:
        """From each of ``queries``, the records whose squared distance is at most its radius, and some borderline ones.

        Parameters
        ----------
        queries : int16 ``[queries, dimensions]``.
        radii_squared : int64 ``[queries]``.

        Raises DataError when the dimensions differ.
        """
        at_once = max(1, min(len(self._records), _DISTANCES_AT_ONCE // _QUERIES_AT_ONCE))
        buffer = self._buffer(min(_QUERIES_AT_ONCE, len(queries)), at_once)
        done = 0
        for block in self._blocks(queries, _QUERIES_AT_ONCE):
            limits = radii_squared[done : done + len(block)].tolist()
            done += len(block)
            errors = [self._error(query) for query in block]
            found: list[list[tuple[IntArray, NDArray[Any]]]] = [[] for _ in block]
            for first in range(0, max(len(self._records), 1), at_once):
                near = self._near(block, first, min(first + at_once, len(self._records)), buffer)
                for row, parts, limit, error in zip(near, found, limits, errors, strict=True):
                    places, distances = self._at_most(row, limit + error)
                    parts.append((places + first, distances))
            for query, parts, error in zip(block, found, errors, strict=True):
                rows, distances = (np.concatenate(column) for column in zip(*parts, strict=True))
                yield DistanceView(self._records, query, rows, distances, error)

    def _at_most(self, near: Any, reach: float) -> tuple[IntArray, NDArray[Any]]:
        limit = _above(reach)
        if self._device == "cpu":
            places = np.flatnonzero(near <= limit)
            return places, near.take(places)
        chosen = (near <= limit).nonzero()[:, 0]
        return chosen.cpu().numpy(), near[chosen].cpu().numpy()

    def _buffer(self, queries: int, records: int) -> Any:
        if self._device == "cpu":
            return np.empty((queries, records), dtype=np.float32)
        import torch

        return torch.empty((queries, records), dtype=torch.float64, device=self._device)

    def _blocks(self, queries: NDArray[np.int16], at_once: int) -> Iterator[NDArray[np.int16]]:
        if queries.shape[1] != self._records.shape[1]:
            raise DataError(
                f"features of {self._records.shape[1]} and of {queries.shape[1]} dimensions have no distance"
            )
        for start in range(0, len(queries), at_once):
            yield queries[start : start + at_once]

    def _near(self, queries: NDArray[np.int16], first: int, last: int, buffer: Any) -> Any:
        """Squared distances ``[queries, last - first]`` of the records from ``first`` to ``last``, in the buffer."""
        near = buffer[: len(queries), : last - first]
        if self._device != "cpu":
            return self._near_on_gpu(queries, first, near)
        # The squared lengths are two columns more of the product, which then gives |x|² − 2x·q + |q|² at once.
        dimensions = queries.shape[1]
        asked = np.empty((len(queries), dimensions + 2), dtype=np.float32)
        asked[:, :dimensions] = -2.0 * queries.astype(np.float32)
        asked[:, dimensions], asked[:, dimensions + 1] = 1.0, _squared_length(queries)
        held = np.ones((min(_RECORDS_AT_ONCE, last - first), dimensions + 2), dtype=np.float32)
        for start in range(first, last, _RECORDS_AT_ONCE):
            stop = min(start + _RECORDS_AT_ONCE, last)
            block = held[: stop - start]
            block[:, :dimensions] = self._records[start:stop]
            block[:, dimensions] = self._squared[start:stop]
            np.matmul(asked, block.T, out=near[:, start - first : stop - first])
        return near

    def _near_on_gpu(self, queries: NDArray[np.int16], first: int, near: Any) -> Any:
        import torch

        asked = torch.tensor(queries, device=self._device).double()
        for start in range(0, near.shape[1], 16 * _RECORDS_AT_ONCE):
            part = near[:, start : start + 16 * _RECORDS_AT_ONCE]
            block = self._records[first + start : first + start + part.shape[1]]
            held = torch.tensor(block, device=self._device).double()
            torch.addmm((held**2).sum(1)[None], asked, held.T, alpha=-2.0, out=part)
            part += (asked**2).sum(1)[:, None]
        return near

    def _error(self, query: NDArray[np.int16]) -> float:
        """Bound on the error of `_near`: of a sum of products in any order (Higham 2002, section 3.1).

        With n terms and unit roundoff u such a sum errs by at most nu/(1 − nu) of the sum of its terms' sizes. There
        are dimensions + 2 terms; their sizes sum to at most (|x| + |q|)², and 1 + u times it after the two squared
        lengths are rounded, which adds u·(|x|² + |q|²) itself. Two terms more than there are cover both.
        """
        if self._device != "cpu":
            return 0.0
        length = float(np.sqrt(_squared_length(query[None])[0]))
        terms = (query.size + 4) * _UNIT_ROUNDOFF
        return terms / (1.0 - terms) * (self._longest + length) ** 2 * (1.0 + 2.0**-40)


class Searches:
    """A `Search` of some records for each description of features that is asked for; the last two are remembered."""

    def __init__(self, examples: Examples, inputs: Inputs, device: str) -> None:
        self.features_of = partial(extract, inputs=inputs, device=device)
        self._examples = examples
        self._device = device
        self._made: Latest[str, Search] = Latest(2)

    def under(self, features: Features) -> Search:
        """Raises DataError when the features do not fit the task."""
        return self._made.of(
            features.digest(), lambda: Search(self.features_of(features, self._examples.x), self._device)
        )


def _above(limit: float) -> float:
    """One step of single precision above: a comparison in single precision with it loses no record."""
    return float(np.nextafter(np.float32(limit), np.float32(np.inf)))


def _squared_length(queries: NDArray[np.int16]) -> NDArray[np.float64]:
    values = queries.astype(np.float64)
    squared: NDArray[np.float64] = np.einsum("ij,ij->i", values, values)
    return squared
