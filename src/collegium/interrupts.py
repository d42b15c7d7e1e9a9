"""How a command that works for long is stopped: Ctrl-C, SIGTERM and a terminal that closes all end it in the same way.

A shell that starts a command in the background of a script has it ignore SIGINT, and Python then installs no handler.
Commands therefore install their own.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType

from collegium_accounting.errors import INTERRUPTED as INTERRUPTED

BUSY_THREAD = "party"
"""The thread on which a party answers; a process that is told to stop does not wait for its fit to end."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stoppable(on_stop: Callable[[], None] | None = None) -> Iterator[None]:
    """Within this context the first of `STOP_SIGNALS` asks the command to stop, and the second ends it at once.

    SIGINT and SIGTERM are handled even where the process was started with them ignored. SIGHUP stays ignored where it
    was ignored at the start: that is what ``nohup`` asks for. Afterwards the former handlers are in place again. In
    a thread other than the main thread, where Python handles no signals, nothing is installed.

    Parameters
    ----------
    on_stop : called at the first signal, in a thread of its own, as what the signal interrupts may hold a lock that
        it needs; by default KeyboardInterrupt is raised on the main thread.
    """
    asked, stopping = False, SimpleQueue[bool]()  # a handler may put into such a queue whatever it interrupts

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"Interrupted again: ended at once.\n")
            os._exit(INTERRUPTED)
        asked = True
        if on_stop is None:
            raise KeyboardInterrupt
        stopping.put(True)

    def tell() -> None:
        if stopping.get() and on_stop is not None:
            on_stop()

    with handlers_kept():
        if threading.current_thread() is threading.main_thread():
            if on_stop is not None:
                threading.Thread(target=tell, daemon=True).start()
            for number in STOP_SIGNALS:
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, stop)
        try:
            yield
        except RuntimeError as error:
            # A wait that the signal meets between the release of its lock and its `try` releases the lock once more.
            if asked and isinstance(error.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            raise
        finally:
            stopping.put(False)


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Afterwards the handlers of `STOP_SIGNALS` are as before, whatever a library installs within this context."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
