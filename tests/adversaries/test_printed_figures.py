"""No sequence of edits, restarts, crashes, jobs and moved budgets makes any printed ε smaller than what was paid.

What was paid is kept by the test itself: every charge with the mechanism's own curve for each unit, at the moment when
it was made. The independent verifier and everything that is printed must come to that or more.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from adversaries.conftest import configuration
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from collegium.coordinator.run.factories import open_ledger
from collegium.coordinator.run.labeller import Labeller, NoiseStrategy, charge_of
from collegium.errors import BudgetExceeded, ConfigurationError
from collegium.privacy.analysis.ledger_report import ledger_report
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.privacy.mechanisms import create
from collegium.privacy.renyi import WIDE_ORDERS, RenyiCurve

MECHANISMS = (
    {"name": "gnmax", "parameters": {"sigma": 40.0}},
    {"name": "gnmax", "parameters": {"sigma": 10.0}},
    {"name": "lnmax", "parameters": {"gamma": 0.05}},
    {"name": "confident-gnmax", "parameters": {"sigma1": 30.0, "sigma2": 20.0, "threshold": 10.0}},
)
UNITS = ("record", "party")


class Operator(RuleBasedStateMachine):
    """Edits the configuration and starts jobs, all under one ledger."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger.sqlite"
        self.asked: dict[str, Any] = {"budget__epsilon": 5.0, "mechanism": MECHANISMS[0]}
        self.paid = {unit: RenyiCurve.zero(WIDE_ORDERS) for unit in UNITS}
        self.largest_budget_used, self.queries = 0.0, 0

    @rule(mechanism=st.sampled_from(MECHANISMS))
    def edit_mechanism(self, mechanism: dict[str, Any]) -> None:
        self.asked["mechanism"] = mechanism

    @rule(epsilon=st.sampled_from([0.5, 1.0, 2.0, 5.0, 20.0]))
    def edit_budget(self, epsilon: float) -> None:
        self.asked["budget__epsilon"] = epsilon

    @rule(unit=st.sampled_from(UNITS), teachers=st.sampled_from([1, 3]))
    def edit_unit(self, unit: str, teachers: int) -> None:
        self.asked |= {"budget__unit": unit, "teachers__per_party": teachers}

    @rule(queries=st.integers(1, 40), crash=st.booleans())
    def job(self, queries: int, crash: bool) -> None:
        """Label fresh inputs; a crash comes between a charge and its labels."""
        config = configuration(**self.asked)
        mechanism = create(config.mechanism.name, **config.mechanism.parameters)
        votes = {"record": 1, "party": config.teachers.per_party}
        units = {name: mechanism.unit(number) for name, number in votes.items()}
        try:
            ledger = open_ledger(config, mechanism, self.path, None, noised_sum=False)
        except ConfigurationError:
            return
        with ledger:
            before = ledger.queries_charged()
            own = units.pop(config.budget.unit)
            labeller = Labeller(ledger, mechanism, own, NoiseStrategy(), others=units)
            keys = [f"pool:{self.queries + number}" for number in range(queries)]
            self.queries += queries
            counts = np.tile(np.array([20, 5, 0, 0]), (queries, 1))
            try:
                if crash:
                    labeller.pay(0, keys)
                else:
                    labeller.label(keys, counts)
            except BudgetExceeded:
                pass
            charges = [entry for entry in ledger.entries() if hasattr(entry.content, "curves")]
            if ledger.queries_charged() > before:
                self.largest_budget_used = max(self.largest_budget_used, config.budget.epsilon)
        for entry in charges[self.charges_seen :]:
            stage = next(stage for stage in mechanism.stages if stage.name == entry.content.purpose)  # type: ignore[union-attr]
            for name in UNITS:
                curve = charge_of(stage, config.budget.bound, WIDE_ORDERS, mechanism.unit(votes[name]))
                self.paid[name] = self.paid[name] + curve * entry.content.queries  # type: ignore[union-attr]
        self.charges_seen = len(charges)

    charges_seen = 0

    @invariant()
    def nothing_printed_is_below_what_was_paid(self) -> None:
        if not getattr(self, "path", None) or not self.path.exists():
            return
        found = verify(self.path)
        with Ledger.read(self.path) as ledger:
            printed, shown = ledger_report(ledger), [entry.spent.epsilon for entry in ledger.entries()][-1]
            counted, unit = ledger.epsilon().epsilon, ledger.terms().unit
        slack = 1 - 1e-9
        for name in UNITS:
            paid = self.paid[name].to_epsilon(1e-5).epsilon if self.charges_seen else 0.0
            assert found.epsilon((name, "replace")) >= paid * slack or not found.charges
            if name in printed.units and found.charges:
                assert printed.units[name].charged.epsilon >= paid * slack
        assert math.isclose(counted, found.epsilon(found.unit), rel_tol=1e-9) and math.isclose(counted, shown)
        assert printed.terms.unit == unit == found.unit[0]
        assert printed.guarantee >= found.guarantee() * slack
        if found.order is not None and found.charges:
            assert printed.guarantee >= self.largest_budget_used * slack or self.before_the_filter()

    def before_the_filter(self) -> bool:
        """Nothing was charged under a budget since there is a filter."""
        return not any(queries for terms, queries in verify(self.path).periods if terms["filter_order"])

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


Operator.TestCase.settings = settings(
    max_examples=40, stateful_step_count=14, deadline=None, suppress_health_check=list(HealthCheck)
)
test_no_sequence_of_edits_and_jobs_prints_less_than_was_paid = Operator.TestCase
