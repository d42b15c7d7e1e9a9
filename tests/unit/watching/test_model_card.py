"""The model card says what a student is good for, and never more than was measured or paid for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support.run_records import ASKED, privacy, run_record

from collegium.coordinator.report.model_card import card_path, write_model_card
from collegium.coordinator.run.label_set import Quality, prediction_quality
from collegium.coordinator.run.run_record import (
    ClassCount,
    EvaluationRecord,
    GroupsRecord,
    LabelsRecord,
    PartyRecord,
)
from collegium.data.task import CategoryColumn, NumberColumn, TableInputs, Task
from collegium.privacy.analysis.evaluation import measures
from collegium.privacy.evaluation_cells import Layout

TASK = Task.model_validate(ASKED["task"])
TRUTH = np.arange(100) >= 76
QUALITY = prediction_quality(np.zeros(100, dtype=np.int64), TRUTH.astype(np.int64), TASK)
LABELS = LabelsRecord(
    asked=40,
    answered=38,
    abstained=2,
    left_out=0,
    stopped=None,
    per_class=[ClassCount(class_name="no", labels=37), ClassCount(class_name="yes", labels=1)],
)


def card(folder: Path, quality: Quality | None = QUALITY, task: Task = TASK, **changes: Any) -> str:
    known = {"privacy": privacy(0.8, 7.5), "labels": LABELS}
    path = write_model_card(folder / "student.safetensors", task, "supervised", quality, run_record(**known | changes))
    assert path == folder / "MODEL_CARD.md"
    return path.read_text(encoding="utf-8")


def test_a_student_no_better_than_the_constant_answer_is_called_that(tmp_path: Path) -> None:
    text = card(tmp_path)
    assert "**76.0 %** of its predictions are right" in text
    assert "Always answering “no” would be right for 76.0 %. **It is no better than that.**" in text
    assert "**Known weak classes:** yes (right in 0%)." in text
    assert "no better" not in card(tmp_path, QUALITY.model_copy(update={"accuracy": 0.9}))


def test_what_was_not_measured_has_no_figure(tmp_path: Path) -> None:
    text = card(tmp_path, None)
    assert "**It was not measured**" in text and "model-index" not in text and "yes (learned from 1 label)" in text


def test_a_figure_that_one_institution_may_have_decided_is_called_that(tmp_path: Path) -> None:
    layout = Layout(len(TASK.classes))
    found = measures(np.full(layout.length, 50.0), 1.0, TASK.classes)
    measured = EvaluationRecord(sum_mode="masked+noised", sigma=1.0, parts=1, paid=True, asked=True, measures=found)
    for members, told in (([["ash", "birch", "cedar"]], True), ([["ash"], ["birch"], ["cedar"]], False)):
        text = card(tmp_path, None, groups=GroupsRecord(members=members), evaluation=measured)
        assert "institutions counted what it gets right" in text
        assert ("may have decided the student and its figures" in text) == told


def test_both_units_have_their_epsilon_in_words_and_the_ledger_can_be_checked(tmp_path: Path) -> None:
    text = card(tmp_path)
    assert "| one row | 0.8 | No outcome became more than 2.23 times as likely" in text
    said = {"ash": PartyRecord(persons=True), "oak": PartyRecord(persons=True)}
    assert "| one person | 0.8 |" in card(tmp_path, parties=said)
    assert "| one whole institution | 7.5 |" in text and "δ = 1e-5" in text
    assert "collegium ledger verify RUN-FOLDER" in text


def test_a_run_without_private_noise_promises_nothing(tmp_path: Path) -> None:
    text = card(tmp_path, private=False, cautions=["The noise came from a seed."])
    assert "**It is not private.**" in text and "| one row |" not in text and "> **Caution.** The noise came" in text


def test_the_front_matter_is_what_hugging_face_reads(tmp_path: Path) -> None:
    front = yaml.safe_load(card(tmp_path).split("---\n")[1])
    assert front["library_name"] == "collegium" and front["pipeline_tag"] == "image-classification"
    (entry,) = front["model-index"]
    assert entry["name"] == "trial" and entry["results"][0]["metrics"] == [{"type": "accuracy", "value": 0.76}]


@pytest.mark.parametrize("name", ["a|b", "<b>x</b>", "[link](http://x)", "`code`"])
def test_names_of_the_schema_stay_text(name: str, tmp_path: Path) -> None:
    columns = (NumberColumn(name=name, low=0, high=9), CategoryColumn(name="ward", categories=(name, "other")))
    text = card(tmp_path, None, Task(classes=("no", "yes"), inputs=TableInputs(columns=columns)), labels=LABELS)
    rows = [line for line in text.splitlines() if line.startswith("| ") and ("clipped" in line or "ward" in line)]
    assert len(rows) == 2
    for row in rows:
        bare = row.replace("\\|", "").replace("\\<", "").replace("\\[", "").replace("\\`", "")
        assert bare.count("|") == 3 and not set("<[`") & set(bare)


def test_the_card_of_a_further_student_has_its_name(tmp_path: Path) -> None:
    path = write_model_card(tmp_path / "student-vat.safetensors", TASK, "vat", None, run_record(labels=LABELS))
    assert path == card_path(tmp_path / "student-vat.safetensors") == tmp_path / "student-vat-MODEL_CARD.md"
    assert "Nothing was charged." in path.read_text(encoding="utf-8")
