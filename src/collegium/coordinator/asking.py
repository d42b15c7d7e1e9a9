"""The parties of a run as its releases ask them: who is ready, the sum of their answers, and the ledger they follow."""

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from collegium.coordinator.journal import Begun, Journal, OpenSum
from collegium.coordinator.rounds.masked_sum import MaskedSum, MaskedTotal
from collegium.coordinator.rounds.readiness import Readiness
from collegium.coordinator.rounds.rounds import (
    ANSWERED,
    OnAnswer,
    RoundResult,
    VoteRound,
    VoteSum,
    quorum_count,
    require_quorum,
)
from collegium.coordinator.run.surroundings import RunNotes, RunSetup
from collegium.coordinator.selection.queries import study_of
from collegium.coordinator.statement import Statement
from collegium.data.task import TeacherSettings
from collegium.errors import QuorumNotReached, ReleaseLost
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.question import Question, encode
from collegium.protocol.secure_sum.errors import ImpossibleTotal
from collegium.protocol.secure_sum.state import Collected
from collegium_accounting.mechanisms import SumMode
from collegium_accounting.units import IntArray


@dataclass(frozen=True, eq=False)
class RunQuestion:
    """A question as a run puts it to all parties: what is asked, what pays for it and how answers are added up.

    Parameters
    ----------
    names : what a release of it is charged for: the keys of queries, or one name of the whole.
    question : what all parties are asked at once.
    sums : how the answers are added up.
    step : the name under which progress is told.
    further : of the questions that are stated to the ledger, how many must fit beside it.
    noted : whether it is a round of the run's labels.
    read : what opened counts say; see `kind.RunKind.votes`.
    """

    names: Sequence[str]
    question: Question
    sums: VoteSum = field(repr=False)
    step: str = "votes"
    further: int = 0
    noted: bool = True
    read: Callable[[Question, IntArray], IntArray] = field(default=lambda _, counts: counts, repr=False)

    @property
    def of_records(self) -> bool:
        """Whether it is about all records, and not about inputs of the pool."""
        return self.question.whole_vector

    def answered_by(self, sum_: OpenSum) -> bool:
        """Whether a sum that is to be opened is of this question."""
        own = (self if sum_.charge is None else self.paid_by(sum_.charge)).question
        return own.kind == sum_.question.kind and encode(own) == encode(sum_.question)

    def paid_by(self, charge: int) -> "RunQuestion":
        """The question whose answer this entry of the ledger pays for.

        A party takes what an entry pays for as one answer about all records. Where the parties add the noise, every
        answer is a new one to them in any case, and the entry is left out.
        """
        if not self.of_records or self.sums.mode == SumMode.MASKED_AND_NOISED:
            return self
        return replace(self, question=replace(self.question, ledger_id=f"{self.question.ledger_id}:{charge}"))


def exact_and_masked(sums: VoteSum) -> MaskedSum | None:
    """The masked sum whose totals are exact; None where the parties add the noise, and where nothing is masked."""
    return sums if isinstance(sums, MaskedSum) and not sums.noised else None


# More than 15 methods: the steps of one sum, which share what was begun.
class Asking:
    """Puts the questions of one run to its parties.

    Parameters
    ----------
    statement : says whether records may have voted in this study.
    ledger : parties are shown how it grows.
    teacher : what parties must have fitted; None where their records answer for themselves.
    """

    def __init__(
        self,
        setup: RunSetup,
        statement: Statement,
        ledger: Ledger,
        notes: RunNotes,
        teacher: TeacherSettings | None,
    ) -> None:
        self._setup, self._statement, self._ledger = setup, statement, ledger
        self._notes, self._teacher, self._prepared = notes, teacher, False
        self.journal = Journal(setup.ledger_file.parent)

    @property
    def here(self) -> dict[str, int]:
        """The parties of the roster that can be asked now, with no number of teachers."""
        return {name: 0 for name in self._setup.reach.parties.names() if name in self._roster}

    @property
    def quorum(self) -> int:
        """How many parties must answer."""
        return self._summed(None)[1]

    @cached_property
    def classes_sha256(self) -> str:
        """Tells the classes that this run's labels name from those of another study."""
        task = self._setup.config.task
        return hashlib.sha256(repr((task.classes, task.multilabel)).encode()).hexdigest()[:16]

    @property
    def deadline_s(self) -> float:
        return self._setup.config.votes.deadline_s

    def ready(self, sums: VoteSum | None = None) -> dict[str, int]:
        """Prepare the parties; those that can answer, with their teachers.

        Raises QuorumNotReached when they are too few, of those that are in ``sums`` or, without, of all.
        """
        fit_deadline_s = self.deadline_s if self._prepared else self._setup.config.votes.fit_deadline_s
        self._readiness.prepare(deadline_s=self.deadline_s, fit_deadline_s=fit_deadline_s, on_step=self._notes.tell)
        self._prepared = True
        self._notes.record.note_statuses(self._readiness.statuses)
        roster, quorum = self._summed(sums)
        outcomes = {party: outcome for party, outcome in self._readiness.outcomes().items() if party in roster}
        require_quorum(outcomes, quorum, "are ready")
        return self._readiness.ready()

    def total(
        self, question: RunQuestion, parties: dict[str, int], charge: int | None = None, begun: OpenSum | None = None
    ) -> RoundResult:
        """The sum of the answers to a question.

        A sum under masks is in the journal before anybody is asked to sign for it, and stays there until `settle`: it
        can be opened later, by another process. An exact one is noted before anything leaves a party, and again, with
        its parties, before its opening begins: there is one such sum of an input for ever.

        Parameters
        ----------
        parties : to be asked, each with its number of teachers. Those that fail are taken out of it.
        charge : the one that is spent before the sum is opened, as it is noisy already.
        begun : the sum of this question that waits to be opened; nobody is asked for another one.

        Raises
        ------
        QuorumNotReached
            If too few parties answer.
        """
        began_s, sums = time.monotonic(), question.sums
        tell = partial(self._notes.tell, question.step)
        if isinstance(sums, MaskedSum):
            result = self._opened(question, sums, parties, charge, begun, tell)
        else:
            result = sums.sum_votes(VoteRound(question.question, dict(parties), self.deadline_s, self.quorum, tell))
        result = result.read_by(partial(question.read, question.question))
        for party in result.outcomes.keys() - set(result.answered):
            parties.pop(party, None)
        if question.noted:
            queries = 1 if question.of_records else len(question.names)
            self._notes.record.note_round(question.question.name, queries, result, time.monotonic() - began_s)
            self._readiness.note_round(result.outcomes)
            self._notes.write()
        return result

    def _opened(
        self,
        question: RunQuestion,
        sums: MaskedSum,
        parties: Mapping[str, int],
        charge: int | None,
        begun: OpenSum | None,
        tell: OnAnswer,
    ) -> RoundResult:
        """The total of a sum under masks: of one that was ``begun``, or of a new one."""
        if begun is not None:
            round_ = VoteRound(question.question, begun.teachers, self.deadline_s, 0, tell)
            total, collected = sums.resume(round_, begun.collected), begun.collected
        else:
            asked, quorum = self._among(question, parties)
            try:
                total, collected = self._collected(question, sums, asked, quorum, tell)
            except QuorumNotReached as error:
                left = {party: held for party, held in asked.items() if error.outcomes.get(party) == ANSWERED}
                if len(sums.groups(asked)) == 1 or len(left) < quorum:
                    raise
                # A group lacks parties. All that answered are summed together, with the same noise and charge.
                asked = left
                total, collected = self._collected(question, sums.together, asked, quorum, tell)
            begun = OpenSum(tuple(question.names), question.question, charge, dict(asked), collected)
            self.journal.keep_open(begun)
            self._note_exact(question, begun.parties)
        self._readiness.answered = list(begun.parties)
        try:
            if charge is not None:
                self._spend_on(begun, charge, labels=not question.of_records)
            return total.open()
        except QuorumNotReached as error:
            why, file = str(error).partition("; bring")[0], self.journal.open_file(begun.setup).name
            raise QuorumNotReached(
                f"{why}: their sum is kept; start again when they are back: it is opened then, and nothing is paid "
                f"twice (where they never come back, remove {file}: it is then paid anew)",
                error.outcomes,
            ) from error
        except ImpossibleTotal:
            self.journal.settle(begun)  # opened later, it would be as impossible
            raise

    def _collected(
        self, question: RunQuestion, sums: MaskedSum, asked: Mapping[str, int], quorum: int, tell: OnAnswer
    ) -> tuple[MaskedTotal, tuple[Collected, ...]]:
        """A new sum whose masked vectors are there."""
        total = sums.begin(VoteRound(question.question, asked, self.deadline_s, quorum, tell))
        self._note_exact(question, None)
        return total, total.collect()

    def _among(self, question: RunQuestion, parties: Mapping[str, int]) -> tuple[Mapping[str, int], int]:
        """The parties to ask, and how many must answer: where the opening of a sum began before, those of that sum.

        Raises QuorumNotReached where one of them is away.
        """
        if not (together := self.together(question.names[:1], question.sums)[0]):
            roster, quorum = self._summed(question.sums)
            return {name: teachers for name, teachers in parties.items() if name in roster}, quorum
        if missing := sorted(set(together) - parties.keys()):
            raise QuorumNotReached(
                f"{', '.join(missing)} must be there: a sum about these inputs was begun with these parties, and the "
                "others open none without them; bring them back and start the run again (nothing is paid twice), or "
                "begin a study in which the parties add the noise (votes.mode)",
                dict.fromkeys(missing, "unreachable"),
            )
        return {party: parties[party] for party in together}, len(together)

    def _summed(self, sums: VoteSum | None) -> tuple[Collection[str], int]:
        """The parties that ``sums`` are of, all without, and how many of them make a quorum."""
        roster = sums.roster if isinstance(sums, MaskedSum) else self._roster
        return roster, quorum_count(self._setup.config.votes.quorum, len(roster))

    def together(self, queries: Sequence[str], sums: VoteSum) -> list[tuple[str, ...]]:
        """Of each query, the parties with which its exact sum is opened; nobody where that is open."""
        if exact_and_masked(sums) is None:
            return [()] * len(queries)
        return [(sum_ and sum_.parties) or () for sum_ in self.journal.begun(queries)]

    def _note_exact(self, question: RunQuestion, parties: tuple[str, ...] | None) -> None:
        if (masked := exact_and_masked(question.sums)) is None or question.of_records:
            return
        sum_ = Begun(study_of(question.names[0]), self.classes_sha256, masked.roster_sha256, parties)
        if parties is not None or None in self.journal.begun(question.names):
            self.journal.begin(question.names, sum_)

    def follow(self, answered: Collection[str] = (), needed: int = 0) -> None:
        """Have all parties that are here follow the ledger to its last entry; from then on they know an older copy.

        Raises QuorumNotReached where fewer of those that ``answered`` follow than ``needed``, which is a quorum if 0.
        """
        self._readiness.follow(self.deadline_s, answered, needed or self.quorum)

    def show_ledger(self) -> None:
        """Show the parties that answered last how the ledger goes on; nobody, where no party was asked."""
        self._readiness.show_ledger(self._readiness.answered, self.deadline_s)

    def spend(self, charge: int, answered: Collection[str]) -> None:
        """Spend a charge before noise is drawn for the numbers that it pays for, with the knowledge of the parties.

        Parameters
        ----------
        answered : the parties of these numbers.

        Raises
        ------
        QuorumNotReached
            Where too few of the parties follow the ledger; nothing is spent.
        ReleaseLost
            Where too few of them still do afterwards.
        """
        self.follow(answered)
        self._ledger.spend(charge)
        try:
            self.follow(answered)
        except QuorumNotReached as error:
            why = f"parties could not be told that entry {charge} of the ledger is spent: nothing was released under it"
            raise ReleaseLost(f"{why}; start again to pay anew ({str(error).partition(';')[0]})") from error

    def _spend_on(self, sum_: OpenSum, charge: int, *, labels: bool) -> None:
        """Spend a charge on the noisy sum that it pays for, before anybody opens it, with the knowledge of the parties.

        Raises QuorumNotReached where too few of its parties follow the ledger.
        """
        # Those who do not follow are too few to open the sum of any group.
        setups = [one.setup for one in sum_.collected]
        least = len(sum_.parties) - min(setup.plan.quorum for setup in setups) + 1
        needed = max(least, setups[0].plan.quorum if setups[0].left_out else self.quorum)
        self.follow(sum_.parties, needed)
        if charge in self._ledger.untouched():
            self._ledger.spend(charge, for_labels=labels, on_sum=sum_.setup.hex())
            self.follow(sum_.parties, needed)

    @cached_property
    def _readiness(self) -> Readiness:
        return Readiness(
            self._setup.reach.parties,
            self._roster,
            self._teacher,
            self._setup.public,
            self._ledger,
            self._setup.reach.signing_keys,
            voted=None if self._setup.mechanism.record_budget() is None else self._statement.run_is_paid(),
            settled=self.journal.settled,
        )

    @cached_property
    def _roster(self) -> list[str]:
        reach = self._setup.reach
        return sorted(reach.roster if reach.roster is not None else reach.parties.names())
