"""Mechanisms for the votes of teachers, each with one vote on a query."""

from collections.abc import Iterable
from typing import Self

from collegium_accounting.mechanisms.labels import LabelMechanism
from collegium_accounting.units import Adjacency, Unit


class VoteMechanism(LabelMechanism):
    """A mechanism for histograms of votes: a unit moves as many votes as it has voters."""

    def party_unit(self, teachers: int, adjacency: Adjacency | None = None) -> Unit:
        return self.unit(teachers, adjacency)

    @classmethod
    def plans(cls, noise_votes: float, teachers: int) -> Iterable[Self]:
        """Which settings to try with noise of about ``noise_votes`` votes and so many ``teachers``; none by default."""
        return ()
