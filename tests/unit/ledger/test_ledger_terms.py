"""The terms are in the ledger: what was charged stays under its own, and what may be published follows from entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from unit.ledger.conftest import ONE

from collegium.errors import BudgetExceeded, ConfigurationError, LedgerCorrupt
from collegium.privacy.analysis.ledger_report import ledger_report
from collegium.privacy.ledger.entry import Block, Terms, law_as_json
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.stated_laws import check_terms, covers
from collegium.privacy.ledger.steps import Step
from collegium.privacy.ledger.verifier import Verified, verify
from collegium_accounting.divergences.independent import theorem_2
from collegium_accounting.game.laws import Law, RenyiLaw, VectorLaw, block_epsilon
from collegium_accounting.game.winner import RoundLaw
from collegium_accounting.mechanisms import AddedBy, create
from collegium_accounting.renyi import WIDE_ORDERS
from collegium_accounting.units import Adjacency, Unit

OpenLedger = Callable[..., Ledger]
THREE = VectorLaw(3 * ONE.mu)
LAPLACE = RenyiLaw.of(theorem_2(0.05, WIDE_ORDERS, Unit()))
PARTY = {"unit": "party", "votes_per_unit": {"record": 1, "party": 3}}
TOGETHER = {"test": Block({"record": VectorLaw(1 / 150)}), "answer": Block({"record": ONE})}


def charge(ledger: Ledger, queries: int, law: Law = ONE, unit: str = "record", **others: Law) -> int:
    return ledger.charge("release", queries, {unit: law, **others})


def affordable(ledger: Ledger, law: Law = ONE, unit: str = "record") -> int:
    return ledger.affordable("release", 10_000, {unit: law})


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


def test_a_lowered_budget_does_not_lower_what_an_adaptive_run_guarantees(open_ledger: OpenLedger) -> None:
    with open_ledger(epsilon_budget=8.0) as ledger:
        ledger.allow(TOGETHER, {"test": 500, "answer": 500})
        ledger.charge("test", 1)
        guaranteed = ledger.epsilon()
        assert 8.0 > guaranteed == pytest.approx(block_epsilon({VectorLaw(1 / 150): 500, ONE: 500}, 1e-5))
    with open_ledger(epsilon_budget=1.0) as ledger:
        assert ledger.epsilon() == guaranteed
        with pytest.raises(BudgetExceeded):
            ledger.charge("answer", 1)


def test_more_rounds_cost_more_once_something_is_charged_under_them(open_ledger: OpenLedger) -> None:
    with open_ledger(epsilon_budget=8.0) as ledger:
        ledger.allow(TOGETHER, {"test": 50, "answer": 50})
        ledger.charge("test", 10)
        before = ledger.epsilon()
        ledger.allow(TOGETHER, {"test": 100, "answer": 100})
        assert ledger.epsilon() == before
        ledger.charge("test", 1)
        assert before < ledger.epsilon() == pytest.approx(block_epsilon({VectorLaw(1 / 150): 110, ONE: 100}, 1e-5))


def test_another_unit_counts_what_was_charged_before_at_its_own_cost(open_ledger: OpenLedger) -> None:
    with open_ledger(votes_per_unit=PARTY["votes_per_unit"]) as ledger:
        charge(ledger, 100, party=THREE)
        record = ledger.epsilon()
    with open_ledger(**PARTY) as ledger:
        assert ledger.epsilon() == block_epsilon({THREE: 100}, 1e-5) > 2 * record
        assert affordable(ledger, THREE, "party") == 0, "4.0 was the budget of records, and a party has lost more"


def test_a_unit_that_earlier_charges_do_not_cover_is_never_given_a_figure(open_ledger: OpenLedger) -> None:
    with open_ledger() as ledger:
        charge(ledger, 1)
    for other in ({"unit": "party"}, {"adjacency": "add-remove"}):
        with open_ledger(**other) as ledger:
            assert ledger.epsilon() == np.inf
            assert affordable(ledger, ONE, str(other.get("unit", "record"))) == 0


def test_more_teachers_per_party_do_not_change_what_was_charged(open_ledger: OpenLedger) -> None:
    with open_ledger(unit="party", votes_per_unit={"party": 1}) as ledger:
        charge(ledger, 10, ONE, "party")
    with open_ledger(unit="party", votes_per_unit={"party": 3}) as ledger:
        charge(ledger, 10, THREE, "party")
        assert ledger.epsilon() == block_epsilon({ONE: 10, THREE: 10}, 1e-5)


@pytest.mark.parametrize(("first", "then"), [("system", "seeded"), ("seeded", "system"), ("seeded", "parties")])
def test_seeded_labels_and_private_ones_never_share_a_ledger(open_ledger: OpenLedger, first: str, then: str) -> None:
    with open_ledger(noise=first) as ledger:
        charge(ledger, 1)
    with pytest.raises(ConfigurationError, match="keep the seed as it was"):
        open_ledger(noise=then)
    with open_ledger(noise=first) as ledger:
        charge(ledger, 1)


def test_a_mechanism_chosen_after_labels_adds_its_own_epsilon_at_its_share_of_delta(open_ledger: OpenLedger) -> None:
    """Whoever changes it has seen labels: composing the two as if both had been fixed beforehand would be less."""
    with open_ledger(mechanism={"name": "gnmax", "sigma": 40.0}) as ledger:
        charge(ledger, 50)
        assert ledger.epsilon() == block_epsilon({ONE: 50}, 1e-5)
    with open_ledger(mechanism={"name": "lnmax", "gamma": 0.05}) as ledger:
        charge(ledger, 20, LAPLACE)
        summed = block_epsilon({ONE: 50}, 0.5e-5) + block_epsilon({LAPLACE: 20}, 0.5e-5)
        assert ledger.epsilon() == summed > block_epsilon({ONE: 50, LAPLACE: 20}, 1e-5)
        charge(ledger, affordable(ledger, LAPLACE), LAPLACE)
        assert 3.5 < ledger.epsilon() <= 4.0
    with open_ledger(mechanism={"name": "gnmax", "sigma": 40.0}) as ledger:
        assert ledger.epsilon() > 3.5, "it stays what it was"


def test_the_same_law_again_goes_on_where_it_stopped(open_ledger: OpenLedger) -> None:
    for _ in range(2):
        with open_ledger(mechanism={"name": "gnmax", "sigma": 40.0}) as ledger:
            charge(ledger, 20)
        with open_ledger(mechanism={"name": "gnmax", "sigma": 80.0}) as ledger:
            charge(ledger, 20, VectorLaw(ONE.mu / 2))
            spent = ledger.epsilon()
    assert spent == block_epsilon({ONE: 40, VectorLaw(ONE.mu / 2): 40}, 1e-5)


def test_two_owners_with_other_terms_each_charge_under_their_own(open_ledger: OpenLedger, path: Path) -> None:
    with open_ledger(epsilon_budget=2.0) as strict, open_ledger(epsilon_budget=8.0) as generous:
        charge(generous, affordable(generous))
        assert affordable(strict) == 0
        with pytest.raises(BudgetExceeded):
            charge(strict, 1)
    assert Terms().epsilon_budget is None
    assert verify(path).bounds("record", "replace")[0] > 7.0


@pytest.mark.parametrize("sums_first", [True, False])
def test_studies_of_teachers_and_of_sums_add_up_for_a_record_added_or_removed(
    open_ledger: OpenLedger, path: Path, sums_first: bool
) -> None:
    sums = VectorLaw(0.2)
    studies = [
        (sums, {"adjacency": "add-remove", "mechanism": {"name": "class-sums", "sigma": 5.0}}),
        (ONE, {"fixed_voters": True, "mechanism": {"name": "of-a-package-that-is-not-here", "sigma": 40.0}}),
    ]
    for law, terms in studies if sums_first else reversed(studies):
        with open_ledger(blocks={"release": Block({"record": law})}, **terms) as ledger:
            assert affordable(ledger, law) > 0
            charge(ledger, 1, law)
    with Ledger.read(path) as ledger:
        both = block_epsilon({sums: 1, ONE: 1}, 1e-5)
        assert ledger.units()[0] == ("record", "add-remove") and ledger.epsilon() == pytest.approx(both)
        assert ledger.epsilon(("record", "replace")) == np.inf, "nothing was stated of a replaced record's sums"
    least, most = verify(path).bounds("record", "add-remove")
    assert 0.5 * both < least <= both < most < 2 * both
    assert verify(path).bounds("record", "replace")[1] == np.inf


@pytest.mark.parametrize("name", ["gnmax", "of-a-package-that-is-not-here"])
def test_a_report_computes_each_charge_again_and_so_needs_the_package_of_the_mechanism(
    open_ledger: OpenLedger, name: str
) -> None:
    gnmax = create("gnmax", sigma=40.0)
    honest = Step.of(gnmax, gnmax.summed(AddedBy(3))[0], {"record": Unit()})
    terms = {"fixed_voters": True, "honest_survivors": 3, "source": "somebody 2031", "epsilon_budget": None}
    blocks = {"release": Block(honest.laws, 9, step=replace(honest, mechanism=name))}
    with open_ledger(mechanism={"name": name, "bound": "exact", "sigma": 40.0}, blocks=blocks, **terms) as ledger:
        ledger.charge("release", ["one", "two"], expected=honest.laws)
        if name != "gnmax":
            with pytest.raises(LedgerCorrupt, match=r"cannot be computed.*install its package"):
                ledger_report(ledger)
            return
        report = ledger_report(ledger)
    assert report.epsilon == pytest.approx(block_epsilon({honest.laws["record"]: 2}, 1e-5))
    assert (report.terms.source, report.queries_charged) == ("somebody 2031", 2)


GNMAX = create("gnmax", sigma=40.0)
STEP = Step.of(GNMAX, GNMAX.summed(AddedBy(3))[0], {"record": Unit()})


@pytest.mark.parametrize("change", [{"counted": "as I like"}, {"free": True}])
def test_a_step_in_a_form_that_is_not_known_is_refused(change: dict[str, object]) -> None:
    assert Step.read(asdict(STEP)) == STEP
    with pytest.raises(LedgerCorrupt, match="a step of a mechanism in an unknown form"):
        Step.read(asdict(STEP) | change)


def test_a_step_that_the_mechanism_does_not_have_costs_nothing_that_anybody_accepts() -> None:
    terms = Terms(blocks={"release": Block(STEP.laws, step=replace(STEP, stage="free"))})
    with pytest.raises(LedgerCorrupt, match="cannot be computed: gnmax has no step 'free'"):
        check_terms(terms)
    check_terms(Terms(blocks={"release": Block(STEP.laws, step=STEP)}))


def test_a_law_of_another_kind_covers_no_cost() -> None:
    """However much it states: what it is compared with is no number of its own kind."""
    laws = VectorLaw(1e9, 1e9), RenyiLaw((1e9,) * len(WIDE_ORDERS)), RoundLaw("discrete-gaussian", 90.0)
    assert [[covers(stated, own) for own in laws] for stated in laws] == np.eye(len(laws)).tolist()


def test_votes_of_records_that_may_leave_say_nothing_of_a_record_added_or_removed(open_ledger: OpenLedger) -> None:
    with open_ledger(blocks={"release": Block({"record": ONE})}, mechanism={"name": "gnmax", "sigma": 40.0}) as ledger:
        charge(ledger, 1, ONE)
        assert ledger.epsilon(("record", "add-remove")) == np.inf
    with open_ledger(fixed_voters=True) as ledger:
        assert ledger.epsilon(("record", "add-remove")) == np.inf, "what was charged keeps what it was charged for"


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 20])
@pytest.mark.parametrize("scale", [0.5, 1.0, 2.5, 4.0])
@pytest.mark.parametrize("noise", ["discrete-gaussian", "discrete-laplace", "gumbel"])
def test_what_is_counted_lies_between_the_verifiers_bounds_however_little_noise_there_is(
    noise: str, scale: float, rounds: int
) -> None:
    law = RoundLaw(noise, scale, Adjacency.REPLACE, classes=2)
    family = {"labels": [{"record": law_as_json(law)}, rounds, rounds, False, rounds]}
    found = Verified(settings={"delta": (1e-5).hex()}, families={"labels": ("replace", family)})
    least, most = found.bounds("record", "replace")
    assert least <= block_epsilon({law: rounds}, 1e-5) <= most * (1 + 1e-9)
