"""Several studies of one consortium: one enrolment, one account of the records, parties that stay up in between."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from support.consortium import NAMES, Scene
from support.members import join
from support.typist import typed

from collegium.coordinator.run.run_folder import read_labels
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.selection.queries import study_of
from collegium.coordinator.service.coordinator_service import CoordinatorService
from collegium.coordinator.settings.consortium import read_consortium
from collegium.coordinator.settings.run_config import load_public
from collegium.errors import BudgetExceeded, ConfigurationError
from collegium.privacy.ledger.ledger import Ledger
from collegium_accounting.terminal import epsilon_text

OTHER_TASK = """
[task]
classes = ["9", "8", "7", "6", "5", "4", "3", "2", "1", "0"]
inputs = { kind = "image", height = 8, width = 8 }
"""


OTHER_MECHANISM = """
[mechanism]
name = "gnmax"
parameters = { sigma = 3.0 }

[queries]
count = 6
batch = 3
choice = "representative"
"""


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    status, out, err = typed(capsys, *words)
    assert status == 0, err
    return out


def serve(scene: Scene, study: str | None = None, *, first: bool = False) -> RunRecord:
    """One study, from its configuration to its student; with the parties that are there, or that come ``first``."""
    config = read_consortium(scene.path, study)
    with CoordinatorService(config, load_public(config.run, None), wait_s=0).listening() as serving:
        for name in NAMES[:3] if first else ():
            scene.parties[name] = join(
                config,
                name,
                code=scene.code_for(name),
                fingerprint=scene.fingerprint,
                folder=scene.folder / name,
                first=200 * NAMES.index(name),
                stays=True,
            )
        return serving.run()


def spent(scene: Scene) -> float:
    with Ledger.read(scene.folder / "consortium" / "ledger.sqlite") as ledger:
        return float(ledger.epsilon())


@pytest.mark.slow
def test_a_second_study_runs_on_the_same_enrolment_and_pays_into_the_same_account(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    printed(capsys, "study", "new", scene.path, "second")
    assert "\nepsilon = 60.0\nstudy = 60.0\n" in (scene.folder / "consortium/studies/second/study.toml").read_text()
    assert serve(scene, first=True).labels.answered == 12
    alone = spent(scene)
    file = scene.folder / "consortium" / "studies" / "second" / "study.toml"
    given = file.read_text()
    file.write_text(given + OTHER_MECHANISM)
    assert "times_per_query" not in printed(capsys, "provision", scene.path, "--check", "--study", "second")
    record = serve(scene, "second")  # nobody enrolled or was started anew
    assert record.state == "finished" and record.labels.answered == 6
    assert spent(scene) > alone
    with Ledger.read(scene.folder / "consortium" / "ledger.sqlite") as ledger:
        fresh = sum(study_of(key) == "second" for key in ledger.labels())
    assert 0 < fresh <= 6, "an input that the first study has a label for is not asked again"
    for options, labels in (((), 12), (("--study", "second"), fresh)):
        status = json.loads(printed(capsys, "coordinator", "status", scene.path, "--json", *options))
        assert status["privacy"]["labels"] == labels and status["privacy"]["epsilon_spent"] == spent(scene)
    folder = scene.folder / "consortium"
    assert len(read_labels(folder / "run" / "labels.csv")) == 12
    assert len(read_labels(folder / "studies" / "second" / "labels.csv")) == 6
    assert (folder / "studies" / "second" / "student.safetensors").exists()
    # A budget that the first study alone has spent refuses the second one, wherever the folders of runs went.
    file.write_text(given.replace("epsilon = 60.0", f"epsilon = {alone:.6f}") + "[queries]\ncount = 30\n")
    shutil.rmtree(folder / "run")
    shutil.rmtree(folder / "studies" / "second" / "learned", ignore_errors=True)
    for left in ("run.json", "labels.csv", "student.safetensors"):
        (folder / "studies" / "second" / left).unlink()
    with pytest.raises(BudgetExceeded, match="is spent"):
        serve(scene, "second")
    assert "is spent" in typed(capsys, "provision", scene.path, "--check", "--study", "second")[2]
    listed = printed(capsys, "study", "list", scene.path)
    assert re.search(r"^\(the file's own\) +\d+ labels  \w+", listed, re.MULTILINE)
    assert re.search(r"^second\s+", listed, re.MULTILINE) and f"ε = {epsilon_text(spent(scene))} spent" in listed


def test_settings_may_change_until_something_is_charged(scene: Scene) -> None:
    text = scene.path.read_text()
    scene.path.write_text(text.replace("sigma = 2.0", "sigma = 0.01"))
    with pytest.raises(BudgetExceeded):
        serve(scene)
    scene.path.write_text(text.replace("sigma = 2.0", "sigma = 4.0"))
    config = read_consortium(scene.path)
    with CoordinatorService(config, load_public(config.run, None), wait_s=0).listening():
        pass  # it begins to serve: no "holds a run with another mechanism"


def test_a_study_has_its_own_sections_and_none_that_all_share(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "study", "new", scene.path, "second")
    file = scene.folder / "consortium" / "studies" / "second" / "study.toml"
    file.write_text(OTHER_TASK)
    config = read_consortium(scene.path, "second")
    assert config.task.classes[0] == "9" and config.budget == scene.config.budget
    assert "pays for 12 of 12 queries" in printed(capsys, "provision", scene.path, "--check", "--study", "second")
    file.write_text('\nname = "other"\n')
    with pytest.raises(ConfigurationError, match=r"line 2: all studies share name"):
        read_consortium(scene.path, "second")
    file.write_text("[budget]\nepsilom = 1.0\n")
    with pytest.raises(ConfigurationError, match=r"study.toml: .*line 2: .*did you mean epsilon"):
        read_consortium(scene.path, "second")
    with pytest.raises(ConfigurationError, match="there is no study 'third'"):
        read_consortium(scene.path, "third")
    assert "is there already" in typed(capsys, "study", "new", scene.path, "second")[2]
