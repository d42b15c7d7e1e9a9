"""Empirical lower bound on ε of a mechanism as shipped: run it on two neighbours and compare what comes out.

The pair and the event are fixed before the runs, from the law of the noisy argmax, so that choosing them
cannot flatter the result. With p the rate of the event on one histogram and q on its neighbour,
ε ≥ log((p_low − δ)/q_high), each end by Clopper and Pearson at half the failure probability.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import betaincinv

from collegium.errors import ConfigurationError, UnsupportedAccounting
from collegium.privacy.analysis.epsilons import loss_distribution_epsilon, planned_charges
from collegium.privacy.mechanisms.base import Mechanism, Noise
from collegium.privacy.renyi import WIDE_ORDERS
from collegium.privacy.units import Adjacency, IntArray

_BATCH = 100_000
_PILOT_RUNS = 20_000

Histogram = tuple[int, ...]


@dataclass(frozen=True)
class Audit:
    """What the runs showed. ``consistent`` is False when the stated ε is refuted at ``failure_probability``."""

    mechanism: str
    parameters: dict[str, float | int | str]
    histogram: tuple[int, ...]
    neighbour: tuple[int, ...]
    event: int
    runs: int
    hits: int
    hits_on_neighbour: int
    delta: float
    failure_probability: float
    epsilon_lower_bound: float
    epsilon_stated: float
    noise: str
    consistent: bool

    def as_dict(self) -> dict[str, Any]:
        """For JSON: an infinite stated ε as the string "inf"."""
        plain = asdict(self)
        plain["histogram"], plain["neighbour"] = list(self.histogram), list(self.neighbour)
        if math.isinf(self.epsilon_stated):
            plain["epsilon_stated"] = "inf"
        return plain


def clopper_pearson(hits: int, runs: int, failure: float) -> tuple[float, float]:
    """Lower and upper bound of a rate, each wrong with probability at most ``failure``."""
    low = 0.0 if hits == 0 else float(betaincinv(hits, runs - hits + 1, failure))
    high = 1.0 if hits == runs else float(betaincinv(hits + 1, runs - hits, 1.0 - failure))
    return low, high


def audit(
    mechanism: Mechanism,
    noise: Noise,
    *,
    teachers: int,
    classes: int = 2,
    runs: int = 1_000_000,
    delta: float = 1e-5,
    failure_probability: float = 1e-6,
) -> Audit:
    """Audit one answer of ``mechanism`` under its own adjacency, on the pair that a pilot finds most telling.

    Raises UnsupportedAccounting where counts alone do not show what its charge relies on.
    """
    if mechanism.no_audit_because:
        raise UnsupportedAccounting(f"{mechanism.name} cannot be audited on counts: {mechanism.no_audit_because}")
    if runs < 1000 or teachers < 2 or classes < 2 or not 0.0 <= delta < 1.0:
        raise ConfigurationError("an audit needs at least 1000 runs, 2 teachers and 2 classes, and a δ in [0, 1)")
    base, other, event = _most_telling(mechanism, noise, teachers, classes, runs, delta)
    hits = _hits(mechanism, noise, base, event, runs)
    hits_on_neighbour = _hits(mechanism, noise, other, event, runs)
    low = clopper_pearson(hits, runs, failure_probability / 2.0)[0]
    high = clopper_pearson(hits_on_neighbour, runs, failure_probability / 2.0)[1]
    lower = max(0.0, math.log(max(low - delta, 1e-300) / high))
    stated = stated_epsilon(mechanism, delta)
    return Audit(
        mechanism=mechanism.name,
        parameters=mechanism.parameters(),
        histogram=base,
        neighbour=other,
        event=event,
        runs=runs,
        hits=hits,
        hits_on_neighbour=hits_on_neighbour,
        delta=delta,
        failure_probability=failure_probability,
        epsilon_lower_bound=lower,
        epsilon_stated=stated,
        noise="system" if noise.private else "seeded",
        consistent=lower <= stated,
    )


def stated_epsilon(mechanism: Mechanism, delta: float) -> float:
    """The smallest ε that the accountant states for one answer, by Rényi curve or loss distribution."""
    rdp = mechanism.charge(WIDE_ORDERS).to_epsilon(delta).epsilon if delta > 0.0 else math.inf
    pld = loss_distribution_epsilon(planned_charges(mechanism, mechanism.unit(), 1), delta)
    return rdp if pld is None else min(rdp, pld)


def _most_telling(
    mechanism: Mechanism, noise: Noise, teachers: int, classes: int, runs: int, delta: float
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Pair and event with the largest lower bound expected of ``runs`` runs, judged on a pilot of fewer."""
    best: tuple[float, tuple[int, ...], tuple[int, ...], int] = (-math.inf, (0,), (0,), 0)
    pilot = min(runs, _PILOT_RUNS)
    for base, moved in neighbours(teachers, classes, mechanism.unit().adjacency):
        first, second = (outcomes(mechanism, noise, histogram, pilot) for histogram in (base, moved))
        for event in np.unique(np.concatenate([first, second])):
            one, two = float((first == event).mean()), float((second == event).mean())
            for p, q, pair in ((one, two, (base, moved)), (two, one, (moved, base))):
                low = clopper_pearson(round(p * runs), runs, 1e-3)[0]
                high = clopper_pearson(round(q * runs), runs, 1e-3)[1]
                score = math.log(max(low - delta, 1e-300) / high) - 3.0 * _pilot_error(p, q, pilot)
                if score > best[0]:
                    best = (score, pair[0], pair[1], int(event))
    return best[1], best[2], best[3]


def histograms(teachers: int, classes: int) -> list[Histogram]:
    """Up to 12 histograms of ``teachers`` votes for two of the classes, from an even split to agreement."""
    tops = np.unique(np.linspace(math.ceil(teachers / 2), teachers, 12).astype(int)).tolist()
    return [(int(top), teachers - int(top)) + (0,) * (classes - 2) for top in tops]


def neighbours(teachers: int, classes: int, adjacency: Adjacency) -> Iterator[tuple[Histogram, Histogram]]:
    """Each of `histograms` with those that one vote makes of it: moved to the other class, or taken away."""
    for base in histograms(teachers, classes):
        for loses, gains in ((0, 1), (1, 0)):
            moved = list(base)
            if moved[loses] == 0:
                continue
            moved[loses] -= 1
            if adjacency is Adjacency.REPLACE:
                moved[gains] += 1
            yield base, tuple(moved)


def _pilot_error(p: float, q: float, pilot: int) -> float:
    return math.sqrt(1.0 / max(p * pilot, 1.0) + 1.0 / max(q * pilot, 1.0))


def outcomes(mechanism: Mechanism, noise: Noise, counts: IntArray | Histogram, runs: int = 1) -> IntArray:
    """One whole number for each release of ``counts``, which are released ``runs`` times.

    Several bits of one release are read as a binary number. Class 0 stands for the student's prediction where a
    mechanism asks for one.
    """
    counts = np.tile(np.asarray(counts, dtype=np.int64), (runs, 1))
    released = mechanism.release(counts, noise=noise, predictions=np.zeros(len(counts), dtype=np.int64))
    if released.ndim == 1:
        return released
    return np.asarray(released @ 2 ** np.arange(released.shape[1], dtype=np.int64), dtype=np.int64)


def _hits(mechanism: Mechanism, noise: Noise, histogram: tuple[int, ...], event: int, runs: int) -> int:
    total = 0
    for start in range(0, runs, _BATCH):
        total += int((outcomes(mechanism, noise, histogram, min(_BATCH, runs - start)) == event).sum())
    return total
