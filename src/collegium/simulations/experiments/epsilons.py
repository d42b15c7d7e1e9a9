"""Every ε of one mechanism on given votes, and how good its labels are: what the rows on votes have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from collegium.coordinator.accounting.statement import Question, state
from collegium.coordinator.mechanisms import IntArray, Mechanism, SeededNoise
from collegium.coordinator.mechanisms.base import ABSTAIN, NEXT_STAGE
from collegium.protocol.renyi import PAPER_ORDERS, WIDE_ORDERS, Conversion
from collegium.simulations.experiments.base import two_digits

DELTA = 1e-5


def epsilons(mechanism: Mechanism, votes: IntArray, delta: float = DELTA) -> dict[str, float | None]:
    """ε of answering all of ``votes``, shape ``[queries, classes]``; None where an analysis does not apply.

    ``theorem``: the paper's data-dependent bound as the paper evaluates it, moments up to 8 and the classic
    conversion; ``theorem_wide``: on our grid, by the improved conversion; ``exact``: the data-dependent loss itself;
    ``independent``: the bound that holds whatever the votes are; ``pld``: the same by loss distributions;
    ``classic``: as published accountants have it.
    """
    wide = state(Question(mechanism, len(votes), delta, WIDE_ORDERS), votes)
    paper = state(Question(mechanism, len(votes), delta, PAPER_ORDERS, Conversion.CLASSIC), votes)
    return {
        "theorem": paper.epsilon_paper_bound,
        "theorem_wide": wide.epsilon_paper_bound,
        "exact": wide.epsilon_exact,
        "independent": wide.epsilon_data_independent,
        "pld": wide.epsilon_data_independent_pld,
        "classic": wide.epsilon_data_independent_classic,
    }


def outcomes(mechanism: Mechanism, votes: IntArray, noise: SeededNoise) -> IntArray:
    """The label of each query, or ABSTAIN, as the labeller would issue it from these votes."""
    labels = np.full(len(votes), NEXT_STAGE, dtype=np.int64)
    for stage in mechanism.stages:
        left = np.flatnonzero(labels == NEXT_STAGE)
        labels[left] = stage.run(votes[left], noise)
    return labels


def label_accuracy(mechanism: Mechanism, votes: IntArray, truth: IntArray, *, draws: int, seed: int) -> float:
    """Share of answered queries whose label is right, the mean over ``draws`` of the paper's continuous noise."""
    noise = SeededNoise(seed, continuous=True)
    shares = []
    for _ in range(draws):
        labels = outcomes(mechanism, votes, noise)
        answered = labels != ABSTAIN
        shares.append(float((labels == truth)[answered].mean()))
    return float(np.mean(shares))


def shown(values: Mapping[str, Any], *names: str) -> list[str]:
    """These ε as cells of a table; a dash where there is none."""
    return ["–" if values[name] is None else two_digits(values[name]) for name in names]
