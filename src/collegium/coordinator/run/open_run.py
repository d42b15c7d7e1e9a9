"""A run while its folder is locked and its ledger open: choosing, asking, labelling, fitting, reporting."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import numpy as np

from collegium.coordinator.asking import Asking
from collegium.coordinator.contradictions import Counted, check_counts
from collegium.coordinator.groups import Verdict
from collegium.coordinator.kind import RunFacts, Sums, kind_of
from collegium.coordinator.kinds.evaluation import PrivateEvaluation
from collegium.coordinator.kinds.labels import Labels
from collegium.coordinator.kinds.pool_check import PoolCheck
from collegium.coordinator.kinds.record_counts import CountsOnce, RecordCounting, other_counts
from collegium.coordinator.release import Releases
from collegium.coordinator.rounds.masked_sum import MaskedSum
from collegium.coordinator.rounds.rounds import ANSWERED
from collegium.coordinator.run.factories import ledger_id
from collegium.coordinator.run.foreseen import Foreseen, charged, origin_of
from collegium.coordinator.run.label_set import UNASKED, LabelSet, student_quality
from collegium.coordinator.run.run_record import (
    FEW_RECORDS,
    SAME_AGAIN,
    GroupsRecord,
    LedgerRecord,
    RunRecord,
    StudentRecord,
    begun,
    labels_record,
)
from collegium.coordinator.run.student_trainer import StudentTrainer
from collegium.coordinator.run.surroundings import RunNotes, RunSetup
from collegium.coordinator.selection.plan import Plan
from collegium.coordinator.statement import Statement
from collegium.errors import (
    BudgetExceeded,
    CollegiumError,
    Contradiction,
    CostRefused,
    DataError,
    FewPartiesRefused,
    MechanismRefused,
    MissingExtra,
    ModeRefused,
    NoiseRefused,
    PoolRefused,
    QueriesRefused,
    QuorumNotReached,
)
from collegium.logs import event
from collegium.models.noisy_sums import NoisySums
from collegium.models.students import mark_rehearsed, read_student
from collegium.privacy.analysis.ledger_report import ledger_report
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.rehearsals import is_rehearsal
from collegium_accounting.mechanisms import IntArray

logger = logging.getLogger("collegium.coordinator")

_UNCHOSEN = "a query that is not chosen yet"
"""In place of a key: whether the budget takes one more query does not depend on which query it is."""

LOST = (
    "%d inputs cannot be asked again: their one exact sum was begun, and since then parties have joined or left, or it "
    "failed while it was opened, or it is another study's"
)
"""What the log says of inputs that are left out."""


# More than 15 methods: the state of one run, which all of its steps change.
class OpenRun:
    """The state of a run that is open; made by `CoordinatorRun.prepare`.

    Parameters
    ----------
    ledger : pays for every answer; open.
    held : what an earlier start of this run left, None where there was none.

    Raises
    ------
    ConfigurationError
        If the settings do not fit the pool.
    """

    def __init__(self, setup: RunSetup, ledger: Ledger, held: RunRecord | None) -> None:
        config, folder, public = setup.config, setup.folder, setup.public
        self._setup, self._config, self._folder = setup, config, folder
        self._ledger = ledger
        record = begun(held, config, sum_mode=setup.vote_sum.mode, pool=public.spec)
        self._notes = RunNotes(record, folder, setup.watch)
        self._plan = Plan(config, public, setup.storage.study)
        self._trainer = StudentTrainer(config, public, setup.cache, setup.compute, self._notes.tell)
        named, study = ledger_id(ledger), setup.storage.study
        at = setup, self._notes, named
        self._evaluation = None if config.evaluation is None else PrivateEvaluation(*at, config.evaluation)
        check = None if config.pool_check is None else PoolCheck(*at, config.pool_check)
        self._counts: list[CountsOnce] = [*filter(None, [check]), *other_counts(*at)]
        self._counting: list[RecordCounting] = [*filter(None, [self._evaluation]), *self._counts]
        pretrained, noise = self._trainer.pretrained_network, setup.mechanism.noise_votes
        self._kind = kind_of(RunFacts(config, public.pool.x, public.spec.sha256, named, study, pretrained, noise))
        statement = self._stated()
        asking = Asking(setup, statement, ledger, self._notes, self._kind.teacher)
        self._releases = Releases(statement, asking, setup.noise, f"{named}|{study}")
        self._labels = Labels(setup, self._releases, ledger)
        self._sums = self._kind.sums(setup, self._releases, self._trainer)
        self._label_set, self._keys = self._plan.so_far(self.record, self._labels.all())

    @property
    def record(self) -> RunRecord:
        """What is known of the run; see run.json."""
        return self._notes.record

    def check(self) -> int:
        """See `CoordinatorRun.check`; how many queries the budget pays for, of those that have no label yet."""
        self._trainer.check()
        if self._held:
            return len(self._unchosen())
        indices = self._plan.noted(self.record)
        keys = [_UNCHOSEN] if indices is None else self._plan.keys(indices)
        self._why_nothing_to_ask(keys)
        return len(self._labels.worth_asking(self._unchosen()))

    def foresee(self) -> Foreseen:
        """What the run would still ask, reuse and pay; the ledger pays for all of it: give it copies of the files."""
        before, released = charged(self._ledger), len(self._held)
        self._pay_for_counts()
        affordable, statement, sums = self.check(), self._releases.statement, self._sums
        if sums is not None:
            for further in range(sums.lacking - 1, -1, -1):
                with suppress(BudgetExceeded):
                    statement.pay(statement.sums, [f"{_UNCHOSEN} {further}"], further=further)
        elif fresh := self._unchosen()[:affordable]:
            for slot in statement.stages:
                statement.pay(slot, fresh)
        first = self._sums.first_name if self._sums is not None and released else None
        counting = [one for one in self._counting if one.due(self._releases)]
        labels, terms = self._ledger.labels(), self._ledger.terms()
        return Foreseen(
            affordable=affordable,
            wanted=self._plan.size,
            decided=self._decided,
            taken=sum(key not in labels for key in self._labels.all()),
            sums=0 if sums is None else len(sums.held) + sums.lacking,
            held=released,
            origin=None if first is None else origin_of(self._ledger, first),
            counts=tuple(one.part for one in counting),
            unit=terms.unit,
            delta=self._ledger.settings.delta,
            budget=terms.epsilon_budget,
            before=before,
            after=charged(self._ledger),
        )

    @property
    def _decided(self) -> int:
        """How many queries have a label or an abstention."""
        return int((self._label_set.labels != UNASKED).sum())

    @property
    def _held(self) -> list[NoisySums]:
        """The sums over all records that were released; they label for nothing."""
        return [] if self._sums is None else self._sums.held

    def _unchosen(self) -> list[str]:
        """Names in place of the keys of queries that have no label yet."""
        return [f"{_UNCHOSEN} {number}" for number in range(self._plan.size - self._decided)]

    def evaluate(self) -> None:
        """Have the parties measure the student of the labels so far, where that is configured."""
        with self._errors_noted():
            self._fit_student()
            assert self.record.student is not None
            spoilt = frozenset[str]() if self._sums is None else self._sums.verdict.spoilt
            fitted_from = self.record.student.fitted_from
            if self._evaluation is not None:
                self._evaluation.measure(self._releases, self._folder.student, fitted_from, self._counted(), spoilt)
            self.record.refused = None

    def label(self) -> None:
        """Choose queries, and put them to the parties."""
        with self._errors_noted():
            self._pay_for_counts()
            self._label()

    @contextmanager
    def _errors_noted(self) -> Iterator[None]:
        """An error within becomes the state of the run.

        Where released numbers contradict each other, nothing is published: the student goes, and the report says why.
        """
        try:
            yield
        except CollegiumError as error:
            self.record.state = f"stopped: {error}"
            self._notes.write()
            if isinstance(error, Contradiction):
                self.record.refused, self.record.student = str(error), None
                self._folder.student.unlink(missing_ok=True)
                self._note_spending()
                self._write_report()
            raise

    def _counted(self) -> list[Counted]:
        """The records that were counted on the way, by whatever was released."""
        found = [] if self._sums is None else self._sums.counted
        return found + [counted for one in self._counts for counted in one.counted(self._releases)]

    def _pay_for_counts(self) -> None:
        """Charge what is counted of the parties' records before the first label, which cannot use up that share."""
        for counted in self._counting:
            counted.pay(self._releases)

    def fit(self) -> None:
        """Fit the student of the labels so far, measure it, and write the report."""
        with self._errors_noted():
            if self.record.refused is not None:
                raise Contradiction(self.record.refused)
            self._note_spending()
            self._fit_student()
            self._measure_baseline()
            self._report()

    def _stated(self) -> Statement:
        """What this run states to the ledger: labels, sums and counts."""
        mechanism = self._setup.mechanism
        units = {name: mechanism.unit(votes) for name, votes in self._kind.votes_per_unit.items()}
        sums = self._setup.vote_sum
        return Statement(
            self._ledger,
            mechanism,
            units.pop(self._config.budget.unit),
            added=sums.added,
            apart=sums.added_apart if isinstance(sums, MaskedSum) else (),
            others=units,
            queries=self._config.queries.count,
            classes=len(self._config.task.classes),
            bound=self._config.budget.bound,
            beside=[slot for one in self._counting for slot in one.beside()],
            study=self._setup.storage.study,
        )

    def _why_nothing_to_ask(self, keys: list[str]) -> str | None:
        """Why the budget takes none of ``keys`` any more, None where it does or all have a label.

        BudgetExceeded when it never took any of them.
        """
        if not self._labels.pending(keys) or self._labels.worth_asking(keys):
            return None
        stopped = self._why_stopped()
        if not self._labels.held(keys):
            raise BudgetExceeded(stopped)
        return stopped

    def _label(self) -> None:
        self.record.state = "labelling"
        for counted in self._counts:
            counted.count(self._releases)
        indices = self._plan.noted(self.record)
        if indices is None:
            # A quick choice is made even where the budget is spent, as its queries may have labels. A network is
            # trained for a choice only where the budget takes one more query.
            if self._plan.needs_training:
                self._why_nothing_to_ask([_UNCHOSEN])
            indices = self._choose()
        self._keys = self._plan.keys(indices)
        queries = dict[str, int]()
        for key, index in zip(self._keys, indices.tolist(), strict=True):
            queries.setdefault(key, index)  # where inputs of the pool are equal, the first stands for them
        stopped = None if self._held else self._why_nothing_to_ask(list(queries))
        if stopped is None and self._sums is not None:
            with self._notes.timed("labels"):
                stopped = self._label_by_sums(self._sums, queries)
        elif stopped is None and self._labels.pending(queries):
            with self._notes.timed("labels"):
                told_to_stop = self._ask(queries)
            if told_to_stop:
                self._notes.write()
                return
            if set(self._labels.pending(queries)) - self._labels.lost(list(queries)):
                stopped = self._why_stopped()
        self._label_set = LabelSet.of(indices, self._keys, self._labels.held(self._keys))
        self._note_labels(stopped)

    def _ask(self, queries: Mapping[str, int]) -> bool:
        """Have labels of ``queries``, batch by batch, until the budget ends; True where the run was told to stop."""
        if lost := self._labels.lost(list(queries)):
            logger.warning(LOST, len(lost))
        keys, size = [key for key in queries if key not in lost], self._config.queries.batch
        for start in range(0, len(keys), size):
            batch = {key: queries[key] for key in keys[start : start + size]}
            if not self._labels.worth_asking(list(batch)):
                continue
            fitted = self._labels.ask(self._kind, batch)
            self._note_batch()
            if not fitted:
                break
            if self._setup.watch.should_stop():
                return True
        return False

    def _label_by_sums(self, sums: Sums, queries: Mapping[str, int]) -> str | None:
        """Label all queries that have no label from sums over all records; returns why labels or a sum are missing.

        Where the budget, the parties' policies or the sums so far leave no further one, those so far label all.
        """
        pending, missing = self._labels.pending(queries), ""
        if not pending and self.record.labels is not None:
            return self.record.labels.stopped
        same = bool(pending) and not sums.lacking and not self.record.rounds
        if pending:
            try:
                sums.take()
            except CollegiumError as error:
                if not sums.held and isinstance(error, BudgetExceeded):
                    return self._why_stopped()
                if not sums.held or (why := _for_good(error)) is None:
                    raise
                missing = f": {why}"
            check_counts(self._counted())
            self._note_groups(sums.verdict)
            self._note_head()
        if not sums.held:  # all inputs had labels
            return None
        found = sums.held[-1].of_pool(self._setup.public.pool.x, self._config.task, self._setup.compute.device)
        if pending:
            if not self._labels.give({key: queries[key] for key in pending}, found.probabilities, len(sums.held)):
                return self._why_stopped()
            self._note_batch()
        known, all_ = len(sums.held), len(sums.held) + sums.lacking
        notes = [SAME_AGAIN] if same else []
        if known < all_:
            notes = [f"labels and student follow from {known} of {all_} class sums alone{missing}"]
        if found.drowned is not None:
            notes.append(FEW_RECORDS.format(*found.drowned))
            logger.warning("%s", notes[-1], extra=event("few-records"))
        return "; ".join(notes) or None

    def _note_groups(self, verdict: Verdict) -> None:
        """Note how the institutions were summed, and tell which of them are left out."""
        members = [[*group] for group in verdict.members]
        self.record.groups = GroupsRecord(members=members, left_out=verdict.left_out, why=verdict.why or None)
        if verdict.left_out is not None:
            logger.warning("%s", verdict.why, extra=event("group-left-out"))

    def _why_stopped(self) -> str:
        return self._releases.statement.why_stopped(self._config.budget.epsilon)

    def _choose(self) -> IntArray:
        with self._notes.timed("choosing"):
            self.record.chosen = self._plan.choose(self._trainer)
        self._notes.write()
        return np.array(self.record.chosen.indices, dtype=np.int64)

    def _note_labels(self, stopped: str | None) -> None:
        indices, labels, record = self._label_set.indices, self._label_set.labels, self.record
        record.labels = labels_record(labels, indices, self._setup.public, self._config.task, stopped)
        self._note_spending()
        record.state = "labelled"
        rows = zip(indices.tolist(), labels.tolist(), strict=True)
        given = [(index, label if label >= 0 else None) for index, label in rows]
        self._folder.write_labels(given, self._config.task.label_columns)
        self._notes.write()

    def _note_spending(self) -> None:
        """What the ledger says now: other runs may have spent from it since the labels were counted."""
        self.record.privacy = ledger_report(self._ledger)
        self._note_head()

    def _note_head(self) -> None:
        """Write the ledger's head into run.json, so that an older copy of the ledger is noticed later."""
        signed = self._setup.storage.signer is not None
        self.record.ledger = LedgerRecord(head=str(self._ledger.head()), signed=signed)

    def _note_batch(self) -> None:
        """Note the ledger's head, tell how many queries are labelled, and show parties how the ledger goes on."""
        self._note_head()
        self._notes.write()
        distinct = list(dict.fromkeys(self._keys))
        self._notes.tell("labels", len(self._labels.held(distinct)), len(distinct))
        self._releases.asking.show_ledger()

    def _fit_student(self) -> None:
        origin = self._trainer.origin(self._label_set)
        done = self.record.student
        if done is not None and done.fitted_from == origin and self._folder.student.exists():
            return
        with self._notes.timed("student"):
            student = self._trainer.fit(self._label_set, sums=self._held[-1] if self._held else None)
        student.save(self._folder.student)
        if is_rehearsal(self._config.name):
            mark_rehearsed(self._folder.student)
        published = read_student(self._folder.student, device=self._setup.compute.device)
        holdout, quality = self._setup.public.holdout, None
        if holdout is not None:
            quality = student_quality(published, holdout.x, holdout.labels(), self._config.task)
        self.record.student = StudentRecord(method=self._config.student.method, fitted_from=origin, quality=quality)
        self._notes.write()

    def _measure_baseline(self) -> None:
        measure = self._setup.watch.baseline
        if measure is None or self.record.baseline is not None:
            return
        with self._notes.timed("baseline"):
            self.record.baseline = measure()
        self._notes.write()

    def _report(self) -> None:
        from collegium.coordinator.report.model_card import write_model_card

        self.record.state = "finished"
        self._write_report()
        if (student := self.record.student) is not None:
            write_model_card(self._folder.student, self._config.task, student.method, student.quality, self.record)
        self._notes.tell("report", 1, 1)

    def _write_report(self) -> None:
        from collegium.coordinator.report.page import write_report

        self._notes.write()
        write_report(self.record, self._folder.report)


def _for_good(error: CollegiumError) -> str | None:
    """Why another try fails too: the budget, nothing to learn, or that each party which failed refused; else None."""
    if isinstance(error, BudgetExceeded | DataError):
        return str(error)
    if not isinstance(error, QuorumNotReached):
        return None
    failed = [outcome for outcome in error.outcomes.values() if outcome != ANSWERED]
    lasting = (QueriesRefused, CostRefused, ModeRefused, MechanismRefused, NoiseRefused, PoolRefused, FewPartiesRefused)
    refusals = (*(one.code for one in lasting), MissingExtra.code)
    refused = bool(failed) and all(outcome.startswith(refusals) for outcome in failed)
    return f"{len(failed)} institutions gave none ({'; '.join(sorted(set(failed)))})" if refused else None
