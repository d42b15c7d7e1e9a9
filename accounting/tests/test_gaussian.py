"""The Gaussian mechanism's exact profile, against its published values and the definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collegium_accounting.errors import ConfigurationError, UnsupportedAccounting
from collegium_accounting.game.gaussian import gaussian_epsilon, gaussian_mechanism_profile
from collegium_accounting.game.laws import RenyiLaw, VectorLaw, block_profile, discrete_vector
from collegium_accounting.game.profile import compose
from collegium_accounting.game.recursion import gaussian_profile
from collegium_accounting.noise.distributed import NoiseShare
from collegium_accounting.renyi import WIDE_ORDERS, RenyiCurve


@pytest.mark.parametrize(("sigma", "epsilon"), [(2, 1.99), (5, 0.726), (8, 0.434), (20, 0.160), (70, 0.0404)])
def test_one_noisy_sum_costs_what_balle_and_wang_say(sigma: float, epsilon: float) -> None:
    profile = gaussian_mechanism_profile(1.0 / sigma)
    assert profile.epsilon(1e-5) == pytest.approx(epsilon, rel=6e-3)
    assert profile.attained(1e-5) <= profile.epsilon(1e-5) <= 1.001 * profile.attained(1e-5)


def test_four_releases_are_one_of_twice_the_sensitivity_and_composition_agrees() -> None:
    one, four = gaussian_mechanism_profile(0.1), gaussian_mechanism_profile(0.1 * math.sqrt(4))
    composed = compose([one, one, one, one]).epsilon(1e-5)
    assert four.attained(1e-5) <= composed <= 1.01 * four.epsilon(1e-5)


@pytest.mark.parametrize("mu", [30.0, 34.0, 36.0, 60.0])
def test_an_epsilon_beyond_the_exponents_of_doubles_is_neither_nothing_nor_a_warning(mu: float) -> None:
    """e^ε passes the largest double at ε = 709.8. A pool check of σ = 0.1 beside others has a μ of 36."""
    profile, exact = gaussian_mechanism_profile(mu), gaussian_epsilon(mu, 0.0, 1e-5)
    assert profile.attained(1e-5) <= exact <= profile.epsilon(1e-5) <= 1.001 * exact
    for epsilon in (0.9 * exact, exact, 2.0 * exact):
        assert profile.delta(epsilon) >= gaussian_profile(np.array([-epsilon]), mu)[0]
    both, composed = (
        gaussian_epsilon(math.hypot(mu, 5.0), 0.0, 1e-5),
        compose([profile, gaussian_mechanism_profile(5.0)]),
    )
    if exact < 600.0:
        assert both <= composed.epsilon(1e-5) <= 1.01 * both
    else:
        with pytest.raises(UnsupportedAccounting):
            composed.epsilon(1e-5)


@pytest.mark.parametrize("mu", [0.0, -1.0, math.inf, math.nan])
def test_no_noise_or_nothing_to_hide_is_refused(mu: float) -> None:
    with pytest.raises(ConfigurationError, match="positive μ"):
        gaussian_mechanism_profile(mu)


def _discrete(sigma: float, reach: int = 60) -> np.ndarray:
    z = np.arange(-reach, reach + 1)
    mass = np.exp(-(z**2) / (2.0 * sigma**2))
    return mass / mass.sum()


def _hockey_stick(mass: np.ndarray, shift: tuple[int, ...], epsilon: float) -> float:
    moved = np.roll(mass, shift, axis=tuple(range(mass.ndim)))
    return float(np.maximum(moved - math.exp(epsilon) * mass, 0.0).sum())


@pytest.mark.parametrize("sigma", [0.4, 1.5, 3.0, 6.0])
def test_discrete_noise_on_one_and_on_two_numbers_never_passes_its_continuous_counterpart(sigma: float) -> None:
    one = _discrete(sigma)
    for noise, shift, l2 in ((one, (1,), 1.0), (one, (3,), 3.0), (np.multiply.outer(one, one), (1, -1), 2**0.5)):
        law = discrete_vector(l2, sigma, len(shift))
        assert isinstance(law, VectorLaw if sigma > 3.0 * l2 else RenyiLaw | VectorLaw)
        profile = block_profile({law: 1}, 1e-5)
        for epsilon in (0.0, 0.2, 0.5, 1.0, 2.0):
            exact = _hockey_stick(noise, shift, epsilon)
            assert exact <= profile.delta(epsilon) * (1 + 1e-9) + 1e-13
            if sigma == 6.0 and exact > 1e-3:
                assert profile.delta(epsilon) < 1.1 * exact


def test_planted_bug_discrete_noise_taken_for_continuous_noise_is_caught() -> None:
    planted, noise = gaussian_mechanism_profile(1.0 / 1.5), _discrete(1.5)
    excess = [_hockey_stick(noise, (1,), e) / planted.delta(e) for e in np.linspace(0.0, 2.0, 81)]
    assert max(excess) > 1.05


def test_shares_of_noise_that_are_summed_never_pass_what_is_charged() -> None:
    """Three shares of 1.2 units, convolved; half of one share's noise, or the closeness left out, would show."""
    share = NoiseShare(1.2 * 3**0.5, 3)
    one = _discrete(share.sigma_share)
    summed = np.convolve(np.convolve(one, one), one)
    profile = block_profile({share.law(1.0, 1): 1}, 1e-5)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        assert _hockey_stick(summed, (1,), epsilon) <= profile.delta(epsilon)
    fewer = np.convolve(one, one)
    assert _hockey_stick(fewer, (1,), 1.0) > profile.delta(1.0)


def test_losses_beyond_double_precision_are_composed_without_a_gap() -> None:
    """e^ε overflows on most of this grid: no value may be missing, and none below a part's."""
    curve = RenyiCurve(WIDE_ORDERS, np.asarray(WIDE_ORDERS) * 300.0)
    vector, curved = VectorLaw(1.0), RenyiLaw.of(curve)
    one, both = block_profile({curved: 1}, 1e-5), block_profile({vector: 1, curved: 1}, 1e-5)
    (values,) = both.directions
    assert values.step * len(values.upper) > 710.0
    assert np.isfinite(values.upper).all() and (np.diff(values.upper) >= 0.0).all()
    alone = block_profile({vector: 1}, 1e-5).epsilon(5e-6) + one.epsilon(5e-6)
    assert one.epsilon(1e-5) <= both.epsilon(1e-5) <= alone * 1.01
