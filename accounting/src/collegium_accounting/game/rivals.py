"""Positions among rivals whose own noise counts: a vote moves from class a to class b under integer Laplace noise.

The plane of ``planes`` takes M, the largest noisy count of the other classes, as fixed. No maximum of independent
Laplace noises is: Pr[M ≤ u] = e^{−Λ(u)}, and Λ falls by no more than a factor c per vote, however many rivals there are
and whatever their counts. A position is then d, the difference of the counts of a and b, and a round gains at most the
largest expectation over the laws that M can have: docs/research/exact-accountant.md, Lemmas 8 and 9.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from collegium_accounting.elementary import FloatArray, exp, expm1, interpolate, log, log1p
from collegium_accounting.game.cells import Cells
from collegium_accounting.game.curves import CellCurves, Positions, Sampling, enveloped_curves
from collegium_accounting.units import IntArray

_REACH = 16.0
"""M is followed so many scales beyond a and b; a cell of larger |d| has no end."""

_END = 64.0
"""Where that cell is said to end, for whoever divides it."""

_BELOW, _ABOVE = 4.0, 6.0
"""From so many scales above the higher to so many below the lower of a and b the place of M is searched closely;"""

_SURELY_BELOW, _SURELY_ABOVE = 3.7, 36.0
"""elsewhere by cells of a scale, until M's law is at one end: e^{−e^{3.7}} and e^{−36} are 1e-16 and less."""

_STEPS = 10.0
"""Steps of M's place in a scale: a step is some votes, one vote or, down to ``_SMALLEST_SHARE``, a share of it."""

_SMALLEST_SHARE = 8

_MANY = 50
"""Of more points k than these every second is computed."""

_VANISHED = 200.0
"""Scales beyond which no power of ρ is told from 0: e^{−200} = 1e-87."""

_ROUNDING = 5e-15
"""More than sums and products of a few probabilities err by in double precision."""


@dataclass(frozen=True)
class IntegerLaplace:
    """The noise Pr[Z = z] = (1 − ρ)/(1 + ρ)·ρ^{|z|} in closed forms; ρ = e^{−1/scale}, scale in votes."""

    scale: float

    @cached_property
    def rho(self) -> float:
        return float(exp(-1.0 / self.scale))

    @property
    def most(self) -> float:
        """Pr[Z ≤ 0]."""
        return 1.0 / (1.0 + self.rho)

    @property
    def largest_fall(self) -> float:
        """log 1/c: by how much log(−log Pr[Z ≤ v]) falls from v to v + 1, at most; Lemma 8."""
        whole, rho = float(log1p(self.rho)), self.rho
        of_minus_one = whole / (whole + 1.0 / self.scale)
        of_zero = 1.0 - float(log1p(rho * (1.0 - rho))) / whole
        return -float(log(min(of_minus_one, of_zero)))

    @cached_property
    def _powers(self) -> FloatArray:
        return exp(np.arange(math.ceil(_VANISHED * self.scale)) * (-1.0 / self.scale))

    def power(self, n: IntArray) -> FloatArray:
        """ρ^n for n ≥ 0."""
        return self._powers[np.minimum(n, len(self._powers) - 1)]

    def below(self, v: IntArray) -> FloatArray:
        """F(v) = Pr[Z ≤ v]."""
        tail = self.most * self.power(np.where(v <= 0, -v, v + 1))
        return np.where(v <= 0, tail, 1.0 - tail)

    def duel(self, d: IntArray) -> FloatArray:
        """Pr[Z₁ + d ≥ Z₂]."""
        rho, n = self.rho, np.where(d <= 0, -d, d + 1)
        tail = (
            self.power(n) * (n * (1.0 - rho * rho) + 1.0 + rho + 2.0 * rho * rho) * (self.most * self.most * self.most)
        )
        return np.where(d <= 0, tail, 1.0 - tail)

    def first(self, x: IntArray, y: IntArray) -> FloatArray:
        """Pr[Z₁ + x > 0 and Z₁ + x ≥ Z₂ + y]: who stands at x beats M, which is at 0, and the one at y."""
        rho, most = self.rho, self.most
        short, long, ahead = np.minimum(x, 1), np.maximum(x, 1), np.maximum(y, 1)
        # Σ f(u − x)·ρ^u over u ≥ 1
        weighted = np.where(
            x <= 1,
            most * most * self.power(2 - short),
            self.power(long) * most * ((1.0 - rho) * long + most * rho * rho),
        )
        low = self.below(x - 1) - most * self.power(1 - np.minimum(y, 1)) * weighted
        inside = (1.0 - rho) * most * ahead + rho * (1.0 - most * most * rho * rho)
        middle = most * self.power(ahead - short) * inside
        high = self.duel(x - ahead) - most * most * most * self.power(long + ahead)
        return np.where(y <= 1, low, np.where(x <= 1, middle, high))


@dataclass(frozen=True)
class Rivals(Positions):
    """Differences d = x − y of the counts of a and b, in votes; each stands for two, as the rules of ties are two.

    Attributes
    ----------
    scale : of the noise, in votes.
    """

    scale: float
    _found: dict[bytes, dict[int, FloatArray]] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def noise(self) -> IntegerLaplace:
        """The noise on every count."""
        return IntegerLaplace(self.scale)

    def roots(self) -> Cells:
        """Intervals of d; exchanging a and b, 1 − d for d, exchanges them."""
        ends = {2 + math.ceil(k * self.scale) for k in (0, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 10, 12, _REACH, _END)}
        above = sorted(ends)
        right = [*pairwise(above)]
        return Cells(np.array([*((1 - b, 1 - a) for a, b in right), (0, 0), (1, 1), *right], dtype=np.int64))

    def corners(self, cells: Cells) -> FloatArray:
        """(Q, ℓ) of the duel of a and b, without rivals, at the ends of each cell; ``[2, 2, 2 outcomes, cells]``."""
        found = []
        for d in cells.bounds.T:
            p = np.stack([self.noise.duel(d), self.noise.duel(-d - 1)])
            q = np.stack([self.noise.duel(d - 2), self.noise.duel(1 - d)])
            found.append(np.stack([q, log(p / q)]))
        return np.stack(found)

    def curves(self, cells: Cells, sampling: Sampling, grid: FloatArray, signed: bool) -> CellCurves:
        """A bound on G for each cell, whatever the rivals; the corners are duels."""
        share, plain = sampling.unsampled(grid)
        size = np.where(np.isfinite(plain), np.abs(plain), np.inf)
        sizes = np.unique(size[np.isfinite(size)])
        place = np.minimum(np.searchsorted(sizes, size), len(sizes) - 1)
        table = self._found.setdefault(sizes.tobytes(), {})
        envelope = np.empty((len(cells.bounds), len(grid)))
        for row, (low, high) in zip(envelope, cells.bounds.tolist(), strict=True):
            above = self._largest(table, sizes, low, high)[place]
            # Exchanging the data sets and the classes turns k and d into 1/k and 1 − d.
            under = self._largest(table, sizes, 1 - high, 1 - low)[place] * exp(np.minimum(plain, 0.0))
            row[:] = np.where(np.isfinite(plain), share * np.where(plain >= 0.0, above, under), 0.0)
        return enveloped_curves(self.corners(cells), sampling, grid, envelope)

    def _largest(self, table: dict[int, FloatArray], log_k: FloatArray, low: int, high: int) -> FloatArray:
        """A bound on G at k ≥ 1 for every d in [low, high]: that of its end next to 0, and what lies beyond it."""
        near = low if low > 0 else high
        if near not in table:
            table[near] = self._along(near, log_k)
        k, least = exp(log_k), self.noise.rho * self.noise.rho
        ends = np.array([low, high])
        if high >= 2 + math.ceil(_END * self.scale):
            ends[1] = 2**40
        if low <= -1 - math.ceil(_END * self.scale):
            ends[0] = -(2**40)
        moved_p, moved_q = (float(np.diff(self.noise.duel(ends - lag))[0]) for lag in (0, 2))
        beyond = np.maximum(0.0, 1.0 - k * least) * moved_p
        if low <= 0:
            beyond = np.maximum(beyond, 2.0 * (k - least) * moved_q)
        return np.where(log_k < 2.0 / self.scale, table[near] + (beyond if low < high else 0.0), 0.0)

    def _along(self, d: int, log_k: FloatArray) -> FloatArray:
        """`_gain` at some k, and chords: it is convex in k, and 0 where log k is 2/scale, as no log-ratio is larger."""
        inside = log_k[log_k < 2.0 / self.scale]
        if not len(inside):
            return np.zeros(len(log_k))
        some = np.append(inside[: -1 : 2 if len(inside) > _MANY else 1], inside[-1])
        knots = exp(np.append(some, 2.0 / self.scale))
        return interpolate(exp(log_k), knots, np.append(self._gain(d, some), _ROUNDING))

    def _gain(self, d: int, log_k: FloatArray) -> FloatArray:
        """Lemma 9: a bound on G at k ≥ 1 where a and b differ by d, over all laws of M and both rules of ties."""
        k = exp(log_k)[:, None]
        reach = math.ceil(_REACH * self.scale)
        low, high = min(0, d) - reach, max(0, d) + reach
        levels = [self._laws(np.arange(high, low - 1, -1), d + tie, tie) for tie in (0, 1)]
        p_a, q_a, p_r, q_r = (np.stack(pair, axis=-1).ravel() for pair in zip(*levels, strict=True))
        of_a, of_rest = p_a - k * q_a, np.maximum(p_r - k * q_r, 0.0)
        far = -expm1(-2.0 / self.scale) * float(self.noise.below(np.array([low - 1]))[0])
        far += float(self.noise.power(np.array([d - low]))[0]) / self.scale
        most = np.zeros(len(log_k))
        # Where a is ahead, the rest of the outcomes is never likelier under P: Lemma 10.
        for gain in (of_rest, of_rest + of_a) if d <= 0 else (of_a,):
            start = np.maximum(gain[:, 0], gain[:, 1])[:, None]
            whole = np.concatenate([start, gain, np.maximum(gain[:, -1:], far)], axis=1)
            most = np.maximum(most, self._expected(unimodal(whole), abs(d), reach))
        return most + _ROUNDING

    def _laws(self, x: IntArray, d: int, tie: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Pr[a] and Pr[rest] under P and under Q; ``tie`` is 1 where b wins when a and b are level."""
        noise, found = self.noise, []
        for moved in (0, 1):
            at, rival = x - moved, x - d + moved
            found.append((noise.first(at, rival + tie), noise.below(-at) * noise.below(-rival)))
        (p_a, p_r), (q_a, q_r) = found
        return p_a, q_a, p_r, q_r

    def _expected(self, gain: FloatArray, apart: int, reach: int) -> FloatArray:
        """The largest expectation of unimodal gains, ``[k, levels]``, over all places of M's extremal law.

        Level 0 is M = −∞, the levels 2i + 1 and 2i + 2 are the two rules of ties at one place, the last is M = ∞. Gains
        are rounded up to whole numbers, and remain unimodal; products of whole numbers are exact in any order.
        """
        place = self._place
        exponent = np.frexp(gain.max(axis=1) - gain.min(axis=1))[1] - place.bits
        whole = np.ceil(np.ldexp(gain, -exponent[:, None]))
        rise = np.diff(whole, axis=1)
        parts = [part[:, tie::2] for tie in (0, 1) for part in (np.maximum(rise, 0.0), np.minimum(rise, 0.0))]
        weights = place.weights(apart, reach)
        nodes = np.concatenate([place.at_nodes(part, len(weights) // 4) for part in parts], axis=1)
        most = np.ldexp((nodes @ weights).max(axis=1), -place.bits) / place.stride
        return np.asarray(np.ldexp(whole[:, 0] + most, exponent))

    @cached_property
    def _place(self) -> "Place":
        return Place(self.scale, self.noise.largest_fall)


@dataclass(frozen=True)
class Place:
    """Where M's extremal law may lie: level i begins at time s + i, and the time is ≤ t with probability e^{−c^t}.

    Attributes
    ----------
    scale : of the noise, in votes.
    fall : log 1/c.
    """

    scale: float
    fall: float
    _made: dict[int, FloatArray] = field(default_factory=dict, compare=False, repr=False)

    @property
    def shares(self) -> int:
        """Into how many units of time a vote is divided."""
        return min(_SMALLEST_SHARE, math.ceil(_STEPS / self.scale))

    @property
    def stride(self) -> int:
        """Units of time between two places, and votes between two nodes."""
        return max(1, int(self.scale / _STEPS))

    @property
    def reserve(self) -> float:
        """What chords between places and between nodes miss, at most, per unit of ψ's second derivative by log Λ."""
        w = self.stride
        return self.fall * self.fall / 8.0 * (2.0 * w * w + 1.0 if w > 1 else 1.0 / (self.shares * self.shares))

    @property
    def bits(self) -> int:
        """Of gains and of weights: sums of products stay below 2^52, as rises and falls are at most the range each."""
        return (50 - self.stride.bit_length()) // 2

    def at_nodes(self, rise: FloatArray, count: int) -> FloatArray:
        """``stride`` times the rises, ``[k, votes]``, shared out among the two nodes beside them; ``[k, count]``."""
        w = self.stride
        padded = np.pad(rise, ((0, 0), (0, count * w - rise.shape[1])))
        found = padded[:, ::w] * float(w)
        for k in range(1, w):
            found += padded[:, k::w] * float(w - k)
            found[:, 1:] += padded[:, k:-w:w] * float(k)
        return found

    def weights(self, apart: int, reach: int) -> FloatArray:
        """Pr[time ≥ start] of every node, in whole numbers; shape ``[4·nodes, places]``.

        Nodes are those of the first rule of ties, rises and falls, then those of the second. Rises are rounded up and
        falls down, with the reserve of Lemma 9.
        """
        bucket = max(1, int(self.scale / 4.0))
        apart = -(-apart // bucket) * bucket
        if apart not in self._made:
            self._made.clear()
            self._made[apart] = self._weights(apart, reach)
        return self._made[apart]

    def _weights(self, apart: int, reach: int) -> FloatArray:
        unit, upper, lower = self._table()
        origin, last = -unit[0], len(unit) - 1
        (rise_1, fall_1), (rise_2, fall_2) = self._places(apart, reach)
        nodes = -(-(2 * reach + apart + 2) // self.stride) + 1
        offsets = np.arange(nodes)[:, None] * self.shares * self.stride
        rows = [(upper, rise_1), (lower, fall_1), (upper, rise_2), (lower, fall_2)]
        return np.concatenate([table[np.clip(offsets + at + origin, 0, last)] for table, at in rows])

    def _table(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """Times in units, and bounds on Pr[time ≥ t] for rises and for falls."""
        vote = self.fall / self.shares
        unit = np.arange(-math.ceil(_SURELY_BELOW / vote) - 1, math.ceil(_SURELY_ABOVE / vote) + 2)
        z = unit * vote
        least = -expm1(-exp(-z))
        around = self.fall * (2.0 * self.stride + 1.0 if self.stride > 1 else (1.0 + 1e-6) / self.shares)
        high, low = exp(around - z), exp(-around - z)
        # (e^{−e^{−z}})″ = (v² − v)·e^{−v} with v = e^{−z}; its extremes are at v = (3 ± √5)/2.
        root = math.sqrt(5.0)
        bends = [(v * v - v) * exp(-v) for v in (np.clip((3.0 + side * root) / 2.0, low, high) for side in (1.0, -1.0))]
        up, down = (self.reserve * np.maximum(bend, 0.0) for bend in (bends[0], -bends[1]))
        upper = np.ceil(np.ldexp(least + up + 1e-15, self.bits))
        lower = np.floor(np.ldexp(np.maximum(least - down - 1e-15, 0.0), self.bits))
        upper[0], lower[-1] = max(upper[0], math.ldexp(1.0, self.bits)), 0.0
        return unit, upper, lower

    def _places(self, apart: int, reach: int) -> tuple[tuple[IntArray, IntArray], tuple[IntArray, IntArray]]:
        """Times at which the first level of each rule of ties begins, for rises and for falls, in units."""
        vote, scale = self.shares, self.scale
        first = -(reach + apart + math.ceil(_BELOW * scale)) * vote
        close = np.arange(first, -(reach - math.ceil(_ABOVE * scale)) * vote + self.stride + 1, self.stride)
        one = max(1, round(scale)) * vote
        surely = [math.ceil(n * vote / self.fall) for n in (_SURELY_BELOW, _SURELY_ABOVE)]
        before = np.arange(close[0], -(2 * reach + apart) * vote - surely[0] - 2 * one, -one)[::-1]
        after = np.arange(close[-1], surely[1] + 2 * one, one)
        edges = [np.stack([side[:-1], side[1:]]) for side in (before, after)]
        infinite = 2**40
        ends = np.array([[-infinite, after[-1]], [before[0], infinite]])
        begins, stops = np.concatenate([*edges, ends], axis=1)
        lifts = range(vote + 1)
        one_at_all = np.concatenate([*(close for _ in lifts), begins]), np.concatenate([*(close for _ in lifts), stops])
        lifted = [close + lift for lift in lifts]
        return one_at_all, (np.concatenate([*lifted, begins]), np.concatenate([*lifted, stops + vote]))


def unimodal(values: FloatArray) -> FloatArray:
    """The least values along the last axis that are not below the given ones and rise to one peak, then fall."""
    rising = np.maximum.accumulate(values, axis=-1)
    falling = np.maximum.accumulate(values[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray(np.minimum(rising, falling))
