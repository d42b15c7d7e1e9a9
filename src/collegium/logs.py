"""The log of a process that serves: lines for people, or one JSON object per line for programs.

An event has a name and fields: ``logger.info("%s is here", name, extra=event("arrived", party=name))``. Neither form
contains the text of an unexpected exception, because that text may quote a record.
"""

import json
import logging
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TextIO


class LogFormat(StrEnum):
    """How log lines look."""

    TEXT = "text"
    JSON = "json"


def event(name: str, **fields: str | int | float | bool | None) -> dict[str, Any]:
    """The argument ``extra`` of a logger's call; it gives the JSON line the event's name and fields."""
    return {"event": name, "fields": fields}


def printable(text: str) -> str:
    """``text`` on one line, without characters that control a terminal: another machine may have sent part of it."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _happened(record: logging.LogRecord) -> str | None:
    """The class of an exception and where it was raised, never its text, which may quote a record."""
    if not record.exc_info or record.exc_info[0] is None:
        return None
    places = [_place(frame) for frame in traceback.extract_tb(record.exc_info[2])]
    return f"{record.exc_info[0].__name__} at {' < '.join(reversed(places)) or 'nowhere'}"


def raised_at(error: BaseException) -> str:
    """Where an exception was raised, as ``file.py:7``: what may be told of it, while its text may quote a record."""
    return _place(traceback.extract_tb(error.__traceback__)[-1])


def _place(frame: traceback.FrameSummary) -> str:
    return f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"


class TextLines(logging.Formatter):
    """Lines such as ``15:04:05 what happened``, in local time."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        happened = _happened(record)
        return f"{at} {printable(record.getMessage())}" + (f" ({happened})" if happened else "")


class JsonLines(logging.Formatter):
    """JSON objects: ``time`` (UTC), ``level``, ``logger``, ``event``, ``message``, ``fields``, maybe ``exception``."""

    def format(self, record: logging.LogRecord) -> str:
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", "message"),
            "message": record.getMessage(),
            "fields": dict(fields),
        }
        if (happened := _happened(record)) is not None:
            line["exception"] = happened
        return json.dumps(line, default=lambda value: type(value).__name__)


def configure_logging(chosen: LogFormat, stream: TextIO | None = None) -> None:
    """Log messages of level INFO and above to ``stream`` (by default standard error) in the chosen form."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if chosen is LogFormat.JSON else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
