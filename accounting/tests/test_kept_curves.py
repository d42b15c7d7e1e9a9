"""The curves that come with the package are what the game computes, and answer the first pages' examples at once."""

import pytest

from collegium_accounting.analysis.account import account
from collegium_accounting.game import cache
from collegium_accounting.mechanisms.gnmax import GNMax
from collegium_accounting.mechanisms.lnmax import LNMax

EXAMPLES = [(LNMax(gamma=0.05), 100, 2.3209), (GNMax(sigma=40), 286, 1.9140)]
"""Those of README.md and docs/python.md, and ε at δ = 1e-5."""


@pytest.fixture
def fresh(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which nothing was computed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache.forget()
    yield
    cache.forget()


@pytest.mark.parametrize(("mechanism", "queries", "epsilon"), EXAMPLES, ids=["lnmax", "gnmax"])
def test_an_example_of_the_first_pages_needs_no_search(mechanism, queries: int, epsilon: float, fresh: None) -> None:
    steps = []
    found = account(mechanism, queries=queries, progress=steps.append)
    assert steps == [] and found.epsilon == pytest.approx(epsilon, abs=1e-4)
    assert found.independent.attained is not None and found.independent.attained < found.epsilon
    assert found.independent.published is not None and found.epsilon < found.independent.published.epsilon


def test_each_kept_file_belongs_to_an_example() -> None:
    assert len(list(cache.KEPT.iterdir())) == len(EXAMPLES)


def test_another_example_tells_its_progress(fresh: None) -> None:
    steps = []
    account(LNMax(gamma=0.05), queries=2, progress=steps.append)
    assert steps and steps[-1].total >= steps[-1].done > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)  # twenty seconds of a core that is alone
def test_a_kept_curve_is_what_the_game_computes_to_the_last_bit(fresh: None, tmp_path, monkeypatch) -> None:
    mechanism, queries, _ = EXAMPLES[0]
    kept = account(mechanism, queries=queries)
    cache.forget()
    monkeypatch.setattr(cache, "KEPT", tmp_path / "none")
    assert account(mechanism, queries=queries).independent == kept.independent
