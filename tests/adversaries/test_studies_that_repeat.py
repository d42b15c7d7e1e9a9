"""Two studies of one consortium ask the same of the same records: what they release together is what is charged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_wine
from sklearn.utils import shuffle
from support.nearest import AGREED

import collegium as cg
from collegium.coordinator.kinds.labels import Labels
from collegium.coordinator.run import coordinator as run
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples
from collegium.errors import QuorumNotReached
from collegium.parties.answer_book import FILE
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify
from collegium.settings import validate_config
from collegium_accounting.game.laws import block_epsilon, together
from collegium_accounting.mechanisms import AddedBy, Adjacency, Unit, create

X, Y = shuffle(*load_wine(return_X_y=True), random_state=0)
TASK = cg.Task.from_array(X[:40], classes=["a", "b", "c"])
PUBLIC = PublicData(Examples(cg.encode(X[:40], TASK)))
WITHIN = {"name": "individual-knn", "parameters": {"sigma": 8.0, "participations": 2}}
VOTED = {"name": "gnmax", "parameters": {"sigma": 3.0}}
SAMPLED = {"name": "knn", "parameters": {"sigma1": 8.0, "sigma2": 4.0, "threshold": 1.0, "sampling_rate": 0.5}}

Serve = Callable[..., RunRecord]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Serve a study of six inputs over three institutions."""
    policy = cg.PolicyConfig(
        **AGREED,
        minimum_noise_votes=1,
        sum_modes=("clear", "masked", "masked+noised"),
        record_epsilon=90.0,
        record_rho=0.1,
        few_parties=True,
    )
    records = {f"c-{n}": (X[40 + n :: 3], Y[40 + n :: 3]) for n in range(3)}
    parties = cg.LocalParties(records, TASK, policy=policy, folder=tmp_path / "parties")

    def served(study: str, mechanism: dict[str, Any], mode: str) -> RunRecord:
        asked: dict[str, Any] = {"teachers": {"kind": "random-forest", "options": {"trees": 5}}}
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
            "student": {"method": "random-forest", "options": {"trees": 5}},
            "votes": {"mode": mode, "quorum": 1.0},
        } | asked
        config = validate_config(values, RunConfig, "test")
        storage = run.Storage(tmp_path / study, ledger=tmp_path / "ledger.sqlite", study=study)
        reach = run.Reach(parties, signing_keys=parties.signing_keys)
        return run.CoordinatorRun(config, reach, storage, public=PUBLIC).label()

    return served


@pytest.mark.slow
def test_a_second_study_of_the_same_neighbours_is_answered_and_charged_afresh(serve: Serve, tmp_path: Path) -> None:
    """It had other noise on the counts of the first, which no record paid for and the ledger did not charge."""
    mode = "masked+noised"
    mechanism = create(WITHIN["name"], **WITHIN["parameters"])
    law = mechanism.summed(AddedBy(2))[0].law(mechanism.unit(1), len(TASK.classes))
    for number, study in enumerate(("one", "two"), start=1):
        assert serve(study, WITHIN, mode).labels.answered == 6
        with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
            assert ledger.epsilon() == pytest.approx(block_epsilon({law: 2 * number}, 1e-5), rel=1e-9)
            least, most = verify(tmp_path / "ledger.sqlite").bounds("record", "add-remove")
            assert least <= ledger.epsilon() <= most
    with sqlite3.connect(tmp_path / "parties" / "c-0" / FILE) as database:
        paid = database.execute("SELECT run, COUNT(*) FROM spent WHERE units_squared > 0 GROUP BY run").fetchall()
    assert len(paid) == 2 and paid[0][1] == paid[1][1] > 0, "the same records paid in each"
    spent = verify(tmp_path / "ledger.sqlite").charges
    serve("two", WITHIN, mode)
    assert verify(tmp_path / "ledger.sqlite").charges == spent, "a study that is started again pays nothing"


@pytest.mark.parametrize(
    "mechanism",
    [WITHIN, VOTED, pytest.param(SAMPLED, marks=pytest.mark.slow)],
    ids=["within", "voted", "sampled"],
)
def test_an_institution_answers_exactly_in_one_study(serve: Serve, mechanism: dict[str, Any]) -> None:
    serve("one", mechanism, "clear")
    with pytest.raises(QuorumNotReached, match="refused-queries"):
        serve("two", mechanism, "clear")


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [WITHIN, VOTED, SAMPLED], ids=["within", "voted", "sampled"])
def test_under_masks_a_second_study_takes_the_labels_of_the_first_for_nothing(
    serve: Serve, tmp_path: Path, mechanism: dict[str, Any]
) -> None:
    """There is one exact sum of an input for ever; labels that are out may be used by anybody."""
    one = serve("one", mechanism, "masked").labels
    first, entries = (tmp_path / "one" / "labels.csv").read_text(), verify(tmp_path / "ledger.sqlite").charges
    record = serve("two", mechanism, "masked")
    assert one is not None and record.labels is not None and not record.rounds
    assert record.labels.answered == one.answered
    assert (tmp_path / "two" / "labels.csv").read_text() == first
    assert verify(tmp_path / "ledger.sqlite").charges == entries


@pytest.mark.slow
def test_a_second_study_of_the_same_teachers_is_charged_at_the_institutions_too(serve: Serve, tmp_path: Path) -> None:
    """It had other noise on the votes of the first, and the institution's own account stayed at one charge for both."""
    spent = 0.0
    for number, study in enumerate(("one", "two"), start=1):
        assert serve(study, VOTED, "masked+noised").labels.answered == 6
        with Ledger.read(tmp_path / "parties" / "c-0" / FILE, chain="party") as own:
            assert own.queries_charged() == 6 * number
            assert own.epsilon() > spent
            spent = own.epsilon()
        with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
            assert ledger.queries_charged() == 6 * number


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["clear", "masked"])
def test_a_study_that_was_killed_asks_for_the_same_exact_sums_again_at_no_cost(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Killed after the votes of a batch were summed."""
    mechanism, releases = create(VOTED["name"], **VOTED["parameters"]), iter(range(100))
    keep = Labels._keep

    def dies(self: Labels, *told: Any) -> None:
        if next(releases) == 1:
            raise KeyboardInterrupt
        keep(self, *told)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Labels, "_keep", dies)
        serve("one", VOTED, mode)
    assert serve("one", VOTED, mode).labels.answered == 6
    law = together(stage.law(Unit(1, Adjacency.ADD_REMOVE)) for stage in mechanism.stages)
    with Ledger.read(tmp_path / "parties" / "c-0" / FILE, chain="party") as own:
        assert own.queries_charged() == 6
        assert own.epsilon() == pytest.approx(block_epsilon({law: 6}, 1e-5), rel=1e-9)
