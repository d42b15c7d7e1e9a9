"""How a run under faults has to end: with every label, or cleanly with some of them. Drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

StopKind = Literal["every label", "budget spent", "policies exhausted", "parties lost"]

DECK: tuple[StopKind, ...] = ("every label", "every label", "budget spent", "policies exhausted", "parties lost")
"""Each sequence of this many runs contains each of these ways to end once."""
_SHARES = (0.2, 0.45)
"""Smallest and largest share; below a half, because two parties that take turns give twice as many labels as one."""


@dataclass(frozen=True)
class StopCondition:
    """How one run has to end.

    Parameters
    ----------
    kind : what ends the run.
    share : about which share of the possible labels the run gives before it ends. It decides how many labels the
        budget pays for, how many queries the policies of ``parties`` allow, or when these parties are killed for good.
    parties : so many parties that no round reaches its quorum without them.
    """

    kind: StopKind
    share: float
    parties: tuple[str, ...]


def stop_conditions(seed: int, names: Sequence[str], needed: int) -> Iterator[StopCondition]:
    """The stop conditions of one run after the other, without end; a round needs ``needed`` parties."""
    draw = random.Random(seed)
    while True:
        for kind in draw.sample(DECK, len(DECK)):
            share, parties = draw.uniform(*_SHARES), draw.sample(names, len(names) - needed + 1)
            yield StopCondition(kind, share, tuple(sorted(parties)))
