"""The game of T adaptively chosen rounds, played backwards: the largest value, and a policy that attains nearly it.

With s the loss so far minus ε and r = e^{−s}, V₀ = max(0, 1 − r) and V_{t+1}(s) is the supremum over positions
of Σ Pᵢ·V_t(s + log Pᵢ/Qᵢ); δ(ε) = V_T(−ε). V_t is convex in r, so chords between grid points of r lie above it.
A piecewise linear V with kinks dⱼ is a sum of hockey sticks, and one round adds Σ dⱼ·G(rᵢ/rⱼ) at rᵢ, with G the
curve of the position: the grid of s and that of log k are one.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from collegium_accounting.elementary import (
    FloatArray,
    exp,
    expm1,
    interpolate,
    normal_density,
    tail_ratio,
)
from collegium_accounting.errors import UnsupportedAccounting
from collegium_accounting.game.curves import Direction, Positions, Sampling
from collegium_accounting.game.front import BestCorner, Front
from collegium_accounting.game.lines import Line
from collegium_accounting.game.mirror import joined, reflected, reflected_kinks, reflected_test, seam

_TOLERANCE, _TOLERANCE_OF_MANY = 0.003, 0.006
"""The bound of one round may exceed what a position attains by this fraction of what the round adds
(the second where there are more than 100 rounds),"""

_ALLOWANCE = 0.01
"""or by this fraction of the value, divided by the number of rounds."""

_FINE = 0.1
"""Both are so much smaller where all positions lie on lines, which are cheap to divide,"""

_LEAST = 1e-11
"""and they are never smaller than this, divided by the number of rounds."""

_DEVIATIONS = 7.5
"""The grid covers losses up to so many standard deviations: beyond, probabilities are below 1e-13."""

_FEW, _STEPS_OF_FEW, _LEAST_OF_FEW = 10, 100, 1e-8
"""Up to ten rounds have at least so many steps of the grid up to the largest loss of one, and at least this slack. More
rounds are not enclosed as closely: it would lower their ε by a thousandth, and take more time."""

_TRIMMED, _TRIMMED_FROM, _TRIM = 8, 25, 5e-4
"""After so many rounds, of at least so many, the tails that hold this share of G are lumped together."""

_LARGEST_LOSS = 110.0
"""Privacy losses beyond it are not followed: with three such runs together, exponentials pass double precision."""

_NEGLIGIBLE = 1e-16
"""Rows that can gain no more than this gain this."""

_FLOOR = 1e-13
"""Values of more than ``_FEW`` rounds are raised to this and, each round, twice what every row gains at least: a tail
that is constant has no curvature and need not be searched."""

_OFTEN, _APART = 16, 8
"""Cells are divided in so many rounds, then in every eighth, and eight times while the number of rounds doubles."""

_ROUNDING = 1e-9
"""Relative reserve for double precision for every 1,000 points of the grid of log k: every sum has positive terms."""


@dataclass(frozen=True)
class Game:
    """The possible gains of one round.

    Attributes
    ----------
    families : positions that are searched.
    sampling : the pair of laws that a position stands for.
    largest_loss : |log P/Q| beyond which hockey-stick divergences are at most ``lost``.
    lost : see there; per direction.
    far : what a round at a position that is not searched adds, at most.
    """

    families: Sequence[Positions]
    sampling: Sampling
    largest_loss: float
    lost: float
    far: float


@dataclass(frozen=True)
class Values:
    """The value function after T rounds on the grid s = start + i·step.

    Attributes
    ----------
    upper : shape ``[rows]``, at least V_T.
    alpha, beta : a test and an adaptive policy per row: it rejects with probability α under the first data set
        and β under the second, so V_T(s) ≥ α − e^{−s}·β at every s.
    """

    start: float
    step: float
    upper: FloatArray
    alpha: FloatArray
    beta: FloatArray


def play(game: Game, rounds: int, progress: Callable[[int], None] | None = None) -> Values:
    """V after ``rounds`` rounds, from above and by a concrete policy; see `play_through`."""
    *_, last = play_through(game, rounds, progress)
    return last


def play_through(game: Game, rounds: int, progress: Callable[[int], None] | None = None) -> Iterator[Values]:
    """V after 0, 1, …, ``rounds`` rounds, from above and by a concrete policy.

    Each holds, and the last one is closest: grid and tolerances are chosen for ``rounds``.

    Parameters
    ----------
    game : what one round can be.
    rounds : T, at least 0.
    progress : told the number of rounds played so far.
    """
    deviation = _deviation(game)
    few = rounds <= _FEW
    step = deviation / (24.0 if few else 12.0 if rounds <= 100 else 8.0)
    if few:  # a row at the largest loss, where the δ of pure privacy begins to be 0, and many before it
        step = game.largest_loss / max(_STEPS_OF_FEW, math.ceil(game.largest_loss / step))
    most = _DEVIATIONS * deviation * math.sqrt(rounds) + 0.5 * rounds * deviation**2
    most = min(most, rounds * game.largest_loss)
    if most > _LARGEST_LOSS:
        raise UnsupportedAccounting(
            f"{rounds} such rounds lose up to {most:.0f}, and the exact accountant follows {_LARGEST_LOSS:g}; use the "
            "Rényi accountant"
        )
    half = math.ceil(most / step) + 1
    reach = math.ceil(game.largest_loss / step) + 1
    front = Front(game.families, game.sampling, multiples(-reach, reach, step), signed=few)
    s = multiples(-half, half, step)
    r = exp(-s)
    symmetric = game.sampling.direction is Direction.PLAIN
    upper = np.maximum(0.0, -expm1(-s))
    alpha = np.where(s > 0.0, 1.0, 0.0)
    beta = alpha.copy()
    yield Values(float(s[0]), step, upper, alpha, beta)
    floor = _FLOOR
    for played in range(rounds):
        if played == _TRIMMED and rounds >= _TRIMMED_FROM:
            front.trim(_TRIM)
        if played & (played - 1) == 0:
            front.restart()
        knots = reflected_kinks(kinks(upper, step), r) if symmetric else kinks(upper, step)
        padded = np.concatenate([np.zeros(reach), knots, np.zeros(reach)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)
        # Since G ≤ 1, a row gains at most what its window holds. Outside the window G is at most ``lost``.
        until, since = np.cumsum(padded), np.cumsum(padded[::-1])[::-1]
        lost = (game.lost + game.far) * float(until[-1])
        upper, floor = upper + lost + _NEGLIGIBLE, floor + 2.0 * (lost + _NEGLIGIBLE)
        live = np.flatnonzero(np.minimum(until[2 * reach :], since[: len(s)]) > _NEGLIGIBLE)
        beyond = seam(played, deviation, step, min(reach, half)) if symmetric else half
        live = live[live <= half + beyond]
        if not len(live):  # every value is 1: nothing is left to lose
            raise UnsupportedAccounting(f"{played} of {rounds} such rounds already tell everything; use more noise")
        rows = slice(int(live[0]), int(live[-1]) + 1)
        search = played < _OFTEN or played % max(_APART, 2 ** played.bit_length() // 16) == 0
        slack = _slack(game, played, rounds, deviation, s[rows], upper[rows]) if search else None
        gain, found = front.round(windows[rows], slack)
        if found is not None:
            choice, chosen = found, rows
        alpha, beta = _policy(choice, chosen, s, step, alpha, beta)
        upper[rows] += gain
        upper = np.minimum(1.0, upper if few else _raised(upper, floor))
        if symmetric:
            upper = joined(upper, r, beyond)
            alpha, beta = reflected_test(alpha, beta)
        if few:
            upper = _convex(upper, r)
            upper = reflected(upper, r) if symmetric else upper
        if progress is not None:
            progress(played + 1)
        certified = np.maximum.accumulate(np.minimum(1.0, upper * (1.0 + _ROUNDING * math.ceil(reach / 500))))
        yield Values(float(s[0]), step, certified, alpha, beta)


def multiples(first: int, last: int, step: float) -> FloatArray:
    """first·step, …, last·step."""
    return np.arange(first, last + 1, dtype=np.float64) * step


def _slack(
    game: Game, played: int, rounds: int, deviation: float, s: FloatArray, upper: FloatArray
) -> tuple[float, FloatArray]:
    """How loose the bound of this round may be, relative to its gain and absolutely; the result holds for any choice.

    What a round adds too much is carried into later values, so a row may also lose a share of what its value
    will be some rounds later; that is estimated by the Gaussian mechanism of the same variance.
    """
    fine = _FINE if all(isinstance(family, Line) for family in game.families) else 1.0
    tolerance = fine * (_TOLERANCE if rounds <= 100 else _TOLERANCE_OF_MANY) * (1.0 + 5.0 / (1 + played))
    follow = played + 2 + 0.2 * rounds
    later = gaussian_profile(s, deviation * math.sqrt(min(follow, rounds) if rounds <= _FEW else follow))
    share = fine * _ALLOWANCE * (0.25 / rounds + 0.1 / (1 + played))
    allowance = np.maximum(upper * (fine * _ALLOWANCE / rounds), later * share)
    return tolerance, np.maximum(allowance, _LEAST_OF_FEW if rounds <= _FEW else _LEAST / rounds)


def gaussian_profile(s: FloatArray, mu: float | FloatArray) -> FloatArray:
    """δ at ε = −s of a Gaussian mechanism of sensitivity over noise ``mu`` (Balle and Wang 2018, Theorem 8)."""
    upper, lower = s / mu + mu / 2.0, s / mu - mu / 2.0
    density = normal_density(upper)  # e^{−s} times that of lower
    tails = [tail_ratio(np.abs(x)) for x in (upper, lower)]
    between = 1.0 - density * (tails[0] + tails[1])
    return np.where(
        upper <= 0.0,
        density * (tails[0] - tails[1]),
        np.where(lower <= 0.0, between, density * (tails[1] - tails[0]) - expm1(-s)),
    )


def _deviation(game: Game) -> float:
    """The largest standard deviation of one round's loss at the roots' corners: the length scale of the grid."""
    largest = 0.0
    for family in game.families:
        corners = family.corners(family.roots())
        q, ell = corners[:, 0], np.where(corners[:, 0] > 0.0, corners[:, 1], 0.0)
        a, b = game.sampling.upper(ell), game.sampling.lower(ell)
        largest = max(largest, float((q * (a - b) * (a - b) / np.maximum(1.0 + b, 1.0 + a)).sum(axis=1).max()))
    return math.sqrt(largest)


def kinks(value: FloatArray, step: float) -> FloatArray:
    """rⱼ times the change of slope at rⱼ of the chords through ``value``, constant beyond the largest r, 1 at r = 0."""
    rise = np.diff(value) / -expm1(-step)
    right = np.append(rise, 1.0 - value[-1])
    left = np.insert(rise, 0, 0.0) * exp(-step)
    return np.maximum(right - left, 0.0)


def _raised(value: FloatArray, floor: float) -> FloatArray:
    """No value below ``floor``: convex functions stay so, and whoever may take the floor once gains no more than it."""
    return np.maximum(value, floor)


def _convex(value: FloatArray, r: FloatArray) -> FloatArray:
    """``value`` lowered to its neighbours' chords where it lies above them: a convex function below it stays so."""
    kept = np.arange(len(value))
    while True:
        slope = np.diff(value[kept]) / np.diff(r[kept])
        above = np.flatnonzero(np.diff(slope) > 0.0) + 1
        if not len(above):
            return interpolate(-r, -r[kept], value[kept])
        kept = np.delete(kept, above)


def _policy(
    choice: BestCorner, rows: slice, s: FloatArray, step: float, alpha: FloatArray, beta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """At each row the best corner, and after it the better of the two nearest rows' tests; or what there was."""
    upper, lower = choice.upper, choice.lower
    target = np.arange(rows.start, rows.stop)[:, None] + choice.loss / step
    target = np.clip(np.nan_to_num(target, nan=0.0), 0.0, len(s) - 1.0)
    below = np.floor(target).astype(np.int64)
    above = np.minimum(below + 1, len(s) - 1)
    r = exp(-s[rows])[:, None]

    def value(row: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> FloatArray:
        return np.asarray(upper * alpha[row] - r * lower * beta[row])

    chosen = np.where(value(above) > value(below), above, below)
    new_alpha, new_beta = (upper * alpha[chosen]).sum(axis=1), (lower * beta[chosen]).sum(axis=1)
    better = new_alpha - r[:, 0] * new_beta > alpha[rows] - r[:, 0] * beta[rows]
    alpha, beta = alpha.copy(), beta.copy()
    alpha[rows], beta[rows] = np.where(better, new_alpha, alpha[rows]), np.where(better, new_beta, beta[rows])
    return alpha, beta
