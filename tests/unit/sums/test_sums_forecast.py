"""The forecast of class sums: how many contributions their noise leaves the classes apart at, from the pool alone."""

import numpy as np
import pytest

from collegium.coordinator.selection.kernel_choice import kernel_spec
from collegium.coordinator.settings.run_config import SumsConfig
from collegium.data import Examples
from collegium.data.loading.loading import default_task
from collegium.models.kernels import KernelMap
from collegium.models.noisy_sums import NoisySums, Round
from collegium.models.pool_spectrum import CLEAR, DROWNED, PoolSpectrum
from collegium.parties.kinds.class_sums import RecordsOfClasses


@pytest.mark.bits
@pytest.mark.parametrize(("share", "least", "most"), [(1 / DROWNED, 0.0, 0.5), (CLEAR, 0.9, 1.0)])
def test_digits_are_as_good_as_the_forecast_says(digits: Examples, share: float, least: float, most: float) -> None:
    """``share``: of the contributions that the forecast asks for. The noise has a seed: nothing is left to chance."""
    task, order = default_task("digits"), np.random.default_rng(0).permutation(len(digits))
    pool, test, private = (digits.take(part) for part in np.split(order, [300, 600]))
    spec = kernel_spec(SumsConfig(), pool.x, task.inputs, 10, 8.0, 0)
    kernel = KernelMap.of_pool(spec, pool.x, task.inputs)
    spectrum = PoolSpectrum.of_pool(kernel, pool.x)
    noise = len(private) / share / spectrum.contributions_needed(1.0, 10)
    sums = RecordsOfClasses(private, task).sums(kernel)

    def released(deviation: float) -> NoisySums:
        drawn = np.rint(np.random.default_rng(1).normal(0.0, deviation, len(sums))).astype(np.int64)
        return NoisySums(spec, (Round(sums + drawn, deviation),))

    def right(deviation: float) -> float:
        student = released(deviation).classifier(pool.x, task, spectrum=spectrum)
        return float((student.predict(test.x) == test.y).mean())

    few = released(1.1 * noise).of_pool(pool.x, task).drowned
    assert (few is not None) == (share * DROWNED <= 1.0)
    assert few is None or few[0] < few[1] == pytest.approx(1.1 * len(private), abs=1)
    assert least <= right(noise) / right(1.0) <= most
