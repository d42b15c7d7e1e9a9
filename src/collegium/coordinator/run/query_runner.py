"""Queries are put to the parties, batch by batch, until each has a label, the budget ends or the run is to stop."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from functools import cached_property

import numpy as np

from collegium.coordinator.rounds.readiness import Readiness
from collegium.coordinator.rounds.round_requests import RoundRequests
from collegium.coordinator.rounds.rounds import (
    InputsLost,
    OpenedApart,
    RoundResult,
    VoteRound,
    quorum_count,
    require_quorum,
)
from collegium.coordinator.run.labeller import Labeller
from collegium.coordinator.run.surroundings import RunNotes, RunSetup
from collegium.coordinator.settings.run_config import PublicData
from collegium.data.pools import contents_of
from collegium.data.task import TeacherSettings
from collegium.errors import QuorumNotReached, ReleaseLost
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.requests import PoolRange, SumRecords
from collegium_accounting.mechanisms import IntArray, Stage
from collegium_accounting.mechanisms.base import WHOLE_MECHANISM

logger = logging.getLogger("collegium.coordinator")

NO_ANSWER = -1
"""Among predictions: the student is not sure enough, or there is none."""

BeforeOpening = Callable[[], None] | None
"""Called before a sum that parties made noisy is opened."""


class Ending(Enum):
    """Why queries are no longer asked."""

    ALL_LABELLED = "all labelled"
    BUDGET = "the budget ended"
    TOLD_TO_STOP = "told to stop"


class QueryRunner:
    """Puts queries to the parties of one run, and notes how each batch went.

    Parameters
    ----------
    labeller : releases the labels, and pays for them.
    ledger : from which it pays; parties are shown how it grows.
    keep : called with the queries of a batch and their counts, ``[queries, classes]``, before noise is drawn.
    teacher : what parties must have fitted; None where their records answer for themselves.
    """

    def __init__(
        self,
        setup: RunSetup,
        public: PublicData,
        labeller: Labeller,
        ledger: Ledger,
        notes: RunNotes,
        keep: Callable[[Sequence[str], IntArray], None],
        teacher: TeacherSettings | None,
    ) -> None:
        self._setup, self._public, self._labeller, self._ledger = setup, public, labeller, ledger
        self._notes, self._keep, self._teacher = notes, keep, teacher
        self._prepared = False

    def ask(
        self,
        requests: RoundRequests,
        queries: Mapping[str, int],
        predictions: Mapping[str, int],
        on_batch: Callable[[], None],
    ) -> Ending:
        """Ask until all of ``queries`` have a label or an abstention, the budget ends, or the run is told to stop.

        Inputs that the parties open no more are left out.

        Parameters
        ----------
        requests : how inputs of the pool become requests.
        queries : the queries' keys and their positions in the pool, in the order in which they are asked.
        predictions : the student's own sure answers, for mechanisms that only confirm them.
        on_batch : called after every batch.

        Raises
        ------
        QuorumNotReached
            If too few parties are ready or answer.
        """
        keys, size, lost = list(queries), self._setup.config.queries.batch, frozenset[int]()
        batches = [keys[start : start + size] for start in range(0, len(keys), size)]
        while batches:
            asked = self._labeller.worth_asking([key for key in batches[0] if queries[key] not in lost])
            if not asked:
                batches.pop(0)
                continue
            teachers = self.ready()

            def counts_of(
                stage: Stage, chunk: Sequence[str], opening: BeforeOpening, teachers: dict[str, int] = teachers
            ) -> IntArray:
                return self._counts(requests, [queries[key] for key in chunk], teachers, stage.name, opening)

            try:
                if self._setup.mechanism.sum_per_stage:
                    fitted = self._labeller.label_by_stage(asked, counts_of)
                else:
                    counts = self._counts(requests, [queries[key] for key in asked], teachers, WHOLE_MECHANISM)
                    self._keep(asked, counts)
                    answers = np.array([predictions.get(key, NO_ANSWER) for key in asked], dtype=np.int64)
                    fitted = self._labeller.label(asked, counts, answers)
            except InputsLost as error:
                logger.warning("%s", error)
                lost |= error.inputs
                continue
            batches.pop(0)
            on_batch()
            self.show_ledger()
            if not fitted:
                break
            if self._setup.watch.should_stop():
                return Ending.TOLD_TO_STOP
        left = self._labeller.pending(key for key in keys if queries[key] not in lost)
        return Ending.BUDGET if left else Ending.ALL_LABELLED

    def ask_sum(self, requests: RoundRequests, before_opening: BeforeOpening) -> tuple[IntArray, int]:
        """Put the one sum over all records to the parties; the sum ``[length]`` and how many parties answered.

        ``before_opening`` is called before a sum that parties made noisy is opened.

        Raises
        ------
        QuorumNotReached
            If too few parties are ready or answer.
        """
        mechanism = self._setup.mechanism
        stage = mechanism.stages[0].name if mechanism.sum_per_stage else WHOLE_MECHANISM
        result = self._round(requests, (0,), self.ready(), stage, before_opening)
        return result.counts[0], len(result.answered)

    @cached_property
    def _readiness(self) -> Readiness:
        return Readiness(
            self._setup.reach.parties,
            self._roster,
            self._teacher,
            self._public,
            self._ledger,
            self._setup.reach.signing_keys,
            voted=None if self._setup.mechanism.record_budget is None else self._labeller.run_is_paid(),
        )

    @cached_property
    def _roster(self) -> list[str]:
        reach = self._setup.reach
        return sorted(reach.roster if reach.roster is not None else reach.parties.names())

    @property
    def _quorum(self) -> int:
        return quorum_count(self._setup.config.votes.quorum, len(self._roster))

    def show_ledger(self) -> None:
        """Show the parties that answered last how the ledger goes on; nobody, where no party was asked."""
        self._readiness.show_ledger(self._readiness.answered, self._setup.config.votes.deadline_s)

    def follow(self, answered: Collection[str] = ()) -> None:
        """Have all parties that are here follow the ledger to its last entry; from then on they know an older copy.

        Raises QuorumNotReached where too few of those that ``answered`` follow.
        """
        self._readiness.follow(self._setup.config.votes.deadline_s, answered, self._quorum)

    def spend(self, charge: int, answered: Collection[str] | None = None) -> None:
        """Spend a charge before anybody sees the noisy numbers that it pays for, with the knowledge of the parties.

        ``answered`` are the parties of these numbers, None those of the last round. Raises QuorumNotReached, and spends
        nothing, where too few of them follow the ledger; ReleaseLost where too few of them still do afterwards.
        """
        among = self._readiness.answered if answered is None else answered
        self.follow(among)
        self._ledger.spend(charge)
        try:
            self.follow(among)
        except QuorumNotReached as error:
            why = f"parties could not be told that entry {charge} of the ledger is spent: nothing was released under it"
            raise ReleaseLost(f"{why}; start again to pay anew ({str(error).partition(';')[0]})") from error

    def ready(self) -> dict[str, int]:
        """Prepare the parties; those that can answer, with their teachers. QuorumNotReached when they are too few."""
        votes, quorum = self._setup.config.votes, self._quorum
        self._readiness.prepare(
            deadline_s=votes.deadline_s,
            fit_deadline_s=votes.deadline_s if self._prepared else votes.fit_deadline_s,
            on_step=self._notes.tell,
        )
        self._prepared = True
        self._notes.record.note_statuses(self._readiness.statuses)
        require_quorum(self._readiness.outcomes(), quorum, "are ready")
        return self._readiness.ready()

    def _counts(
        self,
        requests: RoundRequests,
        indices: Sequence[int],
        teachers: dict[str, int],
        stage: str,
        opening: BeforeOpening = None,
    ) -> IntArray:
        """The counts ``[queries, classes]``, in as many rounds as the inputs need; who fails is asked no more."""
        try:
            result = self._round(requests, indices, teachers, stage, opening)
        except OpenedApart as error:
            parts = [self._counts(requests, [indices[row] for row in part], teachers, stage) for part in error.parts]
            counts: IntArray = np.concatenate(parts)[np.argsort(np.concatenate(error.parts))]
            return counts
        for party in result.outcomes.keys() - set(result.answered):
            del teachers[party]
        return result.counts

    def _round(
        self,
        requests: RoundRequests,
        indices: Sequence[int],
        teachers: Mapping[str, int],
        stage: str,
        before_opening: BeforeOpening,
    ) -> RoundResult:
        """Put one round to the parties; its counts are ``[queries, classes]``, or ``[1, length]`` of a sum."""
        setup, notes = self._setup, self._notes

        def opening(survivors: Sequence[str]) -> None:
            self._readiness.answered = list(survivors)
            if before_opening is not None:
                before_opening()

        asked = PoolRange(self._public.spec.sha256, tuple(indices))
        request = requests.request(setup.mechanism, setup.vote_sum.mode, asked, stage)
        began_s = notes.now_s()
        result = setup.vote_sum.sum_votes(
            VoteRound(
                request,
                teachers,
                width=request.length if isinstance(request, SumRecords) else len(setup.config.task.classes),
                deadline_s=setup.config.votes.deadline_s,
                quorum=self._quorum,
                contents=contents_of(self._public.pool.x[list(indices)]),
                on_answer=lambda done, asked: notes.tell("votes", done, asked),
                before_opening=opening,
            )
        )
        notes.record.note_round(request.round_id, len(indices), result, notes.now_s() - began_s)
        self._readiness.note_round(result.outcomes)
        notes.write()
        return result
