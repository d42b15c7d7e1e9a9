"""Certified values at δ = 1e-5: at most what they should be, and within 1 % of what a concrete policy attains.

Under Laplace noise among more than two classes within 6 %: no rivals have noise of the law that is extremal.
"""

from __future__ import annotations

import io
import math
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from collegium_accounting.errors import ConfigurationError, UnsupportedAccounting
from collegium_accounting.game import cache, recursion, winner
from collegium_accounting.game.laws import block_epsilon, coarser
from collegium_accounting.game.profile import Profile, compose
from collegium_accounting.game.winner import RoundLaw, winner_epsilons, winner_profile
from collegium_accounting.units import Adjacency

pytestmark = pytest.mark.usefixtures("own_cache")

DELTA = 1e-5


def _within(profile: Profile, most: float, apart: float = 1.01) -> None:
    upper, attained = profile.epsilon(DELTA), profile.attained(DELTA)
    assert upper <= most
    assert attained <= upper <= apart * attained


@pytest.mark.bits
@pytest.mark.parametrize(
    ("sigma", "participations", "most"),
    [(110, 1, 0.0248), (70, 1, 0.0408), (40, 3, 0.125), (40, 8, 0.198), (80, 128, 0.396), (40, 512, 1.80)],
)
def test_a_record_that_votes_seldom_pays_for_the_winner(sigma: float, participations: int, most: float) -> None:
    _within(winner_profile(RoundLaw("discrete-gaussian", sigma, Adjacency.ADD_REMOVE), participations), most)


@pytest.mark.bits
@pytest.mark.parametrize(("sigma", "rounds", "most"), [(8, 2, 0.415), (16, 4, 0.2634), (50, 4, 0.076), (50, 2, 0.056)])
def test_with_two_classes_the_rivals_noise_counts(sigma: float, rounds: int, most: float) -> None:
    _within(winner_profile(RoundLaw("discrete-gaussian", sigma, Adjacency.ADD_REMOVE, classes=2), rounds), most)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "scale", "rounds", "most"),
    [
        ("discrete-gaussian", 40.0, 25, 0.516),
        ("discrete-gaussian", 8.0, 25, 3.06),
        ("discrete-gaussian", 4.0, 1, 1.36),
        ("discrete-laplace", 6.0, 1, 0.3063),
    ],
)
def test_a_moved_vote(noise: str, scale: float, rounds: int, most: float) -> None:
    _within(winner_profile(RoundLaw(noise, scale), rounds), most, 1.06 if noise == "discrete-laplace" else 1.01)


def test_one_round_of_a_vote_added_is_the_largest_over_positions() -> None:
    """T = 1 has a closed form: the largest F(x) − e^ε·F(x − 1) over integers x."""
    profile = winner_profile(RoundLaw("discrete-gaussian", 20.0, Adjacency.ADD_REMOVE), 1)
    mass = np.exp(-0.5 * (np.arange(-400, 401) / 20.0) ** 2)
    below = np.cumsum(mass / mass.sum())
    for epsilon in (0.0, 0.05, 0.15):
        exact = float((below[1:] - math.exp(epsilon) * below[:-1]).max())
        assert exact <= profile.delta(epsilon) <= 1.01 * exact


def test_the_exponential_mechanism_is_worth_its_bounded_range() -> None:
    """One round of range η: δ(ε) = (1 − e^{(ε − η)/2})²/(1 − e^{−η}), Dong, Durfee, Rogers 2020."""
    profile = winner_profile(RoundLaw("gumbel", 4.0), 1)
    eta = 0.5
    for epsilon in (0.0, 0.2, 0.4):
        exact = math.expm1((epsilon - eta) / 2.0) ** 2 / -math.expm1(-eta)
        assert exact * (1.0 - 1e-9) <= profile.delta(epsilon) <= 1.01 * exact


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_integer_noise_has_a_row_at_the_largest_loss(noise: str) -> None:
    """A vote added under Laplace noise of 20 votes is (1/20, 0)-DP, and one round says so to 1e-4 of ε."""
    profile = winner_profile(RoundLaw(f"discrete-{noise}", 20.0, Adjacency.ADD_REMOVE), 1)
    assert profile.epsilon(DELTA) <= (0.05 if noise == "laplace" else 1.001 * profile.attained(DELTA))


@pytest.mark.bits
def test_no_rounds_cost_nothing() -> None:
    assert winner_profile(RoundLaw("discrete-gaussian", 40.0), 0).epsilon(DELTA) == 0.0


@pytest.mark.bits
def test_sampling_costs_less_and_both_directions_are_followed() -> None:
    whole = winner_profile(RoundLaw("discrete-gaussian", 10.0, Adjacency.ADD_REMOVE), 20)
    some = winner_profile(RoundLaw("discrete-gaussian", 10.0, Adjacency.ADD_REMOVE, sampling_rate=0.1), 20)
    assert len(some.directions) == 2
    assert some.attained(DELTA) < some.epsilon(DELTA) < 0.25 * whole.epsilon(DELTA)


@pytest.mark.bits
def test_composing_blocks_rounds_up_and_loses_little() -> None:
    law = RoundLaw("discrete-gaussian", 30.0, Adjacency.ADD_REMOVE)
    together = compose([winner_profile(law, 30), winner_profile(law, 70)])
    whole = winner_profile(law, 100)
    assert whole.attained(DELTA) <= together.epsilon(DELTA) <= 1.03 * whole.epsilon(DELTA)


def test_whoever_asks_for_all_rounds_and_then_for_some_waits_for_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    law, played, honest = RoundLaw("discrete-gaussian", 31.5, Adjacency.ADD_REMOVE), list[int](), recursion.play_through
    for module in (recursion, winner):
        monkeypatch.setattr(module, "play_through", lambda *given: played.append(given[1]) or honest(*given))
    whole, some = block_epsilon({law: 6}, DELTA), block_epsilon({law: 4}, DELTA, {law: 6})
    assert 0.0 < some < whole <= winner_profile(law, 6).epsilon(DELTA)
    assert played == [6]


def test_a_profile_is_read_back_from_its_file(tmp_path: Path) -> None:
    law = RoundLaw("discrete-gaussian", 33.25, Adjacency.ADD_REMOVE)
    first = winner_profile(law, 5).epsilon(DELTA)
    (path,) = (tmp_path / "collegium" / "game").glob("*.npz")
    cache.forget()
    assert winner_profile(law, 5).epsilon(DELTA) == first
    path.write_bytes(b"damaged")
    cache.forget()
    assert winner_profile(law, 5).epsilon(DELTA) == first


def _with(data: bytes, edit: Callable[[str, NDArray[np.float64]], NDArray[np.float64]]) -> bytes:
    """The arrays of a file, each as ``edit`` changes it."""
    with np.load(io.BytesIO(data)) as file:
        changed = {name: edit(name, array) for name, array in file.items()}
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **changed)
    return packed.getvalue()


def _lone_array(_: bytes) -> bytes:
    packed = io.BytesIO()
    np.save(packed, np.zeros(3))
    return packed.getvalue()


@pytest.mark.bits
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",  # after a loss of power
        lambda data: data[: len(data) // 2],
        lambda data: bytes(len(data)),
        lambda data: b"\x93NUMPY\x01\x00" + bytes(100),
        _lone_array,
        lambda data: _with(data, lambda name, array: array[:0]),
        lambda data: _with(data, lambda name, array: array * 0.0 if name != "grids" else array),
        lambda data: _with(data, lambda name, array: array * np.nan),
        lambda data: _with(data, lambda name, array: array - 100.0),
        lambda data: _with(data, lambda name, array: array.astype(str)),  # type: ignore[arg-type]
        lambda data: _with(data, lambda name, array: array * 1e-3 if name != "grids" else array),
        lambda data: _with(data, lambda name, array: array * [[0.7], [1], [1]] if "values" in name else array[::-1]),
    ],
)
def test_a_file_that_is_damaged_or_holds_what_cannot_be_is_computed_anew(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    """An empty one ended a start with a traceback until somebody removed it; one of zeros gave ε = 0."""
    law, files = RoundLaw("discrete-gaussian", 3.0, Adjacency.ADD_REMOVE), tmp_path / "collegium" / "game"
    cache.forget()
    epsilons, profile = winner_epsilons(law, 3, DELTA), winner_profile(law, 3)
    for path in files.glob("*.npz"):
        path.write_bytes(damage(path.read_bytes()))
    cache.forget()
    assert (winner_epsilons(law, 3, DELTA) == epsilons).all()
    assert winner_profile(law, 3).digest() == profile.digest()


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan])
def test_a_scale_that_is_no_noise_is_refused(scale: float) -> None:
    with pytest.raises(ConfigurationError, match="noise scale"):
        RoundLaw("discrete-gaussian", scale)


@pytest.mark.bits
@pytest.mark.parametrize("scale", [0.5, 0.6])
def test_rounds_with_so_little_noise_that_they_tell_everything_are_refused(scale: float) -> None:
    """An IndexError ended whoever read a ledger that stated such a law."""
    law = RoundLaw("discrete-gaussian", scale)
    with pytest.raises(UnsupportedAccounting):
        winner_profile(law, 2).epsilon(DELTA)
    assert block_epsilon({law: 2}, DELTA) == block_epsilon({coarser(law): 2}, DELTA)


def test_what_is_out_of_reach_is_refused_with_what_to_use_instead() -> None:
    with pytest.raises(UnsupportedAccounting, match="Rényi"):
        RoundLaw("discrete-laplace", 1000.0)
    with pytest.raises(UnsupportedAccounting, match="Rényi"):
        winner_profile(RoundLaw("discrete-gaussian", 40.0, Adjacency.ADD_REMOVE), 2).epsilon(1e-12)
    with pytest.raises(ConfigurationError, match="delta"):
        winner_profile(RoundLaw("discrete-gaussian", 40.0, Adjacency.ADD_REMOVE), 2).epsilon(1.5)
    with pytest.raises(ConfigurationError, match="rounds"):
        winner_profile(RoundLaw("discrete-gaussian", 40.0), -1)


def test_every_step_of_the_proof_names_a_function_that_exists() -> None:
    page = (Path(__file__).parents[2] / "docs" / "research" / "exact-accountant.md").read_text(encoding="utf-8")
    table = page.split("| step | function that relies on it |")[1].split("\n\n")[0]
    names = re.findall(r"`([^`]+)`", table)
    assert len(names) > 20
    for name in names:
        pkgutil.resolve_name(f"collegium_accounting.{name}")
