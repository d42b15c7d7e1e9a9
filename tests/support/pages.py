"""Somebody who follows a page of docs/: types its commands, with some words replaced by others."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from collegium.cli import main
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
        words = self._words(command, instead)
        words[:1] = [] if words[0] == "python" else ["-m", "collegium"]
        return start(*words, folder=self.folder)

    def run(self, command: str, *, instead: dict[str, str] | None = None) -> str:
        """Run a command of `collegium` to its end, in this process, which has loaded what it needs; what it printed."""
        if command.startswith("python "):
            return output_of(self.start(command, instead=instead))
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.chdir(self.folder))
            out, err = io.StringIO(), io.StringIO()
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(err))
            environment = stack.enter_context(pytest.MonkeyPatch.context())
            environment.setenv("COLUMNS", "80")
            environment.delenv("COLLEGIUM_DATA", raising=False)
            ended = stack.enter_context(pytest.raises(SystemExit))
            try:
                main(self._words(command, instead)[1:])
            finally:
                root.handlers[:] = handlers
                root.setLevel(level)
        assert ended.value.code == 0, (command, err.getvalue())
        return out.getvalue()

    def _words(self, command: str, instead: dict[str, str] | None) -> list[str]:
        assert command in self.commands, command
        self.typed.add(command)
        for word, other in {**self.words, **(instead or {})}.items():
            command = command.replace(word, other)
        return shlex.split(command)
