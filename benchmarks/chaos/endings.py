"""How runs under faults are bound to end: with every label, or cleanly with some of them, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

EndingKind = Literal["every label", "budget spent", "policies exhausted", "parties lost"]

DECK: tuple[EndingKind, ...] = ("every label", "every label", "budget spent", "policies exhausted", "parties lost")
"""Of so many runs in a row each ends in one of these ways."""
_SHARES = (0.2, 0.45)
"""Below a half: as two parties may take turns, a run may get twice as many labels as either of them answers."""


@dataclass(frozen=True)
class Ending:
    """One run's.

    Parameters
    ----------
    share : of the labels that there could be, after about which it ends; what the budget buys, how many queries the
        policies of ``parties`` allow, or when these are killed for good.
    parties : as many as no round can do without.
    """

    kind: EndingKind
    share: float
    parties: tuple[str, ...]


def endings(seed: int, names: Sequence[str], needed: int) -> Iterator[Ending]:
    """Endings for one run after the other, without end; a round needs so many parties."""
    draw = random.Random(seed)
    while True:
        for kind in draw.sample(DECK, len(DECK)):
            yield Ending(kind, draw.uniform(*_SHARES), tuple(sorted(draw.sample(names, len(names) - needed + 1))))
