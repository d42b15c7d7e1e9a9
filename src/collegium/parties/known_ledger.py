"""The coordinator's ledger as this party knows it: the last entry that it was shown.

An older copy of the ledger, or another one, does not contain that entry. The coordinator proves that its chain does by
the digests of all entries since then: the party computes the hashes of the chain from them. Of entries it sees those
that state terms, and computes again what they say that a release costs. It signs how far it followed, and what it
agreed to have released, so that an auditor can compare both with the ledger that is published.
"""

from collections.abc import Callable
from dataclasses import replace

from collegium.errors import LedgerCorrupt, LedgerRefused
from collegium.parties.answer_book import AnswerBook
from collegium.privacy.ledger.chain import Head, following
from collegium.privacy.ledger.entry import read_terms
from collegium.privacy.ledger.stated_laws import check_terms
from collegium.privacy.ledger.witness import followed, listed
from collegium.protocol.messages import Request
from collegium.protocol.replies import LedgerHead
from collegium.protocol.requests import Ask, SecureSumStep, ShowLedger


class KnownLedger:
    """Follows one ledger; refuses votes while the coordinator shows another.

    Parameters
    ----------
    book : keeps the head. None follows every ledger that it is shown (simulations).
    sign : signs with the party's identity how far it followed, so that an auditor sees which chain it was shown.
    """

    def __init__(self, book: AnswerBook | None, sign: Callable[[bytes], bytes] | None = None) -> None:
        self._book, self._sign = book, sign
        self._refused = self._understated = False

    def head(self) -> Head | None:
        """The last entry that this party was shown, None where there was none."""
        return None if self._book is None else self._book.head()[0]

    def __call__(self, request: Request) -> LedgerHead:
        """Follow the entries that the coordinator shows. Raises LedgerRefused unless they follow the kept head."""
        assert isinstance(request.body, ShowLedger)
        kept, shown = (None, b"") if self._book is None else self._book.head()
        asked = replace(request, body=replace(request.body, settled=())).fingerprint()
        if shown == asked:
            return self._followed(str(kept))  # its reply was lost
        reached = Head.parse(request.body.after) if request.body.after else None
        self._refused = reached != kept and self._book is not None
        if self._refused:
            raise LedgerRefused(
                f"the coordinator's ledger does not continue entry {kept}, which this party was shown: an older "
                "copy or another ledger took its place; ask the consortium"
            )
        for line in request.body.terms:
            try:
                check_terms(read_terms(line))
            except LedgerCorrupt as error:
                self._understated = True
                raise LedgerRefused(f"the coordinator's ledger cannot be followed: {error}") from None
        self._understated = False
        for digest in request.body.digests:
            reached = following(reached, digest)
        if self._book is not None and reached != kept:
            self._book.keep_head(reached, asked)
        return self._followed("" if reached is None else str(reached))

    def _followed(self, head: str) -> LedgerHead:
        agreed = listed({} if self._book is None else self._book.agreed())
        return LedgerHead(head, b"" if self._sign is None else self._sign(followed(head, agreed)), agreed)

    def check(self, request: Request) -> None:
        """Raise LedgerRefused where a coordinator that has shown another ledger asks, or wants a sum opened."""
        body = request.body
        opens = isinstance(body, SecureSumStep) and body.message.WhichOneof("phase") == "sign_survivors"
        if not (opens or isinstance(body, Ask)):
            return
        if self._understated:
            raise LedgerRefused("the ledger that the coordinator showed last states less than its mechanism costs")
        if self._refused and self.head() is not None:
            raise LedgerRefused("the ledger that the coordinator showed last does not hold the entry from before")
