"""What each record has spent, on disk before an answer leaves: the individual Rényi filter.

Feldman and Zrnic 2021: a record takes part while its own sum of costs stays within its budget; one that would
pass it is out of the run for good. Records are known by a keyed digest of their identity, so that a record
that is removed and comes back finds what it had spent. Answers are kept beside the spending, in the same
transaction: what was answered is paid, what was paid is answered, and a repetition is neither.

The tables hold nothing but keyed digests, sums and answers; they are private and never leave the party.
"""

import hmac
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigurationError, CostRefused, MechanismRefused, ProtocolViolation
from collegium.parties.answer_book import AnswerBook, Voters
from collegium.parties.teachers.splits import derive_key
from collegium_accounting.mechanisms import RecordBudget

# Sums of decimal fractions must not lock out the last participation that fits.
_ROUNDING = 1e-9


class RecordBudgets:
    """The budgets of all records of one party, over all runs.

    Parameters
    ----------
    book : keeps them.
    voters : whose they are; the runs of each kind of voters are counted apart.
    key : the party's secret.
    identities : who each record is; equal ones share a budget.
    scheme : how identities are made; see `Examples.lasting_identities`. It stays once a run has asked: by another
        scheme a record that has spent its budget would be somebody new.
    rho : what one record may spend over all runs, whatever a run's terms say.

    Raises
    ------
    ConfigurationError
        If a run has asked under another scheme.
    """

    def __init__(
        self, book: AnswerBook, voters: Voters, key: bytes, identities: Iterable[bytes], scheme: str, rho: float
    ) -> None:
        self._book, self.voters = book, voters
        naming = derive_key(key, "record budgets")
        self.rho = rho
        digests = (hmac.digest(naming, identity, "sha256") for identity in identities)
        # Arrays, not a dictionary: a party may hold ten million records.
        self.names, person = np.unique(np.fromiter(digests, dtype="V32"), return_inverse=True)
        self.person: NDArray[np.int64] = person
        """Number of the one whose record it is, shape ``[records]``: equal identities have one number."""
        with book.changing() as database:
            self._keep_scheme(database, scheme)

    def _keep_scheme(self, database: sqlite3.Connection, scheme: str) -> None:
        # Whether any record has spent would tell, by the refusal, that one lay within a radius.
        asked = database.execute("SELECT 1 FROM runs WHERE voters = ?", (self.voters,)).fetchone()
        held = database.execute("SELECT identity FROM scheme WHERE voters = ?", (self.voters,)).fetchone()
        if asked and held != (scheme,):
            raise ConfigurationError(
                "this party's records have budgets under other columns, another group, another task, other thousands "
                "or dates in the settings, or another version of Collegium: restore those, because under the new ones "
                "every record would get a new budget"
            )
        if held != (scheme,):
            database.execute("INSERT OR REPLACE INTO scheme VALUES (?, ?)", (self.voters, scheme))

    @contextmanager
    def transaction(self, run: str, terms: RecordBudget) -> "Iterator[BudgetTransaction]":
        """What the records have spent in a run, to be charged within; on the disk when the block ends, else unchanged.

        Raises
        ------
        CostRefused
            If one full-weight participation is more than a record may spend.
        MechanismRefused
            If the run began on other terms.
        """
        if terms.rho_of_one_participation > self.rho * (1 + _ROUNDING):
            raise CostRefused(
                f"policy: one participation costs a record ρ = {terms.rho_of_one_participation:.3g}, more than its "
                f"whole budget of {self.rho:.3g}: ask with more noise"
            )
        with self._book.changing() as database:
            self._pin(database, run, terms)
            spending = BudgetTransaction(database, self, run, terms)
            yield spending
            spending.write()

    def leave(self, round_id: str, questions: Sequence[bytes]) -> None:
        """Forget answers that leave in a round and with noise, so that another round pays anew; on the disk then.

        Raises
        ------
        ProtocolViolation
            If an answer left before, or another round has it since: it is paid for one of them alone.
        """
        forgotten = "DELETE FROM near WHERE voters = ? AND question = ? AND round = ?"
        with self._book.changing() as database:
            if not all(database.execute(forgotten, (self.voters, one, round_id)).rowcount for one in questions):
                raise ProtocolViolation("another round was asked the same since, or this one twice: begin a new round")

    def _pin(self, database: sqlite3.Connection, run: str, terms: RecordBudget) -> None:
        stated = terms.rho_per_unit_squared, terms.levels, terms.participations
        database.execute("INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?)", (self.voters, run, *stated))
        known = database.execute(
            "SELECT rho_per_unit_squared, levels, participations FROM runs WHERE voters = ? AND run = ?",
            (self.voters, run),
        ).fetchone()
        if known != stated:
            raise MechanismRefused(
                "this run began with other noise or other budgets per record: keep them or begin a new run"
            )


class BudgetTransaction:
    """What the records have spent, within one transaction."""

    def __init__(self, database: sqlite3.Connection, budgets: RecordBudgets, run: str, terms: RecordBudget) -> None:
        self._database, self._run, self._terms = database, run, terms
        self._voters, self._rho, self._names = budgets.voters, budgets.rho, budgets.names
        voters, names = budgets.voters, budgets.names
        self._units_squared = np.zeros(len(names), dtype=np.int64)
        self._retired = np.zeros(len(names), dtype=bool)
        self._elsewhere = np.zeros(len(names))
        self._changed = np.zeros(len(names), dtype=bool)
        for name, units_squared, retired in database.execute(
            "SELECT record, units_squared, retired FROM spent WHERE voters = ? AND run = ?", (voters, run)
        ):
            if (number := self._number(name)) is not None:
                self._units_squared[number], self._retired[number] = units_squared, retired
        for name, spent in database.execute(
            "SELECT record, SUM(units_squared * rho_per_unit_squared) FROM spent JOIN runs USING (voters, run) "
            "WHERE voters = ? AND run <> ? GROUP BY record",
            (voters, run),
        ):
            if (number := self._number(name)) is not None:
                self._elsewhere[number] = spent

    def _number(self, name: bytes) -> int | None:
        """Whose record it is, None for one that the party holds no more."""
        number = int(np.searchsorted(self._names, np.void(name)))
        return number if number < len(self._names) and self._names[number].tobytes() == name else None

    def admit(self, people: NDArray[np.int64], units: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Charge each of ``people`` (distinct) for a weight of ``units``; who takes part, shape ``[people]``.

        Whoever cannot pay is out of the run for good.
        """
        wanted = self._units_squared[people] + units**2
        rho = self._elsewhere[people] + wanted * self._terms.rho_per_unit_squared
        within = (wanted <= self._terms.units_squared) & (rho <= self._rho * (1 + _ROUNDING))
        admitted: NDArray[np.bool_] = within & ~self._retired[people]
        self._units_squared[people[admitted]] = wanted[admitted]
        self._retired[people[~within]] = True
        self._changed[people] = True
        return admitted

    def answer(self, question: bytes, round_id: str) -> NDArray[np.int64] | None:
        """The counts ``[classes]`` given to the same question before, for this round now; None where it is new."""
        asked = self._voters, question
        self._database.execute("UPDATE near SET round = ? WHERE voters = ? AND question = ?", (round_id, *asked))
        row = self._database.execute("SELECT counts FROM near WHERE voters = ? AND question = ?", asked).fetchone()
        return None if row is None else np.frombuffer(row[0], dtype="<i8").astype(np.int64)

    def keep(self, question: bytes, counts: NDArray[np.int64], round_id: str) -> None:
        """Remember the answer to a new question."""
        kept = self._voters, question, counts.astype("<i8").tobytes(), round_id
        self._database.execute("INSERT INTO near VALUES (?, ?, ?, ?)", kept)

    def write(self) -> None:
        """Put what changed into the transaction."""
        self._database.executemany(
            "INSERT INTO spent VALUES (?, ?, ?, ?, ?) ON CONFLICT (voters, run, record) DO UPDATE SET "
            "units_squared = excluded.units_squared, retired = excluded.retired",
            (
                (self._voters, self._run, self._names[n].tobytes(), int(self._units_squared[n]), int(self._retired[n]))
                for n in np.flatnonzero(self._changed)
            ),
        )
