"""A layer that describes an image by the small patches in it (Coates, Ng and Lee 2011; Coates and Ng 2011)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from collegium.models.whole_layers import Layer
from collegium_reproduction.students.patch_layer import (
    CODE_ONE,
    EASE_PIXELS,
    MULTIPLIER_SHIFT,
    SHOWN_ONE,
    SIDE,
    STRIDE,
    PatchLayer,
)

EASE = EASE_PIXELS / 255**2
"""Added to the variance of a patch, so that one without contrast stays small."""
_THRESHOLD = 0.5
_FLOOR = 1e-3
"""Added before the root, whose slope at 0 would magnify errors of rounding."""
_IMAGES_AT_ONCE = 16


class PatchCodes(nn.Module):
    """How strongly the patches of each quarter of an image show each of ``filters`` patterns, and the opposite of each.

    Takes ``[n, channels, height, width]`` in [0, 1]; gives ``[n, 8 · filters]``, roots of means over the quarters.
    A pattern's weights take the mean off a patch by themselves; the division by its deviation happens here.
    """

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.patterns = nn.Conv2d(channels, filters, SIDE, stride=STRIDE)

    def forward(self, x: Tensor) -> Tensor:
        # Few images at a time stay in the cache.
        return torch.cat([self._codes(part) for part in torch.split(x, _IMAGES_AT_ONCE)])

    def in_whole_numbers(self, unit: float) -> tuple[Layer, float]:
        """The layer of pixels, whose codes are in parts of 1/1024."""
        assert self.patterns.bias is not None and abs(255 * unit - 1.0) < 1e-9
        weight, bias = (values.double().cpu().numpy() for values in (self.patterns.weight, self.patterns.bias))
        steps = np.maximum(np.abs(weight).max(axis=(1, 2, 3)), 1e-9) / 127
        whole = np.rint(weight / steps[:, None, None, None]).astype(np.int8)
        factor = np.rint(steps * weight[0].size * SHOWN_ONE * 2.0**MULTIPLIER_SHIFT)
        offsets = np.clip(np.rint(bias * SHOWN_ONE), -(2**15), 2**15)
        return PatchLayer(whole, offsets.astype(np.int32), factor.astype(np.int32)), 1.0 / CODE_ONE

    def _codes(self, x: Tensor) -> Tensor:
        assert self.patterns.bias is not None
        mean = F.avg_pool2d(x, SIDE, STRIDE).mean(dim=1, keepdim=True)
        square = F.avg_pool2d(x * x, SIDE, STRIDE).mean(dim=1, keepdim=True)
        contrast = ((square - mean * mean).clamp_min(0.0) + EASE).rsqrt()
        shown = F.conv2d(x, self.patterns.weight, stride=STRIDE).mul_(contrast).add_(self.patterns.bias[:, None, None])
        both = [F.adaptive_avg_pool2d(F.relu(part - _THRESHOLD), 2) for part in (shown, -shown)]
        return torch.cat(both, dim=1).add_(_FLOOR).sqrt_().flatten(1)
