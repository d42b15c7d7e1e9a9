"""A search that takes long says how far it is; one that does not is silent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from collegium_accounting.game.winner import RoundLaw, winner_profile
from collegium_accounting.progress import SearchLines, SearchStep, listening


@pytest.mark.bits
@pytest.mark.usefixtures("own_cache")
def test_a_game_reports_its_rounds() -> None:
    steps: list[SearchStep] = []
    law = RoundLaw("gumbel", 17.0)
    with listening(steps.append):
        winner_profile(law, 9)
    assert {step.subject for step in steps} == {"the exact accountant's 9 rounds under gumbel noise of 17 votes"}
    assert [step.done for step in steps] == list(range(1, 10)) and {step.total for step in steps} == {9}
    with listening(steps.append):
        winner_profile(law, 9)
    winner_profile(law, 8)
    assert len(steps) == 9, "a kept profile is not computed again, and nobody listens outside the block"


def test_a_line_comes_after_a_second_and_another_every_five() -> None:
    now_s = 0.0
    lines: list[str] = []
    listener = SearchLines(lines.append, clock=lambda: now_s)
    for tenth in range(71):
        now_s = tenth / 10
        listener(SearchStep("searching", tenth, 100))
    assert lines == [f"searching (once; the result is kept): {share} %" for share in (10, 60)]
    now_s = 7.2
    listener(SearchStep("searching elsewhere", 0, 1))
    assert len(lines) == 2, "another search begins its own second"


@pytest.mark.slow
def test_the_command_shows_a_search_on_standard_error_alone(tmp_path: Path) -> None:
    """On a clock on which a second passes whenever it is read, so that the search takes long on any machine."""
    given = ("account", "-m", "lnmax", "--gamma", "0.15", "--queries", "40", "--json")
    code = "import itertools, runpy, time; time.monotonic = itertools.count().__next__; "
    code += "runpy.run_module('collegium_accounting', run_name='__main__')"
    run = [
        subprocess.run(
            [sys.executable, "-c", code, *given],
            env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        for _ in range(2)
    ]
    assert "the exact accountant's 40 rounds under discrete-laplace noise of 6.66667 votes" in run[0].stderr
    assert run[1].stderr == ""
    assert json.loads(run[0].stdout) == json.loads(run[1].stdout)
