"""How fast the accountant is, beside a plain loop over queries and orders: ``python -m benchmarks.accounting --json``.

CPU seconds of one process on one core: 1,000 histograms of 250 votes in 10 classes, 68 orders. The loop
evaluates Theorem 3 and Theorem 6 one query and one order at a time, as published scripts do. ``--games`` measures the
exact accountant instead, ``--noise`` the samplers.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
from collegium_reproduction.exact_losses import exact_divergences
from collegium_reproduction.paper_bounds import theorem_3, theorem_6
from collegium_reproduction.smooth import SmoothRelease, envelope_for

from collegium_accounting.divergences.grids import NoiseKind, NoiseLaw
from collegium_accounting.game.profile import Profile
from collegium_accounting.game.recursion import play
from collegium_accounting.game.winner import RoundLaw
from collegium_accounting.noise.inversion import system_sampler
from collegium_accounting.renyi import WIDE_ORDERS, FloatArray
from collegium_accounting.units import Adjacency, IntArray

Result = TypeVar("Result")
GAMMA = 0.05
SIGMA = 40.0


def votes(queries: int, classes: int, teachers: int, seed: int) -> IntArray:
    """Histograms between strong consensus and none: a top class with a Beta share, the rest spread unevenly."""
    generator = np.random.default_rng(seed)
    top = np.round(teachers * generator.beta(6.0, 2.0, queries)).astype(np.int64)
    shares = generator.dirichlet(np.ones(classes - 1), queries)
    rest = np.array([generator.multinomial(teachers - t, p) for t, p in zip(top, shares, strict=True)])
    rows = np.concatenate([top[:, None], rest], axis=1)
    return np.asarray(generator.permuted(rows, axis=1), dtype=np.int64)


def plain_theorem_3(histogram: list[int], gamma: float, order: float) -> float:
    """One query, one order."""
    top = max(histogram)
    winner = histogram.index(top)
    q = 0.0
    for i, count in enumerate(histogram):
        if i != winner:
            gap = gamma * (top - count)
            q += (2.0 + gap) / (4.0 * math.exp(gap))
    moment = order - 1.0
    flat = min(2.0 * gamma * gamma * moment * (moment + 1.0), 2.0 * gamma * moment)
    if q >= 1.0 / (math.exp(2.0 * gamma) + 1.0):
        return flat / moment
    stays = math.log(1.0 - q) + moment * math.log((1.0 - q) / (1.0 - math.exp(2.0 * gamma) * q))
    leaves = math.log(q) + 2.0 * gamma * moment
    high, low = max(stays, leaves), min(stays, leaves)
    return min(flat, high + math.log1p(math.exp(low - high))) / moment


def plain_theorem_6(histogram: list[int], sigma: float, order: float) -> float:
    """One query, one order."""
    top = max(histogram)
    winner = histogram.index(top)
    q = 0.0
    for i, count in enumerate(histogram):
        if i != winner:
            q += 0.5 * math.erfc((top - count) / (2.0 * sigma))
    flat = order / sigma**2
    if not 0.0 < q < 1.0:
        return flat if q > 0.0 else 0.0
    mu2 = sigma * math.sqrt(-math.log(q))
    mu1 = mu2 + 1.0
    if mu2 <= 1.0 or order > mu1:
        return flat
    eps1, eps2 = mu1 / sigma**2, mu2 / sigma**2
    if math.log(q) > (mu2 - 1.0) * eps2 - mu2 * math.log(mu1 / (mu1 - 1.0) * mu2 / (mu2 - 1.0)):
        return flat
    inner = (math.log(q) + eps2) * (mu2 - 1.0) / mu2
    if inner >= 0.0:
        return flat
    log_a = math.log1p(-q) - math.log1p(-math.exp(inner))
    log_b = eps1 - math.log(q) / (mu1 - 1.0)
    stays = math.log1p(-q) + (order - 1.0) * log_a
    leaves = math.log(q) + (order - 1.0) * log_b
    high, low = max(stays, leaves), min(stays, leaves)
    return min(flat, max(0.0, (high + math.log1p(math.exp(low - high))) / (order - 1.0)))


def _loop(one: Callable[[list[int], float, float], float], counts: IntArray, noise: float) -> FloatArray:
    rows = counts.tolist()
    return np.array([[one(row, noise, order) for order in WIDE_ORDERS] for row in rows])


def _timed(run: Callable[[], Result], repeats: int) -> tuple[float, Result]:
    """The least CPU seconds of so many runs, at least one, and what the last gave."""
    best = math.inf
    for _ in range(repeats):
        start = time.process_time()
        result = run()
        best = min(best, time.process_time() - start)
    return best, result


def measure(queries: int = 1000, classes: int = 10, teachers: int = 250, seed: int = 1) -> dict[str, Any]:
    """All timings in CPU seconds, and how much faster the bounds are than the loop that gives the same values."""
    counts = votes(queries, classes, teachers, seed)
    result: dict[str, Any] = {
        "queries": queries,
        "classes": classes,
        "teachers": teachers,
        "orders": len(WIDE_ORDERS),
        "distinct_histograms": int(np.unique(np.sort(counts, axis=1), axis=0).shape[0]),
    }
    for name, ours, plain, noise in (
        ("theorem_3", theorem_3, plain_theorem_3, GAMMA),
        ("theorem_6", theorem_6, plain_theorem_6, SIGMA),
    ):
        seconds, values = _timed(partial(ours, counts, noise, WIDE_ORDERS), 5)
        loop_seconds, reference = _timed(partial(_loop, plain, counts, noise), 1)
        if not np.allclose(values, reference, rtol=1e-6, atol=1e-14):
            raise AssertionError(f"{name} and the plain loop disagree by {np.abs(values - reference).max()}")
        result[f"{name}_s"] = seconds
        result[f"{name}_plain_loop_s"] = loop_seconds
        result[f"{name}_speedup"] = loop_seconds / seconds
    kinds: tuple[tuple[NoiseKind, float], ...] = (
        ("gaussian", SIGMA),
        ("laplace", 1.0 / GAMMA),
        ("gumbel", 1.0 / GAMMA),
        ("discrete-gaussian", SIGMA),
        ("discrete-laplace", 1.0 / GAMMA),
    )
    for kind, scale in kinds:
        law = NoiseLaw(kind, scale)
        seconds, _ = _timed(partial(exact_divergences, counts, law, WIDE_ORDERS), 2)
        result[f"exact_{kind.replace('-', '_')}_s"] = seconds
    for kind, scale in (("gaussian", SIGMA), ("laplace", 1.0 / GAMMA)):
        result[f"smooth_release_{kind}_s"], _ = _timed(partial(_release, counts, kind, scale), 1)
    return result


_GAMES = (
    *((RoundLaw("discrete-gaussian", SIGMA), rounds) for rounds in (25, 40, 100, 286, 1000)),
    *((RoundLaw("discrete-laplace", 1.0 / GAMMA), rounds) for rounds in (40, 100, 286, 1000)),
    *(
        (RoundLaw("discrete-gaussian", sigma, Adjacency.ADD_REMOVE), votes_of_a_record)
        for sigma, votes_of_a_record in ((110.0, 1), (70.0, 1), (40.0, 3), (40.0, 8), (80.0, 128), (40.0, 512))
    ),
    *(
        (RoundLaw("discrete-gaussian", sigma, Adjacency.ADD_REMOVE, classes=2), votes_of_a_record)
        for sigma, votes_of_a_record in ((8.0, 2), (16.0, 4), (50.0, 4), (50.0, 2))
    ),
    (RoundLaw("discrete-gaussian", SIGMA), 1),
    (RoundLaw("discrete-laplace", 1.0 / GAMMA), 1),
)


def print_games() -> None:
    """Every game of docs/research/exact-accountant.md: ε, certified and attained, their distance, CPU seconds."""
    for law, rounds in _GAMES:
        seconds, (certified, attained) = _timed(partial(_play, law, rounds), 1)
        classes = "two classes" if law.classes == 2 else "any classes"
        print(f"{law.noise} {law.scale:g}, {law.adjacency}, {classes}, T = {rounds}: ", end="")
        print(f"{certified:.5f} {attained:.5f} {100 * (certified / attained - 1):.2f} % {seconds:.1f} s", flush=True)


def _play(law: RoundLaw, rounds: int) -> FloatArray:
    """ε at δ = 1e-5, certified and attained, computed afresh."""
    profile = Profile(tuple(play(game, rounds) for game in law.games()))
    return np.array([profile.epsilon(1e-5), profile.attained(1e-5)])


def print_noise(draws: int = 1_000_000, others: int = 20_000) -> None:
    """A row for each noise: CPU time of our sampler, its table included and apart, and of OpenDP's."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    integers = dp.vector_domain(dp.atom_domain(T="i64"))
    made = {
        1: lambda scale: dp.m.make_laplace(integers, dp.l1_distance(T="i64"), scale=scale),
        2: lambda scale: dp.m.make_gaussian(integers, dp.l2_distance(T="f64"), scale=scale),
    }
    print("| noise | scale | our table, ms | ours, µs a draw | OpenDP, µs a draw |\n|---|---|---|---|---|")
    for power, name in ((2, "discrete Gaussian"), (1, "discrete Laplace")):
        for scale in (5.0, 40.0, 500.0, 5000.0, 8e7):
            system_sampler.cache_clear()
            table, _ = _timed(lambda: _first_draw(power, scale), 1)  # noqa: B023
            ours, _ = _timed(lambda: system_sampler(power, scale).draw(draws), 3)  # noqa: B023
            measurement = made[power](scale)
            theirs, _ = _timed(lambda: measurement([0] * others), 3)  # noqa: B023
            row = f"{1e3 * table:.1f} | {1e6 * ours / draws:.2f} | {1e6 * theirs / others:.1f}"
            print(f"| {name} | {scale:,.0f} | {row} |", flush=True)


def _first_draw(power: int, scale: float) -> IntArray:
    return system_sampler(power, scale).draw(1)


def _release(counts: IntArray, noise: str, scale: float) -> FloatArray:
    """A publishable data-dependent cost at order 6, from the votes to the sanitised ceiling."""
    released = SmoothRelease().release_epsilon(counts, envelope_for(counts, noise, scale, 6.0), 6.0, (6.0,))
    return np.array([released.ceiling])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--games", action="store_true", help="only the exact accountant's table of docs/research/exact-accountant.md"
    )
    parser.add_argument("--noise", action="store_true", help="only our samplers of exact noise beside OpenDP's")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--teachers", type=int, default=250)
    arguments = parser.parse_args()
    if arguments.games:
        print_games()
        return
    if arguments.noise:
        print_noise()
        return
    result = measure(arguments.queries, arguments.classes, arguments.teachers)
    if arguments.json:
        json.dump(result, sys.stdout)
        print()
        return
    for key, value in result.items():
        print(f"{key:32} {value:.4f}" if isinstance(value, float) else f"{key:32} {value}")


if __name__ == "__main__":
    main()
