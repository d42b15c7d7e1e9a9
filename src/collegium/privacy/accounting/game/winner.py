"""The exact, certified privacy profile of T adaptively chosen rounds of which only the winner is released."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

from collegium.errors import ConfigurationError, UnsupportedAccounting
from collegium.privacy.accounting.game.cache import remembered
from collegium.privacy.accounting.game.curves import Direction, Sampling
from collegium.privacy.accounting.game.front import Positions
from collegium.privacy.accounting.game.lines import Line, continuous_line, discrete_line
from collegium.privacy.accounting.game.planes import Plane
from collegium.privacy.accounting.game.profile import Profile, check_delta
from collegium.privacy.accounting.game.recursion import Game, play, play_through
from collegium.privacy.accounting.progress import SearchStep, report_step
from collegium.privacy.units import Adjacency

NOISES = ("gaussian", "laplace", "gumbel", "discrete-gaussian", "discrete-laplace")

SMALLEST_SCALE, LARGEST_SCALE = 0.5, 5000.0
"""Scales, in votes, for which the search is made; moved votes of integer noise have ``LARGEST_INTEGER_SCALE``."""

LARGEST_INTEGER_SCALE = 100.0

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
    classes : the number of classes where it is exactly two, so that the rival's own noise counts; else None.
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
        if not (math.isfinite(self.scale) and self.scale > 0.0):
            raise ConfigurationError(f"a noise scale must be a positive number; got {self.scale}")
        if self.classes is not None and self.classes < 2:
            raise ConfigurationError(f"a vote needs at least 2 classes; got {self.classes}")
        if not 0.0 < self.sampling_rate <= 1.0:
            raise ConfigurationError(f"a sampling rate lies in (0, 1]; got {self.sampling_rate}")
        largest = LARGEST_INTEGER_SCALE if self._moves_in_a_plane and self.noise[:8] == "discrete" else LARGEST_SCALE
        if not SMALLEST_SCALE <= self.scale <= largest:
            raise UnsupportedAccounting(
                f"the exact accountant searches {self.noise} noise of {SMALLEST_SCALE:g} to {largest:g} votes; "
                f"for {self.scale:g} use the Rényi accountant"
            )

    @property
    def _moves_in_a_plane(self) -> bool:
        return self.adjacency is Adjacency.REPLACE and self.classes != 2 and self.noise != "gumbel"

    def games(self) -> tuple[Game, ...]:
        """The games whose largest value is the profile: one per ordered pair of neighbours that differs in law."""
        families: tuple[Positions, ...] = (self._line(),)
        if self._moves_in_a_plane:
            ties = (True, False) if self.noise.startswith("discrete-") else (True,)
            planes = [Plane.build(self.noise, self.scale, tie_to_a) for tie_to_a in ties]
            families = (*planes, planes[0].duel(self._line()))
        loss, lost = self._largest_loss()
        far = self._line().far
        if self.sampling_rate == 1.0:
            return (Game(families, Sampling(), loss, lost, far),)
        rate = self.sampling_rate
        shrunk = max(math.log1p(rate * math.expm1(loss)), -math.log1p(rate * math.expm1(-loss)))
        return tuple(
            Game(families, Sampling(direction, rate), shrunk, lost, far)
            for direction in (Direction.PRESENT, Direction.ABSENT)
        )

    def _line(self) -> Line:
        votes = 2 if self.adjacency is Adjacency.REPLACE else 1
        rival = self.adjacency is Adjacency.REPLACE or self.classes == 2
        build = discrete_line if self.noise.startswith("discrete-") else continuous_line
        return build(self.noise, self.scale, votes, rival)

    def _largest_loss(self) -> tuple[float, float]:
        """|log P/Q| beyond which any hockey-stick divergence of one round is at most the second number.

        Pure privacy bounds it for Laplace and Gumbel noise. Gaussian noise, integer or not, is ρ-zCDP with
        ρ = μ²/2 (Bun and Steinke 2016; Canonne, Kamath, Steinke 2020), so Pr[loss > ℓ] ≤ e^{−(ℓ − ρ)²/4ρ}.
        """
        entries = 2.0 if self.adjacency is Adjacency.REPLACE else 1.0
        if not self.noise.endswith("gaussian"):
            return entries / self.scale, 0.0
        mu = math.sqrt(entries) / self.scale
        return mu * mu / 2.0 + 9.0 * mu, math.exp(-40.5)


def winner_profile(law: RoundLaw, rounds: int, progress: Callable[[int], None] | None = None) -> Profile:
    """δ(ε) of ``rounds`` rounds whose histograms an adversary chooses, each after seeing the winners so far.

    Parameters
    ----------
    law : what one round is.
    rounds : T, at least 0. For a record that votes in at most P of the rounds, wherever they fall, it is P: in
        the others it changes nothing.
    progress : told the number of rounds computed so far; nothing is told when the result is known already. Without
        it whoever listens to searches is told (``progress.listening``).

    Returns
    -------
    Profile
        An upper bound on the hockey-stick divergence for every ε, both directions, whatever the counts and the
        numbers of classes and of votes; with the value that a concrete policy attains, within about 1 % in ε.

    Raises
    ------
    ConfigurationError : fewer than 0 rounds.
    UnsupportedAccounting : more rounds than ``MOST_ROUNDS``.

    References
    ----------
    docs/privacy.md, "The exact accountant".
    """
    if rounds < 0 or rounds != int(rounds):
        raise ConfigurationError(f"the number of rounds is a whole number of at least 0; got {rounds}")
    if rounds > MOST_ROUNDS:
        raise UnsupportedAccounting(
            f"the exact accountant plays at most {MOST_ROUNDS} rounds; for {rounds} use the Rényi accountant"
        )
    key = (law.noise, law.scale, str(law.adjacency), law.classes == 2, law.sampling_rate, int(rounds))
    told = progress or _told(int(rounds))
    return Profile(remembered(key, lambda: tuple(play(game, int(rounds), told) for game in law.games())))


def affordable_rounds(law: RoundLaw, epsilon: float, delta: float, most: int) -> int:
    """The largest number of rounds, at most ``most``, that is certified to be (ε, δ)-DP; one run of the recursion.

    It is closest where ``most`` is not much larger than the result. Raises what `winner_profile` raises.
    """
    check_delta(delta)
    found = most
    for game in law.games():
        profiles = (Profile((values,)) for values in play_through(game, found, _told(most)))
        fits = takewhile(lambda profile: profile.delta(epsilon) <= delta, profiles)
        found = max(0, sum(1 for _ in fits) - 1)
    return found


def _told(rounds: int) -> Callable[[int], None]:
    """Tells whoever listens to searches how many of the rounds are computed."""
    return lambda done: report_step(SearchStep("the exact accountant's rounds", 1, done, rounds))
