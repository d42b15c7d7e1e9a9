"""The pages in a real browser: they ask nobody else for anything, cause no complaint and fit; keys reach all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.browser import FOUND, Tab, browser
from support.run_records import full_configuration, privacy, run_record
from support.snapshots import PARTY, snapshot
from support.statements import a_statement

from collegium.coordinator.report import statement
from collegium.coordinator.report.page import render
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.watching.server import StatusServer

pytestmark = [pytest.mark.slow, pytest.mark.skipif(FOUND is None, reason="no Chromium here: apt-get install chromium")]

LONG = "the-university-hospital-of-a-town-with-quite-a-long-name-2"
OPENED = "document.querySelectorAll('details').forEach(one => { one.open = true }), 0"
INTERACTIVE = "[...document.querySelectorAll('a, summary, button, input, [tabindex=\"0\"]')]"


def rich() -> dict[str, Any]:
    """A snapshot with all that may make a page wide or break it."""
    made = snapshot(consortium="x" * 60)
    made["parties"][LONG] = PARTY
    made["last_failures"].append({"when": "round 9", "party": LONG, "outcome": f"refused: <b>{'long' * 90}</b>"})
    return made


def long_run() -> RunRecord:
    """A run with failures and long texts, in the masked mode."""
    party = {"status": "ready", "teachers": 12, "rounds_asked": 3, "rounds_answered": 2}
    refused = [{"when": "round 2", "outcome": "refused: policy: " + "long" * 100}]
    one_round = {"round": 1, "round_id": "r", "queries": 40, "asked": 2, "answered": 2, "teachers": 24}
    return run_record(
        name="chest-x-rays-of-five-hospitals",
        state="finished",
        asked=full_configuration() | {"seed": None, "text": "y" * 200},
        ledger={"head": "81:" + "cd" * 32, "signed": True},
        timings_s={"labels": 12.5},
        labels={
            "asked": 40,
            "answered": 38,
            "abstained": 2,
            "left_out": 0,
            "stopped": None,
            "per_class": [{"class_name": "malignant", "labels": 12}, {"class_name": "benign", "labels": 26}],
        },
        student={
            "method": "supervised",
            "fitted_from": "ef" * 32,
            "quality": {
                "accuracy": 0.8,
                "inputs": 10,
                "per_class": [
                    {"class_name": "malignant-" * 8, "inputs": 3, "accuracy": 1 / 3},
                    {"class_name": "benign", "inputs": 7, "accuracy": 1.0},
                ],
                "confusion": [[1, 2], [0, 7]],
            },
        },
        parties={"clinic-1": party, LONG: party | {"failures": refused}},
        rounds=[one_round | {"seconds": 1.5, "failed": {}}],
        privacy=privacy(4.2, 114.2),
    )


@dataclass
class Shown:
    """A page under a URL, and what may be asked for when it is opened."""

    url: str
    allowed: str
    snapshots: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser() as tab:
        yield tab


@pytest.fixture
def status() -> Iterator[Shown]:
    held = [rich()]
    with StatusServer("127.0.0.1:0", lambda: held[-1]) as server:
        yield Shown(server.url, re.escape(server.url), held)


@pytest.fixture
def report(tmp_path: Path) -> Shown:
    path = tmp_path / "report.html"
    path.write_text(render(long_run()), encoding="utf-8")
    return Shown(path.as_uri(), re.escape(path.as_uri()))


@pytest.fixture(params=["status", "report"])
def page(request: pytest.FixtureRequest) -> Shown:
    shown: Shown = request.getfixturevalue(request.param)
    return shown


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 700, 1200])
def test_a_page_fits_its_window_asks_nobody_else_and_causes_no_complaint(
    width: int, dark: bool, page: Shown, tab: Tab
) -> None:
    tab.show(page.url, width=width, dark=dark, still=dark)
    assert tab.complaints() == []
    assert tab.requested() and all(re.match(page.allowed, url) or url.startswith("data:") for url in tab.requested())
    assert tab.needed_width() <= width
    ground = tab.tell("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(18, 22, 29)" if dark else "rgb(255, 255, 255)")


def test_a_complaint_a_request_and_an_overflow_would_be_found(tmp_path: Path, tab: Tab) -> None:
    (tmp_path / "bad.html").write_text(
        "<!DOCTYPE html><meta name=viewport content='width=device-width'><img src='file:///nowhere.png'>"
        "<p style='width: 500px'>x</p><script>console.error('no')</script>"
    )
    tab.show((tmp_path / "bad.html").as_uri(), width=360)
    assert any("no" in complaint for complaint in tab.complaints())
    assert "file:///nowhere.png" in tab.requested()
    assert tab.needed_width() > 360


def test_the_keyboard_reaches_everything_and_shows_where_it_is(page: Shown, tab: Tab) -> None:
    tab.show(page.url)
    tab.tell(OPENED)
    wanted = tab.tell(f"{INTERACTIVE}.length")
    reached = set()
    for _ in range(wanted):
        tab.press_tab()
        reached.add(tab.tell(f"{INTERACTIVE}.indexOf(document.activeElement)"))
        assert tab.tell("document.activeElement.matches(':focus-visible')")
        assert tab.tell("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        assert tab.tell("document.activeElement.getBoundingClientRect().top >= 0")
    assert reached == set(range(wanted)) and wanted >= 2


def test_every_table_has_a_caption_and_headers_and_every_picture_words(page: Shown, tab: Tab) -> None:
    tab.show(page.url)
    tab.tell(OPENED)
    assert tab.tell("document.querySelectorAll('table').length") >= 3
    assert tab.tell("[...document.querySelectorAll('table')].every(t => t.caption && t.caption.innerText.length > 10)")
    assert tab.tell("[...document.querySelectorAll('th')].every(cell => cell.scope)")
    assert tab.tell("[...document.querySelectorAll('svg')].every(s => s.getAttribute('aria-label').includes('. '))")
    assert tab.tell("[...document.querySelectorAll('progress')].every(p => p.getAttribute('aria-label'))")
    assert tab.tell("document.documentElement.lang") == "en"


def test_the_live_page_takes_over_what_has_changed_and_says_so(status: Shown, tab: Tab) -> None:
    tab.show(status.url)
    assert tab.tell("document.querySelector('#now[aria-live=polite]').innerText").startswith("Round 4 is under way")
    tab.tell("document.querySelector('footer a').focus()")
    later = rich() | {"phase": {"step": "student", "done": 30, "total": 600, "seconds_left": 240}, "connected": 4}
    status.snapshots.append(later)
    tab.tell("refresh()")
    assert tab.tell("document.querySelector('#now').innerText") == (
        "Fitting the student: step 30 of 600. At this pace 4 min to go."
    )
    assert tab.tell("document.querySelector('.stages [aria-current=step]').innerText") == "Student"
    assert tab.tell("document.querySelector('#cards b').innerText") == "4 of 5"
    # Whoever was somewhere with the keyboard is still there.
    assert tab.tell("document.activeElement.innerText") == "This page as JSON"
    assert tab.complaints() == [] and tab.tell("document.getElementById('lost').hidden")


def test_the_live_page_says_that_its_coordinator_is_gone(tab: Tab) -> None:
    with StatusServer("127.0.0.1:0", rich) as server:
        tab.show(server.url)
    tab.tell("refresh()")
    assert not tab.tell("document.getElementById('lost').hidden")
    assert tab.tell("document.querySelector('#now').innerText").startswith("Round 4")


def test_the_live_page_obeys_its_policy_and_runs_nothing_else(status: Shown, tab: Tab) -> None:
    tab.show(status.url)
    tab.tell(
        "{ const s = document.createElement('script'); s.textContent = 'window.evil = 1'; document.body.append(s); 0 }"
    )
    assert tab.tell("window.evil === undefined")
    assert any("Content Security Policy" in complaint for complaint in tab.complaints())


def test_less_motion_is_kept_to(status: Shown, tab: Tab) -> None:
    moves = "getComputedStyle(document.querySelector('progress'), '::-webkit-progress-value').transitionDuration"
    tab.show(status.url, still=True)
    assert tab.tell(moves) in ("0s", "")


def test_the_report_prints_whole_on_light_paper(report: Shown, tab: Tab, tmp_path: Path) -> None:
    tab.show(report.url, dark=True)
    tab.print(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    tab.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    tab.call("Emulation.setDeviceMetricsOverride", width=670, height=960, deviceScaleFactor=1, mobile=False)
    assert tab.tell("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    # An A4 page between margins of 16 mm is 672 pixels wide: no table may be cut off at its edge.
    assert tab.needed_width() <= 670
    assert tab.tell("[...document.querySelectorAll('table')].every(t => t.getBoundingClientRect().right <= 670)")
    tab.call("Emulation.setEmulatedMedia", media="")


@pytest.fixture
def statement_page(tmp_path: Path) -> Shown:
    path = tmp_path / "statement.html"
    path.write_text(statement.render(a_statement()), encoding="utf-8")
    return Shown(path.as_uri(), re.escape(path.as_uri()))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_statement_fits_its_window_and_asks_nobody_for_anything(
    width: int, dark: bool, statement_page: Shown, tab: Tab
) -> None:
    tab.show(statement_page.url, width=width, dark=dark)
    tab.tell(OPENED)
    assert tab.complaints() == [] and tab.requested() == [statement_page.url]
    assert tab.needed_width() <= width


def test_a_statement_of_five_institutions_prints_on_one_page(statement_page: Shown, tab: Tab, tmp_path: Path) -> None:
    tab.show(statement_page.url, dark=True)
    tab.print(tmp_path / "statement.pdf")
    pages = re.findall(rb"/Type\s*/Page[^s]", (tmp_path / "statement.pdf").read_bytes())
    assert len(pages) == 1
