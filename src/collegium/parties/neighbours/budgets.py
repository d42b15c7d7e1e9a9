"""What each record has spent, on disk before an answer leaves: the individual Rényi filter.

Feldman and Zrnic 2021: a record takes part while its own sum of costs stays within its budget; one that would
pass it is out of the run for good. Records are known by a keyed digest of their identity, so that a record
that is removed and comes back finds what it had spent. Answers are kept beside the spending, in the same
transaction: what was answered is paid, what was paid is answered, and a repetition is neither.

The tables hold nothing but keyed digests, sums and answers; they are private and never leave the party.
"""

import hmac
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigurationError, CostRefused, MechanismRefused, ProtocolViolation, StorageError
from collegium.parties.teachers.splits import derive_key
from collegium.sqlite_files import changing, connected
from collegium.whole_files import storing
from collegium_accounting.mechanisms import RecordBudget

FILE = "record-budgets.sqlite"

_TABLES = (
    "CREATE TABLE IF NOT EXISTS scheme (only_one INTEGER PRIMARY KEY CHECK (only_one = 0), identity TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS runs (run TEXT PRIMARY KEY, terms TEXT NOT NULL, rho_per_unit_squared REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS spent (run TEXT NOT NULL REFERENCES runs, record BLOB NOT NULL, "
    "units_squared INTEGER NOT NULL, retired INTEGER NOT NULL, PRIMARY KEY (run, record)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS answers (question BLOB PRIMARY KEY, counts BLOB NOT NULL, round TEXT NOT NULL) "
    "WITHOUT ROWID",
)
# Sums of decimal fractions must not lock out the last participation that fits.
_ROUNDING = 1e-9


WHOLE_PARTY = "whole-party"
"""The folder within the party's in which the budget of the party as one voter is kept."""


def rho_at_most(folder: Path, rho: float) -> float:
    """Zero-concentrated privacy that one voter may have spent on neighbours in all runs that ``folder`` has seen.

    What the runs allowed, and no more than ``rho``, the policy's limit: what records really spent would tell of them.
    Raises StorageError where the file cannot be used.
    """
    path = folder / FILE
    if not path.exists():
        return 0.0
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            terms = [json.loads(text) for (text,) in database.execute("SELECT terms FROM runs")]
    except (sqlite3.Error, ValueError) as error:
        raise StorageError(f"cannot use {path}: {error}; restore it from a copy") from error
    return min(rho, sum(float(per_unit * levels**2 * participations) for per_unit, levels, participations in terms))


class RecordBudgets:
    """The budgets of all records of one party, over all runs.

    Parameters
    ----------
    folder : where they are kept; None keeps them in memory (tests).
    key : the party's secret.
    identities : who each record is; equal ones share a budget.
    scheme : how identities are made; see `Examples.lasting_identities`. It stays once a run has asked: by another
        scheme a record that has spent its budget would be somebody new.
    rho : what one record may spend over all runs, whatever a run's terms say.

    Raises
    ------
    StorageError
        If the file cannot be used.
    ConfigurationError
        If a run has asked under another scheme.
    """

    def __init__(self, folder: Path | None, key: bytes, identities: Iterable[bytes], scheme: str, rho: float) -> None:
        naming = derive_key(key, "record budgets")
        self._rho = rho
        digests = (hmac.digest(naming, identity, "sha256") for identity in identities)
        # Arrays, not a dictionary: a party may hold ten million records.
        self._names, person = np.unique(np.fromiter(digests, dtype="V32"), return_inverse=True)
        self.person: NDArray[np.int64] = person
        """Number of the one whose record it is, shape ``[records]``: equal identities have one number."""
        self._path = None if folder is None else folder / FILE
        if self._path is None:
            self._memory = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        else:
            with storing(f"use {self._path}"):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        with self._connected() as database:
            for table in _TABLES:
                database.execute(table)
            self._keep_scheme(database, scheme)

    def _keep_scheme(self, database: sqlite3.Connection, scheme: str) -> None:
        # Whether any record has spent would tell, by the refusal, that one lay within a radius.
        asked = database.execute("SELECT EXISTS (SELECT * FROM runs)").fetchone()[0]
        held = database.execute("SELECT identity FROM scheme").fetchone()
        if asked and held != (scheme,):
            raise ConfigurationError(
                "this party's records have budgets under other columns, another group or another task: restore those, "
                "because under the new ones every record would get a new budget"
            )
        if held != (scheme,):
            database.execute("INSERT OR REPLACE INTO scheme VALUES (0, ?)", (scheme,))

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
        if terms.rho_of_one_participation > self._rho * (1 + _ROUNDING):
            raise CostRefused(
                f"policy: one participation costs a record ρ = {terms.rho_of_one_participation:.3g}, more than its "
                f"whole budget of {self._rho:.3g}: ask with more noise"
            )
        with self._connected() as database, changing(database):
            self._pin(database, run, terms)
            spending = BudgetTransaction(database, run, terms, self._rho, self._names)
            yield spending
            spending.write()

    def leave(self, round_id: str, questions: Sequence[bytes]) -> None:
        """Forget answers that leave in a round and with noise, so that another round pays anew; on the disk then.

        Raises
        ------
        ProtocolViolation
            If an answer left before, or another round has it since: it is paid for one of them alone.
        """
        forgotten = "DELETE FROM answers WHERE question = ? AND round = ?"
        with self._connected() as database, changing(database):
            if not all(database.execute(forgotten, (one, round_id)).rowcount for one in questions):
                raise ProtocolViolation("another round was asked the same since, or this one twice: begin a new round")

    def _pin(self, database: sqlite3.Connection, run: str, terms: RecordBudget) -> None:
        text = json.dumps([terms.rho_per_unit_squared, terms.levels, terms.participations])
        known = database.execute("SELECT terms FROM runs WHERE run = ?", (run,)).fetchone()
        if known is None:
            database.execute("INSERT INTO runs VALUES (?, ?, ?)", (run, text, terms.rho_per_unit_squared))
        elif known[0] != text:
            raise MechanismRefused(
                "this run began with other noise or other budgets per record: keep them or begin a new run"
            )

    def _connected(self) -> AbstractContextManager[sqlite3.Connection]:
        return nullcontext(self._memory) if self._path is None else connected(self._path)


class BudgetTransaction:
    """What the records have spent, within one transaction."""

    def __init__(
        self,
        database: sqlite3.Connection,
        run: str,
        terms: RecordBudget,
        rho: float,
        names: NDArray[np.void],
    ) -> None:
        self._database = database
        self._run = run
        self._terms = terms
        self._rho = rho
        self._names = names
        self._units_squared = np.zeros(len(names), dtype=np.int64)
        self._retired = np.zeros(len(names), dtype=bool)
        self._elsewhere = np.zeros(len(names))
        self._changed = np.zeros(len(names), dtype=bool)
        for name, units_squared, retired in database.execute(
            "SELECT record, units_squared, retired FROM spent WHERE run = ?", (run,)
        ):
            if (number := self._number(name)) is not None:
                self._units_squared[number], self._retired[number] = units_squared, retired
        for name, spent in database.execute(
            "SELECT record, SUM(units_squared * rho_per_unit_squared) FROM spent JOIN runs USING (run) "
            "WHERE run <> ? GROUP BY record",
            (run,),
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
        self._database.execute("UPDATE answers SET round = ? WHERE question = ?", (round_id, question))
        row = self._database.execute("SELECT counts FROM answers WHERE question = ?", (question,)).fetchone()
        return None if row is None else np.frombuffer(row[0], dtype="<i8").astype(np.int64)

    def keep(self, question: bytes, counts: NDArray[np.int64], round_id: str) -> None:
        """Remember the answer to a new question."""
        kept = question, counts.astype("<i8").tobytes(), round_id
        self._database.execute("INSERT INTO answers VALUES (?, ?, ?)", kept)

    def write(self) -> None:
        """Put what changed into the transaction."""
        self._database.executemany(
            "INSERT INTO spent VALUES (?, ?, ?, ?) ON CONFLICT (run, record) DO UPDATE SET "
            "units_squared = excluded.units_squared, retired = excluded.retired",
            (
                (self._run, self._names[number].tobytes(), int(self._units_squared[number]), int(self._retired[number]))
                for number in np.flatnonzero(self._changed)
            ),
        )
