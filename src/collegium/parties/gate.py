"""What every answer passes before it leaves this party: it is counted and charged, or it stays."""

import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from collegium.data import PoolStore
from collegium.parties.answer_book import AnswerBook
from collegium.parties.answers import Answer
from collegium.protocol.question import Question
from collegium_accounting.units import IntArray


class AnswerGate:
    """Counts and charges answers: votes in the clear when they are sent, others when their masked vector is.

    Parameters
    ----------
    account : AnswerBook or None
        What the party has answered, and its limits; None counts nothing (simulations).
    pools : PoolStore
        Tells which inputs a request names.
    roster : mapping
        Ed25519 public key of each party that answers are summed with, by name; empty without secure sums.
    """

    def __init__(self, account: AnswerBook | None, pools: PoolStore, roster: Mapping[str, bytes]) -> None:
        self._account, self._pools, self._roster = account, pools, roster

    def check(self, run_id: str, question: Question) -> None:
        """Raise Refused where the answer to a question would not be let out now; nothing is counted."""
        if self._account is not None:
            self._account.check(self._answer(run_id, question, self._roster))

    def kept(
        self, run_id: str, question: Question, counts: IntArray, roster: Mapping[str, bytes]
    ) -> tuple[IntArray, NDArray[np.bool_] | None]:
        """The counts ``[queries, entries]`` to send, as they left before where they did, and where; nothing is counted.

        ``roster`` is that of the sum they go into; empty in the clear.
        """
        if self._account is None:
            return counts, None
        return self._account.kept(self._answer(run_id, question, roster), counts)

    def let_out(
        self,
        run_id: str,
        question: Question,
        counts: IntArray,
        left_before: NDArray[np.bool_] | None,
        roster: Mapping[str, bytes],
    ) -> None:
        """Count and charge an answer, as `kept` gave it; raises Refused, and then it must not be sent."""
        if self._account is not None:
            self._account.leave(self._answer(run_id, question, roster), counts, left_before)

    def open_with(self, run_id: str, question: Question, roster: Mapping[str, bytes], opened: bytes) -> None:
        """Agree that an answer is opened in this sum (`PartySum.opened`); raises Refused, and then it must not be."""
        if self._account is not None:
            self._account.sign(self._answer(run_id, question, roster), opened)

    def _answer(self, run_id: str, question: Question, roster: Mapping[str, bytes]) -> Answer:
        if self._account is not None:
            self._account.require_parties(question.terms, len(roster))
        asked = question.queries
        contents = [] if asked is None else self._pools.contents(asked.pool_sha256, asked.indices)
        named = "".join(f"{name}={key.hex()};" for name, key in sorted(roster.items()))
        clear = question.terms.sum_mode == "clear"
        return Answer.to(run_id, question, contents, b"" if clear else hashlib.sha256(named.encode()).digest())
