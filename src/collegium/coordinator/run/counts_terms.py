"""What a configuration says of its counts of records: their mechanism, its noise, and what they leave for labels."""

import math
from collections.abc import Iterator

from collegium.coordinator.settings.kinds import count_kinds
from collegium.coordinator.settings.run_config import CountsConfig, RunConfig
from collegium.privacy.evaluation_cells import Layout
from collegium.protocol.question import about_all_records
from collegium.protocol.roster import AnnouncedCounts
from collegium_accounting.game.gaussian import epsilon_beside, gaussian_mechanism_profile, largest_mu
from collegium_accounting.game.laws import VectorLaw
from collegium_accounting.mechanisms import Mechanism, SumMode, Unit, create

_MARGIN = 5e-4
"""Of the ε of class sums beside counts, for noise that is discrete and a ledger that rounds up."""


def counts_mechanism(config: RunConfig, settings: CountsConfig, parts: int, cells: int, rounds: int = 1) -> Mechanism:
    """The mechanism of counts in which a record adds to ``parts`` of ``cells``, as the coordinator would add its noise.

    Its σ, of each of so many ``rounds``, is the configured one, or the smallest at which the counts alone stay within
    their share of ε.
    """
    plain = create("record-counts", sigma=settings.sigma or 1.0, parts=parts, cells=cells)
    if settings.sigma is not None:
        return plain
    most = largest_mu(settings.share * config.budget.own, config.budget.delta)
    return create(plain.name, **plain.parameters() | {"sigma": (1.0 + 1e-9) * _mu(plain, config, rounds) / most})


def configured_counts(config: RunConfig) -> Iterator[tuple[CountsConfig, Mechanism, int]]:
    """The counts that the run takes, each with its mechanism and rounds: of one classifier, and of the pool."""
    layout = Layout(len(config.task.classes)) if config.evaluation is not None else None
    parts, cells = (layout.parts, layout.length) if layout else (1, 1)  # too many cells are refused here, before a run
    sections = [(config.evaluation, parts, cells, 1), (config.pool_check, 1, 1, 1)]
    for name, one in config.counts.items():
        kind = count_kinds()[name]
        sections.append((one, *kind.parts_and_cells(config, one), kind.rounds_of(one)))
    for settings, own_parts, own_cells, rounds in sections:
        if settings is not None:
            yield settings, counts_mechanism(config, settings, own_parts, own_cells, rounds), rounds


def left_for_labels(config: RunConfig) -> float:
    """The part of the study's ε that counts of records leave; all of it where there are none.

    Counts and class sums are Gaussian vectors, whose squared μ add up, so that little is lost to counts of a small
    share. To labels of votes is left what the counts' own ε take off.
    """
    own, delta = config.budget.own, config.budget.delta
    spent = [(settings, _mu(mechanism, config, rounds)) for settings, mechanism, rounds in configured_counts(config)]
    if spent and about_all_records(config.mechanism.kind):
        left = (1.0 - _MARGIN) * epsilon_beside([mu for _, mu in spent], own, delta)
    else:
        left = own
        for settings, mu in spent:
            own_sigma = settings.sigma is not None
            left -= gaussian_mechanism_profile(mu).epsilon(delta) if own_sigma else settings.share * own
    return max(left, min(1e-3, own))


def _mu(mechanism: Mechanism, config: RunConfig, rounds: int) -> float:
    """How far a neighbour moves the counts of all rounds, in units of their noise."""
    law = mechanism.stages[0].law(counted_unit(config))
    assert isinstance(law, VectorLaw)  # the whole vector is released
    return law.mu * math.sqrt(rounds)


def counted_unit(config: RunConfig) -> Unit:
    """What one neighbour changes: a record, or the shares of one party, under the adjacency of the run's labels."""
    return Unit(1, config.mechanism.kind.adjacencies[0])


def counts_mode(config: RunConfig, settings: CountsConfig) -> SumMode:
    """How counts are summed: with the parties' own noise, unless votes are summed in the clear or it is set."""
    usual = SumMode.CLEAR if config.votes.mode == SumMode.CLEAR else SumMode.MASKED_AND_NOISED
    return settings.mode or usual


def announced_counts(config: RunConfig) -> tuple[AnnouncedCounts, ...]:
    """What parties are told of the counts when they enrol."""
    return tuple(
        AnnouncedCounts(sum_mode=counts_mode(config, settings), mechanism=counts.name, noise=counts.noise_votes)
        for settings, counts, _ in configured_counts(config)
    )
