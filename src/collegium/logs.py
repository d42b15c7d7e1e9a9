"""How a process that serves writes its log: lines for people, or one JSON object per line for programs.

An event has a name and fields of its own: ``logger.info("%s is here", name, extra=event("arrived", party=name))``.
Neither form repeats the text of an exception that nobody foresaw: it may quote a record.
"""

from __future__ import annotations

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
    """What a call of a logger takes as ``extra`` so that its JSON line names the event and holds the fields."""
    return {"event": name, "fields": fields}


def printable(text: str) -> str:
    """``text`` on one line, without what would steer a terminal: part of a line may come from somebody else."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _happened(record: logging.LogRecord) -> str | None:
    """Kind of a record's exception and where it was raised; never its text, which may quote a record."""
    if not record.exc_info or record.exc_info[0] is None:
        return None
    places = [
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in traceback.extract_tb(record.exc_info[2])
    ]
    return f"{record.exc_info[0].__name__} at {' < '.join(reversed(places)) or 'nowhere'}"


class TextLines(logging.Formatter):
    """``15:04:05 what happened``, by the clock of this machine."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        happened = _happened(record)
        return f"{at} {printable(record.getMessage())}" + (f" ({happened})" if happened else "")


class JsonLines(logging.Formatter):
    """``time`` (UTC), ``level``, ``logger``, ``event``, ``message``, ``fields``, and ``exception`` after one."""

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
    """Log everything from INFO on to ``stream``, standard error by default, in the chosen form."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if chosen is LogFormat.JSON else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


__all__ = ["JsonLines", "LogFormat", "TextLines", "configure_logging", "event", "printable"]
