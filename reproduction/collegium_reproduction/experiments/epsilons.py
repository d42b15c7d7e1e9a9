"""Every ε of one mechanism on given votes, and how good its labels are: what the rows on votes have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from collegium.privacy.analysis.account import AccountQuery, state
from collegium.privacy.mechanisms import ABSTAIN, Adjacency, IntArray, Mechanism, SeededNoise, Unit, create
from collegium.privacy.renyi import PAPER_ORDERS, WIDE_ORDERS, Conversion, RenyiCurve
from collegium_reproduction.experiments.base import two_digits

DELTA = 1e-5


def independent_epsilons(
    mechanism: Mechanism, queries: int, delta: float = DELTA, *, answered: int | None = None
) -> dict[str, float | None]:
    """The ε of `epsilons` that hold whatever the votes are."""
    plan = state(AccountQuery(mechanism, queries, delta, WIDE_ORDERS, answered=answered))
    return {
        "independent": plan.epsilon_data_independent,
        "pld": plan.epsilon_data_independent_pld,
        "classic": plan.epsilon_data_independent_classic,
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
    found: dict[str, float | None] = {
        **independent_epsilons(mechanism, len(votes), delta, answered=answered),
        "theorem": None,
        "theorem_wide": None,
        "exact": None,
    }
    for name, orders, conversion in (
        ("theorem", PAPER_ORDERS, Conversion.CLASSIC),
        ("theorem_wide", WIDE_ORDERS, Conversion.IMPROVED),
    ):
        bound = mechanism.paper_bound(votes, orders, Unit())
        if bound is not None:
            found[name] = RenyiCurve(orders, bound.sum(axis=0)).to_epsilon(delta, conversion).epsilon
    losses = mechanism.exact_loss(votes, WIDE_ORDERS, Adjacency.REPLACE, discrete=False)
    if losses is not None:
        found["exact"] = RenyiCurve(WIDE_ORDERS, losses.sum(axis=0)).to_epsilon(delta).epsilon
    return found


def participation_epsilons(sigma: float, participations: int) -> dict[str, float | None]:
    """ε of a record that takes part so often in sums with Gaussian noise: individual nearest neighbours."""
    found = independent_epsilons(create("individual-knn", sigma=sigma, participations=participations), participations)
    return {"epsilon": found["independent"], "epsilon_pld": found["pld"]}


def label_accuracy(mechanism: Mechanism, votes: IntArray, truth: IntArray, *, draws: int, seed: int) -> float:
    """Share of answered queries whose label is right, the mean over ``draws`` of the paper's continuous noise."""
    noise = SeededNoise(seed, continuous=True)
    shares = []
    for _ in range(draws):
        labels = mechanism.release(votes, noise=noise)
        answered = labels != ABSTAIN
        shares.append(float((labels == truth)[answered].mean()))
    return float(np.mean(shares))


def shown(values: Mapping[str, Any], *names: str) -> list[str]:
    """These ε as cells of a table; a dash where there is none."""
    return ["–" if values[name] is None else two_digits(values[name]) for name in names]
