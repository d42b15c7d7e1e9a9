"""What only a simulation may know of its votes: gaps, how good the teachers are, data-dependent ε.

Every figure here is computed from the votes themselves, so it is as private as they are: it is kept
under ``research_only`` and shown to outsiders never.
"""

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.run.run_record import GapHistogram, ResearchRecord
from collegium_accounting.analysis.epsilons import SecretEpsilons, secret_epsilons
from collegium_accounting.mechanisms import IntArray, Mechanism

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
    labelled: int,
) -> ResearchRecord:
    """Diagnostics of the labelled queries.

    Parameters
    ----------
    histograms : votes of the labelled queries that are at hand, shape ``[queries, classes]``.
    truth : their true classes, shape ``[queries]``, or None.
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
        epsilons=SecretEpsilons()
        if mechanism.no_votes_because
        else secret_epsilons(mechanism, histograms, delta, noise=("discrete",)),
        teacher_accuracy_mean=teacher_accuracy,
        plurality_accuracy=plurality,
    )


def _histogram(fractions: NDArray[np.float64]) -> GapHistogram:
    counts, edges = np.histogram(fractions, bins=_GAP_BINS, range=(0.0, 1.0))
    return GapHistogram(edges=edges.tolist(), queries=counts.tolist())
