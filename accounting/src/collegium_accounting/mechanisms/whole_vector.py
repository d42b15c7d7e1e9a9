"""Mechanisms that release one noisy vector about all records as it is: no label follows from a step of theirs."""

from typing import ClassVar

from collegium_accounting.mechanisms.base import Mechanism, SumMode
from collegium_accounting.units import Adjacency, Unit


class VectorMechanism(Mechanism):
    """A mechanism of one step, whose whole vector is released and charged. Each party sends one vector."""

    adjacencies: ClassVar[tuple[Adjacency, ...]] = (Adjacency.ADD_REMOVE, Adjacency.REPLACE)
    sum_modes: ClassVar[tuple[SumMode, ...]] = (SumMode.CLEAR, SumMode.MASKED_AND_NOISED)
    no_votes_because: ClassVar[str] = "what is released is one noisy vector and no votes: account without votes"

    def party_unit(self, teachers: int, adjacency: Adjacency | None = None) -> Unit:
        """A party moves the sum by as much as a record does, where each sends one vector."""
        return self.unit(1, adjacency)
