"""The user's own files: what is read of each, and what is said when one is not what the task needs."""

import gzip
import lzma
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from pydantic import ValidationError
from support.data import records_from as read

from collegium.data import DataSource, data_root, load
from collegium.data.loading import files
from collegium.data.task import CategoryColumn, ImageInputs, NumberColumn, TableInputs, Task
from collegium.errors import DataError

IMAGES = Task(classes=("cat", "dog"), inputs=ImageInputs(height=2, width=3))
TABLE = Task(
    classes=("no", "yes"),
    inputs=TableInputs(
        columns=(NumberColumn(name="age", low=0, high=100), CategoryColumn(name="ward", categories=("a", "b")))
    ),
)
CSV = "age, ward, y, patient\n50, a, yes, p1\n?, c, no, p2\n100, b, yes, p1\n"
PIXELS = np.arange(30, dtype=np.uint8).reshape(5, 2, 3)


def npz(folder: Path, **arrays: object) -> Path:
    path = folder / "data.npz"
    np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()})
    return path


def test_npz_of_images(tmp_path: Path) -> None:
    examples = read(npz(tmp_path, x=PIXELS, y=[0, 1, 1, 0, 1], hospital=list("aabbb")), IMAGES)
    assert np.array_equal(examples.x[..., 0], PIXELS)
    assert examples.x.dtype == np.uint8
    assert examples.labels().tolist() == [0, 1, 1, 0, 1]
    assert examples.columns["hospital"].tolist() == list("aabbb")


@pytest.mark.parametrize("compressed", [False, True])
def test_large_arrays_stay_in_the_file_and_give_the_same_records(
    tmp_path: Path, compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = np.savez_compressed if compressed else np.savez
    x = np.random.default_rng(0).integers(0, 256, (50, 4, 5, 1)).astype(np.uint8)
    save(tmp_path / "d.npz", x=x, y=np.arange(50) % 3)
    task = Task(classes=("a", "b", "c"), inputs=ImageInputs(height=4, width=5))
    source = DataSource(source=str(tmp_path / "d.npz"), start=5, stop=45)
    whole = load(source, task, data_root=None)
    monkeypatch.setattr(files, "LARGE_FROM", 100)
    mapped = load(source, task, data_root=None)
    assert isinstance(mapped.x.base, np.memmap) != compressed
    assert (mapped.x == x[5:45]).all() and (mapped.labels() == whole.labels()).all()
    assert list(mapped.lasting_identities("")[0]) == list(whole.lasting_identities("")[0])
    shuffled = load(source.model_copy(update={"shuffle_seed": 1}), task, data_root=None)
    assert sorted(shuffled.identities()) != sorted(mapped.identities())


def test_a_large_parquet_file_read_in_batches_gives_the_same_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of every kind, with missing values in some batches alone, must not look otherwise in one batch."""
    rows = 50
    frame = pd.DataFrame({
        "age": pd.array([None, 7, *range(rows - 2)], dtype="Int64"),
        "ward": ["a"] * 20 + [None, "c"] + ["b"] * (rows - 22),
        "y": ["no", "yes"] * (rows // 2),
        "patient": np.arange(rows) // 3,
        "weight": [1e20, 2.0, float("nan")] + [0.1] * (rows - 3),
        "smoker": pd.array([True, None] * (rows // 2), dtype="boolean"),
    })  # fmt: skip
    frame.to_parquet(tmp_path / "d.parquet", row_group_size=9)
    source = DataSource(source=str(tmp_path / "d.parquet"), group="patient")
    whole = load(source, TABLE, data_root=None)
    monkeypatch.setattr(files, "LARGE_FROM", 100)
    monkeypatch.setattr(files, "BATCH_ROWS", 7)
    mapped = load(source, TABLE, data_root=None)
    assert isinstance(mapped.x, np.memmap) and not isinstance(whole.x, np.memmap)
    assert mapped.x.dtype == whole.x.dtype and np.array_equal(mapped.x, whole.x)
    assert mapped.labels().tolist() == whole.labels().tolist()
    assert mapped.groups is not None and whole.groups is not None
    assert mapped.groups.tolist() == whole.groups.tolist()
    assert {name: values.tolist() for name, values in mapped.columns.items()} == {
        name: values.tolist() for name, values in whole.columns.items()
    }
    assert mapped.rows is not None and whole.rows is not None and mapped.rows.tolist() == whole.rows.tolist()
    assert (mapped.rows_of, mapped.group_of) == (whole.rows_of, whole.group_of)
    labels = frame["y"].where(frame.index // 7 != 2)  # a whole batch has none
    frame.assign(y=labels).to_parquet(tmp_path / "d.parquet")
    left = load(source.model_copy(update={"unlabelled": "leave-out"}), TABLE, data_root=None)
    assert np.array_equal(left.x, whole.x[labels.notna()]) and len(left.labels()) == rows - 7
    frame.assign(age=["?"] * 40 + ["old"] + ["?"] * 9).to_parquet(tmp_path / "d.parquet")
    with pytest.raises(DataError, match=r"column age: 1 value is no number .*row 40\)"):
        load(source, TABLE, data_root=None)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 1000), }",
        f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({'9' * 4000},), }}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 4), }",
        "{'descr': 7, 'fortran_order': False, 'shape': (1,), }",
        "[" * 3000,
    ],
)
@pytest.mark.parametrize("mapped_from", [0, 2**26])
def test_an_npz_header_that_lies_is_one_clear_error(
    tmp_path: Path, header: str, mapped_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LARGE_FROM", mapped_from)
    path, line = tmp_path / "data.npz", f"{header}\n".encode()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line + bytes(64))
    with pytest.raises(DataError, match=r"cannot read .*data\.npz"):
        read(path, IMAGES)


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_csv_of_far_too_many_columns_is_refused_before_it_is_read(tmp_path: Path, ending: str) -> None:
    path, text = tmp_path / f"wide.{ending}", ",".join(["1"] * 200_000) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    with pytest.raises(DataError, match="200000 columns, and 20000 are the most"):
        read(path, TABLE)


def test_npz_with_splits(tmp_path: Path) -> None:
    labels = np.array(["cat", "dog", "dog", "cat", "dog"])
    path = npz(tmp_path, x_train=PIXELS[:3], y_train=labels[:3], x_test=PIXELS[3:], y_test=labels[3:])
    assert read(path, IMAGES).labels().tolist() == [0, 1, 1]
    assert read(path, IMAGES, split="test").labels().tolist() == [0, 1]
    everything = read(path, IMAGES, split="all")
    assert everything.labels().tolist() == [0, 1, 1, 0, 1]
    assert np.array_equal(everything.x[..., 0], PIXELS)


def test_start_and_stop_choose_a_slice(tmp_path: Path) -> None:
    examples = read(npz(tmp_path, x=PIXELS), IMAGES, start=1, stop=3)
    assert np.array_equal(examples.x[..., 0], PIXELS[1:3])


def test_npz_of_a_table(tmp_path: Path) -> None:
    task = Task(
        classes=("0", "1"),
        inputs=TableInputs(columns=(NumberColumn(name="a", low=0, high=4), NumberColumn(name="b", low=0, high=1))),
    )
    examples = read(npz(tmp_path, x=[[2.0, np.nan], [9.0, 1.0]], y=[1.0, 0.0]), task)
    assert examples.x.tolist() == [[0.5, 0, 0, 1], [1, 0, 1, 0]]
    assert examples.labels().tolist() == [1, 0]


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"a": PIXELS}, {}, "no array x_train .nor x.; there are a"),
        ({"x_train": PIXELS}, {"split": "test"}, "no array x_test"),
        ({"x": PIXELS}, {"split": "test"}, "no test split"),
        ({"x": PIXELS, "y": [0, 1]}, {}, "for 5 rows of x"),
        ({"x": PIXELS, "y": np.eye(5)}, {}, "labels of shape"),
        ({"x": PIXELS, "y": [0, 1, np.nan, 0, 1]}, {}, "1 of 5 records has no label"),
        ({"x": PIXELS, "y": [0, 1, 2, 0, 1]}, {}, "no class '2'"),
        ({"x": PIXELS[:0]}, {}, "holds no records"),
        ({"x": PIXELS}, {"start": 5}, "no record between"),
        ({"x": PIXELS}, {"stop": 6}, "has 5 records: stop = 6"),
        ({"x": PIXELS}, {"label": "kind"}, "no label column kind; there are none"),
        ({"x": PIXELS, "id": [1] * 5}, {"group": "patient"}, "no group column patient; there are id"),
        ({"x": PIXELS, "id": ["a", "", "b", "?", "c"]}, {"group": "id"}, "2 records have no value in the group"),
        ({"x": np.zeros((5, 3, 3), dtype=np.uint8)}, {}, "size 3×3×1, but the task has 2×3×1"),
    ],
)
def test_an_npz_that_does_not_fit_is_refused_with_the_reason(
    tmp_path: Path, arrays: dict[str, object], options: dict[str, object], message: str
) -> None:
    path = npz(tmp_path, **arrays)
    with pytest.raises(DataError, match=message) as raised:
        read(path, IMAGES, **options)
    assert str(path) in str(raised.value)


def test_pickled_objects_are_never_read(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return Path.touch, (tmp_path / "sprung",)

    path = tmp_path / "data.npz"
    np.savez(path, x=np.array([Trap()], dtype=object))
    with pytest.raises(DataError, match="pickled objects, which are not read"):
        read(path, IMAGES)
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match="pickled objects, which are not read"):
        read(path, IMAGES)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("ending", ["csv", "csv.xz", "csv.gz", "parquet"])
def test_tables_are_encoded_by_the_task(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"data.{ending}"
    if ending == "parquet":
        values = {"age": [50, None, 100], "ward": list("acb"), "y": ["yes", "no", "yes"], "patient": ["p1", "p2", "p1"]}
        pd.DataFrame(values).astype({"age": "Int64"}).to_parquet(path)
    else:
        pack = {"csv": bytes, "csv.xz": lzma.compress, "csv.gz": gzip.compress}[ending]
        path.write_bytes(pack(CSV.encode()))
    examples = read(path, TABLE, group="patient")
    assert examples.x.tolist() == [[0.5, 0, 1, 0, 0], [0, 1, 0, 0, 1], [1, 0, 0, 1, 0]]
    assert examples.x.dtype == np.float32
    assert examples.labels().tolist() == [1, 0, 1]
    assert examples.groups is not None
    assert examples.groups.tolist() == ["p1", "p2", "p1"]
    assert set(examples.columns) == {"y", "patient"}


def test_a_record_is_read_alike_whatever_stands_in_the_other_rows(tmp_path: Path) -> None:
    task = Task(
        classes=("0", "1"),
        inputs=TableInputs(columns=(CategoryColumn(name="code", categories=("1", "2")),)),
    )
    for number, other in enumerate(["3,0", "?,1", "1.5,0", "x,1"]):
        path = tmp_path / f"{number}.csv"
        path.write_text(f"code,y\n1,1\n{other}\n")
        examples = read(path, task)
        assert examples.x[0].tolist() == [1, 0, 0]
        assert examples.labels()[0] == 1


def test_records_without_a_label_are_left_out_each_by_itself_where_the_source_says_so(tmp_path: Path) -> None:
    path, leave_out = tmp_path / "a.csv", {"unlabelled": "leave-out"}
    path.write_text("age,ward,y\n1,a,yes\n2,b,NA\n3,a,\n4,b,no\n")
    kept = read(path, TABLE, **leave_out)
    path.write_text("age,ward,y\n1,a,yes\n4,b,no\n")
    alone = read(path, TABLE)
    assert (kept.x == alone.x).all() and kept.labels().tolist() == alone.labels().tolist()
    assert list(kept.lasting_identities("")[0]) == list(alone.lasting_identities("")[0])
    path.write_text("age,ward,y\n1,a,\n")
    np.savez(path.with_suffix(".npz"), x=[[1.0, 0.0]], y=[""])
    for one in (path, path.with_suffix(".npz")):
        with pytest.raises(DataError, match="no record has a label"):
            read(one, TABLE, **leave_out)


def test_a_class_in_other_letters_is_no_missing_label(tmp_path: Path) -> None:
    """Planted once: every record of the class "None" was left out where a file wrote "none"."""
    path, graded = tmp_path / "a.csv", Task(classes=("None", "Mild"), inputs=TABLE.inputs)
    path.write_text("age,ward,y\n1,a,none\n2,b,\n3,a,Mild\n")
    with pytest.raises(DataError, match="the task has no class 'none'"):
        read(path, graded, unlabelled="leave-out")
    meant = read(path, graded, unlabelled="leave-out", classes={"none": "None"})
    assert meant.labels().tolist() == [0, 1]


def test_a_record_that_lacks_one_of_several_labels_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("age,ward,yes,no\n1,a,1,0\n2,b,1,\n3,a,0,0\n")
    several = Task(classes=("yes", "no"), inputs=TABLE.inputs, multilabel=True)
    assert len(read(path, several, unlabelled="leave-out")) == 2


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "cannot read"),
        ("age,ward,y\n", {}, "holds no records"),
        ("age,ward,y\n1,a,yes,more\n2,b,no\n", {}, "cannot read"),
        ("age,ward,y\n1,a,yes\n2,b,no,x,y\n", {}, "cannot read"),
        ("age,y\n1,yes\n", {}, "no column ward; there are age, y"),
        ("age,ward,y\nold,a,yes\n", {}, "column age: 1 value is no number"),
        ("age,ward,y\n1,a,perhaps\n", {}, "no class 'perhaps'"),
        ("age,ward,y\n1,a,\n", {}, "1 of 1 records has no label"),
        ("age,ward,y\n1,a\n", {}, "1 of 1 records has no label"),
        ("age,ward,y\n1,a,yes\n", {"label": "outcome"}, "no label column outcome; there are age, ward, y"),
        ("age,ward,y\n1,a,yes\n", {"split": "test"}, "no test split"),
    ],
)
def test_a_csv_that_does_not_fit_is_refused_with_the_reason(
    tmp_path: Path, text: str, options: dict[str, object], message: str
) -> None:
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read(path, TABLE, **options)


def test_records_without_a_label_load_and_say_so_when_one_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "pool.csv"
    path.write_text("age,ward,note\n1,a,x\n")
    examples = read(path, TABLE)
    assert examples.y is None
    with pytest.raises(DataError, match="name its column with label; columns beside the inputs: note"):
        examples.labels()


@pytest.mark.parametrize("name", ["data.csv", "data.csv.xz", "data.parquet", "data.npz"])
def test_a_file_of_other_bytes_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\xff\xfe\x00 no such format \x9c")
    with pytest.raises(DataError, match="data"):
        read(path, TABLE)


def test_a_cut_npz_is_refused(tmp_path: Path) -> None:
    path = npz(tmp_path, x=PIXELS)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match="cannot read"):
        read(path, IMAGES)


def test_an_unknown_ending_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.xls").write_text("")
    with pytest.raises(DataError, match=r"no \.npz, \.csv, \.parquet or \.xlsx file"):
        read(tmp_path / "data.xls", TABLE)


def image_folder(folder: Path) -> Path:
    for name, shade in (("cat", 10), ("dog", 200)):
        (folder / name).mkdir(parents=True)
        for number in range(2):
            Image.new("L", (3, 2), shade + number).save(folder / name / f"{number}.png")
    (folder / "cat" / "notes.txt").write_text("")
    return folder


def test_a_folder_of_images_has_one_class_per_sub_folder(tmp_path: Path) -> None:
    examples = read(image_folder(tmp_path), IMAGES)
    assert examples.x.shape == (4, 2, 3, 1)
    assert examples.x[:, 0, 0, 0].tolist() == [10, 11, 200, 201]
    assert examples.labels().tolist() == [0, 0, 1, 1]


def test_images_that_lie_in_the_folder_itself_have_no_label(tmp_path: Path) -> None:
    examples = read(image_folder(tmp_path) / "cat", IMAGES)
    assert examples.x[:, 0, 0, 0].tolist() == [10, 11] and examples.y is None


def test_images_are_converted_to_the_channels_of_the_task(tmp_path: Path) -> None:
    colour = IMAGES.model_copy(update={"inputs": ImageInputs(height=2, width=3, channels=3)})
    assert read(image_folder(tmp_path), colour).x.shape == (4, 2, 3, 3)


def test_a_folder_of_images_that_does_not_fit_is_refused_with_the_file(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "images")
    Image.new("L", (4, 4)).save(folder / "dog" / "big.png")
    with pytest.raises(DataError, match=r"big.png is 4×4, but the task has 2×3"):
        read(folder, IMAGES)
    (folder / "dog" / "big.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"cannot read .*big\.png"):
        read(folder, IMAGES)
    (folder / "dog" / "big.png").unlink()
    (folder / "dog").rename(folder / "wolf")
    with pytest.raises(DataError, match="no class 'wolf'"):
        read(folder, IMAGES)
    with pytest.raises(DataError, match="holds images, but the task is a table"):
        read(folder, TABLE)
    assert read(folder / "cat", IMAGES).y is None  # images in no sub-folder have no label
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no records"):
        read(tmp_path / "empty", IMAGES)


def test_a_table_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(CSV)
    with pytest.raises(DataError, match="is a table, but the task has images"):
        read(tmp_path / "data.csv", IMAGES)


def test_relative_paths_start_at_the_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    npz(tmp_path / "own", x=PIXELS)
    assert len(read("own/data.npz", IMAGES, root=tmp_path)) == 5
    monkeypatch.setenv("COLLEGIUM_DATA", str(tmp_path))
    assert data_root(None) == tmp_path
    assert data_root(Path("elsewhere")) == Path("elsewhere")
    monkeypatch.delenv("COLLEGIUM_DATA")
    assert data_root(None) is None


def test_a_file_that_is_there_as_it_was_named_goes_before_the_folder_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "here").mkdir()
    npz(tmp_path / "data", x=PIXELS)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("COLLEGIUM_DATA", str(tmp_path / "data"))
    assert len(read("data.npz", IMAGES, root=data_root(None))) == 5
    npz(tmp_path / "here", x=PIXELS[:2])
    assert len(read("data.npz", IMAGES, root=data_root(None))) == 2
    (tmp_path / "own").mkdir()
    with pytest.raises(DataError, match=r"there is no .*own/data.npz"):  # a folder that somebody names is the only one
        read("data.npz", IMAGES, root=tmp_path / "own")


@pytest.mark.parametrize("with_root", [True, False])
def test_a_missing_file_is_named_with_what_to_set(tmp_path: Path, with_root: bool) -> None:
    with pytest.raises(DataError, match=r"there is no .*absent.npz: .* set data_root or COLLEGIUM_DATA"):
        read("absent.npz", IMAGES, root=tmp_path if with_root else None)


@pytest.mark.parametrize(
    "options",
    [{"shuffle_seed": 1}, {"start": 3, "stop": 3}, {"start": -1}, {"split": "dev"}, {"unknown": 1}],
)
def test_a_source_that_makes_no_sense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        DataSource.model_validate({"source": "own.csv", **options})
