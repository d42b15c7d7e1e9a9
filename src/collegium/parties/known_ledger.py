"""The coordinator's ledger as this party knows it: the last entry that it was shown.

An older copy of the ledger, or another one, does not contain that entry. The coordinator proves that its chain does by
the digests of all entries since then: the party computes the hashes of the chain from them, and sees no entry.
"""

from __future__ import annotations

from pathlib import Path

from collegium.errors import LedgerRefused, StorageError
from collegium.privacy.ledger.chain import Head, following
from collegium.protocol.messages import LedgerHead, Request, ShowLedger, VoteRequest
from collegium.whole_files import write_whole


class KnownLedger:
    """Follows one ledger; refuses votes while the coordinator shows another.

    Parameters
    ----------
    path : the file that keeps the head as ``SEQ:HASH``. If the consortium begins a new ledger, and the institution
        agrees, the institution deletes this file. None follows every ledger that it is shown (simulations).

    Raises
    ------
    StorageError, ConfigurationError
        If the file cannot be read, or holds no head.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._refused = False
        try:
            self.head = Head.parse(path.read_text(encoding="ascii")) if path is not None and path.exists() else None
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(f"cannot read {path}: {error}") from error

    def __call__(self, request: Request) -> LedgerHead:
        """Follow the entries that the coordinator shows; without any, only say which entry was the last one."""
        assert isinstance(request.body, ShowLedger)
        after, digests = request.body.after, request.body.digests
        if self._path is None and not after:
            self.head = None
        if after or digests:
            self._follow(Head.parse(after) if after else None, digests)
        return LedgerHead("" if self.head is None else str(self.head))

    def check(self, request: Request) -> None:
        """Raise LedgerRefused for a request for votes by a coordinator that has shown another ledger."""
        if self._refused and isinstance(request.body, VoteRequest):
            raise LedgerRefused("the ledger that the coordinator showed last does not hold the entry from before")

    def _follow(self, after: Head | None, digests: tuple[bytes, ...]) -> None:
        self._refused = after != self.head
        if self._refused:
            raise LedgerRefused(
                f"the coordinator's ledger does not continue entry {self.head}, which this party was shown: an older "
                "copy or another ledger took its place; ask the consortium"
            )
        for digest in digests:
            after = following(after, digest)
        if after != self.head and self._path is not None:
            write_whole(self._path, f"{after}\n", mode=0o600)
        self.head = after
