"""Steps whose noise is Gaussian: their cost follows from how far one neighbour moves the numbers under the noise."""

from abc import abstractmethod
from dataclasses import dataclass, field

from collegium.privacy.accounting.game.laws import Law, discrete_vector
from collegium.privacy.accounting.independent import sampled_gaussian_curve
from collegium.privacy.mechanisms.base import Stage
from collegium.privacy.renyi import RenyiCurve
from collegium.privacy.units import Unit


@dataclass(frozen=True)
class GaussianStage(Stage):
    """A step that adds N(0, σ²) to numbers, perhaps of a Poisson sample of the records.

    Parameters
    ----------
    name : what the ledger calls the step.
    sigma : standard deviation of the noise, in votes.
    sampling_rate : probability with which each record takes part. It amplifies for a unit of one vote; several votes
        are charged as if all records took part.
    """

    name: str
    sigma: float
    sampling_rate: float = field(default=1.0, kw_only=True)

    @abstractmethod
    def moved(self, unit: Unit) -> float:
        """By how much the unit can move the numbers in L2; UnsupportedAccounting for a unit that is not covered."""

    @abstractmethod
    def entries(self, unit: Unit) -> int:
        """How many of the numbers the unit can change, at most."""

    @property
    def parts_of_a_vote(self) -> float:
        """The numbers under the noise are whole multiples of one vote divided by this."""
        return 1

    @property
    def noise_votes(self) -> float:
        return self.sigma

    def law(self, unit: Unit, classes: int | None = None) -> Law:
        """The whole noisy vector, by its exact (ε, δ) where all records take part."""
        if self.rate(unit) < 1.0:
            return super().law(unit, classes)
        moved, parts = self.moved(unit), self.parts_of_a_vote
        return discrete_vector(moved * parts, self.sigma * parts, self.entries(unit))

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return sampled_gaussian_curve(self.moved(unit), self.sigma, self.rate(unit), orders)

    def rate(self, unit: Unit) -> float:
        """The sampling rate that counts for the unit."""
        return self.sampling_rate if unit.votes == 1 else 1.0
