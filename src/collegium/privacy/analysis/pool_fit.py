"""Whether a public pool covers the private records: their noisy counts by cells, tested against the pool's own counts.

`models.coverage` says what the cells are: regions around landmarks, then intervals of distance from the nearest one.
If records and pool were drawn from one distribution, the shares of the cells would differ by chance alone. Two
statistics are compared with 2,000 draws of that case: χ² over all cells, and how far the records' share beyond each
edge passes the pool's, in standard errors. Draws and standard errors include the noise. Each has half of `LEVEL`, so
a pool that fits is flagged in at most about that share of cases. It is more of them where records come in clusters:
those of one person count as one, but those of one institution do not.
"""

import numpy as np

from collegium.settings import Frozen
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import IntArray

LEVEL = 0.02
"""The share of pools that fit and are flagged all the same."""
_SURELY = 0.002
_DRAWS = 2_000
_SIGNAL = 3.0


class PoolFit(Frozen):
    """What the counts say; ``p_value`` is None where the noise is larger than the counts.

    Attributes
    ----------
    missing : the estimated share of the records that lie where the pool has too few inputs.
    noticed : records far from all of the pool are noticed from about this share on, in 19 of 20 cases.
    """

    p_value: float | None
    missing: float
    noticed: float

    @property
    def flagged(self) -> bool:
        return self.p_value is not None and self.p_value <= LEVEL

    @property
    def surely_unfit(self) -> bool:
        """Flagged by what hardly one pool in 500 that fits shows."""
        return self.p_value is not None and self.p_value <= _SURELY

    def __str__(self) -> str:
        if self.p_value is None:
            return "Whether the pool fits the records could not be told: the noise is larger than the counts."
        if self.flagged:
            return (
                f"The pool may not fit the records: about {100 * self.missing:.0f} % of them lie where it has too few "
                f"inputs (p = {self.p_value:.2g}). Look for a class, a group or a unit of measurement that it lacks, "
                "and add such inputs to it before you buy labels, or do without a pool (tables, vectors)."
            )
        return (
            f"The pool shows no gap (p = {self.p_value:.2g}); if {100 * min(1.0, self.noticed):.0f} % of the records "
            "lay far from it, that would have been noticed."
        )


def pool_fit(reference: IntArray, counts: FloatArray, noise_variance: float, regions: int) -> PoolFit:
    """Test whether records and pool may come from one distribution.

    Parameters
    ----------
    reference : the pool's inputs in each cell, without the landmarks, ``[cells]``.
    counts : noisy, of the records, ``[cells]``.
    noise_variance : of each count, in records².
    regions : the number of cells before the intervals of distance.
    """
    inputs, records, cells = int(reference.sum()), float(counts.sum()), len(counts)
    if records <= _SIGNAL * np.sqrt(noise_variance * cells):
        return PoolFit(p_value=None, missing=0.0, noticed=1.0)
    generator, shares = np.random.default_rng(0), reference / inputs
    drawn = generator.multinomial(round(records), shares, _DRAWS).astype(np.float64)
    drawn += generator.normal(0.0, np.sqrt(noise_variance), drawn.shape)
    found = _statistics(reference[None].astype(np.float64), counts[None], noise_variance, regions)
    usual = _statistics(
        generator.multinomial(inputs, shares, _DRAWS).astype(np.float64), drawn, noise_variance, regions
    )
    chances = [(1 + int((own >= value).sum())) / (_DRAWS + 1) for value, own in zip(found[:2], usual[:2], strict=True)]
    limit = float(np.quantile(usual[1], 1.0 - LEVEL / 2.0))
    return PoolFit(
        p_value=min(1.0, 2.0 * min(chances)),
        missing=max(0.0, float(found[2][0] - usual[2].mean())),
        noticed=(limit + 1.645) * float(found[3][0]),
    )


def _statistics(
    reference: FloatArray, counts: FloatArray, noise_variance: float, regions: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """χ², the largest excess beyond an edge in standard errors, excess of all cells, error beyond the first edge.

    Each ``[draws]``; both kinds of counts are ``[draws, cells]``.
    """
    inputs, cells = reference.sum(axis=1, keepdims=True), reference.shape[1]
    records = np.maximum(1.0, counts.sum(axis=1, keepdims=True))
    sampled, noise = 1.0 / inputs + 1.0 / records, noise_variance / records**2
    differences, positive = counts / records - reference / inputs, np.maximum(counts, 0.0)
    shares = np.maximum((reference + positive) / (inputs + positive.sum(axis=1, keepdims=True)), 1.0 / inputs)
    # A share's noise is that of its count less its share of the whole sum's noise.
    variances = shares * sampled + noise * ((1.0 - shares) ** 2 + (cells - 1) * shares**2)
    beyond = np.cumsum(differences[:, : regions - 1 : -1], axis=1)
    tails = np.cumsum(reference[:, : regions - 1 : -1], axis=1) / inputs
    tails = np.clip(tails, 1.0 / inputs, 1.0 - 1.0 / inputs)
    wide = np.arange(1, cells - regions + 1)
    errors = np.sqrt(tails * (1.0 - tails) * sampled + noise * (wide * (1.0 - tails) ** 2 + (cells - wide) * tails**2))
    excess = np.maximum(differences, 0.0).sum(axis=1)
    return (differences**2 / variances).sum(axis=1), (beyond / errors).max(axis=1), excess, errors[:, -1]
