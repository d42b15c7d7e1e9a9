"""The Gaussian mechanism's exact profile, against its published values and the definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collegium.errors import ConfigurationError
from collegium.privacy.accounting.game.gaussian import discrete_gaussian_delta, gaussian_mechanism_profile
from collegium.privacy.accounting.game.profile import compose


@pytest.mark.parametrize(("sigma", "epsilon"), [(2, 1.99), (5, 0.726), (8, 0.434), (20, 0.160), (70, 0.0404)])
def test_one_noisy_sum_costs_what_balle_and_wang_say(sigma: float, epsilon: float) -> None:
    profile = gaussian_mechanism_profile(1.0, sigma)
    assert profile.epsilon(1e-5) == pytest.approx(epsilon, rel=6e-3)
    assert profile.attained(1e-5) <= profile.epsilon(1e-5) <= 1.001 * profile.attained(1e-5)


def test_four_releases_are_one_of_twice_the_sensitivity_and_composition_agrees() -> None:
    one, four = gaussian_mechanism_profile(1.0, 10.0), gaussian_mechanism_profile(1.0, 10.0, releases=4)
    composed = compose([one, one, one, one]).epsilon(1e-5)
    assert four.attained(1e-5) <= composed <= 1.01 * four.epsilon(1e-5)


@pytest.mark.parametrize(("epsilon", "shift", "sigma"), [(0.0, 1, 2.0), (0.3, 1, 2.0), (1.0, 2, 1.5), (2.0, 3, 2.5)])
def test_discrete_noise_has_the_hockey_stick_of_its_definition(epsilon: float, shift: int, sigma: float) -> None:
    z = np.arange(-200, 201)
    mass = np.exp(-(z**2) / (2.0 * sigma**2))
    mass /= mass.sum()
    moved = np.exp(-((z - shift) ** 2) / (2.0 * sigma**2))
    moved /= moved.sum()
    exact = float(np.maximum(moved - math.exp(epsilon) * mass, 0.0).sum())
    assert discrete_gaussian_delta(epsilon, shift, sigma) == pytest.approx(exact, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("sensitivity", "sigma", "releases"), [(0.0, 1.0, 1), (1.0, 0.0, 1), (1.0, 1.0, 0)])
def test_no_noise_or_nothing_to_hide_is_refused(sensitivity: float, sigma: float, releases: int) -> None:
    with pytest.raises(ConfigurationError, match="positive sensitivity"):
        gaussian_mechanism_profile(sensitivity, sigma, releases)
