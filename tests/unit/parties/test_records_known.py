"""A party notices that its records are others than those that it last answered with, and says what follows."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.sums_scene import COLUMNS, POOL, SPEC, TASK
from support.typist import typed

from collegium.data import PoolStore
from collegium.errors import StorageError
from collegium.models.kernels import KernelSpec
from collegium.parties import kind as kind_module
from collegium.parties.config import PartyConfig
from collegium.parties.enrolment import keep_tasks
from collegium.parties.kind import party_kinds
from collegium.parties.opening import Opening
from collegium.parties.records_known import RecordsKnown, changed_since
from collegium.protocol.certificates import Authority
from collegium.protocol.identities import Credentials, issue_kit
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.messages import Request
from collegium.protocol.question import QuestionTerms
from collegium.protocol.replies import Counts
from collegium.protocol.requests import Ask
from collegium_accounting.mechanisms.class_sums import ClassSums

OTHER = replace(SPEC, landmarks=SPEC.landmarks[:-1])
CHANGED = "RECORDS CHANGED since this party last answered"


class Institution:
    """Its folder, and whoever asks it in the clear."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "party.toml"
        self.credentials: Credentials = issue_kit(Authority.create("trial"), folder / "credentials", "ash", "party")
        self.file.write_text(
            'coordinator = "localhost:1"\ncredentials = "credentials"\nfolder = "state"\npolicy = "policy.toml"\n'
            'data_root = "."\n'
            '[data]\nsource = "records.csv"\nlabel = "class"\none_row_each = true\n'
        )
        self.pool = PoolStore(folder / "state" / "pools").put(POOL)
        (folder / "policy.toml").write_text(
            f'minimum_noise_votes = 1.0\nqueries = 10\npools = ["{self.pool.sha256}"]\nsum_modes = ["clear"]\n'
        )
        keep_tasks(folder, [TASK])
        self.lines = [f"{x:.3f},{y:.3f},{z:.3f},{'abc'[number % 3]}" for number, (x, y, z) in enumerate(_rows())]
        self.write(self.lines)

    def write(self, lines: list[str]) -> None:
        header = ",".join(f"c{number}" for number in range(COLUMNS)) + ",class"
        (self.folder / "records.csv").write_text("\n".join([header, *lines]) + "\n")

    def answers(self, kernel: KernelSpec = SPEC) -> Any:
        party = Opening(self.file, PartyConfig.read(self.file), self.credentials)(TASK)
        question = SumClasses(
            QuestionTerms.of(ClassSums(5.0, 3), "clear", ""), "ledger", False, kernel, self.pool.sha256
        )
        reply = party.handle(Request("request-1", "run-1", Ask("round-1", question))).body
        assert isinstance(reply, Counts), reply
        return reply.counts


def _rows() -> Any:
    return np.random.default_rng(0).random((20, COLUMNS))


@pytest.fixture
def institution(tmp_path: Path) -> Institution:
    return Institution(tmp_path)


def said(institution: Institution, capsys: pytest.CaptureFixture[str]) -> list[bool]:
    """Whether `check` and `show` say that the records changed."""
    checked = typed(capsys, "party", "check", institution.file)[1]
    shown = json.loads(typed(capsys, "party", "show", institution.file, "--json")[1])["records_changed"]
    return [CHANGED in checked, shown is not None and CHANGED in shown]


def test_records_that_changed_since_an_answer_are_noticed_and_the_kept_answer_is_sent(
    institution: Institution, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert said(institution, capsys) == [False, False], "nothing was answered yet"
    first = institution.answers()
    assert said(institution, capsys) == [False, False] and CHANGED not in caplog.text
    institution.write(institution.lines[:-1])
    assert said(institution, capsys) == [True, True]
    assert (institution.answers() == first).all(), "the kept answer is sent"
    assert CHANGED in caplog.text and "20 then, 19 now" in caplog.text
    assert said(institution, capsys) == [True, True], "an answer that is sent again is no answer of the new records"
    institution.answers(OTHER)
    assert said(institution, capsys) == [False, False], "a new question is answered from the records of now"


def test_a_file_that_was_sorted_otherwise_holds_the_same_records(
    institution: Institution, capsys: pytest.CaptureFixture[str]
) -> None:
    institution.answers()
    institution.write(institution.lines[::-1])
    assert said(institution, capsys) == [False, False]
    institution.write([*institution.lines[:-1], institution.lines[-1][:-1] + "a"])
    assert said(institution, capsys) == [True, True], "one label was corrected"


def test_a_book_from_before_records_were_noted_tells_nothing_and_one_that_cannot_be_read_says_so(
    tmp_path: Path,
) -> None:
    book, now = tmp_path / "answer-book.sqlite", RecordsKnown("task", b"digest", 20)
    with closing(sqlite3.connect(book)) as database:
        database.execute("CREATE TABLE sums (run TEXT)")
    assert changed_since(book, now) is None
    book.write_bytes(b"edited by hand, and no database any more" * 100)
    with pytest.raises(StorageError, match=r"cannot read .*answer-book\.sqlite: .*; restore it from a copy"):
        changed_since(book, now)


def test_what_each_kind_of_question_kept_is_shown_also_that_of_another_package(
    institution: Institution, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Another(party_kinds()["coverage"]):  # type: ignore[misc]
        @classmethod
        def noted(cls, folder: Path) -> Mapping[str, Any]:
            return {"folder_seen": str(folder), "warning": "look at column c1"}

    monkeypatch.setitem(kind_module._by_name, "zebra", Another)
    folder = institution.folder / "state"
    (folder / "agreement.json").write_text(json.dumps({"warning": "classes differ"}))
    own = {"own": 0.912345, "own_interval": [0.8, 0.987654], "consortium": None, "consortium_interval": None}
    (folder / "evaluation.json").write_text(json.dumps(own | {"warning": None}))
    shown = json.loads(typed(capsys, "party", "show", institution.file, "--json")[1])
    assert (shown["student_right_here"], shown["student_right_here_interval"]) == (0.9123, [0.8, 0.9877])
    assert shown["student_right_overall"] is shown["student_right_overall_interval"] is None
    assert shown["folder_seen"] == str(folder)
    assert shown["warning"] == "classes differ; look at column c1"
    assert "0.8 to 0.9877 (95 %)" in typed(capsys, "party", "show", institution.file)[1]
