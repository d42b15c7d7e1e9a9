"""A map with a second part: what a sum under it and earlier sums under the first part say together."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.sums_scene import TASK
from unit.sums.test_kernels import lengths
from unit.sums.test_rounds_of_sums import SPEC, accuracy, drawn

from collegium.errors import ProtocolViolation, StorageError
from collegium.models.arrays import load_arrays, save_arrays
from collegium.models.features import Features
from collegium.models.kernel_student import KERNEL_FORMAT, read_student
from collegium.models.kernels import CONSTANT, REST, KernelMap, KernelSpec
from collegium.models.noisy_sums import NoisySums, OfPool, Round
from collegium.models.pool_spectrum import PoolSpectrum
from collegium.parties.kinds.class_sums import RecordsOfClasses
from collegium_accounting.mechanisms.class_sums import ONE, bound_squared, code_one

POOL, OWN, TEST = drawn(400, 3, 0.25), drawn(2000, 4, 0.25), drawn(2000, 5, 0.25)
ALIKE = replace(SPEC, bandwidth_squared=2**40 - 1)
"""A map under which all inputs are nearly alike."""


def both(first: KernelSpec = SPEC, second: KernelSpec = SPEC) -> KernelSpec:
    return replace(first, beside=second)


def released(spec: KernelSpec, sigma: float, seed: int) -> Round:
    values = RecordsOfClasses(OWN, TASK).sums(KernelMap.of_pool(spec, POOL.x, TASK.inputs))
    noise = sigma * np.sqrt(bound_squared(3))
    return Round(values + np.rint(np.random.default_rng(seed).normal(0.0, noise, len(values))).astype(np.int64), noise)


def two_sums(first: KernelSpec, second: KernelSpec, sigma: float, seed: int) -> NoisySums:
    spec = both(first, second)
    return NoisySums(first, (released(first, sigma, seed),)).with_round(released(spec, sigma, seed + 1), kernel=spec)


@pytest.mark.parametrize("second", [SPEC, ALIKE, replace(SPEC, bandwidth_squared=1)])
def test_no_vector_of_two_parts_is_longer_than_one_and_neither_part_than_its_share(second: KernelSpec) -> None:
    kernel = KernelMap.of_pool(both(SPEC, second), POOL.x, TASK.inputs)
    vectors = kernel(OWN.x)
    assert vectors.shape == (len(OWN), kernel.dimensions) == (len(OWN), 201)
    assert max(lengths(vectors)) <= ONE**2 and (vectors[:, -1] == CONSTANT).all()
    assert max(lengths(vectors[:, :100])) <= REST // 3 and max(lengths(vectors[:, 100:200])) <= 2 * REST // 3
    for row in (0, 7, 1999):
        assert np.array_equal(kernel(OWN.x[row : row + 1])[0], vectors[row])


def test_there_is_no_third_part() -> None:
    with pytest.raises(ProtocolViolation, match="one other at most"):
        both(SPEC, both())


def test_an_entry_is_the_mean_of_the_sums_that_have_it_each_weighed_by_its_noise() -> None:
    """Of noise alone, on 20 x 603 entries: σ/2, as 1/3 and 1 are the variances; σ in the second part."""
    generator, sigma, spec = np.random.default_rng(7), 5.0 * np.sqrt(bound_squared(3)), both()
    ones = np.ones((200, 1))
    spectrum = PoolSpectrum(None, np.zeros(200), np.zeros(200), np.eye(200), ones, ones.T)  # type: ignore[arg-type]
    found = []
    for _ in range(20):
        sums = NoisySums(
            spec,
            tuple(
                Round(np.rint(generator.normal(0.0, sigma, 3 * dimensions + 1)).astype(np.int64), sigma)
                for dimensions in (101, 201)
            ),
            2000.0,
        )
        mean, noises = sums._mean(spectrum, 3, np.zeros_like)
        found.append(mean)
    unit = sigma / (ONE * code_one(3) * 3)
    assert noises[:100] == pytest.approx(unit / 2.0, rel=1e-6) and noises[100:200] == pytest.approx(unit)
    assert noises[200] == pytest.approx(unit / 2**0.5)
    spread = np.std(found, axis=(0, 2)) / (2 / 3) ** 0.5  # of three classes whose mean was taken off
    assert spread[:100].mean() == pytest.approx(unit / 2.0, rel=0.05)
    assert spread[100:200].mean() == pytest.approx(unit, rel=0.05)


def test_a_second_part_that_tells_nothing_costs_little_and_one_that_tells_classes_is_used() -> None:
    def right(first: KernelSpec, second: KernelSpec) -> float:
        found = (two_sums(first, second, 4.0, seed).classifier(POOL.x, TASK) for seed in range(0, 10, 2))
        return float(np.mean([accuracy(one, TEST) for one in found]))

    useless, useful = replace(SPEC, bandwidth_squared=1), SPEC
    assert right(useful, useless) > right(useful, useful) - 0.02
    assert right(useless, useful) > right(useless, useless) + 0.1


def of_pool(sigma: float) -> OfPool:
    return two_sums(SPEC, ALIKE, sigma, 0).of_pool(POOL.x, TASK)


def test_labels_with_which_the_records_agree_less_are_found_worse_and_the_same_are_not() -> None:
    """Errors with a pattern, as a network makes them: one class of three for another where a column is large."""
    found, some = of_pool(1.0), POOL.x[:, 0] > 0.6
    random, wrong = found.probabilities[np.random.default_rng(1).permutation(400)], found.probabilities.copy()
    wrong[some] = wrong[some][:, [1, 0, 2]]
    assert found.worse(random) and found.worse(wrong)
    assert not found.worse(found.probabilities) and not found.worse(np.eye(3)[POOL.labels()])


def test_where_noise_hides_how_right_labels_are_none_are_found_worse() -> None:
    """The student was fitted to the noise too; without what it owes to that it seemed to be better by far."""
    found = of_pool(400.0)
    labels = np.eye(3)[POOL.labels()]
    assert not found.worse(labels)
    codes = np.eye(3)[np.random.default_rng(2).integers(0, 3, 400)]
    assert not found.worse(codes)


def test_a_file_keeps_both_parts_and_one_with_a_damaged_part_is_refused(tmp_path: Path) -> None:
    student = two_sums(SPEC, ALIKE, 1.0, 0).classifier(POOL.x, TASK)
    student.save(tmp_path / "student.safetensors")
    again = read_student(tmp_path / "student.safetensors", device="cpu")
    assert np.array_equal(again.probabilities(TEST.x), student.probabilities(TEST.x))
    arrays, about = load_arrays(tmp_path / "student.safetensors", KERNEL_FORMAT)
    for changed in (
        arrays | {"landmarks.1": arrays["landmarks.1"][:50]},
        arrays | {"landmarks.1": arrays["landmarks.1"].astype(np.int32)},
        {name: array for name, array in arrays.items() if name != "landmarks.1"},
    ):
        save_arrays(tmp_path / "changed.safetensors", KERNEL_FORMAT, changed, **about)
        with pytest.raises(StorageError, match="kernel student"):
            read_student(tmp_path / "changed.safetensors", device="cpu")
    with pytest.raises(ProtocolViolation):
        KernelSpec(Features("raw"), (0, 1), 100, beside=both())
