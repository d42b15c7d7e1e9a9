"""GNMax: the class whose count + Gaussian noise is largest."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

from collegium_accounting.divergences.grids import NoiseLaw
from collegium_accounting.divergences.independent import l1_moved, l2_moved
from collegium_accounting.mechanisms.base import SumMode
from collegium_accounting.mechanisms.gaussian_stage import GaussianLabels
from collegium_accounting.mechanisms.labels import ArgMax, LabelStage, Seen
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.mechanisms.votes import VoteMechanism
from collegium_accounting.units import Unit


@register
@dataclass(frozen=True)
class GNMax(VoteMechanism):
    """Argmax of the counts + N(0, σ²).

    Examples
    --------
    >>> GNMax(sigma=2).release([[180, 40, 30], [20, 10, 220]])  # a row for each query
    array([0, 2])
    """

    name: ClassVar[str] = "gnmax"
    source: ClassVar[str] = "Papernot et al., ICLR 2018, Proposition 8; the exact accountant, docs/privacy.md"
    sum_modes: ClassVar[tuple[SumMode, ...]] = tuple(SumMode)

    sigma: Annotated[float, Parameter("standard deviation of the Gaussian noise on each count", "votes")]

    @property
    def stages(self) -> tuple[LabelStage, ...]:
        return (GaussianVotes("release", self.sigma, ArgMax()),)

    def noise_law(self, discrete: bool) -> NoiseLaw:
        return NoiseLaw("discrete-gaussian" if discrete else "gaussian", self.sigma)

    @classmethod
    def plans(cls, noise_votes: float, teachers: int) -> Iterable[Self]:
        return (cls(sigma=float(f"{noise_votes:.3g}")),)


@dataclass(frozen=True)
class GaussianVotes(GaussianLabels):
    """Gaussian noise of ``sigma`` votes on a histogram, or on its largest count where that alone is tested."""

    def moved(self, unit: Unit) -> float:
        """The largest count moves by no more votes than the unit has."""
        return float(unit.votes) if self.seen is Seen.BIT else l2_moved(unit)

    def entries(self, unit: Unit) -> int:
        return 1 if self.seen is Seen.BIT else l1_moved(unit)
