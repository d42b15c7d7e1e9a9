"""The kernel map of the small task, and parties that sum under masks."""

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.data import mixed
from support.party_requests import KEY
from support.sums_scene import NAMES, POOL, SPEC, TASK, Consortium, records

from collegium.data import Examples, PoolStore
from collegium.models.kernels import KernelMap
from collegium.parties.party import Party, unrestricted
from collegium.parties.summing import Membership
from collegium.simulations.local import InProcessParties


@pytest.fixture(scope="session")
def kernel() -> KernelMap:
    return KernelMap.of_pool(SPEC, POOL, TASK.inputs)


@pytest.fixture(scope="session")
def shuffled(digits: Examples) -> Examples:
    return mixed(digits)


@pytest.fixture
def consortium() -> Callable[..., Consortium]:
    def make(**options: Any) -> Consortium:
        pools = PoolStore(None)
        spec = pools.put(POOL)
        keys = {name: Ed25519PrivateKey.generate() for name in NAMES}
        roster = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
        examples = {name: records(number, 30 + number) for number, name in enumerate(NAMES)}

        def party(name: str) -> Party:
            member = Membership("trial", roster, keys[name].sign)
            usual: dict[str, Any] = {"folder": None, "split_key": KEY, "policy": unrestricted}
            changed = {option: value(name) for option, value in options.items()}
            return Party(name, examples[name], TASK, pools=pools, membership=member, **(usual | changed))

        return Consortium(InProcessParties(list(map(party, NAMES)), "run-1"), examples, spec.sha256, roster)

    return make
