"""The law of the noisy argmax of a histogram, from one pass over a grid."""

import numpy as np

from collegium_accounting.divergences.grids import NoiseLaw, tables
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import IntArray


def log_win_probabilities(histograms: IntArray, noise: NoiseLaw) -> FloatArray:
    """log Pr[the class wins] under the noise of a release, for ``histograms`` ``[queries, classes]``, in that shape."""
    if noise.kind == "gumbel":
        score = (histograms - histograms.max(axis=1, keepdims=True)) / noise.scale
        return np.asarray(score - np.log(np.exp(score).sum(axis=1, keepdims=True)))
    table = tables(noise, int(histograms.max()), histograms.shape[1])
    below, upto = table.below[histograms], table.upto[histograms]
    before = np.cumsum(below, axis=1) - below
    after = np.cumsum(upto[:, ::-1], axis=1)[:, ::-1] - upto
    integrand = table.density[histograms] + before + after
    peak = integrand.max(axis=2)
    return np.asarray(peak + np.log(np.exp(integrand - peak[:, :, None]).sum(axis=2)))


def win_probabilities(histograms: IntArray, noise: NoiseLaw) -> FloatArray:
    """Pr[the class wins], as `log_win_probabilities` has it."""
    return np.asarray(np.exp(log_win_probabilities(histograms, noise)))
