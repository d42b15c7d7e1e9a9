"""Processes that charge, label and release until they are killed, and tell a witness what they did.

The witness is a pipe: what went through it was seen by the world outside and cannot be taken back.
"""

from __future__ import annotations

import os
import resource
import secrets
import signal
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.errors import LabelConflict
from collegium.privacy.ledger.entry import Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium_accounting.game.laws import VectorLaw

CLASSES = 10
LAW = VectorLaw(2**0.5 / 40.0)
Report = Callable[[tuple[object, ...]], None]


def open_ledger(path: Path, key: bytes, on_connect: Callable[[sqlite3.Connection], None] | None = None) -> Ledger:
    return Ledger.open(
        path,
        signer=Ed25519PrivateKey.from_private_bytes(key),
        delta=1e-5,
        terms=Terms(epsilon_budget=1000.0),
        name="crash",
        on_connect=on_connect,
    )


def charge(ledger: Ledger, queries: Sequence[str], report: Report) -> int:
    paid = ledger.charge("gnmax:release", queries, {"record": LAW})
    report(("charged", paid, len(queries)))
    return paid


def draw(queries: Sequence[str]) -> dict[str, int]:
    """Fresh noise each time: asking the mechanism twice gives different labels."""
    return {query: secrets.randbelow(CLASSES) for query in queries}


def charge_first(ledger: Ledger, queries: Sequence[str], report: Report) -> None:
    """What the ledger is for."""
    paid = charge(ledger, queries, report)
    labels = draw(queries)
    try:
        ledger.release(paid, labels)
    except LabelConflict as conflict:
        labels = conflict.labels
    report(("labels", labels))


def release_before_charging(ledger: Ledger, queries: Sequence[str], report: Report) -> None:
    """Planted: labels leave before they are paid for."""
    labels = draw(queries)
    report(("labels", labels))
    with suppress(LabelConflict):
        ledger.release(charge(ledger, queries, report), labels)


def charge_in_memory(ledger: Ledger, queries: Sequence[str], report: Report) -> None:
    """Planted: a charge is acknowledged before it is durable, and written together with the release."""
    report(("charged", ledger.head().seq + 1, len(queries)))
    labels = draw(queries)
    try:
        ledger.release(charge(ledger, queries, lambda _: None), labels)
    except LabelConflict as conflict:
        labels = conflict.labels
    report(("labels", labels))


def keep_own_label(ledger: Ledger, queries: Sequence[str], report: Report) -> None:
    """Planted: a label is handed out before it is durable, so a next life draws another one."""
    paid = charge(ledger, queries, report)
    labels = draw(queries)
    report(("labels", labels))
    with suppress(LabelConflict):
        ledger.release(paid, labels)


WAYS = {way.__name__: way for way in (charge_first, release_before_charging, charge_in_memory, keep_own_label)}


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def work(
    path: Path,
    key: bytes,
    witness: Connection,
    way: str,
    *,
    pool: int = 1_000_000,
    kill_at_statement: int | None = None,
    kill_at_file_bytes: int | None = None,
) -> None:
    """Label the pool in batches of 1 to 4, from where the ledger says it stands."""
    statements = 0

    def count(_: str) -> None:
        nonlocal statements
        statements += 1
        if statements == kill_at_statement:
            _die()

    def watch(connection: sqlite3.Connection) -> None:
        connection.set_trace_callback(count)
        witness.send(("started",))

    if kill_at_file_bytes is not None:
        # The kernel ends the process in the very write() that would pass this size, after its first part.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (kill_at_file_bytes, kill_at_file_bytes))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    ledger = open_ledger(path, key, watch)
    done = len(ledger.labels())
    while done < pool:
        held = ledger.labels()
        done = len(held)
        size = 1 + secrets.randbelow(4)
        batch = [f"pool:{index}" for index in range(done + 2 * size) if f"pool:{index}" not in held][:size]
        WAYS[way](ledger, batch, witness.send)
    ledger.close()
