"""`check_teacher` passes Collegium's teachers and names the promise that a planted bug breaks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from collegium_conformance import check_teacher

pytestmark = pytest.mark.slow

OURS: dict[str, dict[str, Any]] = {
    "random-forest": {"trees": 5},
    "sklearn.naive_bayes:GaussianNB": {},
    "small-cnn": {"steps": 2, "batch": 8},
}

PLANTED = '''
"""A nearest-centroid teacher, and copies of it with one bug each."""
import os
import pickle
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from collegium.errors import StorageError


class Honest:
    version = "1"

    def __init__(self, task):
        self.classes = len(task.classes)

    def fit(self, examples, *, seed, device):
        x, y = examples.x.reshape(len(examples), -1).astype(np.float64), examples.labels()
        self.centres = np.stack([x[y == c].mean(axis=0) if (y == c).any() else np.full(x.shape[1], 1e6)
                                 for c in range(self.classes)])

    def predict(self, x):
        flat = x.reshape(len(x), -1).astype(np.float64)
        return np.stack([((flat - centre) ** 2).sum(axis=1) for centre in self.centres], axis=1).argmin(axis=1)

    def save(self, path):
        save_file({"centres": self.centres}, path)

    def load(self, path, *, device):
        try:
            self.centres = load_file(path)["centres"]
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise StorageError("no teacher") from error


class SeesAll(Honest):
    """Its class keeps the records of every teacher that was fitted before."""
    seen = []

    def fit(self, examples, *, seed, device):
        from collegium.data import Examples
        SeesAll.seen.append(examples)
        super().fit(Examples(np.concatenate([one.x for one in self.seen]),
                             np.concatenate([one.y for one in self.seen])), seed=seed, device=device)


class ScaledByTheFirst(Honest):
    """Shifts its centres by the records of whichever teacher was fitted first in the process."""
    mean = None

    def fit(self, examples, *, seed, device):
        if ScaledByTheFirst.mean is None:
            ScaledByTheFirst.mean = float(examples.x.mean())
        super().fit(examples, seed=seed, device=device)
        self.centres = self.centres + np.sin(1e4 * self.mean)


class Ordered(Honest):
    """Counts how many were fitted."""
    fitted = 0

    def fit(self, examples, *, seed, device):
        Ordered.fitted += 1
        super().fit(examples, seed=seed, device=device)
        self.centres = np.roll(self.centres, Ordered.fitted, axis=0)


class Threaded(Honest):
    """Depends on the threads of the process."""
    def predict(self, x):
        return (super().predict(x) + int(os.environ.get("OMP_NUM_THREADS", 1))) % self.classes


class Unseeded(Honest):
    """Begins from numpy's own generator."""
    def fit(self, examples, *, seed, device):
        super().fit(examples, seed=seed, device=device)
        self.centres = self.centres + np.random.normal(0, 0.5, self.centres.shape)


class Pickled(Honest):
    """Writes a pickle."""
    def save(self, path):
        Path(path).write_bytes(pickle.dumps(self.centres))


class HiddenPickle(Honest):
    """Writes a pickle into an array of bytes."""
    def save(self, path):
        save_file({"centres": np.frombuffer(pickle.dumps(self.centres), dtype=np.uint8)}, path)


class Outside(Honest):
    """Predicts a class that the task does not have."""
    def predict(self, x):
        return super().predict(x) + 1


class ReadsAnything(Honest):
    """Takes a damaged file for a teacher."""
    def load(self, path, *, device):
        try:
            super().load(path, device=device)
        except StorageError:
            self.centres = np.zeros((3, 12))
'''


@pytest.mark.parametrize("kind", OURS)
def test_collegiums_teachers_keep_their_promises(kind: str) -> None:
    check_teacher(kind, options=OURS[kind])


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "planted_teachers.py").write_text(PLANTED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "planted_teachers", raising=False)
    return "planted_teachers"


@pytest.mark.parametrize(
    ("bug", "named"),
    [
        ("SeesAll", "look at one another's records"),
        ("ScaledByTheFirst", "look at one another's records"),
        ("Ordered", "fitted before"),
        ("Threaded", "threads"),
        ("Unseeded", "random state"),
        ("Pickled", "no safetensors file"),
        ("HiddenPickle", "hides a pickle"),
        ("Outside", "outside the task's classes"),
        ("ReadsAnything", "cut short"),
    ],
)
def test_a_planted_bug_is_caught_by_name(planted: str, bug: str, named: str) -> None:
    with pytest.raises(AssertionError, match=named):
        check_teacher(f"{planted}:{bug}")


def test_the_same_teacher_without_a_bug_passes(planted: str) -> None:
    check_teacher(f"{planted}:Honest")


def test_a_teacher_that_no_party_could_import_is_named() -> None:
    with pytest.raises(AssertionError, match="no party could use"):
        check_teacher("no_such_module:Teacher")
