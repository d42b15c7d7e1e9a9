"""A ledger with a given number of entries, charged and released as a run does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.clock import utc_now
from collegium.privacy.ledger.chain import Head, sign
from collegium.privacy.ledger.entry import Block, Charge, Content, Release, Settings, Terms, encode
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.ledger.steps import Step
from collegium.privacy.ledger.store import EntryStore
from collegium_accounting.mechanisms import AddedBy
from collegium_accounting.mechanisms.gnmax import GNMax

DELTA, NAME = 1e-5, "scale"


def terms_of(entries: int) -> Terms:
    """Terms that a million charges stay within."""
    mechanism = GNMax(sigma=1e4)
    (stage,), unit = mechanism.summed(AddedBy(1)), mechanism.unit()
    step = Step.of(mechanism, stage, {"record": unit})
    return Terms(epsilon_budget=4.0, blocks={"label": Block({"record": stage.law(unit)}, entries, step=step)})


def filled_ledger(path: Path, entries: int, owner: Ed25519PrivateKey) -> None:
    """Write a ledger of ``entries`` entries, half charges of one query each and half their releases."""
    store, head, made = EntryStore.open(path), None, utc_now().isoformat(timespec="microseconds")
    # One transaction for all, where a run has one for each: what is written is the same.
    with store.writing():
        store.begin()
        for content in contents(entries, owner.public_key().public_bytes_raw()):
            row = sign(head, encode(content, made), owner)
            store.insert(row)
            head = Head(row.seq, row.hash)
    store.close()


def contents(entries: int, public_key: bytes) -> Iterator[Content]:
    yield Settings(NAME, DELTA, public_key)
    yield terms_of(entries)
    for seq in range(2, entries, 2):
        yield Charge("label", 1, "")
        yield Release(seq, {f"{seq:032x}": seq % 10})


def opened(path: Path, entries: int, owner: Ed25519PrivateKey) -> Ledger:
    """Start it as its owner does."""
    return Ledger.open(path, signer=owner, delta=DELTA, terms=terms_of(entries), name=NAME)
