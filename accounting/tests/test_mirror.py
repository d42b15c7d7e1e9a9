"""What of a value function is not searched, a half that is a reflection and a tail that is constant: the bound holds.

Both are searched here in the same game: nobody tells it that the data sets may be exchanged, and the floor is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import brute_force
import numpy as np
import pytest

from collegium_accounting.elementary import FloatArray, exp
from collegium_accounting.game import mirror, recursion
from collegium_accounting.game.curves import Direction, Sampling
from collegium_accounting.game.front import Front
from collegium_accounting.game.profile import Profile
from collegium_accounting.game.recursion import Values, kinks, multiples, play
from collegium_accounting.game.winner import RoundLaw
from collegium_accounting.units import Adjacency

LAWS = [
    (RoundLaw("discrete-gaussian", 4.0, classes=2), 3),
    (RoundLaw("discrete-gaussian", 4.0, Adjacency.ADD_REMOVE), 12),
    (RoundLaw("discrete-laplace", 3.0, classes=2), 12),
    (RoundLaw("discrete-laplace", 4.0), 2),
    (RoundLaw("gumbel", 6.0), 30),
    (RoundLaw("discrete-gaussian", 3.0), 1),
]
"""Lines, rivals and planes; few rounds and many."""


class _Whole(Sampling):
    """Nobody is sampled, and nobody is told: both halves are searched."""

    def __init__(self) -> None:
        super().__init__(Direction.PRESENT, 1.0)


def _half_and_whole(law: RoundLaw, rounds: int) -> tuple[Values, Values]:
    (game,) = law.games()
    whole = recursion.Game(game.families, _Whole(), game.largest_loss, game.lost, game.far)
    return play(game, rounds), play(whole, rounds)


@pytest.mark.bits
@pytest.mark.parametrize(("law", "rounds"), LAWS, ids=lambda value: str(value)[:60])
def test_half_a_search_is_never_below_what_a_policy_attains_and_as_close_as_the_whole(
    law: RoundLaw, rounds: int
) -> None:
    half, whole = _half_and_whole(law, rounds)
    s = half.start + multiples(0, len(half.upper) - 1, half.step)
    for values, other in ((half, whole), (whole, half)):
        attained = np.maximum(0.0, values.alpha - exp(-s) * values.beta)
        assert (attained <= other.upper * (1.0 + 1e-9) + 1e-12).all()
    seen = s <= 0.0
    apart = 0.03 if law.noise == "discrete-laplace" and law.classes is None else 0.02
    near = seen & (whole.upper > 1e-8)
    assert (half.upper[near] <= whole.upper[near] * (1.0 + apart)).all()
    assert (half.upper[near] >= whole.upper[near] * (1.0 - apart)).all()
    assert Profile((half,)).epsilon(1e-5) <= Profile((whole,)).epsilon(1e-5) * 1.001


def test_both_halves_bound_every_policy_on_all_histograms() -> None:
    """At r < 1 as well: δ of a negative ε, against sums over all adaptive policies."""
    pairs = brute_force.moved_votes([(a, 8 - a) for a in range(9)], "discrete-gaussian", 3.0)
    pairs = [*pairs, *((q, p) for p, q in pairs)]
    values, _ = _half_and_whole(RoundLaw("discrete-gaussian", 3.0, classes=2), 2)
    s = values.start + multiples(0, len(values.upper) - 1, values.step)
    for epsilon in (-1.0, -0.4, 0.0, 0.4):
        reached, bound = brute_force.delta(pairs, 2, epsilon), np.interp(-epsilon, s, values.upper)
        assert reached <= bound * (1.0 + 1e-3)
        assert reached >= 0.9 * bound


def _forgotten(knots: FloatArray, r: FloatArray) -> FloatArray:
    half = len(r) // 2
    return np.concatenate([knots[: half + 1], r[half + 1 :] ** 2 * knots[:half][::-1]])


@pytest.mark.parametrize(
    ("module", "name", "planted"),
    [(mirror, "_reflected", lambda upper, r: upper[::-1].copy()), (recursion, "reflected_kinks", _forgotten)],
    ids=["values", "kinks"],
)
def test_planted_another_factor_of_the_reflection_is_caught(
    module: object, name: str, planted: Callable[..., FloatArray], monkeypatch: pytest.MonkeyPatch
) -> None:
    law, rounds = LAWS[2]
    right, _ = _half_and_whole(law, rounds)
    monkeypatch.setattr(module, name, planted)
    wrong = play(law.games()[0], rounds)
    s = right.start + multiples(0, len(right.upper) - 1, right.step)
    attained = np.maximum(0.0, right.alpha - exp(-s) * right.beta)
    assert (attained > wrong.upper * (1.0 + 1e-9) + 1e-12).any()


def test_planted_a_game_that_is_not_symmetric_is_caught() -> None:
    """A sampled record: absent against present is another game than present against absent."""
    present, absent = RoundLaw("discrete-laplace", 1.0, Adjacency.ADD_REMOVE, sampling_rate=0.3).games()
    first, second = play(present, 2), play(absent, 2)
    r = exp(-(first.start + multiples(0, len(first.upper) - 1, first.step)))
    own, other = mirror.reflected(first.upper, r), mirror.reflected(second.upper, r)
    half = len(r) // 2
    some = slice(half + 1, half + 1 + round(0.3 / first.step))
    assert np.abs(own[some] / first.upper[some] - 1.0).max() > 0.01
    assert np.abs(other[some] / first.upper[some] - 1.0).max() < 0.001


def test_kinks_and_values_of_the_other_half_are_those_of_one_function() -> None:
    step = 0.05
    s = multiples(-60, 60, step)
    r, upper = exp(-s), recursion.gaussian_profile(s, 0.7)
    assert mirror.reflected(upper, r) == pytest.approx(upper, rel=1e-12)
    assert mirror.joined(upper, r, 7) == pytest.approx(upper, rel=1e-12)
    found = kinks(upper, step)
    assert mirror.reflected_kinks(found, r) == pytest.approx(found, rel=1e-6, abs=1e-11)


def _tail_of(law: RoundLaw, rounds: int, floor: float, patch: pytest.MonkeyPatch) -> tuple[Values, int]:
    """The values with tails raised to ``floor``, and how many rows were searched in all rounds together."""
    searched, whole = [0], Front.round

    def counted(front: Front, windows: FloatArray, slack: Any) -> Any:
        searched[0] += len(windows)
        return whole(front, windows, slack)

    with patch.context() as patched:
        patched.setattr(Front, "round", counted)
        patched.setattr(recursion, "_FLOOR", floor)
        return play(law.games()[0], rounds), searched[0]


@cache
def _plain_tail_of(law: RoundLaw, rounds: int) -> tuple[Values, int]:
    return _tail_of(law, rounds, 0.0, pytest.MonkeyPatch())


TAILS = [
    (RoundLaw("discrete-gaussian", 4.0, Adjacency.ADD_REMOVE), 12),
    (RoundLaw("discrete-laplace", 20.0, classes=2), 40),
    (RoundLaw("discrete-gaussian", 20.0, Adjacency.ADD_REMOVE, sampling_rate=0.3), 25),
]


@pytest.mark.bits
@pytest.mark.parametrize(("law", "rounds"), TAILS, ids=lambda value: str(value)[:60])
@pytest.mark.parametrize("floor", [1e-13, 1e-6])
def test_a_raised_tail_adds_its_floor_at_most_and_is_never_below_what_a_policy_attains(
    law: RoundLaw, rounds: int, floor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plain, rows), (raised, fewer) = _plain_tail_of(law, rounds), _tail_of(law, rounds, floor, monkeypatch)
    s = plain.start + multiples(0, len(plain.upper) - 1, plain.step)
    attained = np.maximum(0.0, plain.alpha - exp(-s) * plain.beta)
    lost = floor + 2 * (rounds + 1) * 1.01e-16
    assert (attained <= raised.upper * (1.0 + 1e-9)).all()
    assert (raised.upper >= floor).all()
    assert (raised.upper <= plain.upper * 1.002 + 1.01 * lost)[s <= 0.0].all()
    # Losses under Laplace noise end before a tail is so small.
    assert fewer < rows or (fewer == rows and law.noise == "discrete-laplace")


def test_planted_a_tail_that_is_dropped_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    law, rounds = TAILS[0]
    right, _ = _tail_of(law, rounds, 1e-6, monkeypatch)
    monkeypatch.setattr(recursion, "_raised", lambda value, floor: np.where(value < floor, 0.0, value))
    wrong, _ = _tail_of(law, rounds, 1e-6, monkeypatch)
    s = right.start + multiples(0, len(right.upper) - 1, right.step)
    attained = np.maximum(0.0, right.alpha - exp(-s) * right.beta)
    assert (attained > wrong.upper * (1.0 + 1e-9)).any()
    assert (attained <= right.upper * (1.0 + 1e-9)).all()
