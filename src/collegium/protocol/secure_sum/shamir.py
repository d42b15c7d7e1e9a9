"""Shamir's secret sharing of 32-byte secrets over the prime field of 2^256 + 297 elements.

A secret is the value at 0 of a random polynomial of degree t − 1; party j's share is its value at
x_j = j + 1. All secrets that are opened by the same set of parties use the same Lagrange weights,
which are computed once. Shares are 33 bytes, little-endian.

Python's integers are not constant-time. Sharing runs on secrets that live for one round, inside
the party that made them; nothing here branches on a secret.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from collegium.protocol.secure_sum.errors import WrongShare

PRIME = (1 << 256) + 297
"""The smallest prime above 2^256, so that every 32-byte string is a field element."""

SECRET_BYTES = 32
SHARE_BYTES = 33
_COEFFICIENT_BYTES = 48  # 128 bits more than the prime: the reduction's bias is below 2^-127.


def share(secret: bytes, threshold: int, holders: Sequence[int], random_bytes: Callable[[int], bytes]) -> list[bytes]:
    """One share per holder, in their order; any ``threshold`` of them open the secret, fewer say nothing.

    Parameters
    ----------
    secret : 32 bytes.
    holders : distinct non-negative indices.
    """
    if len(secret) != SECRET_BYTES or not 1 <= threshold <= len(holders):
        raise ValueError("a secret has 32 bytes and a threshold of at most the number of holders")
    raw = random_bytes(_COEFFICIENT_BYTES * (threshold - 1))
    coefficients = [
        int.from_bytes(raw[start : start + _COEFFICIENT_BYTES], "little") % PRIME
        for start in range(0, len(raw), _COEFFICIENT_BYTES)
    ]
    constant = int.from_bytes(secret, "little")
    shares = []
    for holder in holders:
        x = holder + 1
        value = 0
        for coefficient in coefficients:
            value = (value * x + coefficient) % PRIME
        shares.append(((value * x + constant) % PRIME).to_bytes(SHARE_BYTES, "little"))
    return shares


@lru_cache(maxsize=64)
def lagrange_weights(holders: tuple[int, ...]) -> tuple[int, ...]:
    """Weights w_j with f(0) = Σ w_j f(x_j) for every polynomial of degree below ``len(holders)``.

    w_j = Π_{m≠j} x_m / (x_m − x_j). Numerators and denominators are products of small integers, and
    one modular inversion serves all of them (Montgomery's trick).
    """
    points = [holder + 1 for holder in holders]
    product = math.prod(points)
    denominators = []
    for j, x in enumerate(points):
        differences = [other - x for m, other in enumerate(points) if m != j]
        denominators.append(x * math.prod(differences))
    prefix = [1]
    for denominator in denominators:
        prefix.append(prefix[-1] * denominator % PRIME)
    inverse = pow(prefix[-1], -1, PRIME)
    weights = [0] * len(points)
    for j in range(len(points) - 1, -1, -1):
        weights[j] = product * inverse * prefix[j] % PRIME
        inverse = inverse * denominators[j] % PRIME
    return tuple(weights)


def open_secret(holders: tuple[int, ...], shares: Sequence[bytes]) -> bytes:
    """The secret behind exactly ``threshold`` shares of these holders; raises WrongShare if there is none.

    A wrong share gives a wrong secret, which only its owner's commitment can tell.
    """
    weights = lagrange_weights(holders)
    total = sum(weight * int.from_bytes(part, "little") for weight, part in zip(weights, shares, strict=True)) % PRIME
    if total >> 256:
        raise WrongShare("these shares do not belong to one 32-byte secret")
    return total.to_bytes(SECRET_BYTES, "little")
