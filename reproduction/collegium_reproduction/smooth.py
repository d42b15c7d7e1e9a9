"""A data-dependent cost that may be published: smooth sensitivity over the sum of the queries' costs.

Neighbours differ in one teacher, which changes one vote in *every* query. The cost is a sum of a
non-increasing function of each query's gap, and one vote moves a gap by at most 2.

Upper bound. Let Δ(u) = c(u) − c(u + 2) and A(g, t) = max Δ(u) over g − 2t − 2 ≤ u ≤ g + 2t. After t teachers
have changed, a gap g′ has |g′ − g| ≤ 2t, and one more teacher makes it g″ with |g″ − g′| ≤ 2; c being
non-increasing, |c(g′) − c(g″)| ≤ Δ(min(g′, g″)) ≤ A(g, t). Summed over the queries this bounds the local
sensitivity at distance t. Smooth. For a neighbour with gaps g₁, |g₁ − g| ≤ 2 gives A(g₁, t) ≤ A(g, t + 1), so
S = max over t of e^{−βt}·Σ A(g, t) changes by a factor of at most e^β (Nissim, Raskhodnikova, Smith 2007).

Release. f + s·S·N(0, 1). With ρ = S′/S ∈ [e^{−β}, e^β] and |f − f′| ≤ min(S, S′), two Gaussians of unequal variance
have D_α ≤ α·w/(2s²) + v, where w = e^{−2β}/(1 − α(1 − e^{−2β})) is the largest of min(1, ρ²)/(1 + α(ρ² − 1)) and v
the larger of v(e^β), v(e^{−β}) for v(ρ) = log ρ + log(ρ²/(1 + α(ρ² − 1)))/(2(α − 1)); finite for α(1 − e^{−2β}) < 1.
This is the Gaussian smooth-sensitivity mechanism of Papernot et al. 2018 with its constant worked out exactly.
The scale is published too: log S changes by at most β, so log S + β·τ·N(0, 1) costs α/(2τ²).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

import numpy as np

from collegium.errors import ConfigurationError, DataError, UnsupportedAccounting
from collegium_accounting.mechanisms.base import Mechanism
from collegium_accounting.mechanisms.labels import LabelMechanism
from collegium_accounting.renyi import Conversion, FloatArray, RenyiCurve, check_orders
from collegium_accounting.units import IntArray, Unit
from collegium_reproduction.gap_envelope import gap_envelope, gaps_of

_system = random.SystemRandom()


@dataclass(frozen=True, repr=False, eq=False)
class Secret:
    """A number computed from votes without noise: it never shows itself, and is read by ``reveal()`` alone."""

    _value: float

    def reveal(self) -> float:
        """The number. Whoever calls this must not publish it."""
        return self._value

    def __repr__(self) -> str:
        return "<secret>"

    __str__ = __repr__

    def __format__(self, format_spec: str) -> str:
        return "<secret>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written to files")


@dataclass(frozen=True)
class SanitisedCost:
    """What may be published about the labels' data-dependent cost.

    Parameters
    ----------
    order : the Rényi order that it belongs to, fixed before the votes were seen.
    estimate : the cost plus noise, in nats; may be above or below the truth.
    ceiling : at least the true cost, except with probability ``failure``.
    failure : over the release's own noise.
    charge : what the release of both costs by itself, to be added to the labels' cost.
    """

    order: float
    estimate: float
    ceiling: float
    failure: float
    charge: RenyiCurve


@dataclass(frozen=True)
class SmoothRelease:
    """The noise of a release, chosen before the votes are seen.

    Parameters
    ----------
    beta : smoothness; orders above 1/(1 − e^{−2β}) cost infinity.
    noise : s, the noise on the cost in units of the smooth sensitivity.
    scale_noise : τ, the noise on log S in units of β.
    """

    beta: float = 0.02
    noise: float = 5.0
    scale_noise: float = 10.0

    def __post_init__(self) -> None:
        for name in ("beta", "noise", "scale_noise"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ConfigurationError(f"a smooth release needs a positive {name}; got {value}")

    def charge(self, orders: Sequence[float]) -> RenyiCurve:
        """Cost of publishing estimate and scale, whatever the votes; the proof is at the top of this file."""
        alpha = np.asarray(check_orders(orders))
        shrink = -math.expm1(-2.0 * self.beta)
        left = 1.0 - alpha * shrink
        values = np.full(len(alpha), math.inf)
        fine = left > 0.0
        for ratio in (self.beta, -self.beta):
            mixed = 1.0 + alpha[fine] * math.expm1(2.0 * ratio)
            spread = ratio + (2.0 * ratio - np.log(mixed)) / (2.0 * (alpha[fine] - 1.0))
            values[fine] = spread if ratio > 0 else np.maximum(values[fine], spread)
        location = alpha[fine] * math.exp(-2.0 * self.beta) / (2.0 * self.noise**2 * left[fine])
        values[fine] += location + alpha[fine] / (2.0 * self.scale_noise**2)
        return RenyiCurve(tuple(alpha), values)

    def release_epsilon(
        self,
        counts: IntArray,
        envelope: FloatArray,
        order: float,
        orders: Sequence[float],
        failure: float = 1e-6,
        normal: Callable[[], float] = lambda: _system.gauss(0.0, 1.0),
    ) -> SanitisedCost:
        """Release Σ envelope[gap] over the queries of ``counts`` ``[queries, classes]``, and account for doing so.

        ``order`` is the one that ``envelope`` was made for, ``orders`` the grid of the charge; ``normal`` draws
        standard normals, from the operating system's randomness unless a test brings its own.

        Raises
        ------
        ConfigurationError : ``failure`` outside (0, 1).
        DataError : a gap beyond the envelope.
        """
        if not 0.0 < failure < 1.0:
            raise ConfigurationError(f"a failure probability lies in (0, 1); got {failure}")
        cost, sensitivity = (
            total_cost(counts, envelope).reveal(),
            smooth_sensitivity(counts, envelope, self.beta).reveal(),
        )
        tail = math.sqrt(2.0 * math.log(2.0 / failure))  # each Gaussian stays below it except with failure/2
        estimate = cost + self.noise * sensitivity * normal()
        log_scale = math.log(sensitivity) + self.beta * self.scale_noise * normal() if sensitivity else -math.inf
        width = self.noise * tail * math.exp(log_scale + self.beta * self.scale_noise * tail)
        # No cost is above the data-independent one, which is public.
        ceiling = min(estimate + width, len(counts) * float(envelope[0]))
        return SanitisedCost(order, estimate, ceiling, failure, self.charge(orders))


def publishable_epsilon(  # noqa: PLR0913 -- each is an option of `account --publish`
    mechanism: Mechanism,
    counts: IntArray,
    order: float,
    delta: float,
    conversion: Conversion,
    unit: Unit,
    *,
    queries_chosen: Literal["beforehand", "by-labels"] | None,
) -> float:
    """A data-dependent ε with noise by smooth sensitivity, its own cost and its failure probability included.

    Parameters
    ----------
    mechanism : Mechanism
        What released the labels: one noisy argmax per query.
    counts : int64 array
        Votes, shape ``[queries, classes]``.
    order : float
        The Rényi order, above 1, fixed before the votes were seen.
    delta : float
        δ of the guarantee.
    conversion : Conversion
        From Rényi to (ε, δ).
    unit : Unit
        Whose data are protected: one vote that moves, which is what the smooth sensitivity is proven for.
    queries_chosen : str or None
        ``beforehand``, or ``by-labels`` where labels that were released decided on later queries. The costs of the
        queries that came to be asked then bound nothing: with other labels others had been asked, at other costs.

    Raises
    ------
    ConfigurationError
        Unless it is said how queries were chosen, or for an order that is none.
    UnsupportedAccounting
        Where labels chose queries, for another unit, and for a mechanism without an envelope of its cost over the gap.
    """
    if queries_chosen is None:
        raise ConfigurationError(
            "say how the queries were chosen: --queries-chosen beforehand where no released label decided on one, else "
            "publish the data-independent ε"
        )
    if queries_chosen != "beforehand":
        raise UnsupportedAccounting(
            "no data-dependent ε holds where labels chose the queries: the costs of those that were asked bound "
            "nothing; publish the data-independent ε"
        )
    if order <= 1.0:
        raise ConfigurationError(f"--publish takes a Rényi order above 1, such as 6; got {order:g}")
    if unit != Unit():
        raise UnsupportedAccounting(
            "--publish is proven for one vote that moves, under replace adjacency: it knows no ε of a party with "
            "several teachers and none under add-remove; publish the data-independent ε"
        )
    law = mechanism.noise_law(discrete=True) if isinstance(mechanism, LabelMechanism) else None
    screened = isinstance(mechanism, LabelMechanism) and mechanism.screen_law(discrete=True) is not None
    if law is None or not law.discrete or screened:
        raise UnsupportedAccounting(
            f"--publish knows mechanisms that release one noisy argmax under Laplace or Gaussian noise, "
            f"not {mechanism.name}; publish the data-independent ε"
        )
    released = SmoothRelease().release_epsilon(
        counts, envelope_for(counts, law.kind, law.scale, order), order, (order,), delta / 10
    )
    cost = released.ceiling + float(released.charge.values[0])
    return RenyiCurve((order,), np.array([cost]), released.failure).to_epsilon(delta, conversion).epsilon


def total_cost(counts: IntArray, envelope: FloatArray) -> Secret:
    """Σ over queries of ``envelope`` at the query's gap, in nats."""
    return Secret(float(envelope[_gaps(counts, envelope)].sum()))


def smooth_sensitivity(counts: IntArray, envelope: FloatArray, beta: float) -> Secret:
    """S of the cost: e^β-smooth, and at least the local sensitivity. Time grows with votes² alone."""
    occurrences = np.bincount(_gaps(counts, envelope), minlength=len(envelope))
    return Secret(max(math.exp(-beta * t) * bound for t, bound in enumerate(local_bounds(occurrences, envelope))))


def local_bounds(occurrences: IntArray, envelope: FloatArray) -> list[float]:
    """Σ A(g, t) for t = 0, 1, … until it no longer grows; ``occurrences`` counts the queries of each gap."""
    last = len(envelope) - 1
    drop = envelope - envelope[np.minimum(np.arange(last + 1) + 2, last)]
    largest = np.maximum.reduce([drop, *(_shifted(drop, by) for by in (-2, -1))])
    bounds = []
    for _ in range(last // 2 + 2):
        bounds.append(float(occurrences @ largest))
        largest = np.maximum.reduce([largest, *(_shifted(largest, by) for by in (-2, -1, 1, 2))])
    return bounds


def envelope_for(counts: IntArray, noise: str, scale: float, order: float) -> FloatArray:
    """The envelope for these histograms; all rows must hold the same number of votes."""
    totals = np.unique(counts.sum(axis=1))
    if len(totals) != 1:
        raise DataError("a smooth release needs the same number of votes in every query")
    return gap_envelope(noise, scale, order, int(totals[0]), counts.shape[1])


def _gaps(counts: IntArray, envelope: FloatArray) -> IntArray:
    gaps = gaps_of(counts)
    if len(gaps) and int(gaps.max()) >= len(envelope):
        raise DataError(f"a gap of {gaps.max()} votes is beyond the envelope's {len(envelope) - 1}")
    return gaps


def _shifted(values: FloatArray, by: int) -> FloatArray:
    """values[u + by], and 0 outside."""
    out = np.zeros_like(values)
    if by < 0:
        out[-by:] = values[:by]
    else:
        out[:-by] = values[by:]
    return out
