"""A consortium as `init`, `provision`, `enrol` and `serve` make it from files alone, over real processes.

Those commands that end by themselves run in this process, which has loaded what they need; test_operating_page.py and
test_watching_page.py start enrolments as processes.

{image, table, vector} × {with the parties' noise, clear} × {first start, coordinator and parties killed with -9,
second study}. What adds nothing, and is left out:

- Enrolment, sessions and signatures know neither kinds of inputs nor modes: killed is the one that reads tables, at
  each line that `coordinator serve` writes of a run. Between two lines of one sum, `test_in_memory` kills it.
- The clear mode needs a word in each institution's policy. It is asked for once, of vectors, from beginning to end.
- A second study on the same enrolment is asked for once, of tables, by parties that stay up.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from support.paths import CLASSES, POOL, SUMS, write_files
from support.ports import free_ports
from support.processes import COMMAND_S, kill, killed_at_the_end, output_of, read_until, start_collegium
from support.runs import paid
from support.typist import typed

from collegium.coordinator.run.run_folder import read_run

NAMES = ("one", "two", "three")
EPSILON = 1.0
"""What `init` writes."""
RECORDS = 1500
"""So many, that noise does not give all labels to one class."""


class Consortium:
    """The files of a consortium and of its institutions, as commands leave them."""

    def __init__(self, kind: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        files = write_files(kind, folder, RECORDS)
        self.records = {name: deal(files.private, number) for number, name in enumerate(NAMES)}
        self.label = "tree" if kind == "table" else None
        named = "--classes", ",".join(CLASSES), "--parties", ",".join(NAMES)
        self.did("init", files.pool, *named, "--most-records", 1000)
        self.file = folder / "consortium.toml"
        text = self.file.read_text()
        for port, free in zip(("7443", "7444"), free_ports(2), strict=True):
            text = text.replace(port, str(free))
        self.file.write_text(text)
        self.run = folder / "consortium" / "run"

    def did(self, *words: str | Path) -> str:
        with contextlib.chdir(self.folder):
            status, out, err = typed(self._capsys, *words)
        assert status == 0, (words, err)
        return out

    def provision(self) -> dict[str, list[str]]:
        """By party, the options of the line that its institution is given, but for those that name its records."""
        lines = [line.split() for line in self.did("provision", self.file).splitlines() if "party enrol" in line]
        return {name: line[3 : line.index("--parties")] for name, line in zip(NAMES, lines, strict=True)}

    def enrol(self, given: dict[str, list[str]], sum_modes: str = "") -> None:
        """Every institution enrols with its own records, and agrees to ways of summing where it has to write that."""
        label = [] if self.label is None else ["--label", self.label]
        for name in NAMES:
            own = ["--parties", ",".join(NAMES), "--one-row-each", "--data", self.records[name], *label]
            self.did("party", "enrol", *given[name], *own)
        for name in NAMES if sum_modes else ():
            policy = self.folder / name / "policy.toml"
            policy.write_text(re.sub(r"^sum_modes = .*$", f"sum_modes = {sum_modes}", policy.read_text(), flags=re.M))

    @contextmanager
    def parties(self, *options: str) -> Iterator[list[subprocess.Popen[str]]]:
        with killed_at_the_end() as started:
            for name in NAMES:
                file = self.folder / name / "party.toml"
                started.append(start_collegium("party", "serve", file, *options, folder=self.folder))
            yield started

    def agree(self, *limits: str) -> None:
        """Every institution doubles these limits of its policy; a party that serves reads them at the next request."""
        for name in NAMES:
            policy = self.folder / name / "policy.toml"
            text = policy.read_text()
            doubled = re.compile(rf"^({'|'.join(limits)}) = (\S+)$", re.MULTILINE)
            text = doubled.sub(lambda found: f"{found[1]} = {2 * float(found[2]):g}", text)
            policy.write_text(text)

    def serving(self, *options: str) -> subprocess.Popen[str]:
        return start_collegium("coordinator", "serve", self.file, *options, folder=self.folder)

    def served(self, *options: str) -> None:
        process = self.serving(*options)
        _, err = process.communicate(timeout=COMMAND_S)
        assert process.returncode == 0, err


def deal(private: Path, number: int) -> Path:
    """The file of one institution: a third of the records."""
    own, third = private.with_name(f"{NAMES[number]}{private.suffix}"), RECORDS // len(NAMES)
    taken = slice(number * third, (number + 1) * third)
    if private.suffix == ".csv":
        header, *rows = private.read_text().splitlines()
        own.write_text("\n".join([header, *rows[taken]]) + "\n")
    else:
        with np.load(private) as held:
            np.savez(own, **{name: held[name][taken] for name in ("x", "y")})
    return own


@contextmanager
def enrolled(kind: str, folder: Path, capsys: pytest.CaptureFixture[str], mode: str = "") -> Iterator[Consortium]:
    scene = Consortium(kind, folder, capsys)
    if mode:
        scene.file.write_text(scene.file.read_text() + f'\n[votes]\nmode = "{mode}"\n')
    given = scene.provision()
    serving = scene.serving()
    with killed_at_the_end() as started:
        started.append(serving)
        read_until(serving.stderr, "enrolment at")
        scene.enrol(given, f'["{mode}"]' if mode else "")
    yield scene  # the coordinator was killed while it waited for a quorum


@pytest.mark.parametrize(("kind", "mode"), [("image", ""), ("vector", "clear")])
def test_from_a_public_file_to_a_student_with_nothing_set_but_names(
    kind: str, mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with enrolled(kind, tmp_path, capsys, mode) as scene, scene.parties() as parties:
        scene.served()
        for party in parties:
            output_of(party)
    record, spent = read_run(scene.run), paid(scene.run.parent)
    assert record.state == "finished" and record.labels.answered == POOL and record.labels.stopped is None
    assert record.sum_mode == (mode or "masked+noised") and record.private
    assert record.evaluation.measures is not None and spent.epsilon <= EPSILON


def test_killed_at_every_line_it_goes_on_and_a_second_study_has_labels_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with enrolled("table", tmp_path, capsys) as scene, scene.parties("--stay") as parties:
        for line in ("hold pool: ", f"labels: {POOL} of {POOL}", "student: "):
            serving = scene.serving()
            try:
                read_until(serving.stderr, line)
            finally:
                kill(serving)
        kill(parties[0])
        parties[0] = start_collegium("party", "serve", tmp_path / NAMES[0] / "party.toml", "--stay", folder=tmp_path)
        scene.served()
        record, spent = read_run(scene.run), paid(scene.run.parent)
        assert record.state == "finished" and record.labels.answered == POOL and record.labels.stopped is None
        assert record.evaluation.measures is not None, record.evaluation
        assert spent.epsilon <= EPSILON and spent.queries == POOL + SUMS["table"] + 2, (
            "each sum once, one check, one evaluation"
        )
        scene.file.write_text(scene.file.read_text().replace("epsilon = 1\n", "epsilon = 1.4\n"))
        scene.did("study", "new", scene.file, "second")
        scene.agree("record_epsilon", "queries")
        scene.served("--study", "second")
    again = read_run(tmp_path / "consortium" / "studies" / "second")
    assert again.state == "finished" and again.labels.answered == POOL and again.labels.stopped is None
    assert again.evaluation.measures is not None, again.evaluation
    assert spent.epsilon < paid(scene.run.parent).epsilon <= 1.4
    released = [file.read_bytes() for file in (tmp_path / "consortium").rglob("released-*")]
    assert len({*released}) == len(released) == 2 * (SUMS["table"] + 2), "each study has sums and noise of its own"
