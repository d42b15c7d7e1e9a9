"""Empirical lower bound on ε of a mechanism as shipped: an adaptive attacker plays many runs of T rounds against it.

The attack is planned before the runs (`attack`), so that choosing it cannot flatter the result. Both neighbouring
data sets are run with the same noise, which makes their hits differ less and leaves every bound true. With p and q the
rates of a hit, ε ≥ log((p − δ)/q), and q/p = Pr[hit on both]/p + Pr[hit on the neighbour alone]/p. Where the mechanism
states the law of its noise, p and q are known as well, and other rates refute that law: noise that is used again in
the next round, for instance, or a wrong rule for ties.

What is audited is what is released. Where records have budgets of their own, the one that differs takes part in as many
rounds as its budget pays for, and no others are played. Of class sums and counts the whole noisy vector is released,
which `attack_vectors` attacks.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from collegium_accounting.analysis.attack import Attack, pairs_of, plan_attack
from collegium_accounting.analysis.attack_vectors import VectorAttack, vector_attacks
from collegium_accounting.analysis.epsilons import exact_epsilon, planned_charges
from collegium_accounting.errors import ConfigurationError, UnsupportedAccounting
from collegium_accounting.mechanisms.base import Mechanism, Noise
from collegium_accounting.mechanisms.labels import LabelMechanism
from collegium_accounting.mechanisms.whole_vector import VectorMechanism

_BATCH = 200_000
_SHARES = (1.0, 0.96, 0.93, 0.9, 0.85, 0.8, 0.7, 0.55, 0.4)
"""The attacks that are planned tell the data sets apart by more than e^ε for these shares of the stated ε."""

_NO_STATED_EPSILON = 5.0
"""What takes its place in planning where it is infinite."""


@dataclass(frozen=True)
class Audit:
    """What the runs showed.

    Attributes
    ----------
    hits, hits_on_neighbour : runs that the attacker called, with the one and the other data set.
    expected_rate, expected_rate_on_neighbour : what they are by the stated noise; None where none is stated.
    epsilon_lower_bound : ε at ``delta`` is at least this, but for ``failure_probability``.
    epsilon_stated : what is certified for this number of classes; for more than two, for any number of them.
    teachers, classes : of every histogram; 0 where whole vectors are released.
    rounds : that were played.
    follows_its_law : False when the rates refute the stated noise at that probability.
    consistent : False when they refute the stated ε or the stated noise.
    """

    mechanism: str
    parameters: dict[str, float | int | str]
    adjacency: str
    teachers: int
    classes: int
    rounds: int
    runs: int
    hits: int
    hits_on_neighbour: int
    expected_rate: float | None
    expected_rate_on_neighbour: float | None
    delta: float
    failure_probability: float
    epsilon_lower_bound: float
    epsilon_stated: float
    noise: str
    follows_its_law: bool
    consistent: bool

    def as_dict(self) -> dict[str, Any]:
        """For JSON: an infinite stated ε as the string "inf"; with the share of the stated ε that was reached."""
        plain = asdict(self) | {"share_reached": round(self.epsilon_lower_bound / self.epsilon_stated, 3)}
        if math.isinf(self.epsilon_stated):
            plain["epsilon_stated"] = "inf"
        return plain


def clopper_pearson(hits: int, runs: int, failure: float) -> tuple[float, float]:
    """Lower and upper bound of a rate, each wrong with probability at most ``failure``."""
    from scipy.special import betaincinv  # takes half a second to load

    low = 0.0 if hits == 0 else float(betaincinv(hits, runs - hits + 1, failure))
    high = 1.0 if hits == runs else float(betaincinv(hits + 1, runs - hits, 1.0 - failure))
    return low, high


def audit(  # noqa: PLR0913 -- one call with names for a notebook; each is an option of the command
    mechanism: Mechanism,
    noise: Noise,
    *,
    teachers: int,
    classes: int = 2,
    rounds: int = 1,
    runs: int = 1_000_000,
    delta: float = 1e-5,
    failure_probability: float = 1e-6,
    progress: Callable[[int], None] = lambda done: None,
) -> Audit:
    """Attack ``rounds`` answers of ``mechanism``, chosen adaptively, under its own adjacency.

    Parameters
    ----------
    mechanism, noise : what is run, and where its noise comes from.
    teachers, classes : votes per query, one of which is the neighbours' difference, and the number of classes.
    rounds : T, the number of queries in a run.
    runs : with each of the two data sets, at least 1,000.
    delta, failure_probability : of the statement that is tested, and of the measured bound.
    progress : told how many runs were played.

    Raises
    ------
    UnsupportedAccounting
        Where counts alone do not show what its charge relies on.

    Examples
    --------
    >>> from collegium_accounting import GNMax, audit
    >>> from collegium_accounting.mechanisms import SystemNoise
    >>> audit(GNMax(sigma=2), SystemNoise(), teachers=10, runs=1000).consistent  # False once in a million times
    True
    """
    if mechanism.no_audit_because:
        raise UnsupportedAccounting(f"{mechanism.name} cannot be audited on counts: {mechanism.no_audit_because}")
    if runs < 1000 or rounds < 1 or teachers < 2 or classes < 2 or not 0.0 < delta < 1.0:
        raise ConfigurationError(
            "an audit needs at least 1000 runs, 1 round, 2 teachers and 2 classes, and δ in (0, 1)"
        )
    rounds = mechanism.charged_queries(rounds)
    stated = exact_epsilon(planned_charges(mechanism, mechanism.unit(), rounds), delta, classes)

    def score(attack: VectorAttack | Attack) -> float:
        """The lower bound that is expected of so many runs."""
        hits, others = round(runs * attack.rate), round(runs * attack.other_rate)
        # Where the same noise misses both or hits both, a hit on the neighbour alone is rare.
        return lower_bound(runs, hits, others, min(hits, others), delta, failure_probability)

    attacks: Sequence[VectorAttack | Attack]
    if isinstance(mechanism, VectorMechanism):
        attacks, teachers, classes = vector_attacks(mechanism, rounds), 0, 0
    elif isinstance(mechanism, LabelMechanism):
        attacks = _planned(mechanism, teachers, classes, rounds, stated)
    else:
        raise UnsupportedAccounting(f"{mechanism.name} cannot be audited: it releases neither labels nor whole vectors")
    attack = max(attacks, key=score)
    both = first = second = 0
    for start in range(0, runs, _BATCH):
        hit, hit_other = attack.play(noise, min(_BATCH, runs - start))
        both += int((hit & hit_other).sum())
        first, second = first + int(hit.sum()), second + int(hit_other.sum())
        progress(min(start + _BATCH, runs))
    lower = lower_bound(runs, first, second, both, delta, failure_probability)
    follows = not attack.known or all(
        low <= rate <= high
        for hits, rate in ((first, attack.rate), (second, attack.other_rate))
        for low, high in [clopper_pearson(hits, runs, failure_probability / 8.0)]
    )
    return Audit(
        mechanism=mechanism.name,
        parameters=mechanism.parameters(),
        adjacency=str(mechanism.unit().adjacency),
        teachers=teachers,
        classes=classes,
        rounds=rounds,
        runs=runs,
        hits=first,
        hits_on_neighbour=second,
        expected_rate=attack.rate if attack.known else None,
        expected_rate_on_neighbour=attack.other_rate if attack.known else None,
        delta=delta,
        failure_probability=failure_probability,
        epsilon_lower_bound=lower,
        epsilon_stated=stated,
        noise="system" if noise.private else "seeded",
        follows_its_law=follows,
        consistent=lower <= stated and follows,
    )


def lower_bound(runs: int, hits: int, others: int, both: int, delta: float, failure: float) -> float:
    """The least ε that fits ``hits`` with one data set, ``others`` with its neighbour and ``both`` with the same noise.

    It is wrong with probability at most half of ``failure``. Given which runs are hits, those that are hits on the
    neighbour as well are a binomial count; so are those on the neighbour alone among all that are hits on either.
    """
    if hits == 0:
        return 0.0
    rate = clopper_pearson(hits, runs, failure / 8.0)[0]
    shared = clopper_pearson(both, hits, failure / 4.0)[1]
    alone = clopper_pearson(others - both, hits + others - both, failure / 8.0)[1]
    ratio = shared + alone / (1.0 - alone) if alone < 1.0 else math.inf
    return max(0.0, math.log((1.0 - delta / rate) / ratio)) if rate > delta else 0.0


def _planned(mechanism: LabelMechanism, teachers: int, classes: int, rounds: int, stated: float) -> list[Attack]:
    aim = stated if math.isfinite(stated) else _NO_STATED_EPSILON
    return [
        plan_attack(mechanism, pairs, rounds, share * aim)
        for pairs in pairs_of(mechanism, teachers, classes)
        for share in _SHARES
    ]
