"""The area under the ROC curve of public labels, from every score itself, with its standard error.

The area is the share of pairs of an input of the class and one of another whose first has the larger score; ties count
half. An input moves it by its own share of pairs less the area; these moves give the error (DeLong, DeLong and
Clarke-Pearson, "Comparing the areas under two or more correlated ROC curves", Biometrics 1988).
"""

import numpy as np
from numpy.typing import NDArray

from collegium.privacy.analysis.evaluation import NORMAL_95, Estimate
from collegium_accounting.mechanisms import IntArray


def roc_area(shares: NDArray[np.float64], truth: IntArray) -> Estimate | None:
    """The area of the second of two classes, or the mean over each class of more against the rest.

    Parameters
    ----------
    shares : probabilities ``[inputs, classes]``.
    truth : class numbers ``[inputs]``.

    Returns
    -------
    None where a class has no input or every one.
    """
    classes = range(shares.shape[1]) if shares.shape[1] > 2 else (1,)
    areas, moves = [], np.zeros(len(truth))
    for number in classes:
        own = truth == number
        ups, downs = int(own.sum()), int((~own).sum())
        if not ups or not downs:
            return None
        ranks = _ranks(shares[:, number])
        below = np.empty(len(truth))  # of an input of the class, the others below it; of another, those above it
        below[own] = (ranks[own] - _ranks(shares[own, number])) / downs
        below[~own] = 1.0 - (ranks[~own] - _ranks(shares[~own, number])) / ups
        area = float(below[own].mean())
        areas.append(area)
        moves += (below - area) / np.where(own, ups, downs) / len(classes)
    area, error = float(np.mean(areas)), float(np.sqrt(np.square(moves).sum()))
    reach = NORMAL_95 * error
    return Estimate(value=area, error=error, low=max(0.0, area - reach), high=min(1.0, area + reach))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rank of each value from 1, where equal ones share the mean of theirs."""
    _, place, equals = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(equals) - (equals - 1) / 2.0)[place])
