"""A trained network becomes a network in whole numbers; what a number stands for is learned from public inputs.

Batch normalisation is folded into the products before it. Each output's weights are rounded to 127 steps on either side
of 0 (a matrix's to 32,767 where more than 8 bits come in), and what flows on to 255, where the largest number that
public inputs gave is 255. The largest of a window is taken before numbers are scaled back, which changes nothing, as
scaling keeps their order.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from collegium.data.task import ImageInputs, Task
from collegium.errors import ConfigurationError
from collegium.models.whole_layers import (
    INPUT_REACH,
    LOGIT_ONE,
    Flat,
    Largest,
    Layer,
    Parted,
    Products,
    Rescaled,
    Values,
)
from collegium.models.whole_networks import WholeNetwork

_SEEN = 512
"""Public inputs, at equal distances in the pool, whose numbers are looked at."""
_MOST = 255
_LARGEST_BIAS = 2**22
_LARGEST_LOGIT = 2**20
_MULTIPLIER_BITS = 20
_PASSED_ON = (nn.Dropout, nn.Identity)


def quantised(networks: Iterable[nn.Module], task: Task, public: Tensor) -> WholeNetwork:
    """One or more networks of layers in a row, in whole numbers.

    Parameters
    ----------
    networks : they are left in evaluation mode; classes are by their mean share.
    public : inputs of the task, such as a pool's, as `networks.network_inputs` gives them.

    Raises
    ------
    ConfigurationError
        If a network has a layer that has no form in whole numbers.
    """
    seen = public[:: -(-len(public) // _SEEN)]
    if isinstance(task.inputs, ImageInputs):
        shift, unit = 0, 1.0 / 255.0
    else:
        largest = max(float(seen.abs().max()), 2.0**-18)
        shift = max(0, math.floor(math.log2(INPUT_REACH / largest)))
        unit = 2.0**-shift
    members = tuple(tuple(_Rounding(network, seen, unit).layers()) for network in networks)
    return WholeNetwork(task, members, shift)


@runtime_checkable
class InWholeNumbers(Protocol):
    """A module of another package that says itself what it is in whole numbers."""

    def in_whole_numbers(self, unit: float) -> tuple[Layer, float]:
        """The layer, and what a whole 1 of what it gives stands for, as ``unit`` says it of what it takes in."""
        ...

    def __call__(self, x: Tensor) -> Tensor: ...


class _Rounding:
    """One network as its layers are walked.

    Parameters
    ----------
    unit : what a whole 1 stands for in what comes in.
    """

    def __init__(self, network: nn.Module, seen: Tensor, unit: float) -> None:
        self._network, self._unit = network.eval(), unit
        device = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
        self._values = seen.to(device)
        self._units: Tensor | None = None
        """What a whole 1 stands for in each output of products that are not scaled back yet."""
        self._positive = False
        shape = tuple(self._values.shape[1:])
        self._given = Values(shape, 0, _MOST) if len(shape) == 3 else Values(shape, -INPUT_REACH, INPUT_REACH)

    @torch.no_grad()
    def layers(self) -> list[Layer]:
        """The layers in whole numbers."""
        found: list[Layer] = []
        parts = list(_in_a_row(self._network))
        for place, part in enumerate(parts):
            if isinstance(part, nn.BatchNorm2d):
                continue  # within the products before it
            after = parts[place + 1] if place + 1 < len(parts) else None
            for layer in self._layer(part, after if isinstance(after, nn.BatchNorm2d) else None):
                found.append(layer)
                self._given = layer.after(self._given)
        assert self._units is not None  # the last layer is linear
        return [*found, self._scaled(1.0 / LOGIT_ONE, -_LARGEST_LOGIT, _LARGEST_LOGIT)]

    def _layer(self, part: nn.Module, norm: nn.BatchNorm2d | None) -> Iterator[Layer]:
        if isinstance(part, nn.ReLU):
            if self._units is None:
                raise ConfigurationError("in a network that is published, rectified units follow a layer of products")
            self._values, self._positive = self._values.relu(), True
        elif isinstance(part, nn.MaxPool2d | nn.AdaptiveMaxPool2d):
            self._values = part(self._values)
            yield _windows(part) if isinstance(part, nn.MaxPool2d) else Parted(_side(part), 0)
        elif isinstance(part, nn.Conv2d | nn.Linear):
            yield from self._scaled_back()
            yield self._products(part, norm)
        elif isinstance(part, nn.AdaptiveAvgPool2d):
            yield from self._scaled_back()
            side = _side(part)
            self._unit /= math.prod(-(-length // side) for length in self._values.shape[2:])
            self._values = part(self._values)
            yield Parted(side, 1)
        elif isinstance(part, nn.Flatten):
            if self._values.ndim > 2:
                yield from self._scaled_back()
                self._values = self._values.flatten(1)
                yield Flat()
        elif isinstance(part, InWholeNumbers):
            yield from self._scaled_back()
            layer, self._unit = part.in_whole_numbers(self._unit)
            self._values = part(self._values)
            yield layer
        else:
            raise ConfigurationError(
                f"a network that is published has no layer {type(part).__name__}: build it of Conv2d, BatchNorm2d, "
                "Linear, ReLU, MaxPool2d, AdaptiveMaxPool2d, AdaptiveAvgPool2d, Dropout and Flatten"
            )

    def _products(self, part: nn.Conv2d | nn.Linear, norm: nn.BatchNorm2d | None) -> Products:
        weight = part.weight.double()
        bias = weight.new_zeros(len(weight)) if part.bias is None else part.bias.double()
        self._values = part(self._values)
        if norm is not None:
            assert norm.running_mean is not None and norm.running_var is not None
            factor = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
            weight = weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
            bias = norm.bias.double() + (bias - norm.running_mean.double()) * factor
            self._values = norm(self._values)
        # Where 64-bit floats add up, because more than 8 bits come in, weights of 16 bits take no longer.
        kind = np.int8 if self._given.reach <= _MOST or isinstance(part, nn.Conv2d) else np.int16
        most = int(np.iinfo(kind).max)
        steps = weight.flatten(1).abs().amax(dim=1) / most
        steps = torch.maximum(steps, bias.abs() / self._unit / _LARGEST_BIAS).clamp(min=1e-30)
        self._units = steps * self._unit
        whole = (weight / steps.reshape(-1, *[1] * (weight.ndim - 1))).round().clamp(-most, most)
        weights: NDArray[np.int8 | np.int16] = whole.cpu().numpy().astype(kind)
        offsets: NDArray[np.int32] = (bias / self._units).round().cpu().numpy().astype(np.int32)
        if isinstance(part, nn.Linear):
            return Products(weights, offsets)
        plain = part.stride[0] == part.stride[1] and part.padding in ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5))
        if not plain or part.dilation != (1, 1) or part.groups != 1 or part.padding_mode != "zeros":
            raise ConfigurationError("a network that is published has convolutions without groups and dilation")
        return Products(weights, offsets, part.stride[0], int(part.padding[0]))

    def _scaled_back(self) -> Iterator[Layer]:
        """Scale products back, where it was not done yet, to as many steps as flow on."""
        if self._units is not None:
            unit = max(float(self._values.abs().max()), 1e-20) / _MOST
            yield self._scaled(unit, 0 if self._positive else -_MOST, _MOST)
            self._unit, self._units, self._positive = unit, None, False

    def _scaled(self, unit: float, low: int, most: int) -> Rescaled:
        assert self._units is not None
        factors = (self._units / unit).cpu().numpy()
        bits = min(_MULTIPLIER_BITS, 52 - self._given.reach.bit_length())
        shift = min(max(bits - math.ceil(math.log2(float(factors.max()))), 1), 50)
        multiplier = np.minimum(np.rint(factors * 2.0**shift), 2**bits).astype(np.int32)
        return Rescaled(multiplier, shift, low, most)


def _in_a_row(network: nn.Module) -> Iterator[nn.Module]:
    """The layers of a network, those within sequences too; without what changes nothing after training."""
    parts = list(network.children()) if isinstance(network, nn.Sequential) else [network]
    for part in parts:
        if isinstance(part, nn.Sequential):
            yield from _in_a_row(part)
        elif not isinstance(part, _PASSED_ON):
            yield part


def _windows(part: nn.MaxPool2d) -> Largest:
    window, stride, padding = part.kernel_size, part.stride, part.padding
    if not (isinstance(window, int) and isinstance(stride, int) and isinstance(padding, int)):
        raise ConfigurationError("a network that is published takes the largest of square windows")
    return Largest(window, stride, padding)


def _side(part: nn.AdaptiveMaxPool2d | nn.AdaptiveAvgPool2d) -> int:
    side = part.output_size
    if not isinstance(side, int):
        raise ConfigurationError("a network that is published cuts images into as many rows as columns")
    return side
