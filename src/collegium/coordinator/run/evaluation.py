"""How good labels and students are, from predictions and truth alone."""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel, ConfigDict

from collegium.data.task import Task
from collegium.privacy.multilabel import held_in
from collegium.privacy.units import IntArray


class ClassQuality(BaseModel):
    """The inputs of one true class, and the fraction of them that was predicted right; None without any."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    class_name: str
    inputs: int
    accuracy: float | None


class Quality(BaseModel):
    """The fraction of inputs that was predicted right, over all and per true class; None without any.

    Where an input holds several classes, each class is a question to all inputs, and the accuracy is the share of
    right answers to all of these questions.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    inputs: int
    accuracy: float | None
    per_class: list[ClassQuality]


def accuracy(predicted: IntArray, truth: IntArray) -> float | None:
    """Fraction of equal entries, both of shape ``[inputs]``; None when there are none."""
    return float((predicted == truth).mean()) if len(truth) else None


def label_quality(labels: IntArray, truth: IntArray, task: Task) -> Quality:
    """Quality of those of ``labels`` that were issued (0 or more), against ``truth``, both of shape ``[queries]``.

    Both sides are public: the labels are released and the truth is the pool's own.
    """
    given = labels >= 0
    return prediction_quality(labels[given], truth[given], task)


def prediction_quality(predicted: IntArray, truth: IntArray, task: Task) -> Quality:
    """Quality of ``predicted`` against ``truth``, both of shape ``[inputs]``."""
    rows = _per_class(predicted, truth, task)
    overall = accuracy(predicted, truth)
    if task.multilabel and len(truth):
        overall = float(np.mean([row.accuracy for row in rows if row.accuracy is not None]))
    return Quality(inputs=len(truth), accuracy=overall, per_class=rows)


def _per_class(predicted: IntArray, truth: IntArray, task: Task) -> list[ClassQuality]:
    if task.multilabel:
        right = held_in(predicted, len(task.classes)) == held_in(truth, len(task.classes))
        shares = right.mean(axis=0).tolist() if len(truth) else [None] * len(task.classes)
        return [
            ClassQuality(class_name=name, inputs=len(truth), accuracy=share)
            for name, share in zip(task.classes, shares, strict=True)
        ]
    return [
        ClassQuality(class_name=name, inputs=int(own.sum()), accuracy=accuracy(predicted[own], truth[own]))
        for name, own in ((name, truth == number) for number, name in enumerate(task.classes))
    ]
