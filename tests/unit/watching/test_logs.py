"""Log lines: the same events for people and for programs, on one line each, without what nobody foresaw."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from collegium.logs import LogFormat, configure_logging, event

log = logging.getLogger("collegium.test")
Lines = Callable[[LogFormat, Callable[[], None]], list[str]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers.clear()  # pytest's own stay out of `force`

    def written(chosen: LogFormat, act: Callable[[], None]) -> list[str]:
        stream = io.StringIO()
        configure_logging(chosen, stream)
        act()
        return stream.getvalue().splitlines()

    yield written
    root.handlers[:] = before
    root.setLevel(level)


def arrival() -> None:
    log.info("%s is here", "ash", extra=event("arrived", party="ash", parties=3))


def accident() -> None:
    try:
        raise ValueError("record 17: diagnosis malignant")
    except ValueError:
        log.exception("an answer failed")


def test_json_lines_name_the_event_and_hold_its_fields(lines: Lines) -> None:
    line: dict[str, Any] = json.loads(lines(LogFormat.JSON, arrival)[0])
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "collegium.test",
        "event": "arrived",
        "message": "ash is here",
        "fields": {"party": "ash", "parties": 3},
    }


def test_lines_for_people_say_the_same(lines: Lines) -> None:
    assert lines(LogFormat.TEXT, arrival)[0][8:] == " ash is here"


@pytest.mark.parametrize("chosen", LogFormat)
def test_an_exception_is_told_by_its_kind_and_place_alone(chosen: LogFormat, lines: Lines) -> None:
    written = lines(chosen, accident)
    assert len(written) == 1 and "malignant" not in written[0]
    assert "ValueError at test_logs.py:" in written[0]


@pytest.mark.parametrize("chosen", LogFormat)
def test_what_a_peer_says_neither_steers_the_terminal_nor_forges_a_line(chosen: LogFormat, lines: Lines) -> None:
    written = lines(chosen, lambda: log.warning("refused: %s", "\x1b[2J\n12:00:00 ash enrolled\r\u2028"))
    assert len(written) == 1
    assert "\x1b" not in written[0] and "\r" not in written[0] and "\u2028" not in written[0]


def test_a_call_without_an_event_is_a_message(lines: Lines) -> None:
    line = json.loads(lines(LogFormat.JSON, lambda: log.info("nothing special"))[0])
    assert (line["event"], line["fields"]) == ("message", {})
