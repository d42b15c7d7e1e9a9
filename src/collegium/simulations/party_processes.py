"""Processes of parties on one machine, each a copy of one process that has loaded what all of them need.

To load the libraries takes longer than to copy a process that has them. Each copy runs ``collegium party serve`` on a
configuration of its own, with its own process number, log, memory and files; where to copy a process is not safe once
libraries are loaded (macOS), each loads them itself.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from runpy import run_module
from threading import Condition, Thread
from traceback import print_exc
from typing import IO, NoReturn
from warnings import filterwarnings

LOG = "party.log"
LOADED = ("pandas", "scipy.linalg", "collegium.parties.opening", "collegium.parties.session")
LEAVE_S = 20.0
"""How long a process may take to end."""


class PartyProcess:
    """A running ``collegium party serve``.

    Attributes
    ----------
    name : the party's name
    log : the file of its output
    pid : the number of its process
    status : the exit status, negative for a signal, once it has ended
    """

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self.pid = 0
        self.status: int | None = None
        self._told = Condition()

    def last_words(self) -> str:
        """The last line of its log, which says why it ended if it has ended."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "no word"

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        with self._told, suppress(ProcessLookupError):
            if self.status is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once, and wait until it has ended."""
        self.send(signal.SIGKILL)
        self.wait(LEAVE_S)

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended, for which it is waited this long."""
        with self._told:
            return self._told.wait_for(lambda: self.status is not None, max(0.0, timeout_s))

    def hear(self, pid: int, status: int | None) -> None:
        """Take what is told of it: that it runs as ``pid``, or how it ended."""
        with self._told:
            self.pid, self.status = pid, status
            self._told.notify_all()


class PartyProcesses:
    """One process for each party within this context; those that still run at its end are ended.

    The libraries are loaded from the start of the context on, while a run is prepared, and the parties begin later.

    Parameters
    ----------
    also : modules that the parties are likely to need besides `LOADED`
    """

    def __init__(self, *also: str) -> None:
        words = [sys.executable, "-m", __name__, *also]
        # The standard input of all closes with this process, however that ends.
        self._copied = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._parties: list[PartyProcess] = []
        self._hearing: Thread | None = None

    def begin(self, configs: dict[str, Path]) -> list[PartyProcess]:
        """Begin one for each party's name, on its TOML file, in a folder of its own, which gets the log; once."""
        self._parties = [PartyProcess(name, config.with_name(LOG)) for name, config in configs.items()]
        for party in self._parties:
            party.log.write_bytes(b"")
        assert self._copied.stdin is not None and self._copied.stdout is not None
        pipe, left = self._copied.stdin.fileno(), json.dumps([str(one) for one in configs.values()]).encode() + b"\n"
        with suppress(BrokenPipeError):  # it has ended, which who waits for the parties is told
            while left:
                left = left[os.write(pipe, left) :]
        self._hearing = Thread(target=_hear, args=(self._copied.stdout, self._parties), daemon=True)
        self._hearing.start()
        return self._parties

    def __enter__(self) -> "PartyProcesses":
        return self

    def __exit__(self, *_: object) -> None:
        with self._copied:
            for number in (signal.SIGTERM, signal.SIGKILL):
                for party in self._parties:
                    if party.pid:
                        party.send(number)
                if all(party.wait(LEAVE_S) for party in self._parties if party.pid):
                    break
            self._copied.terminate()
            if self._hearing is not None:
                self._hearing.join()


def _hear(told: IO[str], parties: list[PartyProcess]) -> None:
    for line in told:
        index, pid, status = line.split()
        parties[int(index)].hear(int(pid), None if status == "runs" else int(status))
    for party in parties:
        if party.status is None:  # nobody is left who could tell
            party.hear(party.pid, -signal.SIGKILL)


def _serve(config: Path) -> NoReturn:
    """Be ``collegium party serve``. What is loaded is not taken apart at the end: that would take a second."""
    sys.argv = ["collegium", "party", "serve", str(config), "--until-stdin-closes"]
    status: object = 1
    try:
        run_module("collegium", run_name="__main__")
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:  # what the interpreter would print and end with
        print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 1)


def main(words: Sequence[str]) -> None:
    """Load what parties need, begin one copy for each configuration that comes in, and tell when each ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches each party and what started this
    if sys.platform != "darwin":
        for module in (*LOADED, *words):
            with suppress(ImportError):
                import_module(module)
    with open(0, "rb", buffering=0, closefd=False) as told:  # unbuffered: the rest is the copies'
        configs = [Path(config) for config in json.loads(told.readline() or "[]")]
    # Python 3.12 warns where a library has threads. Those here are of OpenBLAS, which ends them before a copy is made.
    filterwarnings("ignore", category=DeprecationWarning)
    running: dict[int, int] = {}
    for index, config in enumerate(configs):
        pid = os.fork()
        if pid == 0:
            sink = os.open(config.with_name(LOG), os.O_WRONLY | os.O_APPEND)
            for stream in (1, 2):
                os.dup2(sink, stream)
            os.close(sink)
            _serve(config)
        running[pid] = index
        print(index, pid, "runs", flush=True)
    while running:
        pid, status = os.wait()
        print(running.pop(pid), pid, os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
