"""An asyncio loop on a thread of its own, for callers that know nothing of asyncio."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

Result = TypeVar("Result")

_NAMES_OF_GRPC = ("rpc_task", "HandleExceptions[")
"""How the names of the tasks begin in which gRPC's server runs a call."""
_GRPC_ENDS_S = 5.0


class LoopThread:
    """Runs coroutines between `start` and `close`. Outside these there is neither a loop nor a thread to clean up.

    Parameters
    ----------
    name : str
        The thread's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None

    def start(self) -> None:
        """Start the thread."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name=self._name, daemon=True)
        thread.start()
        self._running = loop, thread

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Have the loop call ``function`` soon. RuntimeError if it is not running."""
        self._loop().call_soon_threadsafe(function, *arguments)

    def call_if_running(self, function: Callable[..., object], *arguments: object) -> None:
        """Have the loop call ``function`` soon; nothing if it has ended, as nothing waits there then."""
        with suppress(RuntimeError):
            self.call(function, *arguments)

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin ``work`` and return its future. RuntimeError if the loop is not running."""
        return asyncio.run_coroutine_threadsafe(work, self._loop())

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do ``work`` and return what it returns."""
        return self.submit(work).result()

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Do ``last``, cancel all other work and end the thread; nothing if it is not running."""
        if self._running is None:
            return
        loop, thread = self._running
        if last is not None:
            self.run(last())
        self.run(cancel_the_rest())
        self._running = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _loop(self) -> asyncio.AbstractEventLoop:
        if self._running is None:
            raise RuntimeError(f"the thread {self._name!r} is not running")
        return self._running[0]


class SharedLoop:
    """One `LoopThread` for all that use it at the same time: the first starts it, the last closes it."""

    def __init__(self, name: str) -> None:
        self._thread, self._lock, self._users = LoopThread(name), threading.Lock(), 0

    @contextmanager
    def used(self) -> Iterator[LoopThread]:
        """The loop, running until this block ends."""
        with self._lock:
            if not self._users:
                self._thread.start()
            self._users += 1
        try:
            yield self._thread
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._thread.close()


async def cancel_the_rest() -> None:
    """Cancel everything but gRPC's tasks, which end by themselves after their server: cancelled, they print errors."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    of_grpc = {work for work in rest if work.get_name().startswith(_NAMES_OF_GRPC)}
    for work in rest - of_grpc:
        work.cancel()
    await asyncio.gather(*rest - of_grpc, return_exceptions=True)
    if of_grpc:
        await asyncio.wait(of_grpc, timeout=_GRPC_ENDS_S)
