"""`collegium audit --run`: an honest run is not refuted, and each planted bug is.

With μ = .5 (ε = 2) and 1,000 canaries the true bound lies 7.9 standard deviations above 0. Each planted bug doubles μ
at least, so that it is missed with a probability of Φ(1.65 − 7.9) < 1e-9. An honest run is refuted with the probability
that the audit is given, 1e-6 here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.typist import typed

from collegium.coordinator.noise import CoordinatorNoise
from collegium.data import Examples
from collegium.simulations import cohort
from collegium.simulations.run_audit import RunAudit, audit_run
from collegium_accounting.game.laws import VectorLaw
from collegium_accounting.mechanisms.class_sums import SumRelease

CANARIES = 1000
CONFIG = """
name = "rehearsed"
pool = {{ source = "{pool}" }}
private = {{ source = "nobody-reads-it.npz" }}
partition = {{ parties = 5 }}
votes = {{ mode = "{mode}" }}
budget = {{ epsilon = 2.0, delta = 1e-5 }}
sums = {{ rounds = {rounds}, landmarks = 300 }}
{more}
[task]
classes = ["a", "b", "c"]
inputs = {{ kind = "vector", size = 8 }}
"""


def config(folder: Path, *, mode: str = "clear", rounds: int = 1, more: str = "") -> Path:
    pool = folder / "pool.npz"
    np.savez(pool, x=np.random.default_rng(0).normal(size=(1200, 8)).astype(np.float32))
    path = folder / "run.toml"
    path.write_text(CONFIG.format(pool=pool, mode=mode, rounds=rounds, more=more), encoding="utf-8")
    return path


def audit(path: Path, failure: float = 0.05, **settings: Any) -> RunAudit:
    return audit_run(path, canaries=CANARIES, failure=failure, **settings)


def test_an_honest_run_is_not_refuted_and_its_bound_is_near_its_epsilon(tmp_path: Path) -> None:
    (sums,) = audit(config(tmp_path), failure=1e-6).kinds
    assert not sums.refuted
    assert sums.epsilon_of_canaries == pytest.approx(2.0, rel=0.01)
    # Below 0.02 with the probability Φ(4.8 − 7.9) twice over: the bound is at least 1.6 deviations off 0.
    assert abs(sums.noise_found - 1.0) < 0.15  # of 904 entries, 6 deviations


def test_counts_and_rounds_are_audited_and_hold(tmp_path: Path) -> None:
    more = "evaluation = { share = 0.3 }\npool_check = { share = 0.2 }"
    found = audit(config(tmp_path, mode="masked+noised", rounds=4, more=more), failure=1e-6)
    assert {(one.kind, one.rounds) for one in found.kinds} == {("sums", 4), ("evaluation", 1), ("pool check", 1)}
    assert not found.refuted
    # What the parties of a sum cannot count on, the noise of those who may collude, hides canaries as well.
    assert all(0.0 < one.epsilon_of_canaries < one.epsilon_stated for one in found.kinds)


def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    drawn = CoordinatorNoise.vector

    def half(self: CoordinatorNoise, stage: Any, values: Any, drawn_for: str) -> Any:
        return values + (drawn(self, stage, values, drawn_for) - values) // 2

    patch.setattr(CoordinatorNoise, "vector", half)


def every_record_twice(patch: pytest.MonkeyPatch) -> None:
    read = cohort.load

    def twice(*given: Any, **named: Any) -> Examples:
        records = read(*given, **named)
        return records if records.y is None else records.take(np.repeat(np.arange(len(records)), 2))

    patch.setattr(cohort, "load", twice)


def vectors_too_long(patch: pytest.MonkeyPatch) -> None:
    from collegium.models import kernels

    right = kernels.of_length
    patch.setattr(kernels, "of_length", lambda vectors, most: right(vectors, 4 * most))


def an_understated_law(patch: pytest.MonkeyPatch) -> None:
    right = SumRelease.law

    def understated(self: SumRelease, *given: Any) -> Any:
        law = right(self, *given)
        assert isinstance(law, VectorLaw)
        return replace(law, mu=law.mu / 2.0)

    patch.setattr(SumRelease, "law", understated)


def a_draw_used_again(patch: pytest.MonkeyPatch) -> None:
    drawn, kept = CoordinatorNoise.vector, dict[int, Any]()

    def again(self: CoordinatorNoise, stage: Any, values: Any, drawn_for: str) -> Any:
        noise = kept.setdefault(len(values), drawn(self, stage, values, drawn_for) - values)
        return values + noise

    patch.setattr(CoordinatorNoise, "vector", again)


@pytest.mark.parametrize(
    ("bug", "rounds"),
    [
        (half_the_noise, 1),
        (half_the_noise, 4),
        (every_record_twice, 1),
        (vectors_too_long, 1),
        (an_understated_law, 1),
        (a_draw_used_again, 4),
    ],
)
def test_a_planted_bug_is_refuted(bug: Any, rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = config(tmp_path, rounds=rounds)
    bug(monkeypatch)
    (sums,) = audit(path).kinds
    assert sums.refuted


def test_half_the_noise_of_counts_is_refuted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = config(tmp_path, more="evaluation = { share = 0.9 }")
    half_the_noise(monkeypatch)
    assert "evaluation" in {one.kind for one in audit(path).refuted}


def test_the_command_says_in_one_line_what_is_refuted_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path)
    half_the_noise(monkeypatch)
    status, out, err = typed(capsys, "audit", "--run", path, "--canaries", CANARIES, "--json")
    (sums,) = json.loads(out)["kinds"]
    assert status == 1 and sums["refuted"]
    assert err.splitlines()[-1].startswith("refuted: sums states ε 2.0")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--canaries", "9"], "5 parties rehearse with 10 to"),
        (["--run", "nowhere.toml"], "nowhere.toml"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = typed(capsys, "audit", "--run", config(tmp_path), *words)
    assert status != 0 and out == ""
    assert said in err and "Traceback" not in err


def test_without_mechanism_and_run_the_command_says_which_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = typed(capsys, "audit")
    assert status != 0 and "--mechanism" in err and "--run" in err


@pytest.mark.slow
def test_real_party_processes_are_audited_over_tls(tmp_path: Path) -> None:
    found = audit(config(tmp_path, mode="masked+noised"), failure=1e-6, processes=True)
    assert [one.kind for one in found.kinds] == ["sums"] and found.processes and not found.refuted
