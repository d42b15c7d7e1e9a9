"""How a network is trained on one teacher's records: a constant recipe, and every draw from the teacher's own seed.

A recipe is constant: no early stopping and no tuning, so that nothing learned on one split, let alone
on several, decides how another teacher is fitted. The number of steps is constant too, so that the time
a fit takes does not tell how many records there are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from collegium.data.task import ImageInputs, Task
from collegium.errors import ConfigurationError
from collegium.models.augmentation import TEACHER, Warp, draw_warp, warp
from collegium.models.devices import mixed_precision
from collegium.models.networks import Option
from collegium.models.training import Learner, accuracy, train
from collegium.models.training_curves import Value

_MAX_STEPS = 1_000_000
_MAX_BATCH = 65_536


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: AdamW under a one-cycle learning rate."""

    steps: int
    batch: int
    learning_rate: float
    weight_decay: float
    label_smoothing: float
    augment: bool

    def options(self) -> dict[str, Option]:
        """What a run may choose, with its default."""
        return {
            "steps": self.steps,
            "batch": self.batch,
            "learning_rate": self.learning_rate,
            "augment": self.augment,
        }

    def changed(self, chosen: dict[str, Option], task: Task) -> "Recipe":
        """The recipe with all of `options` as ``chosen``, tables never augmented.

        Raises ConfigurationError where one is out of range.
        """
        changed = replace(
            self,
            steps=int(chosen["steps"]),
            batch=int(chosen["batch"]),
            learning_rate=float(chosen["learning_rate"]),
            augment=bool(chosen["augment"]) and isinstance(task.inputs, ImageInputs),
        )
        if not 1 <= changed.steps <= _MAX_STEPS or not 2 <= changed.batch <= _MAX_BATCH:
            raise ConfigurationError("a network teacher takes 1 to 1,000,000 steps of 2 to 65,536 records")
        if not 0 < changed.learning_rate <= 10:
            raise ConfigurationError("a learning rate is above 0 and at most 10")
        return changed

    def learner(self, parameters: Iterable[Tensor]) -> Learner:
        """The optimiser and the course of its learning rate; both treat every number by itself."""
        return Learner.one_cycle(parameters, self.steps, self.learning_rate, weight_decay=self.weight_decay)


class Draws:
    """The batches of one teacher, and how their images are warped: a function of its seed and number of records.

    Batches run on through one random order after another, so every batch has the same size.
    """

    def __init__(self, records: int, recipe: Recipe, seed: int) -> None:
        self._records = records
        self._recipe = recipe
        self._generator = torch.Generator().manual_seed(seed)
        self._order = torch.empty(0, dtype=torch.int64)

    def batch(self) -> tuple[Tensor, Warp | None]:
        """Positions of the next records, shape ``[batch]``, and their warp where images are augmented."""
        size = self._recipe.batch
        while len(self._order) < size:
            self._order = torch.cat([self._order, torch.randperm(self._records, generator=self._generator)])
        chosen, self._order = self._order[:size], self._order[size:]
        return chosen, draw_warp(size, TEACHER, self._generator) if self._recipe.augment else None


def train_teacher(network: nn.Module, x: Tensor, y: Tensor, recipe: Recipe, seed: int, device: str) -> None:
    """Train in place on inputs as `network_inputs` gives and class numbers ``[n]``, both on the device.

    Dropout draws from torch's own generator.
    """
    draws = Draws(len(x), recipe, seed)

    def loss(step: int) -> tuple[Tensor, dict[str, Value]]:
        records, warped = draws.batch()
        chosen = records.to(device)
        batch = x[chosen] if warped is None else warp(x[chosen], TEACHER, warped)
        with mixed_precision(device):
            logits = network(batch)
            of_labels = F.cross_entropy(logits, y[chosen], label_smoothing=recipe.label_smoothing)
        return of_labels, {"accuracy": accuracy(logits, y[chosen])}

    network.train()
    train(loss, recipe.learner(network.parameters()), recipe.steps, name="teacher")
