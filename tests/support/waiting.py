"""Waiting for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 240.0
"""How long a test waits for what must come, on a slow and busy machine; it waits so long only where it fails."""


def comes_true(condition: Callable[[], bool]) -> bool:
    """Whether a condition holds within `PATIENCE_S`; it is looked at again and again, and once at the least."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.02)  # between two looks at the condition
    return True
