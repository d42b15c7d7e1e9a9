"""What a plan costs by every analysis, and the ε that follow from saved votes.

What a mechanism's stages cost does not depend on the votes and may be published. What follows from votes is as secret
as they are (`SecretEpsilons`). An account of a plan holds both (`account.PrivacyReport`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from collegium_accounting.errors import ConfigurationError, UnsupportedAccounting
from collegium_accounting.game.laws import Law, block_epsilon
from collegium_accounting.game.profile import check_delta
from collegium_accounting.game.winner import RoundLaw, winner_profile
from collegium_accounting.mechanisms.base import Mechanism, Stage
from collegium_accounting.noise.distributed import COORDINATOR, AddedBy
from collegium_accounting.renyi import WIDE_ORDERS, Epsilon, RenyiCurve
from collegium_accounting.units import Unit

Bound = Literal["exact", "classic"]
"""Which data-independent bound is the headline and stops budgets: the exact accountant, or the Rényi bounds of
published accountants."""


@dataclass(frozen=True)
class StageCharge:
    """One stage of a mechanism, charged for ``queries`` queries in each of which ``unit`` may change its votes."""

    stage: Stage
    unit: Unit
    queries: int


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
    mechanism: Mechanism, unit: Unit, queries: int, answered: int | None = None, added: AddedBy = COORDINATOR
) -> tuple[StageCharge, ...]:
    """What ``queries`` queries are charged, stage by stage; ``answered`` of them (all by default) pass the first.

    ``added`` is who adds the noise. Raises ConfigurationError where the parties cannot share it, and unless
    ``answered`` lies between 0 and ``queries``.
    """
    if queries < 0 or (answered is not None and not 0 <= answered <= queries):
        raise ConfigurationError(f"answered must lie between 0 and the {queries} queries; got {answered}")
    first, *others = mechanism.summed(added)
    later = mechanism.charged_queries(queries if answered is None else answered, added)
    charged = StageCharge(first, unit, mechanism.charged_queries(queries, added))
    return charged, *(StageCharge(stage, unit, later) for stage in others)


def published_curve(charges: Iterable[StageCharge], orders: tuple[float, ...] = WIDE_ORDERS) -> RenyiCurve:
    """What published accountants charge for ``charges``, whatever the votes are, on ``orders``."""
    total = RenyiCurve.zero(orders)
    for one in charges:
        total = total + one.stage.charge(orders, one.unit) * one.queries
    return total


def rounds_of(charges: Iterable[StageCharge], classes: int | None = None) -> dict[Law, int]:
    """The rounds of each law that ``charges`` are; ``classes`` as for `exact_epsilon`."""
    rounds: dict[Law, int] = {}
    for one in charges:
        law = one.stage.law(one.unit, classes)
        rounds[law] = rounds.get(law, 0) + one.queries
    return rounds


def exact_epsilon(charges: Iterable[StageCharge], delta: float, classes: int | None = None) -> float:
    """ε of ``charges`` by the exact accountant; infinite where nothing finite is known.

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
    docs/research/exact-accountant.md, "The exact accountant".
    """
    return block_epsilon(rounds_of(charges, classes), delta)


def attained_epsilon(charges: Iterable[StageCharge], delta: float, classes: int | None = None) -> float | None:
    """The ε of ``charges`` that a concrete adaptive adversary forces, in the game of docs/research/exact-accountant.md.

    Where several kinds of rounds are composed it is that of one of them; None where no winner alone is released, or
    the game has no answer for this δ.
    """
    laws = rounds_of(charges, classes).items()
    try:
        check_delta(delta)
        return max(
            (winner_profile(law, n).attained(delta) for law, n in laws if isinstance(law, RoundLaw)), default=None
        )
    except UnsupportedAccounting:
        return None
