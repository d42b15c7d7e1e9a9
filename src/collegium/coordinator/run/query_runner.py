"""Putting queries to the parties, batch by batch, until each has a label or the budget ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from collegium.coordinator.rounds.parties import Parties
from collegium.coordinator.rounds.readiness import Readiness
from collegium.coordinator.rounds.round_requests import RoundRequests
from collegium.coordinator.rounds.rounds import RoundResult, VoteSum, quorum_count, require_quorum
from collegium.coordinator.run.labeller import Labeller
from collegium.coordinator.run.progress import Tell
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.public_data import PublicData
from collegium.coordinator.settings.run_config import RunConfig
from collegium.privacy.mechanisms import IntArray, Mechanism
from collegium.privacy.mechanisms.base import WHOLE_MECHANISM
from collegium.protocol.messages import ArraySpec, PoolRange

NO_ANSWER = -1
"""Among predictions: the student is not sure enough, or there is none."""


class QueryRunner:
    """Asks the parties for one run; notes in ``run`` and its folder how each batch went.

    Parameters
    ----------
    roster : every admitted party; those reachable when first asked where it is None.
    spec : names the pool.
    keep : told of every batch's queries and sum, where these are to be kept (simulations alone).
    """

    def __init__(
        self,
        config: RunConfig,
        parties: Parties,
        roster: Sequence[str] | None,
        public: PublicData,
        spec: ArraySpec,
        mechanism: Mechanism,
        vote_sum: VoteSum,
        labeller: Labeller,
        run: RunRecord,
        folder: RunFolder,
        *,
        clock: Callable[[], float],
        tell: Tell,
        keep: Callable[[Sequence[str], IntArray], None] | None = None,
    ) -> None:
        self._config, self._parties, self._roster = config, parties, roster
        self._pool, self._spec = public.pool.x, spec
        self._mechanism, self._vote_sum, self._labeller = mechanism, vote_sum, labeller
        self._run, self._folder = run, folder
        self._clock, self._tell, self._keep = clock, tell, keep
        self._readiness: Readiness | None = None
        self._quorum = 0

    def ask(
        self,
        questions: RoundRequests,
        queries: Mapping[str, int],
        predictions: Mapping[str, int],
        told: Callable[[], None],
    ) -> bool:
        """Ask until all of ``queries`` have a label or an abstention; False when the budget stopped it before.

        Parameters
        ----------
        queries : keys to positions in the pool, in the order in which they are asked.
        predictions : the student's own sure answers, for mechanisms that only confirm them.
        told : called after every batch.
        """
        keys, size = list(queries), self._config.queries.batch
        for start in range(0, len(keys), size):
            asked = self._labeller.worth_asking(keys[start : start + size])
            if not asked:
                continue
            teachers = self._ready(questions)
            if self._mechanism.sum_per_stage:
                fitted = self._pay_then_ask(questions, {key: queries[key] for key in asked}, teachers)
            else:
                result = self._round(questions, [queries[key] for key in asked], teachers)
                if self._keep is not None:
                    self._keep(asked, result.counts)
                answers = np.array([predictions.get(key, NO_ANSWER) for key in asked], dtype=np.int64)
                fitted = self._labeller.label(asked, result.counts, answers)
            told()
            if not fitted:
                break
        return not self._labeller.pending(keys)

    def _ready(self, questions: RoundRequests) -> dict[str, int]:
        """The parties that can answer, with their teachers; QuorumNotReached when they are too few."""
        votes = self._config.votes
        first = self._readiness is None
        if self._readiness is None:
            roster = sorted(self._roster if self._roster is not None else self._parties.names())
            self._quorum = quorum_count(votes.quorum, len(roster))
            self._readiness = Readiness(self._parties, roster, questions.teacher, self._pool, self._spec)
        self._readiness.prepare(
            deadline_s=votes.deadline_s,
            fit_deadline_s=votes.fit_deadline_s if first else votes.deadline_s,
            on_step=self._tell,
        )
        self._run.note_statuses(self._readiness.statuses)
        require_quorum(self._readiness.outcomes(), self._quorum, "are ready")
        return self._readiness.ready()

    def _pay_then_ask(self, questions: RoundRequests, queries: Mapping[str, int], teachers: Mapping[str, int]) -> bool:
        """One round per stage, paid before it.

        A sum that the parties noised is an answer in its own right, and every stage of sampled neighbours has its
        own sample.
        """
        while pending := self._labeller.pending(queries):
            number, chunk = self._labeller.next_stage(pending)
            if not chunk:
                return False
            stage = self._mechanism.stages[number]
            self._labeller.pay(number, chunk)
            indices = [queries[key] for key in chunk]
            result = self._round(questions, indices, teachers, stage.name)
            self._labeller.settle(number, chunk, result.counts)
        return True

    def _round(
        self,
        questions: RoundRequests,
        indices: Sequence[int],
        teachers: Mapping[str, int],
        stage: str = WHOLE_MECHANISM,
    ) -> RoundResult:
        asked = PoolRange(self._spec.sha256, tuple(indices))
        request = questions.request(self._mechanism, self._vote_sum.mode, asked, stage)
        began_s = self._clock()
        result = self._vote_sum.sum_votes(
            request,
            teachers,
            queries=len(indices),
            classes=len(self._config.task.classes),
            deadline_s=self._config.votes.deadline_s,
            quorum=self._quorum,
            on_answer=lambda done, asked: self._tell("votes", done, asked),
        )
        self._run.note_round(request.round_id, len(indices), result, self._clock() - began_s)
        assert self._readiness is not None
        self._readiness.note_round(result.outcomes)
        self._folder.write(self._run)
        return result
