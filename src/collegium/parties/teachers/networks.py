"""Teachers that are networks: named architectures, each with its fixed recipe."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from collegium.data import Examples
from collegium.data.task import Task
from collegium.errors import StorageError
from collegium.models.arrays import load_arrays, save_arrays
from collegium.models.devices import mixed_precision, resolve_device
from collegium.models.networks import (
    Option,
    build_network,
    checked_options,
    find_architecture,
    network_inputs,
    put_weights,
    weights_of,
)
from collegium.parties.teachers.training import Recipe, TrainingJob, train_teacher, train_together

_PREDICTION_BATCH = 512
_FORMAT = "collegium-network-teacher"
_UNSEEN = "collegium.unseen"


class TrainedNetwork(ABC):
    """What teachers that are networks share: one way to train them, to ask them and to keep them."""

    _task: Task
    _recipe: Recipe
    _network: torch.nn.Module
    _device: str = "cpu"
    _unseen: torch.Tensor = torch.zeros((), dtype=torch.bool)
    """Which classes its records do not hold, shape ``[classes]``; it never votes for one of them."""

    @abstractmethod
    def _built(self) -> torch.nn.Module:
        """The network with fresh weights from torch's generator."""

    @abstractmethod
    def _made_of(self) -> dict[str, Any]:
        """What the network is built from beside the task; JSON values."""

    def fit(self, examples: Examples, *, seed: int, device: str) -> None:
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
        return logits.masked_fill(self._unseen, -torch.inf)

    def save(self, path: Path) -> None:
        unseen = self._unseen.to(torch.uint8).cpu().numpy()
        save_arrays(path, _FORMAT, weights_of(self._network) | {_UNSEEN: unseen}, **self._described())

    def load(self, path: Path, *, device: str) -> None:
        arrays, about = load_arrays(path, _FORMAT)
        unseen = arrays.pop(_UNSEEN, None)
        if about != self._described() or unseen is None or unseen.shape != (len(self._task.classes),):
            raise StorageError(f"{path.name} holds a network for other settings")
        with torch.random.fork_rng(devices=[]):
            network = self._built()
        put_weights(network, arrays, path.name)
        self._device = resolve_device(device)
        self._unseen = torch.from_numpy(unseen).bool().to(self._device)
        self._network = self._placed(network).eval()

    def _described(self) -> dict[str, Any]:
        """What the file says of the network; JSON values."""
        return self._made_of() | {"task": self._task.model_dump(mode="json")}

    def _take(self, network: torch.nn.Module, labels: NDArray[np.int64]) -> None:
        """Keep a trained network such that it never votes for a class which its records do not hold."""
        unseen = np.isin(np.arange(len(self._task.classes)), labels, invert=True)
        self._unseen = torch.from_numpy(unseen).to(self._device)
        self._network = network.eval()

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

    def _made_of(self) -> dict[str, Any]:
        return {"architecture": self.architecture, "options": self._shape}

    @staticmethod
    def fit_together(
        teachers: "Sequence[NetworkTeacher]",
        records: Sequence[Examples],
        seeds: Sequence[int],
        *,
        device: str,
        precision: torch.dtype | None = None,
    ) -> None:
        """What `fit` does to each of the teachers, which have equal options, as one program; see `train_together`."""
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

    def _placed(self, network: torch.nn.Module) -> torch.nn.Module:
        """On its device, channels last: a third faster on the CPU, and the same kernels after a fit and a load."""
        network.to(device=torch.device(self._device))
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network


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
