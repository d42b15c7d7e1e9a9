"""How a run tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a step is.

    ``pretraining``, ``interim student`` (before queries are chosen), ``describe``, ``hold_pool``, ``fit``, ``votes``,
    ``labels``, ``student``, ``baseline``, ``report``.
    """

    step: str
    done: int
    total: int


Tell = Callable[[str, int, int], None]
"""Called with (step, done, total)."""
