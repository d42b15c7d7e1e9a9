"""The page: self-contained, safe to hand on, and honest about what it holds."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.run_records import full_configuration, run_record
from support.scripted_parties import LocalParties
from support.typist import typed

from collegium.coordinator.report.page import render, templates, ticks
from collegium.coordinator.run.label_set import prediction_quality
from collegium.coordinator.run.run_folder import read_run
from collegium.errors import StorageError
from collegium.protocol.replies import Failure
from collegium.protocol.requests import Ask

Run = Callable[..., dict[str, Any]]


class Page(HTMLParser):
    """Checks that tags close in order and notes everything that would be loaded."""

    VOID = ("meta", "link", "br", "img", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attributes if name in ("src", "href", "srcset", "action")]
        assert tag not in ("script", "iframe", "object")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_loads_nothing(run: Run) -> None:
    text = render(run())
    assert Page(text).loads == []
    assert "@import" not in text and "url(" not in text


def test_the_page_says_what_neighbours_are_and_at_which_delta_epsilon_holds_where_labels_ended_the_run(
    run: Run,
) -> None:
    record = run(seed=None)
    assert record.privacy is not None and record.privacy.values == record.privacy.queries_charged == 20
    text = render(record)
    assert "replaced by others. Somebody whose records are at two institutions" in text
    assert "other studies and tasks included. So it holds for a record that is in all of them" in text
    assert "may change by δ at most: 1 in 100,000. This ε holds if no answer decided when asking ended" in text
    assert "if answers decided it, at 20 times δ" in text
    fixed = replace(record.privacy, values=1)
    assert "times δ" not in render(record.model_copy(update={"privacy": fixed}))


def test_an_institution_that_was_never_asked_taught_nothing(run: Run) -> None:
    record = run()
    first, *others = record.parties
    record.parties[first] = record.parties[first].model_copy(update={"rounds_asked": 0, "rounds_answered": 0})
    text = render(record)
    assert f"{len(others)} institutions taught one classifier" in text and "it took no part" in text
    assert f"<b>{len(others)} of {len(others) + 1}</b><span>parties took part without a failure" in text


CANARY = 987


def test_votes_never_touch_the_disk(run: Run, parties: LocalParties, tmp_path: Path) -> None:
    for party in parties.by_name.values():
        party.teachers, party.mistakes = CANARY, 0.0
    total = str(CANARY * len(parties.by_name))
    number = rf"(?<![\w.]){total}(?![\w.])"  # times and digests have these digits by chance
    run("private", teachers={"per_party": CANARY})
    for path in (tmp_path / "private").rglob("*"):
        if path.is_file() and path.name not in ("run.json", "report.html"):
            assert not re.search(number.encode(), path.read_bytes()), path
    record = json.loads((tmp_path / "private" / "run.json").read_text())
    for entry in record["rounds"]:
        assert entry.pop("teachers") == int(total)
    assert not re.search(number, json.dumps(record))


def test_what_a_party_says_is_shown_as_text(run: Run, parties: LocalParties) -> None:
    parties.by_name["party-1"].answer = lambda request: (
        Failure("refused", "<script>alert(1)</script>") if isinstance(request, Ask) else None
    )
    text = render(run())
    assert "<script>" not in text and "&lt;script&gt;" in text


def test_who_failed_and_how_stands_first_among_the_parties(run: Run, parties: LocalParties) -> None:
    parties.by_name["party-4"].answer = lambda request: (
        Failure("deadline", "late") if isinstance(request, Ask) else None
    )
    text = render(run())
    table = text[text.index("<h2>Parties</h2>") :]
    assert table.index("party-4") < table.index("party-0")
    assert re.search(r"deadline <span[^>]*>\(round 1, round 2, round 3\)", table)


def test_a_seeded_run_is_called_not_private(run: Run) -> None:
    assert "do not publish" in render(run("a"))
    assert "do not publish" not in render(run("b", seed=None))


@pytest.mark.parametrize("missing", ["student", "labels", "ledger", "timings_s", "baseline"])
def test_a_run_that_is_not_finished_renders_too(missing: str, run: Run) -> None:
    record = run()
    setattr(record, missing, {} if missing == "timings_s" else None)
    record.state = "stopped: 2 parties answered in time, 3 are needed"
    assert "Not finished" in render(record)


def test_a_run_that_was_only_begun_renders(run: Run, parties: LocalParties, tmp_path: Path) -> None:
    parties.away = set(parties.by_name)
    with pytest.raises(Exception, match="parties are ready"):
        run(options={"roster": sorted(parties.by_name)})
    record = read_run(tmp_path / "run")
    assert "Nothing has been charged yet" in render(record)


def test_infinite_epsilon_is_shown_as_no_guarantee(run: Run) -> None:
    record = run(seed=None)
    record.privacy = replace(record.privacy, units={"record": math.inf}, by_queries=((0, 0.0), (1, math.inf)))
    text = render(record)
    assert "∞" in text and "There is no guarantee." in text


def test_the_command_renders_from_run_json_alone(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run()
    folder = tmp_path / "run"
    first = (folder / "report.html").read_text()
    for path in folder.iterdir():
        if path.name != "run.json" and path.is_file():
            path.unlink()
    assert typed(capsys, "report", folder)[0] == 0
    assert (folder / "report.html").read_text() == first


def test_the_command_refuses_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, message = typed(capsys, "report", tmp_path / "nowhere")
    assert status == 9
    assert "name the folder of a run" in message and message.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda held: "{", "is not valid JSON"),
        (lambda held: "[]", "is not a run of this version"),
        (lambda held: json.dumps(held | {"format": 0}), "is not a run of this version"),
        (lambda held: json.dumps(held | {"rounds": 3}), "is damaged at rounds"),
    ],
)
def test_a_damaged_record_of_a_run_is_one_clear_line(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], str], says: str
) -> None:
    run()
    file = tmp_path / "run" / "run.json"
    file.write_text(change(json.loads(file.read_text())))
    with pytest.raises(StorageError, match=says):
        read_run(tmp_path / "run")
    status, _, message = typed(capsys, "report", tmp_path / "run")
    assert status == 9 and says in message and message.count("\n") == 1


def test_a_run_that_was_begun_before_there_was_a_section_goes_on_without_it() -> None:
    asked = run_record().asked
    assert asked.pop("question") is None and asked.pop("counts") == {}
    assert run_record(asked=asked).config == run_record().config


def test_charts_escape_names_and_stay_empty_without_data() -> None:
    charts = templates("coordinator.report").get_template("charts.svg.j2").module
    assert "&lt;b&gt;" in charts.bar_chart([("<b>", 0.5, "x")], title="t")  # type: ignore[attr-defined]
    assert charts.line_chart([(0, 0)], title="t", x_label="x", y_label="y") == ""  # type: ignore[attr-defined]


@pytest.mark.parametrize("highest", [1e-3, 0.7, 1, 3, 11.99, 100, 12345])
def test_ticks_reach_the_highest_value_in_few_round_steps(highest: float) -> None:
    found = ticks(highest)
    assert found[0] == 0 and found[-1] >= highest * (1 - 1e-9) and found[-2] < highest and 3 <= len(found) <= 7


def _with_student(record: Any, truth: list[int], given: list[int]) -> Any:
    quality = prediction_quality(np.array(given), np.array(truth), record.config.task)
    record.student = record.student.model_copy(update={"quality": quality})
    return record


def test_the_verdict_says_when_the_student_is_no_better_than_one_constant_answer(run: Run) -> None:
    truth = [0] * 900 + [1] * 100
    text = render(_with_student(run(seed=None), truth, [0] * 900 + [1] * 3 + [0] * 97))
    first = text[: text.index("At a glance")]
    assert "no better than always answering" in first and "90.0 %" in first
    assert re.search(r"Weak classes: [^.]*3\.0 %", first) and '<dd class="bad">right for 90.3 %' in first


def test_the_verdict_on_a_good_student_names_what_the_constant_answer_would_reach(run: Run) -> None:
    record = _with_student(run(seed=None), [0, 1] * 500, [0, 1] * 480 + [1, 0] * 20)
    text = render(record)
    first = text[: text.index("At a glance")]
    assert record.verdict is not None and f"{record.verdict}.</dd>" in html.unescape(first)
    assert '<dd class="good">right for 96.0 %' in first and "would be right for 50.0 %" in first


@pytest.mark.parametrize(
    ("groups", "budget", "told"),
    [
        ([["ash", "birch", "cedar"]], {}, True),
        ([["ash"], ["birch"], ["cedar"]], {}, False),
        ([["ash", "birch", "cedar"]], {"records_per_party": 300}, False),
        ([["ash", "birch", "cedar"]], {"unit": "party"}, False),
        (None, {}, False),
    ],
)
def test_the_verdict_says_where_one_institution_may_have_decided_the_result(
    groups: list[list[str]] | None, budget: dict[str, Any], told: bool
) -> None:
    asked = full_configuration()
    asked["budget"] |= budget
    found = run_record(asked=asked, groups=None if groups is None else {"members": groups}, state="finished")
    first = (text := render(found))[: text.index("At a glance")]
    assert ("may have decided the student and its figures" in first) == told
    refused = render(found.model_copy(update={"refused": "sums contradict each other"}))
    assert "may have decided" not in refused, "nothing is published"


def test_the_verdict_of_a_seeded_run_says_that_nobody_is_protected(run: Run) -> None:
    first = render(run("seeded"))
    first = first[: first.index("At a glance")]
    assert first.count("not protected") == 2 and "strongly protected" not in first


def test_a_thousand_rounds_that_went_alike_are_one_line(run: Run) -> None:
    record = run()
    one = record.rounds[0]
    record.rounds = [one.model_copy(update={"round": number}) for number in range(1, 1201)]
    record.rounds[600] = record.rounds[600].model_copy(update={"failed": {"party-3": "deadline"}, "answered": 4})
    table = render(record)
    table = table[table.index("<h3>Rounds</h3>") :]
    assert "1200 rounds" in table and "1 to 600" in table and "602 to 1200" in table
    assert table[: table.index("</table>")].count("<tr>") == 1 + 3


def test_a_confusion_matrix_adds_up_to_the_held_out_inputs(run: Run) -> None:
    quality = _with_student(run(), [0, 0, 1, 2], [0, 1, 1, 1]).student.quality
    assert sum(map(sum, quality.confusion)) == quality.inputs == 4
    assert quality.confusion[0][:3] == [1, 1, 0] and quality.confusion[2][1] == 1
    assert quality.balanced == pytest.approx((0.5 + 1.0 + 0.0) / 3)
