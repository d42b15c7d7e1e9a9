"""What opens a sum is on the disk as it was in memory, or its file is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from benchmarks.local_sums import LocalRound, local_round
from support.party_requests import LINEAR

from collegium.coordinator.journal import Journal, OpenSum
from collegium.errors import StorageError
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.question import PoolRange, QuestionTerms
from collegium.protocol.secure_sum import CoordinatorSum, Phase

QUESTION = CastVotes(
    QuestionTerms("gnmax", {"sigma": 40.0}, sum_mode="masked"), "ledger", LINEAR, PoolRange("0" * 64, (0,)), 3
)
PARTIES = 13
"""Numbers of two digits among them: they have another order as texts."""
VOTES = np.random.default_rng(0).integers(0, 9, (PARTIES, 3))


def step(made: LocalRound, coordinator: CoordinatorSum, away: frozenset[str] = frozenset()) -> None:
    for name, request in coordinator.requests().items():
        if name not in away:
            coordinator.accept(name, made.parties[name].handle(request))
    coordinator.close_phase()


@pytest.fixture
def kept(tmp_path: Path) -> LocalRound:
    """A sum of which one party's vector is missing, kept before anybody signed."""
    made = local_round(VOTES, 0, 9)
    while made.coordinator.phase is not Phase.SIGN:
        step(made, made.coordinator, frozenset({"party-0004"} if made.coordinator.phase is Phase.MASK else ()))
    Journal(tmp_path).keep_open(
        OpenSum(("one",), QUESTION, 7, {"party-0000": 5}, (made.coordinator.opening.collected,))
    )
    return made


def test_another_process_opens_the_sum_that_was_kept(kept: LocalRound, tmp_path: Path) -> None:
    (sum_,) = Journal(tmp_path).open_sums()
    assert (sum_.names, sum_.charge, dict(sum_.teachers)) == (("one",), 7, {"party-0000": 5})
    assert sum_.question == QUESTION and len(sum_.parties) == PARTIES - 1
    coordinator = CoordinatorSum.resumed(*sum_.collected)
    while coordinator.phase is not Phase.DONE:
        step(kept, coordinator)
    assert np.array_equal(coordinator.result.total, np.delete(VOTES, 4, axis=0).sum(axis=0))
    Journal(tmp_path).settle(sum_)
    assert Journal(tmp_path).open_sums() == [] and Journal(tmp_path).settled == [sum_.setup]


@pytest.mark.parametrize("change", [lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), lambda raw: raw[:-8], lambda _: b""])
def test_a_changed_file_opens_nothing(kept: LocalRound, tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    (file,) = tmp_path.glob("open-sum-*")
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(StorageError, match="restore it from a copy, or remove it: it is then paid anew"):
        Journal(tmp_path).open_sums()
