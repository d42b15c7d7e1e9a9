"""docs/your-own.md with sentence embeddings of real abstracts: the configuration, and a student at ε = 1."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from support.data import folder_with
from support.pages import commands_of, text_of_page

from collegium.cli import main
from collegium.coordinator.run import coordinator as run
from collegium.coordinator.settings.consortium import read_consortium
from collegium.coordinator.settings.run_config import load_public
from collegium.data import DataSource, load
from collegium.simulations.local import LocalParties

FILE = "medical_abstracts_minilm.npz"
NAMES = ("ash", "birch", "cedar", "oak", "yew")


@pytest.mark.slow
def test_five_institutions_with_embeddings_of_abstracts_learn_more_than_the_constant_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = np.load(folder_with(FILE) / FILE)
    order = np.random.default_rng(0).permutation(len(held["y"]))
    x, y = held["x"][order], held["y"][order].astype(np.int64)
    monkeypatch.chdir(tmp_path)
    np.savez("pool.npz", x=x[2000:2500])
    (command,) = commands_of(text_of_page("your-own.md"))
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command)[1:])
    assert ended.value.code == 0
    asked = read_consortium(Path("consortium.toml")).run.model_copy(update={"evaluation": None, "name": "local"})
    assert asked.task.inputs.kind == "vector" and asked.task.inputs.shape == (384,)
    records = {}
    for number, name in enumerate(NAMES):
        np.savez(f"{name}.npz", x=x[number:2000:5], y=y[number:2000:5])
        mine = load(DataSource(source=f"{name}.npz"), asked.task, data_root=tmp_path)
        records[name] = (mine.x, mine.labels())
    parties = LocalParties(records, asked.task)
    reach = run.Reach(parties, signing_keys=parties.signing_keys)
    record = run.CoordinatorRun(asked, reach, run.Storage(tmp_path / "run"), public=load_public(asked, tmp_path)).run()
    assert record.privacy is not None and record.privacy.epsilon <= 1.0
    from collegium.coordinator.students.published import load_student

    student = load_student(tmp_path / "run" / "student.safetensors", device="cpu")
    right = float((student.predict_proba(x[2500:].astype(np.float32)).argmax(axis=1) == y[2500:]).mean())
    constant = float(np.bincount(y[2500:]).max() / len(y[2500:]))
    assert right > constant + 0.05, (right, constant)
