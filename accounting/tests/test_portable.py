"""What is certified is the same to the last bit on every machine: kept bits, computed again with other kernels.

`.ci/run` runs this file once more for each kind of processor that the libraries can pretend to have.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from decimal import Decimal, localcontext

import numpy as np
import pytest
from numpy._core import _multiarray_umath as compiled  # lists the kernels that numpy chooses among
from scipy.special import ndtr

from collegium_accounting import elementary
from collegium_accounting.divergences.independent import sampled_gaussian_curve
from collegium_accounting.game.curves import Sampling, cell_curves
from collegium_accounting.game.front import Front, in_single_precision
from collegium_accounting.game.gaussian import gaussian_epsilon, gaussian_mechanism_profile
from collegium_accounting.game.laws import VectorLaw, discrete_vector
from collegium_accounting.game.lines import discrete_line
from collegium_accounting.game.profile import Profile, compose, in_double_precision
from collegium_accounting.game.recursion import play
from collegium_accounting.game.winner import RoundLaw
from collegium_accounting.noise.distributed import NoiseShare
from collegium_accounting.renyi import WIDE_ORDERS, laplace_curve
from collegium_accounting.units import Adjacency

DELTA = 1e-5

KEPT = {
    "two classes": "0x1.084028c4bd16ap+1",
    "two classes, attained": "0x1.081677b0b45c9p+1",
    "exponential": "0x1.3330c8f6485ebp+0",
    "sampled": "0x1.701df5c794a1ep-4",
    "many classes": "0x1.5c04bbd7b8b62p+0",
    "rivals": "0x1.c0ecb747139d3p-1",
    "vector": "0x1.03bce833adfffp-1",
    "shares": "0x1.e42f3894248e1p-4",
    "beside": "0x1.364f24ae6821cp+1",
    "composed": "0x1.364f2fd377407p+1",
    "rényi": "0x1.0d6c892205152p+1",
    "rényi, sampled": "0x1.f6f50c7e07763p-2",
}


def _played(law: RoundLaw, rounds: int) -> Profile:
    return Profile(tuple(play(game, rounds) for game in law.games()))


def certified(ways: Collection[str] = KEPT) -> dict[str, str]:
    """ε at 1e-5, in hexadecimal, by every way that leads to a certified number, or by some of them."""
    two = _played(RoundLaw("discrete-gaussian", 8.0, classes=2), 12)
    vector = discrete_vector(1.0, 7.0, 2)
    assert isinstance(vector, VectorLaw)
    share = NoiseShare(12.0, 5).law(math.sqrt(2.0), 2)
    assert isinstance(share, VectorLaw)
    sampled = RoundLaw("discrete-gaussian", 6.0, Adjacency.ADD_REMOVE, sampling_rate=0.1)
    every: dict[str, Callable[[], float]] = {
        "two classes": lambda: two.epsilon(DELTA),
        "two classes, attained": lambda: two.attained(DELTA),
        "exponential": lambda: _played(RoundLaw("gumbel", 20.0), 40).epsilon(DELTA),
        "sampled": lambda: _played(sampled, 3).epsilon(DELTA),
        "many classes": lambda: _played(RoundLaw("discrete-gaussian", 4.0), 1).epsilon(DELTA),
        "rivals": lambda: _played(RoundLaw("discrete-laplace", 4.0), 2).epsilon(DELTA),
        "vector": lambda: gaussian_epsilon(vector.mu, vector.slack, DELTA),
        "shares": lambda: share.mu + share.slack,
        "beside": lambda: two.epsilon(DELTA, gaussian_mechanism_profile(0.3)),
        "composed": lambda: compose([two, gaussian_mechanism_profile(0.3)]).epsilon(DELTA),
        "rényi": lambda: (laplace_curve(1.0, 20.0, WIDE_ORDERS) * 100).to_epsilon(DELTA).epsilon,
        "rényi, sampled": lambda: (sampled_gaussian_curve(1.0, 8.0, 0.1, WIDE_ORDERS) * 100).to_epsilon(DELTA).epsilon,
    }
    assert every.keys() == KEPT.keys()
    return {name: float(every[name]()).hex() for name in ways}


@pytest.mark.bits
def test_every_bit_is_the_one_that_another_machine_computed() -> None:
    assert certified() == KEPT


WITH_TWO_THREADS = ("many classes", "vector", "composed")
"""The largest products of matrices among them. Two threads wait for each other in a loop, so that others take long."""


@pytest.mark.bits
@pytest.mark.parametrize("threads", [1, 2])
def test_every_bit_is_the_same_with_the_oldest_kernels_of_the_libraries(threads: int) -> None:
    dispatched = [name for name in compiled.__cpu_dispatch__ if compiled.__cpu_features__.get(name)]
    older = {"NPY_DISABLE_CPU_FEATURES": " ".join(dispatched), "OPENBLAS_CORETYPE": "Prescott"}
    ways = WITH_TWO_THREADS if threads == 2 else tuple(KEPT.keys() - {"many classes"})
    program = f"import json; from {__name__} import certified; print(json.dumps(certified({ways!r})))"
    environment = os.environ | older | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {name: KEPT[name] for name in ways}


@pytest.mark.bits
def test_planted_another_exponential_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "collegium_accounting.game.recursion.normal_density",
        lambda x: elementary.normal_density(x) * (1.0 + 1e-13),
    )
    found = certified(("vector", "composed"))
    assert all(found[name] != KEPT[name] for name in found)


def _reference(function: str, x: float) -> Decimal:
    with localcontext() as context:
        context.prec = 100
        exact = Decimal(x)
        match function:
            case "exp":
                return exact.exp()
            case "expm1":
                return exact.exp() - 1
            case "log":
                return exact.ln()
            case _:
                return (1 + exact).ln()


@pytest.mark.parametrize(
    ("function", "points"),
    [
        ("exp", np.concatenate([np.linspace(-700, 700, 401), np.linspace(-1, 1, 101)])),
        (
            "expm1",
            np.concatenate([np.linspace(-40, 700, 301), np.linspace(-1, 1, 101), 10.0 ** -np.arange(1.0, 40, 3)]),
        ),
        ("log", np.concatenate([10.0 ** np.linspace(-300, 300, 301), np.linspace(0.4, 2.1, 201)])),
        ("log1p", np.concatenate([np.linspace(-0.99, 3, 201), 10.0 ** np.linspace(-40, 30, 101)])),
    ],
)
def test_elementary_functions_are_right_to_a_few_units_of_the_last_place(function: str, points: np.ndarray) -> None:
    call: Callable[[np.ndarray], np.ndarray] = getattr(elementary, function)
    for x, value in zip(points.tolist(), call(points).tolist(), strict=True):
        exact = _reference(function, x)
        assert abs(Decimal(value) - exact) <= abs(exact) * Decimal(2.0**-51)


@pytest.mark.parametrize("terms", [1, 600, 13_063, 200_000])
def test_the_reserve_of_a_sum_in_single_precision_grows_with_its_terms(terms: int) -> None:
    """Added one after the other, small terms vanish beside a large one: the worst order that a library may choose."""
    products = np.ones(terms, np.float32)
    products[0] = 2.0**24
    inexact, exact = float(np.cumsum(products)[-1]), float(products.astype(np.float64).sum())
    assert exact * (1.0 - in_single_precision(terms)) <= inexact
    if terms > 600:
        assert inexact < exact * (1.0 - 600 * 2.0**-24), "a reserve for 600 terms would be too small"


@pytest.mark.parametrize("terms", [1, 20_000, 300_000])
def test_the_reserve_of_composed_profiles_grows_with_their_points(terms: int) -> None:
    """Each small term vanishes beside the first one: from 10,000 of them on, a reserve of 1e-12 is too small."""
    masses = np.full(terms, 2.0**-53)
    masses[0] = 1.0
    computed, exact = float(np.cumsum(masses)[-1]), math.fsum(masses)
    assert computed + in_double_precision(terms) * computed >= exact
    if terms > 10_000:
        assert computed + 1e-12 * computed < exact


def test_elementary_functions_at_their_ends() -> None:
    ends = np.array([-np.inf, np.inf, np.nan])
    assert elementary.exp(ends)[:2].tolist() == [0.0, np.inf] and np.isnan(elementary.exp(ends)[2])
    assert elementary.expm1(ends)[:2].tolist() == [-1.0, np.inf] and np.isnan(elementary.expm1(ends)[2])
    assert elementary.log(np.array([0.0, np.inf, 1.0])).tolist() == [-np.inf, np.inf, 0.0]
    assert np.isnan(elementary.log(np.array([-1.0, np.nan]))).all()
    assert elementary.log1p(np.array([-1.0, np.inf, 0.0])).tolist() == [-np.inf, np.inf, 0.0]
    assert elementary.logaddexp(np.array([-np.inf, 0.0]), np.array([-np.inf, -np.inf])).tolist() == [-np.inf, 0.0]


def test_the_normal_distribution_agrees_with_scipy_in_its_tails() -> None:
    x = np.linspace(-12.0, 9.0, 2001)
    assert elementary.normal_cdf(x) == pytest.approx(ndtr(x), rel=1e-13, abs=0.0)
    assert elementary.tail_ratio(np.array([0.0]))[0] == pytest.approx(math.sqrt(math.pi / 2.0), rel=1e-15)


def test_chords_and_convolutions_are_numpys() -> None:
    rng = np.random.default_rng(3)
    knots, values = np.sort(rng.normal(size=40)), rng.normal(size=40)
    x = np.concatenate([rng.normal(size=200) * 2.0, knots])
    assert elementary.interpolate(x, knots, values) == pytest.approx(np.interp(x, knots, values), rel=1e-12, abs=1e-12)
    first, second = rng.random(30), rng.random(50)
    assert elementary.convolve(first, second) == pytest.approx(np.convolve(first, second), rel=1e-13)


@pytest.mark.parametrize("points", [81, 16_001])
def test_a_bound_by_whole_numbers_is_never_below_sums_of_doubles_however_many_terms_it_has(points: int) -> None:
    """Terms differ by 18 orders of magnitude; above the sums it is by 1e-5 of them at most."""
    line = discrete_line("discrete-gaussian", 20.0, 1, False)
    line = replace(line, root=2 * line.end)  # one cell: the bound is linear then
    grid = np.linspace(-0.5, 0.5, points)
    windows = np.random.default_rng(5).random((30, points)) * np.exp(2.0 * np.arange(30))[:, None] * 1e-30
    windows[:, ::3] *= 1e-18
    (bound, _), curves = (
        Front((line,), Sampling(), grid, signed=False).round(windows, None),
        cell_curves(line.enclose(line.roots()), Sampling(), grid, signed=False),
    )
    by_corners = curves.reserve[0] + curves.corner_gain.max(axis=0)[0]
    curve = min(by_corners, curves.envelope[0], key=np.sum)
    exact = np.array([math.fsum(row) for row in windows * curve])
    assert (bound >= exact * (1.0 - 1e-14)).all()
    assert (bound <= exact * (1.0 + 1e-5)).all()
