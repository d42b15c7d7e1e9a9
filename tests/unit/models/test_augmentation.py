"""Augmentation keeps an image's form, follows its generator and does nothing at strength zero."""

from __future__ import annotations

import pytest
import torch

from collegium.models.augmentation import STRONG, TEACHER, WEAK, Strength, augment


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("strength", [WEAK, TEACHER, STRONG])
@pytest.mark.parametrize("shape", [(5, 1, 28, 28), (3, 3, 8, 12)])
def test_a_change_keeps_the_form_and_repeats_with_its_generator(shape: tuple[int, ...], strength: Strength) -> None:
    images = torch.rand(shape, generator=generator(0))
    one = augment(images, strength, generator(1))
    assert one.shape == images.shape
    assert torch.equal(one, augment(images, strength, generator(1)))
    assert not torch.equal(one, augment(images, strength, generator(2)))
    assert one.min() >= 0 and one.max() <= 1


def test_strength_zero_is_the_image_itself() -> None:
    images = torch.rand((2, 1, 9, 9), generator=generator(0))
    still = augment(images, Strength(rotation_rad=0, scale=0, shear=0, shift=0), generator(1))
    assert torch.allclose(still, images, atol=1e-5)


def test_erasing_blanks_part_of_every_image_and_never_all_of_it() -> None:
    images = torch.ones((64, 1, 12, 12))
    erase = Strength(rotation_rad=0, scale=0, shear=0, shift=0, erase=1.0)
    blank = (augment(images, erase, generator(3)) < 0.5).float().mean(dim=(1, 2, 3))
    assert (blank > 0).all() and (blank < 0.25).all()
