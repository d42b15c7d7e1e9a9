"""A search that takes long says how far it is; one that does not is silent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from collegium.privacy.accounting.argmax import cache as argmax_cache
from collegium.privacy.accounting.argmax.bound import argmax_curve
from collegium.privacy.accounting.progress import SearchLines, SearchStep, listening


def test_a_search_reports_passes_that_grow_and_comparisons_within_their_total(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(argmax_cache.platformdirs, "user_cache_dir", lambda name: str(tmp_path))
    steps: list[SearchStep] = []
    with listening(steps.append):
        argmax_curve("gaussian", 17.0, [2.0, 3.0])
    assert {step.subject for step in steps} == {
        "certifying the bound on the winner under Gaussian noise of scale 17 votes"
    }
    passes = [step.search_pass for step in steps]
    assert passes[0] == 1 and passes == sorted(passes) and passes[-1] > 3
    assert all(0 <= step.done < step.total for step in steps)
    known = len(steps)
    with listening(steps.append):
        argmax_curve("gaussian", 17.0, [2.0, 3.0])
    argmax_curve("gaussian", 18.0, [2.0])
    assert len(steps) == known, "a kept curve is not searched again, and nobody listens outside the block"


def test_lines_come_after_a_second_and_no_faster_than_one_in_a_second() -> None:
    now_s = 0.0
    lines: list[str] = []
    listener = SearchLines(lines.append, quiet_s=1.0, clock=lambda: now_s)
    for tenth in range(31):
        now_s = tenth / 10
        listener(SearchStep("searching", 2, tenth, 40))
    assert lines == [f"searching (once; the result is kept): pass 2, {share} %" for share in (25, 50, 75)]
    now_s = 3.2
    listener(SearchStep("searching elsewhere", 1, 0, 1))
    assert len(lines) == 3, "another search begins its own second"


@pytest.mark.slow
def test_the_command_shows_a_search_on_standard_error_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "collegium.cli", "account", "-m", "gnmax", "--sigma", "37", "--queries", "9"]
    run = [
        subprocess.run(
            [*command, "--json"],
            env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        for _ in range(2)
    ]
    assert "certifying the bound on the winner under Gaussian noise of scale 37 votes" in run[0].stderr
    assert run[1].stderr == ""
    assert json.loads(run[0].stdout) == json.loads(run[1].stdout)
