"""A start trusts the owner's own checkpoint of this ledger and no other one; whoever verifies trusts none."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.errors import LedgerCorrupt
from collegium.privacy.ledger import checkpoint
from collegium.privacy.ledger.chain import Chain
from collegium.privacy.ledger.entry import Block, Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.store import EntryStore
from collegium.privacy.ledger.verifier import verify
from collegium_accounting.game.laws import VectorLaw
from collegium_accounting.game.winner import RoundLaw
from collegium_accounting.units import Adjacency

OpenLedger = Callable[..., Ledger]
Start = Callable[[], tuple[list[int], dict[str, Any]]]
STRANGER = Ed25519PrivateKey.from_private_bytes(b"\x07" * 32)
EVERY = 4
WINNER = RoundLaw("gumbel", 40.0, Adjacency.REPLACE, 2)


@pytest.fixture(autouse=True)
def checkpoints_are_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "CHECKPOINT_EVERY", EVERY)


def work(ledger: Ledger, batch: int) -> None:
    """Charges with labels and without, one of another block, and two of blocks that were stated together."""
    paid = ledger.charge("release", [f"{batch}:{index}" for index in range(3)])
    ledger.release(paid, {f"{batch}:{index}": index for index in range(2)})
    ledger.charge("release", [f"{batch}:lost"])
    ledger.charge("evaluation", 1, {"record": VectorLaw(0.01), "party": VectorLaw(0.02)})
    ledger.allow(
        {"test": Block({"record": VectorLaw(0.005)}), "answer": Block({"record": WINNER})}, {"test": 9, "answer": 9}
    )
    ledger.charge("test", 2)
    ledger.charge("answer", 1)


@pytest.fixture
def told(open_ledger: OpenLedger) -> dict[str, Any]:
    """Two starts with work in each; what the owner knows at the end."""
    for batch in range(2):
        with open_ledger() as ledger:
            work(ledger, batch)
            known = what_is_known(ledger)
    return known


def what_is_known(ledger: Ledger) -> dict[str, Any]:
    charges = {seq: paid for seq, (_, paid) in ledger.untouched().items()}
    return {
        "epsilon": {unit: ledger.epsilon(unit) for unit in ledger.units()},
        "queries": ledger.queries_charged(),
        "used": ledger.used("release"),
        "labels": ledger.labels(),
        "open": charges,
        "head": ledger.head(),
        "terms": ledger.terms(),
        "identity": ledger.identity(),
    }


def change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as database:
        assert database.execute(statement, values).rowcount > 0
        database.commit()


@pytest.fixture
def start(open_ledger: OpenLedger, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts the owner; tells which entries that checks, and what the owner knows then."""

    def start_it() -> tuple[list[int], dict[str, Any]]:
        seen, honest = list[int](), Chain.absorb
        with monkeypatch.context() as watched:
            watched.setattr(Chain, "absorb", lambda own, row: (seen.append(row.seq), honest(own, row))[1])
            with open_ledger() as ledger:
                return seen, what_is_known(ledger)

    return start_it


@pytest.mark.slow
def test_a_start_from_a_checkpoint_knows_all_that_the_entries_say(
    path: Path, told: dict[str, Any], open_ledger: OpenLedger, start: Start
) -> None:
    with Ledger.read(path) as walked:
        assert what_is_known(walked) == told
    seen, known = start()
    assert known == told and len(seen) < EVERY
    with open_ledger() as ledger:  # what a crash left open is still there to be used
        (first, *_) = told["open"]
        ledger.release(first, {"0:lost": 3})
        assert first not in ledger.untouched()


@pytest.mark.parametrize(
    "edit", ["UPDATE entries SET body = CAST(replace(body, '3', '1') AS BLOB)", "DELETE FROM entries"]
)
def test_an_edit_below_the_checkpoint_changes_nothing_at_a_start_and_is_found_by_verify(
    path: Path, told: dict[str, Any], open_ledger: OpenLedger, start: Start, edit: str
) -> None:
    change(path, f"{edit} WHERE seq = 2")
    _, known = start()
    assert known == told
    for look in (verify, Ledger.read):
        with pytest.raises(LedgerCorrupt, match=r"entry [23]"):
            look(path)
    change(path, "DELETE FROM checkpoint")
    with pytest.raises(LedgerCorrupt, match=r"entry [23]"):
        open_ledger()


def whole(path: Path, entries: int = -1) -> Chain:
    chain = Chain()
    for row in EntryStore.read(path).rows(0, entries):
        chain.absorb(row)
    return chain


def forged(path: Path, by: Ed25519PrivateKey) -> tuple[bytes, bytes]:
    """A checkpoint of the newest entry that counts no charge."""
    chain = whole(path)
    for _, charged in chain.periods:
        charged.clear()
    return checkpoint.taken(chain, by)


def others(folder: Path, owner: Ed25519PrivateKey) -> tuple[bytes, bytes]:
    """A checkpoint of another ledger of the same owner."""
    path = folder / "other.sqlite"
    Ledger.open(path, signer=owner, delta=1e-5, terms=Terms(), name="five hospitals").close()
    return checkpoint.taken(whole(path), owner)


def check_checkpoint(path: Path, told: dict[str, Any], kept: tuple[bytes, bytes], start: Start, first: int) -> None:
    change(path, "UPDATE checkpoint SET state = ?, signature = ?", *kept)
    seen, known = start()
    assert known == told
    assert seen[0] == first, "the first entry that was checked"


def test_a_checkpoint_that_is_not_the_owners_of_this_ledger_costs_only_time(
    path: Path, told: dict[str, Any], owner: Ed25519PrivateKey, start: Start, tmp_path: Path
) -> None:
    sound, forgery = checkpoint.taken(whole(path), owner), forged(path, owner)
    check_checkpoint(path, told, forged(path, STRANGER), start, 0)
    check_checkpoint(path, told, (forgery[0], sound[1]), start, 0)
    check_checkpoint(path, told, (forgery[0], EntryStore.read(path).rows()[-1].signature), start, 0)
    check_checkpoint(path, told, others(tmp_path, owner), start, 0)
    check_checkpoint(path, told, checkpoint.taken(whole(path, 4), owner), start, 4)


def test_an_owner_that_believes_any_checkpoint_is_caught(
    path: Path, told: dict[str, Any], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = checkpoint.recalled
    monkeypatch.setattr(
        checkpoint, "recalled", lambda state, _, owner: honest(state, owner.sign(checkpoint._signed(state)), owner)
    )
    change(path, "UPDATE checkpoint SET state = ?, signature = ?", *forged(path, STRANGER))
    _, known = start()
    assert known != told and known["queries"] == 0


def test_an_older_ledger_is_not_taken_for_the_one_that_a_checkpoint_was_made_of(
    path: Path, told: dict[str, Any], open_ledger: OpenLedger, start: Start
) -> None:
    change(path, "DELETE FROM entries WHERE seq > 4")
    seen, _ = start()
    assert seen[0] == 0
    with Ledger.read(path) as cut, pytest.raises(LedgerCorrupt, match="older copy"):
        cut.require(told["head"])  # as run.json and the parties remember it
