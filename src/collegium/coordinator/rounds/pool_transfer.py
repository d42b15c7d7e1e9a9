"""The public pool reaches every party once: ask who lacks it, send the missing pieces to those alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from collegium.coordinator.rounds.parties import Parties
from collegium.data.arrays import canonical_bytes
from collegium.errors import PoolMismatch
from collegium.limits import MAX_CHUNK_BYTES
from collegium.protocol.messages import ArraySpec, Failure, HoldPool, PoolChunk, PoolState, ReplyBody

BYTES_IN_FLIGHT = 64 * 1024 * 1024
"""At most so much of a pool is on its way to all parties together."""
MIN_CHUNK_BYTES = 64 * 1024
STALLED_AFTER_S = 30.0
"""A party that does not take one piece in this time is left out, so that it does not hold up the others."""

MAX_SETBACKS = 3
"""How often a party may turn out to have less than before, as one that was started anew does."""

OnSent = Callable[[int, int], None]


def send_pool(
    parties: Parties,
    names: Sequence[str],
    array: NDArray[Any],
    spec: ArraySpec,
    *,
    timeout_s: float,
    on_sent: OnSent | None = None,
) -> dict[str, PoolState | Failure]:
    """Have each party hold the pool ``array``, whose name is ``spec``.

    Pieces go out in waves, one piece per party that lacks it, from the byte that it has reached: a
    party that was cut off, or that had part of the pool from before, resumes there. ``on_sent`` is
    called with (bytes held, bytes wanted) over all parties of ``names``.

    Returns per party its complete PoolState, or the Failure that left it without the pool.
    Raises PoolMismatch when ``array`` is not of the form of ``spec``.
    """
    if tuple(array.shape) != spec.shape or array.dtype.newbyteorder("=").name != spec.dtype:
        raise PoolMismatch(f"an array of form {array.dtype}{list(array.shape)} is not the pool {spec.sha256[:12]}")
    data = canonical_bytes(array)
    size = max(MIN_CHUNK_BYTES, min(MAX_CHUNK_BYTES, BYTES_IN_FLIGHT // max(1, len(names))))
    deadline = time.monotonic() + timeout_s
    results: dict[str, PoolState | Failure] = {}
    reached: dict[str, int] = {}
    setbacks = Counter[str]()

    def take(replies: dict[str, ReplyBody]) -> None:
        for name, reply in replies.items():
            outcome = _judge(reply, spec)
            if isinstance(outcome, int) and outcome <= reached.get(name, -1):
                setbacks[name] += 1
                if setbacks[name] > MAX_SETBACKS:
                    outcome = Failure("protocol", "it does not take the pieces of the pool that it is sent")
            if isinstance(outcome, int):
                reached[name] = outcome
            else:
                results[name] = outcome
                reached.pop(name, None)
        if on_sent is not None:
            complete = sum(isinstance(result, PoolState) for result in results.values())
            on_sent(complete * spec.size_bytes + sum(reached.values()), len(names) * spec.size_bytes)

    def wave_s() -> float:
        return max(0.0, min(STALLED_AFTER_S, deadline - time.monotonic()))

    take(parties.ask(dict.fromkeys(names, HoldPool(spec)), timeout_s=wave_s()))
    while reached:
        # Parties at the same place get the same object, which the transport then encodes once.
        pieces = {
            offset: PoolChunk(spec, offset, bytes(data[offset : offset + size])) for offset in set(reached.values())
        }
        take(parties.ask({name: pieces[offset] for name, offset in reached.items()}, timeout_s=wave_s()))
    return results


def _judge(reply: ReplyBody, spec: ArraySpec) -> int | PoolState | Failure:
    """Where to go on, in bytes, or how it ended."""
    if isinstance(reply, Failure):
        return reply
    if not isinstance(reply, PoolState) or reply.sha256 != spec.sha256:
        return Failure("protocol", "answered something else where the state of the pool was asked")
    if reply.complete:
        return reply
    if reply.received_bytes >= spec.size_bytes:
        return Failure("pool-mismatch", "it has every byte of the pool and calls it incomplete")
    return reply.received_bytes
