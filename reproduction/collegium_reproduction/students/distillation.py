"""Distillation (Hinton et al. 2015; PATE, Papernot et al. 2017, Appendix B.1 and Figure 5): for comparison only.

The student learns the ensemble's whole probability vectors instead of labels. They are the parties' own
answers without noise, so there is no privacy in it and no consortium can run it: only a simulation, which
holds every teacher itself, can give them.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from collegium.coordinator.students import LearningProblem, register
from collegium.coordinator.students.networks import fit_labelled
from collegium.errors import DataError
from collegium.models.networks import NetworkStudent
from collegium.settings import Frozen


@register
class Distillation(Frozen):
    """Cross-entropy with the ensemble's probabilities, both sides at temperature T."""

    name: ClassVar[str] = "distillation"
    needs_soft_targets: ClassVar[bool] = True

    network: str = "default"
    temperature: float = Field(default=1.0, gt=0)
    steps: int = Field(default=600, gt=0)
    batch: int = Field(default=64, gt=0)
    learning_rate: float = Field(default=4e-3, gt=0)

    def fit(self, problem: LearningProblem) -> NetworkStudent:
        targets = tempered(_checked(problem), self.temperature)
        y = torch.as_tensor(targets, dtype=torch.float32, device=problem.device)

        def loss(logits: Tensor, chosen: Tensor) -> Tensor:
            # Gradients shrink with T²: Hinton et al. 2015, section 2.
            return self.temperature**2 * F.cross_entropy(logits / self.temperature, y[chosen])

        return fit_labelled(problem, self.network, self.steps, self.batch, self.learning_rate, loss)


def tempered(probabilities: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Rows of class probabilities at temperature T: ``p^(1/T)``, normalised. T = 1 leaves them, large T levels them."""
    powers = probabilities ** (1.0 / temperature)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _checked(problem: LearningProblem) -> NDArray[np.float64]:
    targets = problem.soft_targets
    assert targets is not None
    wanted = (len(problem.indices), len(problem.task.classes))
    if targets.shape != wanted or not np.isfinite(targets).all() or (targets < 0).any():
        raise DataError(f"soft targets must be {wanted[0]} rows of {wanted[1]} probabilities")
    if not np.allclose(targets.sum(axis=1), 1.0, atol=1e-6):
        raise DataError("soft targets must sum to 1 in each row")
    return targets
