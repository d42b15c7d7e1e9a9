"""Teachers that are networks: one training loop, a few fixed recipes.

A recipe is constant: no early stopping and no tuning, so that nothing learned on one split, let alone
on several, decides how another teacher is fitted. The number of steps is constant too, so that the time
a fit takes does not tell how many records there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from collegium.protocol.augmentation import TEACHER, augment
from collegium.protocol.devices import mixed_precision, resolve_device
from collegium.protocol.errors import ConfigurationError, DataError, StorageError
from collegium.protocol.models import (
    ARCHITECTURES,
    Option,
    build_network,
    checked_options,
    load_network,
    network_inputs,
    save_network,
)
from collegium.protocol.task import ImageInputs, Task

if TYPE_CHECKING:
    from collegium.protocol.inputs import Examples

_PREDICTION_BATCH = 512
_MAX_STEPS = 1_000_000


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: AdamW under a one-cycle learning rate."""

    steps: int
    batch: int
    learning_rate: float
    weight_decay: float
    label_smoothing: float
    augment: bool


class NetworkTeacher:
    """A named network with its recipe; ``steps``, ``batch``, ``learning_rate`` and ``augment`` are public options."""

    version: ClassVar[str] = "1"
    architecture: ClassVar[str]
    recipe: ClassVar[Recipe]

    def __init__(self, task: Task, **options: Option) -> None:
        recipe = self.recipe
        training: dict[str, Option] = {
            "steps": recipe.steps,
            "batch": recipe.batch,
            "learning_rate": recipe.learning_rate,
            "augment": recipe.augment,
        }
        known = checked_options(self.architecture, ARCHITECTURES[self.architecture].defaults | training, options)
        self._shape = {name: known[name] for name in ARCHITECTURES[self.architecture].defaults}
        if not 1 <= int(known["steps"]) <= _MAX_STEPS or not 2 <= int(known["batch"]) <= 65_536:
            raise ConfigurationError("a network teacher takes 1 to 1,000,000 steps of 2 to 65,536 records")
        if not 0 < float(known["learning_rate"]) <= 10:
            raise ConfigurationError("a learning rate is above 0 and at most 10")
        self._recipe = Recipe(
            steps=int(known["steps"]),
            batch=int(known["batch"]),
            learning_rate=float(known["learning_rate"]),
            weight_decay=recipe.weight_decay,
            label_smoothing=recipe.label_smoothing,
            augment=bool(known["augment"]) and isinstance(task.inputs, ImageInputs),
        )
        self._task = task
        self._device = "cpu"
        # Built at once so that an option which does not suit the task is found before any fitting.
        with torch.device("meta"):
            self._network = build_network(self.architecture, task, **self._shape)

    def fit(self, examples: Examples, *, seed: int, device: str) -> None:
        self._device = resolve_device(device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = _placed(build_network(self.architecture, self._task, **self._shape), self._device)
            x = network_inputs(examples.x).to(self._device)
            labels = np.asarray(examples.y, dtype=np.int64)
            y = torch.from_numpy(labels).to(self._device)
            _train(network, x, y, self._recipe, torch.Generator().manual_seed(seed), self._device)
        _silence(network, np.setdiff1d(np.arange(len(self._task.classes)), labels))
        self._network = network.eval()

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        labels = [np.empty(0, dtype=np.int64)]
        with torch.inference_mode(), mixed_precision(self._device):
            for start in range(0, len(x), _PREDICTION_BATCH):
                batch = network_inputs(x[start : start + _PREDICTION_BATCH]).to(self._device)
                labels.append(self._network(batch).argmax(dim=1).cpu().numpy())
        return np.concatenate(labels)

    def save(self, path: Path) -> None:
        save_network(path, self._network, self.architecture, self._task, **self._shape)

    def load(self, path: Path, *, device: str) -> None:
        try:
            saved = load_network(path)
        except DataError as error:
            raise StorageError(str(error)) from error
        if (saved.name, saved.task, saved.options) != (self.architecture, self._task, self._shape):
            raise StorageError(f"{path.name} holds a network for other settings")
        self._device = resolve_device(device)
        self._network = _placed(saved.network, self._device)


def _placed(network: torch.nn.Module, device: str) -> torch.nn.Module:
    """On its device, channels last: a third faster on the CPU, and the same kernels after a fit and after a load."""
    network.to(device=torch.device(device))
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def _train(
    network: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, recipe: Recipe, draws: torch.Generator, device: str
) -> None:
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.learning_rate, total_steps=recipe.steps)
    network.train()
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(recipe.steps):
        # Batches run on through one random order after another, so every batch has the same size.
        while len(order) < recipe.batch:
            order = torch.cat([order, torch.randperm(len(x), generator=draws)])
        chosen, order = order[: recipe.batch].to(device), order[recipe.batch :]
        batch = augment(x[chosen], TEACHER, draws) if recipe.augment else x[chosen]
        with mixed_precision(device):
            loss = F.cross_entropy(network(batch), y[chosen], label_smoothing=recipe.label_smoothing)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()


def _silence(network: torch.nn.Module, unseen: NDArray[np.int64]) -> None:
    """Never vote for a class that was not learned: its bias, kept with the weights, outweighs every logit."""
    output = list(network.modules())[-1]
    assert isinstance(output, torch.nn.Linear)
    with torch.no_grad():
        output.bias[torch.from_numpy(unseen)] = -1e9


class SmallCnnTeacher(NetworkTeacher):
    """A tiny network with augmentation: about one second of one CPU core for digits of 28 × 28."""

    architecture = "small-cnn"
    recipe = Recipe(steps=240, batch=32, learning_rate=0.02, weight_decay=0.05, label_smoothing=0.05, augment=True)


class PaperCnnTeacher(NetworkTeacher):
    """PATE's network as the paper trains it: no augmentation."""

    architecture = "paper-cnn"
    recipe = Recipe(steps=100, batch=32, learning_rate=0.001, weight_decay=0.0, label_smoothing=0.0, augment=False)


class MlpTeacher(NetworkTeacher):
    """Two hidden layers, for tables."""

    architecture = "mlp"
    recipe = Recipe(steps=600, batch=64, learning_rate=0.003, weight_decay=0.05, label_smoothing=0.0, augment=False)


class LinearTeacher(NetworkTeacher):
    """Multinomial logistic regression, for tables."""

    architecture = "linear"
    recipe = Recipe(steps=600, batch=64, learning_rate=0.03, weight_decay=0.05, label_smoothing=0.0, augment=False)
