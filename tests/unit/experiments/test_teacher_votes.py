"""The votes of a simulation's teachers, and the figures that the papers' tables show of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from collegium_reproduction.secret_epsilons import secret_epsilons
from collegium_reproduction.teacher_votes import teacher_votes, vote_figures
from support.runs import FORESTS, InProcess, histograms, tiny

from collegium.coordinator.rounds.rounds import OnReply
from collegium.protocol.replies import Counts, ReplyBody
from collegium.protocol.requests import RequestBody
from collegium.simulations.cohort import PreparedRun, prepare_run
from collegium.simulations.simulate import coordinator_of
from collegium_accounting.mechanisms import create


class Overheard(InProcess):
    """Adds up what the parties answer."""

    def __init__(self, run: PreparedRun) -> None:
        super().__init__(run)
        self.summed: list[list[int]] = []

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        replies = super().ask(requests, timeout_s=timeout_s, on_reply=on_reply)
        votes = [reply.counts for reply in replies.values() if isinstance(reply, Counts)]
        if votes:
            self.summed += np.sum(votes, axis=0).tolist()
        return replies


@pytest.mark.slow
def test_they_are_the_votes_that_the_run_summed(tmp_path: Path) -> None:
    config = tiny(teachers=FORESTS, votes={"mode": "clear"}, student={"method": "random-forest", "options": {}})
    run = prepare_run(config, tmp_path / "run", data_root=None)
    parties = Overheard(run)
    coordinator_of(run, parties, None).run()
    assert histograms(run) == parties.summed and len(parties.summed) == 12
    assert teacher_votes(run, run.public.pool.x[:5]).sum(axis=1).tolist() == [6] * 5


def test_the_figures_are_those_of_the_histograms() -> None:
    votes = np.array([[8, 2, 0], [5, 5, 0], [1, 2, 7]])
    mechanism = create("lnmax", gamma=0.05)
    found = vote_figures(votes, np.array([0, 1, 1]), mechanism, 1e-5)
    assert found.teacher_accuracy == pytest.approx((0.8 + 0.5 + 0.2) / 3)
    assert found.plurality_accuracy == pytest.approx(1 / 3)
    assert found.gap == pytest.approx((0.6 + 0.0 + 0.5) / 3)
    assert found.epsilons == secret_epsilons(mechanism, votes, 1e-5, unit=mechanism.unit(), noise=("discrete",))
