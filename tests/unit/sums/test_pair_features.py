"""Features of a second round of class sums: those of a pair of networks that a coordinator may choose at will."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from collegium.data import Examples
from collegium.data.task import ImageInputs, Task
from collegium.errors import DataError
from collegium.models import network_features
from collegium.models.features import Features, extract
from collegium.models.kernels import KernelMap, KernelSpec
from collegium.models.networks import build_network, network_bytes, network_inputs
from collegium.parties.kinds.class_sums import RecordsOfClasses
from collegium_accounting.mechanisms.class_sums import bound_squared

TASK = Task(classes=("a", "b", "c"), inputs=ImageInputs(height=8, width=8))
POOL = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), dtype=np.uint8)
RECORDS = Examples(POOL[20:], np.random.default_rng(1).integers(0, 3, 20))


def pair(times: float = 1.0, weight: float | None = None) -> bytes:
    """The file of a pair with random weights, all of them multiplied, and one of them replaced."""
    torch.manual_seed(0)
    network = build_network("student-cnn-pair", TASK, width=4)
    with torch.no_grad():
        for values in network.parameters():
            values.mul_(times)
        if weight is not None:
            next(network.parameters())[0, 0, 0, 0] = weight
    return network_bytes(network, "student-cnn-pair", TASK, width=4)


def moved(network: bytes) -> float:
    """The most that a record which comes or goes moves the sum, in parts of Δ."""
    spec = KernelSpec(Features("network", network=network), tuple(range(8)), 2000**2)
    kernel = KernelMap.of_pool(spec, POOL, TASK.inputs)

    def by(count: int) -> float:
        more, less = (RecordsOfClasses(RECORDS.take(np.arange(first, count)), TASK).sums(kernel) for first in (0, 1))
        return float(np.linalg.norm((more - less).astype(np.float64))) / math.sqrt(bound_squared(3))

    return max(map(by, (1, 2, 7, 20)))


def test_features_of_a_pair_are_its_last_layers_and_its_classes_at_length_one() -> None:
    features = extract(Features("network", network=pair()), POOL, TASK.inputs) / network_features.ONE
    torch.manual_seed(0)
    network = build_network("student-cnn-pair", TASK, width=4).eval()
    images = network_inputs(POOL)
    with torch.no_grad():
        inside = [member[:-1](images).numpy() for member in network.members]  # type: ignore[union-attr,operator]
        told = np.maximum(network(images).numpy(), np.log(1e-4))
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)  # noqa: E731
    u, v = unit(np.hstack([unit(one) for one in inside])), unit(told - told.mean(axis=1, keepdims=True))
    assert np.abs(features - unit(np.hstack([u, v / 2]))).max() < 2 / network_features.ONE


@pytest.mark.parametrize("times", [1.0, 0.0, 1e12, 1e30])
def test_no_record_moves_a_second_sum_further_whatever_the_pair(times: float) -> None:
    """With huge weights numbers overflow: what is not finite counts as 0. With none, all records look alike."""
    assert 0.1 < moved(pair(times)) <= 1.0


def test_a_pair_with_weights_that_are_not_finite_is_refused() -> None:
    for weight in (math.inf, math.nan):
        with pytest.raises(DataError, match="not all finite"):
            moved(pair(weight=weight))


def lengths_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collegium.models.kernels.of_length", lambda vectors, most_squared: vectors)


def normalised_by_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch normalisation by the records at hand, all in one block: a record decides the features of the others."""

    def of_block(function: Callable[[Any], Any], x: np.ndarray, width: int) -> np.ndarray:
        encoder = network_features.encoder_in(pair())[0].train()
        raw = encoder(network_inputs(x).double()).detach().numpy()
        encoder.eval()
        return np.asarray(np.floor(raw / np.linalg.norm(raw, axis=1, keepdims=True) * network_features.ONE))

    monkeypatch.setattr(network_features, "each_alone", of_block)


@pytest.mark.parametrize("planted", [lengths_left, normalised_by_the_records])
def test_the_check_catches_a_planted_bug(monkeypatch: pytest.MonkeyPatch, planted: Callable[..., None]) -> None:
    planted(monkeypatch)
    assert moved(pair()) > 1.0
