"""What every answer passes before it leaves this party: it is counted and charged, or it stays."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium import limits
from collegium.data import PoolStore
from collegium.errors import ProtocolViolation
from collegium.parties.answer_book import AnswerBook
from collegium.parties.answers import Answer
from collegium.privacy.mechanisms import SumMode
from collegium.privacy.units import IntArray
from collegium.protocol.messages import Request
from collegium.protocol.requests import PoolRange, SumRecords, VoteRequest


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

    def check(self, request: Request) -> None:
        """Raise Refused where the answer to a request for votes would not be let out now; nothing is counted."""
        assert isinstance(request.body, VoteRequest)
        if self._account is not None:
            self._account.check(self._answer(request.run_id, request.body, self._roster))

    def let_out(self, request: Request, counts: IntArray) -> IntArray:
        """Count and charge an answer in the clear; returns the counts to send. Raises Refused."""
        assert isinstance(request.body, VoteRequest)
        leaving = self.summed(request.run_id, request.body, counts, {})
        leaving.let_out()
        return leaving.counts

    def summed(self, run_id: str, asked: VoteRequest, counts: IntArray, roster: Mapping[str, bytes]) -> "LeavingAnswer":
        """The answer to ``asked`` on its way into the sum over a roster; nothing is counted yet."""
        if self._account is None:
            return LeavingAnswer(counts, None, None, None)
        answer = self._answer(run_id, asked, roster)
        return LeavingAnswer(*self._account.kept(answer, counts), answer, self._account)

    def resumed(
        self,
        run_id: str,
        asked: VoteRequest,
        counts: IntArray,
        left_before: NDArray[np.bool_] | None,
        roster: Mapping[str, bytes],
    ) -> "LeavingAnswer":
        """The answer that `summed` gave before: its counts, and which of them had left then."""
        if self._account is None:
            return LeavingAnswer(counts, None, None, None)
        return LeavingAnswer(counts, left_before, self._answer(run_id, asked, roster), self._account)

    def _answer(self, run_id: str, body: VoteRequest, roster: Mapping[str, bytes]) -> Answer:
        if self._account is not None:
            self._account.require_parties(body.terms, len(roster))
        if isinstance(body, SumRecords):
            # Exact sums over other parties would differ by one party's own, whatever else differs a little: a kind of
            # sum is one question then, however it is put.
            exact = body.terms.sum_mode == SumMode.MASKED
            contents: Sequence[bytes] = [type(body).__name__.encode() if exact else body.question]
        else:
            pool_asked(self._pools, body.inputs, 1)  # raises for positions that the pool does not have
            contents = self._pools.contents(body.inputs.pool_sha256, body.inputs.indices)
        named = "".join(f"{name}={key.hex()};" for name, key in sorted(roster.items()))
        clear = body.terms.sum_mode == "clear"
        return Answer.to(run_id, body, contents, b"" if clear else hashlib.sha256(named.encode()).digest())


class LeavingAnswer:
    """One answer while it leaves.

    Parameters
    ----------
    counts : IntArray
        What is sent, shape ``[queries, entries]``: as it left before, where it did.
    left_before : array or None
        Where it did, shape ``[queries]``.
    """

    def __init__(
        self,
        counts: IntArray,
        left_before: NDArray[np.bool_] | None,
        answer: Answer | None,
        account: AnswerBook | None,
    ) -> None:
        self.counts, self.left_before, self._answer, self._account = counts, left_before, answer, account

    def let_out(self) -> None:
        """Count and charge the answer; raises Refused, and then it must not be sent."""
        if self._account is not None and self._answer is not None:
            self._account.leave(self._answer, self.counts, self.left_before)

    def open_with(self, opened: bytes) -> None:
        """Agree that the answer is opened in this sum (`PartySum.opened`); raises Refused, and then it must not be."""
        if self._account is not None and self._answer is not None:
            self._account.sign(self._answer, opened)


def pool_asked(pools: PoolStore, asked: PoolRange, width: int) -> NDArray[Any]:
    """The pool that ``asked`` names, once its positions are checked.

    Parameters
    ----------
    width : int
        How many counts the answer holds for each query.

    Raises
    ------
    ProtocolViolation
        If a query lies outside the pool, or the answer would be too long for a message.
    PoolMismatch
        If this party does not hold the pool.
    """
    positions = asked.indices
    if len(positions) * width > limits.MAX_COUNTS_PER_ANSWER:
        raise ProtocolViolation(f"{len(positions)} queries of {width} counts each are too many at once: ask in parts")
    pool = pools.open(asked.pool_sha256)
    if not 0 <= min(positions) <= max(positions) < len(pool):
        raise ProtocolViolation(f"a query lies outside the pool: its {len(pool)} inputs are numbered from 0")
    return pool
