"""What mechanisms have in common whose noise the parties add themselves (`masked+noised`).

The coordinator adds nothing: the sum that it opens is noisy already. It sees the whole noisy histogram, so
the whole vector is charged: neither the game of winners nor any data-dependent bound applies, and a threshold test
costs as much as an answer. Each such mechanism stands in the file of the one that it is made from.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from collegium.limits import MAX_PARTIES
from collegium.privacy.accounting.game.laws import Law
from collegium.privacy.accounting.independent import l1_moved, l2_moved
from collegium.privacy.mechanisms.base import ABSTAIN, NEXT_STAGE, Mechanism, Noise, Stage, SumMode
from collegium.privacy.mechanisms.parameters import Parameter
from collegium.privacy.noise.distributed import NoiseShare
from collegium.privacy.renyi import RenyiCurve
from collegium.privacy.units import Adjacency, IntArray, Unit, winners

HonestSurvivors = Annotated[
    int, Parameter("honest parties whose noise is in any sum that is opened", at_most=MAX_PARTIES)
]

SOURCE = "Kairouz, Liu, Steinke 2021, section 4: sums of discrete Gaussians; docs/privacy.md"


class NoisedByParties(Mechanism):
    """A mechanism for sums that the parties noised: every stage is a sum of its own."""

    sum_modes: ClassVar[tuple[SumMode, ...]] = (SumMode.MASKED_AND_NOISED,)
    sum_per_stage: ClassVar[bool] = True
    no_audit_because: ClassVar[str] = "the parties add its noise to the counts, and the mechanism itself adds none"
    no_votes_because: ClassVar[str] = (
        "under masked+noised the coordinator sees the noisy counts of every class, to which no data-dependent "
        "analysis applies: account with --queries"
    )


@dataclass(frozen=True)
class NoisedRelease(Stage):
    """One sum with the parties' noise in every entry, and the argmax that is read off it.

    ``noise`` is the share that each party adds.
    """

    name: str
    noise: NoiseShare

    @property
    def noise_votes(self) -> float:
        return self.noise.sigma

    @property
    def share(self) -> NoiseShare:
        return self.noise

    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        entries = 2 if unit.adjacency is Adjacency.REPLACE else 1
        return self.noise.curve(orders, l2_squared=float(entries * unit.votes**2), changed_entries=entries * unit.votes)

    def law(self, unit: Unit, classes: int | None = None) -> Law:
        return self.noise.law(l2_moved(unit), l1_moved(unit))

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        return winners(counts)


@dataclass(frozen=True)
class NoisedThreshold(NoisedRelease):
    """One sum with the parties' noise: does its largest entry reach T? If not, abstain."""

    threshold: float

    def run(self, counts: IntArray, noise: Noise, predictions: IntArray | None = None) -> IntArray:
        passed = counts.max(axis=1) >= self.threshold
        outcome = winners(counts)
        outcome[passed], outcome[~passed] = NEXT_STAGE, ABSTAIN
        return outcome
