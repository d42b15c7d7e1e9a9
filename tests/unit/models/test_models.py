"""Named networks and what they have learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from collegium.data.task import ImageInputs, NumberColumn, TableInputs, Task
from collegium.errors import ConfigurationError, StorageError
from collegium.models.networks import (
    build_network,
    find_architecture,
    network_inputs,
    network_names,
    put_weights,
    weights_of,
)


def images(height: int, width: int, channels: int, classes: int = 10) -> Task:
    names = tuple(f"class-{number}" for number in range(classes))
    return Task(classes=names, inputs=ImageInputs(height=height, width=width, channels=channels))


TABLE = Task(classes=("no", "yes"), inputs=TableInputs(columns=(NumberColumn(name="age", low=0, high=120),)))


@pytest.mark.parametrize("name", network_names())
@pytest.mark.parametrize("shape", [(8, 8, 1), (9, 31, 3), (28, 28, 1)])
def test_a_network_takes_images_of_any_size(name: str, shape: tuple[int, int, int]) -> None:
    x = np.random.default_rng(0).integers(0, 256, (4, *shape), dtype=np.uint8)
    logits = build_network(name, images(*shape, classes=3)).eval()(network_inputs(x))
    assert logits.shape == (4, 3)
    assert torch.isfinite(logits).all()


def shapes(network: torch.nn.Module) -> list[tuple[int, ...]]:
    """The weights' shapes, layer by layer."""
    return [tuple(value.shape) for name, value in network.state_dict().items() if name.endswith("weight")]


def test_the_papers_network_has_the_papers_filters() -> None:
    """Zhu et al. 2020, Table 4, names 64 and 128 filters of 5 × 5 for the network of Papernot et al. 2017."""
    mnist = shapes(build_network("paper-cnn", images(28, 28, 1)))
    assert mnist == [(64, 1, 5, 5), (128, 64, 5, 5), (384, 128 * 7 * 7), (10, 384)]
    assert shapes(build_network("paper-cnn", images(28, 28, 1), width=8))[0] == (8, 1, 5, 5)


def test_the_papers_network_for_svhn_has_two_more_hidden_layers() -> None:
    svhn = shapes(build_network("paper-cnn-svhn", images(32, 32, 3)))
    assert svhn == [(64, 3, 5, 5), (128, 64, 5, 5), (384, 128 * 8 * 8), (192, 384), (192, 192), (10, 192)]


def test_private_knns_network_is_table_5_of_its_appendix() -> None:
    *convolutions, first, second, output = shapes(build_network("private-knn-cnn", images(32, 32, 3)))
    assert [(shape[0], shape[2]) for shape in convolutions] == [(96, 3)] * 3 + [(192, 3)] * 3 + [(192, 5)]
    assert (first[0], second, output) == (192, (192, 192), (10, 192))


def test_images_become_channels_first_in_the_unit_interval() -> None:
    x = np.zeros((1, 8, 9, 3), np.uint8)
    x[0, 2, 5, 1] = 255
    tensor = network_inputs(x)
    assert tensor.shape == (1, 3, 8, 9)
    assert tensor[0, 1, 2, 5] == 1.0
    assert tensor.sum() == 1.0


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_tables_have_networks_too(name: str) -> None:
    x = np.zeros((5, 2), np.float32)
    assert build_network(name, TABLE)(network_inputs(x)).shape == (5, 2)


@pytest.mark.parametrize("name", network_names())
def test_weights_make_another_network_the_same(name: str) -> None:
    task = images(8, 10, 2)
    options: dict[str, Any] = {key: 8 for key in find_architecture(name).defaults if key in ("width", "hidden")}
    network, other = (build_network(name, task, **options).eval() for _ in range(2))
    put_weights(other, weights_of(network), "here")
    x = network_inputs(np.random.default_rng(0).integers(0, 256, (3, 8, 10, 2), dtype=np.uint8))
    with torch.no_grad():
        assert torch.equal(other(x), network(x))


@pytest.mark.parametrize(
    "weights",
    [
        {"1.weight": np.ones((2, 3), np.float32), "1.bias": np.ones(2, np.float32)},
        {"1.weight": np.ones((2, 2)), "1.bias": np.ones(2, np.float32)},
        {"1.bias": np.ones(2, np.float32)},
        {
            f"{n}.{part}": np.ones((2, 2)[: 2 - (part == "bias")], np.float32)
            for n in (1, 2)
            for part in ("weight", "bias")
        },
    ],
)
def test_other_weights_are_refused_and_none_of_them_taken(weights: dict[str, Any]) -> None:
    network = build_network("linear", TABLE)
    before = weights_of(network)
    with pytest.raises(StorageError, match="other weights"):
        put_weights(network, weights, "here")
    assert all((value == before[name]).all() for name, value in weights_of(network).items())


@pytest.mark.parametrize(
    ("name", "task", "options", "says"),
    [
        ("resnet", images(8, 8, 1), {}, "unknown network"),
        ("small-cnn", TABLE, {}, "needs images"),
        ("small-cnn", images(7, 8, 1), {}, "at least 8 × 8"),
        ("small-cnn", images(8, 8, 1), {"depth": 3}, "no option 'depth'"),
        ("small-cnn", images(8, 8, 1), {"width": "16"}, "type int"),
        ("small-cnn", images(8, 8, 1), {"width": True}, "type int"),
        ("small-cnn", images(8, 8, 1), {"width": 10**9}, "from 1 to"),
        ("mlp", TABLE, {"dropout": 1.0}, "below 1"),
        ("mlp", TABLE, {"dropout": float("nan")}, "below 1"),
    ],
)
def test_a_network_that_cannot_be_is_refused(name: str, task: Task, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        build_network(name, task, **options)
