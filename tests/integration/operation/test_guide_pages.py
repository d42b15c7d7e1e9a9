"""docs/choosing-noise.md and docs/your-own.md: their commands print their numbers, and their code runs."""

from __future__ import annotations

import io
import math
import re
import shlex
import tomllib
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from support.pages import blocks_of, commands_of, text_of_page

import collegium as cg
import collegium_conformance
from collegium import cli
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.settings.run_config import CountsConfig
from collegium.data import DataSource, load
from collegium.data.encoding import MISSING
from collegium.data.task import Task, TeacherSettings

ROOT = Path(__file__).resolve().parents[3]
NOISE, OWN = text_of_page("choosing-noise.md"), text_of_page("your-own.md")
TASK = Task.model_validate(
    {
        "classes": ["well", "ill"],
        "inputs": {
            "kind": "table",
            "columns": [
                {"kind": "number", "name": "age", "low": 0, "high": 100},
                {"kind": "category", "name": "ward", "categories": ["a", "b"]},
            ],
        },
    }
)


def printed(command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "100")
    with redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as ended:
        cli.main(shlex.split(command)[1:])
    assert ended.value.code == 0
    return out.getvalue()


def after(command: str, page: str) -> str:
    """The paragraph that follows a command on a page."""
    return page.partition(f"{command}\n```\n")[2].strip().partition("\n\n")[0]


@pytest.mark.parametrize("command", [line for line in commands_of(NOISE) if " account " in line])
def test_account_prints_the_epsilon_that_the_page_gives(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = re.match(r"prints (?:ε = )?(\d+\.\d{4})", after(command, NOISE))
    assert given is not None, command
    assert re.search(rf"data-independent +│ +{re.escape(given[1])} ", printed(command, monkeypatch))


def test_plan_proposes_what_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = [line for line in commands_of(NOISE) if " plan " in line]
    out, said = printed(command, monkeypatch), after(command, NOISE)
    for sigma, queries, share in (("8.81", 29, "97.65"), ("6", 8, None)):
        assert f"{queries}" in said and sigma in said and (share is None or share in said)
        assert re.search(rf"sigma {sigma} +│ +{queries} │ +{queries} │ +2\.\d+ │ +{share or ''}", out), out
    assert "Best: gnmax with sigma 8.81, 29 queries" in out


def test_check_forecasts_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init, check = [line for line in commands_of(NOISE) if " init " in line or " --check" in line]
    monkeypatch.chdir(tmp_path)
    exec((ROOT / "examples" / "wards.py").read_text(encoding="utf-8"), {})
    printed(init, monkeypatch)
    given = re.findall(r"^\| ([\d.]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", NOISE, re.MULTILINE)
    assert len(given) == 4
    settings = Path("consortium.toml")
    for epsilon, *numbers in given:
        settings.write_text(re.sub(r"^epsilon = .*$", f"epsilon = {epsilon}", settings.read_text(), flags=re.MULTILINE))
        said = " ".join(printed(check, monkeypatch).split())
        few, many, known = numbers
        assert f"up to {few} records of all institutions together noise decides; from {many} on" in said
        assert f"about ± 5 points from {known} records" in said


@pytest.mark.parametrize("page", ["choosing-noise.md", "../README.md"])
def test_the_example_of_epsilon_in_whole_people_is_what_the_definition_allows(page: str) -> None:
    odds = 10 / 90
    for epsilon in (0.1, 1.0):
        low, high = (100 * o / (1 + o) for o in (odds * math.exp(-epsilon), odds * math.exp(epsilon)))
        row = rf"^\| {epsilon:g} \| between {low:.0f} and {high:.0f} in 100 \| {math.exp(epsilon):.1f} \|"
        assert re.search(row, text_of_page(page), re.MULTILINE), row


def test_a_table_is_the_same_in_every_format_and_what_is_missing_is_said(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": [50.0, None], "ward": ["b", "?"], "ill": ["ill", "well"], "patient": ["p1", "p2"]})
    frame.to_csv(tmp_path / "visits.csv", index=False)
    frame.to_csv(tmp_path / "visits.csv.gz", index=False)
    frame.to_parquet(tmp_path / "visits.parquet")
    for name in ("visits.csv", "visits.csv.gz", "visits.parquet"):
        read = load(DataSource(source=name, label="ill", group="patient"), TASK, data_root=tmp_path)
        assert read.x.tolist() == [[0.5, 0, 0, 1, 0], [0, 1, 0, 0, 1]]
        assert read.y is not None and read.y.tolist() == [1, 0]
        assert read.groups is not None and read.groups.tolist() == ["p1", "p2"]
    named = re.search(r"\*\*Missing values\*\* \(([^)]*)\)", OWN)
    assert named is not None
    assert all(mark.strip(" `").lower() in MISSING | {"empty"} for mark in named[1].split(","))


def test_images_are_read_from_arrays_and_folders(tmp_path: Path) -> None:
    from PIL import Image

    task = Task.model_validate({"classes": ["no", "yes"], "inputs": {"kind": "image", "height": 2, "width": 3}})
    x = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    np.savez(tmp_path / "scans.npz", x=x, y=np.array(["no", "yes"]), patient=np.array([7, 8]))
    for name, image in zip(("no", "yes"), x, strict=True):
        (tmp_path / "scans" / name).mkdir(parents=True)
        Image.fromarray(image).save(tmp_path / "scans" / name / "one.png")
    for source in (DataSource(source="scans.npz", group="patient"), DataSource(source="scans")):
        read = load(source, task, data_root=tmp_path)
        assert np.array_equal(read.x[..., 0], x) and read.y is not None and read.y.tolist() == [0, 1]


def test_the_settings_on_the_page_are_valid() -> None:
    data, database, differing, teachers, package, counts = map(tomllib.loads, blocks_of(OWN, "toml"))
    assert set(DataSource.model_fields) >= set(differing["data"])
    assert DataSource.model_validate(differing["data"]).classes == {"JA": "yes", "Nein": "no"}
    assert DataSource.model_validate(data["data"]).group == "patient"
    assert DataSource.model_validate(database["data"]).is_database
    assert TeacherSettings.model_validate(teachers["teachers"]).per_party == 12
    example = tomllib.loads((ROOT / "examples/plugins/unsure-mechanism/pyproject.toml").read_text(encoding="utf-8"))
    assert package["project"]["entry-points"] == example["project"]["entry-points"]
    survival = (ROOT / "examples/plugins/survival/survival/run.py").read_text(encoding="utf-8")
    fields = {*re.findall(r"^    (\w+): .*", survival, re.MULTILINE), *CountsConfig.model_fields}
    assert set(counts["counts"]["survival"]) <= fields


def test_the_checks_on_the_page_are_those_that_there_are() -> None:
    assert set(re.findall(r"`(check_\w+)\(", OWN)) == set(collegium_conformance.__all__)


def test_a_student_of_ones_own_learns_from_the_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, source = blocks_of(OWN, "python")
    pool = pd.DataFrame({"age": np.arange(40), "ward": ["Süd", "Nord"] * 20})
    pool.to_csv(tmp_path / "pool.csv", index=False)
    columns = [
        {"kind": "number", "name": "age", "low": 0, "high": 50},
        {"kind": "category", "name": "ward", "categories": ["Nord", "Süd"]},
    ]
    task = Task.model_validate({"classes": ["young", "old"], "inputs": {"kind": "table", "columns": columns}})
    monkeypatch.setattr("collegium.load_student", lambda path: SimpleNamespace(task=task), raising=False)
    run = RunFolder(tmp_path / "consortium" / "run")
    run.prepare()
    run.write_labels([(index, None if index == 20 else int(index >= 20)) for index in range(39, -1, -1)])
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(source, names)
    predict = names["student"].predict  # type: ignore[attr-defined]
    assert predict(cg.encode(pool.iloc[[0, 39]], task)).tolist() == ["young", "old"]
