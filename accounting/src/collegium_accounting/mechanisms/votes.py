"""Mechanisms for the votes of teachers, each with one vote on a query: what may be computed from their histograms."""

from collections.abc import Iterable
from typing import Self

from collegium_accounting.divergences.exact import exact_divergences
from collegium_accounting.mechanisms.labels import LabelMechanism
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import Adjacency, IntArray, Unit


class VoteMechanism(LabelMechanism):
    """A mechanism for histograms of votes: a unit moves as many votes as it has voters."""

    def party_unit(self, teachers: int, adjacency: Adjacency | None = None) -> Unit:
        return self.unit(teachers, adjacency)

    def exact_loss(
        self, counts: IntArray, orders: tuple[float, ...], adjacency: Adjacency, discrete: bool
    ) -> FloatArray | None:
        """Exact Rényi loss of each query over all neighbours, both directions, shape ``[queries, orders]``, or None.

        The neighbours are those of the vote histograms ``counts``, shape ``[queries, classes]``, under ``adjacency``.
        The votes decide the loss, so it is secret. ``discrete`` for the noise of a release, else the continuous noise
        of the papers.
        """
        noise = self.noise_law(discrete)
        if noise is None:
            return None
        return exact_divergences(counts, noise, orders, adjacency=adjacency, screen=self.screen_law(discrete))

    def paper_bound(self, counts: IntArray, orders: tuple[float, ...], unit: Unit) -> FloatArray | None:
        """The published data-dependent bound for ``unit``, one direction only, shape ``[queries, orders]``, or None.

        ``counts`` are vote histograms, shape ``[queries, classes]``.
        """
        return None

    @classmethod
    def plans(cls, noise_votes: float, teachers: int) -> Iterable[Self]:
        """Which settings to try with noise of about ``noise_votes`` votes and so many ``teachers``; none by default."""
        return ()
