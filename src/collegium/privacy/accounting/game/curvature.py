"""How far the three probabilities may be from bilinear on a rectangle of positions.

With A = (∂ₓ − ∂ᵧ)p the rate at which p changes as the vote moves, P − Q = ∫₀ʰ A(x − t, y + t) dt, and
bilinear interpolation over a rectangle with sides w misses a function g by at most
(w²/8)·(sup |gₓₓ| + sup |gᵧᵧ|). The derivatives are worked out in docs/privacy.md.
"""

import math

import numpy as np
from scipy.special import ndtr

from collegium.privacy.accounting.game.lattice import FAR_BELOW, FloatArray, Lattice
from collegium.privacy.units import IntArray


def plane_curvature(lattice: Lattice, vote_length: float, bounds: IntArray) -> FloatArray:
    """Bounds on the error of interpolating P − Q and Q over rectangles ``[cells, 4]``; shape ``[2, 3, cells]``.

    ``inf`` where interpolation has no meaning: integer noise, unbounded rectangles, and those across a kink.
    """
    x1, x2, y1, y2 = bounds.T
    unbounded = (x1 == FAR_BELOW) | (y1 == FAR_BELOW)
    if lattice.discrete:
        return np.full((2, 3, len(x1)), np.inf)
    width = np.where(unbounded, 0, np.maximum(x2 - x1, y2 - y1)) * lattice.step
    if lattice.family == "gaussian":
        low_x, low_y = np.where(unbounded, 0, x1), np.where(unbounded, 0, y1)
        x, y = np.stack([low_x, x2]) * lattice.step, np.stack([low_y, y2]) * lattice.step
        x[0] -= vote_length
        y[1] += vote_length
        a, b = _gaussian_first(x, y), _gaussian_first(y, x)
        rates, levels = np.stack([a[0], b[0], _gaussian_rest(x, y)[0]]), np.stack([a[1], b[1], _gaussian_rest(x, y)[1]])
    else:
        rates = np.repeat(np.array([[2.75], [2.75], [1.5]]), len(x1), axis=1)
        levels = np.repeat(np.array([[1.5], [1.5], [1.0]]), len(x1), axis=1)
        # The density's kink passes a where 0 ≤ x ≤ h and b where −h ≤ y ≤ 0: there P − Q bends by at most 1 more.
        vote = lattice.vote
        rates[0::2, (x1 >= 0) & (x2 <= vote)] += 1.0 / vote_length
        rates[1:, (y1 >= -vote) & (y2 <= 0)] += 1.0 / vote_length
        for low, high, kinks in ((x1, x2, (0, vote)), (y1, y2, (-vote, 0))):
            for kink in kinks:
                unbounded = unbounded | ((low < kink) & (kink < high))
    out = np.stack([vote_length * rates, levels]) * (width**2 / 8.0)
    out[:, :, unbounded] = np.inf
    return out


def _gaussian_first(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """sup |Aₓₓ| + sup |Aᵧᵧ| and sup |pₓₓ| + sup |pᵧᵧ| for Pr[a], over x and y in ranges ``[2, cells]``."""
    d, s = np.stack([x[0] - y[1], x[1] - y[0]]) / math.sqrt(2.0), np.stack([x[0] + y[0], x[1] + y[1]]) / math.sqrt(2.0)
    d0, d1, d2 = density_bounds(d)
    s0, s1, _ = density_bounds(s)
    x0, x1, x2 = density_bounds(x)
    _, y1, _ = density_bounds(y)
    above, below_y = ndtr(s[1]), ndtr(-y[0])
    bend = d2 * above / math.sqrt(8.0) + d1 * s0 / math.sqrt(2.0) + d0 * s1 / math.sqrt(8.0)
    slope = (d1 * above + d0 * s0) / 2.0
    return x2 * below_y + x0 * y1 + 4.0 * bend, x1 * below_y + 2.0 * slope


def _gaussian_rest(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same for Pr[rest]."""
    x0, x1, x2 = density_bounds(x)
    y0, y1, y2 = density_bounds(y)
    below_x, below_y = ndtr(-x[0]), ndtr(-y[0])
    return x2 * below_y + x1 * y0 + x0 * y1 + below_x * y2, x1 * below_y + below_x * y1


def density_bounds(z: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Suprema over the ranges ``[2, cells]`` of |φ|, |φ′| and |φ″|, φ the standard normal density."""
    near = np.where((z[0] <= 0) & (z[1] >= 0), 0.0, np.minimum(np.abs(z[0]), np.abs(z[1])))

    def phi(t: FloatArray) -> FloatArray:
        return np.asarray(np.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi))

    one, three = np.maximum(near, 1.0), np.maximum(near, math.sqrt(3.0))
    # |φ″| = |z² − 1|φ is at most φ(0) near 0 and falls beyond √3.
    second = np.where(near < math.sqrt(3.0), np.maximum(phi(near), 2.0 * phi(three)), (three**2 - 1.0) * phi(three))
    return phi(near), one * phi(one), second
