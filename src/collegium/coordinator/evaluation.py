"""How good labels and students are, from predictions and truth alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


def accuracy(predicted: IntArray, truth: IntArray) -> float | None:
    """Fraction of equal entries, both of shape ``[inputs]``; None when there are none."""
    return float((predicted == truth).mean()) if len(truth) else None


def per_class(predicted: IntArray, truth: IntArray, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Per true class: its name, how many inputs there are, and the fraction predicted right (None without any)."""
    rows = []
    for number, name in enumerate(classes):
        of_class = truth == number
        rows.append(
            {
                "class": name,
                "inputs": int(of_class.sum()),
                "accuracy": accuracy(predicted[of_class], truth[of_class]),
            }
        )
    return rows


def label_quality(labels: IntArray, truth: IntArray, classes: Sequence[str]) -> dict[str, Any]:
    """Quality of issued ``labels`` (−1 where none was given) against ``truth``, both of shape ``[queries]``.

    Both sides are public: the labels are released and the truth is the pool's own.
    """
    given = labels >= 0
    return {
        "answered": int(given.sum()),
        "accuracy": accuracy(labels[given], truth[given]),
        "per_class": per_class(labels[given], truth[given], classes),
    }


def prediction_quality(predicted: IntArray, truth: IntArray, classes: Sequence[str]) -> dict[str, Any]:
    """Accuracy over all ``[inputs]`` and per class."""
    return {
        "inputs": len(truth),
        "accuracy": accuracy(predicted, truth),
        "per_class": per_class(predicted, truth, classes),
    }
