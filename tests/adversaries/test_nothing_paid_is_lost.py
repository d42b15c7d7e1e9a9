"""One party is away, or the coordinator dies, at each message: the same sum is opened later, and is paid for once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.chaos.messages import KINDS, Effect, Ended, Fault, Institutions, Killed, main, undisturbed

from collegium.coordinator.journal import Journal
from collegium.errors import QuorumNotReached

STEPS = ("ask", "advertise_keys", "share_keys", "mask_input", "sign_survivors", "unmask")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "parties", "effect"),
    [
        *((kind, 3, effect) for kind in KINDS for effect in ("party away", "coordinator killed")),
        ("class sums and counts", 5, "party away"),  # the others can open the sum; a coordinator's death counts nobody
    ],
)
def test_the_same_sum_is_opened_later_and_paid_for_once(
    kind: str, parties: int, effect: Effect, tmp_path: Path
) -> None:
    """The fault comes at one step of each sum; where it stops the run, the next start meets it at the next sum.

    ``python -m benchmarks.chaos.messages`` does so with other numbers of parties, and one fault after the other.
    """
    due, _ = undisturbed(kind, parties)
    assert not due.missing
    for step in STEPS:
        stopped = False
        for number in range(1, due.opened + 1):
            if not stopped:
                folder = tmp_path / f"{step}-{number}"
                institutions = Institutions(parties, folder / "parties")
            fault = Fault(effect, "c-1", _at(step, number, institutions))
            institutions.begin(fault)
            try:
                institutions.run(kind, folder / "run")
                stopped = False
            except (Killed, QuorumNotReached):
                stopped = True
            assert fault.hit, f"{step} of sum {number} was not reached"
            if not stopped or number == due.opened:
                institutions.begin(None)
                ended = Ended.of(institutions.run(kind, folder / "run"), folder / "run", institutions)
                assert ended == due, (step, number)


def _at(step: str, number: int, institutions: Institutions) -> Callable[[set[str]], bool]:
    """Whether messages are those of a step of the sum of this number, which begins once those before it are opened."""
    begun = list[str]()

    def meets(steps: set[str]) -> bool:
        if len(institutions.opened) == number - 1:
            begun.extend(steps & {"ask"})
        return bool(begun) and step in steps

    return meets


@pytest.mark.slow
def test_faults_at_any_message_one_after_the_other_lose_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--faults", "12", "--seed", "3"]) == 0
    assert "nothing was lost or paid twice" in capsys.readouterr().out


@pytest.mark.slow
def test_a_coordinator_that_keeps_no_open_sum_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The planted bug: what opens a sum is in memory alone."""
    monkeypatch.setattr(Journal, "keep_open", lambda *_: None)
    assert main(["--faults", "12", "--seed", "3"]) == 1
    assert "in place of" in capsys.readouterr().out
