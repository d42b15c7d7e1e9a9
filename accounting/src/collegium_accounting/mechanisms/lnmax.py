"""LNMax, the noisy argmax of PATE: the class whose count + Laplace(1/γ) is largest."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from collegium_accounting.divergences.grids import NoiseLaw
from collegium_accounting.divergences.independent import laplace_curve_of_counts, theorem_2
from collegium_accounting.game.laws import Law, RenyiLaw
from collegium_accounting.game.winner import RoundLaw, winner_is_searched
from collegium_accounting.mechanisms.base import Noise
from collegium_accounting.mechanisms.labels import LabelStage
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.mechanisms.votes import VoteMechanism
from collegium_accounting.renyi import WIDE_ORDERS, RenyiCurve
from collegium_accounting.units import IntArray, Unit, checked_counts, winners


@register
@dataclass(frozen=True)
class LNMax(VoteMechanism):
    """Argmax of the counts + Laplace noise of scale 1/γ votes.

    A *small* γ is strong privacy: one label is (2γ, 0)-DP when one vote moves.

    Examples
    --------
    >>> LNMax(gamma=1).release([[180, 40, 30], [20, 10, 220]])  # a row for each query
    array([0, 2])
    """

    name: ClassVar[str] = "lnmax"
    source: ClassVar[str] = "Papernot et al., ICLR 2017, Theorem 2; the exact accountant, docs/privacy.md"

    gamma: Annotated[float, Parameter("inverse scale of the noise on each count", "per vote")]

    @property
    def stages(self) -> tuple[LabelStage, ...]:
        return (LaplaceRelease("release", self.gamma),)

    def noise_law(self, discrete: bool) -> NoiseLaw:
        return NoiseLaw("discrete-laplace" if discrete else "laplace", 1.0 / self.gamma)

    @classmethod
    def plans(cls, noise_votes: float, teachers: int) -> Iterable[Self]:
        return (cls(gamma=float(f"{1.0 / noise_votes:.3g}")),)


@dataclass(frozen=True)
class LaplaceRelease(LabelStage):
    """Release the noisy argmax under Laplace noise of scale 1/γ votes."""

    gamma: float

    @property
    def noise_votes(self) -> float:
        return 1.0 / self.gamma

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        return theorem_2(self.gamma, orders, unit)

    def law(self, unit: Unit, classes: int | None = None) -> Law:
        if unit.votes == 1 and winner_is_searched("discrete-laplace", 1.0 / self.gamma, unit.adjacency, classes):
            return RoundLaw("discrete-laplace", 1.0 / self.gamma, unit.adjacency, classes)
        return RenyiLaw.of(laplace_curve_of_counts(self.gamma, WIDE_ORDERS, unit))

    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        votes = checked_counts(counts)
        return winners(votes + noise.laplace(1.0 / self.gamma, votes.shape))
