"""What a student is worth on public labelled inputs: ranking and calibration beside the share that is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from collegium.coordinator.run.label_set import student_quality
from collegium.data.task import Task


class Answers:
    """A student that gives these probabilities, whatever it is asked."""

    def __init__(self, shares: NDArray[np.float64]) -> None:
        self._shares = shares

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        return self._shares.argmax(axis=1)

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float64]:
        return self._shares


@pytest.mark.parametrize("classes", [2, 4])
def test_the_area_is_that_of_the_scores_in_their_bins_and_false_doubt_is_seen(classes: int) -> None:
    rng = np.random.default_rng(0)
    task = Task.model_validate({"classes": list("abcd")[:classes], "inputs": {"kind": "vector", "size": 2}})
    truth, x = rng.integers(0, classes, 3000), rng.normal(size=(3000, 2)).astype(np.float32)
    scores = rng.normal(size=(3000, classes)) + 2.0 * np.eye(classes)[truth]
    errors = []
    for sharpness in (2.0, 0.3):  # 2 is Bayes's rule for these scores
        shares = np.exp(sharpness * scores)
        shares /= shares.sum(axis=1, keepdims=True)
        found = student_quality(Answers(shares), x, truth, task)  # type: ignore[arg-type]
        assert found.auroc is not None and found.calibration_error is not None
        if sharpness == 2.0:
            exact = roc_auc_score(truth, shares[:, 1] if classes == 2 else shares, multi_class="ovr")
            assert found.auroc.value == pytest.approx(exact, abs=0.03)
        errors.append(found.calibration_error.value)
    assert errors[1] > 1.5 * errors[0]
