"""Loaded before any test module, in every process that runs tests."""

import gc
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Several processes share the cores: each computes on one thread, as do the processes that it starts.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Of a run that is killed, Ray's own processes would wait a minute for the one that ended with it.
os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "5")
# Its workers would get what the other tests leave.
os.environ.setdefault("RAY_worker_niceness", "0")

import pytest
from hypothesis import HealthCheck, settings

import collegium.protocol.grpc_tls13  # noqa: F401  before anything else loads gRPC

# How long one example takes says how busy the machine is; a test that hangs runs into the limit of all tests.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# Ledgers and books wait for the disk after each entry, and the suite writes a hundred thousand of them. Of a process
# that is killed, a disk in memory keeps the same files.
_IN_MEMORY, _ENOUGH_BYTES = Path("/dev/shm"), 4 << 30


def _folders_in_memory() -> bool:
    """Whether files can be made in memory, enough of them, and programs started from there."""
    return (
        os.access(_IN_MEMORY, os.W_OK)
        and shutil.disk_usage(_IN_MEMORY).free >= _ENOUGH_BYTES
        and not os.statvfs(_IN_MEMORY).f_flag & os.ST_NOEXEC
    )


if "TMPDIR" not in os.environ and _folders_in_memory():
    os.environ["TMPDIR"] = str(_IN_MEMORY)
    tempfile.tempdir = None  # pytest has asked before this file was read

# Where the real data sets lie beside the checkout their tests run; without them these tests are skipped and say so.
_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
if _DATA.is_dir():
    os.environ.setdefault("COLLEGIUM_DATA", str(_DATA))

WORKERS = 4
"""Processes for the whole suite: twice the cores it must do with, for many tests wait for processes."""


SLOW_FOLDERS = [Path(__file__).parent / folder for folder in ("integration", "unit/experiments")]
PROCESSES_S = 600
"""A test of integration, with the real processes that it starts, has this long on a busy machine."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where no slow test is wanted, the modules of slow folders are not even imported."""
    return True if config.option.markexpr.startswith("not slow") and collection_path in SLOW_FOLDERS else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Modules and five thousand tests stay to the end: nobody looks for garbage among them, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """A command that a test runs in this process logs to that test's streams, which are closed when it ends."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        return (yield)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = tuple(f"{folder}{os.sep}" for folder in SLOW_FOLDERS)
    for item in items:
        path = str(item.path)  # `item.path.parents` takes a second for all
        if path.startswith(slow):
            item.add_marker("slow")
        if path.startswith(slow[:1]):
            item.add_marker(pytest.mark.timeout(PROCESSES_S))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """For ``-n auto``. A part of the suite runs in this process, where a debugger works and nothing need be started."""
    named = {Path(argument.partition("::")[0]).resolve() for argument in config.args}
    return WORKERS if named == {config.rootpath / folder for folder in config.getini("testpaths")} else 0
