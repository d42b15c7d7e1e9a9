"""The baseline that a process of its own measures: the figure of this process, its errors, and its end; and hosts."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.waiting import comes_true

from collegium.coordinator.run.surroundings import Progress
from collegium.data.task import Task, VectorInputs
from collegium.errors import CollegiumError
from collegium.simulations.baseline import Baseline, MeasuredBeside
from collegium.simulations.party_processes import LEAVE_S, PartyProcesses

pytestmark = pytest.mark.slow


def small(steps: int) -> Baseline:
    draws = np.random.default_rng(0)
    x = draws.normal(size=(90, 4)).astype(np.float32)
    labels = (x[:, 0] > 0).astype(np.int64)
    task = Task(classes=("left", "right"), inputs=VectorInputs(size=4))
    settings = {"seed": 7, "device": "cpu", "threads": 1, "options": {"steps": steps, "network": "mlp"}}
    return Baseline("supervised", task, (x[:60], labels[:60]), (x[60:], labels[60:]), settings)


def test_another_process_finds_what_this_one_finds_and_tells_how_far_it_is() -> None:
    told: list[Progress] = []
    with MeasuredBeside(small(20), told.append) as beside:
        beside.begin()
        assert beside() == small(20).measure(lambda step: None)
    assert [step.done for step in told] == list(range(1, 21)) and {step.step for step in told} == {"baseline"}


def test_what_goes_wrong_there_is_said_here() -> None:
    of_one_class = replace(small(2), records=(small(2).records[0], np.zeros(60, dtype=np.int64)))
    with (
        MeasuredBeside(of_one_class, lambda step: None) as beside,
        pytest.raises(CollegiumError, match=r"the baseline: .*class"),
    ):
        beside()


def test_it_ends_with_its_context_and_a_killed_one_is_named() -> None:
    with MeasuredBeside(small(10**6), lambda step: None) as beside:
        process = beside.begin()
        assert beside.begin() is process, "it begins once"
    assert process.poll() is not None
    with MeasuredBeside(small(10**6), lambda step: None) as beside:
        beside.begin().kill()
        with pytest.raises(CollegiumError, match="ended with -9"):
            beside()


def test_a_process_that_ends_before_it_took_its_records_is_named_too() -> None:
    """They are more than a pipe holds, so that they are being given when it ends."""
    many = replace(small(1), records=(np.zeros((100_000, 4), np.float32), np.zeros(100_000, np.int64)))
    with MeasuredBeside(many, lambda step: None) as beside:
        beside.begin().kill()
        with pytest.raises(CollegiumError, match="ended with -9"):
            beside()


def test_parties_whose_host_ended_before_they_began_have_ended(tmp_path: Path) -> None:
    with PartyProcesses() as host:
        host._copied.kill()
        host._copied.wait()
        (party,) = host.begin({"a": tmp_path / "party.toml"})
        assert party.wait(LEAVE_S) and party.status == -signal.SIGKILL and party.last_words() == "no word"


def test_it_ends_with_the_process_that_began_it() -> None:
    words, pipe = [sys.executable, "-m", "collegium.simulations.baseline"], subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(small(10**5).to_bytes())
        process.stdin.flush()
        assert process.stdout.readline() == b'{"done": 1000, "total": 100000}\n'
        process.stdin.close()  # as it does when its starter is killed
        assert comes_true(lambda: process.poll() is not None)
        assert b'{"done": 100000, "total": 100000}' not in process.stdout.read(), "it did not train to the end"
        assert process.stderr is not None and process.stderr.read() == b""
