"""Labels that flow over a graph of nearest neighbours, so that few of them answer for a whole pool.

Zhou et al. 2004, "Learning with local and global consistency", section 3; with each label's own flow kept apart, so
that a label can be held against what all the others say of its input.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from collegium.privacy.units import IntArray

_TOLERANCE = 1e-4
_SURE = 0.8
_UNLIKELY = 0.1


def spread_labels(
    features: NDArray[np.float32],
    indices: IntArray,
    labels: IntArray,
    classes: int,
    *,
    neighbours: int,
    alpha: float,
) -> NDArray[np.float64]:
    """Class shares of every input, shape ``[inputs, classes]``, rows sum to 1.

    Noise makes some issued labels wrong. One that the flow of all other labels contradicts (one other class has more
    than 0.8 of it, the label's own class less than 0.1) is replaced by that class before the shares are taken, but
    never the only label of its class.
    """
    flow = flows(features, indices, neighbours=neighbours, alpha=alpha)
    return _shares(flow, contradicted(flow, indices, labels, classes), classes)


def flows(features: NDArray[np.float32], indices: IntArray, *, neighbours: int, alpha: float) -> NDArray[np.float32]:
    """What flows from each labelled input to each input, shape ``[inputs, labels]``.

    The solution of (I − αS)·F = Y, with S the symmetrically normalised graph of nearest neighbours and a column of Y
    for each label; by iteration, until a step changes nothing by more than 1e-4 of a label.
    """
    count = len(features)
    graph = NearestNeighbors(n_neighbors=min(neighbours, count - 1)).fit(features).kneighbors_graph(mode="connectivity")
    graph = graph.maximum(graph.T)
    scale = scipy.sparse.diags(1.0 / np.sqrt(np.asarray(graph.sum(axis=1)).ravel()))
    step = (alpha * (scale @ graph @ scale)).tocsr().astype(np.float32)
    given = np.zeros((count, len(indices)), dtype=np.float32)
    given[indices, np.arange(len(indices))] = 1.0
    flow = given
    while True:
        following = step @ flow + given
        if np.abs(following - flow).max(initial=0.0) <= _TOLERANCE:
            return np.asarray(following)
        flow = following


def contradicted(flow: NDArray[np.float32], indices: IntArray, labels: IntArray, classes: int) -> IntArray:
    """``labels`` with those replaced that all the others contradict; the only label of a class is believed."""
    others = flow[indices].astype(np.float64)
    np.fill_diagonal(others, 0.0)
    said = _shares(others, labels, classes)
    rows = np.arange(len(labels))
    alone = np.bincount(labels, minlength=classes)[labels] == 1
    wrong = (said.max(axis=1) > _SURE) & (said[rows, labels] < _UNLIKELY) & ~alone
    return np.where(wrong, said.argmax(axis=1), labels)


def most_certain(answers: NDArray[np.float64], share: float) -> IntArray:
    """Positions of the ``share`` of each class whose answers are most certain, by the entropy of their shares.

    An answer that leaves all classes alike is never among them.
    """
    entropy = -(answers * np.log(np.maximum(answers, 1e-12))).sum(axis=1)
    undecided = entropy > np.log(answers.shape[1]) - 1e-6
    chosen = []
    for label in range(answers.shape[1]):
        of_class = np.flatnonzero((answers.argmax(axis=1) == label) & ~undecided)
        kept = int(np.ceil(share * len(of_class)))
        chosen.append(of_class[np.argsort(entropy[of_class], kind="stable")[:kept]])
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def _shares(flow: NDArray[np.float32] | NDArray[np.float64], labels: IntArray, classes: int) -> NDArray[np.float64]:
    """The flow of each class as a share of all flow, shape ``[inputs, classes]``; alike where nothing flows."""
    summed = flow.astype(np.float64) @ np.eye(classes)[labels]
    total = summed.sum(axis=1, keepdims=True)
    return np.where(total > 1e-12, summed / np.maximum(total, 1e-12), 1.0 / classes)
