"""Labels of single inputs: votes on them are summed, and each stage of a mechanism decides on the noisy sum.

Every stage is charged for its queries before its noise is drawn, or before a sum that parties made noisy is opened, and
what it decided is on the disk before anyone sees it. Where the coordinator adds the noise, one exact sum of an input
serves every stage (but where a mechanism needs a sum for each): it stays in memory. There is one exact sum of an input
under masks for ever: a start after a crash asks for it of the same parties, and another study takes the label that came
of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial

import numpy as np

from collegium.coordinator.asking import RunQuestion, exact_and_masked
from collegium.coordinator.journal import OpenSum
from collegium.coordinator.kind import RunKind
from collegium.coordinator.release import Keep, Releases
from collegium.coordinator.rounds.masked_sum import MaskedSum
from collegium.coordinator.rounds.rounds import GroupCounts, terms_of
from collegium.coordinator.run.surroundings import RunSetup
from collegium.coordinator.selection.queries import content_of, study_of
from collegium.errors import BudgetExceeded, LabelConflict
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.question import PoolRange, QuestionTerms
from collegium_accounting.mechanisms import NEXT_STAGE, IntArray, LabelStage, Stage
from collegium_accounting.renyi import FloatArray

_PASSED = 0
"""What the ledger holds, under a stage's own key, for a query that went on to the next stage."""


# More than 15 methods: the ways in which one batch of queries may go on after an interruption.
class Labels:
    """The labels of one run.

    Parameters
    ----------
    releases : pay for labels and put their questions to the parties.
    ledger : keeps labels.
    """

    def __init__(self, setup: RunSetup, releases: Releases, ledger: Ledger) -> None:
        self._setup, self._releases, self._ledger = setup, releases, ledger
        self._slots = releases.statement.stages
        self.exact: dict[str, IntArray] = {}
        """Of the latest batch, the opened counts of each query, ``[classes]``, to which the coordinator adds noise."""

    def all(self) -> dict[str, int]:
        """The labels given out already, by query: class, or ABSTAIN.

        Where the one exact sum of an input is another study's, of the same classes, its label counts for this one too.
        """
        labels = self._ledger.labels()
        if self._masked is None:
            return labels
        study, asking = self._setup.storage.study, self._releases.asking
        others = [key for key in labels if study_of(key) != study]
        own = "" if study is None else f"{study}:"
        taken = {
            own + content_of(key): labels[key]
            for key, sum_ in zip(others, asking.journal.begun(others), strict=True)
            if sum_ is not None and (sum_.study, sum_.classes) == (study_of(key), asking.classes_sha256)
        }
        return taken | labels

    def held(self, queries: Iterable[str]) -> dict[str, int]:
        """The labels given out already among ``queries``: class, or ABSTAIN."""
        labels = self.all()
        return {query: labels[query] for query in queries if query in labels}

    def pending(self, queries: Iterable[str]) -> list[str]:
        """Those of ``queries`` that have neither a label nor an abstention."""
        held = self.held(queries := list(queries))
        return [query for query in queries if query not in held]

    def worth_asking(self, queries: Sequence[str]) -> list[str]:
        """The first of ``queries`` that have no label yet and that the budget may still cover, in order."""
        statement, pending, held = self._releases.statement, self.pending(queries), self._ledger.labels()
        if not statement.run_fits():
            return []
        paid_for = {query for _, names in self._paid_sums(pending) for query in names}
        fresh = [query for query in pending if self._stage_of(query, held) == 0 and query not in paid_for]
        paid = self._paid_prefix(fresh)
        left_out = set(fresh[paid + statement.room(len(fresh) - paid) :])
        return [query for query in pending if query not in left_out]

    def ask(self, kind: RunKind, queries: Mapping[str, int]) -> bool:
        """Have labels for as many of ``queries`` as the budget allows; False where it stopped that.

        Parameters
        ----------
        kind : how inputs of the pool are asked about.
        queries : the queries' keys and their positions in the pool.

        Raises
        ------
        QuorumNotReached
            If too few parties are ready or answer.
        """
        self.exact.clear()
        while asked := self.worth_asking(list(queries)):
            parties, begun = self._releases.asking.ready(), self._begun(asked)
            groups: dict[tuple[tuple[str, ...], bytes], list[str]] = {}
            for query, together in zip(asked, self._releases.asking.together(asked, self._setup.vote_sum), strict=True):
                groups.setdefault((together, begun[query].setup if query in begun else b""), []).append(query)
            for group in groups.values():
                if not self._ask(kind, queries, group, parties, begun.get(group[0])):
                    return False
            self._settle()
        return not self.pending(queries)

    def lost(self, queries: Sequence[str]) -> set[str]:
        """Those without a label whose one exact sum was begun and cannot be asked for any more.

        What opens it is lost, and parties have joined or left since, another study began it, or on a sparse graph, on
        which parties open a sum in one round alone, that round failed.
        """
        if (masked := self._masked) is None:
            return set()
        pending = self.pending(queries)
        begun, kept = zip(pending, self._releases.asking.journal.begun(pending), strict=True), self._begun(pending)
        known = [(query, sum_) for query, sum_ in begun if sum_ is not None and query not in kept]
        return {
            query
            for query, sum_ in known
            if (sum_.study, sum_.roster) != (study_of(query), masked.roster_sha256)
            or (sum_.parties is not None and not masked.plan.complete)
        }

    def _keeping(self, question: RunQuestion) -> AbstractContextManager[Keep]:
        """The `release.Rule` of labels: the ledger keeps them."""
        return nullcontext(partial(self._keep, question.names))

    def _keep(self, names: Sequence[str], charge: int, stage: Stage, groups: Sequence[GroupCounts]) -> None:
        """See `release.Keep`: a label of each query, an abstention, or that it goes on."""
        assert isinstance(stage, LabelStage)  # inputs are asked about for labels
        (together,) = groups
        outcomes = self._releases.noise.outcomes(stage, together.counts, names)
        onward = outcomes == NEXT_STAGE
        if onward.any() and stage is self._slots[-1].stage:
            raise AssertionError(f"the last stage, {stage.name}, passed a query on")
        entries = {
            mark(query, stage) if passed else query: _PASSED if passed else int(outcome)
            for query, outcome, passed in zip(names, outcomes, onward, strict=True)
        }
        with suppress(LabelConflict):  # another process was first: its outcomes count, ours were never shown
            self._ledger.release(charge, entries)

    def give(self, queries: Mapping[str, int], shares: FloatArray, sums: int) -> bool:
        """Label inputs by their likeliest class, as sums over all records say it; False where these are not paid.

        Parameters
        ----------
        queries : distinct keys without labels, and their positions in the pool.
        shares : the share of each class in each input of the pool, ``[inputs, classes]``.
        sums : how many of the sums that the mechanism charges for were released.
        """
        statement = self._releases.statement
        statement.note_sums(sums)
        if not statement.run_fits():
            return False
        try:
            charge = statement.pay(self._slots[0], list(queries))
        except BudgetExceeded:
            return False
        outcomes = shares[list(queries.values())].argmax(axis=1)
        with suppress(LabelConflict):
            self._ledger.release(charge, dict(zip(queries, outcomes.tolist(), strict=True)))
        return True

    def _ask(
        self,
        kind: RunKind,
        queries: Mapping[str, int],
        asked: Sequence[str],
        parties: dict[str, int],
        begun: OpenSum | None,
    ) -> bool:
        """Label inputs that are summed together; parties that fail are not asked again in this batch.

        ``begun`` is their exact sum, where it waits to be opened.
        """

        setup, per_stage = self._setup, kind.question.per_stage

        def question(names: Sequence[str], stage: Stage) -> RunQuestion:
            inputs = PoolRange(setup.public.spec.sha256, tuple(queries[name] for name in names))
            terms = terms_of(setup.mechanism, setup.vote_sum, stage, per_stage=per_stage)
            return RunQuestion(names, kind.ask(terms, inputs), setup.vote_sum, read=kind.votes)

        if not (per_stage or setup.vote_sum.added.parties):
            put = question(asked, self._slots[0].stage)
            if begun is not None:
                put = replace(put, names=begun.names, question=begun.question)
            result = self._releases.asking.total(put, parties, begun=begun)
            self.exact |= dict(zip(put.names, result.counts, strict=True))
        while pending := self.pending(asked):
            number, chunk = self._next_chunk(pending)
            if not chunk:
                return False
            slot = self._slots[number]
            try:
                put, known = question(chunk, slot.stage), self._opened(chunk)
                self._releases.release(slot, put, self._keeping, parties, known)
            except BudgetExceeded:
                return False  # another writer of this ledger spent what was left
        return True

    def _opened(self, queries: Sequence[str]) -> IntArray | None:
        """The exact counts of these queries, ``[queries, classes]``, where all of them are known already."""
        known = [self.exact[query] for query in queries if query in self.exact]
        return np.stack(known) if len(known) == len(queries) else None

    def _next_chunk(self, pending: Sequence[str]) -> tuple[int, Sequence[str]]:
        """Queries at one same stage: of a sum to be opened first, then those under way, those paid for, and others.

        A query enters only when the budget takes it through every stage, so that none is paid for halfway.
        """
        statement, held = self._releases.statement, self._ledger.labels()
        if not statement.run_fits():
            return 0, []
        for number, names in self._paid_sums(pending):
            return number, names
        stages = {query: self._stage_of(query, held) for query in pending}
        furthest = max(stages.values())
        if furthest > 0:
            return furthest, [query for query in pending if stages[query] == furthest]
        return 0, pending[: self._paid_prefix(pending) or statement.room(len(pending))]

    def _begun(self, queries: Sequence[str]) -> dict[str, OpenSum]:
        """The exact sums about these queries that wait to be opened, and are asked for in the same way now."""
        sums = self._setup.vote_sum
        terms = None if sums.added.parties else QuestionTerms.of(self._setup.mechanism, sums.mode)
        open_sums = [one for one in self._releases.asking.journal.open_sums() if one.charge is None]
        return {query: one for one in open_sums if one.question.terms == terms for query in {*queries} & {*one.names}}

    def _paid_sums(self, pending: Sequence[str]) -> list[tuple[int, Sequence[str]]]:
        """The noisy sums about pending queries that are paid for and wait to be opened, each with its stage."""
        may_open, wanted = self._releases.statement.may_open, set(pending)
        open_sums = [one for one in self._releases.asking.journal.open_sums() if wanted.issuperset(one.names)]
        return [
            (number, one.names)
            for one in open_sums
            for number, slot in enumerate(self._slots)
            if one.charge is not None and may_open(slot, one.names, one.charge, one.setup.hex())
        ]

    def _settle(self) -> None:
        """Settle the exact sums of which all labels are given."""
        journal = self._releases.asking.journal
        for sum_ in journal.open_sums():
            if sum_.charge is None and not self.pending(sum_.names):
                journal.settle(sum_)

    @property
    def _masked(self) -> MaskedSum | None:
        return exact_and_masked(self._setup.vote_sum)

    def _paid_prefix(self, fresh: Sequence[str]) -> int:
        """How many of the first queries an interrupted charge has paid for already, at the first stage."""
        sizes = {paid.queries for _, paid in self._ledger.untouched().values() if paid.queries <= len(fresh)}
        unspent, slot = self._releases.statement.unspent, self._slots[0]
        return max((size for size in sizes if unspent(slot, fresh[:size]) is not None), default=0)

    def _stage_of(self, query: str, held: Mapping[str, int]) -> int:
        return sum(mark(query, slot.stage) in held for slot in self._slots)


def mark(query: str, stage: Stage) -> str:
    """The ledger's key for "this query passed this stage"."""
    return f"{query}>{stage.name}"
