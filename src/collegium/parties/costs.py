"""What an answer costs the party that gave it, by its own votes alone (individual accounting).

The unit is the party: its whole histogram v of one query is there or not. A sum with Gaussian noise σ
on every count then costs α‖v‖₂²/(2σ²), with Laplace noise of scale 1/γ at most what a pure loss of
γ‖v‖₁ costs, with Gumbel noise what a pure loss of γ‖v‖_∞ costs: counts only rise, so the exponential
mechanism's factor two is not needed. A threshold on one count, the largest or that of a class
which the coordinator named, costs at most α‖v‖_∞²/(2σ₁²).
A party with k teachers pays k² where they agree and less where they do not (Feldman and Zrnic 2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from collegium.errors import Refused
from collegium.privacy.renyi import RenyiCurve, check_orders
from collegium.protocol.messages import Terms

Counts = NDArray[np.int64]
Parameters = Callable[[str], float]


def _gaussian(votes: Counts, sigma: float) -> float:
    return float((votes.astype(np.float64) ** 2).sum()) / (2 * sigma**2)


def _threshold(votes: Counts, sigma: float) -> float:
    return float((votes.max(axis=1).astype(np.float64) ** 2).sum()) / (2 * sigma**2)


def _pure(losses: NDArray[np.float64]) -> float:
    """A pure loss ε is concentrated with ε²/2 (Bun and Steinke 2016, Proposition 3.3)."""
    return float((losses**2).sum()) / 2


_SCALES: dict[str, Callable[[Parameters], list[float]]] = {
    "gnmax": lambda p: [p("sigma")],
    "noised-gnmax": lambda p: [p("sigma")],
    "confident-gnmax": lambda p: [p("sigma1"), p("sigma2")],
    "interactive-gnmax": lambda p: [p("sigma1"), p("sigma2")],
    # Two sums, and the terms name the noise of the one at hand.
    "noised-confident-gnmax": lambda p: [p("sigma")],
    "lnmax": lambda p: [1 / p("gamma")],
    "exponential": lambda p: [1 / p("gamma")],
}

_RHO: dict[str, Callable[[Counts, Parameters], float]] = {
    "gnmax": lambda v, p: _gaussian(v, p("sigma")),
    "noised-gnmax": lambda v, p: _gaussian(v, p("sigma")),
    "confident-gnmax": lambda v, p: _threshold(v, p("sigma1")) + _gaussian(v, p("sigma2")),
    "interactive-gnmax": lambda v, p: _threshold(v, p("sigma1")) + _gaussian(v, p("sigma2")),
    "noised-confident-gnmax": lambda v, p: _gaussian(v, p("sigma")),
    "lnmax": lambda v, p: _pure(p("gamma") * v.sum(axis=1).astype(np.float64)),
    "exponential": lambda v, p: _pure(p("gamma") * v.max(axis=1).astype(np.float64)),
}

KNOWN_MECHANISMS = tuple(_RHO)
"""Mechanisms whose cost a party can state for itself."""


def noise_votes(terms: Terms) -> float:
    """The smallest noise scale of the terms, in votes; Refused when the mechanism is unknown or lacks a parameter."""
    _check_known(terms)
    return min(_SCALES[terms.mechanism](_parameters(terms)))


def own_cost(votes: Counts, terms: Terms, orders: Sequence[float]) -> RenyiCurve:
    """Rényi cost of having cast ``votes``, shape ``[queries, classes]``, on these terms; zero-concentrated, so α·ρ."""
    _check_known(terms)
    rho = _RHO[terms.mechanism](votes, _parameters(terms))
    grid = check_orders(orders)
    return RenyiCurve(grid, rho * np.asarray(grid))


def _check_known(terms: Terms) -> None:
    if terms.mechanism not in _RHO:
        raise Refused(f"this party cannot tell what the mechanism {terms.mechanism!r} would cost it")


def _parameters(terms: Terms) -> Parameters:
    def of(name: str) -> float:
        value = terms.parameters.get(name, math.nan)
        if not value > 0:
            raise Refused(f"the terms of {terms.mechanism} lack a positive {name}")
        return value

    return of
