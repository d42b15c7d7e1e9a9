"""What a hostile text or a flipped byte can do: nothing to a terminal, a log, a spreadsheet, or what is released."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from adversaries.conftest import Study

from collegium.coordinator.cli.coordinator_cli import _show, say
from collegium.coordinator.journal import Journal, Name, Part, Released
from collegium.coordinator.report.page import render
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.students.published import without_formulas
from collegium.coordinator.watching.consortium_status import _failures
from collegium.data.loading.sources import DataSource
from collegium.errors import ProtocolViolation, StorageError
from collegium.protocol.messages import Reply
from collegium.protocol.replies import Description, Failure
from collegium.protocol.requests import Ask
from collegium.whole_files import read_digested, write_digested

HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\n00:00:00 all parties agree \u202e"


def controls(text: str) -> str:
    """What of a text controls a terminal or begins another line; line ends of our own apart."""
    return "".join(letter for letter in text.replace("\n", "") if not letter.isprintable())


@pytest.fixture
def record(study: Study) -> RunRecord:
    """A run in which a party answers every question by an error whose text it chose."""
    liar = next(iter(study.parties.by_name.values()))
    liar.answer = lambda request: Failure("internal", HOSTILE) if isinstance(request, Ask) else None
    return study.label()


def test_a_partys_error_text_is_plain_in_records_reports_and_the_status(
    record: RunRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    failures = _failures(record.rounds)
    assert failures and "all parties agree" in failures[0]["outcome"], "it is shown"
    privacy = {"labels": 1, "abstentions": 0, "epsilon_budget": None}
    shown: dict[str, Any] = {"consortium": "ours", "state": "labelling", "served": True, "parties": {}, "rounds": 1}
    _show(shown | {"queries": 10, "privacy": privacy, "last_failures": failures})
    say(record, SimpleNamespace(run=Path("run")), as_json=False)  # type: ignore[arg-type]
    printed = capsys.readouterr().out
    assert "failed" in printed and not controls(printed)
    assert not any(line.startswith("00:00:00") for line in printed.splitlines()), "a forged line"
    assert not controls(render(record))
    assert not controls(json.loads(record.model_dump_json())["rounds"][0]["failed"].popitem()[1])


def test_texts_over_the_wire_are_plain_or_refused() -> None:
    sent = Reply("request-1", Failure("internal", "a text")).to_proto()
    sent.error.code, sent.error.message = "refused\x1b[0m", HOSTILE  # as changed software would send it
    received = Reply.from_proto(sent).body
    assert isinstance(received, Failure) and not controls(received.code + received.message)
    with pytest.raises(ProtocolViolation, match="plain"):
        Description("ash", "collegium \x1b[2J", 1, "linear")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://clinic:SECRET@host/records",
        "postgresql://clinic:SEC@RET@host/records",
        "postgresql+psycopg://:SECRET@host/records?sslmode=require",
        "mssql://host/records?user=clinic&password=SECRET&timeout=3",
    ],
)
def test_a_password_within_a_source_is_not_shown(url: str) -> None:
    shown = DataSource(source=url, query="select 1").shown
    assert "SEC" not in shown and "RET" not in shown and "host/records" in shown


def test_no_text_of_a_prediction_file_is_a_formula_of_a_spreadsheet() -> None:
    hostile = ['=HYPERLINK("http://x","y")', "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1"]
    harmless = ["plain", "-3.5", "a=b"]
    table = pd.DataFrame({"@id": [*hostile, *harmless], "probability": np.linspace(-1, 1, 8)})
    read = pd.read_csv(StringIO(without_formulas(table).to_csv(index=False)), dtype=str)
    assert list(read.columns) == ["'@id", "probability"]
    assert read["'@id"].tolist() == [f"'{text}" for text in hostile] + harmless
    assert read["probability"].astype(float).tolist() == pytest.approx(table["probability"].tolist()), "numbers stay"


def test_a_flipped_byte_in_a_kept_file_is_noticed(tmp_path: Path) -> None:
    journal, question = Journal(tmp_path), Name("class sums", "of a study")
    with journal.room(question, 5) as keep:
        keep(Released((Part(np.arange(5, dtype=np.int64) ** 7, 3.5, ("alpha", "beta")),)))
    file, network = journal.file(question), tmp_path / "network"
    write_digested(network, bytes(range(200)))
    for kept, read in ((file, lambda: journal.released(question)), (network, lambda: read_digested(network))):
        whole = kept.read_bytes()
        assert read() is not None
        for place in range(len(whole)):
            kept.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(StorageError):
                read()
