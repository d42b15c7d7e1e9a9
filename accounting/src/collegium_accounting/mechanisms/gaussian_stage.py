"""Steps whose noise is Gaussian: their cost follows from how far one neighbour moves the numbers under the noise.

The coordinator adds it, or the parties themselves (`masked+noised`; Kairouz, Liu, Steinke 2021, section 4, and
docs/privacy.md). Then the sum that the coordinator opens is noisy already. It sees the whole noisy vector, so the whole
vector is charged: neither the game of winners nor any data-dependent bound applies, and a threshold test costs as much
as an answer.
"""

from abc import abstractmethod
from dataclasses import dataclass, field

from collegium_accounting.divergences.independent import sampled_gaussian_curve
from collegium_accounting.game.laws import Law, discrete_vector
from collegium_accounting.game.winner import RoundLaw, winner_is_searched
from collegium_accounting.mechanisms.base import Noise, Stage
from collegium_accounting.mechanisms.labels import LabelRule, LabelStage, Seen
from collegium_accounting.noise.distributed import NoiseShare
from collegium_accounting.renyi import RenyiCurve
from collegium_accounting.units import Adjacency, IntArray, Unit, checked_counts


@dataclass(frozen=True)
class GaussianStage(Stage):
    """A step that adds N(0, σ²) to numbers, perhaps of a Poisson sample of the records.

    Parameters
    ----------
    sigma : standard deviation of the noise, in votes.
    sampling_rate : probability with which each record takes part. It amplifies for a unit of one vote; several votes
        are charged as if all records took part.
    """

    sigma: float
    sampling_rate: float = field(default=1.0, kw_only=True)

    @abstractmethod
    def moved(self, unit: Unit) -> float:
        """By how much the unit can move what is `seen`, in L2; UnsupportedAccounting where it is not covered."""

    @abstractmethod
    def entries(self, unit: Unit) -> int:
        """How many of the numbers that are `seen` the unit can change, at most."""

    @property
    def seen(self) -> Seen:
        """What is seen of the noisy numbers."""
        return Seen.VECTOR

    @property
    def parts_of_a_vote(self) -> float:
        """The numbers under the noise are whole multiples of one vote divided by this."""
        return 1

    @property
    def noise_votes(self) -> float:
        return self.sigma

    @property
    def noise_on_entries(self) -> float:
        return self.sigma * self.parts_of_a_vote

    @property
    def share(self) -> NoiseShare | None:
        return self.added.share(self.noise_on_entries)

    def law(self, unit: Unit, classes: int | None = None) -> Law:
        """The whole noisy vector, by its exact (ε, δ) where all records take part."""
        moved, parts, share = self.moved(unit), self.parts_of_a_vote, self.share
        if share is not None:
            return share.law(moved * parts, self.entries(unit))
        if self.rate(unit) < 1.0:
            return super().law(unit, classes)
        return discrete_vector(moved * parts, self.noise_on_entries, self.entries(unit))

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        share = self.share
        if share is None:
            return sampled_gaussian_curve(self.moved(unit), self.sigma, self.rate(unit), orders)
        moved = self.moved(unit) * self.parts_of_a_vote
        return share.curve(orders, l2_squared=moved * moved, changed_entries=self.entries(unit))

    def rate(self, unit: Unit) -> float:
        """The sampling rate that counts for the unit."""
        return self.sampling_rate if unit.votes == 1 else 1.0


@dataclass(frozen=True)
class GaussianLabels(GaussianStage, LabelStage):
    """A step with Gaussian noise from which labels follow by a rule.

    Parameters
    ----------
    rule : reads the noisy numbers.
    """

    rule: LabelRule

    @property
    def seen(self) -> Seen:
        return Seen.VECTOR if self.added.parties else self.rule.seen

    def one_vote(self, unit: Unit) -> Adjacency | None:
        """How one vote moves the count that is tested, or the counts of which the largest wins; None for no game.

        The count that is tested moves by at most one under both adjacencies.
        """
        return Adjacency.ADD_REMOVE if self.seen is Seen.BIT else unit.adjacency

    def law(self, unit: Unit, classes: int | None = None) -> Law:
        """What is seen alone, for one vote; several votes move several counts at once, which no game covers."""
        self.moved(unit)  # raises for a unit that is not covered
        if self.seen is not Seen.VECTOR and unit.votes == 1 and (adjacency := self.one_vote(unit)) is not None:
            known = classes if self.seen is Seen.WINNER else None
            if winner_is_searched("discrete-gaussian", self.sigma, adjacency, known):
                return RoundLaw("discrete-gaussian", self.sigma, adjacency, known, self.sampling_rate)
        return super().law(unit, classes)

    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        if self.added.parties:
            return self.rule.read(counts)
        numbers = self.rule.compared(checked_counts(counts))
        return self.rule.read(numbers + noise.gaussian(self.noise_on_entries, numbers.shape))
