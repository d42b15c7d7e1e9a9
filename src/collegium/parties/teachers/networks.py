"""Teachers that are networks: named architectures, each with its fixed recipe."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from collegium.data.task import Task
from collegium.errors import DataError, StorageError
from collegium.models.devices import mixed_precision, resolve_device
from collegium.models.networks import (
    Option,
    build_network,
    checked_options,
    find_architecture,
    load_network,
    network_inputs,
    save_network,
)
from collegium.parties.teachers.training import Recipe, train_teacher

if TYPE_CHECKING:
    from collegium.data import Examples

_PREDICTION_BATCH = 512


class TrainedNetwork(ABC):
    """What teachers that are networks share: one way to train them and one way to ask them."""

    _task: Task
    _recipe: Recipe
    _network: torch.nn.Module
    _device: str = "cpu"

    @abstractmethod
    def _built(self) -> torch.nn.Module:
        """The network with fresh weights from torch's generator."""

    @abstractmethod
    def _take(self, network: torch.nn.Module, labels: NDArray[np.int64]) -> None:
        """Keep a trained network such that it never votes for a class which its records do not hold."""

    def fit(self, examples: "Examples", *, seed: int, device: str) -> None:
        self._device = resolve_device(device)
        labels = np.asarray(examples.y, dtype=np.int64)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self._placed(self._built())
            y = torch.from_numpy(labels).to(self._device)
            train_teacher(network, self._inputs(examples.x), y, self._recipe, seed, self._device)
        self._take(network, labels)

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        labels = [np.empty(0, dtype=np.int64)]
        with torch.inference_mode(), mixed_precision(self._device):
            for start in range(0, len(x), _PREDICTION_BATCH):
                batch = self._inputs(x[start : start + _PREDICTION_BATCH])
                labels.append(self._logits(batch).argmax(dim=1).cpu().numpy())
        return np.concatenate(labels)

    def _logits(self, batch: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._network(batch)
        return logits

    def _inputs(self, x: NDArray[Any]) -> torch.Tensor:
        return network_inputs(x).to(self._device)

    def _placed(self, network: torch.nn.Module) -> torch.nn.Module:
        return network.to(self._device)


class NetworkTeacher(TrainedNetwork):
    """A named network with its recipe; ``steps``, ``batch``, ``learning_rate`` and ``augment`` are public options."""

    version: ClassVar[str] = "1"
    architecture: ClassVar[str]
    recipe: ClassVar[Recipe]

    def __init__(self, task: Task, **options: Option) -> None:
        own = find_architecture(self.architecture).defaults
        known = checked_options(self.architecture, own | self.recipe.options(), options)
        self._shape = {name: known[name] for name in own}
        self._recipe = self.recipe.changed(known, task)
        self._task = task
        # Built at once so that an option which does not suit the task is found before any fitting.
        with torch.device("meta"):
            self._network = self._built()

    def _built(self) -> torch.nn.Module:
        return build_network(self.architecture, self._task, **self._shape)

    @staticmethod
    def fit_together(
        teachers: "Sequence[NetworkTeacher]",
        records: "Sequence[Examples]",
        seeds: Sequence[int],
        *,
        device: str,
        precision: torch.dtype | None = None,
    ) -> None:
        """What `fit` does to each of the teachers, which have equal options, as one program; see `batched_training`."""
        from collegium.parties.teachers.training import TrainingJob, train_together

        target = resolve_device(device)
        jobs = []
        for teacher, own, seed in zip(teachers, records, seeds, strict=True):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                network = teacher._built()
                masks = torch.Generator()
                masks.set_state(torch.get_rng_state())
            x = torch.from_numpy(np.ascontiguousarray(own.x))
            y = torch.from_numpy(np.asarray(own.y, dtype=np.int64))
            jobs.append(TrainingJob(network, x, y, seed, masks))
        train_together(jobs, teachers[0]._recipe, target, precision)
        for teacher, job in zip(teachers, jobs, strict=True):
            teacher._device = target
            teacher._take(teacher._placed(job.network), job.y.numpy())

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
        self._network = self._placed(saved.network)

    def _placed(self, network: torch.nn.Module) -> torch.nn.Module:
        """On its device, channels last: a third faster on the CPU, and the same kernels after a fit and a load."""
        network.to(device=torch.device(self._device))
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network

    def _take(self, network: torch.nn.Module, labels: NDArray[np.int64]) -> None:
        # The bias of an unseen class, kept with the weights, outweighs every logit.
        output = list(network.modules())[-1]
        assert isinstance(output, torch.nn.Linear)
        with torch.no_grad():
            output.bias[torch.from_numpy(np.setdiff1d(np.arange(len(self._task.classes)), labels))] = -1e9
        self._network = network.eval()


class SmallCnnTeacher(NetworkTeacher):
    """A tiny network with augmentation: about one second of one CPU core for digits of 28 × 28."""

    architecture = "small-cnn"
    recipe = Recipe(steps=240, batch=32, learning_rate=0.02, weight_decay=0.05, label_smoothing=0.05, augment=True)


class MlpTeacher(NetworkTeacher):
    """Two hidden layers, for tables."""

    architecture = "mlp"
    recipe = Recipe(steps=600, batch=64, learning_rate=0.003, weight_decay=0.05, label_smoothing=0.0, augment=False)


class LinearTeacher(NetworkTeacher):
    """Multinomial logistic regression, for tables."""

    architecture = "linear"
    recipe = Recipe(steps=600, batch=64, learning_rate=0.03, weight_decay=0.05, label_smoothing=0.0, augment=False)
