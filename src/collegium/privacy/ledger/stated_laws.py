"""Whether the laws that an entry states cost what its mechanism does.

They are what charges are counted by, and are believed only as far as mechanism, parameters, unit and number of classes
bear them out: whoever writes the ledger could state any.
"""

import math
from collections.abc import Mapping

from collegium.errors import CollegiumError, LedgerCorrupt
from collegium.privacy.ledger.entry import Terms
from collegium.privacy.ledger.steps import Step
from collegium_accounting.game.laws import Law, RenyiLaw, VectorLaw
from collegium_accounting.game.winner import RoundLaw
from collegium_accounting.mechanisms import VoteMechanism, known_names, mechanism_named

_ROUNDING = 1e-9
"""Relative: the last digits of noise change with the parties and the cells."""


def check_terms(terms: Terms, *, all_known: bool = True) -> None:
    """Raise LedgerCorrupt unless every law that ``terms`` state costs what its step does, or more.

    With ``all_known`` also where a step is missing or its mechanism unknown, so that nothing can be compared.
    """
    for purpose, block in terms.blocks.items():
        known = block.step is not None and block.step.mechanism in known_names()
        if block.laws and (all_known or known):
            _check_laws(purpose, block.laws, block.step, terms)


def _check_laws(purpose: str, laws: Mapping[str, Law], step: Step | None, terms: Terms) -> None:
    if step is None:
        raise LedgerCorrupt(f"it states what {purpose!r} costs, and not the mechanism: nobody can check that")
    try:
        computed = step.laws
        with_votes = issubclass(mechanism_named(step.mechanism), VoteMechanism)
    except CollegiumError as error:
        raise LedgerCorrupt(f"what {purpose!r} costs cannot be computed: {error}; install its package") from None
    for unit, law in laws.items():
        votes, adjacency = step.units.get(unit, (0, ""))
        enough = votes >= (terms.votes_per_unit.get(unit, 1) if with_votes else 1)
        # To replace a vote costs no less than to add or remove one.
        if not enough or adjacency not in (terms.adjacency, "replace") or not covers(law, computed[unit]):
            named = ", ".join(f"{name} {value}" for name, value in step.parameters.items())
            raise LedgerCorrupt(
                f"it states less for {purpose!r} than {step.mechanism} ({named}) costs one {unit}: do not trust this "
                "ledger"
            )


def covers(stated: Law, computed: Law) -> bool:
    """Whether ``stated`` costs at least what ``computed`` does, but for rounding."""

    def least(one: float, other: float) -> bool:
        return one >= other or math.isclose(one, other, rel_tol=_ROUNDING)

    match stated, computed:
        case VectorLaw(), VectorLaw():
            return least(stated.mu, computed.mu) and least(stated.slack, computed.slack)
        case RenyiLaw(), RenyiLaw():
            return all(map(least, (*stated.values, stated.delta), (*computed.values, computed.delta)))
        case RoundLaw(), RoundLaw():
            return stated == computed
    return False
