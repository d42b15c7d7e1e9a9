"""A run that its answers may stop, and the ε that is printed then: docs/research/ledger-filter.md against brute force.

Every adaptive policy is searched: after each answer it stops, or goes on at one of some pairs of real histograms. Of
all sets of transcripts the worst one is Σ (P − e^ε·Q)₊ over the leaves, with the ε that is printed at each of them.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from scipy.special import ndtr

from collegium_accounting.divergences.grids import NoiseLaw
from collegium_accounting.divergences.laws import win_probabilities
from collegium_accounting.game.winner import RoundLaw, winner_epsilons

ROUNDS, DELTA, SIGMA = 24, 0.01, 4.0
LAW = RoundLaw("discrete-gaussian", SIGMA, classes=2)


@cache
def certified() -> list[float]:
    """ε of no round up to so many at `DELTA`."""
    return [float(epsilon) for epsilon in winner_epsilons(LAW, ROUNDS, DELTA)]


def _pairs() -> list[list[tuple[float, float]]]:
    """At two pairs of neighbouring histograms of 12 votes: the laws of the winner, outcome by outcome."""
    rows, noise = np.array([[6, 6], [9, 3]]), NoiseLaw("discrete-gaussian", SIGMA)
    laws, others = (win_probabilities(one, noise) for one in (rows, rows + np.array([[-1, 1]])))
    return [list(zip(p, q, strict=True)) for p, q in zip(laws.tolist(), others.tolist(), strict=True)]


OUTCOMES = [(number, outcome) for number, pair in enumerate(_pairs()) for outcome in pair]


def worst(stopped: Callable[[int, float, float], float]) -> float:
    """The largest sum over the leaves of ``stopped(t, P, Q)`` that an adaptive policy reaches.

    P and Q of a transcript follow from how often each outcome came, whatever the order.
    """

    @cache
    def value(came: tuple[int, ...]) -> float:
        t = sum(came)
        p = math.prod(p**often for often, (_, (p, _)) in zip(came, OUTCOMES, strict=True))
        q = math.prod(q**often for often, (_, (_, q)) in zip(came, OUTCOMES, strict=True))
        best = stopped(t, p, q)
        if t == ROUNDS:
            return best
        gained = [0.0] * 2
        for k, (pair, _) in enumerate(OUTCOMES):
            gained[pair] += value((*came[:k], came[k] + 1, *came[k + 1 :]))
        return max(best, *gained)

    return value((0,) * len(OUTCOMES))


def printing(epsilon: Sequence[float]) -> Callable[[int, float, float], float]:
    return lambda t, p, q: max(0.0, p - math.exp(epsilon[t]) * q)


def test_the_epsilon_that_is_printed_where_answers_stopped_the_run_holds_at_m_times_delta() -> None:
    assert DELTA < worst(printing(certified())) <= ROUNDS * DELTA, "δ alone would be a false figure"


def two_values() -> list[float]:
    """As a report would print them that knows two: that of at most 12 rounds, and of all."""
    return [0.0] + [certified()[12]] * 12 + [certified()[ROUNDS]] * 12


def test_few_printed_values_cost_as_many_times_delta() -> None:
    """Rounded up to two values, or up to one."""
    assert worst(printing(two_values())) <= 2 * DELTA
    assert worst(printing([0.0] + [certified()[ROUNDS]] * ROUNDS)) <= DELTA


def test_planted_half_of_each_printed_value_is_caught() -> None:
    assert worst(printing([value / 2.0 for value in two_values()])) > 2 * DELTA


def test_planted_the_delta_of_one_value_for_all_is_caught() -> None:
    """What is printed for one value at δ is true at each t alone, and false for a run that answers stop."""
    printed = printing(certified())
    assert worst(lambda t, p, q: printed(t, p, q) if t == ROUNDS else 0.0) <= DELTA < worst(printed)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Balle and Wang 2018, Theorem 8."""
    return float(ndtr(mu / 2.0 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2.0 - epsilon / mu))


def test_a_second_law_that_is_chosen_by_when_the_first_was_stopped_adds_its_own_delta() -> None:
    """Its ε is what the printed one leaves of the budget, whichever of two that is: 2·δ₁ + δ₂."""
    total, second = certified()[ROUNDS] + 0.2, 0.005

    def largest_mu(epsilon: float) -> float:
        low, high = 1e-3, 10.0
        for _ in range(60):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if gaussian_delta(middle, epsilon) <= second else (low, middle)
        return low

    def reached(left: Sequence[float]) -> float:
        mus = [largest_mu(value) for value in left]
        return worst(lambda t, p, q: p * gaussian_delta(mus[t], total + math.log(q / p)))

    bound = 2 * DELTA + second
    assert reached([total - value for value in two_values()]) <= bound
    assert reached([total] * len(two_values())) > bound, "planted: what was printed is not taken off"
