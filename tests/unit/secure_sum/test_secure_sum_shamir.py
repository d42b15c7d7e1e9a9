"""Shares open a secret from any t holders, and fewer than t say nothing about it."""

from __future__ import annotations

import os
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collegium.protocol.secure_sum import shamir
from collegium.protocol.secure_sum.errors import WrongShare


def test_the_field_is_prime_and_holds_every_32_byte_secret() -> None:
    # Fermat's test to several bases; the bases leave a composite of this size practically no chance.
    assert all(pow(base, shamir.PRIME - 1, shamir.PRIME) == 1 for base in (2, 3, 5, 7, 11, 13))
    assert int.from_bytes(b"\xff" * 32, "little") < shamir.PRIME


@settings(max_examples=50)
@given(st.binary(min_size=32, max_size=32), st.data())
def test_any_threshold_many_holders_open_the_secret(secret: bytes, data: st.DataObject) -> None:
    holders = data.draw(st.lists(st.integers(0, 1000), min_size=1, max_size=30, unique=True))
    threshold = data.draw(st.integers(1, len(holders)))
    shares = dict(zip(holders, shamir.share(secret, threshold, holders, os.urandom), strict=True))
    opening = tuple(data.draw(st.permutations(holders))[:threshold])
    assert shamir.open_secret(opening, [shares[holder] for holder in opening]) == secret


def test_one_share_too_few_fits_every_secret_equally_well() -> None:
    """For t = 3, two shares and any candidate secret lie on exactly one polynomial of degree 2."""
    secret, holders = os.urandom(32), [3, 8, 12]
    shares = shamir.share(secret, 3, holders, os.urandom)
    for candidate in (bytes(32), b"\xff" * 32, os.urandom(32)):
        # The third share that the candidate would need exists: solve w₁y₁ + w₂y₂ + w₃y₃ = candidate for y₃.
        weights = shamir.lagrange_weights((3, 8, 12))
        known = sum(w * int.from_bytes(y, "little") for w, y in zip(weights[:2], shares[:2], strict=True))
        needed = (int.from_bytes(candidate, "little") - known) * pow(weights[2], -1, shamir.PRIME) % shamir.PRIME
        third = needed.to_bytes(33, "little")
        assert shamir.open_secret((3, 8, 12), [*shares[:2], third]) == candidate


def test_a_known_polynomial_gives_known_shares() -> None:
    """f(x) = 7 + 5x + 2x² at x = 1, 2, 3: 14, 25, 40."""
    coefficients = (2).to_bytes(48, "little") + (5).to_bytes(48, "little")
    shares = shamir.share((7).to_bytes(32, "little"), 3, [0, 1, 2], lambda size: coefficients[:size])
    assert [int.from_bytes(part, "little") for part in shares] == [14, 25, 40]


def test_a_wrong_share_gives_another_secret_or_an_error() -> None:
    secret, holders = os.urandom(32), list(range(5))
    shares = shamir.share(secret, 3, holders, os.urandom)
    wrong = bytes([shares[0][0] ^ 1]) + shares[0][1:]
    for opening in combinations(holders, 3):
        parts = [wrong if holder == 0 else shares[holder] for holder in opening]
        try:
            assert (shamir.open_secret(opening, parts) == secret) == (0 not in opening)
        except WrongShare:
            assert 0 in opening


def test_shares_of_a_number_that_no_secret_has_are_refused() -> None:
    """Holders may agree on any number of the field; those from 2^256 on fit into no 32 bytes."""
    for number, opened in ((2**256 - 1, True), (2**256, False), (shamir.PRIME - 1, False)):
        shares = [number.to_bytes(shamir.SHARE_BYTES, "little")] * 3
        if opened:
            assert shamir.open_secret((0, 1, 2), shares) == b"\xff" * 32
        else:
            with pytest.raises(WrongShare, match="do not belong to one 32-byte secret"):
                shamir.open_secret((0, 1, 2), shares)


@pytest.mark.parametrize(("secret", "threshold"), [(bytes(31), 2), (bytes(32), 0), (bytes(32), 4)])
def test_impossible_sharings_are_refused(secret: bytes, threshold: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        shamir.share(secret, threshold, [0, 1, 2], os.urandom)
