"""Random changes of images that keep their class, drawn per image and applied to a whole batch at once.

Teachers and students use the same ones. Strengths are public constants: nothing here looks at data.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Strength:
    """How far an image may be changed. Angles in radians, lengths as fractions of half the image's side."""

    rotation_rad: float
    scale: float
    shear: float
    shift: float
    elastic: float = 0.0
    thickness: float = 0.0
    """Probability of a thicker or thinner stroke (single-channel images only)."""
    erase: float = 0.0
    """Probability of a blanked square, a third of the side wide."""


TEACHER = Strength(rotation_rad=0.26, scale=0.15, shear=0.15, shift=0.2, elastic=0.045)
"""For a network that sees a few hundred images."""
WEAK = Strength(rotation_rad=0.15, scale=0.1, shear=0.1, shift=0.1)
STRONG = Strength(rotation_rad=0.4, scale=0.2, shear=0.3, shift=0.15, elastic=0.06, thickness=0.4, erase=0.5)


def augment(images: Tensor, strength: Strength, generator: torch.Generator) -> Tensor:
    """A changed copy of ``images``, shape ``[n, channels, height, width]``, float in [0, 1].

    The generator may live on another device than the images.
    """
    changed = warp(images, strength, draw_warp(len(images), strength, generator))
    if strength.thickness and images.shape[1] == 1:
        changed = _vary_thickness(changed, strength.thickness, generator)
    if strength.erase:
        changed = _erase(changed, strength.erase, generator)
    return changed


def mirrored(images: Tensor, generator: torch.Generator) -> Tensor:
    """``images``, shape ``[n, channels, height, width]``; in about half of them left and right change places."""
    return torch.where(_draw(images, (len(images), 1, 1, 1), generator) < 0.5, images.flip(3), images)


@dataclass(frozen=True)
class Warp:
    """What was drawn to warp ``n`` images: ``uniform`` in [0, 1), shape ``[6, n]``; ``field``, ``[n, 2, 7, 7]``."""

    uniform: Tensor
    field: Tensor | None


def draw_warp(n: int, strength: Strength, generator: torch.Generator) -> Warp:
    """The draws for ``n`` images, on the generator's device."""
    device = generator.device
    uniform = torch.rand((6, n), generator=generator, device=device)
    return Warp(uniform, torch.randn((n, 2, 7, 7), generator=generator, device=device) if strength.elastic else None)


def warp(images: Tensor, strength: Strength, drawn: Warp) -> Tensor:
    """``images``, shape ``[n, channels, height, width]``, turned, stretched and shifted as drawn."""
    n = len(images)
    angle, scale_x, scale_y, shear, shift_x, shift_y = drawn.uniform.to(images) * 2 - 1
    angle = angle * strength.rotation_rad
    scale_x, scale_y = 1 + scale_x * strength.scale, 1 + scale_y * strength.scale
    cos, sin = torch.cos(angle), torch.sin(angle)
    matrix = images.new_zeros(n, 2, 3)
    matrix[:, 0, 0] = cos * scale_x
    matrix[:, 0, 1] = shear * strength.shear - sin * scale_y
    matrix[:, 1, 0] = sin * scale_x
    matrix[:, 1, 1] = cos * scale_y
    matrix[:, 0, 2] = shift_x * strength.shift
    matrix[:, 1, 2] = shift_y * strength.shift
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    if drawn.field is not None:
        field = drawn.field.to(images)
        smooth = F.interpolate(field, size=images.shape[-2:], mode="bicubic", align_corners=False)
        grid = grid + strength.elastic * smooth.permute(0, 2, 3, 1)
    return F.grid_sample(images, grid, align_corners=False)


def _draw(images: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Uniform in [0, 1), on the images' device."""
    return torch.rand(shape, generator=generator, device=generator.device).to(images)


def _vary_thickness(images: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    n = len(images)
    thick = F.max_pool2d(images, 3, 1, 1)
    thin = -F.max_pool2d(-images, 3, 1, 1)
    draw = _draw(images, (n, 1, 1, 1), generator)
    amount = _draw(images, (n, 1, 1, 1), generator)
    changed = torch.where(draw < probability * 0.6, torch.lerp(images, thick, amount), images)
    return torch.where(draw > 1 - probability * 0.4, torch.lerp(images, thin, 0.6 * amount), changed)


def _erase(images: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    n, _, height, width = images.shape

    def near_centre(size: int) -> Tensor:
        centre = _draw(images, (n, 1), generator) * size
        return (torch.arange(size, device=images.device) - centre).abs() < size / 6

    square = near_centre(height)[:, None, :, None] & near_centre(width)[:, None, None, :]
    chosen = _draw(images, (n, 1, 1, 1), generator) < probability
    return images.masked_fill(square & chosen, 0.0)
