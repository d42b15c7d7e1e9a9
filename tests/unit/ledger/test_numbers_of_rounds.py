"""Numbers of rounds that answers may decide, and an evaluation that is stated with the labels and counts with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import brute_force
import numpy as np
import pytest

from collegium.errors import BudgetExceeded
from collegium.privacy.ledger.entry import Block
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.spending import Spending
from collegium.privacy.ledger.verifier import verify
from collegium_accounting.game.laws import VectorLaw, block_epsilon, block_profile
from collegium_accounting.game.winner import RoundLaw
from collegium_accounting.units import Adjacency

OpenLedger = Callable[..., Ledger]
LABEL = RoundLaw("discrete-gaussian", 20.0, Adjacency.REPLACE, classes=2)
TEST = RoundLaw("discrete-gaussian", 10.0, Adjacency.ADD_REMOVE)
COUNTS = VectorLaw(0.2, 1e-6)
WITH_COUNTS = {"counts": Block({"record": COUNTS}, fixed=True), "label": Block({"record": LABEL})}
STAGES = {"test": Block({"record": TEST}), "label": Block({"record": LABEL})}
DELTA = 1e-5


def stated_together(ledger: Ledger, labels: int = 60) -> None:
    ledger.allow(WITH_COUNTS, {"counts": 1 - ledger.used("counts"), "label": labels})


@pytest.mark.slow
def test_an_evaluation_that_was_stated_before_the_labels_counts_with_them(open_ledger: OpenLedger, path: Path) -> None:
    with open_ledger() as ledger:
        stated_together(ledger)
        ledger.charge("label", 10)
        both = block_epsilon({LABEL: 10, COUNTS: 1}, DELTA, {LABEL: 60, COUNTS: 1})
        assert ledger.epsilon() == both, "it counts before it is charged, as it may be asked for at any time"
        ledger.charge("counts", 1)
        ledger.charge("label", 10)
        both = block_epsilon({LABEL: 20, COUNTS: 1}, DELTA, {LABEL: 60, COUNTS: 1})
        apart = block_epsilon({LABEL: 20}, DELTA / 2) + block_epsilon({COUNTS: 1}, DELTA / 2)
        assert ledger.epsilon() == both < 0.85 * apart
        least, most = verify(path).bounds("record", "replace")
        with ledger.reading() as chain:
            assert not chain.spending.adaptive
        assert least <= both <= most


@pytest.mark.slow
def test_more_labels_may_follow_an_evaluation_within_the_same_budget(open_ledger: OpenLedger) -> None:
    with open_ledger(epsilon_budget=2.0) as ledger:
        stated_together(ledger, 20)
        ledger.charge("counts", 1)
        ledger.charge("label", 20)
        stated_together(ledger, 10_000)
        more = ledger.affordable("label", 10_000)
        ledger.charge("label", more)
        assert 1.95 < ledger.epsilon() <= 2.0
        with pytest.raises(BudgetExceeded):
            ledger.charge("label", 1)


@pytest.mark.slow
def test_an_evaluation_whose_noise_was_chosen_after_labels_counts_apart(open_ledger: OpenLedger) -> None:
    with open_ledger() as ledger:
        ledger.allow({"label": Block({"record": LABEL})}, {"label": 60})
        ledger.charge("label", 20)
        ledger.charge("counts", 1, {"record": COUNTS})
        apart = block_epsilon({LABEL: 20}, DELTA / 2, {LABEL: 60}) + block_epsilon({COUNTS: 1}, DELTA / 2)
        assert ledger.epsilon() == apart


def test_the_number_of_evaluations_cannot_be_raised_after_answers(open_ledger: OpenLedger) -> None:
    with open_ledger() as ledger:
        stated_together(ledger)
        ledger.charge("label", 10)
        ledger.allow(WITH_COUNTS, {"counts": 2, "label": 60})
        with pytest.raises(BudgetExceeded):
            ledger.charge("counts", 1)


@pytest.mark.slow
def test_whichever_number_answers_raise_both_count_as_raised(open_ledger: OpenLedger) -> None:
    """The attack: ask twenty of each, and then, as the answers fall, for more of the one or of the other."""
    with open_ledger(epsilon_budget=8.0) as ledger:
        ledger.allow(STAGES, {"test": 20, "label": 20})
        ledger.charge("test", 20)
        ledger.allow(STAGES, {"test": 0, "label": 40})
        ledger.charge("label", 1)
        assert ledger.epsilon() == block_epsilon({TEST: 40, LABEL: 40}, DELTA)


def test_a_number_that_was_none_at_first_is_not_raised_after_answers(open_ledger: OpenLedger) -> None:
    """No proportion can count it: whoever fixed none of it beforehand pays for it in no path."""
    with open_ledger(epsilon_budget=None) as ledger:
        ledger.allow(STAGES, {"test": 20, "label": 0})
        ledger.charge("test", 20)
        ledger.allow(STAGES, {"test": 0, "label": 1})
        ledger.charge("label", 1)
        assert ledger.epsilon() == np.inf


def test_planted_numbers_that_count_as_they_are_stated_are_seen(
    open_ledger: OpenLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Spending, "_bounds", lambda spending, family: spending._stated[family])
    with open_ledger(epsilon_budget=8.0) as ledger:
        ledger.allow(STAGES, {"test": 20, "label": 20})
        ledger.charge("test", 20)
        ledger.allow(STAGES, {"test": 0, "label": 40})
        ledger.charge("label", 1)
        assert ledger.epsilon() < 0.95 * block_epsilon({TEST: 40, LABEL: 40}, DELTA)


def test_who_chooses_by_answers_which_number_to_raise_gets_more_than_either_choice_costs() -> None:
    """Two coins and twelve tosses: after six of each kind, six more of the kind that the loss so far suggests."""
    often, rarely = (0.6, 0.4), (0.02, 0.001)
    epsilon = 2.0

    @cache
    def value(loss: float, kinds: tuple[tuple[float, float], ...], choose: bool) -> float:
        if not kinds:
            if choose:
                return max(value(loss, (coin,) * 6, False) for coin in (often, rarely))
            return max(0.0, -float(np.expm1(epsilon - loss)))
        (p, q), rest = kinds[0], kinds[1:]
        total = 0.0
        for one, other in ((p, q), (1.0 - p, 1.0 - q)):
            total += one * value(round(loss + float(np.log(one / other)), 9), rest, choose)
        return total

    both = (often,) * 6 + (rarely,) * 6
    either = max(value(0.0, both + (coin,) * 6, False) for coin in (often, rarely))
    all_raised = value(0.0, both + (often,) * 6 + (rarely,) * 6, False)
    assert 1.01 * either < value(0.0, both, True) <= all_raised


@pytest.mark.parametrize("before", [0, 1, 2])
def test_no_order_of_an_evaluation_and_labels_passes_what_is_counted_for_both(before: int) -> None:
    """The evaluation, a coin that Gaussian noise dominates, comes after some rounds; the others follow its answer."""
    pairs = brute_force.moved_votes([(a, 6 - a) for a in range(7)], "discrete-gaussian", 4.0)
    law, mu = RoundLaw("discrete-gaussian", 4.0, Adjacency.REPLACE, classes=2), 0.5
    coin = np.array([0.59, 0.41]), np.array([0.41, 0.59])
    dominating = block_profile({VectorLaw(mu): 1}, DELTA)
    for epsilon in (0.0, 0.2, 0.4):
        assert max(0.0, coin[0][0] - np.exp(epsilon) * coin[1][0]) <= dominating.delta(epsilon)

    def value(s: float, left: int, evaluated: bool) -> float:
        if not evaluated and left == 2 - before:
            return sum(p * value(s + np.log(p / q), left, True) for p, q in zip(*coin, strict=True))
        if left == 0:
            return max(0.0, -float(np.expm1(-s)))
        return max(
            sum(p * value(s + np.log(p / q), left - 1, evaluated) for p, q in zip(*pair, strict=True))
            for pair in pairs[:8]
        )

    for delta in (0.3, 0.1, 0.03):
        epsilon = block_epsilon({law: 2, VectorLaw(mu): 1}, delta)
        assert value(-epsilon, 2, False) <= delta * (1.0 + 1e-6)
