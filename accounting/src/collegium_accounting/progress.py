"""Long searches of the accountant say how far they are, to whoever listens."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class SearchStep:
    """How far a search is.

    Parameters
    ----------
    subject : what is computed, in words that a user reads.
    done, total : the parts of the work, those done and all.
    """

    subject: str
    done: int
    total: int


Listener = Callable[[SearchStep], None]

_QUIET_S = 1.0
"""Before a search's first line; between two lines five times as much."""
_listener: ContextVar[Listener | None] = ContextVar("search_listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener`` with every step of the searches that run inside this block, in this thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def telling(listener: Listener | None) -> Iterator[None]:
    """As `listening`; without a listener, and where nobody listens yet, one line on standard error that changes."""
    if listener is None and _listener.get() is not None:
        yield
        return
    line = _OneLine()
    with listening(listener or SearchLines(line.write)):
        try:
            yield
        finally:
            line.end()


class _OneLine:
    """A line on standard error that is written over where it is a terminal's."""

    def __init__(self) -> None:
        self._open = False

    def write(self, text: str) -> None:
        over = sys.stderr.isatty()
        print(f"\r{text}" if over else text, end="" if over else "\n", file=sys.stderr, flush=True)
        self._open = over

    def end(self) -> None:
        if self._open:
            print(file=sys.stderr)


def report_step(step: SearchStep) -> None:
    """Tell the listener, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(step)


class SearchLines:
    """A listener that writes a line now and then: nothing of what is done within a second.

    Parameters
    ----------
    write : takes one line without its end.
    clock : seconds, monotonic.
    """

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._subject = ""
        self._due_s = 0.0

    def __call__(self, step: SearchStep) -> None:
        now_s = self._clock()
        if step.subject != self._subject:
            self._subject, self._due_s = step.subject, now_s + _QUIET_S
        elif now_s >= self._due_s:
            self._due_s = now_s + 5 * _QUIET_S
            share = 100 * step.done // max(1, step.total)
            self._write(f"{step.subject} (once; the result is kept): {share} %")
