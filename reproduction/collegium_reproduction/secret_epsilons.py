"""ε that follows from the votes, by every analysis of them. It is as secret as they are."""

from collections.abc import Sequence

from collegium_accounting.analysis.epsilons import SecretEpsilons
from collegium_accounting.errors import UnsupportedAccounting
from collegium_accounting.mechanisms.base import Mechanism
from collegium_accounting.mechanisms.votes import VoteMechanism
from collegium_accounting.noise.distributed import COORDINATOR, AddedBy
from collegium_accounting.renyi import PAPER_ORDERS, WIDE_ORDERS, Conversion, Epsilon, FloatArray, RenyiCurve
from collegium_accounting.units import Adjacency, IntArray, Unit
from collegium_reproduction.exact_losses import exact_divergences
from collegium_reproduction.paper_bounds import paper_bound


def exact_loss(
    mechanism: VoteMechanism, counts: IntArray, orders: tuple[float, ...], adjacency: Adjacency, *, discrete: bool
) -> FloatArray | None:
    """Exact Rényi loss of each query over all neighbours, both directions, shape ``[queries, orders]``, or None.

    The neighbours are those of the vote histograms ``counts``, shape ``[queries, classes]``, under ``adjacency``.
    ``discrete`` for the noise of a release, else the continuous noise of the papers.
    """
    noise = mechanism.noise_law(discrete)
    if noise is None:
        return None
    return exact_divergences(counts, noise, orders, adjacency=adjacency, screen=mechanism.screen_law(discrete))


def secret_epsilons(  # noqa: PLR0913 -- each is a choice of its own; callers name those that they make
    mechanism: Mechanism,
    votes: IntArray,
    delta: float,
    *,
    unit: Unit,
    added: AddedBy = COORDINATOR,
    orders: tuple[float, ...] = WIDE_ORDERS,
    conversion: Conversion = Conversion.IMPROVED,
    noise: Sequence[str] = ("continuous", "discrete"),
) -> SecretEpsilons:
    """ε of answering all of ``votes``, shape ``[queries, classes]``, by every analysis of votes.

    The exact losses are computed for the kinds of ``noise``, and for units of one vote alone. Raises
    UnsupportedAccounting where the mechanism's loss must not be computed from votes.
    """
    if added.parties:
        raise UnsupportedAccounting(
            "under masked+noised the coordinator sees the noisy counts of every class, to which no data-dependent "
            "analysis applies: account with --queries"
        )
    if not isinstance(mechanism, VoteMechanism):
        raise UnsupportedAccounting(mechanism.no_votes_because)
    analysed = mechanism  # a closure does not see what was tested of the parameter

    def converted(
        losses: FloatArray | None, on: tuple[float, ...] = orders, by: Conversion = conversion
    ) -> Epsilon | None:
        return None if losses is None else RenyiCurve(on, losses.sum(axis=0)).to_epsilon(delta, by)

    def exact(kind: str) -> Epsilon | None:
        if kind not in noise or unit.votes > 1:
            return None
        return converted(exact_loss(analysed, votes, orders, unit.adjacency, discrete=kind == "discrete"))

    moments = paper_bound(mechanism, votes, PAPER_ORDERS, unit)
    return SecretEpsilons(
        paper_bound=converted(paper_bound(mechanism, votes, orders, unit)),
        paper_bound_moments=converted(moments, PAPER_ORDERS, Conversion.CLASSIC),
        exact=exact("continuous"),
        exact_released=exact("discrete"),
    )
