"""A hash tree over a list of entries: its root commits to all of them, and a few are shown with a short proof.

The hashes of an entry and of a pair of nodes begin with different bytes (as in RFC 6962, section 2.1), so that neither
can be taken for the other. The last node of a level of odd length goes up one level as it is.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence

from collegium.protocol.secure_sum.errors import MalformedMessage

HASH_BYTES = 32


def _entry_hash(entry: bytes) -> bytes:
    return hashlib.sha256(b"\0" + entry).digest()


def _above(level: Mapping[int, bytes], size: int) -> dict[int, bytes]:
    """The nodes above some of a level of ``size`` nodes, of which both of a pair must be there."""
    return {
        i // 2: hashlib.sha256(b"\1" + level[i & ~1] + level[i | 1]).digest() if i | 1 < size else level[i]
        for i in sorted(level)
    }


def _missing(known: Collection[int], size: int) -> list[int]:
    """Positions of the nodes that complete the pairs of the known ones, ascending."""
    return [i ^ 1 for i in sorted(known) if i ^ 1 not in known and i | 1 < size]


class HashTree:
    """The tree over ``entries``, at least one."""

    def __init__(self, entries: Sequence[bytes]) -> None:
        self._levels = [{i: _entry_hash(entry) for i, entry in enumerate(entries)}]
        while len(self._levels[-1]) > 1:
            self._levels.append(_above(self._levels[-1], len(self._levels[-1])))

    @property
    def root(self) -> bytes:
        """32 bytes that no other list of as many entries has."""
        return self._levels[-1][0]

    def proof(self, shown: Collection[int]) -> bytes:
        """The hashes that lead from the entries at these positions to the root: at most ⌈log2 n⌉ for each."""
        known, hashes = set(shown), list[bytes]()
        for level in self._levels[:-1]:
            hashes += [level[i] for i in _missing(known, len(level))]
            known = {i // 2 for i in known}
        return b"".join(hashes)


def root_of(shown: Mapping[int, bytes], size: int, proof: bytes) -> bytes:
    """The root to which some entries by their position, at least one, of ``size`` in all lead with this proof.

    Raises
    ------
    MalformedMessage
        When the proof is too short or too long.
    """
    hashes = [proof[start : start + HASH_BYTES] for start in range(0, len(proof), HASH_BYTES)]
    level = {i: _entry_hash(entry) for i, entry in shown.items()}
    while size > 1:
        missing = _missing(level, size)
        if len(missing) > len(hashes):
            raise MalformedMessage("a proof of the hash tree is too short")
        level |= dict(zip(missing, hashes, strict=False))
        del hashes[: len(missing)]
        level, size = _above(level, size), (size + 1) // 2
    if hashes or len(proof) % HASH_BYTES:
        raise MalformedMessage("a proof of the hash tree is too long")
    return level[0]
