"""What small patches of the public pool teach without a label: seconds on one core, where contrast takes minutes.

A dictionary of whitened patches (Coates and Ng 2011: how it is used matters more than how it is learned), and behind it
the principal components of the codes of the pool's images.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from torch import Tensor, nn

from collegium.data.task import Task
from collegium.models.networks import Architecture, image_shape, network_inputs
from collegium_reproduction.students.patch_codes import EASE, PatchCodes
from collegium_reproduction.students.patch_layer import SIDE, PatchLayer

ARCHITECTURE = "patches"

_PATCHES = 100_000
_PATCHES_AN_IMAGE = 100
"""At most, of a small pool."""
_PASSES = 10
_IMAGES = 5000
"""Of the pool, whose codes give the principal components; more change little."""
_AT_ONCE = 512
_WHITENING = 0.1
"""Added to the variances of patches of contrast 1, of which the smallest are noise."""


def learn_patches(network: nn.Module, pool: NDArray[Any], seed: int, *, whiten: bool) -> None:
    """Give ``network``, of the architecture `ARCHITECTURE`, features that the pool ``[inputs, …]`` alone teaches.

    Where the pool has fewer principal components than the network keeps, the rest are 0. The last layer is left alone.

    Parameters
    ----------
    whiten : whether each component is brought to variance 1 over the pool, as neighbours want it.
    """
    codes, components = list(network.children())[:2]
    assert isinstance(codes, PatchCodes) and isinstance(components, nn.Linear)
    device, draws = components.weight.device, np.random.default_rng(seed)
    with torch.no_grad():
        patterns = codes.patterns
        weights, offsets = _dictionary(_normalised_patches(pool, draws), patterns.out_channels, draws)
        patterns.weight.copy_(weights.view_as(patterns.weight))
        patterns.bias.copy_(offsets)  # type: ignore[union-attr]
        some = network_inputs(pool[np.sort(draws.permutation(len(pool))[:_IMAGES])])
        seen = torch.cat([codes(part.to(device)).cpu() for part in torch.split(some, _AT_ONCE)]).numpy()
        weight, bias = _principal_components(seen, components.out_features, seed, whiten)
        components.weight.copy_(torch.from_numpy(weight))
        components.bias.copy_(torch.from_numpy(bias))


def _build(task: Task, width: int, hidden: int) -> nn.Module:
    channels, _, _ = image_shape(task)
    last = nn.Linear(hidden, len(task.classes))
    return nn.Sequential(PatchCodes(channels, width), nn.Linear(8 * width, hidden), last)


NETWORK = Architecture(_build, "image", {"width": 400, "hidden": 128}, partial(learn_patches, whiten=True), PatchLayer)
"""Codes of small patches, projected; the pretraining ``network = "patches"``."""


def _normalised_patches(pool: NDArray[Any], draws: np.random.Generator) -> Tensor:
    """Patches at random places, shape ``[n, channels · side²]``, each of mean 0 and of deviation nearly 1."""
    height, width = pool.shape[1:3]
    count = min(_PATCHES, _PATCHES_AN_IMAGE * len(pool))
    images = draws.integers(len(pool), size=count)
    rows, columns = draws.integers(height - SIDE + 1, size=count), draws.integers(width - SIDE + 1, size=count)
    windows = np.lib.stride_tricks.sliding_window_view(pool, (SIDE, SIDE), axis=(1, 2))
    patches = torch.from_numpy(windows[images, rows, columns].reshape(count, -1)).float() / 255
    patches -= patches.mean(dim=1, keepdim=True)
    return patches / (patches.square().mean(dim=1, keepdim=True) + EASE).sqrt()


def _dictionary(patches: Tensor, filters: int, draws: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Weights ``[filters, d]`` and offsets of patterns, for patches whose mean is still to be taken off.

    Patterns are unit vectors among whitened patches, each the mean direction, up to its sign, of the patches that
    show it most (Coates and Ng 2011: orthogonal matching pursuit with one pattern).
    """
    mean = patches.mean(dim=0)
    variances, axes = torch.linalg.eigh(torch.cov(patches.T).double())
    whitener = ((axes * (variances.clamp_min(0.0) + _WHITENING).rsqrt()) @ axes.T).float()
    white = (patches - mean) @ whitener
    patterns = F.normalize(white[torch.from_numpy(draws.integers(len(white), size=filters))], dim=1)
    for _ in range(_PASSES):
        summed = torch.zeros_like(patterns)
        for part in torch.split(white, 10_000):
            shown = part @ patterns.T
            most = shown.abs().argmax(dim=1)
            summed.index_add_(0, most, part * shown.gather(1, most[:, None]).sign())
        unseen = summed.norm(dim=1, keepdim=True) < 1e-6
        patterns = F.normalize(torch.where(unseen, patterns, summed), dim=1)
    weights = patterns @ whitener
    return weights - weights.mean(dim=1, keepdim=True), -(weights @ mean)


def _principal_components(
    codes: NDArray[np.float32], kept: int, seed: int, whiten: bool
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weight ``[kept, d]`` and bias that turn codes, each brought to variance 1, into principal components."""
    mean, spread = codes.mean(axis=0), codes.std(axis=0)
    scale = 1.0 / (spread + 1e-3 * spread.mean() + 1e-9)
    most = min(kept, *(size - 1 for size in codes.shape))
    found = PCA(most, svd_solver="randomized", iterated_power=2, random_state=seed).fit((codes - mean) * scale)
    lengths = np.sqrt(np.maximum(found.explained_variance_, 1e-9))[:, None] if whiten else 1.0
    weight = np.zeros((kept, codes.shape[1]), dtype=np.float32)
    weight[:most] = found.components_ / lengths * scale
    return weight, -weight @ mean
