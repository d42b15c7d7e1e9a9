"""Networks in whole numbers: exact in any block and on any processor, near to floating point, safe to read."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save
from torch import nn

from collegium.data import DataSource, default_task
from collegium.data import load as load_data
from collegium.data.several_labels import held_in
from collegium.data.task import ImageInputs, Task, VectorInputs
from collegium.errors import CollegiumError, ConfigurationError, DataError, ProtocolViolation, StorageError
from collegium.models.networks import FittedNetwork, build_network, network_inputs
from collegium.models.quantising import quantised
from collegium.models.training import Learner, train
from collegium.models.whole_layers import LOGIT_ONE, Flat, Largest, Layer, Parted, Products, Rescaled, Values, convolved
from collegium.models.whole_networks import (
    EXPONENTIALS,
    FORMAT,
    LOGARITHMS,
    WholeNetwork,
    read_whole_network,
)

IMAGES = Task(classes=("a", "b", "c"), inputs=ImageInputs(height=13, width=15, channels=2))
VECTORS = Task(classes=("a", "b", "c"), inputs=VectorInputs(size=300))
X = np.random.default_rng(0).integers(0, 256, (520, 13, 15, 2), dtype=np.uint8)
V = np.random.default_rng(1).normal(size=(520, 300)).astype(np.float32)
SETTINGS = (
    {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "SSE41", "OPENBLAS_CORETYPE": "Haswell"},
    {"ONEDNN_DEFAULT_FPMATH_MODE": "ANY", "MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "2"},
)
"""Of each library, in as few processes as there can be: a bit that one of them changes is seen beside the others."""


def trained_a_little(task: Task, x: np.ndarray, name: str, **options: Any) -> nn.Module:
    """A network whose batch normalisation has seen something, with weights that make classes differ."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build_network(name, task, **options).train()
        network(network_inputs(x[:64]))
        with torch.no_grad():
            list(network.children())[-1].weight.mul_(8.0)
    return network.eval()


def images() -> WholeNetwork:
    pair = [trained_a_little(IMAGES, X, "student-cnn", width=width) for width in (8, 12)]
    return quantised(pair, IMAGES, network_inputs(X))


def vectors() -> WholeNetwork:
    return quantised([trained_a_little(VECTORS, V, "mlp", hidden=40)], VECTORS, network_inputs(V))


CASES = {"images": (images, X), "vectors": (vectors, V)}


def said(network: WholeNetwork, x: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and probabilities, by blocks."""
    parts = [x[start : start + block] for start in range(0, len(x), block)]
    return tuple(np.concatenate([of(part) for part in parts]) for of in (network.features, network.probabilities))


def digest(network: WholeNetwork, x: np.ndarray) -> str:
    return hashlib.sha256(network.features(x).tobytes() + network.probabilities(x).tobytes()).hexdigest()


@pytest.mark.bits
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("block", [1, 7, 512])
def test_a_record_has_the_same_features_and_classes_in_any_block(case: str, block: int) -> None:
    made, x = CASES[case]
    network, x = made(), x if block > 1 else x[:70]
    for found, together in zip(said(network, x, block), said(network, x, len(x)), strict=True):
        assert len(np.unique(together, axis=0)) > 60
        assert found.tobytes() == together.tobytes()


CODE = """
import hashlib
import sys
import numpy as np
from pathlib import Path
from collegium.models.whole_networks import read_whole_network
for file in sys.argv[1:]:
    network, x = read_whole_network(Path(file).read_bytes(), "test"), np.load(file + ".npy")
    print(hashlib.sha256(network.features(x).tobytes() + network.probabilities(x).tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_every_processor_setting_gives_the_same_bits(tmp_path: Path) -> None:
    files, here = [], []
    for case, (made, x) in CASES.items():
        files.append(tmp_path / case)
        made().save(files[-1])
        np.save(f"{files[-1]}.npy", x[:60])
        here.append(digest(made(), x[:60]))
    path = os.pathsep.join(sys.path)
    for settings in SETTINGS:
        environment = os.environ | {"PYTHONPATH": path} | settings
        command = [sys.executable, "-c", CODE, *map(str, files)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.split() == here, settings


@pytest.mark.bits
def test_convolutions_on_a_cpu_are_told_to_add_up_products(tmp_path: Path) -> None:
    """oneDNN's own word: no algorithm by transforms."""
    images().save(tmp_path / "network")
    np.save(tmp_path / "x.npy", X[:100])
    code = (
        "import sys\nimport numpy as np\nfrom pathlib import Path\n"
        "from collegium.models.whole_networks import read_whole_network\n"
        "network, x = read_whole_network(Path(sys.argv[1]).read_bytes(), 'test'), np.load(sys.argv[2])\n"
        "[network.features(x[:n]) for n in (1, 100)]"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "ONEDNN_VERBOSE": "1"}
    command = [sys.executable, "-c", code, str(tmp_path / "network"), str(tmp_path / "x.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    convolutions = [line for line in done.stdout.splitlines() if ",convolution," in line and ",exec," in line]
    assert len(convolutions) >= 12
    assert all("alg:convolution_direct" in line and "wino" not in line for line in convolutions)


def without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, and on processors without oneDNN."""
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)


def test_a_gpus_way_to_convolve_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    file, here = images().to_bytes(), digest(images(), X[:100])
    without_onednn(monkeypatch)
    assert digest(read_whole_network(file, "test"), X[:100]) == here


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_gives_the_same_bits(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever precision a program asks of the GPU."""
    made, x = CASES[case]
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    assert digest(made().on("cuda"), x) == digest(made(), x)


def test_weights_that_are_no_whole_numbers_would_be_told_apart() -> None:
    """What the tests above compare does differ where sums are not exact."""
    draws = np.random.default_rng(2)
    weight = torch.tensor(draws.normal(size=(24, 8, 3, 3)), dtype=torch.float32)
    x, bias = torch.tensor(draws.normal(size=(20, 8, 14, 14)), dtype=torch.float32), torch.zeros(24)
    one = torch.mkldnn_convolution(x, weight, bias, [1, 1], [1, 1], [1, 1], 1)
    assert not torch.equal(one, convolved(x, weight, bias, 1, 1))
    whole, pixels = (weight * 40).round().clamp(-127, 127), (x.abs() * 80).round().clamp(0, 255)
    one = torch.mkldnn_convolution(pixels, whole, bias, [1, 1], [1, 1], [1, 1], 1)
    assert torch.equal(one, convolved(pixels, whole, bias, 1, 1))


def by_hand(layer: Layer, x: np.ndarray) -> np.ndarray:
    """What a layer gives, in Python's and NumPy's 64-bit whole numbers."""
    if isinstance(layer, Products):
        weight, bias = layer.weight.astype(np.int64), layer.bias.astype(np.int64)
        if weight.ndim == 2:
            return x @ weight.T + bias
        padding, window = layer.padding, weight.shape[2:]
        padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, window, axis=(2, 3))
        windows = windows[:, :, :: layer.stride, :: layer.stride]
        return np.einsum("nihwab,oiab->nohw", windows, weight) + bias[:, None, None]
    if isinstance(layer, Rescaled):
        multiplier = layer.multiplier.astype(object).reshape(-1, *[1] * (x.ndim - 2))
        doubled = x.astype(object) * multiplier * 2  # twice the number, in parts of 2^-shift
        half = 2**layer.shift
        down, rest = doubled // (2 * half), doubled % (2 * half)
        up = (rest > half) | ((rest == half) & (down % 2 == 1))
        return np.clip((down + up).astype(np.int64), layer.low, layer.most)
    if isinstance(layer, Largest):
        sides = ((layer.padding, layer.padding),) * 2
        padded = np.pad(x, ((0, 0), (0, 0), *sides), constant_values=np.iinfo(np.int64).min)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (layer.window,) * 2, axis=(2, 3))
        return windows[:, :, :: layer.stride, :: layer.stride].max(axis=(4, 5))
    if isinstance(layer, Parted):
        height, width, side = *x.shape[2:], layer.side
        cut = lambda i, length: slice(i * length // side, -(-(i + 1) * length // side))  # noqa: E731
        taken = np.sum if layer.sums else np.max
        rows = [[taken(x[:, :, cut(i, height), cut(j, width)], axis=(2, 3)) for j in range(side)] for i in range(side)]
        return np.moveaxis(np.array(rows), (0, 1), (2, 3))
    assert isinstance(layer, Flat)
    return x.reshape(len(x), -1)


def extreme(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).choice(np.array([-127, 127], dtype=np.int8), shape)


DRAWN = np.random.default_rng(4).integers(-127, 128, (6, 500, 5, 5)).astype(np.int8)
LAYERS = [
    (Products(extreme(9, 4, 5, 5), np.full(9, 2**20, np.int32), 1, 2), (4, 11, 9), 255),
    (Products(DRAWN, np.zeros(6, np.int32), 1, 2), (500, 7, 7), 255),  # beyond 32 bits
    (Products(DRAWN[:, :3], np.arange(6, dtype=np.int32), 2, 1), (3, 12, 9), 65_535),
    (Products(extreme(5, 3000), np.zeros(5, np.int32)), (3000,), 65_535),
    (Rescaled(np.array([1, 2**20, 12_345], np.int32), 13, -300, 2000), (3, 4, 5), 2**24 - 1),
    (Rescaled(np.array([1, 3], np.int32), 1, -(2**20), 2**20), (2,), 2**10),
    (Largest(3, 2, 1), (3, 9, 8), 255),
    (Parted(2, 1), (3, 7, 8), 65_535),
    (Parted(3, 0), (3, 8, 7), 255),
    (Flat(), (3, 4, 5), 255),
]


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("number", range(len(LAYERS)))
def test_a_layer_is_what_whole_numbers_say(number: int, onednn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, shape, most = LAYERS[number]
    if not onednn:
        without_onednn(monkeypatch)
    draws, low = np.random.default_rng(5), -most if isinstance(layer, Rescaled) else 0
    x = draws.integers(low, most + 1, (3, *shape))
    x[0] = most
    given = Values(shape, low, most)
    found, after = layer.step(given, "cpu")(torch.tensor(x, dtype=torch.float32)).numpy(), layer.after(given)
    expected = by_hand(layer, x)
    assert found.shape[1:] == after.shape
    assert np.array_equal(found.astype(np.int64), expected) and np.array_equal(found, np.rint(found))
    assert after.low <= expected.min() and expected.max() <= after.most


def test_tables_of_exponentials_and_logarithms_are_the_same_everywhere() -> None:
    """No entry is so near to a half that the last bit of a library's function could round it another way."""
    exact = 2.0**20 * np.exp(-np.arange(len(EXPONENTIALS)) / LOGIT_ONE)
    logarithms = 256.0 * np.log(np.maximum(np.arange(len(LOGARITHMS)), 7) / 2**16)
    for values in (exact, logarithms):
        assert np.abs(np.abs(values - np.floor(values)) - 0.5).min() > 1e-8
    assert EXPONENTIALS[0] == 2**20 and EXPONENTIALS.min() == 1.0 and LOGARITHMS[-1] == 0.0


@pytest.mark.bits
def test_digits_are_told_as_by_floating_point() -> None:
    """600 digits that no network saw: at most one is told another way, which is less than 0.2 points."""
    task = default_task("digits")
    digits = load_data(DataSource(source="digits", split="all", shuffle_seed=0), task, data_root=None)
    x, y, draws = (
        network_inputs(digits.x[:1000]),
        torch.tensor(digits.labels()[:1000]),
        torch.Generator().manual_seed(0),
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build_network("student-cnn", task, width=8)

    def loss(step: int) -> torch.Tensor:
        chosen = torch.randint(1000, (64,), generator=draws)
        return nn.functional.cross_entropy(network(x[chosen]), y[chosen])

    train(loss, Learner.one_cycle(network.parameters(), 150, 1e-2), 150)
    held, truth = digits.x[1000:1600], digits.labels()[1000:1600]
    plain = FittedNetwork(task, network, "cpu")
    expected, found = plain.probabilities(held), plain.published(digits.x[:300]).probabilities(held)
    assert (expected.argmax(axis=1) == truth).mean() > 0.9
    assert (found.argmax(axis=1) != expected.argmax(axis=1)).sum() <= 1
    assert np.abs(found - expected).mean() < 0.005


def test_several_labels_are_told_as_by_floating_point() -> None:
    task = VECTORS.model_copy(update={"multilabel": True})
    network = trained_a_little(task, V, "mlp", hidden=40)
    whole = quantised([network], task, network_inputs(V))
    expected = FittedNetwork(task, network, "cpu").probabilities(V)
    assert np.ptp(expected) > 0.5 and np.abs(whole.probabilities(V) - expected).max() < 0.02
    assert ((held_in(whole.predict(V), 3) == 1) == (whole.probabilities(V) >= 0.5)).all()


def test_a_layer_without_a_form_in_whole_numbers_is_refused() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(300, 4), nn.Sigmoid(), nn.Linear(4, 3))
    with pytest.raises(ConfigurationError, match="no layer Sigmoid: build it of"):
        quantised([network], VECTORS, network_inputs(V))


def test_a_file_comes_back_the_same_and_equal_networks_give_equal_files() -> None:
    for made, x in CASES.values():
        network = made()
        again = read_whole_network(network.to_bytes(), "test")
        assert again.to_bytes() == network.to_bytes() == made().to_bytes()
        assert digest(again, x[:50]) == digest(network, x[:50])


def rewritten(change: Callable[[dict[str, np.ndarray], dict[str, Any]], object]) -> bytes:
    """The file of `images`, changed by its arrays and by what is said of them."""
    data = images().to_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    arrays, about = load(data), json.loads(header["__metadata__"][FORMAT])
    change(arrays, about)
    return save(arrays, {FORMAT: json.dumps(about)})


def put(name: str, value: Any) -> Callable[[dict[str, np.ndarray], dict[str, Any]], object]:
    return lambda arrays, about: arrays.update({name: value(arrays[name])})


def say(place: int, **numbers: Any) -> Callable[[dict[str, np.ndarray], dict[str, Any]], object]:
    return lambda arrays, about: about["members"][0][place].update(numbers)


HOSTILE: dict[str, Callable[[dict[str, np.ndarray], dict[str, Any]], object]] = {
    "floating-point weights": put("0.0.weight", lambda w: np.full(w.shape, np.nan, np.float32)),
    "weights of 64 bits": put("0.0.weight", lambda w: w.astype(np.int64) * 2**40),
    "a weight of -128": put("0.0.weight", lambda w: np.full_like(w, -128)),
    "weights of other inputs": put("0.0.weight", lambda w: w[:, :1]),
    "weights of two dimensions": put("0.0.weight", lambda w: w.reshape(len(w), -1)),
    "weights without a shape": put("0.0.weight", lambda w: np.array(3, np.int8)),
    "no weights": put("0.0.weight", lambda w: w[:0]),
    "a bias of 64 bits": put("0.0.bias", lambda b: b.astype(np.int64) + 2**60),
    "a bias of NaN": put("0.0.bias", lambda b: np.full(b.shape, np.nan, np.float32)),
    "a large multiplier": put("0.2.multiplier", lambda m: np.full_like(m, 2**31 - 1)),
    "a negative multiplier": put("0.2.multiplier", lambda m: -m - 1),
    "a multiplier for one channel": put("0.2.multiplier", lambda m: m[:1]),
    "a shift of 0": say(2, shift=0),
    "a shift of 51": say(2, shift=51),
    "a range beyond 2^24": say(2, most=2**24),
    "a range without 0": say(2, low=1),
    "a padding beyond a window": say(0, padding=10**6),
    "a negative padding": say(0, padding=-1),
    "a stride of 0": say(0, stride=0),
    "windows of 0 pixels": say(1, window=0),
    "windows of a billion pixels": say(1, window=10**9),
    "parts without a number": say(8, side=0),
    "more parts than pixels": say(8, side=10**8),
    "another kind": say(1, kind="odd"),
    "a number more": say(1, more=1),
    "a float in place of a number": say(1, window=2.0),
    "a truth in place of a number": say(1, stride=True),
    "a number in place of an array": say(0, weight=5),
    "an array too many": lambda arrays, about: arrays.update({"0.0.more": np.zeros(2, np.int8)}),
    "no layers": lambda arrays, about: about.update(members=[]),
    "members without layers": lambda arrays, about: about.update(members=[[], []]),
    "layers that are a number": lambda arrays, about: about.update(members=3),
    "a layer left out": lambda arrays, about: about["members"][0].pop(9),
    "another task": lambda arrays, about: about["task"].update(classes=["a", "b"]),
    "a shift that is none": lambda arrays, about: about.update(input_shift=-5),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_file_that_could_leave_the_exact_range_or_fits_nothing_is_refused_as_it_is_read(case: str) -> None:
    with pytest.raises((DataError, StorageError)) as refused:
        read_whole_network(rewritten(HOSTILE[case]), "the file")
    assert str(refused.value).startswith("the file ") or "the file" in str(refused.value)


def test_sums_beyond_64_bit_floats_are_refused_and_those_below_are_exact() -> None:
    given = Values((2**16,), 0, 2**24 - 1)
    wide = Products(extreme(1, 2**16), np.zeros(1, np.int32))
    assert wide.after(given).reach < 2**53
    with pytest.raises(ProtocolViolation, match="2\\^53"):
        Rescaled(np.array([2**20], np.int32), 20, 0, 255).after(wide.after(given))
    with pytest.raises(ProtocolViolation, match="2\\^53"):
        wide.after(replace(given, most=2**40))


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"\xff" * 100])
def test_a_file_of_something_else_is_a_storage_error(content: bytes) -> None:
    with pytest.raises(StorageError, match="cannot be read as a network"):
        read_whole_network(content, "the file")


def test_every_cut_of_a_file_is_a_typed_error() -> None:
    whole = vectors().to_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 300)):
        with pytest.raises(CollegiumError):
            read_whole_network(whole[:length], "the file")


def test_numbers_that_are_none_are_taken_in_as_numbers() -> None:
    """A record with values that are not finite raises nothing, and changes no other."""
    network, odd = vectors(), V[:6].copy()
    odd[1], odd[3], odd[4] = np.nan, np.inf, -np.inf
    found, plain = network.probabilities(odd), network.probabilities(V[:6])
    assert np.isfinite(found).all() and np.array_equal(found[[0, 2, 5]], plain[[0, 2, 5]])
