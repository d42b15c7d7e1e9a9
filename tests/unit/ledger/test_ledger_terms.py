"""The terms are in the ledger: what was charged stays under its own, and what may be published follows from entries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from collegium.errors import BudgetExceeded, ConfigurationError
from collegium.privacy.ledger.entry import Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.privacy.renyi import WIDE_ORDERS, RenyiCurve, gaussian_curve

OpenLedger = Callable[..., Ledger]
ONE, THREE = (gaussian_curve(votes * 2**0.5, 40.0, WIDE_ORDERS) for votes in (1, 3))
PARTY = {"unit": "party", "votes_per_unit": {"record": 1, "party": 3}}


def charge(ledger: Ledger, queries: int, curve: RenyiCurve = ONE, **others: RenyiCurve) -> int:
    return ledger.charge(purpose="release", mechanism={"name": "gnmax"}, curve=curve, queries=queries, others=others)


def test_the_terms_of_every_charge_are_in_the_entries(open_ledger: OpenLedger, path: Path) -> None:
    with open_ledger(mechanism={"name": "gnmax", "sigma": 40.0}) as ledger:
        charge(ledger, 10)
    with open_ledger(epsilon_budget=8.0, mechanism={"name": "gnmax", "sigma": 20.0}) as ledger:
        charge(ledger, 20)
        assert ledger.terms().mechanism["sigma"] == 20.0
    periods = [(t["mechanism"]["sigma"], float.fromhex(t["epsilon_budget"]), n) for t, n in verify(path).periods]
    assert periods == [(40.0, 4.0, 10), (20.0, 8.0, 20)]


def test_the_same_terms_again_are_no_new_entry(open_ledger: OpenLedger) -> None:
    heads = []
    for _ in range(2):
        with open_ledger() as ledger:
            heads.append(ledger.head())
    assert heads[0] == heads[1]


def test_a_lowered_budget_does_not_lower_what_an_adaptive_run_guarantees(open_ledger: OpenLedger, path: Path) -> None:
    with open_ledger(epsilon_budget=8.0, filter_order=8.0) as ledger:
        charge(ledger, ledger.affordable(ONE, 10_000))
        assert 7.0 < ledger.epsilon().epsilon <= ledger.guarantee() == 8.0
    with open_ledger(epsilon_budget=1.0, filter_order=8.0) as ledger:
        assert ledger.guarantee() == verify(path).guarantee() == 8.0
        with pytest.raises(BudgetExceeded):
            charge(ledger, 1)


def test_a_raised_budget_counts_once_something_is_charged_under_it(open_ledger: OpenLedger) -> None:
    with open_ledger(epsilon_budget=2.0, filter_order=8.0) as ledger:
        charge(ledger, 10)
    with open_ledger(epsilon_budget=3.0, filter_order=8.0) as ledger:
        assert ledger.guarantee() == 2.0
        charge(ledger, 1)
        assert ledger.guarantee() == 3.0


def test_another_unit_counts_what_was_charged_before_at_its_own_cost(open_ledger: OpenLedger) -> None:
    with open_ledger(votes_per_unit=PARTY["votes_per_unit"]) as ledger:
        charge(ledger, 100, party=THREE)
        record = ledger.epsilon().epsilon
    with open_ledger(**PARTY) as ledger:
        assert ledger.epsilon().epsilon == (THREE * 100).to_epsilon(1e-5).epsilon > 2 * record
        assert ledger.affordable(THREE, 10_000) == 0, "4.0 was the budget of records, and a party has lost more"


def test_a_unit_that_earlier_charges_do_not_cover_is_never_given_a_figure(open_ledger: OpenLedger) -> None:
    with open_ledger() as ledger:
        charge(ledger, 1)
    for other in ({"unit": "party"}, {"adjacency": "add-remove"}):
        with open_ledger(**other) as ledger:
            assert ledger.epsilon().epsilon == np.inf
            assert ledger.affordable(ONE, 1) == 0


def test_more_teachers_per_party_do_not_change_what_was_charged(open_ledger: OpenLedger) -> None:
    with open_ledger(unit="party", votes_per_unit={"party": 1}) as ledger:
        charge(ledger, 10, ONE)
    with open_ledger(unit="party", votes_per_unit={"party": 3}) as ledger:
        charge(ledger, 10, THREE)
        assert ledger.epsilon().epsilon == pytest.approx((ONE * 10 + THREE * 10).to_epsilon(1e-5).epsilon)


@pytest.mark.parametrize(("first", "then"), [("system", "seeded"), ("seeded", "system"), ("seeded", "parties")])
def test_seeded_labels_and_private_ones_never_share_a_ledger(open_ledger: OpenLedger, first: str, then: str) -> None:
    with open_ledger(noise=first) as ledger:
        charge(ledger, 1)
    with pytest.raises(ConfigurationError, match="keep the seed as it was"):
        open_ledger(noise=then)
    with open_ledger(noise=first) as ledger:
        charge(ledger, 1)


def test_another_mechanism_is_charged_under_a_filter(open_ledger: OpenLedger, path: Path) -> None:
    """Whoever changes it has seen labels: from then on the budget is kept at one order, and is what is guaranteed."""
    with open_ledger(mechanism={"name": "gnmax", "sigma": 40.0}) as ledger:
        charge(ledger, 50)
        assert ledger.guarantee() == ledger.epsilon().epsilon < 2.0
    with open_ledger(mechanism={"name": "lnmax", "gamma": 0.05}) as ledger:
        assert ledger.terms().filter_order is not None
        charge(ledger, 1)
        assert ledger.guarantee() == verify(path).guarantee() == 4.0
        charge(ledger, ledger.affordable(ONE, 10_000))
        assert ledger.epsilon().order == ledger.terms().filter_order
    with open_ledger(mechanism={"name": "gnmax", "sigma": 40.0}) as ledger:
        assert ledger.terms().filter_order is not None, "it stays once it is there"


def test_two_owners_with_other_terms_each_charge_under_their_own(open_ledger: OpenLedger, path: Path) -> None:
    with open_ledger(epsilon_budget=2.0) as strict, open_ledger(epsilon_budget=8.0) as generous:
        charge(generous, generous.affordable(ONE, 10_000))
        assert strict.affordable(ONE, 1) == 0
        with pytest.raises(BudgetExceeded):
            charge(strict, 1)
    assert Terms().epsilon_budget is None
    assert verify(path).epsilon(("record", "replace")) > 7.0
