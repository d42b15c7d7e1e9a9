"""docs/nvflare.md, followed by somebody who types its lines: at most fifteen of them lead to a student."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="NVFlare is not installed: pip install collegium-nvflare")

from federation import JOB, Federation

from collegium.cli import main
from collegium.coordinator.run.run_folder import RunFolder
from collegium_nvflare.controller import RESULTS
from collegium_nvflare.own_folder import USUAL
from collegium_nvflare.trial import made_records

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "nvflare.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## What you add")[2].partition("\n## ")[0]
SUBMIT = "nvflare job submit -j jobs/consortium"


def blocks(kind: str) -> list[list[str]]:
    """The lines of the section's code blocks of one kind."""
    found = re.findall(rf"^```{kind}\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    return [[line for line in block.splitlines() if line.strip()] for block in found]


Type = Callable[[str, Path], str]


@pytest.fixture
def type_(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Type:
    """One line of the page, typed in a folder, and what it prints; the package is installed already."""

    def typed(line: str, folder: Path) -> str:
        words = shlex.split(line)
        assert words[0] in ("pip", "collegium"), line
        if words[0] == "pip":
            return ""
        monkeypatch.chdir(folder)
        with pytest.raises(SystemExit) as ended:
            main(words[1:])
        out, err = capsys.readouterr()
        assert ended.value.code == 0, err
        return out

    return typed


def test_a_federation_adds_at_most_fifteen_lines() -> None:
    lines = [line for kind in ("sh", "toml") for block in blocks(kind) for line in block]
    assert len(lines) <= 15
    assert f"all the lines: {len(lines)}," in SECTION


def test_the_lines_of_the_page_lead_to_a_student(tmp_path: Path, type_: Type) -> None:
    (study, site), (party,) = blocks("sh"), blocks("toml")
    made_records(1, 200).drop(columns="outcome").to_csv(tmp_path / "pool.csv", index=False)
    assert study[-1] == SUBMIT
    for line in study[:-1]:
        type_(line, tmp_path)
    names = tuple(f"site-{number}" for number in range(1, 6))
    for number, name in enumerate(("server", *names)):
        workspace = tmp_path / "federation" / name
        workspace.mkdir(parents=True)
        for line in site if number < 2 else ():  # the others type the same
            type_(line, workspace)
        if number:
            own = workspace / USUAL
            own.mkdir(parents=True)
            made_records(10 + number, 150).to_csv(workspace / "records.csv", index=False)
            text = "\n".join(party).replace("/data/records.csv", str(workspace / "records.csv"))
            (own / "party.toml").write_text(text + "\n")
            (own / "policy.toml").write_text((tmp_path / "policy.toml").read_text())
    federation = Federation(tmp_path / "federation", tmp_path / "jobs" / "consortium", names)
    before = os.umask(0o022)
    try:
        assert federation.submit(None) == []
    finally:
        os.umask(before)
    run = RunFolder(tmp_path / "federation" / "server" / USUAL / "consortium" / "run")
    record = run.read()
    assert record is not None and record.state == "finished" and run.student.exists()
    assert record.evaluation is not None, "nobody has public labels: the sites measured the student"
    result = tmp_path / "federation" / "server" / JOB / "collegium"
    assert {file.name for file in result.iterdir()} == set(RESULTS), "what a download brings, the statement with it"
    shown = type_("collegium nvflare show . --json", tmp_path / "federation" / names[0])
    assert json.loads(shown)["record_epsilon_spent"] > 0 and "collegium nvflare show .` says" in SECTION
