"""GNMax: the class whose count + Gaussian noise is largest; and the same where the parties add the noise."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from collegium_accounting.divergences.grids import NoiseLaw
from collegium_accounting.divergences.independent import l1_moved, l2_moved
from collegium_accounting.divergences.papers import theorem_6
from collegium_accounting.game.laws import Law
from collegium_accounting.game.winner import RoundLaw, winner_is_searched
from collegium_accounting.mechanisms.base import Mechanism, Noise, Stage, SumMode
from collegium_accounting.mechanisms.gaussian_stage import SOURCE, GaussianStage, NoisedByParties
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import IntArray, Unit, checked_counts, winners


@register
@dataclass(frozen=True)
class GNMax(Mechanism):
    """Argmax of the counts + N(0, σ²)."""

    name: ClassVar[str] = "gnmax"
    source: ClassVar[str] = "Papernot et al., ICLR 2018, Proposition 8; the exact accountant, docs/privacy.md"
    sum_modes: ClassVar[tuple[SumMode, ...]] = tuple(SumMode)

    sigma: Annotated[float, Parameter("standard deviation of the Gaussian noise on each count", "votes")]

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (GaussianRelease("release", self.sigma),)

    def noise_law(self, discrete: bool) -> NoiseLaw:
        return NoiseLaw("discrete-gaussian" if discrete else "gaussian", self.sigma)

    def paper_bound(self, counts: IntArray, orders: tuple[float, ...], unit: Unit) -> FloatArray:
        """Papernot et al. 2018, Theorem 6."""
        self.check_votes_may_be_analysed()
        return theorem_6(counts, self.sigma, orders, unit)

    def noised_by_parties(self, honest_survivors: int) -> "NoisedGNMax":
        return NoisedGNMax(self.sigma, honest_survivors=honest_survivors)

    @classmethod
    def plans(cls, noise_votes: float, teachers: int) -> Iterable[Self]:
        return (cls(sigma=float(f"{noise_votes:.3g}")),)


@dataclass(frozen=True)
class GaussianRelease(GaussianStage):
    """Release the noisy argmax under Gaussian noise of ``sigma`` votes."""

    def moved(self, unit: Unit) -> float:
        return l2_moved(unit)

    def entries(self, unit: Unit) -> int:
        return l1_moved(unit)

    def law(self, unit: Unit, classes: int | None = None) -> Law:
        """The winner alone for one vote; several votes move several counts at once, which the game does not cover."""
        if unit.votes == 1 and winner_is_searched("discrete-gaussian", self.sigma, unit.adjacency, classes):
            return RoundLaw("discrete-gaussian", self.sigma, unit.adjacency, classes, self.sampling_rate)
        return super().law(unit, classes)

    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        votes = checked_counts(counts)
        return winners(votes + noise.gaussian(self.sigma, votes.shape))


@register
@dataclass(frozen=True)
class NoisedGNMax(NoisedByParties, GNMax):
    """GNMax on a sum that carries Gaussian noise of at least ``sigma`` votes already."""

    name: ClassVar[str] = "noised-gnmax"
    source: ClassVar[str] = SOURCE
