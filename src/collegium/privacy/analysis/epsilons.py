"""Every ε that can be said of a plan, of saved votes or of what was charged: the types, and what fills them.

What a mechanism's stages cost does not depend on the votes and may be published. What follows from votes is secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from collegium.errors import UnsupportedAccounting
from collegium.privacy.accounting.game.profile import compose
from collegium.privacy.accounting.game.winner import RoundLaw, winner_profile
from collegium.privacy.accounting.pld import composed_epsilon
from collegium.privacy.mechanisms.base import Mechanism, Stage
from collegium.privacy.renyi import PAPER_ORDERS, WIDE_ORDERS, Conversion, Epsilon, FloatArray, RenyiCurve
from collegium.privacy.units import IntArray, Unit

LARGEST_PLD_EPSILON = 50.0
"""Beyond it a loss distribution fills the memory to say that there is no privacy."""


Bound = Literal["exact", "argmax", "classic"]
"""Which data-independent bound is the headline: the exact accountant (and our Rényi bound where it does not cover the
mechanism, the unit or δ), our Rényi bound for the winner, or the Rényi bounds of published accountants."""


@dataclass(frozen=True)
class ExactEpsilon:
    """What the exact accountant says at one δ.

    Parameters
    ----------
    certified : float
        ε of every adversary is at most this.
    attained : float
        A concrete adaptive adversary forces this ε, in the game of docs/privacy.md. Where several kinds of rounds
        are composed it is that of one of them.
    """

    certified: float
    attained: float


@dataclass(frozen=True)
class StageCharge:
    """One stage of a mechanism, charged for ``queries`` queries in each of which ``unit`` may change its votes."""

    stage: Stage
    unit: Unit
    queries: int


@dataclass(frozen=True)
class Epsilons:
    """ε for one privacy unit at one δ by every analysis. It holds whatever the votes are, and may be published.

    Parameters
    ----------
    charged : Epsilon
        By the bounds that a budget stops on.
    published : Epsilon or None
        By the bounds of published accountants; None where the stages that were charged are not known.
    moments : Epsilon or None
        The same on moments λ ≤ 8 by the classic conversion, as in PATE (2017).
    loss_distribution : float or None
        By privacy loss distributions of the published mechanisms; None where it was not asked for, where a stage has
        none, and above 50.
    exact : ExactEpsilon or None
        By the exact accountant; None where it was not asked for or does not apply.
    """

    charged: Epsilon
    published: Epsilon | None = None
    moments: Epsilon | None = None
    loss_distribution: float | None = None
    exact: ExactEpsilon | None = None


@dataclass(frozen=True)
class SecretEpsilons:
    """ε that follows from the votes, and is as secret as they are; None where an analysis does not apply.

    Parameters
    ----------
    paper_bound : Epsilon or None
        The mechanism's published data-dependent bound. It covers one direction only.
    paper_bound_moments : Epsilon or None
        The same on moments λ ≤ 8 by the classic conversion.
    exact : Epsilon or None
        The exact loss over all neighbours, both directions, under the continuous noise of the papers.
    exact_released : Epsilon or None
        The same under the discrete noise of a release.
    """

    paper_bound: Epsilon | None = None
    paper_bound_moments: Epsilon | None = None
    exact: Epsilon | None = None
    exact_released: Epsilon | None = None


def value_of(found: Epsilon | None) -> float | None:
    """The number alone; None where there is none."""
    return None if found is None else found.epsilon


def planned_charges(
    mechanism: Mechanism, unit: Unit, queries: int, answered: int | None = None
) -> tuple[StageCharge, ...]:
    """What ``queries`` queries are charged, stage by stage; ``answered`` of them (all by default) pass the first."""
    counts = mechanism.queries_per_stage(queries, answered)
    return tuple(StageCharge(stage, unit, count) for stage, count in zip(mechanism.stages, counts, strict=True))


def _published(charges: Iterable[StageCharge], orders: tuple[float, ...]) -> RenyiCurve:
    total = RenyiCurve.zero(orders)
    for one in charges:
        total = total + one.stage.published_charge(orders, one.unit) * one.queries
    return total


def loss_distribution_epsilon(charges: Sequence[StageCharge], delta: float) -> float | None:
    """ε by privacy loss distributions; None where a stage has none."""
    losses = [one.stage.privacy_loss(one.unit) for one in charges]
    if any(loss is None for loss in losses):
        return None
    return composed_epsilon([(loss, one.queries) for loss, one in zip(losses, charges, strict=True)], delta)


def exact_epsilon(charges: Iterable[StageCharge], delta: float, classes: int | None = None) -> ExactEpsilon | None:
    """ε of ``charges`` by the exact accountant; None where it does not cover a stage, a unit, a scale or ``delta``.

    Parameters
    ----------
    charges : iterable of StageCharge
        Their numbers of queries must be fixed before the first answer, or be upper limits that were.
    delta : float
        δ of the guarantee.
    classes : int or None
        The number of classes, where it is known: two classes cost less.

    References
    ----------
    docs/privacy.md, "The exact accountant".
    """
    rounds: dict[RoundLaw, int] = {}
    try:
        for one in charges:
            law = one.stage.round_law(one.unit, classes)
            if law is None:
                return None
            rounds[law] = rounds.get(law, 0) + one.queries
        if not rounds:
            return ExactEpsilon(0.0, 0.0)
        profile = compose([winner_profile(law, count) for law, count in rounds.items()])
        return ExactEpsilon(profile.epsilon(delta), profile.attained(delta))
    except UnsupportedAccounting:
        return None


def all_epsilons(
    charges: Sequence[StageCharge],
    charged: Epsilon,
    *,
    orders: tuple[float, ...] = WIDE_ORDERS,
    loss_distribution: bool = False,
    exact: bool = False,
    classes: int | None = None,
) -> Epsilons:
    """The ε of ``charges`` by every analysis, at the δ and by the conversion of ``charged``, which is known.

    ``orders`` are those of the published bounds. ``loss_distribution`` and ``exact`` ask for the values that take
    long to compute; they do not hold where later charges depended on earlier answers. ``classes`` is the number of
    classes where it is known.
    """
    delta = charged.delta
    published = _published(charges, orders).to_epsilon(delta, charged.conversion)
    finite = published.epsilon <= LARGEST_PLD_EPSILON and loss_distribution
    return Epsilons(
        charged=charged,
        published=published,
        moments=_published(charges, PAPER_ORDERS).to_epsilon(delta, Conversion.CLASSIC),
        loss_distribution=loss_distribution_epsilon(charges, delta) if finite else None,
        exact=exact_epsilon(charges, delta, classes) if exact else None,
    )


def secret_epsilons(
    mechanism: Mechanism,
    votes: IntArray,
    delta: float,
    *,
    unit: Unit | None = None,
    orders: tuple[float, ...] = WIDE_ORDERS,
    conversion: Conversion = Conversion.IMPROVED,
    noise: Sequence[str] = ("continuous", "discrete"),
) -> SecretEpsilons:
    """ε of answering all of ``votes``, shape ``[queries, classes]``, by every analysis of votes.

    The exact losses are computed for the kinds of ``noise``, and for units of one vote alone. Raises
    UnsupportedAccounting where the mechanism's loss must not be computed from votes.
    """
    protected = mechanism.checked_unit(unit)

    def converted(
        losses: FloatArray | None, on: tuple[float, ...] = orders, by: Conversion = conversion
    ) -> Epsilon | None:
        return None if losses is None else RenyiCurve(on, losses.sum(axis=0)).to_epsilon(delta, by)

    def exact(kind: str) -> Epsilon | None:
        if kind not in noise or protected.votes > 1:
            return None
        return converted(mechanism.exact_loss(votes, orders, protected.adjacency, kind == "discrete"))

    moments = mechanism.paper_bound(votes, PAPER_ORDERS, protected)
    return SecretEpsilons(
        paper_bound=converted(mechanism.paper_bound(votes, orders, protected)),
        paper_bound_moments=converted(moments, PAPER_ORDERS, Conversion.CLASSIC),
        exact=exact("continuous"),
        exact_released=exact("discrete"),
    )
