"""The queries and their labels, which are all that a student may use; how good labels are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data.several_labels import held_in
from collegium.data.task import Task
from collegium.models.students import Student
from collegium.privacy.analysis.evaluation import NORMAL_95, WEAK_CLASS, Estimate, measures
from collegium.privacy.evaluation_cells import Layout, other_classes
from collegium.settings import Frozen
from collegium_accounting.mechanisms import IntArray

_MOST_SCORED = 20
"""With more classes, their ranking and calibration would take more time than they are worth."""


class ClassQuality(Frozen):
    """The inputs of one true class, and the fraction of them that was predicted right; None without any."""

    class_name: str
    inputs: int
    accuracy: float | None


class Quality(Frozen):
    """The fraction of inputs that was predicted right, over all and per true class; None without any.

    Where an input holds several classes, each class is a question to all inputs, and the accuracy is the share of
    right answers to all of these questions.
    """

    inputs: int
    accuracy: float | None
    per_class: list[ClassQuality]
    confusion: list[list[int]] | None = None
    """Inputs by true class (rows) and predicted class (columns); None where an input holds several classes."""
    auroc: Estimate | None = None
    """Area under the ROC curve of the scores themselves (`roc_area`)."""
    calibration_error: Estimate | None = None
    """As the institutions would measure it (`Measures`)."""

    @property
    def balanced(self) -> float | None:
        """The mean of the classes' own accuracies, over the classes that have inputs."""
        shares = [row.accuracy for row in self.per_class if row.accuracy is not None]
        return float(np.mean(shares)) if shares else None

    @property
    def weak(self) -> list[ClassQuality]:
        """The classes of which too small a share is predicted right."""
        return [row for row in self.per_class if row.accuracy is not None and row.accuracy < WEAK_CLASS]

    @property
    def constant(self) -> tuple[str, float] | None:
        """The most frequent true class, and the accuracy of always answering it; None without one class an input."""
        if self.confusion is None or not self.inputs:
            return None
        row = max(self.per_class, key=lambda one: one.inputs)
        return row.class_name, row.inputs / self.inputs

    @property
    def no_better(self) -> bool:
        """Whether the accuracy is within two standard errors of the constant answer's, or below."""
        if self.constant is None or self.accuracy is None:
            return False
        constant = self.constant[1]
        return self.accuracy - constant < 2.0 * math.sqrt(max(constant * (1.0 - constant), 1e-9) / self.inputs)

    @property
    def verdict(self) -> str | None:
        """What a sentence about a student says of its quality, from "right for …" on; None without inputs."""
        if self.accuracy is None:
            return None
        right = f"right for {100 * self.accuracy:.1f} % of {self.inputs} held-out inputs"
        if self.constant is not None:
            always, value = f"always answering “{self.constant[0]}”", f"{100 * self.constant[1]:.1f} %"
            right += (
                f": no better than {always} ({value})" if self.no_better else f"; {always} would be right for {value}"
            )
        weak = ", ".join(f"“{row.class_name}” {100 * (row.accuracy or 0.0):.1f} %" for row in self.weak[:3])
        more = f" and {len(self.weak) - 3} more classes" if self.weak[3:] else ""
        return right + (f". Weak classes: {weak}{more}" if weak else "")


def accuracy(predicted: IntArray, truth: IntArray) -> float | None:
    """Fraction of equal entries, both of shape ``[inputs]``; None when there are none."""
    return float((predicted == truth).mean()) if len(truth) else None


def prediction_quality(predicted: IntArray, truth: IntArray, task: Task) -> Quality:
    """Quality of ``predicted`` against ``truth``, both of shape ``[inputs]``."""
    rows = _per_class(predicted, truth, task)
    overall = accuracy(predicted, truth)
    if task.multilabel and len(truth):
        overall = float(np.mean([row.accuracy for row in rows if row.accuracy is not None]))
    confusion = None
    if not task.multilabel:
        classes = len(task.classes)
        cells = np.bincount(truth * classes + predicted, minlength=classes * classes)
        confusion = cells.reshape(classes, classes).tolist()
    return Quality(inputs=len(truth), accuracy=overall, per_class=rows, confusion=confusion)


def student_quality(student: Student, inputs: NDArray[Any], truth: IntArray, task: Task) -> Quality:
    """Quality of a student on public inputs ``[n, …]`` with their labels ``[n]``."""
    quality, classes = prediction_quality(student.predict(inputs), truth, task), len(task.classes)
    if task.multilabel or not len(truth) or classes > _MOST_SCORED:
        return quality
    layout, others = Layout(classes), other_classes(inputs, truth, classes)
    shares = student.probabilities(inputs)
    cells = layout.cells(truth, shares, others).ravel()
    found = measures(np.bincount(cells, minlength=layout.length).astype(np.float64), 0.0, task.classes)
    return quality.model_copy(update={"auroc": roc_area(shares, truth), "calibration_error": found.calibration_error})


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


UNASKED = -2
"""In an array of labels: the query has neither a label nor an abstention."""


@dataclass(frozen=True, eq=False)
class LabelSet:
    """Queries in the order in which they were chosen.

    Parameters
    ----------
    indices : positions in the pool, ``[queries]``.
    labels : a class, ABSTAIN or UNASKED each, ``[queries]``.
    """

    indices: IntArray
    labels: IntArray

    @staticmethod
    def of(indices: IntArray, keys: list[str], held: Mapping[str, int]) -> "LabelSet":
        """The queries at ``indices`` with the labels that a ledger has for their ``keys``.

        Parameters
        ----------
        held : the ledger's labels, by query key.
        """
        return LabelSet(indices, np.array([held.get(key, UNASKED) for key in keys], dtype=np.int64))

    @property
    def labelled(self) -> IntArray:
        """Positions of the queries that have a class."""
        return self.indices[self.labels >= 0]

    @property
    def classes(self) -> IntArray:
        """The classes of `labelled`."""
        return self.labels[self.labels >= 0]


def roc_area(shares: NDArray[np.float64], truth: IntArray) -> Estimate | None:
    """The area under the ROC curve of the second of two classes, or the mean over each class of more against the rest.

    It is of every score itself, with its standard error: the share of pairs of an input of the class and one of another
    whose first has the larger score; ties count half. An input moves it by its own share of pairs less the area; these
    moves give the error (DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated ROC
    curves", Biometrics 1988).

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
