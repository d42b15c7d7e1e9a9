"""Records in the cells of their columns, class by class: the first sum where a table's pool is drawn.

A record of class y adds to one cell of each of k columns (`data.drawn_pool.cells_of`), and to its class's constant
entry, as `kernels.KernelMap` has it. So it has a φ of k entries of √(REST/k) and one of `CONSTANT`, all rounded down,
whose length is at most `ONE`; its code is √(C(C − 1))·F for class y, rounded down, and 0 for the others. Neither is
longer than in other class sums, and the bound of `mechanisms.class_sums` holds as it does for them. Other codes add up
to 0 over the classes: by these alone one could not tell how many records there are in a cell.

The noisy sum says which cells hold records. Rows that are drawn by these shares (`data.drawn_pool.drawn_by`) are much
more like records than rows that are drawn evenly, and so is what a kernel map makes of them.
"""

import math

import numpy as np
from numpy.typing import NDArray

from collegium.data.drawn_pool import cells_of, column_cells, even_shares, starts_of
from collegium.data.task import TableInputs
from collegium.models.kernels import CONSTANT, REST
from collegium_accounting.mechanisms.class_sums import longest_code_squared
from collegium_accounting.units import IntArray

DOUBT = 2.0
"""How many times what noise explains is taken off: rows in wrong places cost more than rows in any place."""
LEAST_EVEN = 0.05
"""What part of each column is drawn as the schema alone would have it, whatever the sum says."""
_AT_ONCE = 2**16
_STEPS = 2**20


def code_of_one(classes: int) -> int:
    """What a record's code is for its class."""
    return math.isqrt(longest_code_squared(classes))


def entry_of_one(columns: int) -> int:
    """What a record adds to a cell before its code multiplies it."""
    return math.isqrt(REST // columns)


def sums_in_cells(
    x: NDArray[np.float32], labels: NDArray[np.int64], of_person: NDArray[np.int64], inputs: TableInputs, classes: int
) -> IntArray:
    """What records add up to, int64 ``[classes, cells + 1]``: class by class the cells, then the constant entry.

    Every product and every partial sum is a whole number below 2^53.

    Parameters
    ----------
    x : encoded rows ``[n, …]``.
    labels : their classes, ``[n]``.
    of_person : how many records the person of each has, ``[n]``; its share is cut off towards 0.
    """
    cells = column_cells(inputs)
    sums = np.zeros(classes * (cells + 1))
    for start in range(0, len(x), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        own, first = of_person[part], labels[part] * (cells + 1)
        entry, constant = entry_of_one(len(inputs.columns)) // own, CONSTANT // own
        for column in cells_of(x[part], inputs).T:
            sums += np.bincount(first + column, entry, len(sums))
        sums += np.bincount(first + cells, constant, len(sums))
    return code_of_one(classes) * sums.astype(np.int64).reshape(classes, cells + 1)


def shares_of(values: IntArray, noise: float, classes: int, inputs: TableInputs) -> bytes:
    """The shares by which rows are drawn, as `data.drawn_pool.read_shares` reads them.

    Parameters
    ----------
    values : the noisy sum, ``[classes · (cells + 1) + 1]``.
    noise : standard deviation of the noise on each entry.
    """
    code, columns = code_of_one(classes), len(inputs.columns)
    sums, entry = values[:-1].reshape(classes, -1) / code, entry_of_one(columns)
    counts, of_cell = sums[:, :-1] / entry, noise / code / entry
    # Each class's records are counted by the constant entry, and by every column: the mean by what noise both have.
    by_columns, of_columns = counts.sum(axis=1) / columns, of_cell * math.sqrt(counts.shape[1]) / columns
    by_constant, of_constant = sums[:, -1] / CONSTANT, noise / code / CONSTANT
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
    """Shares that were ``seen`` with noise, drawn towards those ``expected`` by what noise explains.

    That is the estimate of James and Stein (1961) with `DOUBT`, of which what is negative is left out.
    """
    away = seen - expected
    kept = max(0.0, 1.0 - DOUBT * len(away) * noise**2 / max(float(away @ away), 1e-300))
    found = np.maximum(expected + kept * away, 0.0)
    return np.asarray(found / max(float(found.sum()), 1e-300))
