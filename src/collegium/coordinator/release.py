"""A release: a question is paid for, put to the parties, opened, made noisy, and kept, in that order.

What is durable in each state, and what a start after a crash does with it:

* paid: the charge, which names the question, is in the ledger. It is taken up again, and pays for the same question.
* asked: nothing about records is known. The question is put again.
* collected, under masks: what opens the sum is in the journal. It is opened from there, by whichever process.
* opened, where the parties added the noise: the charge is spent in the ledger on this sum, with the knowledge of the
  parties, before anybody can open it. Where the process dies before it is kept, the same sum is opened again.
* opened, where the coordinator adds the noise: exact numbers are in memory alone. The charge of a vector is spent
  before its noise is drawn; labels are drawn and released under it at once.
* kept: labels are in the ledger, a vector is in the journal beside it. Nothing follows from an answer before. The
  parties are told that the sum is settled, and forget what opens it.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from collegium.coordinator.asking import Asking, RunQuestion
from collegium.coordinator.journal import Journal, Name, OpenSum, Part, Released
from collegium.coordinator.noise import CoordinatorNoise, noise_on_entries
from collegium.coordinator.rounds.masked_sum import MaskedSum
from collegium.coordinator.rounds.rounds import GroupCounts, VoteSum
from collegium.coordinator.statement import Slot, Statement
from collegium.errors import QuorumNotReached
from collegium.whole_files import write_digested
from collegium_accounting.mechanisms import IntArray, Stage

Keep = Callable[[int, Stage, Sequence[GroupCounts]], None]
"""Adds the noise that the coordinator draws at a stage to opened numbers, and keeps what follows, under a charge."""

Rule = Callable[[RunQuestion], AbstractContextManager[Keep]]
"""A context around asking and keeping, which makes room for what is to be kept; it is durable at its end."""


@dataclass(frozen=True, eq=False)
class Releases:
    """What the releases of one run have in common.

    Parameters
    ----------
    statement : pays for them.
    asking : puts their questions to the parties.
    run : names it among all runs of the journal.
    """

    statement: Statement
    asking: Asking
    noise: CoordinatorNoise
    run: str

    def release(
        self, slot: Slot, question: RunQuestion, rule: Rule, parties: dict[str, int], known: IntArray | None = None
    ) -> tuple[str, ...]:
        """Pay for a question, or take up a charge for it, put it to the parties, and keep what follows from it.

        Parameters
        ----------
        slot : where the run stated it to the ledger.
        parties : to be asked, each with its number of teachers. Those that fail are taken out of it.
        known : the exact numbers where they were opened before; they are in memory alone.

        Returns
        -------
        The parties whose answers are in it; none where nobody had to be asked.

        Raises
        ------
        BudgetExceeded
            If it does not fit; nothing is charged then.
        QuorumNotReached, ReleaseLost
            If too few parties answer, or follow the ledger.
        """
        begun = self.begun(slot, question)
        if begun is None or begun.charge is None:
            charge = self.statement.pay(slot, question.names, further=question.further)
        else:
            charge = begun.charge
        answered = tuple[str, ...]()
        with rule(question) as keep:
            if known is not None:
                groups: Sequence[GroupCounts] = [GroupCounts(known, ())]
            else:
                paid, noisy = question.paid_by(charge), slot.stage.added.parties
                result = self.asking.total(paid, parties, charge if noisy else None, begun)
                groups, answered = result.groups, result.answered
                if question.of_records and not noisy:
                    self.asking.spend(charge, answered)
            keep(charge, slot.stage, groups)
        for sum_ in self.asking.journal.open_sums() if answered else []:
            if sum_.charge == charge or (sum_.charge is None and question.answered_by(sum_)):
                self.asking.journal.settle(sum_)
        return answered

    def release_one(
        self, ways: Sequence[tuple[Slot, RunQuestion]], rule: Rule, parties: dict[str, int]
    ) -> tuple[tuple[str, ...], RunQuestion]:
        """As `release`, in one of the `ways` of adding it up: begun before, of all if they are there, or the last.

        Returns the question as it was put, too.

        Once a party that was there stays away from a sum of all, the run asks for none again: what the others sent is
        counted at each of them, and their policies have room for that once.
        """
        last = ways[-1]
        begun = [way for way in ways if self.begun(*way)]
        way = begun[0] if begun else ways[0 if self.all_are(parties, last[1].sums) else -1]
        try:
            answered = self.release(*way, rule, parties)
        except QuorumNotReached:
            if way is last or self.begun(*way):
                raise
            self._try_no_more()
        else:
            if way is not last and answered and not begun and not self.all_are(answered, last[1].sums):
                self._try_no_more()  # a group lacked several, and all others were summed together
            return answered, way[1]
        return self.release(*last, rule, self.asking.ready(last[1].sums)), last[1]

    @staticmethod
    def ways(sums: VoteSum) -> list[VoteSum]:
        """How a vector may be added up: of all parties, with less noise, and else of those that answer."""
        if not isinstance(sums, MaskedSum) or sums.of_all.added == sums.added:
            return [sums]
        return [sums.of_all, sums]

    def all_are(self, here: Collection[str], sums: VoteSum) -> bool:
        """Whether all parties of a sum are there, and none of them stayed away from a sum of all of this run before."""
        return isinstance(sums, MaskedSum) and sums.roster.keys() <= set(here) and not self._without_all.exists()

    def _try_no_more(self) -> None:
        write_digested(self._without_all, b"")

    @property
    def _without_all(self) -> Path:
        """Is there where a party stayed away from a sum of all."""
        return self.asking.journal.folder / f"sums-without-all-{hashlib.sha256(self.run.encode()).hexdigest()[:16]}"

    def vector(self, name: Name, drawn_for: str) -> "WholeVector":
        """A vector that is released as a whole; see `WholeVector`."""
        return WholeVector(self.asking.journal, self.noise, name, drawn_for)

    def begun(self, slot: Slot, question: RunQuestion) -> OpenSum | None:
        """The sum of this question that was collected and not opened yet; None without one."""
        return next((sum_ for sum_ in self._may_open(slot, question.names) if question.answered_by(sum_)), None)

    def waits(self, slot: Slot, names: Sequence[str]) -> bool:
        """Whether a noisy sum about these names is paid for and was not opened yet."""
        return any(sum_.charge is not None for sum_ in self._may_open(slot, names))

    def _may_open(self, slot: Slot, names: Sequence[str]) -> list[OpenSum]:
        """The sums about these names that were not opened yet; noisy ones where a charge pays for them."""
        may_open = self.statement.may_open
        about = [sum_ for sum_ in self.asking.journal.open_sums() if sum_.names == tuple(names)]
        return [s for s in about if s.charge is None or may_open(slot, names, s.charge, s.setup.hex())]


@dataclass(frozen=True, eq=False)
class WholeVector:
    """A vector that is released as a whole.

    Parameters
    ----------
    name : of the question, as it is charged, and what it is about, where several are charged alike.
    drawn_for : names the vector where the coordinator's noise follows from a seed.
    """

    journal: Journal
    noise: CoordinatorNoise
    name: Name
    drawn_for: str

    @property
    def released(self) -> Released | None:
        """The vector, by groups; None before it was released. Raises StorageError where its file is damaged."""
        return self.journal.released(self.name)

    @contextmanager
    def keeping(self, question: RunQuestion) -> Iterator[Keep]:
        """The `Rule` of its release."""
        groups = len(question.sums.divided) if isinstance(question.sums, MaskedSum) else 1
        with self.journal.room(self.name, question.question.shape[1], max(1, groups)) as write:

            def keep(charge: int, stage: Stage, sums: Sequence[GroupCounts]) -> None:
                noisy = [(self.noise.vector(stage, counts[0], self.drawn_for), parties) for counts, parties in sums]
                write(Released(tuple(Part(one, noise_on_entries(stage, len(who)), who) for one, who in noisy)))

            yield keep
