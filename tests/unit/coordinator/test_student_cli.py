"""A student fitted again from a run, and measured, through the real command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.coordinators import coordinator_for
from support.scripted_parties import LocalParties, ScriptedParty
from support.typist import typed

from collegium.coordinator.run.run_folder import read_labels
from collegium.coordinator.settings.run_config import RunConfig
from collegium.data import Examples, default_task, load
from collegium.errors import StorageError
from collegium.protocol.replies import Counts
from collegium.protocol.requests import Ask
from collegium.settings import validate_config

DIVERGING = ["fit", "RUN", "--method", "gan", "--option", "learning_rate=1e30", "--option", "network=mlp"]

Invoke = Callable[..., tuple[int, str, str]]


@pytest.fixture
def invoke(capsys: pytest.CaptureFixture[str]) -> Invoke:
    return lambda *arguments: typed(capsys, *arguments)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on the digits, whose parties know the truth."""
    task = default_task("digits")
    values: dict[str, Any] = {
        "name": "digits",
        "task": task.model_dump(mode="json"),
        "pool": {"source": "digits", "split": "all", "stop": 400},
        "holdout": {"source": "digits", "split": "all", "start": 1500},
        "mechanism": {"name": "gnmax", "parameters": {"sigma": 1.0}},
        "budget": {"epsilon": 1000.0},
        "queries": {"count": 150},
        "student": {"method": "supervised", "options": {"steps": 150}},
        "votes": {"mode": "clear"},
        "seed": 1,
    }
    config = validate_config(values, RunConfig, "test")
    public: Examples = load(config.pool, task, data_root=None)
    assert public.y is not None

    def truth(request: Any) -> Any:
        if not isinstance(request, Ask):
            return None
        import numpy as np

        labels = public.y[list(request.question.inputs.indices)]  # type: ignore[index, union-attr]
        return Counts(5 * np.eye(10, dtype=np.int64)[labels])

    parties = {f"p{n}": ScriptedParty(f"p{n}", 5, answer=truth) for n in range(4)}
    folder = tmp_path_factory.mktemp("runs") / "digits"
    teachers = config.teachers.model_copy(update={"per_party": 5})
    coordinator_for(config.model_copy(update={"teachers": teachers}), LocalParties(parties), folder).run()
    return folder


@pytest.mark.slow
def test_fit_learns_from_the_issued_labels_and_evaluate_agrees(digits: Path, invoke: Invoke, tmp_path: Path) -> None:
    target = tmp_path / "again.safetensors"
    status, out, _ = invoke("student", "fit", str(digits), "--output", str(target), "--device", "cpu", "--json")
    fitted = json.loads(out)
    assert status == 0 and fitted["labels"] == 150 and fitted["accuracy"] > 0.8
    status, out, _ = invoke(
        "student", "evaluate", str(target), "digits", "--start", "1500", "--device", "cpu", "--json"
    )
    assert status == 0 and json.loads(out)["accuracy"] == pytest.approx(fitted["accuracy"])
    status, out, _ = invoke("student", "evaluate", str(digits / "student.safetensors"), "digits", "--start", "1500")
    assert status == 0 and "accuracy" in out


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["fit", "nowhere"], 9, "no folder of a run"),
        (["fit", "RUN", "--method", "telepathy"], 2, "telepathy"),
        (["fit", "RUN", "--option", "steps"], 2, "name=value"),
        (["fit", "RUN", "--method", "vat", "--option", "radius=-1"], 2, "student.options.radius"),
        (["fit", "RUN", "--method", "gan", "--option", "network=student-cnn"], 2, "cannot be a GAN's discriminator"),
        (["fit", "RUN", "--method", "distillation"], 2, "unknown student method"),
        (["fit", "RUN", "--output", "RUN/none/student.safetensors"], 9, "no folder"),
        pytest.param(DIVERGING, 10, "the labels and the ledger are as they were", marks=pytest.mark.slow),
        (["evaluate", "nowhere.safetensors", "digits"], 9, "no student"),
        (["evaluate", "RUN/labels.csv", "digits"], 9, "labels.csv"),
        (["evaluate", "RUN/student.safetensors", "digits", "--start", "5", "--stop", "2"], 2, "stop"),
        (["evaluate", "RUN/student.safetensors", "no-such-set"], 3, "no-such-set"),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: list[str], status: int, says: str, digits: Path, invoke: Invoke
) -> None:
    before = {path.name: path.read_bytes() for path in digits.iterdir() if path.is_file()}
    code, _, err = invoke("student", *[argument.replace("RUN", str(digits)) for argument in arguments])
    assert code == status, err
    assert says in err and "Traceback" not in err and len(err.strip().splitlines()) == 1
    assert {path.name: path.read_bytes() for path in digits.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("label", "says"), [("", "no query got a label"), ("3", "all 40 labels say '3': a student needs two classes")]
)
def test_labels_that_teach_nothing_are_one_clear_line(
    label: str, says: str, digits: Path, invoke: Invoke, tmp_path: Path
) -> None:
    """Nobody but the labels file is changed: the ledger of such a run looks the same."""
    run = tmp_path / "run"
    shutil.copytree(digits, run)
    (run / "labels.csv").write_text("index,label\n" + "".join(f"{index},{label}\n" for index in range(40)))
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    code, _, err = invoke("student", "fit", str(run), "--device", "cpu")
    assert code == 3 and says in err and "Traceback" not in err and len(err.strip().splitlines()) == 1
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


@pytest.mark.slow
def test_a_student_of_trees_is_fitted_and_evaluated_like_any_other(digits: Path, invoke: Invoke) -> None:
    status, out, err = invoke("student", "fit", str(digits), "--method", "random-forest", "--json")
    assert status == 0, err
    fitted = json.loads(out)
    assert fitted["student"].endswith("student-random-forest.safetensors") and fitted["accuracy"] > 0.7
    status, out, _ = invoke("student", "evaluate", fitted["student"], "digits", "--start", "1500", "--json")
    assert status == 0 and json.loads(out)["accuracy"] == fitted["accuracy"]


def test_a_labels_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("a,b\n1,2\n")
    with pytest.raises(StorageError, match="index,label"):
        read_labels(tmp_path / "labels.csv")
