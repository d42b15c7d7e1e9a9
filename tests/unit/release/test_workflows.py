"""The workflows of a public forge: valid by their schema, with few rights, and with commands that exist.

No forge has run them here: the schema says what is well formed, and the tests below what this project asks for.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from support.pages import ROOT

SCHEMA = json.loads((ROOT / "tests/unit/release/schemas/github-workflow.json").read_text(encoding="utf-8"))
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}


def read(text: str) -> dict[str, Any]:
    """A workflow; YAML 1.1 takes the word `on` for a truth value."""
    held = yaml.safe_load(text)
    return {("on" if key is True else key): value for key, value in held.items()}


WORKFLOWS = {name: read(text) for name, text in TEXTS.items()}


def faults(workflow: dict[str, Any]) -> list[str]:
    return [f"{'.'.join(map(str, one.path))}: {one.message}" for one in Draft7Validator(SCHEMA).iter_errors(workflow)]


def steps(name: str) -> Iterator[dict[str, Any]]:
    for job in WORKFLOWS[name]["jobs"].values():
        yield from job["steps"]


def rights(name: str) -> dict[str, set[str]]:
    """What each job may write."""
    jobs = WORKFLOWS[name]["jobs"].items()
    return {job: {right for right, level in held["permissions"].items() if level == "write"} for job, held in jobs}


def test_there_is_a_workflow_for_tests_releases_and_the_scorecard() -> None:
    assert WORKFLOWS.keys() == {"tests", "release", "scorecard"}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_is_valid_by_the_schema_of_the_forge(name: str) -> None:
    assert faults(WORKFLOWS[name]) == []


def test_a_planted_mistake_is_found() -> None:
    text = TEXTS["tests"]
    assert faults(read(text.replace("runs-on:", "run-on:", 1)))
    assert faults(read(text.replace("timeout-minutes: 30", "timeout-minutes: soon", 1)))
    assert faults(read(text.replace("permissions: {}", "permissions: all", 1)))
    assert faults(read(text.replace("contents: read", "content: read", 1)))


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_action_is_named_by_its_commit_and_the_version_that_this_is(name: str) -> None:
    used = re.findall(r"uses: (.*)$", TEXTS[name], re.MULTILINE)
    assert len(used) == sum("uses" in step for step in steps(name)) > 0
    assert all(re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line) for line in used)


def test_an_action_has_one_version_in_all_workflows() -> None:
    used = set(re.findall(r"uses: (\S+)@(\S+)", "\n".join(TEXTS.values())))
    assert len({action for action, _ in used}) == len(used)


def test_a_job_has_the_rights_that_it_needs_and_no_secret() -> None:
    assert all(workflow["permissions"] == {} for workflow in WORKFLOWS.values())
    assert rights("tests") == {"lint": set(), "tests": set(), "offline": set()}
    assert rights("scorecard") == {"scorecard": {"id-token"}}
    assert rights("release") == {"build": {"id-token", "attestations"}, "publish": {"id-token"}, "page": {"contents"}}
    assert "secrets." not in "".join(TEXTS.values()) and "password" not in str(WORKFLOWS)
    for name in WORKFLOWS:
        for step in steps(name):
            assert "${{" not in step.get("run", ""), "what others write must not become part of a command"
            if "actions/checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_only_a_tag_publishes_and_only_what_was_built_and_attested() -> None:
    release = WORKFLOWS["release"]
    assert release["on"] == {"push": {"tags": ["v*"]}}
    build, publish = release["jobs"]["build"]["steps"], release["jobs"]["publish"]
    order = [step.get("uses", step.get("run", "")).partition("@")[0] for step in build]
    built, attested = order.index("make dist sbom"), order.index("actions/attest-build-provenance")
    assert built < attested < order.index("actions/upload-artifact")
    assert publish["needs"] == "build" and publish["environment"] == "release"
    assert [step["uses"].partition("@")[0] for step in publish["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]


def test_the_tests_run_on_every_python_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line}
    run = WORKFLOWS["tests"]["jobs"]["tests"]["strategy"]["matrix"]["python"]
    assert run == ["3.11", "3.12", "3.13", "3.14"] and named <= set(run)
    assert project["requires-python"] == f">={run[0]}"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_what_a_workflow_makes_is_in_the_makefile(name: str) -> None:
    targets = set(re.findall(r"^([\w./-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for step in steps(name):
        for words in re.findall(r"\bmake ([\w./ -]+)", step.get("run", "")):
            assert set(words.split()) <= targets
