"""A party's durable memory: what was answered, charged and opened, the budgets of its records, the ledger it follows.

One SQLite file in the party's folder, private, that never leaves it. What belongs together changes in one transaction:
it is on the disk before an answer leaves, or nothing of it is.
"""

import hashlib
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from collegium.clock import utc_now
from collegium.data import PoolStore
from collegium.errors import BudgetExceeded, CostRefused, FewPartiesRefused, LedgerCorrupt, StorageError
from collegium.limits import FEW_PARTIES
from collegium.parties import answered
from collegium.parties.answered import Answered
from collegium.parties.answers import Answer
from collegium.parties.policy import PolicyConfig
from collegium.parties.records_known import TABLE, RecordsKnown, changed
from collegium.privacy.ledger.chain import Head
from collegium.privacy.ledger.entry import Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.store import EntryStore, connected
from collegium.protocol.question import Question
from collegium_accounting.mechanisms import SumMode
from collegium_accounting.renyi import WIDE_ORDERS, RenyiCurve
from collegium_accounting.units import IntArray

FILE = "answer-book.sqlite"
"""The file in the party's folder. Its ledgers are the chains ``party`` and ``record``."""

Voters = Literal["records", "party"]
"""Who has budgets for neighbours within a radius: each record, or the party as one voter."""

_TABLES = (
    *answered.TABLES,
    TABLE,
    # Nobody reads how many `queries` there are: books of older versions have the column, and no row without it.
    "CREATE TABLE IF NOT EXISTS sums (run TEXT NOT NULL, round TEXT NOT NULL, asked BLOB NOT NULL, question BLOB, "
    "queries INTEGER NOT NULL, vector BLOB, noise BLOB, setup BLOB UNIQUE, terms TEXT, left_before BLOB, state BLOB, "
    "began TEXT NOT NULL, PRIMARY KEY (run, round)) STRICT",
    "CREATE TABLE IF NOT EXISTS numbers (run TEXT NOT NULL, round TEXT NOT NULL, vector BLOB NOT NULL, noise BLOB, "
    "PRIMARY KEY (run, round)) STRICT",
    # Older versions kept them in `sums`, whose row each step of a sum writes anew.
    "INSERT OR IGNORE INTO numbers SELECT run, round, vector, noise FROM sums WHERE vector IS NOT NULL",
    "UPDATE sums SET vector = NULL, noise = NULL WHERE vector IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS head (one INTEGER PRIMARY KEY CHECK (one = 0), head TEXT NOT NULL, "
    "shown BLOB NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS scheme (voters TEXT PRIMARY KEY, identity TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS runs (voters TEXT NOT NULL, run TEXT NOT NULL, rho_per_unit_squared REAL NOT NULL, "
    "levels INTEGER NOT NULL, participations INTEGER NOT NULL, PRIMARY KEY (voters, run)) STRICT",
    "CREATE TABLE IF NOT EXISTS spent (voters TEXT NOT NULL, run TEXT NOT NULL, record BLOB NOT NULL, "
    "units_squared INTEGER NOT NULL, retired INTEGER NOT NULL, PRIMARY KEY (voters, run, record)) "
    "STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS near (voters TEXT NOT NULL, question BLOB NOT NULL, counts BLOB NOT NULL, "
    "round TEXT NOT NULL, PRIMARY KEY (voters, question)) STRICT, WITHOUT ROWID",
)


# More than 15 methods: one file and one transaction for all that a party must remember.
class AnswerBook:
    """Charges every answer to the institution's own ledgers and knows what it was. Safe for threads and processes.

    Parameters
    ----------
    folder : the party's; None keeps the book in memory, for as long as it lives.
    name : the party's, which its ledgers bear.
    signer : the party's identity, which signs its ledgers.

    Raises
    ------
    StorageError, LedgerCorrupt
        If the file cannot be used.
    ConfigurationError
        If it belongs to another identity, or was begun at another δ.
    """

    def __init__(self, folder: Path | None, name: str, policy: PolicyConfig, signer: Ed25519PrivateKey | None) -> None:
        self._policy, self._lock = policy, threading.RLock()
        self._records_now: RecordsKnown | None = None
        self.path = Path(":memory:") if folder is None else folder / FILE
        if folder is None:
            self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        else:
            try:
                self._database = connected(self.path)
            except LedgerCorrupt as error:
                raise StorageError(str(error)) from error
        weakref.finalize(self, self._database.close)
        try:
            with self._using():
                self._database.execute("PRAGMA secure_delete = ON")
                for table in _TABLES:
                    self._database.execute(table)
            self.erase()  # what a process deleted that was killed before it could
            self._file = EntryStore(self.path, self._database, lock=self._lock)
            self._answered = Answered(self._database, policy.queries)
            self._party = self._ledger("party", name, signer, policy.epsilon, "epsilon in the policy file")
            limit = policy.record_epsilon
            self._records = self._ledger("record", name, signer, limit, "record_epsilon in the policy file")
        except BaseException:
            self._database.close()
            raise

    def _ledger(
        self, unit: str, name: str, signer: Ed25519PrivateKey | None, epsilon: float | None, setting: str
    ) -> Ledger:
        return Ledger.open(
            EntryStore(self.path, self._database, unit, self._lock),
            signer=signer,
            delta=self._policy.delta,
            terms=Terms(unit, {unit: 1}, "add-remove", epsilon_budget=epsilon),
            name=name,
            budget_setting=setting,
        )

    @property
    def sums_kept(self) -> timedelta:
        """For how long a sum that was not opened is kept."""
        return timedelta(days=self._policy.sums_kept_days)

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """One change that nobody else is in: all of it is on the disk when the block ends; undone where it raises.

        Within another one it is a part of that.
        """
        with self._using() as database:
            heads = self._party.latest, self._records.latest
            try:
                with self._file.writing():
                    yield database
            except BaseException:
                # A ledger takes in what it appends at once, and would find its own entry gone.
                for ledger, head in zip((self._party, self._records), heads, strict=True):
                    ledger.reread_after(head)
                raise

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._database
            except sqlite3.Error as error:
                raise StorageError(f"cannot use {self.path}: {error}; restore it from a copy") from error

    def check(self, asked: Answer) -> None:
        """Raise what `leave` would raise now; nothing is counted or charged."""
        with self._using():
            self._pay(asked, len(self._answered.new(asked)), check_only=True)

    def asked(self, run_id: str, question: Question, roster: Mapping[str, bytes], pools: PoolStore) -> Answer:
        """What a question within a run asks of this party; see `Answer.to` for errors.

        Parameters
        ----------
        roster : Ed25519 public key of each party that the answer is summed with, by name.
        pools : tells which inputs the question names.

        Raises
        ------
        FewPartiesRefused
            For an exact sum over a roster of fewer parties than the institution agreed to.
        """
        mode, parties, inputs = question.terms.sum_mode, len(roster), question.queries
        if mode == SumMode.MASKED and parties < FEW_PARTIES and not self._policy.few_parties:
            raise FewPartiesRefused(
                f"policy: an exact sum of {parties} parties may show the votes of one: few_parties does not allow it"
            )
        contents = [] if inputs is None else pools.contents(inputs.pool_sha256, inputs.indices)
        named = "".join(f"{name}={key.hex()};" for name, key in sorted(roster.items()))
        summed = b"" if mode == SumMode.CLEAR else hashlib.sha256(named.encode()).digest()
        return Answer.to(run_id, question, contents, summed)

    def kept(self, asked: Answer, counts: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
        """``counts``, but as they left before where the same answer did, and where; see `Answered.kept`."""
        with self._using():
            return self._answered.kept(asked, counts)

    def leave(self, asked: Answer, counts: IntArray, left_before: NDArray[np.bool_] | None = None) -> None:
        """Count and charge an answer that is about to leave; on the disk before it returns, or neither where refused.

        What is charged, and whether it is refused, follows from the question alone (`Question.cost`).

        Raises
        ------
        QueriesRefused, CostRefused
            Where a limit of the policy would be passed, or an input was answered since ``left_before`` was read.
            Nothing is counted or charged then.
        """
        with self.changing():
            fresh = self._answered.new(asked, left_before)
            self._answered.take(asked, counts, fresh)
            self._note_records(fresh)
            if asked.question.terms.sum_mode == SumMode.CLEAR:
                self._answered.agree(asked, b"")  # nothing is signed for it later
            self._pay(asked, len(fresh))

    def answers_with(self, now: RecordsKnown) -> str | None:
        """Note these records with every answer that leaves from now on; see `records_known.changed`."""
        with self._using() as database:
            self._records_now = now
            return changed(database, now)

    def _note_records(self, fresh: Sequence[int]) -> None:
        """Note with which records an answer leaves; one that is sent again as it was tells nothing of those of now."""
        if (now := self._records_now) is not None and fresh:
            row = (now.task, now.digest, now.records, utc_now().date().isoformat())
            self._database.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", row)

    def sign(self, asked: Answer, signed: bytes) -> None:
        """Agree that an answer is opened with a list; raises QueriesRefused for another list of an exact one."""
        with self.changing():
            self._answered.sign(asked, signed)
            self._answered.agree(asked, signed)

    def agreed(self) -> dict[str, int]:
        """Of how many different rows this party agreed that they are released, by `Answer.agreement`."""
        with self._using():
            return self._answered.agreed()

    def _pay(self, asked: Answer, queries: int, *, check_only: bool = False) -> None:
        cost = asked.question.cost()
        if cost.budgets_pay:
            if cost.per_party:
                self._limit_as_one()
            return
        if cost.per_party and self._policy.epsilon is not None and self._rho_as_one():
            raise CostRefused("policy: the party's own epsilon is kept for its votes as one among neighbours")
        paying = (self._records, self._party) if cost.per_party else (self._records,)
        wanted = queries + asked.question.to_come if queries else 0  # the first of several is not paid for in vain
        if any(ledger.affordable(asked.purpose, wanted, asked.laws) < wanted for ledger in paying):
            which = "the answer" if wanted <= 1 else f"so many answers ({wanted})"
            raise CostRefused(f"policy: {which} would cost more than record_epsilon or epsilon leaves")
        for ledger in paying if queries and not check_only else ():
            try:
                ledger.charge(asked.purpose, queries, asked.laws, step=asked.step)
            except BudgetExceeded as error:
                raise CostRefused(f"policy: {error}") from error

    def spent(self) -> float:
        """What this party's own votes have cost it so far, at party level: ε at the policy's δ, or at twice that.

        The latter where both teachers or sums and the party as one voter among neighbours have answered.
        """
        return self._party.epsilon() + _epsilon_of(self._rho_as_one(), self._policy.delta)

    def record_spent(self) -> float:
        """What sums, counts, votes of teachers and sampled neighbours have cost any one record so far."""
        return self._records.epsilon()

    def record_spent_altogether(self) -> tuple[float, float]:
        """ε and δ of everything that was answered, for one record that is there or not.

        The sum, each at the policy's δ, over what records pay from their own budgets, near public inputs, and all else.
        It depends on no record.
        """
        delta = self._policy.delta
        rho = min(self._policy.record_rho, self.rho_allowed("records")) + 2.0 * self._rho_as_one()
        neighbours = _epsilon_of(rho, delta)
        parts = [self._records.epsilon(), neighbours]
        return sum(parts), delta * sum(part > 0 for part in parts)

    def spent_of_limits(self) -> dict[str, float]:
        """What is spent of each limit of the policy, by its name."""
        rho = self.rho_allowed("records") + 2.0 * self.rho_allowed("party")
        return {"record_epsilon": self.record_spent(), "epsilon": self.spent(), "record_rho": rho}

    def rho_allowed(self, voters: Voters) -> float:
        """Zero-concentrated privacy that all runs together allow one voter to spend on neighbours.

        What records really spent would tell of them.
        """
        with self._using() as database:
            found = database.execute(
                "SELECT TOTAL(rho_per_unit_squared * levels * levels * participations) FROM runs WHERE voters = ?",
                (voters,),
            ).fetchone()
        return float(found[0])

    def _limit_as_one(self) -> None:
        """CostRefused where the party's votes as one voter would pass its own ε, or share it with other answers."""
        most = self._policy.epsilon
        if most is not None and (self._party.epsilon() or self.spent() > most):
            raise CostRefused("policy: votes of the party as one voter would cost it more than its own epsilon")

    def _rho_as_one(self) -> float:
        """What the party as one voter may have spent; a record that changes its votes moves them by up to √2 as far."""
        return min(self._policy.record_rho / 2.0, self.rho_allowed("party"))

    def queries_answered(self) -> int:
        """Answers given; in the exact modes one that was asked for again counts once."""
        with self._using():
            return self._answered.total()

    def head(self) -> tuple[Head | None, bytes]:
        """The last entry of the coordinator's ledger that this party was shown, None where there was none.

        With it the fingerprint of the request that showed it.
        """
        with self._using() as database:
            found = database.execute("SELECT head, shown FROM head").fetchone()
        return (None, b"") if found is None else (Head.parse(found[0]), bytes(found[1]))

    def keep_head(self, head: Head | None, shown: bytes = b"") -> None:
        """Keep what a request showed in the place of what was shown before; None where a new ledger is agreed to."""
        with self.changing() as database:
            database.execute("DELETE FROM head")
            if head is not None:
                database.execute("INSERT INTO head VALUES (0, ?, ?)", (str(head), shown))

    def erase(self) -> None:
        """Overwrite what was deleted: it is in no file any more when this returns, unless somebody reads the book."""
        with self._using() as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._party.close()
            self._records.close()
            self._database.close()


def _epsilon_of(rho: float, delta: float) -> float:
    """ε at δ of ``rho``-zero-concentrated privacy."""
    return RenyiCurve(WIDE_ORDERS, rho * np.asarray(WIDE_ORDERS)).to_epsilon(delta).epsilon if rho else 0.0
