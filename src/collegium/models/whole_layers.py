"""Layers of networks in whole numbers: what each computes is exact, so in any order, block, processor and precision.

Weights are mostly whole numbers from −127 to 127, and what a layer takes in is from 0 to 255. Every layer is checked
where its file is read (`Layer.after`): from the bounds of what it takes in follow those of every sum that it can form.
Factors up to 256 whose sums stay below 2^24 are multiplied and added in 32-bit floats, others below 2^53 in 64-bit
floats. Both hold every whole number up to there, so that another order of addition, sums in parts and fused operations
change nothing. Numbers up to 256 are exact even in bfloat16 and TF32, which a processor may be told to take instead.

A convolution by Winograd's or Fourier's transform would not be exact. So no library is left to choose: on a CPU oneDNN
is told to add up products (``convolution_direct``, which is what `torch.mkldnn_convolution` asks for), and elsewhere a
convolution is one product of matrices.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from collegium.data.values import require
from collegium.extras import installed, load_plugin
from collegium.limits import MAX_FEATURES

if TYPE_CHECKING:  # a party without networks reads no torch
    from torch import Tensor

Step = Callable[["Tensor"], "Tensor"]

ONE = 8192
"""What stands for 1 in a feature."""
LOGIT_ONE = 1024
"""What stands for 1 in what the last layer gives."""
INPUT_REACH = 2047
"""The largest size of a number of a table or a vector, in its own units, as a network takes it in."""

_SINGLE, _DOUBLE = 2**24, 2**53
"""Below these 32-bit and 64-bit floats hold every whole number."""
_SHORT = 256
"""Up to here bfloat16 does."""
_MOST_VALUES = 2**22
_LARGEST_MULTIPLIER = 2**20
_LARGEST_WINDOW = 16
_IN_CACHE = 16
"""Records."""


@dataclass(frozen=True)
class Values:
    """What flows between layers: numbers of one record, and bounds that hold for every record.

    Parameters
    ----------
    shape : ``(channels, height, width)`` of images, ``(values,)`` of others.
    low, most : the least and the largest whole number that one of them can be.
    """

    shape: tuple[int, ...]
    low: int
    most: int

    def __post_init__(self) -> None:
        require(min(self.shape) > 0 and int(np.prod(self.shape)) <= _MOST_VALUES, "a network has layers of such a size")
        require(self.low <= self.most and self.reach < _DOUBLE, "sums in a network of whole numbers stay below 2^53")

    @property
    def reach(self) -> int:
        """The largest size of a number."""
        return max(-self.low, self.most)


class Layer(Protocol):
    """One layer: its arrays and numbers are what the file says of it.

    ``after`` gives the bounds of what the layer gives and raises ProtocolViolation where it takes in something else,
    ``step`` what computes it on a device. collegium-onnx writes the layers of this package as nodes of an ONNX graph,
    and asks one of another package for its ``nodes``.
    """

    kind: ClassVar[str]

    def after(self, given: Values) -> Values: ...

    def step(self, given: Values, device: str) -> Step: ...


@dataclass(frozen=True, eq=False)
class Products:
    """Sums of products: a convolution where images come in, else a product with a matrix.

    Parameters
    ----------
    weight : int8, or int16 where 64-bit floats add up anyway, ``[out, in, rows, columns]`` or ``[out, in]``.
    bias : int32 ``[out]``.
    stride, padding : of a convolution, in pixels; what is added around an image is 0.
    """

    kind: ClassVar[str] = "products"
    weight: NDArray[np.int8 | np.int16]
    bias: NDArray[np.int32]
    stride: int = 1
    padding: int = 0

    def after(self, given: Values) -> Values:
        weight, bias, window = self.weight, self.bias, self.weight.shape[2:]
        of_bits = weight.dtype in (np.int8, np.int16) and bias.dtype == np.int32
        require(of_bits, "the weights of a layer are whole numbers of 8 or 16 bits, its offsets of 32")
        fits = weight.ndim in (2, 4) and len(given.shape) == weight.ndim - 1 and bias.shape == weight.shape[:1]
        require(
            fits and weight.shape[1] == given.shape[0] and weight.size > 0, "the weights of a layer fit what comes in"
        )
        require(int(weight.min()) >= -np.iinfo(weight.dtype).max, "weights are as far below 0 as above")
        shape = windows_of(given.shape, window, self.stride, self.padding)
        sizes = np.abs(weight.astype(np.int64)).reshape(len(weight), -1).sum(axis=1) * given.reach
        largest = int((sizes + np.abs(bias.astype(np.int64))).max())
        return Values((len(weight), *shape), -largest, largest)

    def step(self, given: Values, device: str) -> Step:
        import torch

        dtype = torch.float32 if self.in_32_bits(given) else torch.float64
        weight, bias = (torch.tensor(values, dtype=dtype, device=device) for values in (self.weight, self.bias))
        if weight.ndim == 2:
            return lambda x: torch.addmm(bias, x.to(dtype), weight.T)
        stride, padding = [self.stride] * 2, [self.padding] * 2
        if device == "cpu" and dtype is torch.float32 and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            weight = weight.contiguous(memory_format=torch.channels_last)
            return lambda x: torch.mkldnn_convolution(x, weight, bias, padding, stride, [1, 1], 1)
        return lambda x: convolved(x.to(dtype), weight, bias, self.stride, self.padding)

    def in_32_bits(self, given: Values) -> bool:
        """Whether 32-bit floats add the products up exactly."""
        short = given.reach <= _SHORT and self.weight.dtype == np.int8
        return short and self.after(given).reach < _SINGLE


def convolved(x: "Tensor", weight: "Tensor", bias: "Tensor", stride: int, padding: int) -> "Tensor":
    """A convolution of ``[n, in, height, width]`` as one product of matrices."""
    from torch.nn.functional import unfold

    out, _, rows, columns = weight.shape
    height, width = windows_of(x.shape[1:], (rows, columns), stride, padding)
    windows = unfold(x, (rows, columns), padding=padding, stride=stride)
    return (weight.reshape(out, -1) @ windows + bias[:, None]).reshape(len(x), out, height, width)


@dataclass(frozen=True, eq=False)
class Rescaled:
    """x · multiplier / 2^shift, rounded to the nearest whole number (halves to the even one) and kept within bounds.

    Computed in 64-bit floats: the product is a whole number below 2^53, and the division by a power of 2 is exact too.

    Parameters
    ----------
    multiplier : int32 ``[channels]``, from 0 to 2^20.
    """

    kind: ClassVar[str] = "rescaled"
    multiplier: NDArray[np.int32]
    shift: int
    low: int
    most: int

    def after(self, given: Values) -> Values:
        multiplier, shift = self.multiplier, self.shift
        fits = multiplier.dtype == np.int32 and multiplier.shape == given.shape[:1]
        require(fits, "every channel of a layer is scaled by a 32-bit whole number")
        within = bool((multiplier >= 0).all() and (multiplier <= _LARGEST_MULTIPLIER).all())
        require(within and 1 <= shift <= 50, "a layer is scaled by whole numbers up to 2^20, and by 2^-50 at least")
        require(given.reach * int(multiplier.max()) < _DOUBLE, "what a layer scales stays below 2^53")
        require(-_SINGLE < self.low <= 0 <= self.most < _SINGLE, "a scaled layer gives numbers below 2^24")
        return Values(given.shape, self.low, self.most)

    def step(self, given: Values, device: str) -> Step:
        import torch

        factor = torch.tensor(self.multiplier * 0.5**self.shift, dtype=torch.float64, device=device)
        factor = factor.reshape(-1, *[1] * (len(given.shape) - 1))

        def scaled(x: "Tensor") -> "Tensor":
            found = torch.empty_like(x, dtype=torch.float32)
            for start in range(0, len(x), _IN_CACHE):
                part = slice(start, start + _IN_CACHE)
                found[part] = (x[part] * factor).round_().clamp_(self.low, self.most)
            return found

        return scaled


@dataclass(frozen=True)
class Largest:
    """The largest number of each window of an image."""

    kind: ClassVar[str] = "largest"
    window: int
    stride: int
    padding: int

    def after(self, given: Values) -> Values:
        require(len(given.shape) == 3, "windows are taken of images")
        shape = windows_of(given.shape, (self.window,) * 2, self.stride, self.padding)
        return replace(given, shape=(given.shape[0], *shape))

    def step(self, given: Values, device: str) -> Step:
        from torch.nn.functional import max_pool2d

        return lambda x: max_pool2d(x, self.window, self.stride, self.padding)


@dataclass(frozen=True)
class Parted:
    """An image cut into ``side`` × ``side`` parts of one size, which may overlap: largest number or sum of each."""

    kind: ClassVar[str] = "parted"
    side: int
    sums: int
    """1 for sums, 0 for the largest."""

    def after(self, given: Values) -> Values:
        require(len(given.shape) == 3 and 1 <= self.side <= min(given.shape[1:]), "an image has as many parts")
        require(self.sums in (0, 1), "parts are added up, or the largest number is taken")
        sizes = [{last - first for first, last in self.parts(length)} for length in given.shape[1:]]
        require(not self.sums or all(len(size) == 1 for size in sizes), "parts that are added up are of one size")
        size = int(np.prod([max(size) for size in sizes])) if self.sums else 1
        return Values((given.shape[0], self.side, self.side), given.low * size, given.most * size)

    def step(self, given: Values, device: str) -> Step:
        import torch

        channels, height, width = given.shape
        spans = [(rows, columns) for rows in self.parts(height) for columns in self.parts(width)]
        if not self.sums:

            def largest(x: "Tensor") -> "Tensor":
                parts = [x[:, :, slice(*rows), slice(*columns)].amax(dim=(2, 3)) for rows, columns in spans]
                return torch.stack(parts, dim=2).reshape(len(x), channels, self.side, self.side)

            return largest
        within = np.zeros((len(spans), height, width))
        for part, (rows, columns) in enumerate(spans):
            within[part, slice(*rows), slice(*columns)] = 1.0
        short = given.reach <= _SHORT and self.after(given).reach < _SINGLE
        chosen = torch.tensor(within, dtype=torch.float32 if short else torch.float64, device=device).flatten(1)

        def added(x: "Tensor") -> "Tensor":
            pixels = x.permute(0, 2, 3, 1).reshape(len(x), height * width, channels)
            return (chosen @ pixels.to(chosen.dtype)).transpose(1, 2).reshape(len(x), channels, self.side, self.side)

        return added

    def parts(self, length: int) -> list[tuple[int, int]]:
        """Where each part of a side begins and ends."""
        side = self.side
        return [(part * length // side, -(-(part + 1) * length // side)) for part in range(side)]


@dataclass(frozen=True)
class Flat:
    """An image as one row of numbers: channel by channel, row by row."""

    kind: ClassVar[str] = "flat"

    def after(self, given: Values) -> Values:
        size = int(np.prod(given.shape))
        require(size <= MAX_FEATURES, f"a flat layer has at most {MAX_FEATURES} numbers")
        return replace(given, shape=(size,))

    def step(self, given: Values, device: str) -> Step:
        return lambda x: x.flatten(1)


ARRAYS = ("weight", "bias", "multiplier")
"""What of a layer is an array; the rest are whole numbers."""
LAYERS: dict[str, type[Layer]] = {kind.kind: kind for kind in (Products, Rescaled, Largest, Parted, Flat)}
"""The layers of this package by the name that a file gives them."""
NETWORKS = "collegium.networks"
"""Where another installed package names its architectures; one may have a layer of its own, under the same name."""


def find_layer(kind: str) -> type[Layer]:
    """The layer that a file calls so; KeyError where there is none."""
    if kind not in LAYERS and kind in (others := installed(NETWORKS)).names:
        layer: type[Layer] | None = load_plugin(others[kind], f"the network {kind!r}").layer
        if layer is not None:
            return layer
    return LAYERS[kind]


def windows_of(shape: tuple[int, ...], window: tuple[int, ...], stride: int, padding: int) -> tuple[int, ...]:
    """How many windows there are along each side of an image; nothing for rows of numbers."""
    if not window:
        require(stride == 1 and padding == 0, "a product with a matrix has no windows")
        return ()
    require(1 <= stride <= _LARGEST_WINDOW, "windows are moved by 1 to 16 pixels")
    require(1 <= min(window) <= max(window) <= _LARGEST_WINDOW, "windows have sides of 1 to 16 pixels")
    require(0 <= padding <= min(window) // 2, "at most half a window lies outside an image")
    sides = tuple((side + 2 * padding - over) // stride + 1 for side, over in zip(shape[1:], window, strict=True))
    require(min(sides) >= 1, "an image is no smaller than a window")
    return sides
