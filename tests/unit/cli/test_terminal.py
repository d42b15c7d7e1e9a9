"""`collegium completion` completes what a user begins to type; `collegium schema` fits the files that users have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from collegium.coordinator.cli.init_cli import init
from collegium.coordinator.cli.study_cli import new
from collegium.errors import ConfigurationError
from collegium.parties.enrolment import policy_text
from collegium.protocol.roster import AnnouncedLimits, AnnouncedTerms
from collegium.settings import filled
from collegium.terminal_cli import schema_of

ROOT = Path(__file__).resolve().parents[3]


def as_json(value: Any) -> Any:
    """TOML's values as JSON has them: a date as text."""
    if isinstance(value, dict):
        return {key: as_json(one) for key, one in value.items()}
    if isinstance(value, list):
        return [as_json(one) for one in value]
    return value.isoformat() if isinstance(value, date) else value


def mistakes(kind: str, text: str) -> list[str]:
    """What an editor would mark."""
    return [error.message for error in Draft202012Validator(schema_of(kind)).iter_errors(as_json(tomllib.loads(text)))]


EXPLAINED = {
    "consortium": ("pool", "Public unlabelled inputs."),
    "study": ("pool", "Public unlabelled inputs."),
    "party": ("data", "The party's own records."),
    "policy": ("sum_modes", "Ways to sum that it takes part in"),
    "simulation": ("pool", "Public unlabelled inputs."),
}
EVERY_SCHEMA = """
import sys
from collegium.cli import main
for kind in sys.argv[1:]:
    try:
        main(["schema", kind])
    except SystemExit as ended:
        assert not ended.code
    print("\\f")
"""


@pytest.mark.slow
def test_the_command_prints_a_schema_that_explains_the_settings() -> None:
    command = [sys.executable, "-c", EVERY_SCHEMA, *EXPLAINED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for (kind, (setting, words)), text in zip(EXPLAINED.items(), done.stdout.split("\f\n")[:-1], strict=True):
        printed = json.loads(text)
        assert without_words(printed) == without_words(schema_of(kind)) and printed["title"] == f"{kind}.toml"
        assert words in printed["properties"][setting]["description"]


def test_the_schema_of_an_unknown_file_is_one_clear_line() -> None:
    with pytest.raises(ConfigurationError, match="no TOML file is called 'partie': did you mean party"):
        schema_of("partie")


def without_words(schema: Any) -> Any:
    """The schema but for the descriptions, which only a new process has."""
    if isinstance(schema, dict):
        return {key: without_words(one) for key, one in schema.items() if key != "description"}
    return [without_words(one) for one in schema] if isinstance(schema, list) else schema


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("consortium", "examples/consortium.toml"),
        ("party", "examples/clinic.toml"),
        ("simulation", "src/collegium/simulations/digits.toml"),
        ("simulation", "examples/mnist-250.toml"),
        ("simulation", "examples/mnist-neighbours.toml"),
    ],
)
def test_an_editor_marks_a_mistake_and_nothing_else(kind: str, file: str) -> None:
    text = (ROOT / file).read_text()
    assert not mistakes(kind, text)
    assert mistakes(kind, f"colour = 1\n{text}")
    Draft202012Validator.check_schema(schema_of(kind))


def test_the_files_that_commands_write_fit_their_schemas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    days = "\n".join(f"2026-01-{day:02d},{day}.5,{'ab'[day % 2]}" for day in range(1, 29))
    Path("pool.csv").write_text(f"seen,weight,ward\n{days}\n")
    init(
        "pool.csv",
        Path("consortium.toml"),
        classes="no,yes",
        parties="ash,birch,oak",
        host="localhost",
        name="trial",
        categories=9,
        most_records=5000,
    )
    new(Path("consortium.toml"), "second")
    for kind, file in (("consortium", "consortium.toml"), ("study", "consortium/studies/second/study.toml")):
        assert not mistakes(kind, Path(file).read_text())
    terms = AnnouncedTerms(
        limits=AnnouncedLimits(epsilon=1.0, delta=1e-5, record_epsilon=2.0),
        sum_mode="masked",
        mechanism="gnmax",
        noise_votes=40.0,
        answers=100,
        pools=("00" * 32,),
    )
    asked = {"sessions": '"h:1"', "parties": '["ash"]', "source": '"a.csv"', "query": "", "label": "", "whose": ""}
    party = filled("collegium.parties", "party.toml", **asked)
    for kind, text in (("party", party), ("policy", policy_text(terms))):
        assert not mistakes(kind, text)


@pytest.mark.slow
def test_bash_completes_what_a_user_begins_to_type() -> None:
    words = ["collegium", "party", "enrol", "--finger"]
    script = (
        "source <(collegium completion bash); "
        f"COMP_WORDS=({' '.join(words)}) COMP_CWORD={len(words) - 1}; _collegium_completion collegium; "
        "echo ${COMPREPLY[@]}"
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", script], env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["--fingerprint"], "")
