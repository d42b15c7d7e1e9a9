"""How good labels and students are, from predictions and truth alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.task import Task
from collegium.privacy.multilabel import held_in

IntArray = NDArray[np.int64]


def accuracy(predicted: IntArray, truth: IntArray) -> float | None:
    """Fraction of equal entries, both of shape ``[inputs]``; None when there are none."""
    return float((predicted == truth).mean()) if len(truth) else None


def per_class(predicted: IntArray, truth: IntArray, task: Task) -> list[dict[str, Any]]:
    """Per true class: its name, how many inputs there are, and the fraction predicted right (None without any).

    Where an input holds several classes, every class is a question to all of them.
    """
    rows = []
    if task.multilabel:
        right = held_in(predicted, len(task.classes)) == held_in(truth, len(task.classes))
        shares = right.mean(axis=0).tolist() if len(truth) else [None] * len(task.classes)
        return [
            {"class": name, "inputs": len(truth), "accuracy": share}
            for name, share in zip(task.classes, shares, strict=True)
        ]
    for number, name in enumerate(task.classes):
        of_class = truth == number
        rows.append(
            {
                "class": name,
                "inputs": int(of_class.sum()),
                "accuracy": accuracy(predicted[of_class], truth[of_class]),
            }
        )
    return rows


def label_quality(labels: IntArray, truth: IntArray, task: Task) -> dict[str, Any]:
    """Quality of issued ``labels`` (−1 where none was given) against ``truth``, both of shape ``[queries]``.

    Both sides are public: the labels are released and the truth is the pool's own.
    """
    given = labels >= 0
    return {"answered": int(given.sum())} | _right(labels[given], truth[given], task)


def prediction_quality(predicted: IntArray, truth: IntArray, task: Task) -> dict[str, Any]:
    """Accuracy over all ``[inputs]`` and per class."""
    return {"inputs": len(truth)} | _right(predicted, truth, task)


def _right(predicted: IntArray, truth: IntArray, task: Task) -> dict[str, Any]:
    """Of several classes an input, the accuracy is the share of right answers, one per class and input."""
    rows = per_class(predicted, truth, task)
    if not task.multilabel:
        return {"accuracy": accuracy(predicted, truth), "per_class": rows}
    return {"accuracy": float(np.mean([row["accuracy"] for row in rows])) if len(truth) else None, "per_class": rows}
