"""Two studies of one consortium ask the same of the same records: what they release together is what is charged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.utils import shuffle

import collegium as cg
from collegium.coordinator.run import coordinator as run
from collegium.coordinator.run.labeller import Labeller
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples
from collegium.errors import QuorumNotReached
from collegium.parties.neighbours.counting import Sampler
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.settings import validate_config
from collegium_accounting.game.laws import block_epsilon
from collegium_accounting.mechanisms import Adjacency, Unit, create

X, Y = shuffle(*load_wine(return_X_y=True), random_state=0)
TASK = cg.task_of(X[:40], classes=["a", "b", "c"])
PUBLIC = PublicData(Examples(cg.encode(X[:40], TASK)))
WITHIN = {"name": "individual-knn", "parameters": {"sigma": 8.0, "participations": 2}}
VOTED = {"name": "gnmax", "parameters": {"sigma": 3.0}}
SAMPLED = {"name": "knn", "parameters": {"sigma1": 8.0, "sigma2": 4.0, "threshold": 1.0, "sampling_rate": 0.5}}

Serve = Callable[..., RunRecord]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Serve a study of six inputs over three institutions that agree to ``times`` answers about an input."""
    parties: dict[int, cg.LocalParties] = {}

    def served(study: str, mechanism: dict[str, Any], *, mode: str = "masked", times: int = 2) -> RunRecord:
        policy = cg.PolicyConfig(
            minimum_noise_votes=1,
            sum_modes=(mode,),
            record_epsilon=90.0,
            record_rho=0.1,
            times_per_query=times,
            few_parties=True,
        )
        if times not in parties:
            records = {f"c-{n}": (X[40 + n :: 3], Y[40 + n :: 3]) for n in range(3)}
            parties[times] = cg.LocalParties(records, TASK, policy=policy, folder=tmp_path / "parties")
        asked: dict[str, Any] = {"teachers": {"kind": "random-forest"}}
        if mechanism is not VOTED:
            near = {"k": 9} if mechanism is SAMPLED else {}
            asked = {"neighbours": {"share": 0.2, "features": "standard", "dimensions": 8, **near}}
        values = {
            "name": "local",
            "task": TASK,
            "pool": {"source": "wine"},
            "mechanism": mechanism,
            "budget": {"epsilon": 60.0},
            "queries": {"count": 6, "batch": 3},
            "student": {"method": "random-forest"},
            "votes": {"mode": mode, "quorum": 1.0},
        } | asked
        config = validate_config(values, RunConfig, "test")
        storage = run.Storage(tmp_path / study, ledger=tmp_path / "ledger.sqlite", study=study)
        reach = run.Reach(parties[times], signing_keys=parties[times].signing_keys)
        return run.Coordinator(config, reach, storage, public=PUBLIC).label()

    return served


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["clear", "masked"])
def test_a_second_study_of_the_same_neighbours_is_answered_and_charged_afresh(
    serve: Serve, tmp_path: Path, mode: str
) -> None:
    """It had other noise on the counts of the first, which no record paid for and the ledger did not charge."""
    mechanism = create(WITHIN["name"], **WITHIN["parameters"])
    law = mechanism.stages[0].law(mechanism.unit(1), len(TASK.classes))
    for number, study in enumerate(("one", "two"), start=1):
        assert serve(study, WITHIN, mode=mode).labels.answered == 6
        with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
            assert ledger.epsilon() == pytest.approx(block_epsilon({law: 2 * number}, 1e-5), rel=1e-9)
            least, most = verify(tmp_path / "ledger.sqlite").bounds("record", "add-remove")
            assert least <= ledger.epsilon() <= most
    with sqlite3.connect(tmp_path / "parties" / "c-0" / "record-budgets.sqlite") as database:
        paid = database.execute("SELECT run, COUNT(*) FROM spent WHERE units_squared > 0 GROUP BY run").fetchall()
    assert len(paid) == 2 and paid[0][1] == paid[1][1] > 0, "the same records paid in each"
    spent = verify(tmp_path / "ledger.sqlite").charges
    serve("two", WITHIN, mode=mode)
    assert verify(tmp_path / "ledger.sqlite").charges == spent, "a study that is started again pays nothing"


@pytest.mark.parametrize("mechanism", [WITHIN, VOTED])
def test_an_institution_that_agreed_to_one_answer_refuses_the_second_study(
    serve: Serve, mechanism: dict[str, Any]
) -> None:
    serve("one", mechanism, times=1)
    with pytest.raises(QuorumNotReached, match="refused-queries"):
        serve("two", mechanism, times=1)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["clear", "masked"])
def test_a_second_study_of_the_same_teachers_is_charged_at_the_institutions_too(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """It had other noise on the votes of the first, and the institution's own account stayed at one charge for both.

    A study that was killed after the votes of a batch were summed asks for them again, and that costs nothing.
    """
    mechanism, releases = create(VOTED["name"], **VOTED["parameters"]), iter(range(100))
    release = Labeller._release

    def dies(self: Labeller, *told: Any) -> None:
        if next(releases) == 1:
            raise KeyboardInterrupt
        release(self, *told)

    law = mechanism.answer_law(Unit(1, Adjacency.ADD_REMOVE), "")
    for number, study in enumerate(("one", "two"), start=1):
        if number == 2:
            with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
                patched.setattr(Labeller, "_release", dies)
                serve(study, VOTED, mode=mode)
        assert serve(study, VOTED, mode=mode).labels.answered == 6
        with Ledger.read(tmp_path / "parties" / "c-0" / "ledger.sqlite") as own:
            assert own.queries_charged() == 6 * number
            assert own.epsilon() == pytest.approx(block_epsilon({law: 6 * number}, 1e-5), rel=1e-9)
        with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
            assert ledger.queries_charged() == 6 * number


@pytest.mark.slow
def test_a_second_study_of_sampled_neighbours_has_samples_of_its_own(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charge of a study is that of fresh samples; noise on the same sample again costs more."""
    asked: list[bytes] = []
    drawn = Sampler.drawn

    def noted(self: Sampler, question: bytes, rate: float) -> np.ndarray:
        asked.append(question)
        return drawn(self, question, rate)

    monkeypatch.setattr(Sampler, "drawn", noted)
    serve("one", SAMPLED)
    first = set(asked)
    asked.clear()
    serve("two", SAMPLED)
    assert first and asked and not first & set(asked)
