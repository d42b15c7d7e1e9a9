r"""Noise that no single party knows: each adds a share of discrete Gaussian noise before masking.

The coordinator then sees a sum that is noisy already. Only the data-independent loss can be
accounted for, and the noise of colluding or dropped parties must not be counted on: with h the
least number of honest survivors (`GraphPlan.honest_survivors`) each party draws from the discrete
Gaussian N_ℤ(0, σ_s²) with h·σ_s² ≥ σ². If more than h honest parties survive, their noise is added
independently to a sum that is private already, which is post-processing.

**The sum of discrete Gaussians is almost one.** (After Kairouz, Liu, Steinke 2021, section 4; the
proof below is self-contained and its constant smaller.) Let Q_k be the mass of N_ℤ(0, kσ²) and P_k
that of the sum of k independent draws of N_ℤ(0, σ²). Then for every integer z

  |log P_h(z)/Q_h(z)| ≤ T = Σ_{k=1}^{h−1} log((1 + η_k)/(1 − η_k)),
  η_k = 2·Σ_{j≥1} exp(−2π²j²s_k²),  s_k² = σ²·k/(k + 1).

*Proof.* Completing the square in the convolution of Q_k with Q_1,

  (Q_k * Q_1)(z) = c · exp(−z²/(2(k+1)σ²)) · g(z),  g(z) = Σ_{x∈ℤ} exp(−(x − zk/(k+1))²/(2s_k²)),

and by Poisson's summation formula g(z) = s_k√(2π)·(1 + 2Σ_{j≥1} cos(2πjzk/(k+1))·exp(−2π²j²s_k²)),
which lies within s_k√(2π)·[1 − η_k, 1 + η_k]. The factor before g is proportional to Q_{k+1}, so
(Q_k * Q_1)/Q_{k+1} = g/E_{Q_{k+1}}[g] lies between (1 − η_k)/(1 + η_k) and its inverse. Convolving
P_k ≤ e^{T_k}·Q_k with Q_1 gives P_{k+1} ≤ e^{T_k}·(Q_k * Q_1) ≤ e^{T_{k+1}}·Q_{k+1}, and likewise
from below. ∎

**Rényi divergence.** For a change Δ of the summed vector, coordinates are independent and those
with Δ_j = 0 contribute nothing. In every other coordinate, with P = P_h and Q = Q_h, the terms of
Σ_z P(z)^α·P(z − Δ_j)^{1−α} are at most e^{αT + (α−1)T} times those of Q, and
D_α(Q ‖ Q(· − Δ_j)) ≤ α·Δ_j²/(2hσ_s²) (Canonne, Kamath, Steinke 2020, Proposition 5). Hence

  D_α ≤ α·‖Δ‖₂²/(2hσ_s²) + ‖Δ‖₀·T·(2α − 1)/(α − 1).

**The ring.** Reduction modulo 2^16 or 2^32 is a function of the noisy sum, hence post-processing: it
costs no privacy, and no noise is cut off. It can spoil an entry only when the noise of that entry
exceeds the reach B that was left free at both ends. A discrete Gaussian is sub-Gaussian with its
own σ² (same paper, Proposition 17), so over n parties and L entries this has probability at most
2L·exp(−B²/(2nσ_s²)).

**Screening.** A threshold test on the largest count reads the noisy histogram: it is
post-processing of a sum with its own noise, charged as above with ‖Δ‖₂² = 2 for a moved vote (the
whole histogram is released, so not 1), in addition to the sum that is noised for the answer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from collegium_accounting.elementary import exp, log1p
from collegium_accounting.errors import ConfigurationError
from collegium_accounting.game.laws import Law, discrete_vector
from collegium_accounting.limits import MAX_PARTIES
from collegium_accounting.noise.inversion import check_fits
from collegium_accounting.noise.sources import SeededNoise, SystemNoise
from collegium_accounting.renyi import RenyiCurve, check_orders
from collegium_accounting.units import IntArray

SMALLEST_SIGMA_SHARE = 0.5
"""Below this the sum of discrete Gaussians is visibly not one; fewer, larger shares are needed."""


@lru_cache(maxsize=1024)
def closeness_to_one_gaussian(sigma_share: float, honest_survivors: int) -> float:
    """T: the largest |log ratio| of the mass of the summed shares to that of N_ℤ(0, h·σ_s²).

    Source: this module's docstring (after Kairouz, Liu, Steinke 2021, section 4).
    """
    if sigma_share < SMALLEST_SIGMA_SHARE:
        raise ConfigurationError(f"a share of noise needs sigma of at least {SMALLEST_SIGMA_SHARE}; got {sigma_share}")
    k = np.arange(1, honest_survivors, dtype=np.float64)
    s_squared = sigma_share * sigma_share * k / (k + 1.0)
    # For σ_s ≥ 1/2 a term falls below e^{−2.4 j²}: 20 of them leave nothing that a float can hold.
    j_squared = np.arange(1, 21, dtype=np.float64)[:, None] ** 2
    eta = 2.0 * exp(-2.0 * math.pi * math.pi * j_squared * s_squared).sum(axis=0)
    return math.fsum(log1p(eta) - log1p(-eta))


@dataclass(frozen=True)
class NoiseShare:
    """What each party adds to every entry of its vector, so that the honest survivors alone reach ``sigma``.

    The charge for a sum, the room left for its noise and the draws themselves all come from this value.

    Parameters
    ----------
    sigma : float
        Of the noise that the honest survivors contribute together, in units of an entry.
    honest_survivors : int
        The least number of honest parties whose shares are in any sum that is opened.

    Raises
    ------
    ConfigurationError
        If the share of a party would be below 0.5, where the analysis gives nothing useful, or above 2^50.
    """

    sigma: float
    honest_survivors: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma > 0.0) or self.honest_survivors < 1:
            raise ConfigurationError("noise needs a positive sigma and at least one honest survivor")
        if self.sigma_share < SMALLEST_SIGMA_SHARE:
            raise ConfigurationError(
                f"sigma {self.sigma} spread over {self.honest_survivors} parties leaves {self.sigma_share:.3g} votes "
                f"each; raise sigma to at least {SMALLEST_SIGMA_SHARE * math.sqrt(self.honest_survivors):.3g}"
            )
        check_fits(self.sigma_share)

    @property
    def sigma_share(self) -> float:
        """σ_s of one party's share: ``honest_survivors`` shares alone have variance σ² or more."""
        share = math.nextafter(self.sigma / math.sqrt(self.honest_survivors), math.inf)
        # In exact numbers: products of floats are rounded.
        while self.honest_survivors * Fraction(share) ** 2 < Fraction(self.sigma) ** 2:
            share = math.nextafter(share, math.inf)
        return share

    def curve(self, orders: Sequence[float], *, l2_squared: float, changed_entries: int) -> RenyiCurve:
        """Data-independent Rényi cost of one noised sum (of one query's histogram).

        Parameters
        ----------
        orders : Rényi orders, each above 1.
        l2_squared : ‖Δ‖₂² between neighbours; 2 for one moved vote, 2k² for k moved votes.
        changed_entries : ‖Δ‖₀; 2 for a moved vote.
        """
        grid = check_orders(orders)
        alpha = np.asarray(grid)
        closeness = closeness_to_one_gaussian(self.sigma_share, self.honest_survivors)
        gaussian = alpha * l2_squared / (2.0 * self.sigma * self.sigma)  # see `law`
        return RenyiCurve(grid, gaussian + changed_entries * closeness * (2.0 * alpha - 1.0) / (alpha - 1.0))

    def law(self, l2: float, changed_entries: int) -> Law:
        """What one noised sum is for the exact accountant, where neighbours differ by ``l2`` in L2 in so many entries.

        The noise counted on is that of the honest survivors alone. Its variance is σ² or a rounding more, and σ² is
        counted: what was paid is the same then, however many parties there are when it is released.
        """
        closeness = closeness_to_one_gaussian(self.sigma_share, self.honest_survivors)
        return discrete_vector(l2, self.sigma, changed_entries, closeness)

    def reach(self, parties: int, length: int, failure: float = 1e-9) -> int:
        """The room that ``parties`` parties leave for the noise at both ends of each of ``length`` entries.

        The smallest B with 2·length·exp(−B²/(2·parties·σ_s²)) ≤ failure: no entry of the summed noise exceeds ±B but
        for a probability of at most ``failure``, in (0, 1). A failure spoils an entry, never privacy.
        """
        if not 0.0 < failure < 1.0:
            raise ConfigurationError(f"the overflow probability must lie in (0, 1), got {failure}")
        return math.ceil(self.sigma_share * math.sqrt(2.0 * parties * math.log(2.0 * length / failure)))

    def draw(self, length: int, noise: SystemNoise | SeededNoise) -> IntArray:
        """One party's noise, shape ``[length]``: discrete Gaussian draws, exact from the system's randomness."""
        return np.asarray(noise.gaussian(self.sigma_share, (length,)), dtype=np.int64)


@dataclass(frozen=True)
class AddedBy:
    """Who adds the noise of a sum: the coordinator, or each party a share of it.

    Parameters
    ----------
    honest_survivors : int
        The least number of honest parties whose shares are in any sum that is opened; 0 where the coordinator adds it.
    """

    honest_survivors: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.honest_survivors <= MAX_PARTIES:
            raise ConfigurationError(
                f"honest survivors are 0, where the coordinator adds the noise, to {MAX_PARTIES}; "
                f"got {self.honest_survivors}"
            )

    @property
    def parties(self) -> bool:
        """Whether the parties add the noise."""
        return self.honest_survivors > 0

    def share(self, sigma: float) -> NoiseShare | None:
        """What each party adds to have noise of ``sigma`` in all; None where the coordinator adds it."""
        return NoiseShare(sigma, self.honest_survivors) if self.parties else None


COORDINATOR = AddedBy()
"""The coordinator adds the noise."""
