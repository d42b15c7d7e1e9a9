"""An audit of a ledger: every entry walked afresh, held against a key and a head known from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collegium.errors import LedgerCorrupt
from collegium.privacy.ledger.chain import Chain, Head, Row
from collegium.privacy.renyi import Epsilon


@dataclass(frozen=True)
class VerifyReport:
    """What a walk over the whole chain found. It exists only where every entry passed.

    ``public_key`` is the key that every entry is signed with, empty where the ledger is not signed;
    ``key_is_known`` tells whether the caller named it or the ledger alone states it.
    """

    name: str
    entries: int
    charges: int
    queries_charged: int
    labels: int
    spent: Epsilon
    head: Head
    public_key: bytes
    key_is_known: bool


def audit(rows: Sequence[Row], public_key: bytes | None = None, head: Head | None = None) -> VerifyReport:
    """Walk ``rows`` from the first; raises LedgerCorrupt naming the first bad entry. See ``Ledger.verify``."""
    chain = Chain()
    for row in rows:
        chain.absorb(row)
    settings = chain.settings
    assert chain.head is not None  # there are settings, hence a first entry
    if public_key is not None and settings.public_key != public_key:
        raise LedgerCorrupt("entry 0: the ledger is not signed with the given key: it is another one's, or forged")
    if head is not None and not any((row.seq, row.hash) == (head.seq, head.hash) for row in rows):
        raise LedgerCorrupt(f"entry {head.seq}: it is not the one that was printed; the ledger was cut or rewritten")
    return VerifyReport(
        name=settings.name,
        entries=len(rows),
        charges=chain.charges,
        queries_charged=chain.queries_charged,
        labels=len(chain.labels),
        spent=chain.epsilon(),
        head=chain.head,
        public_key=settings.public_key,
        key_is_known=public_key is not None,
    )
