"""No sequence of edits, restarts, crashes, runs and moved budgets makes any printed ε smaller than what was paid.

What was paid is kept by the test itself: every charge with the mechanism's own law for each unit, at the moment when
it was made. Everything that is printed must come to what all these rounds cost together, or more, and not lie below
what an adversary forces of the rounds of any one law, nor below what the independent verifier says that one forces.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import pytest
from adversaries.conftest import configuration
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.labels_at_hand import LabelsAtHand

from collegium.coordinator.noise import CoordinatorNoise
from collegium.coordinator.run.factories import open_ledger
from collegium.errors import BudgetExceeded, ConfigurationError
from collegium.privacy.analysis.ledger_report import ledger_report
from collegium.privacy.ledger.entry import Charge
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.spending import Spending
from collegium.privacy.ledger.verifier import verify
from collegium_accounting.game.laws import Law, block_epsilon
from collegium_accounting.game.winner import RoundLaw, winner_profile
from collegium_accounting.mechanisms import COORDINATOR, create

DELTA = 1e-5

MECHANISMS = (
    {"name": "gnmax", "parameters": {"sigma": 40.0}},
    {"name": "gnmax", "parameters": {"sigma": 10.0}},
    {"name": "exponential", "parameters": {"gamma": 0.05}},
    {"name": "confident-gnmax", "parameters": {"sigma1": 30.0, "sigma2": 20.0, "threshold": 10.0}},
)
"""With two classes each of their games takes a second; jobs of one size share most of them."""
UNITS = ("record", "party")
TASK = {"classes": ["north", "south"], "inputs": {"kind": "image", "height": 2, "width": 4, "channels": 1}}
GRID = 0.97
"""Chords round up, and more where profiles are composed: what was paid is known that closely."""


class Operator(RuleBasedStateMachine):
    """Edits the configuration and starts runs, all under one ledger."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger.sqlite"
        self.asked: dict[str, Any] = {"mechanism": MECHANISMS[0], "task": TASK}
        self.asked |= {"budget__epsilon": 2.0, "budget__bound": "exact"}
        self.paid: dict[str, Counter[Law]] = {unit: Counter() for unit in UNITS}
        self.queries = 0

    @rule(mechanism=st.sampled_from(MECHANISMS))
    def edit_mechanism(self, mechanism: dict[str, Any]) -> None:
        self.asked["mechanism"] = mechanism

    @rule(epsilon=st.sampled_from([0.5, 2.0, 20.0]))
    def edit_budget(self, epsilon: float) -> None:
        self.asked["budget__epsilon"] = epsilon

    @rule(unit=st.sampled_from(UNITS), teachers=st.sampled_from([1, 3]))
    def edit_unit(self, unit: str, teachers: int) -> None:
        self.asked |= {"budget__unit": unit, "teachers__per_party": teachers}

    @rule(queries=st.just(12), crash=st.booleans())
    def job(self, queries: int, crash: bool) -> None:
        """Label fresh inputs; a crash comes between a charge and its labels."""
        config = configuration(**self.asked)
        mechanism = create(config.mechanism.name, **config.mechanism.parameters)
        votes = {"record": 1, "party": config.teachers.per_party}
        units = {name: mechanism.unit(number) for name, number in votes.items()}
        try:
            ledger = open_ledger(config, mechanism, COORDINATOR, self.path, None)
        except ConfigurationError:
            return
        with ledger:
            own = units.pop(config.budget.unit)
            run = LabelsAtHand(ledger, mechanism, own, CoordinatorNoise(), others=units, queries=queries, classes=2)
            keys = [f"pool:{self.queries + number}" for number in range(queries)]
            self.queries += queries
            counts = np.tile(np.array([20, 5]), (queries, 1))
            try:
                if crash:
                    run.statement.pay(run.statement.stages[0], run.labels.worth_asking(keys) or keys)
                else:
                    run.label(keys, counts)
            except (BudgetExceeded, ConfigurationError):
                pass
            charges = [entry.content for entry in ledger.entries() if isinstance(entry.content, Charge)]
        for charge in charges[self.charges_seen :]:
            stage = next(stage for stage in mechanism.stages if stage.name == charge.purpose)
            for name in UNITS:
                self.paid[name][stage.law(mechanism.unit(votes[name]), 2)] += charge.queries
        self.charges_seen = len(charges)

    charges_seen = 0

    @invariant()
    def nothing_printed_is_below_what_was_paid(self) -> None:
        if not getattr(self, "path", None) or not self.path.exists():
            return
        found = verify(self.path)
        with Ledger.read(self.path) as ledger:
            printed, shown = ledger_report(ledger), [entry.spent for entry in ledger.entries()][-1]
            counted, unit = ledger.epsilon(), ledger.terms().unit
        for name in set(UNITS) & printed.units.keys():
            epsilon = printed.units[name]
            assert epsilon >= GRID * block_epsilon(self.paid[name], DELTA)
            least, most = found.bounds(name, "replace")
            assert least * (1.0 - 1e-9) <= epsilon <= most * (1.0 + 1e-9)
            forced = [winner_profile(law, n).attained(DELTA) for law, n in self.paid[name].items() if _is_game(law)]
            assert epsilon >= max(forced, default=0.0)
        assert counted == shown == printed.epsilon
        assert printed.terms.unit == unit == found.periods[-1][0]["unit"]

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


Operator.TestCase.settings = settings(
    max_examples=40, stateful_step_count=14, deadline=None, suppress_health_check=list(HealthCheck)
)
test_no_sequence_of_edits_and_runs_prints_less_than_was_paid = pytest.mark.slow(Operator.TestCase)


@pytest.mark.slow
@pytest.mark.parametrize("planted", ["what came before is forgotten", "used, not stated"])
def test_an_accountant_that_forgets_is_caught(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Spending._groups

    def forgetful(self: Spending, *arguments: Any) -> Any:
        groups = honest(self, *arguments)
        if groups and planted == "what came before is forgotten":
            return groups[-1:]
        return groups and [{law: (count // 2, most) for law, (count, most) in group.items()} for group in groups]

    monkeypatch.setattr(Spending, "_groups", forgetful)
    operator = Operator()
    operator.begin()
    operator.edit_budget(20.0)
    operator.job(12, False)
    operator.edit_mechanism(MECHANISMS[2])
    operator.job(3, False)
    with pytest.raises(AssertionError):
        operator.nothing_printed_is_below_what_was_paid()
    operator.teardown()


def _is_game(law: Law) -> TypeGuard[RoundLaw]:
    return isinstance(law, RoundLaw)
