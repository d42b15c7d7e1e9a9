"""Somebody who follows a page of docs/: types its commands, with some words replaced by others."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND_S = 240.0
"""A slow and busy machine is given this long."""


def text_of_page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def blocks_of(page: str, kind: str) -> list[str]:
    """The contents of a page's code blocks of one kind, such as ``sh``."""
    return re.findall(rf"^```{kind}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def commands_of(page: str) -> list[str]:
    return [line for block in blocks_of(page, "sh") for line in block.splitlines() if line.strip()]


@dataclass
class Reader:
    """Follows ``pages`` in ``folder``; ``words`` are replaced in every command."""

    folder: Path
    pages: Sequence[str]
    words: dict[str, str] = field(default_factory=dict)
    typed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.commands = [command for page in self.pages for command in commands_of(text_of_page(page))]

    def start(self, command: str, *, instead: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a command that one of the pages shows, with some of its words replaced by others."""
        assert command in self.commands, command
        self.typed.add(command)
        for word, other in {**self.words, **(instead or {})}.items():
            command = command.replace(word, other)
        words = shlex.split(command)
        words[:1] = [sys.executable] if words[0] == "python" else [sys.executable, "-m", "collegium"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
        environment.pop("COLLEGIUM_DATA", None)
        return subprocess.Popen(
            words,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, command: str, *, instead: dict[str, str] | None = None) -> str:
        """Run it to its end; what it printed."""
        return finished(self.start(command, instead=instead))


def finished(process: subprocess.Popen[str]) -> str:
    """Wait for its end; what it printed."""
    out, err = process.communicate(timeout=COMMAND_S)
    assert process.returncode == 0, (process.args, err)
    return out


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """Read its log up to a line with these words, which is returned."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if words in line:
            return line
    raise AssertionError(f"ended before {words!r}: {''.join(seen)}")
