"""What parties are told, when they enrol, that they will be asked; and what that may cost them, at most.

The limits count as a party's own account does: planned releases, and the costliest of them once more, since a release
that failed is asked again. Votes count there with their whole noisy counts, and so as more than in the ledger.
"""

import math
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collegium.coordinator.run.counts_terms import announced_counts, configured_counts, counts_mode
from collegium.coordinator.run.factories import configured_mechanism
from collegium.coordinator.settings.kinds import run_kind
from collegium.coordinator.settings.run_config import RunConfig
from collegium.data.values import ArraySpec
from collegium.privacy.ledger.entry import Block, Terms
from collegium.privacy.ledger.spending import Spending
from collegium.protocol.question import ONE_RECORD, TURNED, about_all_records, own_kinds
from collegium.protocol.roster import AnnouncedLimits, AnnouncedTerms
from collegium_accounting.game.laws import RenyiLaw, VectorLaw, together
from collegium_accounting.mechanisms import COORDINATOR, AddedBy, Adjacency, Mechanism, SumMode, Unit

_DIGITS = 4
"""Decimals to which a limit is rounded up."""


@dataclass(frozen=True)
class Planned:
    """Answers of one kind that a run asks for.

    Parameters
    ----------
    laws : what one of them costs, by unit: a record, and the party where its own account is charged.
    rows : how many are asked for.
    again : how many of them are asked at once, and so once more where that fails.
    """

    laws: dict[str, VectorLaw | RenyiLaw]
    rows: int
    again: int


def announced_terms(config: RunConfig, queries: int, pool: ArraySpec) -> AnnouncedTerms:
    """The terms of ``queries`` queries about inputs of ``pool``, which parties are told when they enrol."""
    mechanism, budget = configured_mechanism(config), config.budget
    planned = list(_planned(config, mechanism, queries))
    asked = [run_kind(config.mechanism.kind).question.kind, *config.counts]
    record_budget = mechanism.record_budget(_added(config.votes.mode))
    rho = None
    if record_budget is not None:  # a party that is one voter may spend half of what its records may
        rho = record_budget.participations * record_budget.rho_of_one_participation
        rho *= 2.0 if budget.unit == "party" else 1.0
    near = 0 if record_budget is None else queries
    return AnnouncedTerms(
        sum_mode=config.votes.mode,
        mechanism=mechanism.name,
        noise_votes=mechanism.noise_votes,
        pools=(pool.sha256,),
        answers=max(1, sum(one.rows for one in planned) + max((one.again for one in planned), default=0) + 2 * near),
        counts=announced_counts(config),
        most_records=budget.most_records,
        questions=tuple(kind for kind in asked if kind not in own_kinds()),
        limits=AnnouncedLimits(
            unit=budget.unit,
            epsilon=budget.own,
            delta=budget.delta,
            record_epsilon=_with_one_more("record", planned, budget.delta) or 0.0,
            party_epsilon=_with_one_more("party", planned, budget.delta),
            record_rho=rho,
        ),
    )


def _planned(config: RunConfig, mechanism: Mechanism, queries: int) -> Iterator[Planned]:
    """Every kind of answer that the run asks for and that an account of a party is charged for."""
    question, per_party = run_kind(config.mechanism.kind).question, config.budget.unit == "party"
    # A record may turn the one vector of a party, or the vote of its teacher.
    units = {"record": TURNED, "party": ONE_RECORD} if per_party else {"record": ONE_RECORD}
    for settings, counted, rounds in configured_counts(config):
        stages = counted.summed(_added(counts_mode(config, settings)))
        yield Planned({name: together(one.law(unit) for one in stages) for name, unit in units.items()}, rounds, 1)
    added = _added(config.votes.mode)
    if mechanism.record_budget(added) is not None:
        return
    stages = mechanism.summed(added)
    if config.teachers is not None:
        units = {"record": TURNED, "party": Unit(config.teachers.per_party, Adjacency.ADD_REMOVE)}
    apart = [(stage,) for stage in stages] if question.per_stage or added.parties else [stages]
    laws = [{name: together(one.law(unit) for one in part) for name, unit in units.items()} for part in apart]
    if about_all_records(config.mechanism.kind):
        rows, again = mechanism.charged_queries(queries, added), 1  # the sums label every input
    else:
        rows, again = _paid(config, laws, queries), min(config.queries.batch, queries)
    yield from (Planned(one, rows, again) for one in laws)


def _added(mode: str) -> AddedBy:
    """Who adds the noise; how many survivors share it hardly changes its cost."""
    return AddedBy(1) if mode == SumMode.MASKED_AND_NOISED else COORDINATOR


def _paid(config: RunConfig, laws: Sequence[dict[str, VectorLaw | RenyiLaw]], queries: int) -> int:
    """How many queries the budget may pay for at most: fewer than twice those of the whole noisy counts."""
    budget = config.budget

    def cost(number: int) -> float:
        return _epsilon(budget.unit, [(one[budget.unit], number) for one in laws], budget.delta)

    return min(queries, 2 * bisect(range(1, queries + 1), budget.own, key=cost) + 8)


def _with_one_more(unit: str, planned: Sequence[Planned], delta: float) -> float | None:
    """ε of all that is planned and of its costliest release once more, rounded up; None where nothing costs it."""
    paying = [one for one in planned if unit in one.laws]
    most = [
        _epsilon(unit, [(one.laws[unit], one.rows + (one.again if one is more else 0)) for one in paying], delta)
        for more in paying
    ]
    return math.ceil(max(most) * 10**_DIGITS) / 10**_DIGITS if most else None


def _epsilon(unit: str, rounds: Sequence[tuple[VectorLaw | RenyiLaw, int]], delta: float) -> float:
    """ε of so many rounds of each law, as the account of a party counts them."""
    spending = Spending()
    for number, (law, count) in enumerate(rounds):
        if count:
            purpose = str(number)
            spending.take(Terms(unit, {unit: 1}, "add-remove", blocks={purpose: Block({unit: law})}), purpose, count)
    return spending.epsilon((unit, "add-remove"), delta)
