"""Inputs that are drawn from the public schema, where a consortium has no public pool.

A kernel map needs landmarks. At first they must only differ where records can differ. So a number is drawn evenly from
its public range, a category evenly from its public values, and a vector evenly in all directions, with length 1. A
tenth of the values of a column is missing, or another one than the schema knows.

Once a noisy sum says how many records of each class lie in each cell of each column (`models.input_sums`), rows of a
table are drawn by these public shares: a class first, then a cell of each column by itself. Vectors are drawn about the
mean direction that such a sum says, evenly in all directions.
"""

import hashlib
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from collegium.data.task import CategoryColumn, Column, ImageInputs, Inputs, TableInputs, VectorInputs
from collegium.data.values import require
from collegium.errors import ConfigurationError

DRAWN = 3000
"""How many inputs are drawn."""
MEAN_ONE = 2**20
"""What stands for 1 in the mean of vectors."""
BINS = 16
"""Cells of a column of numbers, all of one width; one more holds what is missing."""
_MISSING = 0.1


def drawn_pool(inputs: Inputs) -> NDArray[np.float32]:
    """`DRAWN` inputs of a table or of vectors, encoded, ``[DRAWN, …]``; the same for the same ``inputs``.

    The schema is the seed. Only uniform numbers are drawn, and only exact operations follow, so that every machine
    draws the same.

    Raises
    ------
    ConfigurationError
        For images: what is drawn pixel by pixel is like no image, and tells records apart poorly.
    """
    if isinstance(inputs, ImageInputs):
        raise ConfigurationError("images need a public pool: name unlabelled images of their size in the section pool")
    generator = _generator(inputs, b"")
    if not isinstance(inputs, TableInputs):
        signs = np.where(generator.random((DRAWN, inputs.size)) < 0.5, -1.0, 1.0)
        return np.asarray(signs / np.sqrt(inputs.size), dtype=np.float32)
    encoded = [
        _categories(len(column.categories), generator) if isinstance(column, CategoryColumn) else _numbers(generator)
        for column in inputs.columns
    ]
    return np.concatenate(encoded, axis=1).astype(np.float32)


def drawn_by(shares: bytes, inputs: Inputs) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """`DRAWN` inputs, encoded, ``[DRAWN, …]``, and the classes of rows of a table; the same for the same arguments.

    Parameters
    ----------
    shares : of the classes and of the cells of each column, see `read_shares`; of vectors their mean and how far they
        lie from it, see `read_mean`.

    Raises
    ------
    ProtocolViolation
        If they are no shares of these inputs.
    """
    if isinstance(inputs, VectorInputs):
        mean, away = np.split(read_mean(shares, inputs), [inputs.size])
        # Four uniform numbers added up are nearly normal, and the same on every machine.
        generator, deviations = _generator(inputs, shares), np.full((DRAWN, inputs.size), -2.0)
        for _ in range(4):
            deviations += generator.random(deviations.shape)
        deviations *= np.sqrt(3.0) * away
        return ((mean + deviations) / MEAN_ONE).astype(np.float32), np.empty(0, dtype=np.int64)
    table = read_shares(shares, inputs)
    assert isinstance(inputs, TableInputs)
    generator, everyone = _generator(inputs, shares), np.zeros(DRAWN, dtype=np.int64)
    classes = _chosen(table[:, :1].T, everyone, generator)
    encoded = []
    for column, start in zip(inputs.columns, starts_of(inputs), strict=True):
        cells = _chosen(table[:, 1 + start : 1 + start + _cells_of(column)], classes, generator)
        if isinstance(column, CategoryColumn):
            encoded.append(np.eye(column.width)[cells])
        else:
            missing = cells == BINS
            places = (cells + generator.random(DRAWN)) / BINS
            encoded.append(np.stack([np.where(missing, 0.0, places), missing], axis=1))
    return np.concatenate(encoded, axis=1).astype(np.float32), classes


def read_mean(shares: bytes, inputs: VectorInputs) -> NDArray[np.int64]:
    """In parts of 1/`MEAN_ONE` the mean of vectors, and how far each number lies from it: ``[size + 1]``.

    Raises
    ------
    ProtocolViolation
        If there are more or fewer numbers, or if one is above 2.
    """
    require(len(shares) == 4 * (inputs.size + 1), "a mean of vectors has as many numbers as these, and one more")
    found = np.frombuffer(shares, dtype="<i4").astype(np.int64)
    require(bool((np.abs(found) <= 2 * MEAN_ONE).all()), "the mean of vectors of length 1 is not so long")
    return found


def check_shares(shares: bytes, inputs: Inputs, classes: int) -> None:
    """Raise ProtocolViolation unless `drawn_by` can draw inputs by these shares, of so many classes."""
    if isinstance(inputs, VectorInputs):
        read_mean(shares, inputs)
    else:
        require(len(read_shares(shares, inputs)) == classes, f"the shares are of other than {classes} classes")


def input_entries(inputs: Inputs) -> int:
    """How many numbers a sum of inputs themselves has: of a table its cells, of vectors theirs; 0 of images."""
    if isinstance(inputs, TableInputs):
        return column_cells(inputs)
    return inputs.size if isinstance(inputs, VectorInputs) else 0


def read_shares(shares: bytes, inputs: Inputs) -> NDArray[np.int64]:
    """Whole numbers ``[classes, 1 + cells]``: in proportion to each class, then to each cell among its column's.

    Raises
    ------
    ProtocolViolation
        If they are for no table, for other cells, or if all of a class's in a column are 0.
    """
    columns = 1 + (column_cells(inputs) if isinstance(inputs, TableInputs) else 0)
    require(columns > 1 and len(shares) % (4 * columns) == 0, "shares are of the cells of a table's columns")
    table = np.frombuffer(shares, dtype="<u4").reshape(-1, columns).astype(np.int64)
    assert isinstance(inputs, TableInputs)
    sums = np.add.reduceat(table[:, 1:], starts_of(inputs), axis=1)
    require(
        len(table) > 0 and bool((sums > 0).all()) and int(table[:, 0].sum()) > 0, "shares of a column are not all 0"
    )
    return table


def starts_of(inputs: TableInputs) -> list[int]:
    """The number of each column's first cell."""
    return list(accumulate(map(_cells_of, inputs.columns[:-1]), initial=0))


def even_shares(inputs: TableInputs) -> list[NDArray[np.float64]]:
    """The shares of each column's cells in `drawn_pool`."""
    known = [_cells_of(column) - 1 for column in inputs.columns]
    return [np.append(np.full(number, (1.0 - _MISSING) / number), _MISSING) for number in known]


def column_cells(inputs: TableInputs) -> int:
    """How many cells all columns have: `BINS` and one of numbers, one for each category and one of categories."""
    return sum(map(_cells_of, inputs.columns))


def cells_of(x: NDArray[np.float32], inputs: TableInputs) -> NDArray[np.int64]:
    """The cell of each column in which each encoded row lies, ``[n, columns]``; every row has one in each column."""
    found = []
    for column, start, place in zip(inputs.columns, starts_of(inputs), inputs.places, strict=True):
        own = x[:, place]
        if isinstance(column, CategoryColumn):
            cells = own.argmax(axis=1)
        else:
            cells = np.clip((own[:, 0].astype(np.float64) * BINS).astype(np.int64), 0, BINS - 1)
            cells = np.where(own[:, 1] > 0.0, BINS, cells)
        found.append(start + cells)
    return np.stack(found, axis=1)


def _cells_of(column: Column) -> int:
    return column.width if isinstance(column, CategoryColumn) else BINS + 1


def _generator(inputs: Inputs, shares: bytes) -> np.random.Generator:
    seed = hashlib.sha256(b"collegium-drawn-pool-v1" + inputs.model_dump_json().encode() + shares).digest()
    return np.random.default_rng(list(seed))


def _chosen(shares: NDArray[np.int64], rows: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """For each of ``rows`` of ``shares`` one of its columns, by their proportion."""
    below = np.cumsum(shares, axis=1)
    drawn = np.floor(generator.random(len(rows)) * below[rows, -1]).astype(np.int64)
    return np.asarray((below[rows] <= drawn[:, None]).sum(axis=1), dtype=np.int64)


def _numbers(generator: np.random.Generator) -> NDArray[np.float64]:
    """A column of numbers: its place in the range, or 0 and the flag of a missing value."""
    missing = generator.random(DRAWN) < _MISSING
    return np.stack([np.where(missing, 0.0, generator.random(DRAWN)), missing], axis=1)


def _categories(known: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """A column of categories: an indicator for each, and one for any other."""
    other, number = generator.random(DRAWN) < _MISSING, np.floor(generator.random(DRAWN) * known)
    return np.eye(known + 1)[np.where(other, known, number).astype(np.int64)]
