"""Vectors, such as the embeddings of texts: read from every kind of file, held to their size, and used as they are."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from collegium.coordinator.selection.kernel_choice import kernel_spec
from collegium.coordinator.settings.run_config import SumsConfig
from collegium.data import DataSource, load
from collegium.data.examples import encode
from collegium.data.task import Task, VectorInputs
from collegium.errors import DataError
from collegium.models.features import extract

TASK = Task(classes=("a", "b"), inputs=VectorInputs(size=3))
VECTORS = np.array([[0.5, -2.25, 100.0], [1.0, 0.0, -3.0]])


def written(folder: Path, kind: str) -> Path:
    path = folder / f"vectors.{kind}"
    frame = pd.DataFrame(VECTORS, columns=["v0", "v1", "v2"]).assign(y=["a", "b"], who=["p", "q"])
    if kind == "npz":
        np.savez(path, x=VECTORS.astype(np.float16), y=np.array([0, 1]), who=np.array(["p", "q"]))
    elif kind == "csv":
        frame.to_csv(path, index=False)
    else:
        pd.DataFrame({"embedding": list(VECTORS), "y": ["a", "b"], "who": ["p", "q"]}).to_parquet(path)
    return path


@pytest.mark.parametrize("kind", ["npz", "csv", "parquet"])
def test_vectors_are_read_from_a_file(tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    examples = load(DataSource(source=str(written(tmp_path, kind)), group="who"), TASK, data_root=None)
    assert examples.x.dtype == np.float32 and (examples.x == VECTORS).all()
    assert examples.labels().tolist() == [0, 1]
    assert examples.groups is not None and examples.groups.tolist() == ["p", "q"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.zeros((2, 4)), "vectors of 3 numbers"),
        (np.zeros(3), "vectors of 3 numbers"),
        (np.array([[1.0, np.nan, 0.0]]), "not finite"),
        (np.array([["1", "x", "2"]]), "no number"),
    ],
)
def test_what_is_no_vector_of_the_task_is_refused(given: np.ndarray, words: str) -> None:
    with pytest.raises(DataError, match=words):
        encode(given, TASK)


def test_a_kernel_of_vectors_keeps_their_distances() -> None:
    pool = np.random.default_rng(0).normal(5.0, 0.05, (100, 3)).astype(np.float32)
    spec = kernel_spec(SumsConfig(), pool, TASK.inputs, 2, 8.0, 0)
    values = extract(spec.features, pool, TASK.inputs).astype(np.float64) / 1024
    ratio = np.linalg.norm(values[1:] - values[:1], axis=1) / np.linalg.norm(pool[1:] - pool[:1], axis=1)
    assert np.ptp(ratio) < 0.1 * ratio.mean()
