"""The benchmark of student methods reports what was fitted, and stops a method that has used up its time."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.students import LABELS, Data, Fit, Result, as_json, labelled, line, load_data, measure, shortened


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """An empty folder has no MNIST, so these are the bundled digits."""
    return load_data(tmp_path_factory.mktemp("empty"))


def test_without_mnist_the_data_are_the_bundled_digits_and_say_so(digits: Data) -> None:
    assert digits.name == "digits"
    assert len(digits.pool) == 1300 and len(digits.holdout) == 497


def test_labels_are_drawn_by_chance_or_alike_from_all_classes(digits: Data) -> None:
    counts = {
        balanced: np.bincount(digits.pool.labels()[labelled(digits, balanced=balanced, seed=0)], minlength=10)
        for balanced in (False, True)
    }
    assert (counts[True] == LABELS // 10).all()
    assert counts[False].sum() == LABELS and (counts[False] != LABELS // 10).any()


def test_every_number_of_steps_of_a_method_is_shortened() -> None:
    assert set(shortened("contrastive", 1 / 8)) == {"contrast_steps", "learn_steps"}
    whole, half = shortened("gan", 1.0)["steps"], shortened("gan", 0.5)["steps"]
    assert half == pytest.approx(whole / 2)
    assert shortened("random-forest", 0.5) == {}


def test_a_method_without_steps_is_fitted_once(digits: Data) -> None:
    result = measure("random-forest", digits, limit_s=600, seed=0, device="cpu")
    assert [fit.share for fit in result.fits] == [1.0] and result.stopped is None
    assert result.fits[0].accuracy > 0.5 and result.fits[0].cpu_s > 0


def test_a_fit_that_passes_the_limit_is_broken_off_and_not_reported(digits: Data) -> None:
    result = measure("supervised", digits, limit_s=1e-6, seed=0, device="cpu")
    assert result.fits == [] and result.stopped == "limit of 1e-06 s"
    assert as_json(result)["accuracy"] is None and "limit" in line(result)


def test_the_shortest_fit_that_reaches_the_target_counts() -> None:
    fits = [Fit(0.25, 10.0, 0.979), Fit(0.5, 20.0, 0.98), Fit(1.0, 40.0, 0.99)]
    assert Result("vat", fits, None).cpu_s_to_target == 20.0
    assert Result("vat", fits[:1], None).cpu_s_to_target is None
    assert as_json(Result("vat", fits, None))["accuracy"] == 0.99
