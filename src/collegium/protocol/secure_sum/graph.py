"""Who holds whose shares: drawn from each party's committed nonce and everyone's adverts.

The nonce of party i is fixed (committed to and signed) before i sees anyone's keys, and unknown to
all others until i has been shown the full list of adverts. So neither i nor the coordinator nor any
coalition of others chooses i's holders; what a dishonest party does with its own choice only
concerns its own secrets.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
from numpy.typing import NDArray

from collegium.protocol.secure_sum import keys

IndexArray = NDArray[np.int64]


def adverts_transcript(setup: bytes, participants: bytes, columns: tuple[bytes, ...]) -> bytes:
    """SHA-256 of the list of adverts; the columns' lengths follow from the bitmap of participants."""
    hasher = hashlib.sha256(keys.GRAPH + b"/transcript" + setup + struct.pack("<I", len(participants)) + participants)
    for column in columns:
        hasher.update(column)
    return hasher.digest()


def holders_of(owner: int, nonce: bytes, transcript: bytes, participants: IndexArray, neighbours: int) -> IndexArray:
    """Indices of the owner's holders, ascending: a uniform ``neighbours``-subset of the other participants.

    Each participant gets a 64-bit ticket from a ChaCha20 stream keyed by (nonce, transcript, owner); the
    lowest tickets win. Ties, which favour the lower index, have probability below 2^-45 for 1,000 parties.
    With ``neighbours`` at or above the number of others, all of them hold shares.
    """
    others: IndexArray = participants[participants != owner]
    if neighbours >= others.size:
        return others
    key = keys.derive_key(nonce, keys.GRAPH, transcript, owner)
    tickets = np.frombuffer(keys.keystream(key, 8 * others.size), dtype="<u8")
    chosen: IndexArray = np.sort(others[np.argsort(tickets, kind="stable")[:neighbours]])
    return chosen
