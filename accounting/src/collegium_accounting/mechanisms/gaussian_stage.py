"""Steps whose noise is Gaussian: their cost follows from how far one neighbour moves the numbers under the noise.

The coordinator adds it, or the parties themselves (`masked+noised`). Then the sum that it opens is noisy already. It
sees the whole noisy histogram, so the whole vector is charged: neither the game of winners nor any data-dependent
bound applies, and a threshold test costs as much as an answer. Each such mechanism stands in the file of the one that
it is made from, and is derived from it: the same parameters, and `HonestSurvivors`.
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Self

from collegium_accounting.divergences.independent import sampled_gaussian_curve
from collegium_accounting.game.laws import Law, discrete_vector
from collegium_accounting.limits import MAX_PARTIES
from collegium_accounting.mechanisms.base import ABSTAIN, NEXT_STAGE, Mechanism, Noise, Stage, SumMode
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.noise.distributed import NoiseShare
from collegium_accounting.renyi import RenyiCurve
from collegium_accounting.units import IntArray, Unit, winners


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


HonestSurvivors = Annotated[
    int, Parameter("honest parties whose noise is in any sum that is opened", at_most=MAX_PARTIES)
]

SOURCE = "Kairouz, Liu, Steinke 2021, section 4: sums of discrete Gaussians; docs/privacy.md"


@dataclass(frozen=True)
class NoisedByParties(Mechanism):
    """A mechanism for sums that the parties noised: every stage is a sum of its own.

    Derive from it and, behind it, from the mechanism whose noise is shared; all of whose steps are Gaussian.
    """

    sum_modes: ClassVar[tuple[SumMode, ...]] = (SumMode.MASKED_AND_NOISED,)
    sum_per_stage: ClassVar[bool] = True
    no_audit_because: ClassVar[str] = "the parties add its noise to the counts, and the mechanism itself adds none"
    no_votes_because: ClassVar[str] = (
        "under masked+noised the coordinator sees the noisy counts of every class, to which no data-dependent "
        "analysis applies: account with --queries"
    )

    honest_survivors: HonestSurvivors = field(kw_only=True)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(self._noised(stage) for stage in super().stages)  # type: ignore[safe-super]

    def _noised(self, stage: Stage) -> "NoisedRelease":
        """The step on a sum that carries its noise already."""
        assert isinstance(stage, GaussianStage)
        share = NoiseShare(stage.sigma * stage.parts_of_a_vote, self.honest_survivors)
        return NoisedRelease(f"noised {stage.name}", share, stage)

    @classmethod
    def plans(cls, noise_votes: float, teachers: int) -> Iterable[Self]:
        return ()


@dataclass(frozen=True)
class NoisedRelease(Stage):
    """One sum with the parties' noise in every entry, and the argmax that is read off it.

    Parameters
    ----------
    noise : the share that each party adds.
    plain : the step that would release the whole vector if the coordinator added the noise: it says how far a unit
        moves the vector.
    """

    name: str
    noise: NoiseShare
    plain: GaussianStage

    @property
    def noise_votes(self) -> float:
        return self.plain.noise_votes

    @property
    def share(self) -> NoiseShare:
        return self.noise

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        moved = self.plain.moved(unit) * self.plain.parts_of_a_vote
        return self.noise.curve(orders, l2_squared=moved * moved, changed_entries=self.plain.entries(unit))

    def law(self, unit: Unit, classes: int | None = None) -> Law:
        return self.noise.law(self.plain.moved(unit) * self.plain.parts_of_a_vote, self.plain.entries(unit))

    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        return winners(counts)


@dataclass(frozen=True)
class NoisedThreshold(NoisedRelease):
    """One sum with the parties' noise: does its largest entry reach T? If not, abstain."""

    threshold: float

    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        passed = counts.max(axis=1) >= self.threshold
        outcome = winners(counts)
        outcome[passed], outcome[~passed] = NEXT_STAGE, ABSTAIN
        return outcome
