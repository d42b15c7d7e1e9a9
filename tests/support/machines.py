"""Two machines out of one: namespaces with their own processes, network and memory, and no folder of a run shared."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.usage import tree_pids

from support.processes import read_until

HEAD, SECOND = "10.77.0.1", "10.77.0.2"
SHOWN = Path("/mnt")
"""Where the head has the folder that it was given, and the second machine an empty one."""

_USER = os.geteuid() != 0  # whoever is not root makes namespaces within one of users
_UNSHARE = ["unshare", *(["--user", "--map-root-user"] if _USER else []), "--net", "--mount", "--pid"]
_MACHINE = [*_UNSHARE, "--fork", "--kill-child", "--mount-proc", "sh", "-ec"]
_ENTER = ["nsenter", *(["--user", "--preserve-credentials"] if _USER else []), "--net"]
_RUNS = "ip link set lo up; ip address add {} dev lo; {}; mount -t tmpfs tmpfs /dev/shm; echo up; exec cat"
"""A machine runs until its input ends or it is killed. Its address stays when the cable is gone."""


def possible() -> bool:
    """Whether this user may make such machines here."""
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))) or not SHOWN.is_dir():
        return False
    tried = f"ip link add cable0 type veth peer name cable1; mount -t tmpfs tmpfs {SHOWN}"
    return subprocess.run([*_MACHINE, tried], capture_output=True).returncode == 0


@dataclass(frozen=True)
class Machine:
    """``pid`` : the first process of the machine, as this host numbers it; all others there die with it."""

    pid: int

    def within(self, *words: str | Path) -> list[str]:
        """The command that does ``words`` on this machine."""
        return [*_ENTER, "--mount", "--pid", "-t", str(self.pid), "--", *map(str, words)]

    def python(self, *words: str | Path) -> subprocess.Popen[str]:
        """Start the tests' Python there; what it says comes through one pipe."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(self.within(sys.executable, *words), text=True, **streams)  # type: ignore[call-overload]

    def wired(self, *words: str) -> None:
        """Do something with this machine's network, as a process of this host."""
        subprocess.run([*_ENTER, "-t", str(self.pid), "--", "ip", *words], check=True)

    def has(self, path: Path) -> bool:
        """Whether there is such a file or folder."""
        return subprocess.run(self.within("test", "-e", path)).returncode == 0


@contextmanager
def _machine(before: Sequence[str], address: str, mounts: str) -> Iterator[Machine]:
    """A machine; it ends with the block, as its input does."""
    command = [*before, *_MACHINE, _RUNS.format(address, mounts)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        read_until(process.stdout, "up")
        # Of nsenter and unshare one after the other; the last is the machine's first.
        yield Machine(tree_pids(process.pid)[-1])


@contextmanager
def two_machines(folder: Path) -> Iterator[tuple[Machine, Machine]]:
    """A head that has ``folder`` at `SHOWN`, and a second machine that has it nowhere, joined by a cable."""
    hidden = f"mount -t tmpfs tmpfs {SHOWN}; if test -e '{folder}'; then mount -t tmpfs tmpfs '{folder}'; fi"
    with (
        _machine([], HEAD, f"mount --bind '{folder}' {SHOWN}") as head,
        _machine(head.within(), SECOND, hidden) as second,
    ):
        head.wired("link", "add", "cable0", "type", "veth", "peer", "name", "cable1")
        head.wired("link", "set", "cable1", "netns", str(second.pid))
        for machine, cable, own, other in ((head, "cable0", HEAD, SECOND), (second, "cable1", SECOND, HEAD)):
            machine.wired("link", "set", cable, "up")
            machine.wired("route", "add", other, "dev", cable, "src", own)
        yield head, second
