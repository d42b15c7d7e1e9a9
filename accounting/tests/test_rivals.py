"""Among rivals with Laplace noise of their own: no histogram, no law of M and no policy passes the bound."""

from __future__ import annotations

from itertools import product

import brute_force
import numpy as np
import pytest

from collegium_accounting.game.cells import Cells
from collegium_accounting.game.curves import Direction, Sampling
from collegium_accounting.game.profile import Profile
from collegium_accounting.game.recursion import play
from collegium_accounting.game.rivals import IntegerLaplace, Place, Rivals, unimodal
from collegium_accounting.game.winner import RoundLaw, winner_profile

LAPLACE = "discrete-laplace"
SLACK = 1.0 + 1e-9


def grid_of(scale: float) -> np.ndarray:
    return np.linspace(-1.95 / scale, 1.95 / scale, 41)


def bounds(rivals: Rivals, differences: np.ndarray, sampling: Sampling | None = None) -> np.ndarray:
    """The bound on G at each difference d alone, ``[differences, grid]``."""
    cells = Cells(np.stack([differences, differences], axis=1))
    return rivals.curves(cells, sampling or Sampling(), grid_of(rivals.scale), False).envelope


def gain(p: np.ndarray, q: np.ndarray, k: np.ndarray) -> np.ndarray:
    return np.maximum(p[:, None] - k * q[:, None], 0.0).sum(axis=0) - np.maximum(1.0 - k, 0.0)


def real_gains(scale: float, trials: int, seed: int):  # type: ignore[no-untyped-def]
    """Of random histograms of 2 to 8 classes with a vote moved from a to b: G, and the d that stands for them."""
    rng, k = np.random.default_rng(seed), np.exp(grid_of(scale))
    for trial in range(trials):
        counts = rng.integers(0, int(4 * scale) + 2 if trial % 2 else max(2, int(scale)), int(rng.integers(2, 9)))
        a, b = rng.permutation(len(counts))[:2]
        counts[a] += 1
        moved = counts.copy()
        moved[a] -= 1
        moved[b] += 1
        p, q = (brute_force.winner_law(tuple(h), LAPLACE, scale) for h in (counts, moved))
        yield gain(p, q, k), int(counts[a] - counts[b]) - int(a > b)


def passing(rivals: Rivals, trials: int, seed: int) -> tuple[int, float]:
    """How many real histograms pass the bound at their own d, and the largest share of it that one reaches."""
    differences = np.arange(-int(4 * rivals.scale) - 4, int(4 * rivals.scale) + 5)
    curves, passed, closest = bounds(rivals, differences), 0, 0.0
    for found, d in real_gains(rivals.scale, trials, seed):
        bound = curves[d - differences[0]]
        passed += bool((found > bound * SLACK + 1e-12).any())
        closest = max(closest, float((found / bound)[8:33].max()))
    return passed, closest


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0, 20.0, 100.0])
def test_minus_the_logarithm_of_the_distribution_falls_by_no_more_than_the_constant(scale: float) -> None:
    noise = IntegerLaplace(scale)
    v = np.arange(-int(60 * scale) - 5, int(30 * scale) + 5)
    upper = noise.most * noise.power(np.maximum(v + 1, 0))
    minus_log = np.where(v < 0, np.log1p(noise.rho) - np.minimum(v, 0) / scale, -np.log1p(-upper))
    fall = -np.diff(np.log(minus_log))
    assert (fall <= noise.largest_fall * SLACK).all()
    assert fall.max() >= noise.largest_fall * (1.0 - 1e-9), "it is attained, next to the middle"


@pytest.mark.parametrize("scale", [0.7, 3.0])
def test_the_closed_forms_are_the_sums(scale: float) -> None:
    noise, reach = IntegerLaplace(scale), int(40 * scale)
    z, mass = brute_force.pmf(LAPLACE, scale)
    below = np.concatenate([np.zeros(3 * reach), np.cumsum(mass), np.ones(3 * reach)])
    x, y = (part.ravel() for part in np.meshgrid(np.arange(-9, 10), np.arange(-9, 10)))
    sums = [mass[z + one > 0] @ below[(z + one - other - z[0] + 3 * reach)[z + one > 0]] for one, other in zip(x, y)]  # noqa: B905
    assert noise.first(x, y) == pytest.approx(np.array(sums), abs=1e-13)
    duels = [float(mass @ below[z + one - z[0] + 3 * reach]) for one in x]
    assert noise.duel(x) == pytest.approx(np.array(duels), abs=1e-13)


@pytest.mark.bits
@pytest.mark.parametrize(("scale", "close"), [(1.0, 0.999), (3.0, 0.999), (12.0, 0.99)])
def test_real_histograms_never_pass_the_bound_of_their_difference_and_come_close(scale: float, close: float) -> None:
    """Classes in every order: rivals before, between and behind the two between which a vote moves."""
    passed, closest = passing(Rivals(scale), 150, seed=7)
    assert passed == 0 and close <= closest


def test_planted_another_constant_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Λ fell by no more than ρ per vote, as it does far above all counts."""
    monkeypatch.setattr(IntegerLaplace, "largest_fall", property(lambda noise: 1.0 / noise.scale))
    assert passing(Rivals(3.0), 150, seed=7)[0] > 0


def test_planted_ties_of_the_two_classes_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if b won every tie with a."""
    first, duel = IntegerLaplace.first, IntegerLaplace.duel
    monkeypatch.setattr(IntegerLaplace, "first", lambda noise, x, y: first(noise, x, y + 1))
    monkeypatch.setattr(IntegerLaplace, "duel", lambda noise, d: duel(noise, d - 1))
    assert passing(Rivals(1.0), 150, seed=7)[0] > 0


def three(scale: float, x: np.ndarray, y: np.ndarray, tie: int) -> np.ndarray:
    """Probabilities of a, b and another class, ``[3, positions]``: M, at 0, wins its ties; b those of ``tie`` 1."""
    z, mass = brute_force.pmf(LAPLACE, scale)
    wide = int(np.abs(np.concatenate([x, y])).max()) * 2 + 4
    below = np.concatenate([np.zeros(wide + len(z)), np.cumsum(mass), np.ones(wide + len(z))])

    def at_most(value: np.ndarray) -> np.ndarray:
        return below[value - z[0] + wide + len(z)]

    a = np.array([mass[z + p > 0] @ at_most(z + p - r - tie)[z + p > 0] for p, r in zip(x, y, strict=True)])
    rest = at_most(-x) * at_most(-y)
    return np.stack([a, 1.0 - a - rest, rest])


def extremal_gains(scale: float, d: int, places: np.ndarray, share: float) -> np.ndarray:
    """G, ``[places, grid]``, where M has the law that Lemma 9 finds extremal, computed by sums.

    The level of position x = −i, of the first rule of ties, begins at time place + i and lasts ``share`` of a unit; in
    the rest of it M is at that of the second. The time is at most t with probability e^{−c^t}.
    """
    fall, k = IntegerLaplace(scale).largest_fall, np.exp(grid_of(scale))
    reach = int(14 * scale) + abs(d)
    x = np.arange(reach, -reach - 1, -1)
    pairs = [(three(scale, x, x - d - t, t), three(scale, x - 1, x - d - t + 1, t)) for t in (0, 1)]
    p, q = (np.stack(laws, axis=2).reshape(3, -1) for laws in zip(*pairs, strict=True))
    found = []
    for place in places:
        begins = (place + np.arange(-reach, reach + 1)[:, None] + np.array([0.0, share])).ravel()
        at_least = -np.expm1(-np.exp(-np.append(begins, np.inf) * fall))
        mass = at_least[:-1] - at_least[1:]
        mass[0] += 1.0 - at_least[0]
        both = gain(p[:2] @ mass, q[:2] @ mass, k) + np.maximum(1.0 - k, 0.0)
        found.append(both + mass @ np.maximum(p[2][:, None] - k * q[2][:, None], 0.0) - np.maximum(1.0 - k, 0.0))
    return np.array(found)


def extremes(rivals: Rivals, differences: range) -> tuple[int, float]:
    """In how many of the laws some G passes the bound; and the least, over differences, of what the largest reaches."""
    passed, least = 0, 1.0
    for d in differences:
        bound, best = bounds(rivals, np.array([d]))[0], np.zeros(41)
        for share in (0.0, 0.37, 1.0):
            places = np.arange(-4.0 * rivals.scale - abs(d), 5.0 * rivals.scale + abs(d), 0.31 * rivals.scale / 2)
            found = extremal_gains(rivals.scale, d, places, share)
            passed += int((found > bound * SLACK + 1e-12).any(axis=1).sum())
            best = np.maximum(best, found.max(axis=0))
        least = min(least, float((best / bound)[12:29].min()))
    return passed, least


@pytest.mark.bits
@pytest.mark.parametrize(("scale", "close"), [(0.8, 0.9), (3.0, 0.98), (14.0, 0.98)])
def test_no_law_that_the_largest_rival_can_have_passes_the_bound_and_one_comes_close(
    scale: float, close: float
) -> None:
    passed, least = extremes(Rivals(scale), range(-2, 4))
    assert passed == 0 and close <= least


@pytest.mark.bits
def test_planted_bound_without_reserve_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Place, "reserve", 0.0)
    assert extremes(Rivals(14.0), range(-2, 4))[0] > 0


def test_planted_one_rule_of_ties_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    laws = Rivals._laws
    monkeypatch.setattr(Rivals, "_laws", lambda self, x, d, tie: laws(self, x, d - tie, 0))
    assert extremes(Rivals(1.0), range(-2, 4))[0] > 0


@pytest.mark.bits
@pytest.mark.parametrize("cell", [(2, 9), (30, 70), (-6, -1), (-70, -30), (8, 2**20), (-(2**20), -8)])
def test_a_cell_of_differences_is_bounded_above_each_of_them(cell: tuple[int, int]) -> None:
    """The last cells on both sides have no end."""
    rivals = Rivals(3.0)
    (whole,) = rivals.curves(Cells(np.array([cell])), Sampling(), grid_of(3.0), False).envelope
    inside = np.clip(np.arange(cell[0], cell[1] + 1, max(1, (cell[1] - cell[0]) // 20)), -400, 400)
    assert (bounds(rivals, inside) <= whole + 1e-12).all()


@pytest.mark.parametrize("direction", [Direction.PRESENT, Direction.ABSENT])
def test_a_sampled_vote_gains_no_more_than_its_bound(direction: Direction) -> None:
    scale, rate, passed = 3.0, 0.3, 0
    k, differences, closest = np.exp(grid_of(scale)), np.arange(-14, 15), 0.0
    curves = bounds(Rivals(scale), differences, Sampling(direction, rate)).max(axis=0)
    for d in range(-13, 14):
        p, q = (brute_force.winner_law((a, 20 - a, 3), LAPLACE, scale) for a in (10 + d // 2, 9 + d // 2))
        mixed = rate * p + (1.0 - rate) * q
        found = gain(mixed, q, k) if direction is Direction.PRESENT else gain(q, mixed, k)
        passed += bool((found > curves * SLACK + 1e-12).any())
        closest = max(closest, float((found / np.maximum(curves, 1e-9))[20]))
    assert passed == 0 and closest >= 0.98


@pytest.mark.bits
@pytest.mark.parametrize(("classes", "rounds"), [(3, 2), (3, 3), (4, 2)])
def test_no_policy_on_all_histograms_passes_the_profile_and_one_comes_close(classes: int, rounds: int) -> None:
    """Every adaptive choice among histograms of few votes, in every order of the classes, played exactly."""
    scale, votes = 2.0, 5
    histograms = [h for h in product(range(votes + 1), repeat=classes) if sum(h) == votes]
    pairs = brute_force.moved_votes(histograms, LAPLACE, scale)[:: 1 if rounds == 2 and classes == 3 else 4]
    profile = winner_profile(RoundLaw(LAPLACE, scale), rounds)
    for epsilon in (0.0, 0.5, 1.0):
        reached, bound = brute_force.delta(pairs, rounds, epsilon), profile.delta(epsilon)
        assert 0.7 * bound <= reached <= bound * SLACK, (epsilon, reached / bound)


@pytest.mark.bits
def test_it_is_above_what_two_classes_cost_and_below_what_a_fixed_rival_would() -> None:
    """At T = 40, γ = .05: 1.178 with two classes, 1.377 if no rival but the two had noise."""
    many, two = (winner_profile(RoundLaw(LAPLACE, 20.0, classes=classes), 40) for classes in (None, 2))
    assert two.epsilon(1e-5) < many.epsilon(1e-5) < 1.217
    assert many.attained(1e-5) <= many.epsilon(1e-5) <= 1.06 * many.attained(1e-5)
    assert many.attained(1e-5) == pytest.approx(two.attained(1e-5), rel=2e-3)


def test_what_is_made_unimodal_rises_to_one_peak_and_is_not_below() -> None:
    values = np.array([0.0, 3.0, 1.0, 5.0, 2.0, 4.0, -1.0])
    assert unimodal(values).tolist() == [0.0, 3.0, 3.0, 5.0, 4.0, 4.0, -1.0]


@pytest.mark.bits
def test_the_profile_of_a_round_is_the_largest_of_its_curves() -> None:
    """One round has no policy: what is certified is G, and the grid of k adds little."""
    profile = Profile(tuple(play(game, 1) for game in RoundLaw(LAPLACE, 3.0).games()))
    curves = bounds(Rivals(3.0), np.arange(-12, 14)).max(axis=0)
    for k in (20, 24, 30):
        assert profile.delta(grid_of(3.0)[k]) == pytest.approx(curves[k], rel=0.01)
