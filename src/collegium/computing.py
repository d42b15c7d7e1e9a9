"""How far a thread is with the records that it computes, for whoever waits for what comes of them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_here = threading.local()


@contextmanager
def telling(tell: Callable[[int], None]) -> Iterator[None]:
    """Within, ``tell`` is called with the number of records whenever this thread has computed some."""
    _here.tell = tell
    try:
        yield
    finally:
        del _here.tell


def computed(records: int) -> None:
    """Tell that so many records more are computed."""
    if (tell := getattr(_here, "tell", None)) is not None:
        tell(records)
