"""How long whoever dials the coordinator waits before it dials again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Waiting times between attempts: exponential, with jitter so that callers do not come back at once."""

    first_s: float = 0.5
    longest_s: float = 30.0

    def delay_s(self, failures: int, uniform: Callable[[float, float], float]) -> float:
        """Before the next attempt after ``failures`` in a row (from 1 on)."""
        ceiling: float = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 32))
        return uniform(ceiling / 2, ceiling)
