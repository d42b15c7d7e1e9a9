"""Two hundred deaths of a process that charges and releases: in every statement, in every write, at any moment.

After each, one checker compares the ledger with what the world outside saw: nothing under-counted, one
label per query, the chain whole and no shorter. The same checker must catch three planted ledgers.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support import ledger_crash_worker as worker

from collegium.errors import StorageError
from collegium.privacy.ledger.chain import Head
from collegium.privacy.ledger.entry import Charge
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.verifier import verify

KEY = bytes(range(32))
PUBLIC_KEY = Ed25519PrivateKey.from_private_bytes(KEY).public_key().public_bytes_raw()
LIVES_PER_LEDGER = 10
CONTEXT = get_context("forkserver")
# What a worker needs, and what its start imports again as the main module: it then starts in milliseconds.
CONTEXT.set_forkserver_preload(["collegium.privacy.ledger.ledger", "pytest"])


class Broken(AssertionError):
    """The ledger and what the world saw disagree."""


@dataclass
class World:
    """One ledger, and everything that its processes let out, life after life."""

    path: Path
    way: str
    charges: dict[int, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    head: Head | None = None
    kills: int = 0

    def start(self, **limits: int) -> tuple[ForkServerProcess, Connection]:
        receive, send = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=worker.work, args=(self.path, KEY, send, self.way), kwargs=limits)
        process.start()
        send.close()
        return process, receive

    def bury(self, process: ForkServerProcess, witness: Connection) -> None:
        """Wait for a process's end, then take in all that it had let out."""
        seen = list(_drain(witness))  # ends when the process does, and never blocks it on a full pipe
        process.join()
        self.kills += process.exitcode in (-signal.SIGKILL, -signal.SIGXFSZ)
        if process.exitcode > 0:
            raise Broken("a process failed instead of being killed")
        for kind, *what in seen:
            if kind == "charged":
                self.charges[what[0]] = what[1]
            elif kind == "labels":
                for query, label in what[0].items():
                    if self.labels.setdefault(query, label) != label:
                        raise Broken(f"{query} was given two different labels")

    def check(self) -> None:
        """Compare the ledger with what was seen; raises Broken or LedgerCorrupt."""
        try:
            ledger = Ledger.read(self.path)
        except StorageError:  # killed before its first entry
            if self.charges or self.labels or self.head:
                raise Broken("the ledger is gone") from None
            return
        with ledger:
            self.head = verify(self.path, PUBLIC_KEY, self.head).heads[-1]
            paid = {e.seq: e.content.queries for e in ledger.entries() if isinstance(e.content, Charge)}
            held, queries_charged = ledger.labels(), ledger.queries_charged()
        for seq, queries in self.charges.items():
            if paid.get(seq) != queries:
                raise Broken(f"charge {seq} was acknowledged and is not there")
        if len(self.labels) > queries_charged:
            raise Broken(f"{len(self.labels)} labels were given out, {queries_charged} are charged")
        for query, label in self.labels.items():
            if held.get(query) != label:
                raise Broken(f"{query} was given label {label}, the ledger holds {held.get(query)}")


def _drain(witness: Connection) -> Iterator[tuple[object, ...]]:
    while True:
        try:
            yield witness.recv()
        except (EOFError, OSError):  # the writer is gone, perhaps in the middle of a message
            witness.close()
            return


def _worlds(folder: Path, way: str, lives: int) -> Iterator[World]:
    """The world of each life: the same ledger for ten lives, then a new one."""
    for number in range(-(-lives // LIVES_PER_LEDGER)):
        world = World(folder / f"{number}.sqlite", way)
        yield from [world] * min(LIVES_PER_LEDGER, lives - number * LIVES_PER_LEDGER)


def _die_in_every_statement(folder: Path, way: str, lives: int) -> int:
    kills = 0
    for number, world in enumerate(_worlds(folder, way, lives)):
        # The first lives of the ledgers die in statements 1 to 8, where they are created; later lives in 1 to 40.
        life, ledger = number % LIVES_PER_LEDGER, number // LIVES_PER_LEDGER
        before = world.kills
        world.bury(*world.start(kill_at_statement=1 + (ledger + 9 * life) % 40))
        world.check()
        kills += world.kills - before
    return kills


def _die_in_a_write(folder: Path, way: str, lives: int) -> int:
    kills, chance = 0, random.Random(1)
    for world in _worlds(folder, way, lives):
        log = world.path.with_name(world.path.name + "-wal")
        size = log.stat().st_size if log.exists() else 0
        before = world.kills
        # SQLite's shared index takes 32 KiB at once; above that, the log's writes alone meet the limit.
        world.bury(*world.start(kill_at_file_bytes=max(size, 33_000) + chance.randrange(60_000)))
        world.check()
        kills += world.kills - before
    return kills


def _die_at_any_moment(folder: Path, way: str, pairs: int) -> int:
    kills, chance = 0, random.Random(2)
    for world in _worlds(folder, way, pairs):
        before = world.kills
        pair = [world.start(), world.start()]
        for _, witness in pair:
            assert witness.recv() == ("started",)
        for process, _ in pair:
            wait([process.sentinel], timeout=chance.uniform(0.0, 0.04))  # the moment is what is random here
            process.kill()
        for process, witness in pair:
            world.bury(process, witness)
        world.check()
        kills += world.kills - before
    return kills


@pytest.mark.slow
def test_two_hundred_kills_never_undercount_nor_relabel(tmp_path: Path) -> None:
    kills = {}
    for name, die, lives in (
        ("statement", _die_in_every_statement, 80),
        ("write", _die_in_a_write, 60),
        ("moment", _die_at_any_moment, 30),
    ):
        (tmp_path / name).mkdir()
        kills[name] = die(tmp_path / name, "charge_first", lives)
    assert kills == {"statement": 80, "write": 60, "moment": 60}


@pytest.mark.parametrize("way", ["release_before_charging", "charge_in_memory", "keep_own_label"])
def test_the_crash_check_catches_a_planted_ledger(tmp_path: Path, way: str) -> None:
    with pytest.raises(Broken):
        _die_in_every_statement(tmp_path, way, 80)


def test_an_interrupted_pool_is_finished_and_each_query_is_paid_for(tmp_path: Path) -> None:
    world = World(tmp_path / "ledger.sqlite", "charge_first")
    for statement in (3, 9, 14):
        world.bury(*world.start(pool=12, kill_at_statement=statement))
        world.check()
    world.bury(*world.start(pool=12))
    world.check()
    assert world.kills == 3
    with Ledger.read(world.path) as ledger:
        assert len(ledger.labels()) >= 12
        assert ledger.queries_charged() >= len(ledger.labels())
