"""Answers one question about neighbours and dies: before the transaction is on the disk, or right after.

Usage: neighbour_crash_worker.py FOLDER before|after POSITIONS
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from collegium.parties.neighbours.budgets import BudgetTransaction, RecordBudgets
from support.record_votes import Clinic


def main() -> None:
    folder, when, positions = sys.argv[1:]
    if when == "before":
        write = BudgetTransaction.write

        def write_and_die(spending: BudgetTransaction) -> None:
            write(spending)
            os._exit(9)

        BudgetTransaction.write = write_and_die  # type: ignore[method-assign]
    else:
        transaction = RecordBudgets.transaction

        def commit_and_die(self, *asked):  # type: ignore[no-untyped-def]
            with transaction(self, *asked) as opened:
                yield opened
            os._exit(9)

        from contextlib import contextmanager

        RecordBudgets.transaction = contextmanager(commit_and_die)  # type: ignore[method-assign]
    clinic = Clinic(Path(folder))
    clinic.ask(clinic.question(tuple(int(position) for position in positions.split(","))))
    os._exit(1)


main()
