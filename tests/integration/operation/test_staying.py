"""A coordinator that stays up: one study after another over the same sessions, and in between all but a study."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.table_consortium import NAMES, TableConsortium
from support.typist import typed
from support.waiting import PATIENCE_S, comes_true

from collegium.coordinator.cli.serving import Serving, Study
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.consortium import ConsortiumFolder


@pytest.fixture
def scene(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[TableConsortium]:
    with closing(TableConsortium(tmp_path, capsys)) as scene:
        yield scene


def test_studies_follow_each_other_and_one_that_fails_ends_nothing(
    scene: TableConsortium, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    scene.enrol(*NAMES)
    over, said = threading.Event(), list[tuple[str | None, RunRecord]]()

    def say(record: RunRecord, place: ConsortiumFolder) -> None:
        said.append((place.study, record))

    serving = Serving(scene.path, scene.folder, 0.0, stays=True, ended=over.is_set, sleep=lambda _: over.wait(0.02))
    first = Study.checked(scene.path, None, scene.folder)
    thread = threading.Thread(target=serving.serve, args=(first, say), daemon=True)
    thread.start()
    for name in NAMES:
        policy = scene.folder / name / "policy.toml"  # further studies are agreed to, with as much noise as the first
        text = re.sub(r"(?m)^(queries|record_epsilon) = .*$", r"\1 = 99", policy.read_text())
        policy.write_text(text)
        scene.attend(name, scene.opening(name, rehearses=False), rehearses=False, stays=True)
    assert comes_true(lambda: len(said) == 1)
    studies = scene.served / "studies"
    for name, budget in (("second", "study = 0.8"), ("third", "study = 9.0"), ("fourth", "study = 0.7")):
        assert typed(capsys, "study", "new", scene.path, name)[0] == 0
        (studies / name / "study.toml").write_text(f"[budget]\nepsilon = 12.0\n{budget}\n")
    status, out, _ = typed(capsys, "study", "begin", scene.path, "second")
    assert status == 0 and "asks         8 sums over all records" in out and "second begins once" in out
    assert comes_true(lambda: len(said) == 2)
    # The institutions refuse so little noise, and the study that follows it asks for columns that the pool lacks.
    assert typed(capsys, "study", "begin", scene.path, "third")[0] == 0
    assert comes_true(lambda: not (studies / "third" / "begin").exists())
    (studies / "third" / "study.toml").write_text('[pool]\nsource = "none.npz"\n')
    (studies / "third" / "begin").write_text("")
    assert comes_true(lambda: "the study third cannot begin" in caplog.text)
    assert typed(capsys, "study", "begin", scene.path, "fourth")[0] == 0
    assert comes_true(lambda: len(said) == 3)
    over.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert [study for study, _ in said] == [None, "second", "fourth"]
    assert all(record.state == "finished" and record.rounds for _, record in said), "each asked sums of its own"
    assert "the study ended: 0 parties answered in time" in caplog.text and "refused-noise" in caplog.text
    assert not list(studies.glob("*/begin"))
