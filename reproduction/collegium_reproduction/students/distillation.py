"""Distillation (Hinton et al. 2015; PATE, Papernot et al. 2017, Appendix B.1 and Figure 5): for comparison only.

The student learns the ensemble's whole probability vectors instead of labels. They are the parties' own
answers without noise, so there is no privacy in it and no consortium can run it: only a simulation, which
holds every teacher itself, can give them. So it is no method that a configuration may name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from collegium.coordinator.students import LearningProblem
from collegium.coordinator.students.networks import fit_labelled
from collegium.data.task import Task
from collegium.errors import DataError
from collegium.models.devices import resolve_device, seeded_draws, set_threads
from collegium.models.whole_networks import WholeNetwork
from collegium.settings import Frozen


class Distillation(Frozen):
    """Cross-entropy with the ensemble's probabilities, both sides at temperature T."""

    network: str = "default"
    temperature: float = Field(default=1.0, gt=0)
    steps: int = Field(default=600, gt=0)
    batch: int = Field(default=64, gt=0)
    learning_rate: float = Field(default=4e-3, gt=0)

    def fit(  # noqa: PLR0913 -- what a student method is given, and what distils it
        self,
        pool: NDArray[Any],
        indices: NDArray[np.int64],
        soft_targets: NDArray[np.float64],
        task: Task,
        *,
        seed: int,
        device: str = "auto",
        threads: int = 1,
    ) -> WholeNetwork:
        """The student of ``soft_targets``, shape ``[indices, classes]``, for the inputs ``pool[indices]``.

        DataError unless the soft targets are one distribution for each index.
        """
        targets = tempered(_checked(soft_targets, len(indices), len(task.classes)), self.temperature)
        set_threads(threads)
        target = resolve_device(device)
        labels = soft_targets.argmax(axis=1)
        problem = LearningProblem(task, pool, indices, labels, seed, target, lambda done, total: None)
        y = torch.as_tensor(targets, dtype=torch.float32, device=target)

        def loss(logits: Tensor, chosen: Tensor) -> Tensor:
            # Gradients shrink with T²: Hinton et al. 2015, section 2.
            return self.temperature**2 * F.cross_entropy(logits / self.temperature, y[chosen])

        with seeded_draws(seed, target):
            fitted = fit_labelled(problem, self.network, self.steps, self.batch, self.learning_rate, loss)
        return fitted.published(pool)


def tempered(probabilities: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Rows of class probabilities at temperature T: ``p^(1/T)``, normalised. T = 1 leaves them, large T levels them."""
    powers = probabilities ** (1.0 / temperature)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _checked(targets: NDArray[np.float64], rows: int, classes: int) -> NDArray[np.float64]:
    if targets.shape != (rows, classes) or not np.isfinite(targets).all() or (targets < 0).any():
        raise DataError(f"soft targets must be {rows} rows of {classes} probabilities")
    if not np.allclose(targets.sum(axis=1), 1.0, atol=1e-6):
        raise DataError("soft targets must sum to 1 in each row")
    return targets
