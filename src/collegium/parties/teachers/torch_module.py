"""A torch module as a teacher: any class by its import path, trained by the loop that trains the named networks."""

import hashlib
import inspect
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from collegium.data.task import Task
from collegium.errors import ConfigurationError
from collegium.models.networks import Option, checked_options, network_inputs
from collegium.parties.teachers.base import checked_arguments
from collegium.parties.teachers.networks import TrainedNetwork
from collegium.parties.teachers.training import Recipe

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

    def _made_of(self) -> dict[str, Any]:
        return {"kind": self._kind, "options": self._own}

    def _inputs(self, x: NDArray[Any]) -> torch.Tensor:
        # A module may look at its inputs with `view`, which needs them in the plain order.
        return network_inputs(x).clone(memory_format=torch.contiguous_format).to(self._device)


def _digest(module: type[torch.nn.Module]) -> str:
    """A digest of the class's ``version`` if it has one, else of the file that defines it."""
    version = getattr(module, "version", None)
    if version is None:
        try:
            version = Path(inspect.getfile(module)).read_text(encoding="utf-8")
        except (OSError, TypeError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{module.__qualname__} has no source file: give it a `version`") from error
    return hashlib.sha256(str(version).encode()).hexdigest()[:16]
