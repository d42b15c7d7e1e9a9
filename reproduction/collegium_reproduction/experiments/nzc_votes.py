"""What the rows on the near-zero-cost paper have in common: its mechanism, and the sound one beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from collegium_accounting.mechanisms import ABSTAIN, IntArray, SeededNoise
from collegium_accounting.renyi import WIDE_ORDERS
from collegium_reproduction.experiments.base import two_digits
from collegium_reproduction.experiments.epsilons import DELTA, epsilons
from collegium_reproduction.near_zero_cost import NearZeroCost
from collegium_reproduction.propose_test_release import ProposeTestRelease

PUBLISHED = NearZeroCost(constant=1e100, gamma=1e-10, accept_no_privacy=True)
"""Table 1's setting: c = 1e100 and Laplace noise of scale 1e10 (which the paper calls γ)."""

PTR_EPSILON = 0.2
"""ε of one query by propose-test-release; half of δ goes to its tests."""

NARROW = 2
"""Gaps up to here can be closed by one vote that moves: the paper's own condition leaves them out."""


def claimed_and_honest(votes: IntArray) -> dict[str, Any]:
    """What the authors say that releasing these votes costs, and what it does cost."""
    ordered = np.sort(votes, axis=1)
    gaps = ordered[:, -1] - ordered[:, -2]
    return {
        "claimed": claimed_epsilon(len(votes)),
        "honest": str(PUBLISHED.honest_epsilon(votes)),
        "narrow": int((gaps <= NARROW).sum()),
    }


def claimed_epsilon(queries: int) -> float:
    """What the authors say that so many answers cost."""
    return PUBLISHED.claimed_epsilon(queries, DELTA, WIDE_ORDERS)


def ptr_for(queries: int) -> ProposeTestRelease:
    """Propose-test-release for so many queries."""
    return ProposeTestRelease(PTR_EPSILON, DELTA / (2 * queries))


def propose_test_release(votes: IntArray, truth: IntArray, seed: int) -> dict[str, Any]:
    """The sound mechanism on the same votes: how many it answers, how many of those rightly, and ε."""
    mechanism = ptr_for(len(votes))
    labels = mechanism.release(votes, noise=SeededNoise(seed))
    answered = labels != ABSTAIN
    return {
        "answered": int(answered.sum()),
        "labels": float((labels == truth)[answered].mean()) if answered.any() else None,
        "epsilon": epsilons(mechanism, votes)["independent"],
    }


def honest(value: str) -> str:
    """An honest ε in words: infinite, or nothing that could be proved."""
    return {"inf": "∞", "nan": "none provable"}.get(value) or two_digits(float(value))
