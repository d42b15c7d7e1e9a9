"""The papers' noise, which no release uses: real numbers instead of integers."""

from collegium_accounting.noise.sources import SeededNoise
from collegium_accounting.renyi import FloatArray


class ContinuousNoise(SeededNoise):
    """Reproducible and never private, as `SeededNoise` is."""

    def laplace(self, scale: float, shape: tuple[int, ...]) -> FloatArray:
        return self.generator.laplace(0.0, scale, shape)

    def gaussian(self, sigma: float, shape: tuple[int, ...]) -> FloatArray:
        return self.generator.normal(0.0, sigma, shape)
