"""Named public sets: what is bundled, what is read from files of the published layout, what is at hand."""

import gzip
import io
import lzma
import struct
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
from collegium_reproduction.data.tables import icd9_chapter
from PIL import Image
from scipy.io import savemat
from sklearn import datasets
from support.data import folder_with

from collegium.data import NAMED_SETS, DataSource, Examples, default_task, load
from collegium.data.loading.sources import named_sources
from collegium.data.task import ImageInputs, NumberColumn, TableInputs
from collegium.errors import ConfigurationError, DataError

ADULT_ROW = (
    "39, {work}, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    "{land}, {income}"
)


OF_THE_PAPERS = ("adult", "celeba", "cifar10", "diabetes", "fashion-mnist", "heart", "mnist", "school", "svhn")
"""Sets of the package collegium-reproduction."""


def read(name: str, root: Path | None = None, **options: object) -> Examples:
    return load(DataSource.model_validate({"source": name, **options}), default_task(name), data_root=root)


def test_every_named_set_has_a_reader_and_a_task() -> None:
    assert set(NAMED_SETS) < set(named_sources()) >= set(OF_THE_PAPERS)
    for name in (*NAMED_SETS, *OF_THE_PAPERS):
        assert len(default_task(name).classes) >= 2
        assert default_task(DataSource(source=name)) == default_task(name)


def test_a_file_has_no_default_task() -> None:
    with pytest.raises(ConfigurationError, match=r"own.csv is no named set .*write its task"):
        default_task(DataSource(source="own.csv"))


@pytest.mark.parametrize(
    ("name", "records", "per_class"),
    [
        ("digits", 1797, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]),
        ("breast-cancer", 569, [212, 357]),
        ("wine", 178, [59, 71, 48]),
        ("iris", 150, [50, 50, 50]),
    ],
)
def test_bundled_sets_load_without_a_file(name: str, records: int, per_class: list[int]) -> None:
    examples = read(name)
    assert len(examples) == records
    assert np.bincount(examples.labels()).tolist() == per_class
    inputs = default_task(name).inputs
    assert examples.x.shape == (records, *inputs.shape)
    assert str(examples.x.dtype) == inputs.dtype
    assert examples.x.max() == 255 if isinstance(inputs, ImageInputs) else examples.x.max() <= 1


@pytest.mark.parametrize(
    ("name", "bunch"),
    [("breast-cancer", datasets.load_breast_cancer()), ("wine", datasets.load_wine()), ("iris", datasets.load_iris())],
)
def test_public_ranges_hold_every_record_of_a_bundled_set_and_little_more(name: str, bunch: Any) -> None:
    inputs = default_task(name).inputs
    assert isinstance(inputs, TableInputs)
    for column, values in zip(inputs.columns, bunch.data.T, strict=True):
        assert isinstance(column, NumberColumn)
        assert column.low <= values.min() < values.max() <= column.high
        assert column.high - column.low < 1.5 * (values.max() - values.min())


def test_a_shuffle_orders_the_whole_set_before_a_part_is_chosen() -> None:
    whole = read("iris", shuffle_seed=7)
    parts = [read("iris", shuffle_seed=7, start=a, stop=b) for a, b in ((0, 60), (60, 150))]
    assert np.array_equal(np.concatenate([part.x for part in parts]), whole.x)
    assert sorted(whole.identities()) == sorted(read("iris").identities())
    assert whole.labels().tolist() != read("iris").labels().tolist()
    assert whole.labels().tolist() != read("iris", shuffle_seed=8).labels().tolist()


@pytest.mark.parametrize("name", ["digits", "wine", "heart", "school", "diabetes"])
def test_a_set_without_a_test_split_says_so(name: str) -> None:
    with pytest.raises(DataError, match=f"{name} has no test split"):
        read(name, split="test")


@pytest.mark.parametrize("name", OF_THE_PAPERS)
def test_a_set_that_is_not_bundled_asks_for_the_data_root(name: str) -> None:
    with pytest.raises(DataError, match=r"set data_root or COLLEGIUM_DATA"):
        read(name)


def test_mnist_from_its_npz(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
    labels = np.array([3, 1, 4, 1, 5], dtype=np.uint8)
    np.savez(tmp_path / "mnist.npz", x_train=images[:3], y_train=labels[:3], x_test=images[3:], y_test=labels[3:])
    assert read("mnist", tmp_path).labels().tolist() == [3, 1, 4]
    assert read("mnist", tmp_path, split="test").labels().tolist() == [1, 5]
    assert np.array_equal(read("mnist", tmp_path, split="all").x[..., 0], images)
    np.savez(tmp_path / "mnist.npz", x=images)
    with pytest.raises(DataError, match="no array 'x_train'; there are x"):
        read("mnist", tmp_path)


def _write_fashion_mnist(root: Path) -> tuple[np.ndarray, np.ndarray]:
    """Three images and labels where torchvision looks for them, so that it fetches nothing."""
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    labels = np.array([9, 0, 4], dtype=np.uint8)
    folder = root / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
            (folder / f"{part}-{kind}-ubyte").write_bytes(header + array.tobytes())
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(header + array.tobytes()))
    return images, labels


@pytest.mark.slow
def test_fashion_mnist_by_torchvision(tmp_path: Path) -> None:
    images, labels = _write_fashion_mnist(tmp_path)
    examples = read("fashion-mnist", tmp_path)
    assert np.array_equal(examples.x[..., 0], images)
    assert examples.labels().tolist() == labels.tolist()


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "svhn", "celeba"])
def test_a_set_that_cannot_be_fetched_is_named_with_the_folder(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: object, **__: object) -> None:
        raise URLError("no network")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    with pytest.raises(DataError, match=f"{name} is not under .* and could not be fetched there"):
        read(name, tmp_path)


def test_svhn_from_its_files(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    savemat(tmp_path / "train_32x32.mat", {"X": np.moveaxis(images, 0, -1), "y": np.array([[1], [9], [10], [2]])})
    examples = read("svhn", tmp_path)
    assert np.array_equal(examples.x, images)
    assert examples.labels().tolist() == [1, 9, 0, 2]
    (tmp_path / "test_32x32.mat").write_bytes(b"no such file" * 20)
    with pytest.raises(DataError, match=r"cannot read .*test_32x32\.mat"):
        read("svhn", tmp_path, split="test")


def test_cifar10_from_jpeg_needs_a_shuffle_to_choose_a_part(tmp_path: Path) -> None:
    pieces = []
    for shade in (0, 100, 200):
        file = io.BytesIO()
        Image.new("RGB", (32, 32), (shade, shade, shade)).save(file, "JPEG")
        pieces.append(file.getvalue())
    arrays = {
        "train_bytes": np.frombuffer(b"".join(pieces), dtype=np.uint8),
        "train_offsets": np.cumsum([0, *map(len, pieces)]),
        "train_labels": np.array([0, 5, 9], dtype=np.uint8),
    }
    np.savez(tmp_path / "cifar10_jpeg.npz", **arrays)
    examples = read("cifar10", tmp_path)
    assert examples.x.shape == (3, 32, 32, 3)
    assert examples.x[:, 0, 0, 0].tolist() == pytest.approx([0, 100, 200], abs=2)
    assert examples.labels().tolist() == [0, 5, 9]
    with pytest.raises(DataError, match="sorted by class: give shuffle_seed"):
        read("cifar10", tmp_path, stop=2)
    assert len(read("cifar10", tmp_path, stop=2, shuffle_seed=0)) == 2
    with pytest.raises(DataError, match="no array 'test_offsets'"):
        read("cifar10", tmp_path, split="test")


def test_celeba_from_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "celeba"
    (folder / "img_align_celeba").mkdir(parents=True)
    names = ["000001.jpg", "000002.jpg", "000003.jpg"]
    for name, shade in zip(names, (0, 120, 240), strict=True):
        Image.new("RGB", (178, 218), (shade, 0, 0)).save(folder / "img_align_celeba" / name)
    attributes = ["3", "Smiling Young", "000001.jpg  1 -1", "000002.jpg -1  1", "000003.jpg -1 -1"]
    (folder / "list_attr_celeba.txt").write_text("\n".join(attributes))
    (folder / "list_eval_partition.txt").write_text(
        "\n".join(f"{name} {part}" for name, part in zip(names, "002", strict=True))
    )
    (folder / "identity_CelebA.txt").write_text(
        "\n".join(f"{name} {who}" for name, who in zip(names, (7, 8, 7), strict=True))
    )
    smiling = read("celeba", tmp_path)
    assert smiling.x.shape == (2, 64, 64, 3)
    assert smiling.x[1, 0, 0].tolist() == pytest.approx([120, 0, 0], abs=2)
    assert smiling.labels().tolist() == [1, 0]
    assert smiling.groups is not None
    assert smiling.groups.tolist() == ["7", "8"]
    assert read("celeba", tmp_path, label="Young", split="all").labels().tolist() == [0, 1, 0]
    with pytest.raises(DataError, match=r"no label column Old; there are Smiling, Young, person"):
        read("celeba", tmp_path, label="Old")
    (folder / "img_align_celeba" / names[0]).unlink()
    with pytest.raises(DataError, match=r"cannot read .*000001\.jpg"):
        read("celeba", tmp_path)


@pytest.mark.parametrize("packed", [True, False])
def test_adult_from_its_files(tmp_path: Path, packed: bool) -> None:
    train = [
        ADULT_ROW.format(work="?", land="Peru", income=">50K"),
        ADULT_ROW.format(work="Private", land="?", income="<=50K"),
    ]
    test = ["|1x3 Cross validator", ADULT_ROW.format(work="Private", land="Cuba", income=">50K.")]
    for name, rows in (("adult.data", train), ("adult.test", test)):
        data = ("\n".join(rows) + "\n\n").encode()
        (tmp_path / (f"{name}.xz" if packed else name)).write_bytes(lzma.compress(data) if packed else data)
    assert read("adult", tmp_path).labels().tolist() == [1, 0]
    assert read("adult", tmp_path, split="test").labels().tolist() == [1]
    everything = read("adult", tmp_path, split="all")
    assert everything.labels().tolist() == [1, 0, 1]
    assert everything.x.shape == (3, *default_task("adult").inputs.shape)


def test_icd9_codes_have_their_chapter() -> None:
    chapters = {
        "250.83": "diabetes", "428": "circulatory", "785": "circulatory", "486": "respiratory", "V57": "other",
        "E888": "other", "?": "", "8": "other", "996": "injury", "715": "musculoskeletal", "197": "neoplasms",
        "530": "digestive", "599": "genitourinary",
    }  # fmt: skip
    assert {code: icd9_chapter(code) for code in chapters} == chapters


@pytest.mark.slow
def test_the_real_mnist() -> None:
    examples = read("mnist", folder_with("mnist.npz"), split="all")
    assert np.bincount(examples.labels()[:60000]).tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]
    assert examples.x.shape == (70000, 28, 28, 1)


def test_the_real_cifar10() -> None:
    examples = read("cifar10", folder_with("cifar10_jpeg.npz"), split="test", shuffle_seed=0, stop=500)
    assert examples.x.shape == (500, 32, 32, 3)
    assert np.bincount(examples.labels(), minlength=10).min() > 20


@pytest.mark.slow
def test_the_real_adult() -> None:
    root = folder_with("adult.data.xz", "adult.test.xz")
    examples = read("adult", root, split="all")
    assert np.bincount(examples.labels()[:32561]).tolist() == [24720, 7841]
    assert np.bincount(examples.labels()[32561:]).tolist() == [12435, 3846]
    categories = examples.x[:32561, 2:11]
    assert int(categories[:, -1].sum()) == 1836  # '?' as workclass in adult.data


def test_the_real_heart_hospitals() -> None:
    examples = read("heart", folder_with("heart_processed.cleveland.data"))
    hospitals, sizes = np.unique(examples.columns["hospital"], return_counts=True)
    assert dict(zip(hospitals, sizes, strict=True)) == {
        "cleveland": 303,
        "hungarian": 294,
        "switzerland": 123,
        "va": 200,
    }
    present = {name: int(examples.labels()[examples.columns["hospital"] == name].sum()) for name in hospitals}
    assert present == {"cleveland": 139, "hungarian": 106, "switzerland": 115, "va": 149}


def test_the_real_schools() -> None:
    examples = read("school", folder_with("school_ilea.npz"))
    assert len(examples) == 15362
    assert len(set(examples.columns["school"])) == 139
    assert examples.labels().mean() == pytest.approx(0.484, abs=0.0005)


@pytest.mark.slow
def test_the_real_diabetes_patients() -> None:
    examples = read("diabetes", folder_with("diabetic_data.csv.xz"))
    assert np.bincount(examples.labels()).tolist() == [54864 + 35545, 11357]
    assert examples.groups is not None
    assert len(set(examples.groups.tolist())) == 71518
    assert len(set(examples.identities())) == 71518
