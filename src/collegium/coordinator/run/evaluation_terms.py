"""What a configuration says of its evaluation: the mechanism, its noise, and what it leaves for labels."""

import math

import numpy as np
from scipy.optimize import brentq

from collegium.coordinator.settings.run_config import RunConfig
from collegium.privacy.accounting.game.gaussian import gaussian_mechanism_profile
from collegium.privacy.accounting.game.laws import VectorLaw
from collegium.privacy.accounting.game.recursion import gaussian_profile
from collegium.privacy.mechanisms import Mechanism, SumMode, Unit, create
from collegium.protocol.roster import AnnouncedEvaluation


def evaluation_of(config: RunConfig, candidates: int = 1) -> Mechanism | None:
    """The mechanism of the configured evaluation, as the coordinator would add its noise; None where there is none.

    Its σ is the configured one, or the smallest at which the evaluation alone stays within its share of ε.
    """
    settings, budget = config.evaluation, config.budget
    if settings is None:
        return None
    plain = create(
        "evaluation-counts", sigma=settings.sigma or 1.0, classes=len(config.task.classes), candidates=candidates
    )
    if settings.sigma is not None:
        return plain
    most = settings.share * budget.epsilon

    def excess(log_mu: float) -> float:
        return float(gaussian_profile(np.array([-most]), math.exp(log_mu))[0]) - budget.delta

    largest_mu = math.exp(float(brentq(excess, -25.0, 10.0)))
    return plain.with_parameters(sigma=(1.0 + 1e-9) * _mu(plain, config) / largest_mu)


def left_for_labels(config: RunConfig) -> float:
    """The part of ``budget.epsilon`` that the evaluation leaves; all of it where there is none."""
    settings, budget, mechanism = config.evaluation, config.budget, evaluation_of(config)
    if settings is None or mechanism is None:
        return budget.epsilon
    if settings.sigma is None:
        return (1.0 - settings.share) * budget.epsilon
    return max(1e-3, budget.epsilon - gaussian_mechanism_profile(_mu(mechanism, config), 1.0).epsilon(budget.delta))


def _mu(mechanism: Mechanism, config: RunConfig) -> float:
    """How far a neighbour moves the counts, in units of their noise."""
    law = mechanism.stages[0].law(evaluated_unit(config))
    assert isinstance(law, VectorLaw)  # the whole vector is released
    return law.mu


def evaluated_unit(config: RunConfig) -> Unit:
    """What one neighbour changes: a record, or the shares of one party, under the adjacency of the run's labels."""
    return Unit(1, config.mechanism.kind.adjacencies[0])


def evaluation_mode(config: RunConfig) -> SumMode:
    """How counts are summed: with the parties' own noise, unless votes are summed in the clear or it is set."""
    wanted = config.evaluation.mode if config.evaluation is not None else None
    return wanted or (SumMode.CLEAR if config.votes.mode == SumMode.CLEAR else SumMode.MASKED_AND_NOISED)


def announced_evaluation(config: RunConfig) -> AnnouncedEvaluation | None:
    """What parties are told of the evaluation when they enrol; None where there is none."""
    mechanism, mode = evaluation_of(config), evaluation_mode(config)
    if mechanism is None:
        return None
    asked = mechanism.noised_by_parties(1) if mode == SumMode.MASKED_AND_NOISED else mechanism
    return AnnouncedEvaluation(sum_mode=mode, mechanism=asked.name, noise=mechanism.noise_votes)
