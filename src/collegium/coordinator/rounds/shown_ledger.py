"""Parties are shown how the ledger grows, so that an older copy of it is noticed by every party that answered since."""

from collections.abc import Collection
from functools import cache

from collegium.coordinator.rounds.rounds import Parties, outcome_of
from collegium.errors import CollegiumError
from collegium.limits import MAX_LEDGER_DIGESTS
from collegium.privacy.ledger.chain import Head, following
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.replies import Failure, LedgerHead
from collegium.protocol.requests import ShowLedger


class ShownLedger:
    """What each party was shown of the ledger."""

    def __init__(self, parties: Parties, ledger: Ledger) -> None:
        self._parties, self._ledger = parties, ledger
        self.heads: dict[str, str] = {}
        """The last entry that each party says it was shown, as ``SEQ:HASH``; empty for none."""

    def show(self, names: Collection[str], *, timeout_s: float, again: bool = False) -> dict[str, str]:
        """Have these parties follow the ledger to its last entry; with ``again`` also those that are there.

        Returns
        -------
        The outcome of each party that did not follow: it holds an entry that this ledger lacks, or did not answer.
        """
        failed: dict[str, str] = {}
        last = str(self._ledger.head())
        after = cache(self._after)  # equal for parties at the same entry, so that a request is encoded once
        waiting = [name for name in names if again or self.heads[name] != last]
        while waiting:
            steps = {name: after(self.heads[name]) for name in waiting}
            replies = self._parties.ask({name: step for name, (step, _) in steps.items()}, timeout_s=timeout_s)
            for name, (_, expected) in steps.items():
                reply = replies.get(name, Failure("unreachable", "no answer"))
                if isinstance(reply, Failure):
                    failed[name] = outcome_of(reply)
                elif reply != LedgerHead(expected):
                    failed[name] = "protocol: does not follow the ledger that it is shown"
                else:
                    self.heads[name] = expected
            waiting = [name for name in waiting if name not in failed and self.heads[name] != last]
        return failed

    def _after(self, head: str) -> tuple[ShowLedger, str]:
        """What a party at ``head`` is shown next, and where it is then; a head that is not ours it must refuse."""
        try:
            reached = Head.parse(head) if head else None
            digests = self._ledger.digests_after(reached, MAX_LEDGER_DIGESTS)
        except CollegiumError:
            return ShowLedger(str(self._ledger.head()), ()), ""
        for digest in digests:
            reached = following(reached, digest)
        return ShowLedger(head, tuple(digests)), str(reached)
