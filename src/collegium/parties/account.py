"""A party's own durable count of what it has answered and what that cost it, kept before it answers."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from collegium.errors import BudgetExceeded, CostRefused, QueriesRefused, StorageError
from collegium.parties.policy import PolicyConfig
from collegium.parties.terms import mechanism_of
from collegium.privacy.ledger.entry import Terms as LedgerTerms
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.mechanisms import Adjacency, AnsweredBy, Mechanism, Unit
from collegium.privacy.renyi import WIDE_ORDERS, Epsilon
from collegium.protocol.messages import CountNearest, VoteRequest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


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
        self._counts = folder / "answered.sqlite"
        self._ledger = Ledger.open(
            folder / "ledger.sqlite",
            signer=signer,
            orders=WIDE_ORDERS,
            delta=policy.delta,
            terms=LedgerTerms("party", {"party": 1}, "add-remove", epsilon_budget=policy.epsilon),
            name=name,
            budget_setting="epsilon in the policy file",
        )
        self._records = Ledger.open(
            folder / "record-ledger.sqlite",
            signer=signer,
            orders=WIDE_ORDERS,
            delta=policy.delta,
            terms=LedgerTerms(adjacency="add-remove", epsilon_budget=policy.record_epsilon),
            name=name,
            budget_setting="record_epsilon in the policy file",
        )
        try:
            with closing(self._connect()) as database:
                database.execute("CREATE TABLE IF NOT EXISTS answered (query BLOB PRIMARY KEY, times INTEGER NOT NULL)")
                database.commit()
        except sqlite3.Error as error:
            raise StorageError(f"cannot use {self._counts}: {error}; restore it from a copy") from error

    def charge(self, request: VoteRequest, contents: Sequence[bytes]) -> None:
        """Count and charge an answer about to be given; on the disk before it returns, or neither where it is refused.

        ``contents`` names each input of the request by what it is: a pool that was reversed, or changed in another
        place, holds the same inputs.

        What is charged, and whether it is refused, follows from the request alone: an answer of teachers costs what
        the mechanism charges in the worst case for all votes of the party, which are there or not. Within a radius,
        each record pays from its own budget and the answer is counted alone. Of a sample, the answer by class, which
        makes the labels, is charged as what it costs any record.

        Raises
        ------
        QueriesRefused, CostRefused
            Where a limit of the policy would be passed; nothing is charged then.
        MechanismRefused, ModeRefused
            Where the terms do not tell what an answer costs.
        """
        mechanism = mechanism_of(request)
        keys = _query_keys(request, contents)
        with self._counted(keys):
            self._pay(request, mechanism, len(keys))

    def _pay(self, request: VoteRequest, mechanism: Mechanism, queries: int) -> None:
        terms = request.terms
        if mechanism.answered_by is AnsweredBy.TEACHERS:
            ledger, votes = self._ledger, request.highest
        elif isinstance(request, CountNearest) and request.by_class:
            ledger, votes = self._records, 1
        else:
            return
        unit = Unit(votes, Adjacency.ADD_REMOVE)
        described: dict[str, float | int | str] = {
            "name": mechanism.name,
            "sum_mode": terms.sum_mode,
            "votes_per_unit": votes,
            "adjacency": unit.adjacency.value,
            **mechanism.parameters(),
        }
        curve = mechanism.answer_charge(ledger.settings.orders, unit, terms.stage)
        try:
            ledger.charge(purpose=terms.stage or "votes", mechanism=described, curve=curve, queries=queries)
        except BudgetExceeded as error:
            raise CostRefused(f"policy: {error}") from error

    def spent(self) -> Epsilon:
        """What this party's own votes have cost it so far, at party level."""
        return self._ledger.epsilon()

    def record_spent(self) -> Epsilon:
        """What sampled neighbours have cost any one record so far."""
        return self._records.epsilon()

    def queries_answered(self) -> int:
        """Answers given, repeats included."""
        with closing(self._connect()) as database:
            return int(database.execute("SELECT COALESCE(SUM(times), 0) FROM answered").fetchone()[0])

    def close(self) -> None:
        """Let go of the files."""
        self._ledger.close()
        self._records.close()

    @contextmanager
    def _counted(self, keys: Sequence[bytes]) -> Iterator[None]:
        """Count the answers; undone where the block raises, as no answer leaves then."""
        with closing(self._connect()) as database, database:
            database.execute("BEGIN IMMEDIATE")
            answered = int(database.execute("SELECT COALESCE(SUM(times), 0) FROM answered").fetchone()[0])
            limit = self._policy.queries
            if limit is not None and answered + len(keys) > limit:
                raise QueriesRefused(
                    f"policy: {answered} of {limit} queries are answered; {len(keys)} more are not agreed to"
                )
            for key in keys:
                database.execute(
                    "INSERT INTO answered VALUES (?, 1) ON CONFLICT (query) DO UPDATE SET times = times + 1", (key,)
                )
                times = database.execute("SELECT times FROM answered WHERE query = ?", (key,)).fetchone()[0]
                if times > self._policy.times_per_query:
                    raise QueriesRefused(
                        f"policy: a query was answered {self._policy.times_per_query} times already: sums of one query "
                        "with other parties would differ by their votes"
                    )
            yield

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._counts, timeout=30.0)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        return database


def _query_keys(request: VoteRequest, contents: Sequence[bytes]) -> list[bytes]:
    """What was asked about, whatever the terms: other terms on the same input are a repeat as well.

    A label by sampled neighbours takes an answer by distance and one by class for each stage; none repeats another.
    """
    rows = list(contents)
    if isinstance(request, CountNearest):
        rows = [b"%s:%s:%d" % (row, request.terms.stage.encode(), request.by_class) for row in rows]
    return [hashlib.sha256(row).digest() for row in rows]
