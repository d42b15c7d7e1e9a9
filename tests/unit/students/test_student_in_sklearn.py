"""A published student is a scikit-learn classifier: what scikit-learn does with one, on frames and arrays."""

from __future__ import annotations

import pickle
import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV, CalibrationDisplay
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import PartialDependenceDisplay, permutation_importance
from sklearn.metrics import RocCurveDisplay, roc_auc_score
from sklearn.model_selection import TunedThresholdClassifierCV, cross_val_score, learning_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from collegium.coordinator.students import fit_student
from collegium.coordinator.students.published import PublishedStudent
from collegium.data.encoding import encode_table
from collegium.data.task import CategoryColumn, ImageInputs, NumberColumn, TableInputs, Task
from collegium.errors import CollegiumError, UnfitInputs

LEARNS_NOTHING = (
    "it fits a classifier to classes of its own; a student learns nothing in fit, and keeps its task's classes"
)
KNOWN_BEFORE = "it wants the number of columns to be unknown before fit, and scikit-learn's words for another number"
CANNOT_APPLY = {
    "check_array_api_input": "scikit-learn skips it unless SCIPY_ARRAY_API is set",
    "check_classifier_data_not_an_array": "it gives a frame without names; a student finds columns by their names",
    "check_classifiers_classes": LEARNS_NOTHING,
    "check_classifiers_one_label": LEARNS_NOTHING,
    "check_classifiers_train": LEARNS_NOTHING,
    "check_n_features_in": KNOWN_BEFORE,
    "check_n_features_in_after_fitting": KNOWN_BEFORE,
}
"""The checks of scikit-learn that no student can pass, and why."""

INPUTS = TableInputs(
    columns=(
        NumberColumn(name="age", low=0, high=100),
        CategoryColumn(name="ward", categories=("a", "b", "c")),
        NumberColumn(name="weight", low=0, high=1),
    )
)


def of_numbers(columns: int) -> PublishedStudent:
    """A student of the classes 0 and 1 from this many columns of numbers."""
    named = tuple(NumberColumn(name=f"column-{n}", low=-10, high=10) for n in range(columns))
    task, draws = Task(classes=("0", "1"), inputs=TableInputs(columns=named)), np.random.default_rng(0)
    x, y = draws.random((60, 2 * columns)).astype(np.float32), draws.integers(0, 2, 60)
    options = {"trees": 3}
    return PublishedStudent(
        fit_student("random-forest", x, np.arange(60), y, task, seed=0, device="cpu", options=options)
    )


def drawn(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    draws = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "weight": draws.random(rows),
            "age": draws.integers(0, 100, rows),
            "ward": draws.choice(["a", "b", "c", None], rows),
            "remark": "ignored",
        }
    )
    ill = (frame["age"] + draws.normal(0, 15, rows) > 50) | (frame["ward"] == "a")
    return frame, np.where(ill, "ill", "well")


@pytest.fixture(scope="module")
def student() -> PublishedStudent:
    frame, y = drawn(300, seed=0)
    x, options = encode_table(frame, INPUTS, origin="test"), {"trees": 20}
    task, labels = Task(classes=("ill", "well"), inputs=INPUTS), (y == "well").astype(np.int64)
    return PublishedStudent(
        fit_student("random-forest", x, np.arange(300), labels, task, seed=0, device="cpu", options=options)
    )


@pytest.mark.slow
def test_all_checks_of_scikit_learn_pass_but_those_that_cannot_apply() -> None:
    """Each check draws as many columns as it likes: it passes with the student that has so many."""
    passed: set[str] = set()
    named: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for columns in (1, 2, 3, 4, 5, 10):
            for one in check_estimator(of_numbers(columns), on_fail=None, on_skip=None):
                named.add(one["check_name"])
                passed |= {one["check_name"]} if one["status"] == "passed" else set()
    assert named - passed == set(CANNOT_APPLY) and len(passed) > 40


def test_it_is_cloned_pickled_and_shown_in_a_line(student: PublishedStudent) -> None:
    frame, y = drawn(100, seed=1)
    assert is_classifier(student) and student.score(frame, y) > 0.75
    for other in (
        clone(student),
        pickle.loads(pickle.dumps(student)),
        clone(clone(student).set_params(unknown="missing")),
    ):
        assert np.array_equal(other.predict_proba(frame), student.predict_proba(frame))
    assert clone(student).student is student.student
    assert repr(student) == "<student of 2 classes (ill, well) from 3 columns>"
    assert len(repr(student.get_params())) < 100


def test_pipelines_and_cross_validation_measure_the_student_as_it_is(student: PublishedStudent) -> None:
    frame, y = drawn(200, seed=2)
    halved = frame.assign(age=frame["age"] / 2)
    doubled = make_pipeline(FunctionTransformer(lambda given: given.assign(age=given["age"] * 2)), student)
    assert doubled.fit(halved, y).score(halved, y) == student.score(frame, y)
    folds = cross_val_score(student, frame, y, cv=4)
    assert folds.mean() == pytest.approx(student.score(frame, y))
    assert np.array_equal(learning_curve(student, frame, y, cv=4, train_sizes=[1.0])[2][0], folds)


@pytest.mark.slow
@pytest.mark.parametrize("as_array", [False, True])
def test_calibration_thresholds_importance_and_curves(student: PublishedStudent, as_array: bool) -> None:
    frame, y = drawn(300, seed=3)
    x = frame[["age", "ward", "weight"]].to_numpy(dtype=object) if as_array else frame
    calibrated = CalibratedClassifierCV(FrozenEstimator(student)).fit(x, y)
    well = student.predict_proba(x)[:, 1]
    assert roc_auc_score(y, calibrated.predict_proba(x)[:, 1]) == pytest.approx(roc_auc_score(y, well), abs=0.02)
    tuned = TunedThresholdClassifierCV(FrozenEstimator(student), cv="prefit", refit=False).fit(x, y)
    assert 0 < tuned.best_threshold_ < 1
    found = permutation_importance(student, x, y, n_repeats=3, random_state=0).importances_mean
    of = dict(zip(["age", "ward", "weight"] if as_array else frame.columns, found, strict=True))
    assert of["age"] > of["ward"] > abs(of["weight"]) and of.get("remark", 0) == 0
    matplotlib.use("agg")
    curve = RocCurveDisplay.from_estimator(student, x, y)
    assert curve.roc_auc == pytest.approx(roc_auc_score(y, well))
    CalibrationDisplay.from_estimator(student, x, y)
    matplotlib.pyplot.close("all")


def test_partial_dependence_of_a_frame(student: PublishedStudent) -> None:
    frame, _ = drawn(60, seed=4)
    known = frame.drop(columns="remark").assign(ward="b")
    matplotlib.use("agg")
    PartialDependenceDisplay.from_estimator(student, known.astype({"age": float}), ["age"])
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (drawn(3, 0)[0][:0], "the frame holds no records"),
        (np.empty((0, 3)), "0 sample"),
        ([1.0, 2.0, 3.0], "Expected 2D array"),
        (np.ones((2, 4)), "x has 4 columns; the task has 3"),
        (drawn(3, 0)[0].drop(columns="age"), "no column age"),
        (drawn(3, 0)[0].rename(columns={"age": "Age"}), r"give frame\.rename\(columns={'Age': 'age'}\)"),
    ],
)
def test_what_does_not_fit_is_one_typed_error_that_scikit_learn_knows(
    student: PublishedStudent, given: object, says: str
) -> None:
    for method in (student.predict, student.predict_proba, student.fit):
        with pytest.raises(UnfitInputs, match=says.replace("{", r"\{")) as caught:
            method(given)
        assert isinstance(caught.value, CollegiumError) and isinstance(caught.value, ValueError)
    with pytest.raises(UnfitInputs, match="inconsistent numbers of samples"):
        student.fit(*(drawn(3, 0)[0], ["ill"]))


def test_classes_that_are_numbers_are_numbers_and_images_are_arrays_of_four_dimensions() -> None:
    draws, inputs = np.random.default_rng(0), ImageInputs(height=8, width=8)
    images, y = draws.integers(0, 256, (50, 8, 8, 1), dtype=np.uint8), np.arange(50) % 3
    task = Task(classes=("1", "2", "3"), inputs=inputs)
    fitted = fit_student("random-forest", images, np.arange(50), y, task, seed=0, device="cpu", options={"trees": 9})
    student = PublishedStudent(fitted)
    assert student.classes_.tolist() == [1, 2, 3] and student.score(images, y + 1) > 0.9
    assert cross_val_score(student, images, y + 1, cv=2).mean() > 0.9 and student.n_features_in_ == 64
