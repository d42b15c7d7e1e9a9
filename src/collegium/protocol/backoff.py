"""How long a party or student waits before it connects to the coordinator again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Waiting times between attempts. They double, with random jitter, so that not all callers come back together."""

    first_s: float = 0.5
    longest_s: float = 30.0

    def delay_s(self, failures: int, uniform: Callable[[float, float], float]) -> float:
        """Seconds to wait before the next attempt, after ``failures`` failed attempts in a row (at least 1)."""
        ceiling: float = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 32))
        return uniform(ceiling / 2, ceiling)
