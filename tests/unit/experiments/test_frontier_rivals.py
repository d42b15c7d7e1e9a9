"""What the benchmarks' rivals are charged, and how Fed-Heart's records are divided."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.fed_heart import fed_heart, with_their_delta
from benchmarks.frontier_rivals import FOR_BINS, Boosting, asked_for, check_noise
from support.data import folder_with

from collegium_accounting.game.gaussian import gaussian_epsilon, largest_mu

COLUMNS = 13


def fitted(epsilon: float, delta: float, boosting: Boosting) -> SimpleNamespace:
    """The noise that the package states, by its own rule: each part has half of δ, and √steps over its μ."""
    asked = asked_for(epsilon, delta)
    bins, rounds = (largest_mu(part * asked, delta / 2) for part in (FOR_BINS, 1.0 - FOR_BINS))
    steps = boosting.max_rounds * COLUMNS
    return SimpleNamespace(
        bins_=[None] * COLUMNS,
        noise_scale_binning_=math.sqrt(COLUMNS) / bins,
        noise_scale_boosting_=boosting.learning_rate * math.sqrt(steps) / rounds,
    )


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 100.0])
def test_boosting_is_charged_for_the_noise_that_it_states(epsilon: float) -> None:
    boosting = Boosting(50, 0.05)
    model = fitted(epsilon, 1e-5, boosting)
    check_noise(model, boosting, (epsilon, 1e-5))
    with pytest.raises(ValueError, match="more than"):
        check_noise(model, boosting, (epsilon * 0.99, 1e-5))
    model.noise_scale_boosting_ *= 0.9
    with pytest.raises(ValueError, match="more than"):
        check_noise(model, boosting, (epsilon, 1e-5))


def test_the_same_noise_at_another_delta_has_another_epsilon() -> None:
    other = with_their_delta(1.0)
    assert other > 1.0
    assert gaussian_epsilon(largest_mu(other, 1e-5), 0.0, 1e-4) == pytest.approx(1.0, rel=1e-6)


def test_fed_heart_is_divided_as_published() -> None:
    split, centre = fed_heart(folder_with("heart_processed.cleveland.data"))
    assert len(split.private) == 199 + 172 + 30 + 85
    sizes = dict(zip(*np.unique(centre, return_counts=True), strict=True))
    assert sizes == {"cleveland": 104, "hungarian": 89, "switzerland": 16, "va": 45}
    numbers, categories = 5, (2, 4, 2, 3, 2)
    assert split.pool.shape[1] == 2 * numbers + sum(known + 1 for known in categories)
