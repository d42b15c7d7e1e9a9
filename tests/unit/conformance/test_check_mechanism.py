"""`check_mechanism` passes Collegium's mechanisms and names the promise that a planted bug breaks."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from collegium_reproduction.interactive_gnmax import InteractiveGNMax

from collegium_accounting.game.laws import Law, VectorLaw
from collegium_accounting.mechanisms import AddedBy, IntArray, Noise, SeededNoise, Unit, create, register, registry
from collegium_accounting.mechanisms.gnmax import GaussianVotes, GNMax
from collegium_accounting.mechanisms.labels import ArgMax
from collegium_accounting.renyi import RenyiCurve
from collegium_conformance import check_mechanism
from collegium_conformance.mechanisms import Sums

OURS = {
    "lnmax": ({"gamma": 0.5}, {}),
    "gnmax": ({"sigma": 3.0}, {}),
    "confident-gnmax": ({"sigma1": 4.0, "sigma2": 3.0, "threshold": 14.0}, {}),
    InteractiveGNMax.name: ({"sigma1": 4.0, "sigma2": 3.0, "threshold": 14.0}, {}),
    "exponential": ({"gamma": 0.5}, {}),
    "ptr": ({"epsilon": 0.5, "delta": 1e-3}, {}),
    "nzc": ({"constant": 100.0, "gamma": 0.5, "accept_no_privacy": True}, {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_collegiums_mechanisms_keep_their_promises(name: str) -> None:
    parameters, options = OURS[name]
    check_mechanism(create(name, **parameters), **options)


def noised_by_parties(sigma: float) -> Sums:
    """Sums that carry the parties' noise of ``sigma`` votes; all are raised by 100 alike, so that none is negative."""

    def sums(histogram: tuple[int, ...], runs: int, generator: np.random.Generator) -> IntArray:
        noise = SeededNoise(int(generator.integers(2**62))).gaussian(sigma, (runs, len(histogram)))
        return np.asarray(np.maximum(0, np.asarray(histogram) + 100 + noise), dtype=np.int64)

    return sums


@pytest.mark.slow
def test_a_mechanism_whose_noise_the_parties_add_keeps_its_promises() -> None:
    check_mechanism(GNMax(3.0), added=AddedBy(3), sums=noised_by_parties(3.0))
    with pytest.raises(AssertionError, match="was measured"):
        check_mechanism(GNMax(3.0), added=AddedBy(3), sums=noised_by_parties(1.0))


@dataclass(frozen=True)
class Planted(GNMax):
    """GNMax with one bug in its release."""

    name: ClassVar[str] = "planted"

    @property
    def stages(self) -> tuple[GaussianVotes, ...]:
        return (self.bug("release", self.sigma, ArgMax()),)

    bug: ClassVar[type[GaussianVotes]] = GaussianVotes


class HalfTheNoise(GaussianVotes):
    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        return GaussianVotes(self.name, self.sigma / 2, ArgMax()).run(counts, noise)


class NoNoise(GaussianVotes):
    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        return GaussianVotes(self.name, 1e-9, ArgMax()).run(counts, noise)


class ChargeTooSmall(GaussianVotes):
    def charge(self, orders: tuple[float, ...], unit: Unit) -> RenyiCurve:
        honest = super().charge(orders, unit)
        return RenyiCurve(honest.orders, honest.values / 2)


class LawTooSmall(GaussianVotes):
    def law(self, unit: Unit, classes: int | None = None) -> Law:
        return VectorLaw(0.5 / self.sigma)


class HighestOfTies(GaussianVotes):
    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        turned = np.ascontiguousarray(counts[:, ::-1]) if np.ndim(counts) == 2 else counts
        return np.shape(counts)[-1] - 1 - super().run(turned, noise)


class OneDrawPerRelease(GaussianVotes):
    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        super().run(counts, noise)  # refuses wrong votes
        drawn = noise.gaussian(self.sigma, (1, counts.shape[1]))
        return np.asarray((counts + drawn).argmax(axis=1), dtype=np.int64)


class SameDrawsAgain(GaussianVotes):
    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        super().run(counts, noise)
        drawn = np.rint(np.random.default_rng(5).normal(0, self.sigma, counts.shape)).astype(np.int64)
        return np.asarray((counts + drawn).argmax(axis=1), dtype=np.int64)


class OwnRandomness(GaussianVotes):
    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        return super().run(counts, SeededNoise(secrets.randbits(64)))


class AnyVotes(GaussianVotes):
    def run(self, counts: IntArray, noise: Noise) -> IntArray:
        counts = np.atleast_2d(counts).astype(np.int64)
        return np.asarray((counts + noise.gaussian(self.sigma, counts.shape)).argmax(axis=1), dtype=np.int64)


@pytest.fixture
def planted() -> Iterator[None]:
    register(Planted)
    yield
    registry._by_name.pop("planted")


@pytest.mark.slow
@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    ("bug", "named"),
    [
        (HalfTheNoise, "was measured"),
        (NoNoise, "was measured"),
        (ChargeTooSmall, "charge"),
        (LawTooSmall, "was measured"),
        (HighestOfTies, "lowest class must win"),
        (OneDrawPerRelease, "same noise for several queries"),
        (SameDrawsAgain, "same noise in two releases"),
        (OwnRandomness, "beside the noise that it is given"),
        (AnyVotes, "must refuse negative counts"),
    ],
)
def test_a_planted_bug_is_caught_by_name(bug: type[GaussianVotes], named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Planted, "bug", bug)
    with pytest.raises(AssertionError, match=named):
        check_mechanism(Planted(3.0))


@pytest.mark.slow
@pytest.mark.usefixtures("planted")
def test_the_same_mechanism_without_a_bug_passes() -> None:
    check_mechanism(Planted(3.0))


@pytest.mark.slow
@pytest.mark.usefixtures("planted")
def test_half_the_noise_is_caught_at_the_noise_of_a_real_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Planted, "bug", HalfTheNoise)
    with pytest.raises(AssertionError, match="was measured"):
        check_mechanism(Planted(20.0), teachers=100, classes=2)
