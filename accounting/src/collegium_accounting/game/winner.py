"""The exact, certified privacy profile of T adaptively chosen rounds of which only the winner is released."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from collegium_accounting.elementary import FloatArray, exp, expm1, log1p
from collegium_accounting.errors import ConfigurationError, UnsupportedAccounting
from collegium_accounting.game.cache import Key, is_remembered, remembered, remembered_epsilons
from collegium_accounting.game.curves import Direction, Positions, Sampling
from collegium_accounting.game.lines import Line, discrete_line, logistic_line
from collegium_accounting.game.planes import Plane
from collegium_accounting.game.profile import Profile, check_delta
from collegium_accounting.game.recursion import Game, Values, play, play_through
from collegium_accounting.game.rivals import Rivals
from collegium_accounting.progress import SearchStep, report_step
from collegium_accounting.renyi import positive
from collegium_accounting.units import Adjacency

NOISES = ("gumbel", "discrete-gaussian", "discrete-laplace")

SMALLEST_SCALE, LARGEST_SCALE = 0.5, 5000.0
"""Scales, in votes, for which the search is made; votes moved under integer Laplace noise have ``LARGEST_LAPLACE``."""

LARGEST_LAPLACE = 100.0

SMALLEST_USEFUL_SIGMA = 5.0
"""With Gaussian noise of fewer votes, and more than two classes, the winner costs nearly as much as all counts."""

MOST_ROUNDS = 20_000


@dataclass(frozen=True)
class RoundLaw:
    """What one round of a mechanism releases, as far as its privacy is concerned.

    Parameters
    ----------
    noise : one of ``NOISES``, independent on every count. "gumbel" is the exponential mechanism.
    scale : in votes: σ of Gaussian noise, 1/γ of Laplace and Gumbel noise.
    adjacency : one vote moves between classes (REPLACE), or appears or disappears (ADD_REMOVE). A threshold test
        max count + noise ≥ T is ADD_REMOVE under both: either neighbour moves the largest count by at most one.
    classes : the number of classes where it is exactly two, so that the rival's own noise counts; else None. (That of
        any number of rivals counts under Laplace noise, where a vote moves.)
    sampling_rate : probability with which a record takes part in a round. Below 1 the neighbours differ in one
        record, present or absent, and ``adjacency`` says what it does to the counts when it is sampled.
    """

    noise: str
    scale: float
    adjacency: Adjacency = Adjacency.REPLACE
    classes: int | None = None
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        if self.noise not in NOISES:
            raise ConfigurationError(f"no noise is called {self.noise!r}; choose one of {', '.join(NOISES)}")
        positive(self.scale)
        if self.classes is not None and self.classes < 2:
            raise ConfigurationError(f"a vote needs at least 2 classes; got {self.classes}")
        if not 0.0 < self.sampling_rate <= 1.0:
            raise ConfigurationError(f"a sampling rate lies in (0, 1]; got {self.sampling_rate}")
        largest = _largest_scale(self.noise, self.adjacency, self.classes)
        if not SMALLEST_SCALE <= self.scale <= largest:
            raise UnsupportedAccounting(
                f"the exact accountant searches {self.noise} noise of {SMALLEST_SCALE:g} to {largest:g} votes; "
                f"for {self.scale:g} use the Rényi accountant"
            )

    def games(self) -> tuple[Game, ...]:
        """The games whose largest value is the profile: one per ordered pair of neighbours that differs in law."""
        families: tuple[Positions, ...] = (self._line(),)
        rivals = _third_class(self.noise, self.adjacency, self.classes)
        if rivals and self.noise == "discrete-laplace":
            families = (Rivals(self.scale),)
        elif rivals:
            planes = [Plane.build(self.scale, tie_to_a) for tie_to_a in (True, False)]
            families = (*planes, planes[0].duel(self._line()))
        loss, lost = self._largest_loss()
        far = self._line().far
        if self.sampling_rate == 1.0:
            return (Game(families, Sampling(), loss, lost, far),)
        rate = self.sampling_rate
        shrunk = float(max(log1p(rate * expm1(loss)), -log1p(rate * expm1(-loss))))
        return tuple(
            Game(families, Sampling(direction, rate), shrunk, lost, far)
            for direction in (Direction.PRESENT, Direction.ABSENT)
        )

    def _line(self) -> Line:
        votes = 2 if self.adjacency is Adjacency.REPLACE else 1
        rival = self.adjacency is Adjacency.REPLACE or self.classes == 2
        if self.noise == "gumbel":
            return logistic_line(self.scale, votes)
        return discrete_line(self.noise, self.scale, votes, rival)

    def _largest_loss(self) -> tuple[float, float]:
        """|log P/Q| beyond which any hockey-stick divergence of one round is at most the second number.

        Pure privacy bounds it for Laplace and Gumbel noise. Gaussian noise, integer or not, is ρ-zCDP with
        ρ = μ²/2 (Bun and Steinke 2016; Canonne, Kamath, Steinke 2020), so Pr[loss > ℓ] ≤ e^{−(ℓ − ρ)²/4ρ}.
        """
        entries = 2.0 if self.adjacency is Adjacency.REPLACE else 1.0
        if not self.noise.endswith("gaussian"):
            return entries / self.scale, 0.0
        mu = math.sqrt(entries) / self.scale
        return mu * mu / 2.0 + 9.0 * mu, float(exp(-40.5))


def winner_is_searched(noise: str, scale: float, adjacency: Adjacency, classes: int | None) -> bool:
    """Whether a `RoundLaw` of these is searched, and may cost less than the whole noisy counts."""
    plane = noise.endswith("gaussian") and _third_class(noise, adjacency, classes)
    smallest = SMALLEST_USEFUL_SIGMA if plane else SMALLEST_SCALE
    return smallest <= scale <= _largest_scale(noise, adjacency, classes)


def _third_class(noise: str, adjacency: Adjacency, classes: int | None) -> bool:
    return adjacency is Adjacency.REPLACE and classes != 2 and noise != "gumbel"


def _largest_scale(noise: str, adjacency: Adjacency, classes: int | None) -> float:
    return LARGEST_LAPLACE if noise == "discrete-laplace" and _third_class(noise, adjacency, classes) else LARGEST_SCALE


def winner_profile(law: RoundLaw, rounds: int) -> Profile:
    """δ(ε) of ``rounds`` rounds whose histograms an adversary chooses, each after seeing the winners so far.

    Unless the result is known already, whoever listens to searches is told (``progress.listening``).

    Parameters
    ----------
    law : what one round is.
    rounds : T, at least 0. For a record that votes in at most P of the rounds, wherever they fall, it is P: in
        the others it changes nothing.

    Returns
    -------
    Profile
        An upper bound on the hockey-stick divergence for every ε, both directions, whatever the counts and the
        numbers of classes and of votes; with the value that a concrete policy attains: within about 1 % in ε, and 8 %
        where a vote moves among more than two classes under Laplace noise.

    Raises
    ------
    ConfigurationError : fewer than 0 rounds.
    UnsupportedAccounting : more rounds than ``MOST_ROUNDS``.

    References
    ----------
    docs/research/exact-accountant.md, "The exact accountant".
    """
    key = _checked_key(law, rounds)
    told = _told(law, rounds)
    return Profile(remembered(key, lambda: tuple(play(game, rounds, told) for game in law.games())))


def winner_is_known(law: RoundLaw, rounds: int) -> bool:
    """Whether nobody waits for `winner_profile`."""
    return is_remembered(_checked_key(law, rounds))


def winner_epsilons(law: RoundLaw, rounds: int, delta: float, beside: Profile | None = None) -> FloatArray:
    """ε at ``delta`` after 0, 1, …, ``rounds`` rounds of `winner_profile`, shape ``[rounds + 1]``; one recursion.

    Each number holds; the last one is closest. Infinite where nothing is certified. ``beside`` is the profile of a
    release whose law and number are fixed beforehand; it may come before, between or after the rounds, and ε is that
    of both. Raises what `winner_profile` raises, and UnsupportedAccounting for a δ that is too small.
    """
    check_delta(delta)
    key = _checked_key(law, rounds)

    def compute() -> FloatArray:
        found, last = np.zeros(rounds + 1), []
        for game in law.games():
            for played, values in enumerate(play_through(game, rounds, _told(law, rounds))):
                found[played] = max(found[played], _epsilon_or_infinity(values, delta, beside))
            last.append(values)
        remembered(key, lambda: tuple(last))
        # Fewer rounds cost no more, whatever the grid makes of them.
        return np.asarray(np.minimum.accumulate(found[::-1])[::-1])

    return remembered_epsilons(key, delta, compute, "" if beside is None else beside.digest())


def _epsilon_or_infinity(values: Values, delta: float, beside: Profile | None) -> float:
    try:
        return Profile((values,)).epsilon(delta, beside)
    except UnsupportedAccounting:
        return math.inf


def _checked_key(law: RoundLaw, rounds: int) -> Key:
    if rounds < 0 or rounds != int(rounds):
        raise ConfigurationError(f"the number of rounds is a whole number of at least 0; got {rounds}")
    if rounds > MOST_ROUNDS:
        raise UnsupportedAccounting(
            f"the exact accountant plays at most {MOST_ROUNDS} rounds; for {rounds} use the Rényi accountant"
        )
    return law.noise, law.scale, str(law.adjacency), law.classes == 2, law.sampling_rate, int(rounds)


def _told(law: RoundLaw, rounds: int) -> Callable[[int], None]:
    """Tells whoever listens to searches how many of the rounds are computed."""
    subject = f"the exact accountant's {rounds} rounds under {law.noise} noise of {law.scale:g} votes"
    return lambda done: report_step(SearchStep(subject, done, rounds))
