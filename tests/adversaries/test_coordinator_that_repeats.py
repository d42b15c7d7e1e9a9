"""A coordinator that wants two sums over one input: it names the input by other pools and other places."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.party_requests import KEY, Asker, cast

from collegium.data import Examples, PoolStore
from collegium.data.task import ImageInputs, Task
from collegium.parties.account import Account
from collegium.parties.party import Party
from collegium.parties.policy import Policy, PolicyConfig
from collegium.protocol.messages import Failure, Prepared

ONCE = PolicyConfig(minimum_noise_votes=1.0, queries=100, times_per_query=1)
RNG = np.random.default_rng(5)
X = RNG.integers(0, 16, (20, 4, 4, 1)).astype(np.uint8)


@pytest.fixture
def asked_once(tmp_path: Path) -> tuple[Asker, PoolStore]:
    """A party that has answered about the inputs 0 to 4 of a pool, and agreed to answer about each once."""
    task = Task(classes=("a", "b"), inputs=ImageInputs(height=4, width=4))
    records = Examples(RNG.integers(0, 16, (60, 4, 4, 1)).astype(np.uint8), np.arange(60, dtype=np.int64) % 2)
    pools, account = PoolStore(None), Account(tmp_path, "alpha", ONCE, None)
    party = Party(
        "alpha", records, task, folder=None, pools=pools, split_key=KEY, policy=Policy(ONCE), charge=account.charge
    )
    ask = Asker(party)
    assert isinstance(ask(cast(pools.put(X), (0, 1, 2, 3, 4), sum_mode="masked")), Prepared)
    return ask, pools


def touched(x: np.ndarray) -> np.ndarray:
    other = x.copy()
    other[-1, 0, 0] ^= 1
    return other


@pytest.mark.parametrize(
    ("pool", "position"),
    [(X, 3), (X[::-1], 16), (touched(X), 3), (X[3:4], 0), (np.concatenate([X, X]), 23)],
    ids=["the same", "reversed", "another last row", "alone", "doubled"],
)
def test_an_input_is_known_again_in_every_pool(
    asked_once: tuple[Asker, PoolStore], pool: np.ndarray, position: int
) -> None:
    ask, pools = asked_once
    spec = pools.put(np.ascontiguousarray(pool))
    answer = ask(cast(spec, (position,), sum_mode="masked", round_id="round-2"))
    assert isinstance(answer, Failure) and answer.code == "refused-queries"


def test_an_input_named_twice_in_one_request_is_refused(asked_once: tuple[Asker, PoolStore]) -> None:
    ask, pools = asked_once
    spec = pools.put(np.concatenate([X, X]))
    answer = ask(cast(spec, (7, 27), sum_mode="masked", round_id="round-2"))
    assert isinstance(answer, Failure) and answer.code == "refused-queries"


def test_another_input_is_answered(asked_once: tuple[Asker, PoolStore]) -> None:
    ask, pools = asked_once
    answer = ask(cast(pools.put(touched(X)), (7,), sum_mode="masked", round_id="round-2"))
    assert isinstance(answer, Prepared)
