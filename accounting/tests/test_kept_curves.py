"""The curves that come with the package are what the game computes, and answer the first pages' examples at once."""

import numpy as np
import pytest
from kept_curves import CURVES, computed

from collegium_accounting.analysis.account import account
from collegium_accounting.game import cache
from collegium_accounting.game.winner import RoundLaw, winner_profile
from collegium_accounting.mechanisms.gnmax import GNMax
from collegium_accounting.mechanisms.lnmax import LNMax
from collegium_accounting.progress import SearchStep, listening

EXAMPLES = [(LNMax(gamma=0.05), 100, 2.0410), (GNMax(sigma=40), 286, 1.9137)]
"""Those of README.md and docs/python.md, and ε at δ = 1e-5."""


@pytest.fixture
def fresh(own_cache: None) -> None:
    """A machine on which nothing was computed."""
    cache.forget()
    yield
    cache.forget()


@pytest.mark.parametrize(("mechanism", "queries", "epsilon"), EXAMPLES, ids=["lnmax", "gnmax"])
def test_an_example_of_the_first_pages_needs_no_search(mechanism, queries: int, epsilon: float, fresh: None) -> None:
    steps = []
    found = account(mechanism, queries=queries, progress=steps.append)
    assert steps == [] and found.epsilon == pytest.approx(epsilon, abs=1e-4)
    assert found.attained is not None and found.attained < found.epsilon
    assert found.epsilon < found.published.epsilon


def test_each_kept_curve_is_one_of_an_example_and_needs_no_search(fresh: None) -> None:
    curves, steps = [one for page in CURVES.values() for one in page], list[SearchStep]()
    with listening(steps.append):
        for law, rounds in curves:
            profile = winner_profile(law, rounds)
            apart = 1.05 if law.noise == "discrete-laplace" else 1.01
            assert profile.attained(1e-5) <= profile.epsilon(1e-5) <= apart * profile.attained(1e-5)
    assert steps == [] and len(list(cache.KEPT.iterdir())) == len(curves)


def test_another_example_tells_its_progress(fresh: None) -> None:
    steps = []
    account(LNMax(gamma=0.5), queries=2, progress=steps.append)
    assert steps and steps[-1].total >= steps[-1].done > 0


@pytest.mark.slow
def test_a_kept_curve_is_what_the_game_computes_to_the_last_bit(tmp_path) -> None:
    """One of them: `make curves` computes all."""
    law, rounds = RoundLaw("discrete-laplace", 20.0), 20
    file = computed(law, rounds, tmp_path)
    with np.load(file) as new, np.load(cache.KEPT / file.name) as kept:
        assert new.files == kept.files
        for name in new.files:
            assert (new[name] == kept[name]).all()
