"""One's own table in Python: a task of a frame with texts, the default's plan and cost, and ε against accuracy."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import collegium as cg
from collegium.data.task import CategoryColumn, NumberColumn, TableInputs
from collegium.errors import ConfigurationError, DataError


def drawn(rows: int, seed: int = 0) -> pd.DataFrame:
    """Persons whose class follows from their age and ward, but for one of ten."""
    draws = np.random.default_rng(seed)
    age, ward = draws.integers(18, 95, rows), draws.choice(["north", "south", "east"], rows)
    ill = ((age > 60) | (ward == "east")) ^ (draws.random(rows) < 0.1)
    return pd.DataFrame(
        {
            "age": age,
            "ward": ward,
            "smokes": draws.random(rows) < 0.5,
            "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(draws.integers(0, 900, rows), unit="D"),
            "result": np.where(ill, "ill", "well"),
        }
    )


def test_a_task_of_a_frame_knows_numbers_texts_truth_values_and_dates_by_their_names() -> None:
    frame = drawn(200)
    task = cg.Task.from_frame(frame, label="result")
    assert task.classes == ("ill", "well") and isinstance(task.inputs, TableInputs)
    age, ward, smokes, seen = task.inputs.columns
    assert isinstance(age, NumberColumn) and (age.low, age.high) == (frame["age"].min(), frame["age"].max())
    assert isinstance(ward, CategoryColumn) and ward.categories == ("east", "north", "south")
    assert isinstance(smokes, CategoryColumn) and smokes.categories == ("False", "True")
    assert seen.kind == "date" and repr(task) == "<task: ill, well from 4 columns>"
    written = frame.assign(seen=frame["seen"].dt.strftime("%d.%m.%Y"))  # as pandas reads a CSV file
    assert cg.Task.from_frame(written, label="result") == task
    encoded = cg.encode(frame, task)
    assert (cg.encode(written, task) == encoded).all()
    assert encoded.shape == (200, 2 + 4 + 3 + 2) and encoded.max() == 1.0
    assert (encoded[:, 2:6].sum(axis=1) == 1).all() and (encoded[:, 2:5].sum(axis=1) == 1).all()  # nothing unknown


def test_what_a_frame_does_not_say_is_asked_for() -> None:
    frame = drawn(50)
    names = frame.assign(patient=[f"p{n}" for n in range(50)])
    with pytest.raises(DataError, match="column patient has 50 different texts in 50 rows: name it in out"):
        cg.Task.from_frame(names, label="result")
    assert len(cg.Task.from_frame(names, label="result", out=["patient"]).inputs.columns) == 4  # type: ignore[union-attr]
    with pytest.raises(DataError, match=r"column seen has dates such as .6\. März 2025.: make dates of them"):
        cg.Task.from_frame(frame.assign(seen="6. März 2025"), label="result")
    with pytest.raises(DataError, match="Name them by classes"):
        cg.Task.from_frame(frame)
    with pytest.raises(DataError, match="no column 'outcome'"):
        cg.Task.from_frame(frame, label="outcome")
    with pytest.raises(DataError, match="two classes"):
        cg.Task.from_frame(frame.assign(result="ill"), label="result")
    with pytest.raises(DataError, match="holds no value"):
        cg.Task.from_frame(frame.assign(ward=None), label="result")
    with pytest.raises(DataError, match="a frame"):
        cg.Task.from_array(frame.to_numpy(), classes=["ill", "well"])
    numbered = cg.Task.from_frame(frame.assign(result=np.arange(50) % 11), label="result")
    assert numbered.classes[:3] == ("0", "1", "2") and numbered.classes[-1] == "10"


def test_an_index_that_pandas_read_as_a_column_is_no_input(tmp_path: Path) -> None:
    """A student would have learned from the row's number."""
    frame = drawn(60)
    frame.to_csv(tmp_path / "public.csv")
    read = pd.read_csv(tmp_path / "public.csv")
    assert read.columns[0] == "Unnamed: 0"
    task = cg.Task.from_frame(frame, label="result")
    assert cg.Task.from_frame(read, label="result") == task
    assert cg.Task.from_frame(read[read["age"] > 40], label="result").inputs.shape == task.inputs.shape
    own = read.rename(columns={"Unnamed: 0": "days"})
    assert len(cg.Task.from_frame(own, label="result").inputs.columns) == 5  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("column", "values", "advice"),
    [
        ("age", "40,5", "give a frame that pandas.read_csv(…, decimal=',') read (rows"),
        ("age", "1,234", "set apart, give a frame that pandas.read_csv(…, thousands=',') read; otherwise give a frame"),
        ("seen", "31/01/2020", "make dates of them with pandas.to_datetime(…, dayfirst=…) (rows"),
        ("ward", "West", "give frame.replace({'ward': {'West': '…'}}), or let them count as missing values (unknown="),
        (None, None, "give frame.rename(columns={'Age': 'age'}), or add the column without values"),
    ],
)
def test_advice_about_a_frame_is_for_a_program_and_not_for_a_file_of_settings(
    column: str | None, values: str | None, advice: str
) -> None:
    frame = drawn(60)
    task = cg.Task.from_frame(frame, label="result")
    wrong = frame.rename(columns={"age": "Age"}) if column is None else frame.assign(**{column: values})
    with pytest.raises(DataError) as raised:
        cg.encode(wrong, task, unknown="refuse")
    assert advice in str(raised.value) and "beside source" not in str(raised.value), raised.value


def test_advice_about_labels_and_marks_of_missing_values_is_for_a_program_too() -> None:
    frame = drawn(60)
    task = cg.Task.from_frame(frame, label="result")
    with pytest.raises(
        DataError, match=r"its classes are ill, well: correct the labels, or replace each by the name of"
    ):
        cg.LocalParties({"ash": (frame, frame["result"].str.upper())}, task)
    with pytest.raises(DataError, match=r"59 of 60 records have no label.* drop such rows with frame.dropna"):
        cg.LocalParties({"ash": (frame, frame["result"].where(frame.index == 0))}, task)
    marked = frame.assign(age=frame["age"].astype(object).where(frame.index > 2, "k.A."))
    with pytest.raises(DataError, match=r"give frame.replace\(\{'age': \{'k.A.': ''\}\}\), if that is missing"):
        cg.encode(marked, task)
    assert cg.encode(marked.replace({"age": {"k.A.": ""}}), task)[:4, 1].tolist() == [1, 1, 1, 0]


@pytest.mark.slow
def test_an_error_of_a_coordinator_names_the_argument_and_no_setting() -> None:
    frame = drawn(90)
    task = cg.Task.from_frame(frame, label="result")
    parties = cg.LocalParties(dict.fromkeys(("ash", "birch", "oak"), (frame, frame["result"])), task)
    votes = {"teachers_per_party": 10, "epsilon": 5}
    for make, words in (
        (lambda: cg.Coordinator(parties, frame, epsilon=-1).label(), "settings: epsilon: Input should be greater"),
        (lambda: cg.Coordinator(parties, frame, epsilon=1, evaluation_share=2).label(), "evaluation_share: Input"),
        (
            lambda: cg.Coordinator(parties, frame, cg.GNMax(sigma=40), **votes).label(500),
            "queries is 500, but the pool",
        ),
        (lambda: cg.Coordinator(parties, frame, cg.GNMax(sigma=20), epsilon=0.01).label(9), "not fit; raise epsilon,"),
        (lambda: cg.Coordinator(parties, frame, epsilon=1000).label(), "nothing is paid twice)"),
    ):
        with pytest.raises(cg.errors.CollegiumError) as raised:
            make()
        assert words in str(raised.value) and not re.search(r"\w\.(epsilon|count|share|quorum)", str(raised.value))


def test_the_plan_of_the_default_is_one_line_and_costs_what_it_says() -> None:
    plan = cg.plan(epsilon=1, classes=10)
    assert str(plan) == "class-sums(sigma=3.731, classes=10, rounds=1): ε = 0.9999"
    cost = cg.account(plan.made)
    assert 0.999 < cost.epsilon <= 1.0 and cost.epsilon == pytest.approx(plan.epsilon)
    assert str(cost) == "ClassSums(sigma=3.731, classes=10, rounds=1), released once: ε = 0.9999 at δ = 1e-05"
    twice = cg.plan(epsilon=1, classes=10, rounds=2)
    assert twice.made.parameters()["sigma"] == pytest.approx(plan.made.parameters()["sigma"] * 2**0.5, rel=1e-3)
    with pytest.raises(ConfigurationError, match="number of teachers"):
        cg.plan(epsilon=1, queries=100)
    with pytest.raises(ConfigurationError, match="epsilon > 0"):
        cg.plan(epsilon=0)
    with pytest.raises(ConfigurationError, match="one epsilon"):
        cg.plan(epsilon=[0.1, 1.0])  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_table_is_simulated_for_several_budgets_in_one_call(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    asked = {"epsilon": [0.05, 3.0], "repeats": 2, "progress": lambda done, of: told.append((done, of))}
    found = cg.simulate(drawn(600), "result", **asked, plot=tmp_path / "sweep.png")
    assert found["epsilon"].tolist() == [0.05, 3.0] and told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    low, high = found["accuracy"]
    assert high > low and high > found["constant"][1] + 0.1 and high <= found["pooled"][1] + 0.1
    assert (found["records"] == 300).all() and (tmp_path / "sweep.png").stat().st_size > 5000
    again, other = (cg.simulate(drawn(600), "result", **asked | {"epsilon": 3.0}, seed=seed) for seed in (0, 9))
    assert again.equals(found[1:].reset_index(drop=True)), "the same seed gives the same, whatever else is asked"
    assert other["accuracy"][0] != high


def test_a_simulation_that_cannot_be_is_refused_in_a_line() -> None:
    frame = drawn(60)
    for wrong in ({"epsilon": []}, {"epsilon": -1}, {"parties": 2}, {"repeats": 0}, {"pool": 0.9}):
        with pytest.raises(ConfigurationError):
            cg.simulate(frame, "result", **wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="too few to divide"):
        cg.simulate(frame[:12], "result")


@pytest.mark.slow
def test_a_run_of_frames_tells_its_progress_and_shows_itself_in_a_line() -> None:
    frame, steps = drawn(500), set()
    task = cg.Task.from_frame(frame[:150], label="result")
    records = {f"clinic-{n}": (frame[150 + n : 450 : 5], frame["result"][150 + n : 450 : 5]) for n in range(5)}
    parties = cg.LocalParties(records, task, seed=1, policy=cg.PolicyConfig(epsilon=9, seeded_noise=True))
    coordinator = cg.Coordinator(parties, frame[:150], epsilon=4, progress=lambda step: steps.add(step.step))
    assert (coordinator.label() >= 0).all()
    student = coordinator.fit()
    assert student.score(frame[450:], frame["result"][450:]) > 0.7 and {"describe", "student"} <= steps
    assert repr(parties) == "<5 parties: clinic-0, clinic-1, clinic-2, clinic-3, clinic-4>"
    assert repr(coordinator) == "<coordinator of 5 parties, ε = 4 at δ = 1e-05>"
