"""Whether the records' classes agree less with other labels of the pool than with the student's, by the sums alone."""

import numpy as np
from support.sums_scene import TASK
from unit.sums.test_rounds_of_sums import SPEC, drawn

from collegium.models.kernels import KernelMap
from collegium.models.noisy_sums import NoisySums, OfPool, Round
from collegium.parties.kinds.class_sums import RecordsOfClasses
from collegium_accounting.mechanisms.class_sums import bound_squared

POOL, OWN = drawn(400, 3, 0.25), drawn(2000, 4, 0.25)


def of_pool(sigma: float) -> OfPool:
    values = RecordsOfClasses(OWN, TASK).sums(KernelMap.of_pool(SPEC, POOL.x, TASK.inputs))
    noise = sigma * np.sqrt(bound_squared(3))
    noisy = values + np.rint(np.random.default_rng(0).normal(0.0, noise, len(values))).astype(np.int64)
    return NoisySums(SPEC, (Round(noisy, noise),)).of_pool(POOL.x, TASK)


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
    codes = np.eye(3)[np.random.default_rng(2).integers(0, 3, 400)]
    assert not found.worse(np.eye(3)[POOL.labels()]) and not found.worse(codes)
