"""Where noise comes from: the operating system's randomness to release, a seed to test and to reproduce.

Floating-point samplers leak through their rounding (Mironov 2012), so a release draws with the exact samplers of
`noise.inversion`, on integers alone, and takes the noisy maximum of the exponential mechanism from OpenDP, which the
first such maximum imports.
"""

import hashlib
import math
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium_accounting.noise.inversion import system_sampler
from collegium_accounting.renyi import positive
from collegium_accounting.units import IntArray


class SystemNoise:
    """Exact discrete noise from the operating system's randomness: the only source that may release labels."""

    private: ClassVar[bool] = True

    def laplace(self, scale: float, shape: tuple[int, ...]) -> IntArray:
        """Discrete Laplace, mass ∝ e^{−|x|/scale}."""
        return system_sampler(1, scale).draw(math.prod(shape)).reshape(shape)

    def gaussian(self, sigma: float, shape: tuple[int, ...]) -> IntArray:
        """Discrete Gaussian, mass ∝ e^{−x²/2σ²}."""
        return system_sampler(2, sigma).draw(math.prod(shape)).reshape(shape)

    def gumbel_argmax(self, counts: IntArray, scale: float) -> IntArray:
        """OpenDP's noisy max under zero-concentrated divergence, which is the Gumbel one, compared exactly."""
        dp = _opendp()
        select = dp.measurements.make_noisy_max(
            dp.domains.vector_domain(dp.domains.atom_domain(T="i64")),
            dp.metrics.linf_distance(T="i64"),
            dp.measures.zero_concentrated_divergence(),
            scale=positive(scale),
        )
        return np.array([select(row) for row in counts.tolist()], dtype=np.int64)


_COARSE = 2.0**12
"""Above this, seeded discrete Gaussian noise is rounded continuous noise: no test can tell, and no table is needed."""


class SeededNoise:
    """Reproducible noise, for tests; never private.

    Parameters
    ----------
    seed : any integer; the same seed gives the same noise in the same order of calls.
    """

    private: ClassVar[bool] = False

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def laplace(self, scale: float, shape: tuple[int, ...]) -> NDArray[np.float64] | IntArray:
        """Discrete Laplace noise, as the difference of two geometric variables."""
        success = -math.expm1(-1.0 / positive(scale))
        return self.generator.geometric(success, shape) - self.generator.geometric(success, shape)

    def gaussian(self, sigma: float, shape: tuple[int, ...]) -> NDArray[np.float64] | IntArray:
        """Discrete Gaussian noise, by inverting its distribution function, cut where the mass is below 1e-300."""
        sigma = positive(sigma)
        if sigma > _COARSE:
            return np.rint(self.generator.normal(0.0, sigma, shape)).astype(np.int64)
        reach = math.ceil(37.0 * sigma) + 1
        support = np.arange(-reach, reach + 1)
        mass = np.exp(-0.5 * (support / sigma) ** 2)
        return self.generator.choice(support, size=shape, p=mass / mass.sum()).astype(np.int64)

    def gumbel_argmax(self, counts: IntArray, scale: float) -> IntArray:
        noisy = counts + self.generator.gumbel(0.0, positive(scale), counts.shape)
        return np.asarray(noisy.argmax(axis=1), dtype=np.int64)


def source_of(seed: int | None, *question: str) -> SystemNoise | SeededNoise:
    """Where the noise of one draw comes from: the operating system, or, with a seed, what names the draw.

    With a seed the noise follows from it and from ``question`` alone, so that it is the same in whatever order and
    process it is drawn, and is never private.
    """
    if seed is None:
        return SystemNoise()
    name = hashlib.sha256("|".join((str(seed), *question)).encode()).digest()
    return SeededNoise(int.from_bytes(name[:16], "big"))


@cache
def _opendp() -> Any:
    import opendp.domains
    import opendp.measurements
    import opendp.measures
    import opendp.metrics
    from opendp.mod import enable_features

    enable_features("contrib")
    return opendp
