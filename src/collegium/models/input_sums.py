"""A sum of the inputs themselves, before there is a map: the first of several class sums where the pool is drawn.

**Tables.** A record of class y adds √(REST/k) to one cell of each of k columns (`data.drawn_pool.cells_of`).
**Vectors.** A record adds its vector at the length √REST, whatever its class is. Each also adds `CONSTANT` to one more
entry, as `kernels.KernelMap` has it. All are rounded towards 0, so that a record's φ is no longer than `ONE`.
Its code is √(C(C − 1))·F, rounded down, for one class and 0 for the others: for y, of vectors for the first. So neither
is longer than in other class sums, and the bound of `mechanisms.class_sums` holds as it does for them. Other codes add
up to 0 over the classes: by these alone one could not tell how records lie.

Inputs that are drawn by what the noisy sum says (`data.drawn_pool.drawn_by`) are much more like records than inputs
that are drawn evenly, and so is what a kernel map makes of them.

References
----------
James and Stein, "Estimation with quadratic loss", Berkeley Symposium 1961.
"""

import math

import numpy as np
from numpy.typing import NDArray

from collegium.data.drawn_pool import MEAN_ONE, cells_of, even_shares, input_entries, starts_of
from collegium.data.task import Inputs, TableInputs
from collegium.models.features import Features, extract
from collegium.models.kernels import CONSTANT, REST, of_length
from collegium_accounting.mechanisms.class_sums import count_of_one, longest_code_squared
from collegium_accounting.units import IntArray

DOUBT = 2.0
"""How many times what noise explains is taken off cells: rows in wrong places cost more than rows in any place."""
LEAST_EVEN = 0.05
"""What part of each column is drawn as the schema alone would have it, whatever the sum says."""
LEAST_SPREAD = 0.01
"""What part of the squared length of vectors is not their mean's, whatever the sum says."""
_AT_ONCE = 2**12
_STEPS = 2**20


def by_class(inputs: Inputs) -> bool:
    """Whether the sum of inputs themselves tells records of one class from those of another."""
    return isinstance(inputs, TableInputs)


def code_of_one(classes: int) -> int:
    """What a record's code is for its class."""
    return math.isqrt(longest_code_squared(classes))


def entry_of_one(columns: int) -> int:
    """What a record adds to a cell before its code multiplies it."""
    return math.isqrt(REST // columns)


def sums_of_inputs(
    x: NDArray[np.float32], labels: NDArray[np.int64], of_person: NDArray[np.int64], inputs: Inputs, classes: int
) -> IntArray:
    """What records add up to, int64 ``[classes, entries + 1]``: class by class the entries, then the constant one.

    Every product and every partial sum is a whole number below 2^53.

    Parameters
    ----------
    x : encoded inputs ``[n, …]``.
    labels : their classes, ``[n]``.
    of_person : how many records the person of each has, ``[n]``; its share is cut off towards 0.
    """
    entries = input_entries(inputs)
    sums = np.zeros((classes, entries + 1))
    for start in range(0, len(x), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        own, of_class = of_person[part], labels[part] if by_class(inputs) else np.zeros_like(labels[part])
        if isinstance(inputs, TableInputs):
            first, entry = of_class * (entries + 1), entry_of_one(len(inputs.columns)) // own
            for column in cells_of(x[part], inputs).T:
                sums += np.bincount(first + column, entry, sums.size).reshape(sums.shape)
        else:
            vectors = of_length(extract(Features("unit"), x[part], inputs).astype(np.int64), REST)
            sums[0, :-1] += np.trunc(vectors / own[:, None]).sum(axis=0)
        sums[:, -1] += np.bincount(of_class, CONSTANT // own, classes)
    return code_of_one(classes) * sums.astype(np.int64)


def shares_of(values: IntArray, noise: float, classes: int, inputs: Inputs) -> bytes:
    """The shares by which inputs are drawn, as `data.drawn_pool.drawn_by` takes them.

    Parameters
    ----------
    values : the noisy sum, ``[classes · (entries + 1) + 1]``.
    noise : standard deviation of the noise on each entry.
    """
    code = code_of_one(classes)
    sums = values[:-1].reshape(classes, -1) / code
    if isinstance(inputs, TableInputs):
        return _shares_of_cells(sums, noise / code, classes, inputs)
    one = count_of_one(classes)
    count = max(float(values[-1]), noise, float(one))
    unit = math.sqrt(REST) * count / one
    seen, of_entry = sums[0, :-1] / unit, noise / code / unit
    mean = seen * _kept(seen, of_entry, 1.0)
    squared = float(mean @ mean)
    # By as much the noise on the mean and on the count may lengthen it. Drawn all alike, inputs would tell none apart.
    longer = 2.0 * math.hypot(math.sqrt(squared) * of_entry, squared * noise / count)
    spread = min(max(1.0 - squared, longer, LEAST_SPREAD), 1.0)
    if spread > 1.0 - squared:
        mean *= math.sqrt((1.0 - spread) / squared)
    away = math.sqrt(spread / len(mean))
    return bytes(np.rint(np.clip(np.append(mean, away), -1.0, 1.0) * MEAN_ONE).astype("<i4").tobytes())


def _shares_of_cells(sums: NDArray[np.float64], noise: float, classes: int, inputs: TableInputs) -> bytes:
    columns, entry = len(inputs.columns), entry_of_one(len(inputs.columns))
    counts, of_cell = sums[:, :-1] / entry, noise / entry
    # Each class's records are counted by the constant entry, and by every column: the mean by what noise both have.
    by_columns, of_columns = counts.sum(axis=1) / columns, of_cell * math.sqrt(counts.shape[1]) / columns
    by_constant, of_constant = sums[:, -1] / CONSTANT, noise / CONSTANT
    weight = of_constant**2 / max(of_constant**2 + of_columns**2, 1e-300)
    of_class = weight * by_columns + (1.0 - weight) * by_constant
    of_class = np.maximum(of_class, max(of_cell, 1.0))
    shares = [of_class / of_class.sum()]
    for column, evenly in zip(np.split(counts, starts_of(inputs)[1:], axis=1), even_shares(inputs), strict=True):
        of_all = _towards(evenly, column.sum(axis=0) / of_class.sum(), of_cell * math.sqrt(classes) / of_class.sum())
        of_each = [_towards(of_all, own / count, of_cell / count) for own, count in zip(column, of_class, strict=True)]
        shares.append(LEAST_EVEN * evenly + (1.0 - LEAST_EVEN) * np.stack(of_each))
    table = np.concatenate([shares[0][:, None], *shares[1:]], axis=1)
    return bytes(np.rint(table * _STEPS).astype("<u4").tobytes())


def _towards(expected: NDArray[np.float64], seen: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """Shares that were ``seen`` with noise, drawn towards those ``expected``; what is negative is left out."""
    away = seen - expected
    found = np.maximum(expected + _kept(away, noise, DOUBT) * away, 0.0)
    return np.asarray(found / max(float(found.sum()), 1e-300))


def _kept(away: NDArray[np.float64], noise: float, doubt: float) -> float:
    """What part of a difference is kept, where noise explains the rest (James and Stein 1961)."""
    return max(0.0, 1.0 - doubt * len(away) * noise**2 / max(float(away @ away), 1e-300))
