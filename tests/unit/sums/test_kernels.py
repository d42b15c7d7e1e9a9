"""The kernel map: whole numbers, bounded length, and a record's vector depends on that record alone."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from collegium.coordinator.selection.kernel_choice import kernel_spec, ridge_for
from collegium.coordinator.settings.run_config import SumsConfig
from collegium.data.task import CategoryColumn, ImageInputs, NumberColumn, TableInputs
from collegium.errors import ProtocolViolation
from collegium.models.codes import Codes, Weights
from collegium.models.features import Features, extract
from collegium.models.kernels import CONSTANT, RIDGES, KernelMap, KernelSpec, of_length
from collegium_accounting.mechanisms.class_sums import ONE

COLUMNS = 6
TABLE = TableInputs(columns=tuple(NumberColumn(name=f"c{number}", low=0, high=1) for number in range(COLUMNS)))
POOL = np.random.default_rng(0).random((400, 2 * COLUMNS)).astype(np.float32)
LANDMARKS = np.arange(0, 400, 4)
SPEC = KernelSpec(Features("raw"), tuple(LANDMARKS.tolist()), 600**2)


@pytest.fixture(scope="module")
def table_map() -> KernelMap:
    return KernelMap.of_pool(SPEC, POOL, TABLE)


def lengths(vectors: np.ndarray) -> np.ndarray:
    """Exact, by whole numbers of any size."""
    return np.array([sum(int(entry) ** 2 for entry in row) for row in vectors], dtype=object)


def test_products_of_two_vectors_are_cosines_under_the_centred_kernel_of_the_landmarks(table_map: KernelMap) -> None:
    vectors = table_map(POOL).astype(np.float64) / ONE
    gamma = 1024.0**2 / (2.0 * SPEC.bandwidth_squared)
    between = rbf_kernel(POOL[LANDMARKS], POOL[LANDMARKS], gamma=gamma)
    centred = rbf_kernel(POOL, POOL[LANDMARKS], gamma=gamma) - between.mean(axis=0)
    products = centred @ np.linalg.solve(between + np.eye(len(between)), centred.T)
    cosines = products / np.sqrt(np.outer(np.diag(products), np.diag(products)))
    assert np.abs(vectors @ vectors.T - (0.99 * cosines + 0.01)).max() < 0.003


def test_every_vector_has_the_whole_length_and_the_constant(table_map: KernelMap) -> None:
    """A record far from all landmarks too: the noise is paid for a length of one in any case."""
    vectors = table_map(np.concatenate([POOL, np.ones((1, 2 * COLUMNS), dtype=np.float32)]))
    assert (vectors[:, -1] == CONSTANT).all()
    assert np.sqrt(lengths(vectors).astype(np.float64)).min() > 0.999 * ONE


def test_a_vector_is_the_same_in_any_company(table_map: KernelMap) -> None:
    records = np.random.default_rng(1).random((5000, 2 * COLUMNS)).astype(np.float32)
    together = table_map(records)
    for row in (0, 1, 2047, 2048, 4999):
        assert (table_map(records[row : row + 1]) == together[row]).all()
    shuffled = np.random.default_rng(2).permutation(len(records))
    assert (table_map(records[shuffled]) == together[shuffled]).all()


@pytest.mark.parametrize("scale", [0.0, 0.5, 1.0])
def test_no_vector_is_longer_than_one(table_map: KernelMap, scale: float) -> None:
    """Random records, landmarks themselves, corners of the encoded range."""
    generator = np.random.default_rng(3)
    corners = generator.integers(0, 2, (500, 2 * COLUMNS)).astype(np.float32) * scale
    for records in (generator.random((500, 2 * COLUMNS)).astype(np.float32) * scale, POOL, corners):
        assert max(lengths(table_map(records))) <= ONE**2


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("bandwidth_squared", [1, 10, 600**2, 2**40 - 1])
def test_no_choice_of_landmarks_and_bandwidth_makes_a_vector_longer_than_one(
    bandwidth_squared: int, ridge: float
) -> None:
    """Landmarks that are equal to each other, and bandwidths that make all inputs alike or none; any ridge."""
    alike = np.concatenate([np.repeat(POOL[:2], 30, axis=0), POOL[:40]])
    spec = KernelSpec(Features("raw"), tuple(range(100)), bandwidth_squared, ridge)
    kernel = KernelMap.of_pool(spec, alike, TABLE)
    assert max(lengths(kernel(POOL))) <= ONE**2
    # So 4,096 landmarks stay below 2^53, where double precision is exact: 4096 · 2^38 · 4 = 2^52.
    assert max(lengths(kernel._centred(POOL))) <= 100 * 2**38 / ridge


def test_a_map_whose_whitening_is_wrong_makes_no_longer_vector(table_map: KernelMap) -> None:
    wrong = KernelMap(
        table_map.features,
        TABLE,
        table_map.bandwidth_squared,
        table_map.ridge,
        table_map.landmarks,
        table_map.centre,
        table_map.whitening * 1000.0,
    )
    assert max(lengths(wrong(POOL))) <= ONE**2


def test_vectors_are_brought_to_a_length_that_none_exceeds() -> None:
    rows = np.random.default_rng(7).integers(-3, 4, (200, 50)) * np.array([[1], [10**6]]).repeat(100, axis=0)
    rows[0] = 0
    brought = lengths(of_length(rows, ONE**2))
    assert brought[0] == 0 and max(brought) <= ONE**2 and min(brought[1:]) > 0.998 * ONE**2


def test_images_have_vectors_too() -> None:
    images = np.random.default_rng(5).integers(0, 256, (60, 16, 16, 1), np.uint8)
    spec = KernelSpec(Features("hog"), tuple(range(20)), 2000**2)
    vectors = KernelMap.of_pool(spec, images, ImageInputs(height=16, width=16))(images)
    assert vectors.shape == (60, 21) and np.abs(vectors).max() > 0


def test_wrong_landmarks_are_refused() -> None:
    with pytest.raises(ProtocolViolation, match="outside the pool"):
        KernelMap.of_pool(KernelSpec(Features("raw"), (0, 400), 100), POOL, TABLE)
    with pytest.raises(ProtocolViolation, match="differ"):
        KernelSpec(Features("raw"), (1, 1), 100)
    with pytest.raises(ProtocolViolation, match="4096 landmarks"):
        KernelSpec(Features("raw"), tuple(range(5000)), 100)
    for ridge in (0.0, 0.3, float("nan")):
        with pytest.raises(ProtocolViolation, match="ridge of a kernel is one of"):
            KernelSpec(Features("raw"), (0, 1), 100, ridge)


def test_a_larger_ridge_comes_with_more_noise_or_a_smaller_pool_and_is_another_question() -> None:
    assert [ridge_for(noise, 2500, 3) for noise in (0.0, 12.0, 13.0, 49.0, 51.0, 199.0, 201.0, 1e9)] == [
        ridge for ridge in RIDGES for _ in range(2)
    ]
    assert ridge_for(20.0, 2500, 3) < ridge_for(20.0, 100, 3)
    assert (ridge_for(0.0, 2500, 2), ridge_for(51.0, 2500, 2)) == (1.0, 4.0)
    assert len({replace(SPEC, ridge=ridge).digest() for ridge in RIDGES}) == len(RIDGES)


@pytest.mark.parametrize("bandwidth_squared", [600**2, 2**40 - 1])
def test_the_totals_of_a_gpu_are_the_same_whole_numbers(bandwidth_squared: int) -> None:
    """The same lines on torch's CPU, among landmarks that lengthen and people with several records."""
    kernel = KernelMap.of_pool(replace(SPEC, bandwidth_squared=bandwidth_squared), POOL, TABLE)
    generator = np.random.default_rng(6)
    x = np.concatenate([POOL, generator.random((3000, 2 * COLUMNS)).astype(np.float32)])
    labels, shares = generator.integers(0, 3, len(x)), generator.integers(1, 4, len(x))
    vectors = kernel(x)
    each = np.sign(vectors) * (np.abs(vectors) // shares[:, None])
    weights = Weights.of(generator.normal(size=(kernel.dimensions, 3)))
    for codes in (Codes(3), Codes(3, weights)):
        expected = codes.of(vectors.astype(np.float64), labels).T @ each
        assert (kernel.totals(x, labels, shares, codes) == expected).all()
        assert (kernel._totals_on_gpu(x, labels, shares, codes, "cpu") == expected).all()


def test_a_column_of_a_table_counts_by_the_root_of_its_deviation() -> None:
    """Squared distances of a column's inputs: as much as its deviation before it counted, whatever its kind."""
    columns = (NumberColumn(name="age", low=0, high=1), CategoryColumn(name="work", categories=("a", "b", "c")))
    inputs, generator = TableInputs(columns=columns), np.random.default_rng(8)
    kinds = np.eye(4, dtype=np.float32)[generator.integers(0, 3, 3000)]
    flags = np.zeros((3000, 1), dtype=np.float32)
    pool = np.concatenate([generator.random((3000, 1), dtype=np.float32), flags, kinds], axis=1)
    features = kernel_spec(SumsConfig(), pool, inputs, 2, 8.0, 0).features
    before = extract(replace(features, projection=None), pool, inputs).astype(np.float64)
    after = extract(features, pool, inputs).astype(np.float64)
    deviations, balanced = (
        np.sqrt([values[:, :2].var(axis=0).sum(), values[:, 2:].var(axis=0).sum()]) for values in (before, after)
    )
    assert balanced[1] / balanced[0] == pytest.approx(np.sqrt(deviations[1] / deviations[0]), rel=0.02)
    assert deviations[1] / deviations[0] > 2.0


def test_a_column_in_which_the_pool_is_all_alike_does_not_part_the_records_from_it() -> None:
    """All of the pool's are of ward c, and the records of others: their vectors differ as if they were of ward c."""
    columns = (NumberColumn(name="age", low=0, high=1), CategoryColumn(name="ward", categories=("a", "b", "c")))
    inputs, generator = TableInputs(columns=columns), np.random.default_rng(8)
    ages = np.stack([generator.random(400), np.zeros(400)], axis=1)
    pool, elsewhere = (np.concatenate([ages, np.eye(4)[np.full(400, ward)]], axis=1).astype("f4") for ward in (2, 0))
    kernel = KernelMap.of_pool(kernel_spec(SumsConfig(), pool, inputs, 2, 8.0, 0), pool, inputs)
    assert (kernel(elsewhere) == kernel(pool)).all()
    assert np.linalg.matrix_rank(kernel(elsewhere).astype(np.float64)) > 10
