"""`collegium audit --run`: an honest run is not refuted, and each planted bug is.

With μ = .5 (ε = 2) and 1,000 canaries the true bound lies 7.9 standard deviations above 0. Each planted bug doubles μ
at least, so that it is missed with a probability of Φ(1.65 − 7.9) < 1e-9. An honest run is refuted with the probability
that the audit is given, 1e-6 here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.audit_run import PLANTED, configured, half_the_noise, of_labels
from support.typist import typed

from collegium.simulations.run_audit import RunAudit, audit_run

CANARIES = 1000


def config(folder: Path, **settings: Any) -> Path:
    return configured(folder, epsilon=2.0, **settings)


def audit(path: Path, failure: float = 0.05, **settings: Any) -> RunAudit:
    return audit_run(path, canaries=CANARIES, failure=failure, **settings)


def test_an_honest_run_is_not_refuted_and_its_bound_is_near_its_epsilon(tmp_path: Path) -> None:
    (sums,) = audit(config(tmp_path), failure=1e-6).kinds
    assert not sums.refuted
    assert sums.epsilon_of_canaries == pytest.approx(2.0, rel=0.01)
    assert abs(sums.noise_found - 1.0) < 0.15  # of 904 entries, 6 deviations


@pytest.mark.slow
def test_counts_and_rounds_are_audited_and_hold(tmp_path: Path) -> None:
    more = "evaluation = { share = 0.3 }\npool_check = { share = 0.2 }"
    found = audit(config(tmp_path, mode="masked+noised", rounds=4, more=more), failure=1e-6)
    assert {(one.kind, one.rounds) for one in found.kinds} == {("sums", 4), ("evaluation", 1), ("pool check", 1)}
    assert not found.refuted
    # What the parties of a sum cannot count on, the noise of those who may collude, hides canaries as well.
    assert all(0.0 < one.epsilon_of_canaries < one.epsilon_stated for one in found.kinds)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_refuted(name: str, tmp_path: Path) -> None:
    bug, rounds = PLANTED[name]
    with bug():
        (sums,) = audit(config(tmp_path, rounds=rounds)).kinds
    assert sums.refuted


@pytest.mark.slow
def test_half_the_noise_of_counts_is_refuted(tmp_path: Path) -> None:
    with half_the_noise():
        found = audit(config(tmp_path, more="evaluation = { share = 0.9 }"))
    assert "evaluation" in {one.kind for one in found.refuted}


def test_the_command_says_in_one_line_what_is_refuted_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with half_the_noise():
        status, out, err = typed(capsys, "audit", "--run", config(tmp_path), "--canaries", CANARIES, "--json")
    (sums,) = json.loads(out)["kinds"]
    assert status == 1 and sums["refuted"]
    assert err.splitlines()[-1].startswith("refuted: sums states ε 2.0")


def test_the_command_tells_of_the_rehearsal_from_its_beginning_and_of_each_tenth_of_the_audit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = typed(capsys, "audit", "--run", config(tmp_path), "--canaries", CANARIES)
    said = err.splitlines()
    # Chance refutes an honest run once in 20 at most: the command's bound holds with 95 %.
    assert status == any(line.startswith("refuted: sums") for line in said)
    assert said[0] == f"canaries dealt: {CANARIES} of {CANARIES}"
    assert [line for line in said if line.startswith("canaries looked at")] == [
        f"canaries looked at: {number} of 200" for number in (1, *range(20, 201, 20))
    ]


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


def test_a_run_of_votes_alone_is_told_what_audits_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    votes = 'teachers = { kind = "random-forest", options = { trees = 5 } }\n'
    votes += 'mechanism = { name = "gnmax", parameters = { sigma = 40.0 } }'
    path = config(tmp_path, mode="masked", more=votes)
    path.write_text(path.read_text(encoding="utf-8").replace("sums = {", "# sums = {"), encoding="utf-8")
    status, _, err = typed(capsys, "audit", "--run", path)
    assert status != 0 and "--mechanism gnmax" in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("labels", [100, 1000])
def test_labels_tell_no_more_than_their_fisher_information_allows(labels: int) -> None:
    """Why votes are not audited so: 1.64 deviations, each 1/√(.608·T) of μ, are missing even at the best gap."""
    share, refuted = of_labels(labels)
    assert 1.0 - 2.3 / labels**0.5 < share < 1.0 - 2.0 / labels**0.5
    assert refuted > 0.99


def test_without_mechanism_and_run_the_command_says_which_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = typed(capsys, "audit")
    assert status != 0 and "--mechanism" in err and "--run" in err


@pytest.mark.slow
def test_real_party_processes_are_audited_over_tls(tmp_path: Path) -> None:
    found = audit(config(tmp_path, mode="masked+noised"), failure=1e-6, processes=True)
    assert [one.kind for one in found.kinds] == ["sums"] and found.processes and not found.refuted
