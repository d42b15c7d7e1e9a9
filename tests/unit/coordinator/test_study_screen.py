"""What a study says before it starts: what it asks, what that costs, and what it takes from earlier studies."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import sums_scene
from support.files import contents_of
from support.sums_scene import NAMES, POOL, records

from collegium.coordinator.kinds import class_sums as kinds
from collegium.coordinator.report.model_card import write_model_card
from collegium.coordinator.report.page import render
from collegium.coordinator.run import coordinator as run
from collegium.coordinator.run.checks import check_run
from collegium.coordinator.run.run_record import SAME_AGAIN, RunRecord
from collegium.coordinator.run.screen import Findings
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples
from collegium.parties.policy import PolicyConfig
from collegium.privacy.ledger.ledger import Ledger
from collegium.settings import validate_config
from collegium.simulations.local import LocalParties
from collegium_accounting.mechanisms import class_sums

pytestmark = pytest.mark.slow

# Of more than two classes, a search for what labels cost takes a hundred times as long.
TASK = sums_scene.TASK.model_copy(update={"classes": ("a", "b")})
PUBLIC = PublicData(Examples(POOL))
ALL_MODES = PolicyConfig(minimum_noise_votes=0.1, queries=1000, sum_modes=("clear", "masked", "masked+noised"))


@pytest.fixture
def parties() -> LocalParties:
    held = {name: records(number, 30) for number, name in enumerate(NAMES)}
    return LocalParties({name: (one.x, one.labels() % 2) for name, one in held.items()}, TASK, policy=ALL_MODES)


def config(**changes: Any) -> RunConfig:
    values: dict[str, Any] = {"name": "local", "task": TASK, "pool": {"source": "pool.npz"}}
    return validate_config(values | {"budget": {"epsilon": 3.0, "study": 1.0}} | changes, RunConfig, "test")


class Studies:
    """The studies of one ledger."""

    def __init__(self, folder: Path, parties: LocalParties) -> None:
        self.folder, self.parties = folder, parties
        self.ledger = folder / "ledger.sqlite"

    def storage(self, study: str) -> run.Storage:
        return run.Storage(self.folder / study, ledger=self.ledger, study=study)

    def says(self, study: str, **changes: Any) -> Findings:
        return check_run(config(**changes), NAMES, PUBLIC, self.storage(study))

    def runs(self, study: str, **changes: Any) -> RunRecord:
        reach = run.Reach(self.parties, signing_keys=self.parties.signing_keys)
        return run.CoordinatorRun(config(**changes), reach, self.storage(study), public=PUBLIC).run()

    def spent(self) -> float:
        with Ledger.read(self.ledger) as held:
            return float(held.epsilon())


@pytest.fixture
def studies(tmp_path: Path, parties: LocalParties) -> Studies:
    return Studies(tmp_path, parties)


BY_VOTES = {
    "teachers": {"kind": "linear"},
    "mechanism": {"name": "gnmax", "parameters": {"sigma": 8.0}},
    "queries": {"count": 40},  # of one class alone once in ten million runs
    "student": {"method": "random-forest", "options": {"trees": 5}},
    "budget": {"epsilon": 8.0},
}


@pytest.mark.parametrize(
    "changes",
    [{}, {"sums": {"rounds": 3}, "evaluation": {"share": 0.2}}, BY_VOTES],
    ids=["sums", "rounds-and-evaluation", "votes"],
)
def test_a_study_costs_what_it_said_and_to_say_it_changes_no_file(studies: Studies, changes: dict[str, Any]) -> None:
    said = studies.says("one", **changes)
    assert contents_of(studies.folder) == {}
    assert said.foreseen.before == {"record": 0.0} and said.foreseen.asks_labels and not said.foreseen.held
    studies.runs("one", **changes)
    assert said.foreseen.after["record"] == pytest.approx(studies.spent(), rel=1e-9)
    before = contents_of(studies.folder)
    again = studies.says("one", **changes)
    assert contents_of(studies.folder) == before
    assert not again.foreseen.asks and again.foreseen.after == again.foreseen.before
    assert again.foreseen.decided == again.foreseen.wanted
    assert any(line.startswith("asks         nothing more of anybody") for line in again.lines())


def test_the_same_sum_again_is_offered_as_that_and_never_sold_as_a_new_student(studies: Studies) -> None:
    first, spent = studies.runs("one"), studies.spent()
    said = studies.says("two")
    text = "\n".join(said.lines())
    assert said.foreseen.same_again and said.foreseen.origin is not None and said.foreseen.origin.study == "one"
    assert "NO NEW STUDENT" in text and "released for the study one" in text and "costs        nothing more" in text
    second = studies.runs("two")
    assert studies.spent() == spent and not second.rounds
    assert (studies.folder / "two/student.safetensors").read_bytes() == (
        studies.folder / "one/student.safetensors"
    ).read_bytes()
    assert second.labels is not None and second.labels.stopped == SAME_AGAIN
    assert first.labels is not None and first.labels.stopped is None
    assert second.taught == len(NAMES) and f"{len(NAMES)} institutions taught" in render(second)
    assert "is no new one" in render(second) and "is no new one" not in render(first)
    card = studies.folder / "card.safetensors"
    assert second.student is not None
    assert f"{len(NAMES)} institutions" in write_model_card(card, TASK, "kernel", None, second).read_text()


def test_sums_that_counted_records_in_other_units_are_not_taken_for_these(
    studies: Studies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As version 0.2.0 counted them: half as many records would be read from them."""
    with monkeypatch.context() as before:
        for module in (class_sums, kinds):
            before.setattr(module, "FEW_CLASSES", 1)
        studies.runs("one")
    said = studies.says("two")
    assert said.foreseen.asks and not said.foreseen.held and not said.foreseen.same_again


def test_other_noise_is_another_sum_that_is_asked_for_and_paid_anew(studies: Studies) -> None:
    studies.runs("one")
    said = studies.says("two", budget={"epsilon": 3.0, "study": 0.9})
    assert said.foreseen.asks_labels and not said.foreseen.held and "NO NEW STUDENT" not in "\n".join(said.lines())
    assert said.foreseen.after["record"] > said.foreseen.before["record"] == pytest.approx(studies.spent())
    assert studies.runs("two", budget={"epsilon": 3.0, "study": 0.9}).rounds
    assert said.foreseen.after["record"] == pytest.approx(studies.spent(), rel=1e-9)


def test_labels_that_another_study_has_of_exact_sums_are_named_as_its(studies: Studies) -> None:
    exact = BY_VOTES | {"votes": {"mode": "masked"}}
    studies.runs("one", **exact)
    said = studies.says("two", **exact)
    assert said.foreseen.taken == 40 and "labels of other studies" in "\n".join(said.lines())
    assert np.isclose(said.foreseen.before["record"], studies.spent())
