"""Random small distortions of images, a whole batch in one resampling.

Every amount is a fraction of the image's side, so that 8 × 8 and 32 × 32 images bend alike. No flips:
a mirrored digit is another sign.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Distortion:
    """How far an image may be moved, turned, sized and bent; each amount is drawn per image."""

    shift: float = 0.07
    rotation_deg: float = 12.0
    scale: float = 0.12
    shear: float = 0.12
    elastic: float = 0.06
    elastic_cells: int = 4

    def __call__(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Distorted copies of ``images``, shape ``[n, c, h, w]``; the generator lives on the CPU."""
        n, _, height, width = images.shape
        drawn = torch.rand((n, 6), generator=generator) * 2 - 1
        angle = drawn[:, 0] * math.radians(self.rotation_deg)
        scale_x, scale_y = torch.exp(drawn[:, 1] * self.scale), torch.exp(drawn[:, 2] * self.scale)
        shear = drawn[:, 3] * self.shear
        cosine, sine = torch.cos(angle), torch.sin(angle)
        theta = torch.empty((n, 2, 3))
        theta[:, 0, 0] = cosine * scale_x
        theta[:, 0, 1] = (shear * cosine - sine) * scale_y
        theta[:, 1, 0] = sine * scale_x
        theta[:, 1, 1] = (shear * sine + cosine) * scale_y
        # Sampling coordinates span [-1, 1], so a shift by a fraction of the side is twice that.
        theta[:, :, 2] = drawn[:, 4:6] * (2 * self.shift)
        grid = F.affine_grid(theta, [n, 1, height, width], align_corners=False)
        if self.elastic:
            coarse = torch.rand((n, 2, self.elastic_cells, self.elastic_cells), generator=generator) * 2 - 1
            field = F.interpolate(coarse, size=(height, width), mode="bilinear", align_corners=True)
            grid = grid + field.permute(0, 2, 3, 1) * (2 * self.elastic)
        return F.grid_sample(images, grid.to(images.device), align_corners=False)
