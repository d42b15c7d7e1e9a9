"""What is fixed before a secure sum starts: round, roster, vector, ring and graph, and their digest.

Every signature, key and message of the sum is bound to the digest, so that nothing of one round,
consortium or roster is of any use in another.
"""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigurationError
from collegium.protocol.secure_sum.errors import ImpossibleTotal, InsufficientPlan, ValueOutOfRange, WrongLength
from collegium.protocol.secure_sum.plan import SECURITY_BITS, GraphPlan, least_quorum, liveness_failure, secrecy_failure
from collegium.protocol.v1 import secure_sum_pb2 as pb
from collegium_accounting.units import IntArray

RingArray = NDArray[np.unsignedinteger]
RING_BITS = (16, 32, 64)
MAX_LENGTH = 1 << 26
"""Longest vector: 67 million entries, 512 MiB in the largest ring."""


def choose_ring(parties: int, low: int, high: int, noise_reach: int = 0) -> int:
    """The smallest ring, 16, 32 or 64 bits, in which ``parties`` values of [low, high] cannot wrap around.

    A value v travels as v − low in [0, high − low]; the sum of all lies in [0, parties · (high − low)],
    and with noise it reaches out by ``noise_reach`` at both ends. These parties · (high − low) + 2 ·
    noise_reach + 1 integers have distinct residues when 2^bits is at least their number. Of the largest ring
    only 2^63 residues are used, so that every total is a signed 64-bit integer.

    Raises
    ------
    ConfigurationError
        When no ring is large enough, or low exceeds high.
    """
    if low > high or noise_reach < 0:
        raise ConfigurationError(f"the range of a value is empty: {low} to {high}, noise {noise_reach}")
    for bits in RING_BITS:
        if parties * (high - low) + 2 * noise_reach < 1 << min(bits, 63):
            return bits
    raise ConfigurationError(
        f"{parties} parties times the range {high - low}, and noise of ±{noise_reach}, need more than "
        f"{RING_BITS[-1]} bits; narrow the range"
    )


@dataclass(frozen=True)
class SumSetup:
    """Everything both sides agree on before the first key is made.

    Parameters
    ----------
    consortium, round_id : names; a round id is used once.
    roster : Ed25519 public key (32 bytes) of each party.
    length : entries of the vector.
    low, high : inclusive range of one party's entries.
    plan : the graph; see `plan_graph`.
    noise_reach : how far the parties' summed noise may reach beyond the range (`noise.distributed`); 0 without.
    groups : how many groups all parties are divided into, of which ``roster`` is one; 1 where it is all of them.
    left_out : the number of the group, from 1 on, without which ``roster`` is all of them; 0 where none is left out.

    Raises
    ------
    ConfigurationError
        When the ring cannot hold the sum, the plan is for another number of parties, or a field is malformed.
    """

    consortium: str
    round_id: str
    roster: Mapping[str, bytes]
    length: int
    low: int
    high: int
    plan: GraphPlan
    noise_reach: int = 0
    groups: int = 1
    left_out: int = 0

    def __post_init__(self) -> None:
        if len(self.roster) != self.plan.parties:
            raise ConfigurationError(f"the plan is for {self.plan.parties} parties, the roster has {len(self.roster)}")
        if self.groups < 1 or not 0 <= self.left_out <= self.groups:
            raise ConfigurationError("a roster is one group at least, and one of its groups may be left out")
        if not 1 <= self.length <= MAX_LENGTH:
            raise ConfigurationError(f"the vector's length must lie in 1 to {MAX_LENGTH}, got {self.length}")
        for name, key in self.roster.items():
            if len(key) != 32:
                raise ConfigurationError(f"the public key of {name} has {len(key)} bytes; an Ed25519 key has 32")
        if len(set(self.roster.values())) != len(self.roster):
            raise ConfigurationError("two parties of the roster share one public key")
        choose_ring(len(self.roster), self.low, self.high, self.noise_reach)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Parties in the order of their indices."""
        return tuple(sorted(self.roster))

    @cached_property
    def index(self) -> dict[str, int]:
        """Index of each party."""
        return {name: position for position, name in enumerate(self.names)}

    @cached_property
    def ring_bits(self) -> int:
        """16, 32 or 64."""
        return choose_ring(len(self.roster), self.low, self.high, self.noise_reach)

    @cached_property
    def word(self) -> np.dtype[np.unsignedinteger]:
        """Little-endian unsigned word of the ring."""
        return np.dtype(f"<u{self.ring_bits // 8}")

    @property
    def vector_bytes(self) -> int:
        """Bytes of one masked vector."""
        return self.length * self.ring_bits // 8

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over all fields, each with its length."""
        plan = self.plan
        facts = plan.neighbours, plan.threshold, plan.colluding, plan.security_bits, plan.quorum
        fields = [
            b"collegium/v1/secure-sum/setup",
            *map(_with_length, (self.consortium, self.round_id)),
            struct.pack("<IqqQI", self.length, self.low, self.high, self.noise_reach, self.ring_bits),
            struct.pack("<IIIII", *facts),
            struct.pack("<II", self.groups, len(self.names)),
            *(_with_length(name) + self.roster[name] for name in self.names),
            struct.pack("<II", self.left_out, plan.summed) if self.left_out or plan.summed else b"",
        ]
        return hashlib.sha256(b"".join(fields)).digest()

    def encode(self, values: IntArray, noise: IntArray | None = None) -> RingArray:
        """Ring elements of one party's vector and its share of noise; raises WrongLength or ValueOutOfRange.

        The values are held to the range; the noise is not, it wraps around (see `noise.distributed`).
        """
        vector = np.asarray(values)
        if vector.shape != (self.length,) or not np.issubdtype(vector.dtype, np.integer):
            raise WrongLength(f"the vector must hold {self.length} integers, got {vector.dtype} of {vector.shape}")
        if int(vector.min()) < self.low or int(vector.max()) > self.high:
            raise ValueOutOfRange(f"a value lies outside [{self.low}, {self.high}], the range set up for this sum")
        shifted = vector.astype(np.int64) - self.low
        if noise is not None:
            if noise.shape != (self.length,):
                raise WrongLength(f"the noise must hold {self.length} integers, got {noise.shape}")
            shifted = shifted + noise
        return shifted.astype(self.word)

    def decode(self, total: RingArray, survivors: int) -> IntArray:
        """The integer sum of ``survivors`` vectors; raises ImpossibleTotal when they cannot have it."""
        lifted = (total + self.word.type(self.noise_reach)).astype(np.int64) - self.noise_reach
        if int(lifted.max()) > survivors * (self.high - self.low) + self.noise_reach:
            raise ImpossibleTotal("an entry of the total exceeds what all survivors together can have sent")
        return np.asarray(lifted + survivors * self.low, dtype=np.int64)

    def parameters(self) -> pb.SumParameters:
        """What the coordinator proposes to a party; the roster is not sent, each side has its own."""
        own = {name: getattr(self, name) for name in _OWN}
        planned = {name: getattr(self.plan, name) for name in _PLANNED}
        return pb.SumParameters(ring_bits=self.ring_bits, **own, **planned)

    def about(self) -> dict[str, Any]:
        """All of it, as JSON has it, for whoever goes on with the sum later."""
        return {
            "parameters": self.parameters().SerializeToString(deterministic=True).hex(),
            "roster": {name: key.hex() for name, key in self.roster.items()},
        }

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> "SumSetup":
        """What `about` told of. It was accepted when the sum began, with the share of colluders demanded then."""
        parameters = pb.SumParameters.FromString(bytes.fromhex(about["parameters"]))
        roster = {name: bytes.fromhex(key) for name, key in about["roster"].items()}
        return accept_parameters(parameters, roster, collusion_fraction=0.0)


_OWN = "consortium", "round_id", "length", "low", "high", "noise_reach", "groups", "left_out"
_PLANNED = "neighbours", "threshold", "colluding", "security_bits", "quorum", "summed"
"""What is proposed of a set-up, and of its graph, each under its own name."""


def _with_length(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<I", len(raw)) + raw


def accept_parameters(
    parameters: pb.SumParameters, roster: Mapping[str, bytes], *, collusion_fraction: float
) -> SumSetup:
    """The set-up that a party accepts: its own roster, the coordinator's proposal, its own demands.

    ``roster`` is of those that are summed together (`groups.group_of`).

    Raises
    ------
    InsufficientPlan
        When the proposed graph protects against fewer colluders, or with fewer bits, than demanded.
    ConfigurationError
        When the ring is too small or a field is malformed.
    """
    parties = len(roster)
    k, t, colluding, quorum = parameters.neighbours, parameters.threshold, parameters.colluding, parameters.quorum
    if parties < 3 or not 2 <= t <= k < parties or parameters.security_bits > 128:
        raise InsufficientPlan(
            f"a graph with {k} neighbours and threshold {t} is impossible among the {parties} parties that this party "
            "is summed with; who joined since must be named under parties in its party.toml"
        )
    if colluding + 2 > least_quorum(parties, colluding) or colluding < max(1, collusion_fraction * parties - 1e-9):
        raise InsufficientPlan(f"protection against {colluding} colluders is proposed, fewer than demanded")
    if not least_quorum(parties, colluding) <= quorum <= parties:
        raise InsufficientPlan(
            f"a quorum of {quorum} among {parties} parties with {colluding} colluders is proposed; at least "
            f"{least_quorum(parties, colluding)} keep two lists of survivors from being signed"
        )
    if parameters.summed and not quorum <= parameters.summed <= parties:
        raise InsufficientPlan(
            f"a sum of at least {parameters.summed} vectors is proposed, with a quorum of {quorum} of {parties} parties"
        )
    target = 2.0 ** -(parameters.security_bits + 1)
    failure, isolated = secrecy_failure(parties, quorum, colluding, k, t, target)
    if parameters.security_bits < SECURITY_BITS or failure > target:
        raise InsufficientPlan(
            f"{k} neighbours with threshold {t} fail with probability {failure:.2g}, above the {target:.2g} "
            f"that {parameters.security_bits} bits of security allow; {SECURITY_BITS} bits are demanded"
        )
    dropped = parties - quorum
    liveness = 0.0 if k == parties - 1 else liveness_failure(parties, dropped, k, t)
    found = failure, liveness, quorum, isolated, parameters.summed
    plan = GraphPlan(parties, k, t, colluding, dropped, parameters.security_bits, *found)
    setup = SumSetup(roster=dict(roster), plan=plan, **{name: getattr(parameters, name) for name in _OWN})
    if parameters.ring_bits != setup.ring_bits:
        raise InsufficientPlan(f"a ring of {parameters.ring_bits} bits is proposed, {setup.ring_bits} are needed")
    return setup
