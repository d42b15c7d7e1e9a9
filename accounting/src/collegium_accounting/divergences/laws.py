"""The law of the noisy argmax of a histogram, from one pass over a grid.

Under continuous noise equal counts win equally often, so classes are gathered into *levels* (distinct
counts with a multiplicity) and the cost depends on the number of levels. Under discrete noise ties go
to the lowest index, so each class is its own level.
"""

from dataclasses import dataclass

import numpy as np

from collegium_accounting.divergences.grids import NoiseLaw, Tables, tables
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import IntArray


@dataclass(frozen=True)
class Levels:
    """Histograms of one batch as distinct counts: ``count`` and ``multiplicity``, shape ``[queries, levels]``.

    Levels of multiplicity 0 are padding. ``classes`` is the number of classes of every histogram.
    """

    count: IntArray
    multiplicity: IntArray
    classes: int


def levels_of(histograms: IntArray, noise: NoiseLaw) -> Levels:
    """Gather equal counts, unless the noise is discrete; ``histograms`` has the shape ``[queries, classes]``."""
    queries, classes = histograms.shape
    if noise.discrete:
        return Levels(histograms, np.ones_like(histograms), classes)
    ordered = -np.sort(-histograms, axis=1)
    starts = np.ones_like(ordered, dtype=bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    level = np.cumsum(starts, axis=1) - 1
    width = int(level.max(initial=0)) + 1
    count = np.zeros((queries, width), dtype=np.int64)
    multiplicity = np.zeros((queries, width), dtype=np.int64)
    row = np.arange(queries)[:, None]
    count[row, level] = ordered
    np.add.at(multiplicity, (np.broadcast_to(row, level.shape), level), 1)
    return Levels(count, multiplicity, classes)


def win_log_probabilities(levels: Levels, table: Tables) -> FloatArray:
    """log Pr[one class of each level wins], shape ``[queries, levels]``, in log space throughout."""
    below, upto = table.below[levels.count], table.upto[levels.count]
    density = table.density[levels.count]
    multiplicity = levels.multiplicity[:, :, None]
    before = np.cumsum(multiplicity * below, axis=1) - multiplicity * below
    after = np.cumsum((multiplicity * upto)[:, ::-1], axis=1)[:, ::-1] - upto
    integrand = density + before + after
    peak = integrand.max(axis=2)
    total: FloatArray = peak + np.log(np.exp(integrand - peak[:, :, None]).sum(axis=2))
    return total


def log_win_probabilities(histograms: IntArray, noise: NoiseLaw) -> FloatArray:
    """log Pr[the class wins] for ``histograms`` ``[queries, classes]``, in that shape.

    Under continuous noise it is per level, the largest count first; see `Levels`.
    """
    if noise.kind == "gumbel":
        score = (histograms - histograms.max(axis=1, keepdims=True)) / noise.scale
        return np.asarray(score - np.log(np.exp(score).sum(axis=1, keepdims=True)))
    levels = levels_of(histograms, noise)
    return win_log_probabilities(levels, tables(noise, int(histograms.max()), levels.classes))


def win_probabilities(histograms: IntArray, noise: NoiseLaw) -> FloatArray:
    """Pr[the class wins], as `log_win_probabilities` has it."""
    return np.asarray(np.exp(log_win_probabilities(histograms, noise)))


def top_class_probability(histograms: IntArray, noise: NoiseLaw) -> FloatArray:
    """Pr[the first class wins] for histograms ``[queries, classes]`` whose first class has most votes."""
    return np.asarray(win_probabilities(histograms, noise)[:, 0])
