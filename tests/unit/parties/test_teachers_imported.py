"""Kinds that are no part of Collegium: scikit-learn classifiers and torch modules by import path, bad ones told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from sklearn.naive_bayes import GaussianNB
from support.party_requests import Asker

from collegium.data import Examples
from collegium.data.task import ImageInputs, NumberColumn, TableInputs, Task, TeacherSettings
from collegium.data.values import ArraySpec
from collegium.errors import ConfigurationError, StorageError
from collegium.parties.party import Party
from collegium.parties.teachers.base import Teacher, build_teacher
from collegium.parties.teachers.kinds import find_kind

BAYES = "sklearn.naive_bayes:GaussianNB"
TREE = "sklearn.tree:DecisionTreeClassifier"
NET, FIXED, LISTS, TIED = (f"their_nets:{name}" for name in ("Net", "Fixed", "Lists", "Tied"))
MODULE = '''
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, input_shape, classes, *, width=4):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(input_shape[0], width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.output = nn.Linear(width * input_shape[1] * input_shape[2], classes)
    def forward(self, x):
        return self.output(self.features(x).view(len(x), -1))

class Fixed(nn.Module):
    """Made for another task."""
    def __init__(self):
        super().__init__()
        self.output = nn.Linear(64, 7)
    def forward(self, x):
        return self.output(x.flatten(1))

class Lists(Fixed):
    def forward(self, x):
        return [super().forward(x)]

class Tied(nn.Module):
    """Two layers that share one weight."""
    def __init__(self, classes):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
        self.second.weight = self.first.weight
        self.output = nn.Linear(64, classes)
    def forward(self, x):
        return self.output(torch.relu(self.second(torch.relu(self.first(x.flatten(1))))))
'''


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "their_nets.py").write_text(MODULE)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "their_nets", raising=False)


def built(kind: str, task: Task, **options: Any) -> Teacher:
    return build_teacher(find_kind(kind, allowed_imports={kind}), task, options)


@pytest.fixture
def table_task() -> Task:
    return Task(
        classes=("no", "yes"), inputs=TableInputs(columns=tuple(NumberColumn(name=n, low=0, high=1) for n in "abc"))
    )


@pytest.mark.parametrize(("kind", "options"), [(BAYES, {"var_smoothing": 0.1}), (TREE, {"max_depth": 8})])
def test_a_scikit_learn_classifier_votes_as_it_predicts_and_is_never_written(
    kind: str, options: dict[str, Any], make_party: Callable[..., Party], pool: ArraySpec, tmp_path: Path
) -> None:
    settings = TeacherSettings(kind=kind, per_party=2, options=options)
    assert Asker(make_party()).fit(settings).code == "refused"
    votes = []
    for _ in range(2):
        ask = Asker(make_party(folder=tmp_path / "alpha", allowed_imports={kind}))
        assert ask.reused(settings) == 0  # nothing was found again
        votes.append(ask.votes(pool, tuple(range(100)), settings).counts)
    assert np.array_equal(*votes)
    assert (votes[0].sum(axis=1) == 2).all()
    assert list((tmp_path / "alpha" / "teachers").iterdir()) == []


def test_a_scikit_learn_classifier_learns_and_its_seed_matters(digits: Examples, task: Task) -> None:
    own = digits.take(np.arange(400))
    labels = []
    for seed in (1, 1, 2):
        teacher = built(TREE, task, splitter="random")
        teacher.fit(own, seed=seed, device="cpu")
        labels.append(teacher.predict(digits.x[1000:]))
    assert np.array_equal(labels[0], labels[1])
    assert not np.array_equal(labels[0], labels[2])
    assert (labels[0] == digits.labels()[1000:]).mean() > 0.55


def test_records_too_few_for_a_classifier_leave_a_vote_for_their_most_frequent_class(
    digits: Examples, task: Task, caplog: pytest.LogCaptureFixture
) -> None:
    teacher = built("sklearn.neighbors:KNeighborsClassifier", task, n_neighbors=20)
    teacher.fit(digits.take(np.array([3, 13, 4])), seed=0, device="cpu")
    assert set(teacher.predict(digits.x[:5])) == {3}
    assert "cannot learn from one teacher's records (ValueError)" in caplog.text
    with pytest.raises(StorageError, match="not kept"):
        teacher.save(Path("nowhere"))


def test_no_error_of_a_classifier_leaves_a_party(
    digits: Examples, task: Task, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it raises would tell of the records: while it learns, and while it is asked."""
    teacher = built("sklearn.naive_bayes:GaussianNB", task)
    three = digits.take(np.flatnonzero(digits.labels() == 3)[:5])

    def fails(*_: Any) -> None:
        raise ZeroDivisionError("a record")

    teacher.fit(three, seed=0, device="cpu")
    monkeypatch.setattr(GaussianNB, "predict", fails)
    assert set(teacher.predict(digits.x[:5])) == {3}
    teacher.fit(three, seed=0, device="cpu")
    assert set(teacher.predict(digits.x[:5])) == {3}
    assert "ZeroDivisionError" in caplog.text and "a record" not in caplog.text.replace("a record's", "")


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        (BAYES, {"smoothing": 1.0}, "takes no option 'smoothing': it takes priors, var_smoothing"),
        (TREE, {"max_depth": -3}, "max_depth"),
        (TREE, {"criterion": "luck"}, "criterion"),
        ("sklearn.linear_model:LinearRegression", {}, "has no version"),
        (NET, {"depth": 3}, "takes no option 'depth': it takes classes, input_shape, width"),
        (NET, {"steps": 0}, "1 to 1,000,000 steps"),
        (NET, {"learning_rate": "fast"}, "type float"),
        (NET, {"width": "wide"}, "options are not valid"),
        (FIXED, {}, r"returns \(2, 7\) for 2 inputs; this task needs \(2, 10\), one logit per class"),
        (LISTS, {}, r"returns list for 2 inputs"),
    ],
)
def test_what_cannot_be_a_teacher_is_told_in_one_line(
    kind: str, options: dict[str, Any], says: str, task: Task
) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        built(kind, task, **options)
    assert "\n" not in str(caught.value)


def test_a_module_for_other_inputs_is_told_in_one_line(table_task: Task) -> None:
    with pytest.raises(ConfigurationError, match="does not take this task's inputs") as caught:
        built(FIXED, table_task)
    assert "\n" not in str(caught.value)


def test_a_module_of_the_wrong_output_size_fails_before_any_fitting(
    make_party: Callable[..., Party], tmp_path: Path
) -> None:
    progress: list[int] = []
    party = make_party(
        folder=tmp_path / "alpha", allowed_imports={FIXED}, progress=lambda ready, wanted: progress.append(ready)
    )
    ask = Asker(party)
    answer = ask.fit(TeacherSettings(kind=FIXED, per_party=3))
    assert (answer.code, progress) == ("configuration", [])
    assert ask.reused(TeacherSettings(kind="linear", options={"steps": 2})) == 0


@pytest.mark.parametrize("kind", [NET, TIED])
def test_a_torch_module_learns_and_is_found_again(kind: str, digits: Examples, task: Task, tmp_path: Path) -> None:
    own = digits.take(np.flatnonzero(digits.labels() < 8)[:300])
    teacher, again = built(kind, task, steps=60), built(kind, task, steps=60)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    teacher.fit(own, seed=3, device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    labels = teacher.predict(digits.x)
    known = digits.labels() < 8
    assert (labels[known] == digits.labels()[known]).mean() > 0.75
    assert labels.max() < 8  # a class that its records do not hold gets no vote
    path = tmp_path / "teacher.safetensors"
    teacher.save(path)
    again.load(path, device="cpu")
    assert np.array_equal(again.predict(digits.x), labels)
    with pytest.raises(StorageError, match="other settings"):
        built(kind, Task(classes=task.classes[:9], inputs=task.inputs)).load(path, device="cpu")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(StorageError):
        again.load(path, device="cpu")


def test_a_module_gets_the_shape_of_one_input(task: Task, tmp_path: Path) -> None:
    colour = Task(classes=("a", "b", "c"), inputs=ImageInputs(height=8, width=9, channels=3))
    teacher = built(NET, colour, width=5)
    teacher.save(tmp_path / "net")
    kept = load_file(tmp_path / "net")
    assert kept["features.0.weight"].shape == (5, 3, 3, 3)
    assert kept["output.weight"].shape == (3, 5 * 8 * 9)


def test_a_module_whose_code_changed_is_fitted_anew(
    make_party: Callable[..., Party], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = TeacherSettings(kind=NET, per_party=2, options={"steps": 2})
    ask = {"folder": tmp_path / "alpha", "allowed_imports": {NET}}
    assert Asker(make_party(**ask)).reused(settings) == 0
    assert Asker(make_party(**ask)).reused(settings) == 2
    source = tmp_path / "modules" / "their_nets.py"
    source.write_text(MODULE.replace("nn.ReLU()", "nn.Tanh()"))
    del sys.modules["their_nets"]  # as in a process that starts afterwards
    assert Asker(make_party(**ask)).reused(settings) == 0
