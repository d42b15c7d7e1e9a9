"""The other half of a value function: exchanging the two data sets reflects it at r = 1.

Where the positions are the same after the exchange, V(r) = 1 − r + r·V(1/r): docs/research/exact-accountant.md,
Lemma 12. So rows beyond the middle of the grid need no search, and curvature there, where V is nearly 1 − r, keeps its
precision.
"""

import numpy as np

from collegium_accounting.elementary import FloatArray

_SEAM = 0.5
"""Rows so many standard deviations of the loss beyond the middle are searched too: the halves meet smoothly."""


def seam(rounds: int, deviation: float, step: float, most: int) -> int:
    """How many rows beyond the middle are searched after so many rounds; at most ``most``."""
    return min(most, int(_SEAM * np.sqrt(float(rounds)) * deviation / step))


def joined(upper: FloatArray, r: FloatArray, beyond: int) -> FloatArray:
    """Bounds on V at all r from those at rows up to ``beyond`` after the middle.

    Near the middle a row has two bounds, its own and its reflection's, and takes a mean of both: weights that change
    smoothly, so that no kink is made where the halves meet.
    """
    half = len(r) // 2
    near = slice(half - beyond, half + beyond + 1)
    part = np.arange(2 * beyond + 1) / (2.0 * max(1, beyond))
    weight = part * part * (3.0 - 2.0 * part)
    found = upper.copy()
    found[near] = (1.0 - weight) * upper[near] + weight * _reflected(upper, r)[near]
    return reflected(found, r)


def reflected(upper: FloatArray, r: FloatArray) -> FloatArray:
    """Bounds on V at all r from those at the first half of the rows, the middle one included."""
    half = len(r) // 2
    found = upper.copy()
    found[half + 1 :] = _reflected(upper, r)[half + 1 :]
    return found


def reflected_kinks(knots: FloatArray, r: FloatArray) -> FloatArray:
    """The kinks of such a V at all r, from those at the first half of the rows: that at r is r times that at 1/r."""
    half = len(r) // 2
    found = knots.copy()
    found[half + 1 :] = r[half + 1 :] * knots[:half][::-1]
    return found


def reflected_test(alpha: FloatArray, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Tests for all rows from those of the first half: with the data sets exchanged, accept instead of reject."""
    half = len(alpha) // 2
    return (
        np.concatenate([alpha[: half + 1], 1.0 - beta[:half][::-1]]),
        np.concatenate([beta[: half + 1], 1.0 - alpha[:half][::-1]]),
    )


def _reflected(upper: FloatArray, r: FloatArray) -> FloatArray:
    return np.asarray(1.0 - r * (1.0 - upper[::-1]))
