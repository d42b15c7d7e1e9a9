"""What only a simulation may know of its votes: gaps, how good the teachers are, data-dependent ε.

Every figure here is computed from the votes themselves, so it is as private as they are: it is kept
under ``research_only`` and shown to outsiders never.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.report.spending import as_dict
from collegium.privacy.mechanisms import IntArray, Mechanism
from collegium.privacy.renyi import PAPER_ORDERS, WIDE_ORDERS, Conversion, RenyiCurve

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
    teachers = np.maximum(histograms.sum(axis=1), 1)  # of records, none may be near
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
    """ε per record of releasing labels from ``counts``, by the published theorem and exactly, where there is one.

    ``paper`` is on moments λ ≤ 8 with the classic conversion, ``paper_wide`` and ``exact`` are on 68
    orders with the improved one; ``exact`` covers both directions of every neighbouring pair.
    """
    figures: dict[str, Any] = {"source": mechanism.source}
    if mechanism.no_votes_because:
        return figures
    for name, orders, conversion in (
        ("paper", PAPER_ORDERS, Conversion.CLASSIC),
        ("paper_wide", WIDE_ORDERS, Conversion.IMPROVED),
    ):
        bound = mechanism.paper_bound(counts, orders, mechanism.unit())
        if bound is not None:
            figures[name] = as_dict(RenyiCurve(orders, bound.sum(axis=0)).to_epsilon(delta, conversion))
    exact = mechanism.exact_loss(counts, WIDE_ORDERS, mechanism.unit().adjacency, not continuous)
    if exact is not None:
        figures["exact"] = as_dict(RenyiCurve(WIDE_ORDERS, exact.sum(axis=0)).to_epsilon(delta))
    return figures


def _histogram(fractions: NDArray[np.float64]) -> dict[str, Any]:
    counts, edges = np.histogram(fractions, bins=_GAP_BINS, range=(0.0, 1.0))
    return {"edges": edges.tolist(), "queries": counts.tolist()}
