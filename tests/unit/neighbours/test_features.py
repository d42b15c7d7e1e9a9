"""Features and distances: whole numbers that depend on one input alone."""

from __future__ import annotations

import numpy as np
import pytest

from collegium.data.task import ImageInputs, NumberColumn, TableInputs
from collegium.errors import DataError, ProtocolViolation
from collegium.models.features import Features, dimensions, distances_squared, extract
from collegium.protocol.kinds.near_records import KERNELS, weight_units

IMAGES = ImageInputs(height=28, width=28)
TABLE = TableInputs(columns=(NumberColumn(name="a", low=0, high=1),))


def images(count: int, seed: int = 0, shape: tuple[int, ...] = (28, 28, 1)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape)).astype(np.uint8)


def projection(rows: int, kept: int = 8) -> Features:
    weights = np.random.default_rng(1).integers(-1024, 1025, (rows, kept)).astype(np.float32)
    return Features("hog", weights)


@pytest.mark.parametrize("features", [Features("hog"), Features("raw"), projection(1296)], ids=["hog", "raw", "proj"])
def test_features_of_an_input_are_the_same_in_any_company(features: Features) -> None:
    x = images(700)
    together = extract(features, x, IMAGES)
    alone = np.concatenate([extract(features, x[[row]], IMAGES) for row in (0, 511, 512, 699)])
    assert (together[[0, 511, 512, 699]] == alone).all()
    shuffled = np.random.default_rng(2).permutation(700)
    assert (extract(features, x[shuffled], IMAGES) == together[shuffled]).all()


def test_gradient_histograms_have_the_known_size_and_see_edges_not_brightness() -> None:
    assert dimensions(Features("hog"), IMAGES) == 1296
    assert dimensions(Features("hog"), ImageInputs(height=32, width=32, channels=3)) == 1764
    x = images(3) // 2
    assert (extract(Features("hog"), x, IMAGES) == extract(Features("hog"), x + 100, IMAGES)).all()
    flat = np.full((1, 28, 28, 1), 9, dtype=np.uint8)
    assert not extract(Features("hog"), flat, IMAGES).any()


def test_gradient_histograms_agree_with_a_plain_loop() -> None:
    """The first block of one image, pixel by pixel in floating point: within the rounding to 1/1024."""
    image = images(1)[0, :, :, 0].astype(int)
    cells = np.zeros((2, 2, 9))
    for row in range(8):
        for column in range(8):
            up, down = image[max(row - 1, 0), column], image[min(row + 1, 27), column]
            left, right = image[row, max(column - 1, 0)], image[row, min(column + 1, 27)]
            turn = (np.arctan2(down - up, right - left) % np.pi) / np.pi * 9
            for number in range(9):
                away = min(abs(turn - number), 9 - abs(turn - number))
                cells[row // 4, column // 4, number] += np.hypot(down - up, right - left) * max(0.0, 1 - away)
    block = cells.reshape(-1) / np.linalg.norm(cells)
    block = np.minimum(block, 0.2)
    block /= np.linalg.norm(block)
    assert np.abs(extract(Features("hog"), images(1), IMAGES)[0, :36] / 1024 - block).max() < 0.01


def test_distances_are_exact_and_do_not_depend_on_the_other_records() -> None:
    generator = np.random.default_rng(3)
    records = generator.integers(-(2**15) + 1, 2**15, (5000, 64)).astype(np.int16)
    queries = generator.integers(-(2**15) + 1, 2**15, (5, 64)).astype(np.int16)
    found = distances_squared(records, queries)
    wide = records.astype(object)[:50, None] - queries.astype(object)[None]
    assert (found[:50] == (wide**2).sum(axis=2)).all()
    assert (distances_squared(records[4999:], queries) == found[4999:]).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_weights_are_never_above_one_and_nothing_outside_the_radius(kernel: str) -> None:
    distances = np.arange(0, 2**53, 2**53 // 1000, dtype=np.int64)
    for radius in (0, 1, 12345, 2**52):
        units = weight_units(distances, radius, kernel, 1024)
        assert units.min() >= 0 and units.max() <= 1024
        assert not units[distances > radius].any() and units[0] == 1024


@pytest.mark.parametrize("entry", [0.5, 1025.0, np.nan, np.inf])
def test_a_projection_holds_bounded_whole_numbers(entry: float) -> None:
    with pytest.raises(ProtocolViolation, match="projection"):
        Features("raw", np.full((2, 2), entry, dtype=np.float32))


def test_features_of_another_dimension_are_refused() -> None:
    with pytest.raises(DataError, match="1295 features"):
        extract(projection(1295), images(1), IMAGES)
    with pytest.raises(DataError, match="'standard' for a table"):
        dimensions(Features("hog"), TABLE)
    with pytest.raises(DataError, match="too small"):
        dimensions(Features("hog"), ImageInputs(height=2, width=9))
    with pytest.raises(DataError, match="dimensions"):
        distances_squared(np.zeros((1, 3), np.int16), np.zeros((1, 4), np.int16))
    with pytest.raises(ProtocolViolation, match="one of"):
        Features("resnet")
