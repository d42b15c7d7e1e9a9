"""Counts of the parties' records: their charge, their release, and what run.json says of them.

Counts are paid for before the first label is bought, so that the labels cannot use up their share of the budget.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from collegium.coordinator.asking import RunQuestion
from collegium.coordinator.contradictions import Counted, check_shares, counted_in_cells
from collegium.coordinator.journal import Name, Part, Released
from collegium.coordinator.release import Releases, WholeVector
from collegium.coordinator.rounds.rounds import terms_of
from collegium.coordinator.run.counts_terms import counted_unit, counts_mechanism, counts_mode
from collegium.coordinator.run.factories import sum_in
from collegium.coordinator.run.run_record import CountsRecord, OtherCountsRecord, Table
from collegium.coordinator.run.surroundings import RunNotes, RunSetup
from collegium.coordinator.settings.kinds import CountSettings, count_kinds, round_names
from collegium.coordinator.settings.run_config import CountsConfig, RunConfig
from collegium.coordinator.statement import Slot
from collegium.errors import BudgetExceeded, CollegiumError, Contradiction, QuorumNotReached
from collegium.protocol.question import QuestionTerms, RecordsQuestion
from collegium_accounting.mechanisms import Mechanism
from collegium_accounting.mechanisms.record_counts import ONE
from collegium_accounting.renyi import FloatArray


class RecordCounting(ABC):
    """One kind of counts in one run; derive a class for each kind.

    Parameters
    ----------
    ledger_id : names the ledger under which the counts are released.
    """

    part: str
    """The part of run.json that says what came of the counts; charges and progress are called so as well."""
    rounds: int = 1
    """How many rounds share the noise that the counts are given."""

    def __init__(self, setup: RunSetup, notes: RunNotes, ledger_id: str, settings: CountsConfig) -> None:
        self._setup, self._notes, self._ledger_id = setup, notes, ledger_id
        self._config, self._settings, reach = setup.config, settings, setup.reach
        # The votes' own may be no sum of such counts, or have a sparse graph.
        self.sum = sum_in(counts_mode(setup.config, settings), setup.config, reach.parties, reach.signing_keys)

    @abstractmethod
    def _parts_and_cells(self) -> tuple[int, int]:
        """The cells that a record adds to, and all cells, of counts as they are paid for."""

    @property
    def noted(self) -> CountsRecord | None:
        """What run.json says; None before the counts were paid or found too dear."""
        noted: CountsRecord | None = getattr(self._notes.record, self.part)
        return noted

    @property
    def paid(self) -> CountsRecord | None:
        """What run.json says of counts that were paid for; None of others."""
        return self.noted if self.noted is not None and self.noted.paid else None

    def beside(self) -> list[Slot]:
        """Where these counts are released once beside the labels; nowhere where they were too dear."""
        return [self._slot(self.mechanism())[0]] if self.noted is None or self.noted.paid else []

    def pay(self, releases: Releases) -> None:
        """Charge the counts, unless that was done; where the budget does not take them, note that.

        run.json is not trusted: they are paid again unless the ledger holds an unspent charge, or counts were kept.
        """
        if self.noted is not None and not self.noted.paid:
            return
        statement, mechanism = releases.statement, self.mechanism()
        slot, name, kept_as = self._slot(mechanism)
        asked = self.paid is not None and self.paid.asked
        if asked or statement.unspent(slot, [name]) is not None:
            statement.take_apart(self.part)
        if asked:
            return
        known = mechanism.parameters()
        noted: dict[str, Any] = {"sum_mode": self.sum.mode, "sigma": known["sigma"], "parts": known["parts"]}
        try:
            if not releases.asking.journal.any_released(kept_as) and not releases.waits(slot, [name]):
                statement.pay(slot, [name])
            noted["paid"] = True
        except BudgetExceeded as error:
            noted["why_not"] = str(error)
        self._note(noted)

    def due(self, releases: Releases) -> bool:
        """Whether the parties are still to be asked; once `pay` said whether the budget takes it."""
        if self.paid is None or self.paid.asked:
            return False
        *_, kept_as = self._slot(self.mechanism())
        return not releases.asking.journal.any_released(kept_as)

    def mechanism(self, asked: int | None = None) -> Mechanism:
        """The counts, with the noise that was paid; ``asked`` is their number where it is not all that were paid."""
        settings, paid, (parts, cells) = self._settings, self.paid, self._parts_and_cells()
        if paid is not None and paid.parts == parts:
            # The charge was made for this noise. The configuration, or the budget, may have changed since.
            settings = settings.model_copy(update={"sigma": paid.sigma})
        return counts_mechanism(self._config, settings, parts, asked or cells, self.rounds)

    def _slot(self, mechanism: Mechanism) -> tuple[Slot, str, str]:
        """Where counts by ``mechanism`` are stated in the ledger, and what a charge for them is called there.

        Also what the journal calls them under this ledger, whatever they are about.
        """
        known, unit, study = mechanism.parameters(), self._config.budget.unit, self._setup.storage.study
        name = f"{self.part}|{study}|{unit}|{self.sum.mode}|{known['parts']}|{known['sigma']!r}"
        slot = Slot.once(self.part, mechanism, self.sum.added, unit, counted_unit(self._config))
        return slot, name, f"{self._ledger_id}|{name}"

    def _unspent(self, releases: Releases) -> bool:
        """Whether these counts are paid for and were not opened; without, there is no charge or they may be known."""
        slot, name, _ = self._slot(self.mechanism())
        return releases.statement.unspent(slot, [name]) is not None or releases.waits(slot, [name])

    def _attempt(self, releases: Releases, find: Callable[[], Mapping[str, Any]]) -> None:
        """Have ``find`` ask the parties, and note what it returns or why it failed."""
        assert self.noted is not None  # it was paid for
        known = self.noted.model_dump(include=set(CountsRecord.model_fields)) | {"asked": True, "why_not": None}
        self._note(known)
        try:
            with self._notes.timed(self.part):
                found = find()
        except CollegiumError as error:
            # Where too few answered before a sum was opened, the charge is good for another attempt.
            again = isinstance(error, QuorumNotReached) and self._unspent(releases)
            self._note(known | {"asked": not again, "why_not": str(error)})
            if isinstance(error, Contradiction):
                raise
            return
        self._note({**known, **found})

    def _terms(self, mechanism: Mechanism) -> tuple[QuestionTerms, str, bool]:
        """What each question for counts begins with."""
        most = self._config.budget.most_records
        terms = terms_of(mechanism, self.sum, mechanism.summed(self.sum.added)[0], most_records=most)
        return terms, self._ledger_id, self._config.budget.unit == "party"

    def _released(
        self, releases: Releases, mechanism: Mechanism, question: RecordsQuestion
    ) -> tuple[Released, tuple[str, ...], str]:
        """The counts that answer a question, from the journal or the parties; who was asked for them, in which round.

        Raises BudgetExceeded where they are to be paid and do not fit; QuorumNotReached.
        """
        slot, name, _ = self._slot(mechanism)
        rule, answered, asked = self._rule(releases, mechanism, question), tuple[str, ...](), question.name
        if rule.released is None:
            releases.asking.follow()  # an older copy of the ledger is noticed before records are counted
            ways = list[tuple[Slot, RunQuestion]]()
            for sums in releases.ways(self.sum):
                stated = slot.added_by(mechanism, sums.added)
                terms = terms_of(mechanism, sums, stated.stage, most_records=question.terms.most_records)
                put = replace(question, terms=terms)
                ways.append((stated, RunQuestion([name], put, sums, self.part, noted=False)))
            answered, put_so = releases.release_one(ways, rule.keeping, releases.asking.here)
            asked = put_so.question.name
        assert rule.released is not None  # it was kept now, or before
        return rule.released, answered, asked

    def _rule(self, releases: Releases, mechanism: Mechanism, question: RecordsQuestion) -> WholeVector:
        about, (*_, kept_as) = question.asked.hex(), self._slot(mechanism)
        return releases.vector(Name(kept_as, about), about)

    def _note(self, noted: Mapping[str, Any]) -> None:
        setattr(self._notes.record, self.part, noted)  # pydantic makes the part's own kind of record of it
        self._notes.write()


class CountsOnce(RecordCounting):
    """Counts that are taken once in a run, before labels are bought.

    After an error they are not taken again. Where too few parties answered, or the process died, the next start takes
    them, if they were kept or the ledger has their charge as not spent.
    """

    cells_add_up: ClassVar[bool] = True
    """Whether each record adds 1 to one cell of each part, so that cells tell how many records there are."""

    @abstractmethod
    def _asked(self) -> tuple[Mechanism, RecordsQuestion]:
        """The question, and the mechanism that noises its counts."""

    @abstractmethod
    def _found(self, counts: FloatArray, variance: float) -> Any:
        """What released counts ``[cells]``, in records, with noise of this variance on each, say."""

    def counted(self, releases: Releases) -> list[Counted]:
        """How many records were counted, of each group; none where it was not done, or cells do not tell it."""
        if self.paid is None:
            return []
        mechanism, question = self._asked()
        released = self._rule(releases, mechanism, question).released
        if released is None or question.per_party or not self._adds_one(mechanism):
            return []
        return [_records_in(self.part, part) for part in released.groups]

    def _adds_one(self, mechanism: Mechanism) -> bool:
        """Whether each record, or party, adds 1 to all cells together."""
        return self.cells_add_up and mechanism.parameters()["parts"] == 1

    def count(self, releases: Releases) -> None:
        """Ask the parties and note what was found, where the counts are paid for and were not taken yet."""
        if (paid := self.paid) is None or getattr(paid, "found", None) is not None:
            return
        mechanism, question = self._asked()
        failed = paid.asked and paid.why_not is not None
        if failed and not releases.asking.journal.any_released(self._slot(mechanism)[2]):
            return  # what is kept is judged again: a contradiction ends each start, as it did the first
        if self._unspent(releases):
            releases.asking.ready()
        elif self._rule(releases, mechanism, question).released is None:
            return  # they may have been seen

        def found() -> dict[str, Any]:
            released, *_ = self._released(releases, mechanism, question)
            if question.per_party and self._adds_one(mechanism):
                check_shares(_records_in(self.part, released))
            return {"found": self._found(released.values / ONE, (released.noise / ONE) ** 2)}

        self._attempt(releases, found)


class Noisy(NamedTuple):
    """Counts ``[cells]`` as they were released, in records, and their standard error."""

    counts: FloatArray
    error: float


class OtherCounts(CountsOnce, CountSettings):
    """A kind of counts from another package; derive a class and `settings.kinds.register_counts` it.

    Parameters
    ----------
    earlier : the rounds before this one, in their order. All rounds are paid before the first is asked.
    """

    cells_add_up = False

    def __init__(
        self,
        setup: RunSetup,
        notes: RunNotes,
        ledger_id: str,
        settings: CountsConfig,
        earlier: tuple["OtherCounts", ...] = (),
    ) -> None:
        super().__init__(setup, notes, ledger_id, settings)
        names = round_names(self.question.kind, settings)
        self.part, self.rounds, self._earlier = names[len(earlier)], len(names), earlier
        self._known: Noisy | None = None
        self.before: list[Noisy] = []
        """What the rounds before this one released, from which its question may follow."""

    def count(self, releases: Releases) -> None:
        if self._follows(releases):
            super().count(releases)
        elif (paid := self.paid) is not None:
            self._note(paid.model_dump() | {"why_not": "a round before this one was not released"})

    def counted(self, releases: Releases) -> list[Counted]:
        return super().counted(releases) if self._follows(releases) else []

    def known(self, releases: Releases) -> Noisy | None:
        """What was released; None before."""
        if self._known is None and self.paid is not None and self._follows(releases):
            released = self._rule(releases, *self._asked()).released
            self._known = None if released is None else Noisy(released.values / ONE, released.noise / ONE)
        return self._known

    def _follows(self, releases: Releases) -> bool:
        """Whether all rounds before this one were released."""
        self.before = [known for one in self._earlier if (known := one.known(releases)) is not None]
        return len(self.before) == len(self._earlier)

    @property
    def noted(self) -> OtherCountsRecord | None:
        return self._notes.record.counts.get(self.part)

    def _note(self, noted: Mapping[str, Any]) -> None:
        counts = self._notes.record.counts | {self.part: OtherCountsRecord.model_validate(noted)}
        self._notes.record.counts = counts
        self._notes.write()

    def _parts_and_cells(self) -> tuple[int, int]:
        return self.parts_and_cells(self._config, self._settings)

    def _asked(self) -> tuple[Mechanism, RecordsQuestion]:
        mechanism = self.mechanism()
        return mechanism, self.ask(*self._terms(mechanism))

    def _found(self, counts: FloatArray, variance: float) -> Table:
        return self.table(counts, math.sqrt(variance))

    @classmethod
    def columns_at(cls, config: RunConfig, names: Sequence[str]) -> list[int]:
        """Where these columns are in the table's schema; ValueError where it has no such column."""
        schema = [column.name for column in getattr(config.task.inputs, "columns", ())]
        if unknown := set(names) - set(schema):
            raise ValueError(f"counts.{cls.question.kind}: the schema has no column {', '.join(sorted(unknown))}")
        return [schema.index(name) for name in names]

    @abstractmethod
    def ask(self, terms: QuestionTerms, ledger_id: str, per_party: bool) -> RecordsQuestion:
        """The question, of the settings, the task and what was released `before`."""

    @abstractmethod
    def table(self, counts: FloatArray, error: float) -> Table:
        """What noisy counts ``[cells]``, in records, with this standard error each, come to with those `before`."""


def _records_in(part: str, released: Released | Part) -> Counted:
    """How many records counts are of to one cell of which each record adds."""
    return counted_in_cells(part.replace("_", " "), released.values, released.noise, released.parties)


def other_counts(setup: RunSetup, notes: RunNotes, ledger_id: str) -> list[OtherCounts]:
    """The counts of other packages that the configuration asks for, round by round."""
    asked = list[OtherCounts]()
    for name, settings in setup.config.counts.items():
        kind, rounds = count_kinds()[name], tuple[OtherCounts, ...]()
        assert issubclass(kind, OtherCounts)  # `register_counts` is for these
        for _ in round_names(name, settings):
            rounds += (kind(setup, notes, ledger_id, settings, rounds),)
        asked += rounds
    return asked
