"""Fuzz targets for every parser of the secure sum that reads bytes from outside.

With atheris installed: ``python tests/fuzz/secure_sum_targets.py request tests/fuzz/corpus/secure_sum_request``.
Without it the same targets run over the corpus and its mutations in ``test_secure_sum_corpus.py``.
A target tells whether the bytes were accepted; it may not raise anything.
"""

from __future__ import annotations

import copy
import hashlib
import sys
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import numpy as np
from benchmarks.local_sums import LocalRound, local_round
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.errors import CollegiumError
from collegium.protocol.codec import parse
from collegium.protocol.secure_sum import CoordinatorSum, GraphPlan, PartySum, Phase, accept_parameters
from collegium.protocol.v1 import secure_sum_pb2 as pb

Machine = TypeVar("Machine", PartySum, CoordinatorSum)

PLAN = GraphPlan(7, 3, 2, 1, 1, 40, 0.0, 0.0, 5)


def fixed_randomness() -> Callable[[int], bytes]:
    """The same bytes in every process, so that the corpus stays valid."""
    drawn = 0

    def draw(size: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.shake_256(drawn.to_bytes(8, "little")).digest(size)

    return draw


@cache
def paused_before(phase: Phase) -> LocalRound:
    """An honest round of seven parties, stopped before the given phase."""
    identities = {f"party-{i:04d}": Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i in range(7)}
    votes = np.ones((7, 3), dtype=np.int64)
    made = local_round(votes, 0, 1, plan=PLAN, identities=identities, random_bytes=fixed_randomness())
    while made.coordinator.phase < phase:
        for name, request in made.coordinator.requests().items():
            made.coordinator.accept(name, made.parties[name].handle(request))
        made.coordinator.close_phase()
    return made


def branch(machine: Machine) -> Machine:
    """A copy whose state may change without touching the original."""
    twin = copy.copy(machine)
    for name, value in vars(twin).items():
        if isinstance(value, dict | set | list | np.ndarray):
            setattr(twin, name, copy.copy(value))
    return twin


def fuzz_request(data: bytes) -> bool:
    """A party in a phase chosen by the first byte gets the rest as a request (with the right digest)."""
    if not data:
        return False
    party = branch(paused_before(Phase(data[0] % 5)).parties["party-0000"])
    try:
        request = parse(pb.SecureSumRequest, data[1:])
        request.setup = party.setup.digest
        party.handle(request)
    except CollegiumError:
        return False
    return True


def fuzz_reply(data: bytes) -> bool:
    """A coordinator in a phase chosen by the first byte gets the rest as a party's reply."""
    if not data:
        return False
    coordinator = branch(paused_before(Phase(data[0] % 5)).coordinator)
    try:
        reply = parse(pb.SecureSumReply, data[1:])
        reply.setup = coordinator.setup.digest
        coordinator.accept("party-0000", reply)
    except CollegiumError:
        return False
    return True


def fuzz_parameters(data: bytes) -> bool:
    """A party judges a proposal of the coordinator."""
    roster = {f"party-{i}": bytes([i]) * 32 for i in range(7)}
    try:
        request = parse(pb.SecureSumRequest, data)
        setup = accept_parameters(request.advertise_keys.parameters, roster, collusion_fraction=0.1)
    except CollegiumError:
        return False
    return len(setup.digest) == 32


TARGETS: dict[str, Callable[[bytes], bool]] = {
    "request": fuzz_request,
    "reply": fuzz_reply,
    "parameters": fuzz_parameters,
}


def main() -> None:
    """Run one target under atheris."""
    import atheris

    target = TARGETS[sys.argv.pop(1)]
    atheris.instrument_all()
    atheris.Setup(sys.argv, lambda data: (target(data), None)[1])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
