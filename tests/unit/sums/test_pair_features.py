"""Features of a second round of class sums: those of a pair of networks that a coordinator may choose at will."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from support.liar_networks import follow_company, largest, most_moved, ordinary
from support.sums_scene import lengths_left
from torch import nn

from collegium.data import Examples
from collegium.data.task import ImageInputs, Task
from collegium.models.features import Features, extract
from collegium.models.kernels import KernelMap, KernelSpec
from collegium.models.networks import build_network, network_inputs
from collegium.models.quantising import quantised
from collegium.models.whole_layers import ONE as WHOLE_ONE

TASK = Task(classes=("a", "b", "c"), inputs=ImageInputs(height=8, width=8))
POOL = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), dtype=np.uint8)
RECORDS = Examples(POOL[20:], np.random.default_rng(1).integers(0, 3, 20))


def networks() -> list[nn.Module]:
    """Two networks with random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return [build_network("student-cnn", TASK, width=4).eval() for _ in range(2)]


def pair() -> bytes:
    """The file of both, in whole numbers."""
    return quantised(networks(), TASK, network_inputs(POOL)).to_bytes()


def moved(network: bytes) -> float:
    """The most that a record which comes or goes moves the sum, in parts of Δ."""
    spec = KernelSpec(Features("network", network=network), tuple(range(8)), 2000**2)
    kernel = KernelMap.of_pool(spec, POOL, TASK.inputs)
    return most_moved(kernel, RECORDS, TASK, (1, 2, 7, 20))


def test_features_of_a_pair_are_its_last_layers_and_its_classes_at_length_one() -> None:
    features = extract(Features("network", network=pair()), POOL, TASK.inputs) / WHOLE_ONE
    images, members = network_inputs(POOL), networks()
    with torch.no_grad():
        inside = [member[:-1](images).numpy() for member in members]  # type: ignore[index]
        shares = sum(torch.softmax(member(images), dim=1) for member in members).numpy() / 2
    told = np.log(np.maximum(shares, 1e-4))
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)  # noqa: E731
    u, v = unit(np.hstack([unit(one) for one in inside])), unit(told - told.mean(axis=1, keepdims=True))
    assert np.abs(features - unit(np.hstack([u, v / 2]))).max() < 0.03
    assert np.abs(np.linalg.norm(features, axis=1) - 1).max() < 1e-3


@pytest.mark.parametrize("made", [pair, lambda: ordinary(TASK), lambda: largest(TASK)])
def test_no_record_moves_a_second_sum_further_whatever_the_networks(made: Callable[[], bytes]) -> None:
    assert 0.1 < moved(made()) <= 1.0


@pytest.mark.parametrize("planted", [lengths_left, follow_company])
def test_the_check_catches_a_planted_bug(monkeypatch: pytest.MonkeyPatch, planted: Callable[..., None]) -> None:
    planted(monkeypatch)
    assert moved(pair()) > 1.0
