"""Ports for processes that must be told theirs before they listen."""

from __future__ import annotations

import itertools
import random
import socket

FIRST, END = 15_000, 32_000
"""Below the ports that systems hand out by themselves, so that no connection takes one before it is listened on."""

_start = random.SystemRandom().randrange(FIRST, END)
# Tests run in several processes at a time: each starts anywhere and gives no port twice.
_numbers = itertools.chain(range(_start, END), range(FIRST, _start))


def free_ports(number: int) -> list[int]:
    """Ports of this machine on which nobody listens."""
    return list(itertools.islice(filter(_is_free, _numbers), number))


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("localhost", port)).close()
    except OSError:
        return False
    return True
