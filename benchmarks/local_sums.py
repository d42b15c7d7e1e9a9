"""Both sides in one process, without a network: for benchmarks and tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.protocol.secure_sum.coordinator import CoordinatorSum, SumResult
from collegium.protocol.secure_sum.messages import Phase
from collegium.protocol.secure_sum.party import PartySum, RandomBytes
from collegium.protocol.secure_sum.plan import GraphPlan, plan_graph
from collegium.protocol.secure_sum.setup import SumSetup
from collegium_accounting.units import IntArray


def nobody_drops(_party: str, _phase: Phase) -> bool:
    """Every party answers in every phase."""
    return False


def run_sum(
    coordinator: CoordinatorSum,
    parties: Mapping[str, PartySum],
    drops: Callable[[str, Phase], bool] = nobody_drops,
) -> SumResult:
    """Drive one round to its end.

    Parameters
    ----------
    parties : by name; a name that is missing never answers.
    drops : whether a party is gone before it answers this phase; once gone, it stays away.

    Raises
    ------
    CollegiumError
        Whatever either side raises.
    """
    while coordinator.phase is not Phase.DONE:
        for name, request in coordinator.requests().items():
            if name in parties and not drops(name, coordinator.phase):
                coordinator.accept(name, parties[name].handle(request))
        coordinator.close_phase()
    return coordinator.result


@dataclass(frozen=True, eq=False)
class LocalRound:
    """A round among parties that exist in this process only."""

    setup: SumSetup
    identities: dict[str, Ed25519PrivateKey]
    coordinator: CoordinatorSum
    parties: dict[str, PartySum]


def local_round(  # noqa: PLR0913 -- what a sum may be given, by name
    vectors: IntArray,
    low: int,
    high: int,
    *,
    plan: GraphPlan | None = None,
    round_id: str = "round-1",
    identities: dict[str, Ed25519PrivateKey] | None = None,
    random_bytes: RandomBytes = os.urandom,
) -> LocalRound:
    """A round over ``vectors``, shape ``[parties, length]``, with fresh identities unless some are given."""
    parties, length = vectors.shape
    if identities is None:
        identities = {f"party-{i:04d}": Ed25519PrivateKey.generate() for i in range(parties)}
    roster = {name: identity.public_key().public_bytes_raw() for name, identity in identities.items()}
    setup = SumSetup("local", round_id, roster, length, low, high, plan or plan_graph(parties))
    members = {
        name: PartySum(setup, name, identities[name].sign, np.asarray(vector), random_bytes=random_bytes)
        for name, vector in zip(setup.names, vectors, strict=True)
    }
    return LocalRound(setup, identities, CoordinatorSum(setup), members)
