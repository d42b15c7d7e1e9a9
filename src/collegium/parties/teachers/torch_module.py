"""A torch module as a teacher: any class by its import path, trained by the loop that trains the named networks."""

import hashlib
import inspect
import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from collegium.data.task import Task
from collegium.errors import ConfigurationError, StorageError
from collegium.models.devices import resolve_device
from collegium.models.networks import Option, checked_options, network_inputs
from collegium.parties.teachers.base import checked_arguments
from collegium.parties.teachers.networks import TrainedNetwork
from collegium.parties.teachers.training import Recipe

_FORMAT = "collegium-module-1"
_UNSEEN = "collegium.unseen"
_PROBES = 2


class ModuleTeacher(TrainedNetwork):
    """A network built as ``Module(input_shape=…, classes=…, **options)``.

    ``input_shape`` is that of one input as the network gets it, float32: ``(channels, height, width)`` in
    [0, 1], or ``(columns,)``; ``classes`` is their number. Each is given only if the constructor names it. It
    returns logits ``[n, classes]``. The training's options (``steps``, ``batch``, ``learning_rate``,
    ``augment``) are not passed on. Its weights are kept as a safetensors file.

    A kept teacher is found again as long as the file that defines the class stays as it is; a class whose
    results depend on other files declares a ``version`` of its own.
    """

    version: str
    recipe: ClassVar[Recipe] = Recipe(
        steps=400, batch=32, learning_rate=0.003, weight_decay=0.05, label_smoothing=0.0, augment=False
    )

    def __init__(self, kind: str, module: type[torch.nn.Module], task: Task, **options: Option) -> None:
        training = self.recipe.options()
        known = checked_options(kind, training, {name: options[name] for name in options if name in training})
        self._recipe = self.recipe.changed(known, task)
        own = {name: value for name, value in options.items() if name not in training}
        names = checked_arguments(kind, module, own)
        shape = tuple(network_inputs(np.zeros((1, *task.inputs.shape), task.inputs.dtype)).shape[1:])
        public = {"input_shape": shape, "classes": len(task.classes)}
        self._arguments = {name: value for name, value in public.items() if name in names} | own
        self._kind, self._module, self._task = kind, module, task
        self._own = own
        self._unseen = torch.zeros(len(task.classes), dtype=torch.bool)
        self.version = f"1 {_digest(module)}"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self._network = self._built()
            self._check_output()

    def _check_output(self) -> None:
        """Raise ConfigurationError unless it returns one logit per class."""
        probes = np.zeros((_PROBES, *self._task.inputs.shape), self._task.inputs.dtype)
        wanted = (_PROBES, len(self._task.classes))
        try:
            with torch.no_grad():
                output = self._network.eval()(self._inputs(probes))
        except Exception as error:
            shown = " ".join(str(error).split())[:400]
            raise ConfigurationError(f"teacher {self._kind} does not take this task's inputs: {shown}") from error
        shape = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
        if shape != wanted:
            raise ConfigurationError(
                f"teacher {self._kind} returns {shape} for {_PROBES} inputs; this task needs {wanted}, "
                "one logit per class: use the argument classes as the size of its last layer"
            )

    def _built(self) -> torch.nn.Module:
        return self._module(**self._arguments)

    def save(self, path: Path) -> None:
        # Clones, because weights that a module ties are one tensor, which the format does not know.
        tensors = {name: value.detach().cpu().clone() for name, value in self._network.state_dict().items()}
        tensors[_UNSEEN] = self._unseen.to(torch.uint8).cpu()
        try:
            save_file(tensors, path, metadata={_FORMAT: self._made_of()})
        except (OSError, SafetensorError) as error:
            raise StorageError(f"cannot write the teacher {path}: {error}") from error

    def load(self, path: Path, *, device: str) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                made_of = (file.metadata() or {}).get(_FORMAT)
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, ValueError) as error:
            raise StorageError(f"{path.name} cannot be read as a teacher: {error}") from error
        unseen = tensors.pop(_UNSEEN, None)
        if made_of != self._made_of() or unseen is None or unseen.shape != self._unseen.shape:
            raise StorageError(f"{path.name} holds a network for other settings")
        try:
            self._network.load_state_dict(tensors)
        except RuntimeError as error:
            raise StorageError(f"{path.name} holds other weights than {self._kind} has") from error
        self._device = resolve_device(device)
        self._unseen = unseen.bool().to(self._device)
        self._network = self._placed(self._network).eval()

    def _made_of(self) -> str:
        made_of = {"kind": self._kind, "options": self._own, "task": self._task.model_dump(mode="json")}
        return json.dumps(made_of, sort_keys=True)

    def _logits(self, batch: torch.Tensor) -> torch.Tensor:
        return super()._logits(batch).masked_fill(self._unseen, -torch.inf)

    def _inputs(self, x: NDArray[Any]) -> torch.Tensor:
        # A module may look at its inputs with `view`, which needs them in the plain order.
        return network_inputs(x).clone(memory_format=torch.contiguous_format).to(self._device)

    def _take(self, network: torch.nn.Module, labels: NDArray[np.int64]) -> None:
        unseen = np.isin(np.arange(len(self._task.classes)), labels, invert=True)
        self._unseen = torch.from_numpy(unseen).to(self._device)
        self._network = network.eval()


def _digest(module: type[torch.nn.Module]) -> str:
    """A digest of the class's ``version`` if it has one, else of the file that defines it."""
    version = getattr(module, "version", None)
    if version is None:
        try:
            version = Path(inspect.getfile(module)).read_text(encoding="utf-8")
        except (OSError, TypeError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{module.__qualname__} has no source file: give it a `version`") from error
    return hashlib.sha256(str(version).encode()).hexdigest()[:16]
