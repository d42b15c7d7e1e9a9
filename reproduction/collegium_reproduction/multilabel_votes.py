"""Multi-label votes clipped to L1 ≤ τ: each label is on when its noisy share of the votes reaches a half.

The votes are in parts of a vote: `collegium_reproduction.clipped_votes`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from collegium.data.several_labels import MAX_LABELS
from collegium_accounting.mechanisms.gaussian_stage import GaussianLabels
from collegium_accounting.mechanisms.labels import LabelStage
from collegium_accounting.mechanisms.parameters import Parameter
from collegium_accounting.mechanisms.registry import register
from collegium_accounting.mechanisms.votes import VoteMechanism
from collegium_accounting.units import Adjacency, Unit
from collegium_reproduction.clipped_votes import RESOLUTION
from collegium_reproduction.nearest.multilabel_knn import LabelsOn


@register
@dataclass(frozen=True)
class MultiLabel(VoteMechanism):
    """Per label: is the sum of clipped votes + N(0, σ²) at least half the voters? Only the ones are noised."""

    name: ClassVar[str] = "multilabel"
    source: ClassVar[str] = "Zhu et al., CVPR 2020, τ-approximation: ατ/σ² when the ones vector alone is noised"
    several_labels: ClassVar[bool] = True
    no_audit_because: ClassVar[str] = "an audit moves whole votes between classes, and its votes come in parts"

    sigma: Annotated[float, Parameter("standard deviation of the noise on each label's sum", "votes")]
    tau: Annotated[float, Parameter("L1 bound of one teacher's votes on one query", "votes")]
    voters: Annotated[int, Parameter("public number of teachers")]

    @property
    def stages(self) -> tuple[LabelStage, ...]:
        return (ClippedRelease("release", self.sigma, LabelsOn(self.voters / 2.0), self.tau),)


@dataclass(frozen=True)
class ClippedRelease(GaussianLabels):
    """Release one bit per label from the noisy sums of clipped votes."""

    tau: float

    def moved(self, unit: Unit) -> float:
        """Entries lie in [0, 1], so L2² ≤ L1: 2τ for a teacher whose votes change, τ for one that comes or goes."""
        return unit.votes * math.sqrt((2.0 if unit.adjacency is Adjacency.REPLACE else 1.0) * self.tau)

    def entries(self, unit: Unit) -> int:
        return MAX_LABELS

    @property
    def parts_of_a_vote(self) -> int:
        return RESOLUTION
