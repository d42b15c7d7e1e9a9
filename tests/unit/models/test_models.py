"""Named networks and their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from collegium.data.task import ImageInputs, NumberColumn, TableInputs, Task
from collegium.errors import CollegiumError, ConfigurationError, DataError, StorageError
from collegium.models.networks import (
    build_network,
    find_architecture,
    load_network,
    network_inputs,
    network_names,
    save_network,
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
def test_a_saved_network_comes_back_the_same(name: str, tmp_path: Path) -> None:
    task = images(8, 10, 2)
    options: dict[str, Any] = {key: 8 for key in find_architecture(name).defaults if key in ("width", "hidden")}
    network = build_network(name, task, **options).eval()
    path = tmp_path / "network.safetensors"
    save_network(path, network, name, task, **options)
    saved = load_network(path)
    assert (saved.architecture, saved.task, saved.options) == (name, task, options)
    assert not saved.network.training
    x = network_inputs(np.random.default_rng(0).integers(0, 256, (3, 8, 10, 2), dtype=np.uint8))
    with torch.no_grad():
        assert torch.equal(saved.network(x), network(x))


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


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "network.safetensors"
    save_network(path, build_network("linear", TABLE), "linear", TABLE)
    return path


def rewrite(path: Path, tensors: dict[str, torch.Tensor] | None = None, **metadata: Any) -> None:
    good = {"architecture": "linear", "task": TABLE.model_dump(mode="json"), "options": {}}
    made_of = {"collegium-network-1": json.dumps(good | metadata)}
    save_file(load_file(path) if tensors is None else tensors, path, metadata=made_of)


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"\xff" * 100])
def test_a_file_of_something_else_is_a_storage_error(saved: Path, content: bytes) -> None:
    saved.write_bytes(content)
    with pytest.raises(StorageError, match="cannot be read as a network"):
        load_network(saved)


def test_every_cut_of_a_file_is_a_typed_error(saved: Path) -> None:
    whole = saved.read_bytes()
    for length in range(0, len(whole), 7):
        saved.write_bytes(whole[:length])
        with pytest.raises(CollegiumError):
            load_network(saved)


@pytest.mark.parametrize("said", ["no json", "[]", "3"])
def test_another_format_is_a_storage_error(saved: Path, said: str) -> None:
    save_file(load_file(saved), saved, metadata={"collegium-network-1": said})
    with pytest.raises(StorageError, match="cannot be built"):
        load_network(saved)
    save_file(load_file(saved), saved, metadata={"format": "pt"})
    with pytest.raises(StorageError, match="no network that this version"):
        load_network(saved)


def test_equal_networks_give_equal_files(tmp_path: Path) -> None:
    network = build_network("mlp", TABLE, hidden=4)
    files = [tmp_path / f"{number}.safetensors" for number in range(5)]
    for file in files:
        save_network(file, network, "mlp", TABLE, hidden=4)
    assert len({file.read_bytes() for file in files}) == 1


def test_a_missing_file_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        load_network(tmp_path / "absent.safetensors")


@pytest.mark.parametrize(
    "metadata",
    [
        {"architecture": "resnet"},
        {"architecture": "small-cnn"},
        {"architecture": ["linear"]},
        {"task": {}},
        {"task": None},
        {"options": "no options"},
        {"options": [1]},
        {"options": {"width": 3}},
    ],
)
def test_metadata_that_name_no_network_are_a_storage_error(saved: Path, metadata: dict[str, Any]) -> None:
    rewrite(saved, **metadata)
    with pytest.raises(StorageError):
        load_network(saved)


@pytest.mark.parametrize(
    "tensors",
    [
        {"1.weight": torch.zeros(2, 3), "1.bias": torch.zeros(2)},
        {"1.weight": torch.zeros(2, 2, dtype=torch.float64), "1.bias": torch.zeros(2)},
        {"1.weight": torch.zeros(2, 2)},
        {"1.weight": torch.zeros(2, 2), "1.bias": torch.zeros(2), "2.bias": torch.zeros(2)},
    ],
)
def test_weights_of_other_shapes_are_a_data_error(saved: Path, tensors: dict[str, torch.Tensor]) -> None:
    rewrite(saved, tensors)
    with pytest.raises(DataError, match="do not fit"):
        load_network(saved)


def test_a_network_that_claims_to_be_huge_allocates_nothing(saved: Path) -> None:
    """The mlp asked for would take 150 GB; the file is refused by its shapes alone."""
    huge = images(4096, 4096, 4)
    rewrite(saved, architecture="mlp", task=huge.model_dump(mode="json"), options={"hidden": 4096})
    with pytest.raises(DataError):
        load_network(saved)


def test_saving_to_a_folder_that_is_not_there_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot write"):
        save_network(tmp_path / "absent" / "n.safetensors", build_network("linear", TABLE), "linear", TABLE)
