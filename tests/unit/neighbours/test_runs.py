"""Whole runs over parties whose records vote: three ways to sum, interruptions, and a constant ε."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coordinators import Crash, coordinator_for, labels_of
from support.digit_parties import PARTIES, ROSTER, TASK, members, run_config

from collegium.coordinator.kinds import near_records as questions
from collegium.coordinator.run.coordinator import Progress
from collegium.coordinator.run.run_folder import read_run
from collegium.coordinator.selection.pool_geometry import public_radii_squared
from collegium.coordinator.selection.queries import representatives
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples
from collegium.errors import (
    BudgetExceeded,
    ConfigurationError,
    UnsupportedAccounting,
)
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.kinds.near_records import CastNeighbours
from collegium.protocol.messages import Request
from collegium.protocol.requests import Ask
from collegium.protocol.secure_sum import plan_graph
from collegium.simulations.local import InProcessParties
from collegium_accounting.analysis.account import account
from collegium_accounting.game.laws import VectorLaw, block_epsilon
from collegium_accounting.mechanisms import COORDINATOR, AddedBy, Adjacency, Mechanism, Unit, create
from collegium_accounting.mechanisms.individual_knn import IndividualKNN
from collegium_accounting.renyi import WIDE_ORDERS

pytestmark = pytest.mark.slow

SIGMA, PARTICIPATIONS = 4.0, 2

SETTINGS: dict[str, Any] = {
    "mechanism": {"name": "individual-knn", "parameters": {"sigma": SIGMA, "participations": PARTICIPATIONS}},
    "neighbours": {"features": "hog", "dimensions": 16, "share": 0.04},
    "budget": {"epsilon": 2.5},
    "queries": {"count": 20, "batch": 7, "choice": "representative"},
    "votes": {"mode": "clear", "quorum": 1.0},
}


def config(**changes: Any) -> RunConfig:
    return run_config(SETTINGS, changes)


class Consortium(InProcessParties):
    """Parties that keep their folders, and every request that they were asked."""

    def __init__(self, private: Examples, folder: Path, parties: int = PARTIES) -> None:
        self.asked: list[CastNeighbours] = []
        super().__init__(members(private, folder, parties=parties, record_rho=0.2), "trial")

    def ask(self, requests: Any, **options: Any) -> Any:
        self.asked += [body.question for body in requests.values() if isinstance(body, Ask)]
        return super().ask(requests, **options)


@pytest.fixture
def go(public: PublicData, private: Examples, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def run(folder: str = "run", *, parties: int = PARTIES, tell: Any = None, **changes: Any) -> dict[str, Any]:
        consortium = Consortium(private, tmp_path / folder, parties)
        coordinator = coordinator_for(
            config(**changes), consortium, tmp_path / folder, public=public, signing_keys=ROSTER, on_progress=tell
        )
        run.asked = consortium.asked  # type: ignore[attr-defined]
        return coordinator.label()

    return run


def expected_epsilon(mode: str = "clear", **more: int) -> float:
    """A record plays for as many rounds as it may vote in; noised sums show the whole vector to the coordinator."""
    mechanism: Mechanism = create("individual-knn", sigma=SIGMA, participations=PARTICIPATIONS, **more)
    honest = plan_graph(PARTIES, 0.3, 0.1).honest_survivors if mode == "masked+noised" else 0
    law = mechanism.summed(AddedBy(honest))[0].law(mechanism.unit(), len(TASK.classes))
    return block_epsilon({law: PARTICIPATIONS}, 1e-5)


# The seed fixes the coordinator's noise, so 0.85 is certain. The parties' own noise has no seed: of 500 labels so drawn
# 0.858 were right; of 20 labels, each right with probability 0.8 or more, fewer than 6 are right with probability
# below 1e-6.
@pytest.mark.parametrize(("mode", "accuracy"), [("clear", 0.85), ("masked", 0.85), ("masked+noised", 6 / 20)])
def test_labels_are_right_and_cost_a_constant_in_every_mode(
    mode: str, accuracy: float, go: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    run = go(votes__mode=mode)
    assert run.labels.answered == 20 and run.labels.quality.accuracy >= accuracy
    assert run.privacy.epsilon == run.privacy.units["record"] == pytest.approx(expected_epsilon(mode), rel=1e-6)
    assert expected_epsilon("clear") < expected_epsilon("masked+noised"), "the winner alone costs less"
    assert "party" not in run.privacy.units and run.privacy.queries_charged == 20
    assert all(request.terms.adjacency == "add-remove" for request in go.asked)  # type: ignore[attr-defined]


def test_more_queries_cost_no_more(go: Callable[..., dict[str, Any]]) -> None:
    assert go("few", queries__count=5).privacy.epsilon == go("many", queries__count=60).privacy.epsilon


def test_the_parties_together_answer_as_one_process_with_all_records(
    go: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Exactly, noise apart: here it follows from the seed."""
    go("one", parties=1)
    go("clear")
    go("masked", votes__mode="masked")
    assert labels_of(tmp_path / "one") == labels_of(tmp_path / "clear") == labels_of(tmp_path / "masked")


@pytest.mark.parametrize("mode", ["clear", "masked"])
@pytest.mark.parametrize("step", ["votes", "labels"])
def test_a_run_that_died_resumes_with_the_same_labels_and_no_record_pays_twice(
    step: str, mode: str, go: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    # One participation: a record that paid twice would be missing afterwards.
    changes = {"votes__mode": mode, "mechanism": {"name": "individual-knn", "parameters": {"sigma": 2.0}}}
    changes["mechanism"]["parameters"]["participations"] = 1  # type: ignore[index]
    go("whole", **changes)
    seen = []

    def die(progress: Progress) -> None:
        seen.append(progress.step)
        if progress.step == step and seen.count(step) == 2 and progress.done:
            raise Crash

    with pytest.raises(Crash):
        go("cut", tell=die, **changes)
    resumed = go("cut", **changes)
    assert labels_of(tmp_path / "cut") == labels_of(tmp_path / "whole")
    with Ledger.read(tmp_path / "cut" / "ledger.sqlite") as ledger:
        assert resumed.privacy.epsilon == pytest.approx(ledger.epsilon())
    assert resumed.privacy.epsilon == read_run(tmp_path / "whole").privacy.epsilon


def test_a_budget_below_the_constant_asks_nobody(go: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(BudgetExceeded, match="however much is asked"):
        go(budget__epsilon=expected_epsilon() * 0.99)
    assert go.asked == []  # type: ignore[attr-defined]


def test_kernel_weights_cost_what_the_whole_vector_of_whole_votes_costs(go: Callable[..., dict[str, Any]]) -> None:
    parameters = {"sigma": SIGMA, "participations": PARTICIPATIONS, "levels": 16}
    near = {"features": "hog", "dimensions": 16, "share": 0.08, "kernel": "quadratic"}
    run = go(mechanism={"name": "individual-knn", "parameters": parameters}, neighbours=near)
    assert run.privacy.epsilon == pytest.approx(expected_epsilon(levels=16))
    assert run.privacy.epsilon == pytest.approx(block_epsilon({VectorLaw(1 / SIGMA): PARTICIPATIONS}, 1e-5), rel=1e-3)
    assert run.labels.quality.accuracy >= 0.8
    assert go.asked[0].terms.parameters == parameters  # type: ignore[attr-defined]


def requests_of(private: Examples, public: PublicData, folder: Path) -> list[bytes]:
    """All that a run asks, as bytes, but for the name of its ledger."""
    consortium = Consortium(private, folder)
    coordinator_for(config(), consortium, folder, public=public).label()
    asked = []
    for body in consortium.asked:
        asked.append(Request("id", "trial", Ask("round", replace(body, ledger_id="ledger"))).to_bytes())
    return asked


def test_what_is_asked_depends_on_public_data_alone(public: PublicData, private: Examples, tmp_path: Path) -> None:
    fewer = private.take(np.arange(400))
    assert requests_of(private, public, tmp_path / "a") == requests_of(fewer, public, tmp_path / "b")


def test_a_radius_that_looks_at_private_data_is_caught(
    public: PublicData, private: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(records: Examples, folder: Path) -> list[bytes]:
        def planted(features: Any, queries: Any, share: float) -> Any:
            return public_radii_squared(features, queries, share) + len(records)

        monkeypatch.setattr(questions, "public_radii_squared", planted)
        return requests_of(records, public, folder)

    assert asked(private, tmp_path / "a") != asked(private.take(np.arange(1496)), tmp_path / "b")


def test_radii_hold_the_share_of_the_pool_and_queries_are_distinct() -> None:
    features = np.random.default_rng(0).integers(-500, 500, (200, 3)).astype(np.int16)
    chosen = representatives(features, 30, seed=1)
    assert len(set(chosen.tolist())) == 30
    radii = public_radii_squared(features, chosen, 0.1)
    for query, radius in zip(chosen, radii, strict=True):
        apart = ((features.astype(int) - features[query].astype(int)) ** 2).sum(axis=1)
        assert (np.delete(apart, query) <= radius).sum() >= math.ceil(0.1 * 199)
        assert (np.delete(apart, query) < radius).sum() < math.ceil(0.1 * 199)
    with pytest.raises(ConfigurationError, match="distinct"):
        representatives(np.zeros((40, 2), np.int16), 30, seed=0)


def test_representatives_lie_apart() -> None:
    """Three heaps: three queries, one each."""
    heaps = np.repeat(np.array([[0, 0], [9000, 0], [0, 9000]]), 50, axis=0)
    features = (heaps + np.random.default_rng(0).integers(0, 100, heaps.shape)).astype(np.int16)
    assert {int(position) // 50 for position in representatives(features, 3, seed=0)} == {0, 1, 2}


def test_where_the_unit_is_the_party_each_is_one_voter_and_pays_for_its_participations_alone(
    go: Callable[..., dict[str, Any]],
) -> None:
    record: Any = go(budget__unit="party")
    asked = go.asked  # type: ignore[attr-defined]
    assert asked and all(body.per_party for body in asked)
    assert set(record.privacy.units) == {"party"} and record.privacy.terms.votes_per_unit == {"party": 1}
    law = IndividualKNN(SIGMA, PARTICIPATIONS).stages[0].law(Unit(1, Adjacency.ADD_REMOVE), len(TASK.classes))
    expected = block_epsilon({law: PARTICIPATIONS}, 1e-5)
    assert record.privacy.epsilon == pytest.approx(expected, rel=1e-6)
    assert max(one.answered for one in record.rounds) == PARTIES


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"neighbours": None}, "belong together"),
        ({"mechanism": {"name": "gnmax", "parameters": {"sigma": 4.0}}}, "belong together"),
        ({"neighbours__kernel": "quadratic"}, "levels above 1"),
        ({"neighbours__share": 0.0}, "greater than 0"),
    ],
)
def test_settings_that_contradict_each_other_are_named(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        config(**changes)


def test_more_dimensions_than_the_pool_has_are_refused(go: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(ConfigurationError, match="at most 299 components"):
        go(neighbours__dimensions=300)


def test_dimensions_of_zero_keep_the_features_as_they_are(go: Callable[..., dict[str, Any]]) -> None:
    go(neighbours__dimensions=0, queries__count=3)
    assert go.asked[0].features.projection is None  # type: ignore[attr-defined]


def test_accounting_by_the_votes_is_refused() -> None:
    mechanism = create("individual-knn", sigma=4.0, participations=1)
    for added, said in ((COORDINATOR, "without votes"), (AddedBy(3), "with --queries")):
        with pytest.raises(UnsupportedAccounting, match=said):
            account(mechanism, votes=[[3, 4]], added=added)


def test_noise_from_the_parties_costs_what_it_must_and_no_less() -> None:
    """Whatever the levels: a whole participation, and never below the noise of one Gaussian."""
    unit = Unit(1, Adjacency.ADD_REMOVE)
    whole = create("individual-knn", sigma=4.0, participations=1).stages[0].charge(WIDE_ORDERS, unit)
    for levels in (1, 16):
        mechanism = create("individual-knn", sigma=4.0, participations=1, levels=levels)
        charged = mechanism.summed(AddedBy(3))[0].charge(WIDE_ORDERS, unit)
        assert (charged.values <= whole.values * 1.001).all() and (charged.values >= whole.values * 0.999999).all()
    mechanism = create("individual-knn", sigma=1.0, participations=1)
    rough, finer = (mechanism.summed(added)[0] for added in (AddedBy(4), COORDINATOR))
    assert (rough.charge(WIDE_ORDERS, unit).values > finer.charge(WIDE_ORDERS, unit).values).all()
