"""`PatchCodes` in whole numbers: single operations on exact values, so that a record's codes depend on it alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.data.values import require
from collegium.models.whole_layers import Parted, Products, Values, windows_of

if TYPE_CHECKING:
    from torch import Tensor

SIDE = 6
"""Pixels along the side of a patch."""
STRIDE = 2
"""Pixels between neighbouring patches."""
EASE_PIXELS = 10
"""Added to the variance of a patch in 256 shades, so that one without contrast stays small."""
SHOWN_ONE = 256
"""What stands for 1 in how strongly a patch shows a pattern."""
CODE_ONE = 1024
"""What stands for 1 in a code."""
MULTIPLIER_SHIFT = 12
_MOST = 2**15
_THRESHOLD = SHOWN_ONE // 2
_FLOOR = 1e-3
_DOUBLE = 11


@dataclass(frozen=True, eq=False)
class PatchLayer:
    """What `PatchCodes` computes of pixels from 0 to 255, its codes in parts of 1/1024.

    Parameters
    ----------
    weight : int8 ``[filters, channels, 6, 6]``.
    bias : int32 ``[filters]``, in parts of 1/256.
    multiplier : int32 ``[filters]``: what products are multiplied by, in parts of 2^-12.
    """

    kind: ClassVar[str] = "patches"
    weight: NDArray[np.int8]
    bias: NDArray[np.int32]
    multiplier: NDArray[np.int32]

    def after(self, given: Values) -> Values:
        fits = self.weight.dtype == np.int8 and self.weight.shape[2:] == (SIDE, SIDE)
        require(fits, "patterns are of 6 × 6 whole numbers of 8 bits")
        require(given.low >= 0 and given.reach <= 255, "patches are of pixels")
        shown = self._products().after(given)
        fits = self.multiplier.dtype == np.int32 and self.multiplier.shape == self.bias.shape
        require(fits and bool((self.multiplier >= 0).all()), "every pattern is scaled by a 32-bit whole number")
        require(shown.reach * int(self.multiplier.max()) < 2**53, "what a layer scales stays below 2^53")
        require(bool((np.abs(self.bias.astype(np.int64)) <= _MOST).all()), "patterns have offsets up to 2^15")
        most = int(np.sqrt(_MOST * CODE_ONE**2 / SHOWN_ONE)) + CODE_ONE
        return Values((2 * len(self.weight) * 4,), 0, most)

    def step(self, given: Values, device: str) -> Callable[[Tensor], Tensor]:
        import torch
        from torch.nn.functional import avg_pool2d

        n = self.weight[0].size
        found = Values((len(self.weight), *windows_of(given.shape, (SIDE, SIDE), STRIDE, 0)), 0, _MOST)
        products, quarters = self._products().step(given, device), Parted(2, 1).step(found, device)
        each = Parted(2, 1).after(Values(found.shape, 0, 1)).most
        factor, bias = (
            torch.tensor(values, dtype=torch.float64, device=device).reshape(-1, 1, 1)
            for values in (self.multiplier * 0.5**MULTIPLIER_SHIFT, self.bias)
        )

        def codes(x: Tensor) -> Tensor:
            # Sums of at most 36 squares of 255 stay below 2^24.
            total, squares = (
                avg_pool2d(of, SIDE, STRIDE, divisor_override=1).double().sum(dim=1, keepdim=True) for of in (x, x * x)
            )
            deviation = (squares * n - total * total + n * n * EASE_PIXELS).sqrt()
            shown = ((products(x) * factor) / deviation).round_().add_(bias).clamp_(-_MOST, _MOST)
            both = [quarters((part - _THRESHOLD).clamp_(min=0.0)) for part in (shown, -shown)]
            means = torch.cat(both, dim=1).double().flatten(1) * (CODE_ONE**2 // SHOWN_ONE) / each
            return (means + _FLOOR * CODE_ONE**2).sqrt_().round_().float()

        return codes

    def nodes(self, given: Values, graph: Any, x: str) -> str:
        """What collegium-onnx asks for."""
        from collegium_onnx.networks import nodes_of

        def do(operator: str, *inputs: Any, **attributes: Any) -> str:
            names = [value if isinstance(value, str) else graph.constant(value) for value in inputs]
            return str(graph.add(operator, *names, **attributes))

        n, shape = self.weight[0].size, windows_of(given.shape, (SIDE, SIDE), STRIDE, 0)
        found = Values((len(self.weight), *shape), 0, _MOST)
        sums = []
        for of in (x, do("Mul", x, x)):
            mean = do("AveragePool", of, kernel_shape=[SIDE] * 2, strides=[STRIDE] * 2)
            whole = do("Round", do("Mul", mean, np.float32(SIDE**2)))
            sums.append(do("Cast", do("ReduceSum", whole, np.array([1]), keepdims=1), to=_DOUBLE))
        spread = do("Sub", do("Mul", sums[1], float(n)), do("Mul", sums[0], sums[0]))
        deviation = do("Sqrt", do("Add", spread, float(n * n * EASE_PIXELS)))
        factor = (self.multiplier * 0.5**MULTIPLIER_SHIFT).reshape(-1, 1, 1)
        products = do("Cast", nodes_of(self._products(), given, graph, x), to=_DOUBLE)
        shown = do("Round", do("Div", do("Mul", products, factor), deviation))
        shown = do("Add", shown, self.bias.astype(np.float64).reshape(-1, 1, 1))
        both = []
        for part in (shown, do("Neg", shown)):
            above = do("Max", do("Sub", do("Clip", part, float(-_MOST), float(_MOST)), float(_THRESHOLD)), 0.0)
            both.append(nodes_of(Parted(2, 1), found, graph, above))
        each = Parted(2, 1).after(Values(found.shape, 0, 1)).most
        means = do("Mul", do("Flatten", do("Concat", *both, axis=1), axis=1), CODE_ONE**2 / SHOWN_ONE / each)
        return do("Cast", do("Round", do("Sqrt", do("Add", means, _FLOOR * CODE_ONE**2))), to=1)

    def _products(self) -> Products:
        return Products(self.weight, np.zeros(len(self.weight), dtype=np.int32), STRIDE, 0)
