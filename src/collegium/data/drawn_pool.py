"""Inputs that are drawn from the public schema alone, where a consortium has no public pool.

A kernel map needs landmarks. They need not be like the records: they must only differ where records can differ. So a
number is drawn evenly from its public range, a category evenly from its public values, and a vector evenly in all
directions, with length 1. A tenth of the values of a column is missing, or another one than the schema knows.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from collegium.data.task import CategoryColumn, ImageInputs, Inputs, TableInputs
from collegium.errors import ConfigurationError

DRAWN = 3000
"""How many inputs are drawn."""
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
    seed = hashlib.sha256(b"collegium-drawn-pool-v1" + inputs.model_dump_json().encode()).digest()
    generator = np.random.default_rng(list(seed))
    if not isinstance(inputs, TableInputs):
        signs = np.where(generator.random((DRAWN, inputs.size)) < 0.5, -1.0, 1.0)
        return np.asarray(signs / np.sqrt(inputs.size), dtype=np.float32)
    encoded = [
        _categories(len(column.categories), generator) if isinstance(column, CategoryColumn) else _numbers(generator)
        for column in inputs.columns
    ]
    return np.concatenate(encoded, axis=1).astype(np.float32)


def _numbers(generator: np.random.Generator) -> NDArray[np.float64]:
    """A column of numbers: its place in the range, or 0 and the flag of a missing value."""
    missing = generator.random(DRAWN) < _MISSING
    return np.stack([np.where(missing, 0.0, generator.random(DRAWN)), missing], axis=1)


def _categories(known: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """A column of categories: an indicator for each, and one for any other."""
    other, number = generator.random(DRAWN) < _MISSING, np.floor(generator.random(DRAWN) * known)
    return np.eye(known + 1)[np.where(other, known, number).astype(np.int64)]
