"""One run, from a configuration to a student and a report, over any `Parties`.

Every step leaves what it did in the run's folder, so that a run that was interrupted is started again
by the same call: labels and charges are found in the ledger, chosen queries in run.json, a fitted student by what it
was fitted from, and the rest costs nothing to repeat.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.report.spending import spending
from collegium.coordinator.rounds.parties import Parties
from collegium.coordinator.rounds.round_requests import RoundRequests, build_requests
from collegium.coordinator.rounds.rounds import VoteSum
from collegium.coordinator.run.evaluation import prediction_quality
from collegium.coordinator.run.factories import ledger_id, mechanism_of, noise_strategy_of, open_ledger, vote_sum_of
from collegium.coordinator.run.label_set import UNASKED, LabelSet
from collegium.coordinator.run.labeller import Labeller
from collegium.coordinator.run.progress import Progress
from collegium.coordinator.run.query_runner import QueryRunner
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.run_record import (
    BaselineRecord,
    LedgerRecord,
    PrivacyRecord,
    RunRecord,
    StudentRecord,
    begun,
    check_same_run,
    labels_record,
)
from collegium.coordinator.run.student_trainer import StudentTrainer
from collegium.coordinator.selection.queries import query_key, sure_answers
from collegium.coordinator.selection.query_selector import Plan, QuerySelector
from collegium.coordinator.settings.public_data import PublicData, load_public
from collegium.coordinator.settings.run_config import DISTILLATION, RunConfig
from collegium.data import array_spec
from collegium.errors import BudgetExceeded, CollegiumError, LedgerCorrupt
from collegium.privacy.ledger.chain import Head
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.mechanisms import IntArray
from collegium.whole_files import remove_stale_temp_files

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["Baseline", "Coordinator", "Progress"]

Baseline = Callable[[], BaselineRecord]
"""Measures what pooled data would have given, without privacy; only a simulation can."""

_UNCHOSEN = "a query that is not chosen yet"
"""In place of a key: whether the budget takes one more query does not hang on which."""


class Coordinator:
    """Drives one run.

    Parameters
    ----------
    config : what was asked.
    parties : how parties are reached.
    folder : where the run's files go; made if it is not there.
    signer : the coordinator's identity, which signs the ledger; None leaves it unsigned (simulations).
    roster : every admitted party; those reachable now where it is None. The quorum is a fraction of it.
    public : pool and holdout, where they are loaded already.
    data_root : where data sources are looked for otherwise.
    positions : the pool's inputs to label, in this order; those that ``config`` asks where it is None.
    ledger : the file of the ledger that pays; the folder's own where it is None.
    cache : folder of what is learned on the way (pretrained networks, students of earlier rounds); the run's own
        where it is None. Runs may share one.
    signing_keys : Ed25519 public key of every party on the roster; the masked modes need them.
    vote_sum : how votes are added up; by ``config.votes.mode`` where it is None.
    research : also record what only a simulation may know (gaps, teachers' accuracy, data-dependent ε).
    keep_votes : also keep the vote histograms on disk: private data, for simulations alone.
    baseline : measures a non-private model for comparison.
    clock : monotonic seconds.
    progress : called as steps go on.
    """

    def __init__(
        self,
        config: RunConfig,
        parties: Parties,
        folder: Path,
        *,
        signer: Ed25519PrivateKey | None = None,
        roster: Sequence[str] | None = None,
        public: PublicData | None = None,
        data_root: Path | None = None,
        positions: Sequence[int] | None = None,
        ledger: Path | None = None,
        cache: Path | None = None,
        signing_keys: Mapping[str, bytes] | None = None,
        vote_sum: VoteSum | None = None,
        research: bool = False,
        keep_votes: bool = False,
        baseline: Baseline | None = None,
        device: str = "auto",
        threads: int = 1,
        clock: Callable[[], float] = time.monotonic,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._config = config
        self._parties = parties
        self._folder = RunFolder(folder)
        self._signer = signer
        self._roster = roster
        self._public = public
        self._data_root = data_root
        self._positions = positions
        self._ledger_file = ledger or self._folder.ledger
        self._cache = cache or self._folder.learned
        self._vote_sum = vote_sum or vote_sum_of(config, parties, signing_keys)
        self._research = research
        self._keep_votes = keep_votes
        self._baseline = baseline
        self._device, self._threads = device, threads
        self._clock = clock
        self._progress = progress
        self._mechanism = mechanism_of(config, self._vote_sum)
        self._draw = noise_strategy_of(config)

    def run(self, *, only_labels: bool = False) -> RunRecord:
        """Do the whole run, or what is left of it, and return its record.

        With ``only_labels`` it ends once the parties are no longer needed; another call does the rest.

        Raises
        ------
        StorageError, before any work, when the folder cannot be written; LedgerCorrupt; ConfigurationError,
        when the folder holds another run; BudgetExceeded, before any party is asked, when not one query fits;
        QuorumNotReached; DataError.
        """
        with self._opened() as ledger:
            try:
                self._label(ledger)
                if not only_labels:
                    self._fit_student()
                    self._measure_baseline()
                    self._finish(ledger)
            except CollegiumError as error:
                self._run.state = f"stopped: {error}"
                self._folder.write(self._run)
                raise
        return self._run

    def check(self) -> None:
        """Raise now what `run` would raise before it asks any party, or at its end over the student's settings.

        For whoever has to start parties first: they need not start for a run that cannot go on.
        """
        with self._opened() as ledger:
            self._learning.check(votes_are_kept=self._research and self._vote_sum.mode != "masked+noised")
            indices = self._plan.noted(self._run, 0, LabelSet.nothing())
            keys = [_UNCHOSEN] if indices is None else self._keys_of(indices)
            self._why_nothing_to_ask(self._labeller(ledger), keys, keys)

    @contextmanager
    def _opened(self) -> Iterator[Ledger]:
        self._folder.prepare()
        with self._folder.lock():
            remove_stale_temp_files(self._folder.path)
            self._data = self._public or load_public(self._config, self._data_root)
            self._pool = array_spec(self._data.pool.x)
            if (held := self._folder.read()) is not None:
                check_same_run(held, self._config, self._pool, self._folder.path)
                if held.ledger is not None and not self._ledger_file.exists():
                    raise LedgerCorrupt(f"{self._ledger_file} is gone: restore it, or start in another folder")
            noised = self._vote_sum.mode == "masked+noised"
            with closing(
                open_ledger(self._config, self._mechanism, self._ledger_file, self._signer, noised_sum=noised)
            ) as ledger:
                if held is not None and held.ledger is not None:
                    ledger.require(Head.parse(held.ledger.head))
                self._begin(ledger, held)
                yield ledger

    def _begin(self, ledger: Ledger, held: RunRecord | None) -> None:
        pool = self._data.pool.x
        self._plan = Plan(self._config, self._pool, self._positions)
        self._learning = StudentTrainer(
            self._config, pool, self._pool, self._cache, device=self._device, threads=self._threads, tell=self._tell
        )
        self._choosing = QuerySelector(self._config, self._plan, pool, self._learning)
        self._questions = build_requests(self._config, pool, ledger_id(ledger), self._learning.pretrained_network)
        self._histograms: dict[str, IntArray] = {}
        self._run = begun(
            held,
            self._config,
            self._mechanism,
            sum_mode=self._vote_sum.mode,
            private_noise=self._draw.private,
            pool=self._pool,
        )

    def _labeller(self, ledger: Ledger) -> Labeller:
        units = {name: self._mechanism.unit(votes) for name, votes in self._questions.votes_per_unit.items()}
        return Labeller(
            ledger,
            self._mechanism,
            units.pop(self._config.budget.unit),
            self._draw,
            others=units,
            bound=self._config.budget.bound,
            take_up=self._vote_sum.mode != "masked+noised",
        )

    def _keys_of(self, indices: IntArray) -> list[str]:
        return [query_key(self._data.pool.x[index]) for index in indices]

    def _why_nothing_to_ask(self, labeller: Labeller, keys: list[str], so_far: list[str]) -> str | None:
        """Why the budget takes none of ``keys`` any more, None where it does or all have a label.

        BudgetExceeded when it never took any of those chosen ``so_far``.
        """
        if not labeller.pending(keys) or labeller.worth_asking(keys):
            return None
        stopped = labeller.why_stopped(self._config.budget.epsilon)
        if not labeller.labels(so_far):
            raise BudgetExceeded(stopped)
        return stopped

    def _label(self, ledger: Ledger) -> None:
        """Round by round: choose, ask, and go on with what came of it."""
        labeller = self._labeller(ledger)
        asking = QueryRunner(
            self._config,
            self._parties,
            self._roster,
            self._data,
            self._pool,
            self._mechanism,
            self._vote_sum,
            labeller,
            self._run,
            self._folder,
            clock=self._clock,
            tell=self._tell,
            keep=self._remember if self._research or self._keep_votes else None,
        )

        def labelled() -> None:
            self._note_head(ledger)
            self._folder.write(self._run)
            self._tell_labels(labeller)

        self._label_set, self._keys, stopped = LabelSet.nothing(), list[str](), None
        for number in range(len(self._plan.sizes)):
            indices = self._plan.noted(self._run, number, self._label_set)
            if indices is None:
                # What is quick to choose is looked up, as it may have labels; for nothing else is a network trained.
                slow = self._choosing.learns(number)
                if slow and (stopped := self._why_nothing_to_ask(labeller, [_UNCHOSEN], self._keys)):
                    break
                indices = self._choose(number)
            keys = self._keys_of(indices)
            self._keys += keys
            queries = {key: int(index) for key, index in zip(reversed(keys), reversed(indices), strict=True)}
            queries = {key: queries[key] for key in dict.fromkeys(keys)}
            stopped = self._why_nothing_to_ask(labeller, list(queries), self._keys)
            if stopped is None and labeller.pending(queries):
                questions, predictions = self._with_student(queries)
                with self._timed("labels"):
                    if not asking.ask(questions, queries, predictions, labelled):
                        stopped = labeller.why_stopped(self._config.budget.epsilon)
            self._label_set = self._label_set.followed_by(LabelSet.of(indices, keys, labeller.labels(keys)))
            if stopped is not None:
                break
        self._note_labels(ledger, stopped)

    def _note_head(self, ledger: Ledger) -> None:
        """So that an older copy of the ledger is noticed when the run is taken up again."""
        self._run.ledger = LedgerRecord(head=str(ledger.head()), signed=self._signer is not None)

    def _choose(self, number: int) -> IntArray:
        with self._timed("choosing"):
            choice, indices = self._choosing.choose(number, self._label_set)
        self._run.note_choice(number, self._plan.origin(number, self._label_set), choice, indices)
        self._folder.write(self._run)
        return indices

    def _with_student(self, queries: Mapping[str, int]) -> tuple[RoundRequests, dict[str, int]]:
        """The questions as the student of the labels so far would put them, and its own sure answers, by key."""
        interactive = any(stage.needs_prediction for stage in self._mechanism.stages)
        if not self._label_set.teaches or not (interactive or self._questions.want_student):
            return self._questions, {}
        with self._timed("choosing"):
            student = self._learning.interim(self._label_set)
            questions = self._questions.informed_by(student) if self._questions.want_student else self._questions
            if not interactive:
                return questions, {}
            probabilities = student.probabilities(self._data.pool.x[list(queries.values())])
        answers = sure_answers(probabilities, self._config.queries.confidence)
        return questions, dict(zip(queries, answers.tolist(), strict=True))

    def _note_labels(self, ledger: Ledger, stopped: str | None) -> None:
        indices, labels = self._label_set.indices, self._label_set.labels
        unchosen = sum(self._plan.sizes) - len(indices)
        self._run.labels = labels_record(labels, indices, unchosen, self._data, self._config.task, stopped)
        self._run.privacy = PrivacyRecord.model_validate(self._run.privacy.model_dump() | spending(ledger))
        self._note_head(ledger)
        self._run.state = "labelled"
        rows = zip(indices.tolist(), labels.tolist(), strict=True)
        given = [(index, label if label >= 0 else None) for index, label in rows]
        self._folder.write_labels(given, self._config.task.label_columns)
        self._folder.write(self._run)

    def _remember(self, keys: Sequence[str], counts: IntArray) -> None:
        fresh = dict(zip(keys, counts, strict=True))
        self._histograms |= fresh
        if self._keep_votes:
            self._folder.keep_votes(fresh)

    def _fit_student(self) -> None:
        from collegium.coordinator.students import load_student

        origin = self._learning.origin(self._label_set)
        done = self._run.student
        if done is not None and done.fitted_from == origin and self._folder.student.exists():
            return
        with self._timed("student"):
            student = self._learning.fit(self._label_set, soft_targets=self._soft_targets())
        student.save(self._folder.student)
        published = load_student(self._folder.student, device=self._device)
        holdout, quality = self._data.holdout, None
        if holdout is not None:
            quality = prediction_quality(published.predict(holdout.x), holdout.labels(), self._config.task)
        self._run.student = StudentRecord(method=self._config.student.method, fitted_from=origin, quality=quality)
        self._folder.write(self._run)

    def _soft_targets(self) -> NDArray[np.float64] | None:
        """The teachers' votes without noise, for the one student that learns them; None for all others."""
        if not self._research or self._config.student.method != DISTILLATION:
            return None
        kept = self._folder.kept_votes() | self._histograms
        keys = [key for key, label in zip(self._keys, self._label_set.labels, strict=True) if label >= 0]
        if not keys or any(key not in kept for key in keys):
            return None
        counts = np.stack([kept[key] for key in keys])
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))

    def _measure_baseline(self) -> None:
        if self._baseline is None or self._run.baseline is not None:
            return
        with self._timed("baseline"):
            self._run.baseline = self._baseline()
        self._folder.write(self._run)

    def _finish(self, ledger: Ledger) -> None:
        from collegium.coordinator.report import write_report

        if self._research:
            self._diagnose()
        self._run.state = "finished"
        self._folder.write(self._run)
        write_report(self._run, self._folder.report, research=self._research)
        self._tell("report", 1, 1)

    def _diagnose(self) -> None:
        from collegium.coordinator.report.research import research_figures

        kept = self._folder.kept_votes() | self._histograms
        labelled = self._label_set.labels != UNASKED
        rows = [row for row, key in enumerate(self._keys) if labelled[row] and key in kept]
        if len(rows) <= (self._run.research_only.queries if self._run.research_only is not None else 0):
            return  # nothing beyond what an earlier start of this run saw
        truth = self._data.pool.y
        with self._timed("research"):
            self._run.research_only = research_figures(
                np.stack([kept[self._keys[row]] for row in rows]),
                None if truth is None else truth[self._label_set.indices[rows]],
                self._mechanism,
                delta=self._config.budget.delta,
                continuous=self._config.mechanism.noise == "continuous",
                labelled=int(labelled.sum()),
            )

    def _tell_labels(self, labeller: Labeller) -> None:
        """Of all rounds; those not chosen yet count in full."""
        distinct = list(dict.fromkeys(self._keys))
        unchosen = sum(self._plan.sizes) - len(self._keys)
        self._tell("labels", len(labeller.labels(distinct)), len(distinct) + unchosen)

    def _tell(self, step: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(Progress(step, done, total))

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        began_s = self._clock()
        yield
        self._run.note_seconds(step, self._clock() - began_s)
