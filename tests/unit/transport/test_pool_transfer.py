"""The pool goes out in waves; a party that misbehaves or stalls is left out of the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from collegium.coordinator.rounds.readiness import MAX_SETBACKS, send_pool
from collegium.coordinator.rounds.rounds import OnReply
from collegium.data import PoolStore, array_spec
from collegium.data.values import PoolChunk, PoolState
from collegium.errors import PoolMismatch
from collegium.protocol.replies import Description, Failure, ReplyBody
from collegium.protocol.requests import RequestBody

POOL = np.arange(300_000, dtype=np.float32).reshape(1000, 300)
SPEC = array_spec(POOL)
WHOLE = PoolState(SPEC.sha256, SPEC.size_bytes, complete=True)

Behaviour = Callable[[RequestBody], ReplyBody]


class InProcess:
    """Parties as functions."""

    def __init__(self, behaviours: Mapping[str, Behaviour]) -> None:
        self.behaviours = behaviours
        self.waves: list[set[str]] = []

    def names(self) -> list[str]:
        return sorted(self.behaviours)

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        self.waves.append(set(requests))
        return {name: self.behaviours[name](body) for name, body in requests.items()}


def keeping(store: PoolStore) -> Behaviour:
    return lambda body: store.accept(body) if isinstance(body, PoolChunk) else store.state(SPEC)


def test_every_outcome_is_told_apart_and_the_honest_get_the_pool() -> None:
    store = PoolStore(None)
    parties = InProcess(
        {
            "honest": keeping(store),
            "stuck": lambda body: PoolState(SPEC.sha256, 0, complete=False),
            "boasting": lambda body: PoolState(SPEC.sha256, SPEC.size_bytes, complete=False),
            "confused": lambda body: Description("confused", "x", 1, "y"),
            "other-pool": lambda body: PoolState("0" * 64, 0, complete=False),
            "gone": lambda body: Failure("unreachable", "gone"),
        }
    )
    progress: list[tuple[int, int]] = []
    results = send_pool(parties, parties.names(), POOL, SPEC, timeout_s=60, on_sent=lambda *done: progress.append(done))
    assert results["honest"] == WHOLE
    codes = {name: result.code for name, result in results.items() if isinstance(result, Failure)}
    assert codes == {
        "stuck": "protocol",
        "boasting": "pool-mismatch",
        "confused": "protocol",
        "other-pool": "protocol",
        "gone": "unreachable",
    }
    assert sum("stuck" in wave for wave in parties.waves) == MAX_SETBACKS + 2
    assert progress[-1][1] == 6 * SPEC.size_bytes
    np.testing.assert_array_equal(store.open(SPEC.sha256), POOL)


def test_a_party_that_was_started_anew_in_mid_transfer_still_gets_the_pool() -> None:
    stores = [PoolStore(None), PoolStore(None)]
    asked = 0

    def restarting(body: RequestBody) -> ReplyBody:
        nonlocal asked
        asked += 1
        return keeping(stores[0] if asked < 3 else stores[1])(body)

    assert send_pool(InProcess({"ash": restarting}), ["ash"], POOL, SPEC, timeout_s=60) == {"ash": WHOLE}


def test_an_array_that_is_not_the_pool_is_not_sent() -> None:
    parties = InProcess({"ash": keeping(PoolStore(None))})
    with pytest.raises(PoolMismatch):
        send_pool(parties, ["ash"], POOL[:10], SPEC, timeout_s=60)
    assert parties.waves == []


def test_pieces_are_made_once_for_parties_at_the_same_place() -> None:
    seen: dict[str, list[int]] = {"ash": [], "birch": []}

    def watching(name: str) -> Behaviour:
        keep = keeping(PoolStore(None))

        def answer(body: RequestBody) -> ReplyBody:
            if isinstance(body, PoolChunk):
                seen[name].append(id(body))
            return keep(body)

        return answer

    send_pool(InProcess({name: watching(name) for name in seen}), list(seen), POOL, SPEC, timeout_s=60)
    assert len(seen["ash"]) == 2 and seen["ash"] == seen["birch"]
