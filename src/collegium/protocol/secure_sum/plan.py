"""How many neighbours each party needs, and how many of them open a secret: computed, not guessed.

Notation: n parties on the roster; at most C of them collude with the coordinator; D drop out; Q is the quorum. Each
chooses k *holders*, of whom t open a secret. docs/research/secure-sum-graph.md proves the bounds
A_s, B_s and s* that are computed here.
"""

import hashlib
import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np

from collegium.errors import ConfigurationError
from collegium.protocol.secure_sum import keys
from collegium_accounting.renyi import FloatArray
from collegium_accounting.units import IntArray

SMALLEST_SUM = 3
"""Parties below which a sum shows too much: with two, each learns the other's votes."""

COMPLETE_UP_TO = 250
"""Parties whose sum on the complete graph takes seconds; its cost grows as their square."""

SECURITY_BITS = 40
"""A party demands that a graph fails against collusion with a probability of at most 2 to the minus this."""

LIVENESS = 1e-6
"""The largest probability that the stated drop-outs make a sum fail."""

SAMPLE_BITS = 128
"""A sample of signatures deceives with a probability of at most 2 to the minus this, for each tree that is tried."""


@dataclass(frozen=True)
class GraphPlan:
    """Who shares with how many, and what may go wrong with which probability.

    Parameters
    ----------
    parties : n, the size of the roster.
    neighbours : k, holders that each party chooses; ``parties − 1`` is the complete graph.
    threshold : t, shares that open a secret.
    colluding : C, parties that may collude with the coordinator.
    dropped : D, parties that may drop out at any phase.
    security_bits : the failure probability against collusion is at most 2 to the minus this.
    secrecy_failure, liveness_failure : the computed bounds (probabilities; 0 for the complete graph).
    quorum : Q, fewest participants, survivors and signatures that an honest party accepts; at least `least_quorum`.
    isolated : s*, honest survivors that a coordinator choosing the drop-outs can leave out unseen.
    summed : S, fewest survivors that an honest party accepts, where these are more than the quorum; else 0. Once their
        masked vectors are there, a quorum of them opens the sum.
    """

    parties: int
    neighbours: int
    threshold: int
    colluding: int
    dropped: int
    security_bits: int
    secrecy_failure: float
    liveness_failure: float
    quorum: int
    isolated: int = 0
    summed: int = 0

    @property
    def least_summed(self) -> int:
        """Fewest vectors that any opened sum holds."""
        return max(self.quorum, self.summed)

    @property
    def of_all(self) -> "GraphPlan":
        """The same graph for a sum of the vectors of all parties: whoever sends none ends it before it is opened."""
        return replace(self, summed=self.parties)

    @property
    def majority(self) -> int:
        """So many signatures under a survivors' list show that no other list can have as many; see `least_quorum`."""
        return least_quorum(self.parties, self.colluding)

    @property
    def complete(self) -> bool:
        """Whether every party holds shares of every other."""
        return self.neighbours == self.parties - 1

    @property
    def honest_survivors(self) -> int:
        """Fewest honest parties whose vectors any opened sum holds."""
        return self.least_summed - self.colluding - self.isolated

    def __str__(self) -> str:
        shape = "all others" if self.complete else f"{self.neighbours} others each"
        unless = f" but for {self.liveness_failure:.0e}" if self.liveness_failure else ""
        return (
            f"among {self.parties} parties: shares with {shape}, any {self.threshold} open a secret, {self.quorum} "
            f"must stay; at most {self.dropped} may drop out{unless}, and {self.colluding} collude but for "
            f"2^-{self.security_bits}"
        )


def least_quorum(parties: int, colluding: int) -> int:
    """The smallest Q of which two survivors' lists cannot both gather signatures: 2Q > n + C."""
    return (parties + colluding) // 2 + 1


def _log_choose(n: FloatArray | int, k: FloatArray | int) -> FloatArray:
    from scipy.special import gammaln  # takes half a second to load, and few parties need none of it

    return np.asarray(gammaln(np.add(n, 1.0)) - gammaln(np.add(k, 1.0)) - gammaln(np.subtract(n, k) + 1.0))


def log_hypergeometric_tail(population: int, marked: FloatArray | int, draws: int, least: int) -> FloatArray:
    """log Pr[Hyp(population, marked, draws) ≥ least] for each entry of ``marked``; −inf where impossible."""
    marks = np.atleast_1d(np.asarray(marked, dtype=np.float64))[:, None]
    if least <= 0:
        return np.zeros(marks.shape[0])
    hits = np.arange(least, draws + 1, dtype=np.float64)[None, :]
    possible = (hits <= marks) & (draws - hits <= population - marks)
    hits_ok = np.where(possible, hits, 0.0)
    misses_ok = np.where(possible, draws - hits, 0.0)
    log_mass = _log_choose(marks, hits_ok) + _log_choose(population - marks, misses_ok) - _log_choose(population, draws)
    tail: FloatArray = np.logaddexp.reduce(np.where(possible, log_mass, -np.inf), axis=1)
    return np.minimum(0.0, tail)


@lru_cache(maxsize=256)
def secrecy_failure(
    parties: int, quorum: int, colluding: int, neighbours: int, threshold: int, target: float = 0.0
) -> tuple[float, int]:
    """Bound on the probability that the coordinator and its colluders learn more than one large sum.

    Returns
    -------
    failure, isolated : A_1 + … + A_{s*} + B_{s*+1} + … of docs/research/secure-sum-graph.md, and s*: the smallest s*
        whose failure is at most ``target``, or the one with the least failure when there is none.
    """
    if neighbours >= parties - 1:
        return (0.0 if threshold > colluding else 1.0), 0
    s = np.arange(1, max(2, (parties - colluding) // 2 + 1), dtype=np.float64)
    r = np.maximum(s, quorum - colluding - s)
    sets = _log_choose(parties, s)
    log_a = sets + s * log_hypergeometric_tail(parties - 1, colluding + s - 1, neighbours, threshold)

    def log_none(marked: FloatArray) -> FloatArray:
        left = parties - 1 - marked
        safe = np.maximum(left, neighbours)
        value = _log_choose(safe, neighbours) - _log_choose(parties - 1, neighbours)
        return np.where(left >= neighbours, value, -np.inf)

    # Edges that only one side chose can be withheld: a part is free of edges where the other's choices leave it out.
    log_b = sets + _log_choose(parties - s, r) + np.logaddexp(s * log_none(r), r * log_none(s))
    openable = np.concatenate([[-np.inf], np.logaddexp.accumulate(log_a)])
    # A_1 covers the first case of the proof, which is a failure whatever s* is.
    openable[0] = log_a[0]
    splits = np.concatenate([np.logaddexp.accumulate(log_b[::-1])[::-1], [-np.inf]])
    failures = np.minimum(1.0, np.exp(np.minimum(0.0, np.logaddexp(openable, splits))))
    # Parts of at most a quarter each add up to at most a quarter: otherwise some union of them is a larger split.
    failures = failures[: max(1, (quorum - colluding) // 4 + 1)]
    meets = np.flatnonzero(failures <= target)
    isolated = int(meets[0]) if meets.size else int(np.argmin(failures))
    return float(failures[isolated]), isolated


def liveness_failure(parties: int, dropped: int, neighbours: int, threshold: int) -> float:
    """Bound on the probability that ``dropped`` random drop-outs make some secret unrecoverable."""
    log_tail = log_hypergeometric_tail(parties - 1, dropped, neighbours, neighbours - threshold + 1)
    return float(min(1.0, parties * math.exp(float(log_tail[0]))))


def _least_threshold(parties: int, quorum: int, colluding: int, neighbours: int, target: float) -> int | None:
    """The smallest t in 2 … k that meets the secrecy bound; the bound falls as t grows."""

    def secrecy(threshold: int) -> float:
        return -secrecy_failure(parties, quorum, colluding, neighbours, threshold)[0]

    if secrecy(neighbours) < -target:
        return None
    return 2 + bisect_left(range(2, neighbours), -target, key=secrecy)


@lru_cache(maxsize=256)
def plan_graph(
    parties: int,
    dropout_fraction: float = 0.3,
    collusion_fraction: float = 0.1,
    security_bits: int = SECURITY_BITS,
    quorum: float = 0.0,
    complete: bool = False,
) -> GraphPlan:
    """The sparsest graph, found by bisection, that meets both failure bounds; else the complete graph.

    Parameters
    ----------
    parties : size of the roster, at least 3.
    dropout_fraction : largest fraction that may drop out over all phases; ⌊fraction · parties⌋ parties.
    collusion_fraction : largest fraction that may collude with the coordinator; rounded up, at least one party.
    security_bits : the graph fails with probability 2^−(security_bits + 1) at most.
    quorum : fraction of the roster without which the round is of no use: the parties insist on it, so that more honest
        survivors are certain and their noise counts. Q is never below `least_quorum`.
    complete : whether it must be the complete graph, on which two sums over one list of survivors are certainly over
        the same parties.

    Raises
    ------
    ConfigurationError
        When the fractions contradict each other: fewer than Q parties would be left.
    """
    if parties < SMALLEST_SUM:
        raise ConfigurationError(
            f"a secure sum needs at least {SMALLEST_SUM} parties, got {parties}: take in more, or use the mode 'clear'"
        )
    if not (0.0 <= dropout_fraction < 1.0 and 0.0 <= collusion_fraction < 1.0):
        raise ConfigurationError("dropout and collusion are fractions in [0, 1)")
    if not 0.0 <= quorum <= 1.0:
        raise ConfigurationError(f"a quorum is a fraction in [0, 1], got {quorum}")
    if not 1 <= security_bits <= 128:
        raise ConfigurationError(f"security_bits must lie in 1 to 128, got {security_bits}")
    dropped = math.floor(min(dropout_fraction, 1.0 - quorum) * parties + 1e-9)
    colluding = max(1, math.ceil(collusion_fraction * parties - 1e-9))
    needed = max(least_quorum(parties, colluding), math.ceil(quorum * parties - 1e-9))
    if parties - dropped < needed or needed - 2 < colluding:
        raise ConfigurationError(
            f"{parties} parties cannot bear {dropped} drop-outs and {colluding} colluders at once: "
            f"{needed} must remain; lower the drop-out or collusion fraction"
        )

    target = 2.0 ** -(security_bits + 1)

    @cache
    def plan_with(neighbours: int) -> GraphPlan | None:
        threshold = _least_threshold(parties, needed, colluding, neighbours, target)
        if threshold is None:
            return None
        failure = liveness_failure(parties, dropped, neighbours, threshold)
        if failure > LIVENESS:
            return None
        secrecy, isolated = secrecy_failure(parties, needed, colluding, neighbours, threshold, target)
        return GraphPlan(
            parties, neighbours, threshold, colluding, dropped, security_bits, secrecy, failure, needed, isolated
        )

    # A party has about 2k edges (it chooses k and is chosen by k): above half, the complete graph is as cheap. To try k
    # takes time in n·k, and the k that is found grows with log n: small ones are tried first.
    low, highest = 3, 0 if complete else min(needed - 2, (parties - 2) // 2)
    high = min(64, highest)
    best = plan_with(high) if high >= low else None
    while best is None and low <= high < highest:
        low, high = high + 1, min(2 * high, highest)
        best = plan_with(high)
    if best is not None:
        sparsest = low + bisect_left(range(low, high), True, key=lambda neighbours: plan_with(neighbours) is not None)
        return plan_with(sparsest) or best
    return GraphPlan(parties, parties - 1, needed - 1, colluding, dropped, security_bits, 0.0, 0.0, needed)


def signatures_to_check(shown: int, majority: int) -> int:
    """How many of ``shown`` survivors' signatures a party verifies.

    They are drawn by a hash of what was shown (`sampled`). If fewer than ``majority`` of them are valid, all of a
    random sample of s are with probability at most C(majority − 1, s)/C(shown, s). The smallest s that makes this at
    most 2^−`SAMPLE_BITS` is returned, never more than ``majority`` (which is conclusive).
    """
    log_probability = 0.0
    for checked in range(min(majority, shown)):
        if log_probability <= -SAMPLE_BITS * math.log(2.0):
            return checked
        log_probability += math.log(max(majority - 1 - checked, 0) / (shown - checked) or 5e-324)
    return min(majority, shown)


def sampled(signed: bytes, signers: bytes, root: bytes, shown: int, majority: int) -> list[int]:
    """Positions, ascending, of the signatures that every party verifies, out of ``shown``.

    They follow from the survivors' list as it was signed, the set of signers and the root of the hash tree over all
    signatures. Whoever wants another sample must therefore make another tree first: to pass with fewer than
    ``majority`` valid signatures takes about 2^`SAMPLE_BITS` trees (Fiat and Shamir 1986, the hash being a random
    oracle).
    """
    key = hashlib.sha256(keys.SAMPLE + signed + signers + root).digest()
    positions: list[int] = _distinct(key, shown, signatures_to_check(shown, majority)).tolist()
    return positions


def holders_of(owner: int, nonce: bytes, setup: bytes, parties: int, neighbours: int) -> IntArray:
    """Indices of the owner's holders, ascending: a uniform ``neighbours``-subset of the other parties on the roster.

    The draw's key is derived from the nonce, the set-up's digest and the owner. With ``neighbours`` at or above the
    number of others, all of them hold shares.
    """
    if neighbours >= parties - 1:
        return np.delete(np.arange(parties, dtype=np.int64), owner)
    chosen = _distinct(keys.derive_key(nonce, keys.GRAPH, setup, owner), parties - 1, neighbours)
    return chosen + (chosen >= owner)


def _distinct(key: bytes, population: int, count: int) -> IntArray:
    """``count`` different numbers below ``population``, ascending, in a time that does not grow with the population.

    A ChaCha20 stream gives 64-bit numbers, which are taken modulo the population until enough of them differ. For 10^6
    parties no subset is likelier than another by more than a factor of 1 + 2^-44 per number.
    """
    words, found = 2 * count + 32, list[int]()
    while len(found) < count:
        drawn = np.frombuffer(keys.keystream(key, 8 * words), dtype="<u8") % np.uint64(population)
        found, words = list(dict.fromkeys(drawn.tolist())), 2 * words
    return np.array(sorted(found[:count]), dtype=np.int64)
