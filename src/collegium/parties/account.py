"""A party's own durable count of what it has answered and what that cost it, kept before it answers."""

from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from collegium.errors import BudgetExceeded, CostRefused, FewPartiesRefused
from collegium.parties.answers import Answer, AnswerCounts
from collegium.parties.neighbours.budgets import WHOLE_PARTY, rho_at_most
from collegium.parties.policy import FEW_PARTIES, PolicyConfig
from collegium.privacy.ledger.entry import Terms as LedgerTerms
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.requests import CastNeighbours, CountNearest, SumRecords, Terms
from collegium_accounting.mechanisms import Adjacency, AnsweredBy, SumMode, Unit
from collegium_accounting.renyi import WIDE_ORDERS, RenyiCurve
from collegium_accounting.units import IntArray


class Account:
    """Charges every answer to the institution's own ledger and counts how often each query was answered.

    Parameters
    ----------
    folder : the party's; the ledger is ``ledger.sqlite``, the counts are ``answered.sqlite``, and what sampled
        neighbours cost any one record is in ``record-ledger.sqlite``.
    signer : the party's identity, which signs its ledger.
    """

    def __init__(self, folder: Path, name: str, policy: PolicyConfig, signer: Ed25519PrivateKey | None) -> None:
        self._policy = policy
        self._folder = folder
        self._ledger = Ledger.open(
            folder / "ledger.sqlite",
            signer=signer,
            delta=policy.delta,
            terms=LedgerTerms("party", {"party": 1}, "add-remove", epsilon_budget=policy.epsilon),
            name=name,
            budget_setting="epsilon in the policy file",
        )
        self._records = Ledger.open(
            folder / "record-ledger.sqlite",
            signer=signer,
            delta=policy.delta,
            terms=LedgerTerms(adjacency="add-remove", epsilon_budget=policy.record_epsilon),
            name=name,
            budget_setting="record_epsilon in the policy file",
        )
        self._answers = AnswerCounts(folder / "answered.sqlite", policy.queries, policy.times_per_query)

    def check(self, answer: Answer) -> None:
        """Raise what `leave` would raise now; nothing is counted or charged."""
        with self._answers.leaving(answer, None) as queries:
            self._pay(answer, queries, check_only=True)

    def require_parties(self, terms: Terms, parties: int) -> None:
        """Raise FewPartiesRefused for an exact sum over a roster of fewer parties than the institution agreed to."""
        if terms.sum_mode == SumMode.MASKED and parties < FEW_PARTIES and not self._policy.few_parties:
            raise FewPartiesRefused(
                f"policy: an exact sum of {parties} parties may show the votes of one: few_parties does not allow it"
            )

    def kept(self, answer: Answer, counts: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
        """``counts``, but as they left before where the same answer did, and where; see `AnswerCounts.kept`."""
        return self._answers.kept(answer, counts)

    def leave(self, answer: Answer, counts: IntArray, left_before: NDArray[np.bool_] | None = None) -> None:
        """Count and charge an answer that is about to leave; on the disk before it returns, or neither where refused.

        What is charged, and whether it is refused, follows from the request alone: an answer of teachers costs what
        the mechanism charges in the worst case for all votes of the party, which are there or not. Within a radius,
        each record pays from its own budget and the answer is counted alone. Of a sample, the answer by class, which
        makes the labels, is charged as what it costs any record, and so is a sum over all records, unless it protects
        the party as a whole.

        Raises
        ------
        QueriesRefused, CostRefused
            Where a limit of the policy would be passed, or an input was answered since ``left_before`` was read.
            Nothing is counted or charged then.
        """
        with self._answers.leaving(answer, counts, left_before) as queries:
            self._pay(answer, queries)

    def sign(self, answer: Answer, survivors: bytes) -> None:
        """Bind an answer that left to the parties that it is summed with; another sum of it is another answer.

        Raises
        ------
        QueriesRefused, CostRefused
            As for `leave`.
        """
        with self._answers.signing(answer, survivors) as queries:
            self._pay(answer, queries)

    def _pay(self, answer: Answer, queries: int, *, check_only: bool = False) -> None:
        request, mechanism, terms = answer.request, answer.mechanism, answer.request.terms
        if mechanism.answered_by is AnsweredBy.TEACHERS:
            ledger, votes = self._ledger, request.highest
        elif isinstance(request, SumRecords):
            ledger, votes = (self._ledger if request.per_party else self._records), 1
        elif isinstance(request, CountNearest) and request.by_class:
            ledger, votes = self._records, 1
        else:
            if isinstance(request, CastNeighbours) and request.per_party:
                self._limit_as_one()
            return
        if ledger is self._ledger and self._policy.epsilon is not None and self._rho_as_one():
            raise CostRefused("policy: the party's own epsilon is kept for its votes as one among neighbours")
        unit = Unit(votes, Adjacency.ADD_REMOVE)
        parameters = ", ".join(f"{key} {value}" for key, value in mechanism.parameters().items())
        purpose = f"{terms.stage or 'votes'} of {mechanism.name} ({parameters}; {terms.sum_mode}; {votes} votes)"
        # A record decides the vote of one teacher: without the record that teacher may vote for another class. It may
        # turn the one vector of a party as far as another party's would: shares change with the number of records.
        turned = mechanism.answered_by is AnsweredBy.TEACHERS or (isinstance(request, SumRecords) and request.per_party)
        one_vote = Unit(1, Adjacency.REPLACE if turned else Adjacency.ADD_REMOVE)
        laws = {"record": mechanism.answer_law(one_vote, terms.stage)}
        laws[ledger.terms().unit] = mechanism.answer_law(unit, terms.stage)
        if check_only and ledger.affordable(purpose, queries, laws) < queries:
            raise CostRefused("policy: the answer would cost more than is left")
        if check_only or not queries:
            return
        try:
            ledger.charge(purpose, queries, laws)
        except BudgetExceeded as error:
            raise CostRefused(f"policy: {error}") from error

    def spent(self) -> float:
        """What this party's own votes have cost it so far, at party level: ε at the policy's δ, or at twice that.

        The latter where both teachers or sums and the party as one voter among neighbours have answered.
        """
        return self._ledger.epsilon() + _epsilon_of(self._rho_as_one(), self._policy.delta)

    def record_spent(self) -> float:
        """What sampled neighbours have cost any one record so far."""
        return self._records.epsilon()

    def record_spent_altogether(self) -> tuple[float, float]:
        """ε and δ of everything that was answered, for one record that is there or not.

        The sum over the ways in which records are asked, each at the policy's δ: teachers' votes, sums and samples of
        records, and neighbours within a radius. It depends on no record.
        """
        delta = self._policy.delta
        rho = rho_at_most(self._folder, self._policy.record_rho) + 2.0 * self._rho_as_one()
        neighbours = _epsilon_of(rho, delta)
        parts = [self._ledger.epsilon(("record", "add-remove")), self._records.epsilon(), neighbours]
        return sum(parts), delta * sum(part > 0 for part in parts)

    def _limit_as_one(self) -> None:
        """CostRefused where the party's votes as one voter would pass its own ε, or share it with other answers."""
        most = self._policy.epsilon
        if most is not None and (self._ledger.epsilon() or self.spent() > most):
            raise CostRefused("policy: votes of the party as one voter would cost it more than its own epsilon")

    def _rho_as_one(self) -> float:
        """What the party as one voter may have spent; a record that changes its votes moves them by up to √2 as far."""
        return rho_at_most(self._folder / WHOLE_PARTY, self._policy.record_rho / 2.0)

    def queries_answered(self) -> int:
        """Answers given; in the exact modes one that was asked for again counts once."""
        return self._answers.total()

    def close(self) -> None:
        """Let go of the files."""
        self._ledger.close()
        self._records.close()


def _epsilon_of(rho: float, delta: float) -> float:
    """ε at δ of ``rho``-zero-concentrated privacy."""
    return RenyiCurve(WIDE_ORDERS, rho * np.asarray(WIDE_ORDERS)).to_epsilon(delta).epsilon if rho else 0.0
