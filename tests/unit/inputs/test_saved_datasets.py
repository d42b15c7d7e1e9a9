"""Hugging Face datasets on disk: images, embeddings and tables, with the names of their classes."""

from __future__ import annotations

from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image
from support.data import records_from as read

from collegium.data.task import CategoryColumn, ImageInputs, NumberColumn, TableInputs, Task
from collegium.errors import DataError

CLASSES = datasets.ClassLabel(names=["cat", "dog"])
IMAGES = Task(classes=("cat", "dog"), inputs=ImageInputs(height=2, width=3))
PIXELS = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)


@pytest.fixture(autouse=True)
def nothing_is_cached_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()


def of_images() -> datasets.Dataset:
    features = datasets.Features({"image": datasets.Image(), "label": CLASSES})
    images = [Image.fromarray(pixels) for pixels in PIXELS]
    return datasets.Dataset.from_dict({"image": images, "label": [1, 0, 0, 1]}, features=features)


def test_images_with_the_splits_of_a_dict(tmp_path: Path) -> None:
    both = datasets.DatasetDict({"train": of_images(), "test": of_images().select([0])})
    both.save_to_disk(str(tmp_path / "pets"))
    found = read(tmp_path / "pets", IMAGES)
    assert np.array_equal(found.x[..., 0], PIXELS) and found.labels().tolist() == [1, 0, 0, 1]
    assert len(read(tmp_path / "pets", IMAGES, split="test")) == 1
    assert len(read(tmp_path / "pets", IMAGES, split="all")) == 5


def test_a_table_keeps_its_columns(tmp_path: Path) -> None:
    task = Task(
        classes=("cat", "dog"),
        inputs=TableInputs(
            columns=(NumberColumn(name="age", low=0, high=10), CategoryColumn(name="coat", categories=("a", "b")))
        ),
    )
    rows = {"age": [5.0, None], "coat": ["a", "b"], "label": [0, 1]}
    features = datasets.Features({"age": datasets.Value("float32"), "coat": datasets.Value("string"), "label": CLASSES})
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "table"))
    found = read(tmp_path / "table", task)
    assert found.labels().tolist() == [0, 1] and found.x[0, 0] == 0.5


def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path) -> None:
    of_images().save_to_disk(str(tmp_path / "pets"))
    with pytest.raises(DataError, match="no test split"):
        read(tmp_path / "pets", IMAGES, split="test")
    for part in (tmp_path / "pets").glob("*.arrow"):
        part.write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot read") as caught:
        read(tmp_path / "pets", IMAGES)
    assert "\n" not in str(caught.value)
    images = [Image.fromarray(pixels) for pixels in PIXELS]
    features = datasets.Features({"image": datasets.Image(), "second": datasets.Image()})
    two = datasets.Dataset.from_dict({"image": images, "second": images}, features=features)
    two.save_to_disk(str(tmp_path / "two"))
    with pytest.raises(DataError, match="image, second"):
        read(tmp_path / "two", IMAGES)
