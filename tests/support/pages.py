"""Somebody who follows a page of docs/: types its commands, with some words replaced by others."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.processes import output_of, start

ROOT = Path(__file__).resolve().parents[2]


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
        words[:1] = [] if words[0] == "python" else ["-m", "collegium"]
        return start(*words, folder=self.folder)

    def run(self, command: str, *, instead: dict[str, str] | None = None) -> str:
        """Run it to its end; what it printed."""
        return output_of(self.start(command, instead=instead))
