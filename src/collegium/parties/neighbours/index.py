"""The party's own records as features, and which of them lie within a radius of a public input."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.feature_spec import Features
from collegium.data.features import distances_squared, extract
from collegium.data.task import Inputs
from collegium.privacy.units import IntArray
from collegium.protocol.messages import CastNeighbours
from collegium.protocol.requests import weight_units

if TYPE_CHECKING:
    from collegium.data import Examples

_QUERIES_AT_ONCE = 64
_MAX_FEATURES_REMEMBERED = 2


class NeighbourIndex:
    """Finds who votes on a query, and with which weight.

    Whether a record votes depends on itself, on those of equal identity and on the request; on no other record.

    Parameters
    ----------
    person : number of the one whose record it is, shape ``[records]``.
    """

    def __init__(self, examples: Examples, inputs: Inputs, person: IntArray) -> None:
        self._examples = examples
        self._inputs = inputs
        self._person = person
        self._labels = examples.labels()
        self._alone = len(np.unique(person)) == len(person)
        self._records: OrderedDict[str, NDArray[np.int16]] = OrderedDict()

    def voters(
        self, body: CastNeighbours, x: NDArray[Any], levels: int
    ) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
        """For each input of ``x``: the people within its radius, their classes and their weights in units.

        Each person votes once a query, by the nearest record. Memory: 64 × records distances of 8 bytes.
        Raises DataError when the features do not fit the task.
        """
        queries = extract(body.features, x, self._inputs)
        records = self._under(body.features)
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            distances = distances_squared(records, queries[start : start + _QUERIES_AT_ONCE])
            for column, radius_squared in enumerate(body.radii_squared[start : start + _QUERIES_AT_ONCE]):
                yield self._nearest(distances[:, column], radius_squared, body.kernel, levels)

    def _nearest(
        self, distances: IntArray, radius_squared: int, kernel: str, levels: int
    ) -> tuple[IntArray, IntArray, IntArray]:
        rows = np.flatnonzero(distances <= radius_squared)
        units = weight_units(distances[rows], radius_squared, kernel, levels)
        rows, units = rows[units > 0], units[units > 0]
        if not self._alone:
            order = np.lexsort((self._labels[rows], distances[rows], self._person[rows]))
            _, first = np.unique(self._person[rows][order], return_index=True)
            rows, units = rows[order][first], units[order][first]
        return self._person[rows], self._labels[rows], units

    def _under(self, features: Features) -> NDArray[np.int16]:
        digest = features.digest()
        if digest not in self._records:
            self._records[digest] = extract(features, self._examples.x, self._inputs)
        self._records.move_to_end(digest)
        while len(self._records) > _MAX_FEATURES_REMEMBERED:
            self._records.popitem(last=False)
        return self._records[digest]
