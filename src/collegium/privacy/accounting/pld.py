"""Privacy loss distributions of the noisy counts, through dp-accounting: tight for data-independent compositions.

Each function gives a distribution that dominates one answer for the given unit; they compose by
convolution. dp-accounting is imported when first needed, and Gaussian distributions are kept, for both are slow.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from collegium.privacy.accounting.independent import l1_moved
from collegium.privacy.units import Adjacency, Unit


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
