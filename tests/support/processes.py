"""Processes that tests start: the command `collegium` as a user types it, and the scripts of this folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from support.copied import POSSIBLE, TESTS, Copied
from support.waiting import comes_true

COMMAND_S = 500.0
"""How long one command may take on a slow and busy machine."""


@dataclass(frozen=True)
class Finished:
    """What a command left: exit status and what it wrote."""

    status: int
    out: str
    err: str


def start(
    *words: str | Path,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    ignoring: Collection[signal.Signals] = (),
    **options: Any,
) -> subprocess.Popen[str]:
    """Start Python with these arguments, as a user without a terminal and without a data folder would.

    Parameters
    ----------
    words
        Arguments of the Python interpreter.
    folder
        Where the process runs; the tests' own working directory if None.
    environment
        Variables that are set besides those of the tests.
    ignoring
        Which of SIGINT, SIGTERM and SIGHUP the process ignores at its start, as a script's background job ignores
        SIGINT, and what ``nohup`` starts SIGHUP. The others it does not, however the tests themselves were started.
    options
        Further options of `subprocess.Popen`; its three streams are a closed input and two pipes unless given.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLLEGIUM_DATA", "NO_COLOR")}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # What libraries read in the environment when they are loaded, a copy of a process that has them reads no more.
    copied = POSSIBLE and words[:2] == ("-m", "collegium") and not environment
    with signals_ignored(ignoring):
        return (Copied if copied else subprocess.Popen)(
            [sys.executable, *map(str, words)],
            cwd=folder,
            env=inherited | {"OMP_NUM_THREADS": "1", "COLUMNS": "80"} | dict(environment or {}),
            text=True,
            **(streams | options),
        )


def start_collegium(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    """Start the command `collegium`; ``options`` are those of `start`."""
    return start("-m", "collegium", *arguments, **options)


def start_script(name: str, *arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    """Start the module ``support.NAME``, gRPC as silent as the command makes it; ``options`` are those of `start`."""
    search_path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"PYTHONPATH": search_path, "GRPC_VERBOSITY": "NONE"}
    return start("-m", f"support.{name}", *arguments, environment=environment, **options)


def command(*arguments: str | Path, **options: Any) -> Finished:
    """Run `collegium` to its end."""
    process = start_collegium(*arguments, **options)
    out, err = process.communicate(timeout=COMMAND_S)
    return Finished(process.returncode, out, err)


def output_of(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a process, which must succeed; what it printed."""
    out, err = process.communicate(timeout=COMMAND_S)
    assert process.returncode == 0, (process.args, err)
    return out


def kill(process: subprocess.Popen[str]) -> None:
    """Send SIGKILL and wait for the end."""
    process.kill()
    process.communicate(timeout=COMMAND_S)


def interrupt(process: subprocess.Popen[str]) -> Finished:
    """Send SIGINT, as Ctrl-C does, and wait for the end."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=COMMAND_S)
    return Finished(process.returncode, out, err)


def lines_of(stream: IO[str] | None) -> Iterator[str]:
    """What a process writes, line by line. Nothing is read ahead, which `Popen.communicate` would not see."""
    assert stream is not None
    line = b""
    while read := os.read(stream.fileno(), 1):
        line += read
        if read == b"\n":
            yield line.decode()
            line = b""
    if line:
        yield line.decode()


def read_until(stream: IO[str] | None, words: str) -> str:
    """Read a process's output up to a line with these words; that line."""
    seen = []
    for line in lines_of(stream):
        seen.append(line)
        if words in line:
            return line
    raise AssertionError(f"ended before {words!r}: {''.join(seen)}")


@contextmanager
def killed_at_the_end() -> Iterator[list[subprocess.Popen[str]]]:
    """A list of processes; those that still run when the block ends, however it ends, are killed."""
    started: list[subprocess.Popen[str]] = []
    try:
        yield started
    finally:
        for process in started:
            if process.poll() is None:
                kill(process)


def have_ended(pids: Sequence[int]) -> bool:
    """Whether all these processes end within `PATIENCE_S`; one that nobody has waited for counts as ended."""
    return comes_true(lambda: not any(map(_is_running, pids)))


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def signals_ignored(ignored: Collection[signal.Signals]) -> Iterator[None]:
    """A process that is started within inherits which of three signals are ignored and which are not."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # In a process that is started the default takes the place of any handler.
    former = {n: signal.signal(n, signal.SIG_IGN if n in ignored else signal.default_int_handler) for n in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
