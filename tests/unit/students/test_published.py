"""A published student answers raw inputs by the schema in its file, and so does its ONNX file."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import collegium as cg
from collegium.coordinator.cli.student_cli import app
from collegium.coordinator.students import fit_student
from collegium.coordinator.students.published import PublishedStudent
from collegium.data import DataSource
from collegium.data.encoding import encode_table
from collegium.data.task import CategoryColumn, ImageInputs, Inputs, NumberColumn, TableInputs, Task
from collegium.errors import CollegiumError, ConfigurationError, DataError, StorageError
from collegium.models.features import Features, dimensions, distances_squared, extract
from collegium.models.kernel_student import KernelStudent
from collegium.models.kernels import KernelMap
from collegium.models.networks import build_network, network_inputs
from collegium.models.quantising import quantised
from collegium.models.students import Student, read_student
from collegium_onnx import export

TABLE = TableInputs(
    columns=(
        NumberColumn(name="age", low=0.3, high=99.7),
        CategoryColumn(name="ward", categories=("1", "2", "surgery")),
        NumberColumn(name="weight", low=40, high=41),
        NumberColumn(kind="date", name="born", low=0, high=20_000),
    )
)
BRIEF = {"supervised": {"steps": 3, "network": "default"}, "random-forest": {"trees": 9}}


def frame_of(rows: int, seed: int = 0) -> pd.DataFrame:
    draws = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "patient": [f"p{number}" for number in range(rows)],
            "age": draws.uniform(0, 110, rows).round(1),
            "ward": draws.choice(["1", "2", "surgery", ""], rows),
            "weight": np.where(draws.random(rows) < 0.2, np.nan, draws.uniform(39, 42, rows)),
            "born": [f"19{year}-0{month}-17" for year, month in draws.integers((60, 1), (99, 9), (rows, 2)).tolist()],
        }
    )


def fitted(method: str, inputs: Inputs, classes: tuple[str, ...] = ("ill", "well", "unsure"), several: bool = False):
    task = Task(classes=classes, inputs=inputs, multilabel=several)
    draws = np.random.default_rng(1)
    if isinstance(inputs, TableInputs):
        x = encode_table(frame_of(120), inputs, origin="test")
    else:
        x = draws.integers(0, 256, (120, *inputs.shape), dtype=np.uint8)
    labels = draws.integers(0, task.label_numbers, 120)
    return fit_student(method, x, np.arange(120), labels, task, seed=2, device="cpu", options=BRIEF[method])


@pytest.fixture(scope="module")
def forest() -> Student:
    return fitted("random-forest", TABLE)


@pytest.fixture
def file(forest: Student, tmp_path: Path) -> Path:
    forest.save(tmp_path / "student.safetensors")
    return tmp_path / "student.safetensors"


def refused(*words: object) -> str:
    """What the command line would print as its one line of error."""
    with pytest.raises(CollegiumError) as caught:
        CliRunner().invoke(app, [str(word) for word in words], standalone_mode=False, catch_exceptions=False)
    return str(caught.value)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_a_file_a_frame_and_an_array_get_the_same_names_and_probabilities(
    ending: str, file: Path, forest: Student, tmp_path: Path
) -> None:
    frame, source = frame_of(50), tmp_path / f"new{ending}"
    if ending == ".csv":
        frame.to_csv(source, index=False)
    elif ending == ".parquet":
        frame.to_parquet(source)
    else:
        np.savez(source, x=frame[["age", "ward", "weight", "born"]].astype(str).to_numpy(dtype=str))
    student = cg.load_student(file)
    encoded = encode_table(frame, TABLE, origin="test")
    assert np.array_equal(student.predict_proba(source), forest.probabilities(encoded))
    assert np.array_equal(student.predict_proba(frame), student.predict_proba(encoded))
    assert student.predict(source).tolist() == [student.classes_[number] for number in forest.predict(encoded)]


def test_the_command_writes_a_row_for_each_input_with_the_columns_that_it_passes_on(
    file: Path, forest: Student, tmp_path: Path
) -> None:
    frame_of(30).to_csv(tmp_path / "new.csv", index=False)
    for name, read in (("out.csv", pd.read_csv), ("out.parquet", pd.read_parquet)):
        words = ["predict", str(file), str(tmp_path / "new.csv"), "--id", "patient", "-o", str(tmp_path / name)]
        said = CliRunner().invoke(app, words, catch_exceptions=False).output
        out = read(tmp_path / name)
        of_classes = [f"probability_{name}" for name in ("ill", "well", "unsure")]
        assert list(out) == ["patient", "prediction", *of_classes, "clipped"]
        assert out["patient"].tolist() == frame_of(30)["patient"].tolist() and "30 predictions" in said
        shares = out[of_classes].to_numpy()
        np.testing.assert_allclose(shares, forest.probabilities(encode_table(frame_of(30), TABLE, origin="")))
        assert out["prediction"].tolist() == [forest.task.classes[best] for best in shares.argmax(axis=1)]


def test_what_does_not_fit_the_schema_is_named_by_column_and_line(file: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.csv"

    def told(frame: pd.DataFrame, *more: str) -> str:
        frame.to_csv(new, index=False)
        return refused("predict", file, new, *more)

    good = frame_of(10)
    assert "no column ward; there are patient, age, weight, born" in told(good.drop(columns="ward"))
    unknown = told(good.assign(ward=["1", "", "Surgery", "2", "1", "1", "3", "NA", "1", "1"]))
    assert (
        "column ward: 2 values are unknown categories: 'Surgery', '3' (lines 4, 8); the task knows 1, 2, surgery: set "
        'values = { "ward" = { "Surgery" = "…" } } below [data] in a TOML file that --settings names, or let them '
        "count as missing values (--unknown-as-missing)"
    ) in unknown
    assert "column age: 1 value is no number" in (text := told(good.assign(age=["4", "old", *["1"] * 8])))
    assert "(line 3)" in text and 'values = { "age" = { "old" = "" } } below [data] in a TOML file' in text
    assert "no column nobody to pass on" in told(good, "--id", "nobody")
    assert "must end in .csv or .parquet" in refused("predict", file, new, "-o", tmp_path / "out.txt")
    (tmp_path / "new.docx").write_bytes(b"PK")
    assert "is no .npz, .csv, .parquet or .xlsx file" in refused("predict", file, tmp_path / "new.docx")
    assert "no student at" in refused("predict", tmp_path / "nothing", new)


def test_a_file_is_read_as_the_institutions_own_settings_say(file: Path, tmp_path: Path) -> None:
    excel = (
        frame_of(12).rename(columns={"ward": "Station"}).assign(age=lambda f: f["age"].map(str).str.replace(".", ","))
    )
    excel.drop(columns="weight").to_csv(tmp_path / "new.csv", index=False, sep=";", encoding="latin-1")
    (tmp_path / "party.toml").write_text(
        '[data]\nsource = "other.csv"\nlabel = "x"\nseparator = ";"\nencoding = "latin-1"\ndecimal = ","\n'
        'rename = { Station = "ward" }\nabsent = "missing"\nunlabelled = "leave-out"\n'
    )
    words = ["predict", str(file), str(tmp_path / "new.csv"), "--settings", str(tmp_path / "party.toml")]
    CliRunner().invoke(app, [*words, "-o", str(tmp_path / "out.csv")], catch_exceptions=False)
    same = cg.load_student(file).predict_proba(frame_of(12).assign(weight=np.nan))
    predicted = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_allclose(predicted.filter(like="probability"), same)
    labelled = excel.drop(columns="weight").assign(sick=predicted["prediction"].where(predicted.index > 0))
    labelled.to_csv(tmp_path / "new.csv", index=False, sep=";", encoding="latin-1")
    words = ["evaluate", *words[1:], "--label", "sick", "--json"]
    told = CliRunner().invoke(app, words, catch_exceptions=False)
    measured = json.loads(told.stdout)
    assert measured["accuracy"] == 1.0, "the class it gives, by the same settings"
    assert measured["inputs"] == 11, "one has no label"


def test_the_sheet_of_a_workbook_is_that_of_the_settings(file: Path, tmp_path: Path) -> None:
    with pd.ExcelWriter(tmp_path / "new.xlsx") as book:
        pd.DataFrame({"note": ["exported today"]}).to_excel(book, sheet_name="Cover", index=False)
        frame_of(12).to_excel(book, sheet_name="Records", index=False)
    (tmp_path / "party.toml").write_text('[data]\nsource = "other.xlsx"\nsheet = "Records"\n')
    words = ["predict", str(file), str(tmp_path / "new.xlsx"), "--settings", str(tmp_path / "party.toml")]
    CliRunner().invoke(app, [*words, "-o", str(tmp_path / "out.csv")], catch_exceptions=False)
    same = cg.load_student(file).predict_proba(frame_of(12))
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv").filter(like="probability"), same)


def test_an_unknown_category_counts_as_missing_where_that_is_wanted(file: Path) -> None:
    student, lenient = cg.load_student(file), cg.load_student(file, unknown="missing")
    unknown, missing = frame_of(8).assign(ward="Surgery"), frame_of(8).assign(ward="")
    with pytest.raises(DataError, match="the frame: column ward: 8 values are unknown"):
        student.predict(unknown)
    assert np.array_equal(lenient.predict_proba(unknown), student.predict_proba(missing))


def test_images_lie_in_a_folder_with_or_without_sub_folders(tmp_path: Path) -> None:
    student = fitted("random-forest", ImageInputs(height=8, width=9))
    student.save(tmp_path / "student.safetensors")
    images = np.random.default_rng(3).integers(0, 256, (4, 8, 9), dtype=np.uint8)
    (tmp_path / "scans").mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / "scans" / f"{number}.png")
    table = cg.load_student(tmp_path / "student.safetensors").predict_source(DataSource(source=str(tmp_path / "scans")))
    assert table["file"].tolist() == ["0.png", "1.png", "2.png", "3.png"]
    np.testing.assert_array_equal(table.filter(like="probability"), student.probabilities(images[..., None]))
    Image.fromarray(images[0].T).save(tmp_path / "scans" / "4.png")
    assert "4.png is 9×8, but the task has 8×9" in refused(
        "predict", tmp_path / "student.safetensors", tmp_path / "scans"
    )
    (tmp_path / "scans" / "ward").mkdir()
    shutil.move(tmp_path / "scans" / "3.png", tmp_path / "scans" / "ward")
    inside = cg.load_student(tmp_path / "student.safetensors").predict_source(
        DataSource(source=str(tmp_path / "scans"))
    )
    assert inside["file"].tolist() == ["3.png"]


def test_several_labels_an_input_are_columns_of_zeros_and_ones(tmp_path: Path) -> None:
    student = PublishedStudent(fitted("supervised", TABLE, ("a", "b", "c"), several=True))
    frame_of(6).to_csv(tmp_path / "new.csv", index=False)
    table = student.predict_source(DataSource(source=str(tmp_path / "new.csv")))
    named = student.predict(frame_of(6))
    assert np.array_equal(table[["prediction_a", "prediction_b", "prediction_c"]], named)
    assert np.array_equal(named, student.predict_proba(frame_of(6)) >= 0.5)


def test_the_onnx_file_of_a_forest_takes_raw_columns_and_gives_names(forest: Student, tmp_path: Path) -> None:
    compared, difference = export.export_onnx(forest, tmp_path / "student.onnx")
    assert compared == 200 and difference < 1e-6
    session = onnxruntime.InferenceSession(tmp_path / "student.onnx")
    raw = frame_of(70, seed=9)
    columns = {
        "age": raw["age"].to_numpy(),
        "ward": raw["ward"].to_numpy(dtype=object),
        "weight": raw["weight"].to_numpy(),
        "born": (pd.to_datetime(raw["born"]) - pd.Timestamp(0)).dt.days.to_numpy(dtype=float),
    }
    label, shares = session.run(["label", "probabilities"], columns)
    np.testing.assert_allclose(shares, PublishedStudent(forest).predict_proba(raw), atol=1e-6)
    assert label.tolist() == PublishedStudent(forest).predict(raw).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inputs", "several"), [(ImageInputs(height=8, width=9), False), (ImageInputs(height=8, width=8), True)]
)
def test_the_onnx_file_of_a_network_takes_images_as_bytes(inputs: ImageInputs, several: bool, tmp_path: Path) -> None:
    student = fitted("supervised", inputs, several=several)
    images = np.random.default_rng(4).integers(0, 256, (5, *inputs.shape), dtype=np.uint8)
    assert export.export_onnx(student, tmp_path / "student.onnx", images)[1] < 1e-5
    (found,) = onnxruntime.InferenceSession(tmp_path / "student.onnx").run(["probabilities"], {"inputs": images})
    np.testing.assert_allclose(found, student.probabilities(images), atol=1e-5)


def test_a_file_that_would_answer_otherwise_is_not_written(
    forest: Student, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "_number", lambda graph, column: _without_clipping(graph, column))
    with pytest.raises(ConfigurationError, match="other probabilities than the student"):
        export.export_onnx(forest, tmp_path / "student.onnx")
    assert not list(tmp_path.iterdir())


def _without_clipping(graph: export.OnnxGraph, column: NumberColumn) -> list[str]:
    """Planted: a number is neither clipped nor is its range taken off."""
    number = graph.add("Cast", column.name, to=1)
    return [graph.add("Unsqueeze", part, graph.constant([1])) for part in (number, number)]


def test_the_command_compares_on_the_inputs_that_it_is_given(file: Path, tmp_path: Path) -> None:
    frame_of(40).to_csv(tmp_path / "pool.csv", index=False)
    words = ["export", str(file), "--onnx", str(tmp_path / "s.onnx"), "--inputs", str(tmp_path / "pool.csv")]
    assert "probabilities on 40 inputs of" in CliRunner().invoke(app, words, catch_exceptions=False).output
    assert "on 200 drawn inputs" in CliRunner().invoke(app, words[:4], catch_exceptions=False).output
    with pytest.raises(StorageError):
        export.export_onnx(cg.load_student(file).student, tmp_path / "no" / "folder.onnx")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("raw", TABLE),
        ("standard", TABLE),
        ("ranks", TABLE),
        ("raw", ImageInputs(height=9, width=8, channels=3)),
        ("hog", ImageInputs(height=18, width=17)),
        ("pyramid", ImageInputs(height=17, width=18, channels=3)),
        ("pyramid", ImageInputs(height=70, width=70)),
        ("network", ImageInputs(height=8, width=8)),
    ],
)
def test_the_onnx_file_of_a_kernel_student_computes_the_same_features(
    name: str, inputs: Inputs, tmp_path: Path
) -> None:
    """Differences are those of rounding to 32 bits at the end: every step before is in whole numbers.

    All but the logarithms among a pair's features, which may differ in the last digit.
    """
    draws = np.random.default_rng(5)
    if isinstance(inputs, TableInputs):
        x: np.ndarray = encode_table(frame_of(60), inputs, origin="test")
    else:
        x = draws.integers(0, 256, (60, *inputs.shape), dtype=np.uint8)
    scaling = np.stack([x.mean(axis=0), np.ones(x.shape[1:])]) if name == "standard" else np.sort(x, axis=0)[::4]
    scaled, task = name in ("standard", "ranks"), Task(classes=("ill", "well", "unsure"), inputs=inputs)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        two = [build_network("student-cnn", task, width=2) for _ in range(2)] if name == "network" else []
        linear = [build_network("linear", task)]
    pair = quantised(two, task, network_inputs(x)).to_bytes() if two else None
    plain = Features(name, scaling=scaling.astype(np.float32) if scaled else None, network=pair)
    projection = None if scaled else draws.integers(-900, 900, (dimensions(plain, inputs), 7))
    features = Features(name, None if projection is None else projection.astype(np.float32), plain.scaling, pair)
    landmarks = extract(features, x[:20], inputs)
    apart = distances_squared(landmarks, landmarks)
    coefficients = draws.normal(size=(21, 3)) * 0.2
    kernel = KernelMap.of_landmarks(features, inputs, int(np.median(apart[apart > 0])), 4.0, landmarks)
    student = KernelStudent(task, kernel, coefficients)
    if name == "hog":
        student = replace(student, network=quantised(linear, task, network_inputs(x)))
    raw = frame_of(60) if isinstance(inputs, TableInputs) else x
    assert np.ptp(student.probabilities(x)) > 0.2
    assert export.export_onnx(student, tmp_path / "student.onnx", raw)[1] < (1e-6 if pair is None else 1e-4)


def test_a_kernel_student_keeps_its_network_in_its_file_and_takes_none_of_another_task(tmp_path: Path) -> None:
    inputs, file = ImageInputs(height=8, width=8), tmp_path / "student.safetensors"
    x = np.random.default_rng(0).integers(0, 256, (40, *inputs.shape), dtype=np.uint8)
    kernel = KernelMap.of_landmarks(Features("raw"), inputs, 10**6, 16.0, extract(Features("raw"), x[:5], inputs))
    task, other = (Task(classes=classes, inputs=inputs) for classes in (("a", "b"), ("b", "a")))
    alone = KernelStudent(task, kernel, np.ones((6, 2)))
    with_one, foreign = (
        replace(alone, network=quantised([build_network("small-cnn", of)], of, network_inputs(x)))
        for of in (task, other)
    )
    with_one.save(file)
    assert np.array_equal(read_student(file).probabilities(x), with_one.probabilities(x))
    assert np.ptp(with_one.probabilities(x) - alone.probabilities(x)) > 0
    foreign.save(file)
    assert "another task" in refused("predict", file, file)
    replace(alone, kernel=replace(kernel, ridge=3.0)).save(file)
    assert "damaged" in refused("predict", file, file)
