"""Groups of parties that are summed by themselves, so that one institution spoils the sum of its group alone.

Who is in which group follows from the roster, names and keys: both sides compute it, and nobody chooses it alone. A
record is in one group, so several sums cost it what one costs. Each group's noise must protect by itself: all parties
that collude may sit in one group, so every group's graph bears as many of them as that of all parties together. A group
therefore has at least two parties more than may collude, and at least `SMALLEST_SUM`.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from collegium.protocol.secure_sum.errors import InsufficientPlan
from collegium.protocol.secure_sum.plan import SMALLEST_SUM, GraphPlan, plan_graph

FEWEST_GROUPS = 3
"""Of fewer, no two could say which one is spoilt."""


class Group(NamedTuple):
    """The Ed25519 public keys of a group's parties, by name, and the graph of its sum."""

    roster: Mapping[str, bytes]
    plan: GraphPlan


def groups_of(roster: Mapping[str, bytes], groups: int) -> tuple[dict[str, bytes], ...]:
    """The parties of each group: they are dealt in the order of a hash of the roster and their name.

    Parameters
    ----------
    roster : Ed25519 public key of every party, by name.
    groups : 1 for all parties together.

    Raises
    ------
    InsufficientPlan
        If a group would have fewer than `SMALLEST_SUM` parties.
    """
    if groups == 1:
        return (dict(roster),)
    if not FEWEST_GROUPS <= groups <= len(roster) // SMALLEST_SUM:
        raise InsufficientPlan(f"{len(roster)} parties cannot be summed in {groups} groups")
    everyone = hashlib.sha256(b"collegium/v1/groups" + repr(sorted(roster.items())).encode())

    def place(name: str) -> bytes:
        own = everyone.copy()
        own.update(name.encode())
        return own.digest()

    drawn = sorted(roster, key=place)
    return tuple({name: roster[name] for name in sorted(drawn[number::groups])} for number in range(groups))


def group_of(roster: Mapping[str, bytes], groups: int, name: str, left_out: int = 0) -> dict[str, bytes]:
    """The parties with which this one is summed: those of its group, or of all groups but the one that is left out.

    Nobody where this party's own group is left out; see `groups_of`.
    """
    divided = groups_of(roster, groups)
    if left_out:
        divided = (_all_but(divided, left_out),)
    return next((group for group in divided if name in group), {})


def _all_but(divided: tuple[dict[str, bytes], ...], left_out: int) -> dict[str, bytes]:
    return {name: key for number, group in enumerate(divided, 1) if number != left_out for name, key in group.items()}


def plan_groups(
    roster: Mapping[str, bytes], groups: int, dropout: float, collusion: float, quorum: float
) -> tuple[Group, ...]:
    """The groups with their graphs; see `plan_graph` for the fractions, which are of all parties.

    Raises ConfigurationError where a group is too small for as many colluders as all parties together may have.
    """
    return _planned(groups_of(roster, groups), len(roster), dropout, collusion, quorum)


def plan_without(
    roster: Mapping[str, bytes], groups: int, dropout: float, collusion: float, quorum: float
) -> tuple[Group, ...]:
    """All parties but those of each group in turn, with their graphs; see `plan_groups`."""
    divided = groups_of(roster, groups)
    rest = [_all_but(divided, number) for number in range(1, 1 + groups)]
    return _planned(rest, len(roster), dropout, collusion, quorum)


def _planned(
    summed: Sequence[dict[str, bytes]], parties: int, dropout: float, collusion: float, quorum: float
) -> tuple[Group, ...]:
    """The graphs of sums of these, each of which bears as many colluders as all ``parties`` may have."""
    colluding = max(1, math.ceil(collusion * parties - 1e-9))
    return tuple(
        Group(members, plan_graph(len(members), dropout, min(colluding / len(members), 0.999), quorum=quorum))
        for members in summed
    )
