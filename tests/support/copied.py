"""Processes of the command, each a copy of one process that has loaded what the commands load.

To load the libraries takes a second or more of a core, and to copy a process that has them some milliseconds. A copy is
a process as any other: with its own number, streams, folder, environment, signals and memory, and a child of the tests'
own process; it ends as the interpreter ends. ``launch`` makes the processes of its parties in the same way
(`collegium.simulations.party_processes`), and what it makes them of is a copy here as well. The installed command and
all that it starts load the libraries anew in tests/integration/packaging.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from runpy import run_module
from traceback import print_exc
from types import SimpleNamespace
from typing import Any, NoReturn
from warnings import filterwarnings

TESTS = Path(__file__).resolve().parents[1]
LOADED = (
    "collegium.protocol.grpc_tls13",  # before anything else loads gRPC
    "pandas",
    "scipy.stats",
    "sklearn.ensemble",
    "torch",
    "collegium.parties.cli",
    "collegium.parties.opening",
    "collegium.parties.session",
    "collegium.coordinator.cli.coordinator_cli",
    "collegium.coordinator.service.coordinator_service",
    "collegium.simulations.cli",
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MOST_BYTES = 1 << 20
_PR_SET_CHILD_SUBREAPER = 36


def _inherit_orphans(number: int) -> bool:
    """Have processes whose parent has ended become this process's children (1) or not (0); whether the system can."""
    return ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, number, 0, 0, 0) == 0


POSSIBLE = sys.platform == "linux" and _inherit_orphans(0)


class Copied(subprocess.Popen[str]):
    """``python -m MODULE ARGUMENTS`` with the options of `subprocess.Popen` that `support.processes.start` gives."""

    _lock = threading.Lock()
    _copied: socket.socket | None = None

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, *rest: Any) -> None:
        """Ask for a copy where `subprocess.Popen` starts a program."""
        _, cwd, environment, _, _, _, *pipes, _, _, _, _, _, own_session, _ = rest
        wanted = {
            "words": args[2:],
            "folder": os.fspath(cwd or os.getcwd()),
            "environment": dict(os.environ if environment is None else environment),
            "ignored": [n for n in _SIGNALS if signal.getsignal(n) is signal.SIG_IGN],
            "own session": own_session,
        }
        its_ends = pipes[0], pipes[3], pipes[5]
        streams = [own if given == -1 else given for own, given in enumerate(its_ends)]
        with Copied._lock, _inheriting_orphans():
            Copied._copied = Copied._copied or _begin()
            socket.send_fds(Copied._copied, [json.dumps(wanted).encode()], streams)
            self.pid = int(Copied._copied.recv(_MOST_BYTES))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]  # and no file of whoever starts this


def launch_copies() -> None:
    """Have `launch`, where it runs in this process, start what it makes parties of as a copy."""
    from collegium.simulations import party_processes

    setattr(party_processes, "subprocess", SimpleNamespace(Popen=Copied, PIPE=subprocess.PIPE))  # noqa: B010


def _begin() -> socket.socket:
    """Start the process that is copied, which ends with this one."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "GRPC_VERBOSITY": "NONE"}
    words = [sys.executable, "-m", "support.copied", str(its.fileno())]
    with its:
        copied = subprocess.Popen(words, cwd=TESTS, env=environment, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL)

    def end(tests: int = os.getpid()) -> None:
        if os.getpid() == tests:  # and no copy of theirs
            ours.close()
            copied.kill()
            copied.wait()

    atexit.register(end)
    return ours


@contextmanager
def _inheriting_orphans() -> Iterator[None]:
    """Within, a process whose parent has ended becomes this process's child."""
    _inherit_orphans(1)
    try:
        yield
    finally:
        _inherit_orphans(0)


def _be(wanted: dict[str, Any], streams: list[int], says: int) -> NoReturn:
    """Say who this is, run the module, and end as the interpreter would; what is loaded is not taken apart."""
    if wanted["own session"]:
        os.setsid()
    if wanted["words"][:2] == ["collegium", "launch"]:
        _be_two([*streams, says])
    for stream, given in enumerate(streams):
        os.dup2(given, stream)
        os.close(given)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    for number, usual in zip(_SIGNALS, (signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL), strict=True):
        signal.signal(number, signal.SIG_IGN if number in wanted["ignored"] else usual)
    status: object = 0
    interrupted = False
    try:
        os.write(says, str(os.getpid()).encode())  # from here on no signal is lost
        os.close(says)
        os.chdir(wanted["folder"])
        sys.path[0] = os.getcwd()
        os.environ.clear()
        os.environ.update(wanted["environment"])
        module, *sys.argv[1:] = wanted["words"]
        run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException as error:  # what the interpreter would print and end with
        print_exc()
        status = 1
        interrupted = isinstance(error, KeyboardInterrupt)
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    if not isinstance(status, int):
        print(status, file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        status = 120
    sys.stderr.flush()
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status if isinstance(status, int) else 1)


def _be_two(files: Sequence[int]) -> None:
    """Make one more copy, a child that waits until this process, which will have threads, asks for one.

    ``files`` are this process's alone.
    """
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        for file in (ours.detach(), *files):
            os.close(file)
        message, streams, _, _ = socket.recv_fds(its, _MOST_BYTES, 3)
        if message:
            _be(json.loads(message), streams, its.detach())
        os._exit(0)
    its.close()
    Copied._copied = ours
    launch_copies()


def main() -> None:
    """Load what the commands load, and make a copy for each message that comes in until its other end is closed."""
    for module in LOADED:
        with suppress(ImportError):
            import_module(module)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches the tests
    filterwarnings("ignore", category=DeprecationWarning)  # of Python 3.12, where a library has threads
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as told:
        while True:
            message, streams, _, _ = socket.recv_fds(told, _MOST_BYTES, 3)
            if not message:
                os._exit(0)  # what is loaded is not taken apart
            number, says = os.pipe()
            if (between := os.fork()) == 0:
                if os.fork() == 0:
                    for file in (number, told.detach()):
                        os.close(file)
                    _be(json.loads(message), streams, says)
                os._exit(0)
            os.waitpid(between, 0)  # its copy is an orphan from now on
            told.send(os.read(number, 20))
            for file in (number, says, *streams):
                os.close(file)


if __name__ == "__main__":
    main()
