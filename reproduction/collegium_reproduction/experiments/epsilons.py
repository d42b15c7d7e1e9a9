"""Every ε of one mechanism on given votes, and how good its labels are: what the rows on votes have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from collegium_accounting.analysis.account import account
from collegium_accounting.analysis.epsilons import planned_charges, value_of
from collegium_accounting.mechanisms import ABSTAIN, IntArray, LabelMechanism, Mechanism, Unit, create
from collegium_reproduction.continuous_noise import ContinuousNoise
from collegium_reproduction.experiments.base import two_digits
from collegium_reproduction.loss_distributions import loss_distribution_epsilon
from collegium_reproduction.secret_epsilons import secret_epsilons

DELTA = 1e-5


def independent_epsilons(
    mechanism: Mechanism, queries: int, delta: float = DELTA, *, answered: int | None = None
) -> dict[str, float | None]:
    """The ε of `epsilons` that hold whatever the votes are."""
    found = account(mechanism, queries=queries, delta=delta, answered=answered)
    charges = planned_charges(mechanism, mechanism.unit(), queries, answered)
    return {
        "independent": found.epsilon,
        "pld": loss_distribution_epsilon(charges, delta),
        "classic": found.published.epsilon,
    }


def epsilons(
    mechanism: Mechanism, votes: IntArray, delta: float = DELTA, *, answered: int | None = None
) -> dict[str, float | None]:
    """ε of answering all of ``votes``, shape ``[queries, classes]``; None where an analysis does not apply.

    ``theorem``: the paper's data-dependent bound as the paper evaluates it, moments up to 8 and the classic
    conversion; ``theorem_wide``: on our grid, by the improved conversion; ``exact``: the data-dependent loss itself;
    ``independent``: the bound that holds whatever the votes are; ``pld``: the same by loss distributions;
    ``classic``: as published accountants have it. ``answered`` of the queries (all, by default) are released after
    a threshold test; the figures that depend on the votes cover test and release of every query.
    """
    secret = secret_epsilons(mechanism, votes, delta, unit=Unit(), noise=("continuous",))
    return {
        **independent_epsilons(mechanism, len(votes), delta, answered=answered),
        "theorem": value_of(secret.paper_bound_moments),
        "theorem_wide": value_of(secret.paper_bound),
        "exact": value_of(secret.exact),
    }


def participation_epsilons(sigma: float, participations: int) -> dict[str, float | None]:
    """ε of a record that takes part so often in sums with Gaussian noise: individual nearest neighbours."""
    found = independent_epsilons(create("individual-knn", sigma=sigma, participations=participations), participations)
    return {"epsilon": found["independent"], "epsilon_pld": found["pld"]}


def label_accuracy(mechanism: Mechanism, votes: IntArray, truth: IntArray, *, draws: int, seed: int) -> float:
    """Share of answered queries whose label is right, the mean over ``draws`` of the paper's continuous noise."""
    assert isinstance(mechanism, LabelMechanism)  # experiments name no others
    noise = ContinuousNoise(seed)
    shares = []
    for _ in range(draws):
        labels = mechanism.release(votes, noise=noise)
        answered = labels != ABSTAIN
        shares.append(float((labels == truth)[answered].mean()))
    return float(np.mean(shares))


def shown(values: Mapping[str, Any], *names: str) -> list[str]:
    """These ε as cells of a table; a dash where there is none."""
    return ["–" if values[name] is None else two_digits(values[name]) for name in names]
