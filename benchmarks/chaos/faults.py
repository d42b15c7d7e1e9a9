"""Which fault comes when: drawn from a seed, and tied to how the run goes on rather than to the clock."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "kill party",
    "kill coordinator",
    "stall party",
    "stall party past the deadline",
    "stall coordinator",
    "cut, closed",
    "cut, reset",
    "cut, black hole",
    "cut, refused",
    "older ledger",
    "older ledger and run.json",
    "edited run.json",
    "edited settings",
]

EDITS: tuple[Kind, ...] = ("older ledger", "older ledger and run.json", "edited run.json", "edited settings")
"""An operator kills the coordinator, changes its files and starts it again: it must stop with one line that says so."""

MIX: dict[Kind, int] = {
    "stall party": 14,
    "stall party past the deadline": 6,
    "stall coordinator": 14,
    "cut, closed": 18,
    "cut, reset": 18,
    "cut, black hole": 10,
    "cut, refused": 10,
    "kill party": 5,
    "kill coordinator": 5,
    **dict.fromkeys(EDITS, 3),
}
"""Weights. A process takes seconds of processor time to start again, so kills are the rare ones."""

LiveSnapshot = Literal["votes", "labels", "connected"]
MOMENTS: tuple[LiveSnapshot, ...] = ("votes", "labels", "connected")
"""All parties have answered the first request of a round, which its secure sum then opens; the labels of a round are
in the ledger; a party has connected."""

LATEST_S = 0.1
"""Latest after its moment that a fault comes: a few phases of a round."""
_SHORT_S, _HOLE_S = 0.5, 3.0
_TOGETHER = 0.15
"""Share of faults that come on top of the one before."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    Parameters
    ----------
    party : whom it hits; None for the coordinator.
    moment, delay_s : it comes so long after the next such moment.
    lasts_s : until a stall or a cut is over; 0 where it is over at once.
    together : it does not wait until the fault before is over.
    """

    kind: Kind
    party: str | None
    moment: LiveSnapshot
    delay_s: float
    lasts_s: float
    together: bool


def faults(seed: int, parties: Sequence[str], deadline_s: float, mix: dict[Kind, int] = MIX) -> Iterator[Fault]:
    """Faults without end; the same ones for the same arguments."""
    draw = random.Random(seed)
    while True:
        (kind,) = draw.choices(list(mix), weights=list(mix.values()))
        party = None if kind.endswith("coordinator") or kind in EDITS else draw.choice(parties)
        lasts_s = {
            "stall party": draw.uniform(0.05, _SHORT_S),
            "stall coordinator": draw.uniform(0.05, _SHORT_S),
            "stall party past the deadline": deadline_s + draw.uniform(0.1, _SHORT_S),
            "cut, black hole": draw.uniform(0.05, _HOLE_S),
            "cut, refused": draw.uniform(0.05, _HOLE_S),
        }.get(kind, 0.0)
        (moment,) = draw.choices(MOMENTS, weights=(5, 3, 2))
        yield Fault(kind, party, moment, draw.uniform(0.0, LATEST_S), lasts_s, draw.random() < _TOGETHER)
