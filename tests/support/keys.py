"""Keys that are the same every time: who is in which group follows from them."""

import itertools

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def keys_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the keys that are made from now on follow from their number."""
    seeds, key = itertools.count(1), Ed25519PrivateKey.from_private_bytes
    monkeypatch.setattr(Ed25519PrivateKey, "generate", lambda: key(next(seeds).to_bytes(32, "big")))
