"""What only a simulation may know of its votes: gaps, how good the teachers are, data-dependent ε.

Every figure here is computed from the votes themselves, so it is as private as they are: it is kept
under ``research_only`` and shown to outsiders never.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.run.run_record import DataDependentEpsilon, EpsilonRecord, GapHistogram, ResearchRecord
from collegium.privacy.mechanisms import IntArray, Mechanism
from collegium.privacy.renyi import PAPER_ORDERS, WIDE_ORDERS, Conversion, Epsilon, RenyiCurve

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
) -> ResearchRecord:
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
    teacher_accuracy = plurality = None
    if truth is not None:
        teacher_accuracy = float((histograms[np.arange(len(truth)), truth] / teachers).mean())
        plurality = float((histograms.argmax(axis=1) == truth).mean())
    return ResearchRecord(
        caution=CAUTION,
        queries=len(histograms),
        queries_without_votes=labelled - len(histograms),
        gap_mean_votes=float(gaps.mean()),
        gap_mean_fraction=float((gaps / teachers).mean()),
        gap_histogram=_histogram(gaps / teachers),
        epsilon_data_dependent=data_dependent(histograms, mechanism, delta=delta, continuous=continuous),
        teacher_accuracy_mean=teacher_accuracy,
        plurality_accuracy=plurality,
    )


def data_dependent(counts: IntArray, mechanism: Mechanism, *, delta: float, continuous: bool) -> DataDependentEpsilon:
    """ε per record of releasing labels from ``counts``, by the published theorem and exactly, where there is one.

    ``paper`` is on moments λ ≤ 8 with the classic conversion, ``paper_wide`` and ``exact`` are on 68
    orders with the improved one; ``exact`` covers both directions of every neighbouring pair.
    """
    figures = DataDependentEpsilon(source=mechanism.source)
    if mechanism.no_votes_because:
        return figures
    paper = mechanism.paper_bound(counts, PAPER_ORDERS, mechanism.unit())
    if paper is not None:
        figures.paper = _record(RenyiCurve(PAPER_ORDERS, paper.sum(axis=0)).to_epsilon(delta, Conversion.CLASSIC))
    wide = mechanism.paper_bound(counts, WIDE_ORDERS, mechanism.unit())
    if wide is not None:
        figures.paper_wide = _record(RenyiCurve(WIDE_ORDERS, wide.sum(axis=0)).to_epsilon(delta))
    exact = mechanism.exact_loss(counts, WIDE_ORDERS, mechanism.unit().adjacency, not continuous)
    if exact is not None:
        figures.exact = _record(RenyiCurve(WIDE_ORDERS, exact.sum(axis=0)).to_epsilon(delta))
    return figures


def _record(found: Epsilon) -> EpsilonRecord:
    return EpsilonRecord(epsilon=found.epsilon, delta=found.delta, order=found.order, conversion=found.conversion.value)


def _histogram(fractions: NDArray[np.float64]) -> GapHistogram:
    counts, edges = np.histogram(fractions, bins=_GAP_BINS, range=(0.0, 1.0))
    return GapHistogram(edges=edges.tolist(), queries=counts.tolist())
