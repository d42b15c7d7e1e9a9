"""A record is encoded by the public task and by nothing else."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collegium.data.encoding import encode_images, encode_labels, encode_matrix, encode_table, text_of
from collegium.data.task import CategoryColumn, ImageInputs, NumberColumn, TableInputs, Task
from collegium.errors import DataError

INPUTS = TableInputs(
    columns=(
        NumberColumn(name="age", low=20, high=60),
        CategoryColumn(name="ward", categories=("1", "2", "surgery")),
    )
)
TASK = Task(classes=("no", "yes"), inputs=INPUTS)
CELLS = st.sampled_from(["", "?", "NA", "1", "2.0", " surgery ", "40", "-7", "1e3", "inf", "18446744073709551616"])


def encode(age: object, ward: object) -> list[float]:
    frame = pd.DataFrame({"age": [age], "ward": [ward]})
    return [float(value) for value in encode_table(frame, INPUTS, origin="test")[0]]


@pytest.mark.parametrize(
    ("age", "ward", "expected"),
    [
        ("40", "1", [0.5, 0, 1, 0, 0, 0]),
        ("10", "2.0", [0, 0, 0, 1, 0, 0]),
        ("99", " surgery ", [1, 0, 0, 0, 1, 0]),
        ("?", "elsewhere", [0, 1, 0, 0, 0, 1]),
        ("", "", [0, 1, 0, 0, 0, 1]),
        (np.nan, None, [0, 1, 0, 0, 0, 1]),
        (30, 2, [0.25, 0, 0, 1, 0, 0]),
    ],
)
def test_numbers_are_clipped_and_scaled_and_categories_become_indicators(
    age: object, ward: object, expected: list[float]
) -> None:
    assert encode(age, ward) == expected


@pytest.mark.slow
@given(st.lists(st.tuples(CELLS.filter(lambda cell: "surgery" not in cell), CELLS), min_size=1, max_size=8))
def test_the_encoding_of_a_record_depends_on_that_record_alone(rows: list[tuple[str, str]]) -> None:
    together = encode_table(pd.DataFrame(rows, columns=["age", "ward"], dtype=str), INPUTS, origin="test")
    alone = [
        encode_table(pd.DataFrame([row], columns=["age", "ward"], dtype=str), INPUTS, origin="test") for row in rows
    ]
    assert np.array_equal(together, np.concatenate(alone))


def test_text_where_a_number_belongs_is_an_error_and_not_a_missing_value() -> None:
    with pytest.raises(DataError, match="column age: 2 values are no numbers"):
        encode_table(pd.DataFrame({"age": ["1,5", "1,5", "?"], "ward": ["1"] * 3}), INPUTS, origin="test")


def test_a_missing_column_is_named_beside_those_that_are_there() -> None:
    with pytest.raises(DataError, match="no column ward; there are age, Ward"):
        encode_table(pd.DataFrame({"age": ["1"], "Ward": ["1"]}), INPUTS, origin="test")


def test_a_matrix_has_the_columns_of_the_task_or_is_encoded_already() -> None:
    raw = np.array([[40, 2], [99, 7]])
    encoded = encode_matrix(raw, INPUTS, origin="test")
    assert encoded.tolist() == [[0.5, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 1]]
    assert np.array_equal(encode_matrix(encoded, INPUTS, origin="test"), encoded)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((2, 3)), "x has 3 columns; the task has 2"),
        (np.zeros((2, 6)), "x has 6 columns"),
        (np.full((2, 6), 1.5, dtype=np.float32), r"lie in \[0, 1\]"),
        (np.full((2, 6), np.nan, dtype=np.float32), r"lie in \[0, 1\]"),
        (np.zeros((2, 2, 2)), "two dimensions"),
    ],
)
def test_a_matrix_of_another_form_is_refused(matrix: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        encode_matrix(matrix, INPUTS, origin="test")


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (3.0, "3"), ("3.0", "3"), (" a ", "a"), (np.float32(2), "2"), (-0.0, "0"), (0.5, "0.5"), (True, "True")]
    + [(missing, "") for missing in (None, np.nan, pd.NA, pd.NaT, "")],
)
def test_equal_values_have_one_spelling(value: object, text: str) -> None:
    assert text_of(value) == text


def labels(values: list[str], task: Task = TASK, *, numbered: bool = False) -> list[int]:
    return encode_labels(np.array(values), task, origin="test", numbered=numbered).tolist()


def test_labels_become_the_numbers_of_their_classes() -> None:
    assert labels(["yes", "no", "yes"]) == [1, 0, 1]


def test_integers_are_class_numbers_only_where_the_classes_are_no_numbers() -> None:
    assert labels(["1", "0"], numbered=True) == [1, 0]
    sevens = Task(classes=("7", "1"), inputs=INPUTS)
    assert labels(["1", "7"], sevens, numbered=True) == [1, 0]
    with pytest.raises(DataError, match="no class '0'"):
        labels(["0"], sevens, numbered=True)


def test_unknown_and_missing_labels_are_refused() -> None:
    with pytest.raises(DataError, match="no class 'maybe'; its classes are no, yes"):
        labels(["yes", "maybe"])
    with pytest.raises(DataError, match="2 of 3 records have no label"):
        labels(["yes", "", "?"])


def test_a_class_may_be_named_like_a_missing_value() -> None:
    assert labels(["None", "yes"], Task(classes=("None", "yes"), inputs=INPUTS)) == [0, 1]


def test_images_keep_their_bytes_and_gain_a_channel() -> None:
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    encoded = encode_images(images, ImageInputs(height=3, width=4), origin="test")
    assert encoded.shape == (2, 3, 4, 1)
    assert encoded.tobytes() == images.tobytes()


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((2, 4, 3), dtype=np.uint8), "size 4×3×1, but the task has 3×4×1"),
        (np.zeros((2, 12), dtype=np.uint8), "size 12, but the task has"),
        (np.zeros((2, 3, 4), dtype=np.float32), "not float32"),
    ],
)
def test_images_of_another_size_or_type_are_refused(images: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        encode_images(images, ImageInputs(height=3, width=4), origin="test")
