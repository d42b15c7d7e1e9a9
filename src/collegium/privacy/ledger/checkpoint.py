"""What the entries of a ledger came to, signed by its owner, so that a start need not walk them again.

A checkpoint is taken of a chain whose entries were all checked. It holds for the ledger whose entry, of the number and
with the hash that it names, is still there; every entry after that one is checked as always. Whoever lacks the owner's
key can make it useless, or put an older one in its place, and both cost time alone.
"""

import hashlib
import json
from datetime import datetime

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.privacy.ledger.chain import Chain, Head
from collegium.privacy.ledger.entry import FORMAT, Charge, Content, Settings, Terms, decode, encode
from collegium.privacy.ledger.store import EntryStore

CHECKPOINT_EVERY = 1000
"""Entries that a start checks again at most after an orderly end."""

_PURPOSE = f"collegium ledger checkpoint of format {FORMAT}\0".encode()


class Checkpoints:
    """The checkpoint of one ledger; an owner without a key takes none."""

    def __init__(self, store: EntryStore, owner: Ed25519PrivateKey | None) -> None:
        self._store, self._owner = store, owner
        self._kept_at = -1

    def last(self) -> Chain | None:
        """The chain that the owner's last one was taken of, where the file still holds its last entry."""
        kept = self._store.checkpoint()
        chain = recalled(*kept, self._owner) if kept and self._owner else None
        if chain is None or chain.head is None or not self._store.holds(chain.head):
            return None
        self._kept_at = chain.head.seq
        return chain

    def due(self, chain: Chain) -> bool:
        """Whether much was added since the last."""
        return self._owner is not None and chain.length > self._kept_at + CHECKPOINT_EVERY

    def keep(self, chain: Chain) -> None:
        """Put one of ``chain`` into the file where it is due; within a transaction of the caller."""
        if self._owner is not None and self.due(chain):
            self._store.keep(*taken(chain, self._owner))
            self._kept_at = chain.length - 1


def taken(chain: Chain, owner: Ed25519PrivateKey) -> tuple[bytes, bytes]:
    """State and signature of a checkpoint of ``chain``, which holds an entry or more."""
    assert chain.time_utc is not None
    made = chain.time_utc.isoformat()

    def line(content: Content) -> str:
        return encode(content, made).decode()

    state = json.dumps(
        {
            "settings": line(chain.settings),
            "first": chain.first.hex(),
            "head": str(chain.head),
            "time_utc": made,
            "periods": [(line(terms), charged) for terms, charged in chain.periods],
            "unreleased": list(chain.unreleased.items()),
            "untouched": [(seq, line(terms), line(charge)) for seq, (terms, charge) in chain.untouched.items()],
            "opening": [(seq, line(terms), line(charge), name) for seq, (terms, charge, name) in chain.opening.items()],
            "labels": chain.labels,
        }
    ).encode()
    return state, owner.sign(_signed(state))


def recalled(state: bytes, signature: bytes, owner: Ed25519PrivateKey) -> Chain | None:
    """The chain that a checkpoint was taken of; None unless this owner signed it."""
    try:
        owner.public_key().verify(signature, _signed(state))
    except InvalidSignature:
        return None
    written, chain = json.loads(state), Chain()
    settings, _ = decode(written["settings"].encode(), None)
    assert isinstance(settings, Settings)

    def read(line: str) -> Content:
        return decode(line.encode(), settings)[0]

    chain.stated, chain.first, chain.head = settings, bytes.fromhex(written["first"]), Head.parse(written["head"])
    chain.time_utc = datetime.fromisoformat(written["time_utc"])
    chain.periods = []
    for line, charged in written["periods"]:
        terms = read(line)
        assert isinstance(terms, Terms)
        chain.periods.append((terms, charged))
        for purpose, queries in charged.items():
            chain.spending.take(terms, purpose, queries)
    chain.unreleased = dict(written["unreleased"])
    for charges in ("untouched", "opening"):
        for seq, stated, paid, *name in written[charges]:
            terms, charge = read(stated), read(paid)
            assert isinstance(terms, Terms) and isinstance(charge, Charge)
            getattr(chain, charges)[seq] = (terms, charge, *name)
    chain.labels = written["labels"]
    return chain


def _signed(state: bytes) -> bytes:
    return _PURPOSE + hashlib.sha256(state).digest()
