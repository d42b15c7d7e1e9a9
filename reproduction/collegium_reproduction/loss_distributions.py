"""ε by privacy loss distributions of the whole noisy counts, through dp-accounting, to stand beside published values.

Each distribution dominates one answer for a privacy unit; they compose by convolution. The exact accountant, by which
runs are charged, counts what is released alone. dp-accounting is imported when first needed, and Gaussian
distributions are kept, for both are slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, singledispatch
from typing import Any

from collegium_accounting.analysis.epsilons import StageCharge
from collegium_accounting.divergences.independent import l1_moved
from collegium_accounting.mechanisms import Adjacency, Stage, Unit
from collegium_accounting.mechanisms.exponential import GumbelRelease
from collegium_accounting.mechanisms.gaussian_stage import GaussianStage
from collegium_accounting.mechanisms.lnmax import LaplaceRelease
from collegium_accounting.renyi import WIDE_ORDERS, RenyiCurve

LARGEST = 50.0
"""Of the published bound: beyond it a loss distribution fills the memory to say that there is no privacy."""


def loss_distribution_epsilon(charges: Sequence[StageCharge], delta: float) -> float | None:
    """ε of ``charges`` at ``delta``; None where a stage has no distribution, and where ε is `too_large`.

    It does not hold where later charges depended on earlier answers.
    """
    losses = [loss_of(one.stage, one.unit) for one in charges]
    if any(loss is None for loss in losses) or too_large(charges, delta):
        return None
    return composed_epsilon([(loss, one.queries) for loss, one in zip(losses, charges, strict=True)], delta)


def too_large(charges: Sequence[StageCharge], delta: float) -> bool:
    """Whether the published bound is above `LARGEST`."""
    published = RenyiCurve.zero(WIDE_ORDERS)
    for one in charges:
        published = published + one.stage.charge(WIDE_ORDERS, one.unit) * one.queries
    return published.to_epsilon(delta).epsilon > LARGEST


@singledispatch
def loss_of(stage: Stage, unit: Unit) -> Any:
    """A PrivacyLossDistribution that dominates one query at ``stage`` for the unit; None where none is known."""
    return None


@loss_of.register
def _(stage: GaussianStage, unit: Unit) -> Any:
    return gaussian_loss(stage.sigma, stage.moved(unit), stage.rate(unit))


@loss_of.register
def _(stage: LaplaceRelease, unit: Unit) -> Any:
    return laplace_loss(stage.gamma, unit)


@loss_of.register
def _(stage: GumbelRelease, unit: Unit) -> Any:
    """By its pure bound alone, which gives bounded range away; the Rényi value is often smaller."""
    return pure_loss(stage.gamma * l1_moved(unit))


@lru_cache(maxsize=32)
def gaussian_loss(sigma: float, shift: float, sampling_rate: float = 1.0) -> Any:
    """N(0, σ²) on numbers that move by at most ``shift`` in L2, on a Poisson sample of the records."""
    return _library().from_gaussian_mechanism(sigma, sensitivity=shift, sampling_prob=sampling_rate)


def laplace_loss(gamma: float, unit: Unit) -> Any:
    """Laplace(1/γ) on every count. One vote moved shifts two counts by 1, each a Laplace mechanism of its own.

    Several votes may move in many patterns; randomised response at ε = 2γk dominates them all.
    """
    if unit.votes > 1:
        return pure_loss(gamma * l1_moved(unit))
    one = _library().from_laplace_mechanism(1.0 / gamma)
    return one.compose(one) if unit.adjacency is Adjacency.REPLACE else one


def pure_loss(epsilon: float, delta: float = 0.0) -> Any:
    """Anything (ε, δ)-DP: randomised response that fails with probability δ (Kairouz, Oh, Viswanath 2015)."""
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    return _library().from_privacy_parameters(DifferentialPrivacyParameters(epsilon, delta))


def composed_epsilon(parts: Iterable[tuple[Any, int]], delta: float) -> float:
    """ε at ``delta`` of each distribution repeated its number of times; 0 for nothing."""
    total = None
    for loss, times in parts:
        if times:
            repeated = loss.self_compose(times)
            total = repeated if total is None else total.compose(repeated)
    return 0.0 if total is None else float(total.get_epsilon_for_delta(delta))


def _library() -> Any:
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution
