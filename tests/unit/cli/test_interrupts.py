"""How a command ends that is interrupted, however it was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection

import pytest
from support.copied import POSSIBLE, Copied
from support.processes import read_until, signals_ignored, start
from support.waiting import PATIENCE_S

from collegium.errors import StorageError
from collegium.interrupts import stoppable

WAITING = """
import sys, threading
from collegium import cli
from collegium.interrupts import stoppable

def command(**_):
    try:
        print("begun", flush=True)
        threading.Event().wait()
    finally:
        print("tidying up", flush=True)
        if "stubborn" in sys.argv:
            threading.Event().wait()

cli.app = command
cli.main()
"""

TOLD = """
import threading
from collegium.errors import StorageError
from collegium.interrupts import stoppable

told = threading.Event()
with stoppable(told.set):
    print("begun", flush=True)
    told.wait()
print("told", flush=True)
"""


def begun(program: str, *arguments: str, ignoring: Collection[signal.Signals] = ()) -> subprocess.Popen[str]:
    """A process that runs ``program`` and was started with these signals ignored."""
    process = start("-c", program, *arguments, ignoring=ignoring)
    read_until(process.stdout, "begun")
    return process


@pytest.mark.slow
@pytest.mark.parametrize("ignoring", [(), (signal.SIGINT,), (signal.SIGINT, signal.SIGTERM)])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_way_to_stop_a_command_ends_it_with_one_line(
    number: signal.Signals, ignoring: Collection[signal.Signals]
) -> None:
    process = begun(WAITING, ignoring=ignoring)
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (130, "tidying up\n")
    assert err == "Interrupted. Nothing is lost: run the same command again, and it goes on.\n"


BETWEEN_TWO_LINES_OF_A_WAIT = """
import os, signal, sys, threading
from collegium import cli

def command(**_):
    with (lock := threading.Lock()):
        lock.release()
        if "own error" in sys.argv:
            raise RuntimeError("of the command's own")
        os.kill(os.getpid(), signal.SIGTERM)

cli.app = command
cli.main()
"""


def test_a_signal_that_a_wait_meets_without_its_lock_ends_the_command_as_any_other() -> None:
    """`threading.Condition.wait` gives its lock back some lines before it sees to taking it again."""
    out, err = (process := start("-c", BETWEEN_TWO_LINES_OF_A_WAIT)).communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (130, "")
    assert err == "Interrupted. Nothing is lost: run the same command again, and it goes on.\n"


def test_an_error_of_the_command_is_not_taken_for_an_interrupt() -> None:
    _, err = (process := start("-c", BETWEEN_TWO_LINES_OF_A_WAIT, "own error")).communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and "of the command's own" in err


def test_a_second_interrupt_ends_a_command_that_does_not_come_to_its_end() -> None:
    process = begun(WAITING, "stubborn")
    process.send_signal(signal.SIGINT)
    assert read_until(process.stdout, "tidying up") == "tidying up\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (130, "Interrupted again: ended at once.\n")


def test_a_command_that_asked_to_be_told_is_told() -> None:
    process = begun(TOLD, ignoring=[signal.SIGINT])
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (0, "told\n", "")


HOLDING = """
import os, signal, threading
from collegium.interrupts import stoppable

told, lock = threading.Event(), threading.Lock()

def tell():
    with lock:
        told.set()

with stoppable(tell):
    print("begun", flush=True)
    with lock:
        os.kill(os.getpid(), signal.SIGTERM)
    told.wait()
print("told", flush=True)
"""


def test_a_command_is_told_although_the_signal_comes_while_it_holds_a_lock() -> None:
    """Told on the main thread, it waited for itself: a party that had just begun to wait could not be stopped."""
    out, err = begun(HOLDING).communicate(timeout=PATIENCE_S)
    assert (out, err) == ("told\n", "")


def test_under_nohup_a_closed_terminal_stops_nothing() -> None:
    process = begun(TOLD, ignoring=[signal.SIGHUP])
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=PATIENCE_S)[0] == "told\n"
    assert process.returncode == 0  # the first of two heeded signals: the second would have ended it with 130


def test_former_handlers_are_in_place_again_afterwards() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with stoppable():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_outside_the_main_thread_nothing_is_installed() -> None:
    before, within = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        with stoppable():
            within.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert within == [before]


BUSY = """
import atexit, sys, threading, time
from collegium import cli
from collegium.interrupts import BUSY_THREAD

atexit.register(print, "the interpreter ended under the thread")
threading.Thread(target=time.sleep, args=(60,), name=BUSY_THREAD, daemon=True).start()
sys.argv = ["collegium", "ledger", "verify", "nowhere"]
cli.main()
"""


@pytest.mark.slow
def test_a_party_that_ends_while_it_fits_ends_with_its_own_line_and_status() -> None:
    """Torch aborts a process whose interpreter ends while a thread trains: the exit status would be that of a crash."""
    ended = subprocess.run([sys.executable, "-c", BUSY], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == StorageError.exit_status and ended.stdout == ""
    assert ended.stderr.startswith("StorageError: ") and len(ended.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.skipif(not POSSIBLE, reason="no process is copied here")
def test_a_copy_of_a_process_that_is_interrupted_ends_as_the_interpreter_does() -> None:
    """Planted once: a copy ended with 1, as after any other exception that nobody catches."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    for kind in (Copied, subprocess.Popen):
        with signals_ignored([]):  # whoever started the tests may ignore it
            process = kind([sys.executable, "-m", "json.tool"], env=dict(os.environ), text=True, **pipes)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == -signal.SIGINT
