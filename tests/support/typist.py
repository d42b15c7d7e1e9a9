"""Somebody who types commands of `collegium` into this process, the long ones in threads of their own."""

from __future__ import annotations

import logging
import shlex
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from collegium.cli import main
from support.ports import free_ports
from support.waiting import comes_true


def typed(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Run one command of `collegium` in this process: its exit status, what it printed, and what it said of errors."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def told(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """The same, with all that it wrote as one text."""
    status, out, err = typed(capsys, *words)
    return status, out + err


class Typist:
    """Types commands of the page, with the ports of this test."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.ports = dict(zip(("7443", "7444"), map(str, free_ports(2)), strict=True))
        self.ended: dict[str, object] = {}

    def _words(self, command: str, changed: Mapping[str, str]) -> list[str]:
        ports = {f":{shown}": f":{free}" for shown, free in self.ports.items()}  # a join code may hold the digits too
        for word, other in {**ports, **changed}.items():
            command = command.replace(word, other)
        return shlex.split(command)[1:]

    def type(self, command: str, *, status: int = 0, **changed: str) -> str:
        """Run a command to its end, which must have this status; what it printed, of an error its line."""
        code, out, err = typed(self._capsys, *self._words(command, changed))
        assert code == status, err
        return out or err

    def begin(self, name: str, command: str, **changed: str) -> threading.Thread:
        """Run a command in a thread; ``ended`` then has its exit status."""

        def run() -> None:
            try:
                main(self._words(command, changed))
            except SystemExit as ended:
                self.ended[name] = ended.code

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


@contextmanager
def typing(capsys: pytest.CaptureFixture[str]) -> Iterator[Typist]:
    """Somebody who types; what commands changed in the logging of this process is put back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield Typist(capsys)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def reachable(port: int) -> None:
    """Wait until something listens there."""

    def answers() -> bool:
        with socket.socket() as trial:
            return trial.connect_ex(("localhost", port)) == 0

    assert comes_true(answers), "the coordinator does not listen"
