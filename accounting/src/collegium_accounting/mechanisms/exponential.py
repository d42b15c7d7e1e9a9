"""The exponential mechanism on vote counts: argmax of counts + Gumbel noise, Pr[i] ∝ e^{γ·n_i}."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from collegium_accounting.divergences.grids import NoiseLaw
from collegium_accounting.divergences.independent import published_range_curve
from collegium_accounting.game.laws import Law
from collegium_accounting.game.winner import RoundLaw, winner_is_searched
from collegium_accounting.mechanisms.base import Noise
from collegium_accounting.mechanisms.labels import LabelStage
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.mechanisms.votes import VoteMechanism
from collegium_accounting.renyi import RenyiCurve
from collegium_accounting.units import IntArray, Unit, checked_counts


@register
@dataclass(frozen=True)
class Exponential(VoteMechanism):
    """Argmax of the counts + Gumbel noise of scale 1/γ votes.

    As private as LNMax at the same γ, (2γ, 0)-DP when one vote moves, with less noise; its privacy loss
    has the bounded range 2γ, so it costs about a quarter of Theorem 2. Ties do not happen: the classes
    are drawn from their exact probabilities.

    Examples
    --------
    >>> Exponential(gamma=1).release([[180, 40, 30], [20, 10, 220]])  # a row for each query
    array([0, 2])
    """

    name: ClassVar[str] = "exponential"
    source: ClassVar[str] = "McSherry and Talwar 2007; bounded range: Durfee and Rogers 2019, Dong et al. 2020"

    gamma: Annotated[float, Parameter("inverse scale of the noise on each count", "per vote")]

    @property
    def stages(self) -> tuple[LabelStage, ...]:
        return (GumbelRelease("release", self.gamma),)

    def noise_law(self, discrete: bool) -> NoiseLaw:
        """The same for papers and releases; the law of the winner is a soft-max, in closed form."""
        return NoiseLaw("gumbel", 1.0 / self.gamma)

    @classmethod
    def plans(cls, noise_votes: float, teachers: int) -> Iterable[Self]:
        return (cls(gamma=float(f"{1.0 / noise_votes:.3g}")),)


@dataclass(frozen=True)
class GumbelRelease(LabelStage):
    """Release a class drawn with probability ∝ e^{γ·count}."""

    gamma: float

    @property
    def noise_votes(self) -> float:
        return 1.0 / self.gamma

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return published_range_curve(self.gamma, orders, unit)

    def law(self, unit: Unit, classes: int | None = None) -> Law:
        if unit.votes == 1 and winner_is_searched("gumbel", 1.0 / self.gamma, unit.adjacency, None):
            return RoundLaw("gumbel", 1.0 / self.gamma, unit.adjacency)
        return super().law(unit, classes)

    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        return noise.gumbel_argmax(checked_counts(counts), 1.0 / self.gamma)
