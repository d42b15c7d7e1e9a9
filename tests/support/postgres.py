"""A PostgreSQL server of a test's own, on a port of this machine, with a password."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.ports import free_ports


def _programs() -> Path | None:
    found = shutil.which("pg_ctl")
    if found:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    return installed[-1].parent if installed else None


PROGRAMS = _programs()


@dataclass(frozen=True)
class Server:
    """Where it listens, and its superuser's password."""

    folder: Path
    port: int
    password: str

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://collegium@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Run it, again after a kill; pg_ctl waits until it answers."""
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -c unix_socket_directories={self.folder} -c fsync=off"
        log = str(self.folder / "log")
        _run("pg_ctl", "-D", str(self.folder / "data"), "-l", log, "-o", options, "-w", "start")

    def kill(self) -> None:
        """End it and all its connections at once, as a crash would."""
        _run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")


@contextmanager
def server() -> Iterator[Server]:
    """Run a server. It does not run as root, so root becomes another user."""
    folder = Path(tempfile.mkdtemp(prefix="collegium-postgres-"))
    made = Server(folder, free_ports(1)[0], secrets.token_hex(12))
    (folder / "password").write_text(made.password)
    if os.getuid() == 0:
        user = pwd.getpwnam("postgres")
        for path in (folder, folder / "password"):
            os.chown(path, user.pw_uid, user.pw_gid)
    data = str(folder / "data")
    try:
        _run("initdb", "-D", data, "-U", "collegium", "-A", "scram-sha-256", "--pwfile", str(folder / "password"), "-N")
        made.start()
        yield made
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            made.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _run(program: str, *arguments: str) -> None:
    assert PROGRAMS is not None
    as_user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    subprocess.run(
        [*as_user, str(PROGRAMS / program), *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        cwd="/",
    )
