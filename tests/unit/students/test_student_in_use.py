"""A finished student on a ward: calibrated on its records, cut by cost or sensitivity, wary of what it never met."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

import collegium as cg
from collegium.coordinator.cli.student_cli import app
from collegium.coordinator.cli.student_use_cli import log_losses
from collegium.coordinator.students import fit_student
from collegium.coordinator.students.drift import drift
from collegium.coordinator.students.unusual import clipped_columns, outside_pool
from collegium.data.encoding import encode_table
from collegium.data.task import CategoryColumn, NumberColumn, TableInputs, Task
from collegium.errors import CollegiumError, DataError, StorageError
from collegium.models.calibrated import CalibratedStudent, calibrated
from collegium.models.features import Features, distances_squared, extract
from collegium.models.kernel_student import KernelStudent
from collegium.models.kernels import KernelMap
from collegium.models.students import Student, read_student
from collegium_onnx import export

PAGE = Path(__file__).resolve().parents[3] / "docs" / "using-the-student.md"
INPUTS = TableInputs(
    columns=(
        NumberColumn(name="age", low=0, high=100),
        NumberColumn(name="income", low=0, high=90_000),
        CategoryColumn(name="ward", categories=("1", "2", "surgery")),
        NumberColumn(kind="date", name="born", low=0, high=20_000),
    )
)
TASK = Task(classes=("ill", "well", "unsure"), inputs=INPUTS)


def drawn(rows: int, seed: int, ill: float = 0.5) -> pd.DataFrame:
    """Rows of which the share ``ill`` is ill, for whom age tells; every tenth of the others is unsure."""
    draws = np.random.default_rng(seed)
    label = np.where(draws.random(rows) < ill, "ill", np.where(draws.random(rows) < 0.1, "unsure", "well"))
    age = np.clip(np.where(label == "ill", 65, 40) + draws.normal(0, 15, rows), 0, 100).round(1)
    return pd.DataFrame(
        {
            "label": label,
            "age": age,
            "income": draws.integers(0, 90_000, rows),
            "ward": draws.choice(["1", "2", "surgery"], rows),
            "born": [f"19{year}-0{month}-17" for year, month in draws.integers((71, 1), (99, 9), (rows, 2)).tolist()],
        }
    )


def encoded(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    labels = np.array([TASK.classes.index(name) for name in frame["label"]])
    return encode_table(frame, INPUTS, origin="test"), labels


@pytest.fixture(scope="module")
def forest() -> Student:
    x, y = encoded(drawn(400, 0))
    return fit_student("random-forest", x, np.arange(len(y)), y, TASK, seed=0, device="cpu", options={"trees": 15})


def kernel_student(pool: np.ndarray) -> KernelStudent:
    spread = np.stack([pool.mean(axis=0), 1 / np.maximum(pool.std(axis=0), 0.01)]).astype(np.float32)
    features = Features("standard", scaling=spread)
    landmarks = extract(features, pool, INPUTS)
    apart = distances_squared(landmarks, landmarks)
    kernel = KernelMap.of_landmarks(features, INPUTS, int(np.median(apart)), 4.0, landmarks)
    draws = np.random.default_rng(1)
    return KernelStudent(TASK, kernel, draws.normal(size=(len(pool) + 1, 3)) * 0.2)


@pytest.fixture
def files(forest: Student, tmp_path: Path) -> Path:
    forest.save(tmp_path / "student.safetensors")
    drawn(200, 1, ill=0.2).to_csv(tmp_path / "ward.csv", index=False)
    return tmp_path


def said(folder: Path, words: str) -> str:
    """What the command prints; a word with a dot stands for a file of the folder."""
    named = [str(folder / word) if re.fullmatch(r"[\w-]+\.[a-z]+", word) else word for word in words.split()]
    return CliRunner().invoke(app, named, standalone_mode=False, catch_exceptions=False).output


def refused(folder: Path, words: str) -> str:
    with pytest.raises(CollegiumError) as caught:
        said(folder, words)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["forest", "kernel"])
def test_a_calibrated_student_is_nearer_to_the_truth_of_its_ward(kind: str, forest: Student) -> None:
    """Whose classes are otherwise frequent. On records that took no part; the fit is on 100 of them."""
    student = forest if kind == "forest" else kernel_student(encoded(drawn(150, 2))[0])
    (x, y), (others, truth) = encoded(drawn(100, 3, ill=0.15)), encoded(drawn(2000, 4, ill=0.15))
    made = calibrated(student, x, y)
    rows = np.arange(len(truth))
    before, after = (
        -np.log(np.maximum(one.probabilities(others)[rows, truth], 1e-4)).mean() for one in (student, made)
    )
    assert after < 0.9 * before
    told, expected = log_losses(student, x, y), after
    assert told[1] < told[0] and told[1] == pytest.approx(expected, abs=0.25)
    assert np.allclose(made.probabilities(others).sum(axis=1), 1.0)


@pytest.mark.slow
def test_a_calibration_on_twelve_records_does_little_harm_where_there_is_nothing_to_learn(forest: Student) -> None:
    """The labels are drawn by the student's own probabilities, whose log loss is 0.43."""
    x, _ = encoded(drawn(1000, 5))
    shares, rows, more = forest.probabilities(x), np.arange(12, 1000), []
    for seed in range(20):
        draws = np.random.default_rng(seed)
        y = np.array([draws.choice(3, p=row) for row in shares])
        losses = [
            -np.log(np.maximum(one.probabilities(x)[rows, y[rows]], 1e-4)).mean()
            for one in (forest, calibrated(forest, x[:12], y[:12]))
        ]
        more.append(losses[1] - losses[0])
    assert np.mean(more) < 0.1


def test_the_command_writes_a_student_that_is_read_back_and_calibrated_anew(files: Path, forest: Student) -> None:
    out = said(files, "calibrate student.safetensors ward.csv --label label -o own.safetensors")
    losses = re.search(r"log loss    ([\d.]+) before, ([\d.]+) after", out)
    assert losses is not None and float(losses[2]) < float(losses[1])
    assert "200 of" in out and "ε does not protect them" in out
    frame = drawn(50, 7)
    own, x = read_student(files / "own.safetensors", device="cpu"), encoded(frame)[0]
    expected = calibrated(forest, *encoded(drawn(200, 1, ill=0.2)))
    assert np.array_equal(own.probabilities(x), expected.probabilities(x)) and own.task == TASK
    said(files, "calibrate own.safetensors ward.csv --label label -o again.safetensors")
    assert (files / "again.safetensors").read_bytes() == (files / "own.safetensors").read_bytes()
    assert cg.load_student(files / "own.safetensors").score(frame, frame["label"]) > 0.5


def test_a_threshold_follows_from_what_a_miss_costs_or_from_the_share_to_be_found(files: Path) -> None:
    ward, words = drawn(200, 1, ill=0.2), "calibrate student.safetensors ward.csv --label label -o own.safetensors"
    for sensitivity in (0.5, 0.9, 1.0):
        out = said(files, f"{words} --positive ill --sensitivity {sensitivity}")
        student = cg.load_student(files / "own.safetensors")
        ill = ward[ward["label"] == "ill"]
        found = (student.predict(ill) == "ill").sum()
        assert found >= sensitivity * len(ill) > found - 2 or sensitivity == 1.0 == found / len(ill)
        assert f"finds {found} of {len(ill)} of these records" in out
    said(files, f"{words} --positive ill --cost 4")
    student = cg.load_student(files / "own.safetensors")
    named, shares = student.predict(ward) == "ill", student.predict_proba(ward)[:, 0]
    assert np.array_equal(named, shares >= 0.2) and named.sum() > (shares >= 0.5).sum()
    for wrong in ("--positive ill", "--cost 4", "--positive ill --cost 4 --sensitivity 0.9"):
        assert "needs --positive CLASS and either" in refused(files, f"{words} {wrong}")
    assert "no class 'sick'" in refused(files, f"{words} --positive sick --cost 4")


def test_too_few_records_or_one_class_teach_no_calibration(files: Path, forest: Student) -> None:
    x, y = encoded(drawn(60, 1))
    for rows in (slice(0, 9), y == 0):
        with pytest.raises(DataError, match="10 labelled records or more, of two classes"):
            calibrated(forest, x[rows], y[rows])
    drawn(30, 1, ill=1.0).to_csv(files / "ward.csv", index=False)
    assert "label more" in refused(files, "calibrate student.safetensors ward.csv --label label -o own.safetensors")


def test_a_damaged_file_and_one_inside_itself_are_refused(files: Path) -> None:
    said(files, "calibrate student.safetensors ward.csv --label label --positive ill --cost 4 -o own.safetensors")
    own = files / "own.safetensors"
    arrays, kept = load_file(own), own.read_bytes()
    about = {"collegium-calibrated-v1": "{}"}

    def damaged(**changed: np.ndarray) -> None:
        save_file({**arrays, **changed}, own, about)
        with pytest.raises(StorageError, match="damaged calibrated student"):
            read_student(own, device="cpu")

    damaged(calibration=np.array([1.0, 0.0]))
    damaged(calibration=np.array([-1.0, 0.0, 0.0, 0.0]))
    damaged(calibration=np.array([1.0, np.nan, 0.0, 0.0]))
    damaged(cut=np.array([3.0, 0.5]))
    damaged(cut=np.array([0.0, 1.5]))
    damaged(more=np.zeros(1))
    damaged(student=np.frombuffer(kept, dtype=np.uint8))
    damaged(student=np.zeros(9, dtype=np.uint8))


@pytest.mark.parametrize("cut", [None, (2, 0.15)])
def test_the_onnx_file_of_a_calibrated_student_decides_as_it_does(
    cut: tuple[int, float] | None, forest: Student, tmp_path: Path
) -> None:
    made = calibrated(forest, *encoded(drawn(80, 1)))
    made = CalibratedStudent(made.student, made.slope, made.offsets, cut)
    frame = drawn(300, 8)
    assert export.export_onnx(made, tmp_path / "s.onnx", frame)[1] < 1e-6
    session = onnxruntime.InferenceSession(tmp_path / "s.onnx")
    (label,) = session.run(["label"], export.onnx_inputs(frame, TASK))
    expected = [TASK.classes[number] for number in made.predict(encoded(frame)[0])]
    assert label.tolist() == expected and len(set(expected)) > (2 if cut else 1)


def test_rows_outside_their_ranges_have_their_columns_named_and_one_line_says_how_many(files: Path) -> None:
    new = drawn(30, 9).assign(income=lambda f: f["income"] * 10)
    new.to_csv(files / "new.csv", index=False)
    out = said(files, "predict student.safetensors new.csv -o out.csv")
    clipped = int((new["income"] > 90_000).sum())
    assert f"CLIPPED: {clipped} of 30 rows" in out and f"income in {clipped}" in out and "OUTSIDE" not in out
    table = pd.read_csv(files / "out.csv", keep_default_na=False)
    assert table["clipped"].tolist() == ["income" if one > 90_000 else "" for one in new["income"]]
    assert "outside_pool" not in table  # a forest holds no inputs of its pool
    both = new.assign(age=-1).iloc[:1]
    assert clipped_columns(both, TASK) == ["age; income"]
    assert clipped_columns(both[["age", "income", "ward", "born"]].to_numpy(), TASK) == ["age; income"]
    drawn(30, 9).to_csv(files / "new.csv", index=False)
    assert "CLIPPED" not in said(files, "predict student.safetensors new.csv -o out.csv")


def test_inputs_like_the_pools_are_called_outside_of_it_in_one_of_a_hundred_and_others_always(files: Path) -> None:
    like = []
    for seed in range(30, 42):  # the share of one pool varies by which of its inputs is the furthest
        student = kernel_student(encoded(drawn(300, seed))[0])
        like.append(outside_pool(student.kernel, encoded(drawn(500, seed + 20))[0]).mean())
    assert 0.005 < np.mean(like) < 0.02
    new = drawn(40, 4).assign(age=0.0, income=90_000, ward="", born="2024-01-01")
    student.save(files / "student.safetensors")
    new.to_csv(files / "new.csv", index=False)
    out = said(files, "predict student.safetensors new.csv -o out.csv")
    assert "OUTSIDE THE POOL: 40 of 40 rows" in out
    assert pd.read_csv(files / "out.csv")["outside_pool"].all()
    own = calibrated(student, *encoded(drawn(60, 5)))
    own.save(files / "own.safetensors")
    assert cg.load_student(files / "own.safetensors").unusual(new)["outside_pool"].all()


def test_drift_names_the_columns_that_changed_and_none_that_did_not(files: Path, forest: Student) -> None:
    pool = encoded(drawn(500, 0))[0]
    alike = drift(forest, pool, encoded(drawn(300, 1))[0])
    assert not alike["differs"].any() and len(alike) == 4 + 3
    changed = drawn(300, 1).assign(income=lambda f: f["income"] // 3, ward="2")
    found = drift(forest, pool, encoded(changed)[0])
    assert set(found["what"][found["differs"]]) >= {"income", "ward"}
    assert not found.set_index("what")["differs"][["age", "born"]].any()
    missing = drift(forest, pool, encoded(drawn(300, 1).assign(age=""))[0]).set_index("what")
    assert missing["differs"]["age"]
    drawn(500, 0).to_csv(files / "pool.csv", index=False)
    changed.to_csv(files / "new.csv", index=False)
    assert re.search(
        r"300 inputs differ from the pool: .*ward", said(files, "drift student.safetensors pool.csv new.csv")
    )
    drawn(300, 1).to_csv(files / "new.csv", index=False)
    assert "are like the pool" in said(files, "drift student.safetensors pool.csv new.csv")


@pytest.mark.slow
def test_of_pools_that_are_alike_few_are_said_to_differ(forest: Student) -> None:
    """At most 1 in 100 by the p-value alone: 4 or more of 60 happen with a chance of 4e-3 then; seeds are fixed."""
    pool = encoded(drawn(500, 0))[0]
    small = [drift(forest, pool, encoded(drawn(120, seed))[0])["p_value"].min() <= 0.01 for seed in range(100, 160)]
    assert sum(small) < 4


def test_a_ward_reads_which_setting_helps_and_where_it_is_written(files: Path) -> None:
    new = drawn(5, 1)
    new.rename(columns={"income": "Income"}).to_csv(files / "new.csv", index=False)
    text = refused(files, "predict student.safetensors new.csv")
    assert 'set rename = { "Income" = "income" } below [data] in a TOML file that --settings names' in text
    new.to_csv(files / "new.csv", index=False, sep=";")
    text = refused(files, "predict student.safetensors new.csv")
    assert 'set separator = ";" below [data] in a TOML file that --settings names' in text and "source" not in text
    student = cg.load_student(files / "student.safetensors")
    for ask in (student.predict, student.unusual):
        with pytest.raises(DataError, match=r"read it with pandas.read_csv\(…, sep=';'\) and give the frame$"):
            ask(files / "new.csv")
    with pytest.raises(DataError, match=r"there is no none.csv: correct its name$"):
        student.predict("none.csv")
    (files / "how.toml").write_text('[data]\nseparator = ";"\n')
    assert said(files, "predict student.safetensors new.csv --settings how.toml").count("\n") >= 6


def test_the_pages_own_snippet_runs_the_onnx_file_on_mixed_columns(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Columns of whole numbers, floats, texts with a gap, and dates: as pandas reads them from a file."""
    monkeypatch.chdir(files)
    frame = drawn(20, 3)
    frame.loc[3, "ward"], frame.loc[4, "age"] = None, None
    frame.to_csv("holdout.csv", index=False)
    said(files, "export student.safetensors --onnx student.onnx")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (snippet,) = [block for block in blocks if "onnxruntime" in block]
    names: dict[str, object] = {"pd": pd, "new": pd.read_csv("holdout.csv")}
    exec(compile(snippet, "using-the-student.md", "exec"), names)
    student = cg.load_student("student.safetensors")
    assert {column.kind for column in INPUTS.columns} == {"number", "category", "date"}
    assert names["label"].tolist() == student.predict("holdout.csv").tolist()  # type: ignore[attr-defined]
    np.testing.assert_allclose(names["probabilities"], student.predict_proba("holdout.csv"), atol=1e-6)
    assert capsys.readouterr().out
