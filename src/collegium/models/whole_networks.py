"""Networks in whole numbers: features and classes of a record depend on that record alone, to the last bit.

A network is a list of layers (`models.whole_layers`), and a file of one is data alone: 8-bit weights, whole numbers to
scale by, and the names of the layers. No code of an architecture is run on a record, and a file is refused unless its
own numbers prove that no sum can leave the range in which it is exact. Several networks of one file, its members,
answer together. `models.quantising` makes the file of a network that was trained.

What follows the layers are single operations on exact values: exponentials and logarithms are read from tables of whole
numbers, a length is the root of a whole number.
"""

import json
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from collegium.computing import computed
from collegium.data.several_labels import numbers_of
from collegium.data.task import ImageInputs, Inputs, Task
from collegium.data.values import require
from collegium.errors import DataError, ProtocolViolation, StorageError
from collegium.extras import optional_import
from collegium.models.devices import resolve_device
from collegium.models.whole_layers import (
    ARRAYS,
    INPUT_REACH,
    LOGIT_ONE,
    ONE,
    Layer,
    Products,
    Rescaled,
    Step,
    Values,
    find_layer,
)
from collegium.whole_files import read_whole, storing

FORMAT = "collegium-whole-network-1"
"""The key in a file's metadata that describes the network."""

_RECORDS_AT_ONCE = 128
_VALUES_AT_ONCE = 2**23
_MOST_MEMBERS = 8
_MOST_LAYERS = 64
_SHARES = 2**16

# Whole numbers, the same wherever they are computed: a test looks that none is near a half before it is rounded.
EXPONENTIALS = np.maximum(np.rint(2.0**20 * np.exp(-np.arange(14 * LOGIT_ONE) / LOGIT_ONE)), 1.0)
LOGARITHMS = np.rint(256.0 * np.log(np.maximum(np.arange(_SHARES + 1), 7) / _SHARES))
"""Of shares in parts of 2^16, of those below 1/10,000 that of 1/10,000."""


@dataclass(frozen=True, eq=False)
class WholeNetwork:
    """Networks that label inputs of one task, in whole numbers.

    Parameters
    ----------
    members : layers of each; the last gives the logits of the classes in parts of 1/1024, their mean share counts.
    input_shift : numbers of tables and vectors come in as multiples of 2^−shift; pixels as they are.
    device : where the layers compute.

    Raises
    ------
    ProtocolViolation
        If the layers do not fit each other or the task, or a number could leave the range in which it is exact.
    """

    task: Task
    members: tuple[tuple[Layer, ...], ...]
    input_shift: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        require(1 <= len(self.members) <= _MOST_MEMBERS, f"networks that answer together are 1 to {_MOST_MEMBERS}")
        require(0 <= self.input_shift <= 30, "numbers come into a network in steps of 1 to 2^-30")
        for member in self.members:
            require(2 < len(member) + 1 <= _MOST_LAYERS, f"a network has 2 to {_MOST_LAYERS} layers")
            last = isinstance(member[-2], Products) and isinstance(member[-1], Rescaled)
            require(last, "a network ends in products that are scaled")
        for bounds in self.bounds:
            require(bounds[-1].shape == (len(self.task.classes),), "a network has one output for each class")
            require(len(bounds[-3].shape) == 1, "the last products of a network are of one row of numbers")

    @property
    def dimensions(self) -> int:
        """How many features an input has."""
        inside = sum(bounds[-3].shape[0] for bounds in self.bounds)
        return inside + (len(self.task.classes) if len(self.members) > 1 else 0)

    @cached_property
    def bounds(self) -> list[list[Values]]:
        """Of each member what comes in, then what each layer gives."""
        inputs, found = self.task.inputs, []
        if isinstance(inputs, ImageInputs):
            given = Values((inputs.channels, inputs.height, inputs.width), 0, 255)
        else:
            given = Values((int(np.prod(inputs.shape)),), -INPUT_REACH, INPUT_REACH)
        for layers in self.members:
            bounds = [given]
            for layer in layers:
                bounds.append(layer.after(bounds[-1]))
            found.append(bounds)
        return found

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Class probabilities, shape ``[n, classes]``; row i depends on ``x[i]`` alone, to the last bit."""
        return self._passed(x)[1]

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Label numbers of the task, shape ``[n]``."""
        probabilities = self.probabilities(x)
        if self.task.multilabel:
            return numbers_of(probabilities >= 0.5)
        return np.asarray(probabilities.argmax(axis=1), dtype=np.int64)

    def features(self, x: NDArray[Any]) -> NDArray[np.int16]:
        """What the last layers take in, as a vector of whole numbers of length `ONE`, shape ``[n, dimensions]``.

        Of several networks side by side, each at the same length, and half as long as all of them by which classes
        they tell an input: the logarithms of their mean shares, at least those of 1/10,000, less the logarithms' mean.
        """
        inside, shares = self._passed(x)
        parts = [(values, len(inside) ** -0.5) for values in inside]
        if len(inside) > 1:
            logarithms = LOGARITHMS[np.floor(shares * _SHARES + 0.5).astype(np.int64)]
            parts.append((logarithms * shares.shape[1] - logarithms.sum(axis=1, keepdims=True), 0.5))
        scale = ONE / np.sqrt(sum(length**2 for _, length in parts))
        units = []
        for values, length in parts:
            own = np.sqrt(np.maximum(np.square(values).sum(axis=1, keepdims=True), 1.0))
            units.append(np.floor(values / own * (length * scale) + 0.5))
        return np.concatenate(units, axis=1).astype(np.int16)

    def to_bytes(self) -> bytes:
        """The file: arrays, and what is needed to read them."""
        arrays: dict[str, NDArray[Any]] = {}
        members: list[list[dict[str, Any]]] = []
        for number, layers in enumerate(self.members):
            members.append([])
            for place, layer in enumerate(layers):
                parts = vars(layer)
                # safetensors writes the memory of an array as it lies there, whatever the order of its axes.
                kept = {part: np.ascontiguousarray(parts[part]) for part in ARRAYS if part in parts}
                arrays |= {f"{number}.{place}.{part}": array for part, array in kept.items()}
                numbers = {part: value for part, value in parts.items() if part not in ARRAYS}
                members[-1].append({"kind": layer.kind} | numbers)
        about = {"task": self.task.model_dump(mode="json"), "input_shift": self.input_shift, "members": members}
        # One entry, because safetensors writes several in random order: equal networks give equal files.
        return save(arrays, {FORMAT: json.dumps(about, sort_keys=True)})

    def save(self, path: Path) -> None:
        """Write `to_bytes` to a file; StorageError if it cannot be written."""
        with storing(f"write {path}"):
            path.write_bytes(self.to_bytes())

    def on(self, device: str) -> "WholeNetwork":
        """The same network, computed on the device."""
        return replace(self, device=device)

    @cached_property
    def _steps(self) -> list[list[Step]]:
        """What computes each layer of each member."""
        with optional_import("a student that is a network"):
            return [
                [layer.step(given, self.device) for layer, given in zip(member, bounds, strict=False)]
                for member, bounds in zip(self.members, self.bounds, strict=True)
            ]

    def _passed(self, x: NDArray[Any]) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
        """What the last layer of each member takes in, ``[n, features]`` each, and the mean shares ``[n, classes]``."""
        with optional_import("a student that is a network"):
            import torch

        steps, classes = self._steps, len(self.task.classes)
        largest = max(int(np.prod(given.shape)) for bounds in self.bounds for given in bounds)
        at_once = max(1, min(_RECORDS_AT_ONCE, _VALUES_AT_ONCE // largest))
        inside = [np.empty((len(x), bounds[-3].shape[0])) for bounds in self.bounds]
        shares = np.zeros((len(x), classes))
        with torch.no_grad():
            for start in range(0, len(x), at_once):
                part = slice(start, start + at_once)
                block = self._taken_in(np.asarray(x[part]))
                for number, layers in enumerate(steps):
                    values = block
                    for step in layers[:-2]:
                        values = step(values)
                    inside[number][part] = values.cpu().numpy()
                    logits = layers[-1](layers[-2](values)).cpu().numpy()
                    shares[part] += self._shares(logits) / len(steps)
                computed(0)  # these records are counted where their other features are
        return inside, shares

    def _taken_in(self, x: NDArray[Any]) -> Any:
        """A block as the first layer takes it, on the device."""
        import torch

        if isinstance(self.task.inputs, ImageInputs):
            images = torch.from_numpy(np.ascontiguousarray(x)).to(self.device)
            return images.permute(0, 3, 1, 2).float()  # channels last, as they come
        kept = np.clip(np.nan_to_num(x.reshape(len(x), -1)).astype(np.float64), -INPUT_REACH, INPUT_REACH)
        scaled = np.floor(kept * 2.0**self.input_shift + 0.5)
        return torch.from_numpy(np.clip(scaled, -INPUT_REACH, INPUT_REACH)).float().to(self.device)

    def _shares(self, logits: NDArray[np.float32]) -> NDArray[np.float64]:
        last = len(EXPONENTIALS) - 1
        if self.task.multilabel:
            below = EXPONENTIALS[np.minimum(np.abs(logits), last).astype(np.int64)]
            own: NDArray[np.float64] = np.where(logits >= 0, EXPONENTIALS[0], below) / (EXPONENTIALS[0] + below)
            return own
        apart = np.minimum(logits.max(axis=1, keepdims=True) - logits, last).astype(np.int64)
        raised = EXPONENTIALS[apart]
        shares: NDArray[np.float64] = raised / raised.sum(axis=1, keepdims=True)  # sums of whole numbers are exact
        return shares


def read_whole_network(data: bytes, origin: str) -> WholeNetwork:
    """The network of which `WholeNetwork.to_bytes` made ``data``, on the CPU; errors call it ``origin``.

    Raises
    ------
    StorageError
        If the bytes are damaged or no network of this version.
    DataError
        If its arrays do not fit its layers, or its numbers do not prove that every sum is exact.
    """
    try:
        arrays = load(data)
        # The format: the length of the header in 8 bytes, then the header as JSON (checked by `load`).
        metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {})
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{origin} cannot be read as a network: {error}") from error
    if FORMAT not in metadata:
        raise StorageError(f"{origin} holds no network that this version of Collegium wrote")
    try:
        about = json.loads(metadata[FORMAT])
        task, shift = Task.model_validate(about["task"]), _number(about["input_shift"])
        described = [list(member) for member in about["members"]]
        layers = [
            tuple(_layer(dict(made), f"{number}.{place}.", arrays) for place, made in enumerate(member))
            for number, member in enumerate(described)
        ]
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise StorageError(f"{origin} describes a network that cannot be: {error}") from error
    try:
        require(not arrays, "every array of a network belongs to a layer")
        return WholeNetwork(task, tuple(layers), shift)
    except ProtocolViolation as error:
        raise DataError(f"the layers in {origin} do not fit: {error}") from error


def _layer(made: dict[str, Any], name: str, arrays: dict[str, NDArray[Any]]) -> Layer:
    """A layer of these numbers and of the arrays of this ``name``, which are taken out of ``arrays``."""
    kind = find_layer(str(made.pop("kind")))
    taken = {part: arrays.pop(name + part) for part in ARRAYS if name + part in arrays}
    if made.keys() & set(ARRAYS):
        raise ValueError("a layer has numbers in place of an array")
    return kind(**{part: _number(value) for part, value in made.items()}, **taken)


def _number(value: Any) -> int:
    if type(value) is not int or abs(value) >= 2**31:
        raise ValueError("a network is described by whole numbers")
    return value


def network_for(network: bytes, inputs: Inputs, device: str = "cpu") -> WholeNetwork:
    """The network for features in this file; DataError where it is none or is not for ``inputs``.

    A record's features must not depend on which other records are computed with it, to the last bit: else a record
    that comes or goes would change those of others.
    """
    found = _read(network, resolve_device(device))
    if found.task.inputs != inputs:
        raise DataError("the network for features was made for other inputs: compute it from this task's pool")
    return found


@lru_cache(maxsize=4)
def _read(network: bytes, device: str) -> WholeNetwork:
    return read_whole_network(network, "the network for features").on(device)


def read_student(path: Path, *, device: str) -> WholeNetwork:
    """What `WholeNetwork.save` wrote. Raises StorageError or DataError."""
    return read_whole_network(read_whole(path), path.name).on(device)
