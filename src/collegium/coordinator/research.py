"""What only a simulation may know of its votes: gaps, how good the teachers are, data-dependent ε.

Every figure here is computed from the votes themselves, so it is as private as they are: it is kept
under ``research_only`` and shown to outsiders never.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.accounting.exact import exact_divergences
from collegium.coordinator.accounting.grids import NoiseLaw
from collegium.coordinator.accounting.papers import theorem_3, theorem_6
from collegium.coordinator.mechanisms import IntArray, Mechanism
from collegium.coordinator.mechanisms.gnmax import GNMax
from collegium.coordinator.mechanisms.lnmax import LNMax
from collegium.coordinator.spending import as_dict
from collegium.protocol.renyi import PAPER_ORDERS, WIDE_ORDERS, Conversion, RenyiCurve

CAUTION = (
    "Computed from the votes without noise: private. For research on simulated parties; "
    "publishing any of it voids the guarantee of this run."
)

_GAP_BINS = 20


def research_figures(
    histograms: IntArray,
    truth: NDArray[np.int64] | None,
    mechanism: Mechanism,
    *,
    delta: float,
    continuous: bool,
    labelled: int,
) -> dict[str, Any]:
    """Diagnostics of the labelled queries.

    Parameters
    ----------
    histograms : votes of the labelled queries that are at hand, shape ``[queries, classes]``.
    truth : their true classes, shape ``[queries]``, or None.
    continuous : the noise drawn was the papers' continuous noise.
    labelled : how many queries were labelled in all; more than ``queries`` where a resumed run lost some votes.
    """
    ordered = np.sort(histograms, axis=1)
    gaps = ordered[:, -1] - ordered[:, -2]
    teachers = histograms.sum(axis=1)
    figures: dict[str, Any] = {
        "caution": CAUTION,
        "queries": len(histograms),
        "queries_without_votes": labelled - len(histograms),
        "gap_mean_votes": float(gaps.mean()),
        "gap_mean_fraction": float((gaps / teachers).mean()),
        "gap_histogram": _histogram(gaps / teachers),
        "epsilon_data_dependent": data_dependent(histograms, mechanism, delta=delta, continuous=continuous),
    }
    if truth is not None:
        rows = np.arange(len(truth))
        figures["teacher_accuracy_mean"] = float((histograms[rows, truth] / teachers).mean())
        figures["plurality_accuracy"] = float((histograms.argmax(axis=1) == truth).mean())
    return figures


def data_dependent(counts: IntArray, mechanism: Mechanism, *, delta: float, continuous: bool) -> dict[str, Any]:
    """ε of releasing the argmax of ``counts`` by the papers' theorem and exactly; empty for other mechanisms.

    ``paper`` is on moments λ ≤ 8 with the classic conversion, ``paper_wide`` and ``exact`` are on 68
    orders with the improved one; ``exact`` covers both directions of every neighbouring pair.
    """
    kind = "" if continuous else "discrete-"
    if isinstance(mechanism, LNMax):
        law = NoiseLaw(f"{kind}laplace", 1.0 / mechanism.gamma)  # type: ignore[arg-type]
        bounds = {orders: theorem_3(counts, mechanism.gamma, orders) for orders in (PAPER_ORDERS, WIDE_ORDERS)}
        source = "Papernot et al. 2017, Theorem 3"
    elif isinstance(mechanism, GNMax):
        law = NoiseLaw(f"{kind}gaussian", mechanism.sigma)  # type: ignore[arg-type]
        bounds = {orders: theorem_6(counts, mechanism.sigma, orders) for orders in (PAPER_ORDERS, WIDE_ORDERS)}
        source = "Papernot et al. 2018, Theorem 6"
    else:
        return {}
    exact = exact_divergences(counts, law, WIDE_ORDERS)
    paper = RenyiCurve(PAPER_ORDERS, bounds[PAPER_ORDERS].sum(axis=0))
    wide = RenyiCurve(WIDE_ORDERS, bounds[WIDE_ORDERS].sum(axis=0))
    return {
        "source": source,
        "paper": as_dict(paper.to_epsilon(delta, Conversion.CLASSIC)),
        "paper_wide": as_dict(wide.to_epsilon(delta)),
        "exact": as_dict(RenyiCurve(WIDE_ORDERS, exact.sum(axis=0)).to_epsilon(delta)),
    }


def _histogram(fractions: NDArray[np.float64]) -> dict[str, Any]:
    counts, edges = np.histogram(fractions, bins=_GAP_BINS, range=(0.0, 1.0))
    return {"edges": edges.tolist(), "queries": counts.tolist()}
