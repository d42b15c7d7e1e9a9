"""The coordinator's ledger as this party knows it: the last entry that it was shown.

An older copy of the ledger, or another one, does not contain that entry. The coordinator proves that its chain does by
the digests of all entries since then: the party computes the hashes of the chain from them, and sees no entry.
"""

from collections.abc import Callable
from pathlib import Path

from collegium.errors import LedgerRefused, StorageError
from collegium.privacy.ledger.chain import Head, followed, following
from collegium.protocol.messages import Request
from collegium.protocol.replies import LedgerHead
from collegium.protocol.requests import Ask, ShowLedger
from collegium.whole_files import add_line


class KnownLedger:
    """Follows one ledger; refuses votes while the coordinator shows another.

    Parameters
    ----------
    path : the file that keeps the heads, a line ``SEQ:HASH`` for each, the latest last. If the consortium begins a new
        ledger, and the institution agrees, the institution deletes this file. None follows every ledger that it is
        shown (simulations).
    sign : signs with the party's identity how far it followed, so that an auditor sees which chain it was shown.

    Raises
    ------
    StorageError, ConfigurationError
        If the file cannot be read, or holds no head.
    """

    def __init__(self, path: Path | None, sign: Callable[[bytes], bytes] | None = None) -> None:
        self._path, self._sign = path, sign
        self._refused = False
        self.head()

    def head(self) -> Head | None:
        """The last entry that this party was shown, None where there was none."""
        if self._path is None or not self._path.exists():
            return None
        try:
            *lines, last = self._path.read_text(encoding="ascii").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(f"cannot read {self._path}: {error}") from error
        # What follows the last end of a line was cut short by a crash, before the coordinator heard of it.
        whole = [line for line in lines if line]
        if not whole and (lines or not last):
            return None
        return Head.parse(whole[-1] if whole else last)

    def __call__(self, request: Request) -> LedgerHead:
        """Follow the entries that the coordinator shows. Raises LedgerRefused unless they follow the kept head."""
        assert isinstance(request.body, ShowLedger)
        kept = self.head()
        reached = Head.parse(request.body.after) if request.body.after else None
        self._refused = reached != kept and self._path is not None
        if self._refused:
            raise LedgerRefused(
                f"the coordinator's ledger does not continue entry {kept}, which this party was shown: an older "
                "copy or another ledger took its place; ask the consortium"
            )
        for digest in request.body.digests:
            reached = following(reached, digest)
        if self._path is not None and reached != kept:
            add_line(self._path, str(reached))
        head = "" if reached is None else str(reached)
        return LedgerHead(head, b"" if self._sign is None else self._sign(followed(head)))

    def check(self, request: Request) -> None:
        """Raise LedgerRefused for a request for votes by a coordinator that has shown another ledger."""
        if self._refused and self.head() is not None and isinstance(request.body, Ask):
            raise LedgerRefused("the ledger that the coordinator showed last does not hold the entry from before")
