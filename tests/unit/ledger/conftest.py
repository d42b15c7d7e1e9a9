"""A ledger with one owner and cheap charges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.privacy.ledger.entry import Block, Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium_accounting.game.laws import VectorLaw

OpenLedger = Callable[..., Ledger]
ONE = VectorLaw(2**0.5 / 40.0)
"""What one round of the block ``release`` costs a record: Gaussian noise of 40 votes on two counts that change."""


@pytest.fixture
def owner() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def open_ledger(path: Path, owner: Ed25519PrivateKey) -> OpenLedger:
    def open_it(**changes: Any) -> Ledger:
        terms = {key: changes.pop(key) for key in vars(Terms()) if key in changes}
        settings: dict[str, Any] = {
            "signer": owner,
            "delta": 1e-5,
            "terms": Terms(**{"epsilon_budget": 4.0, "blocks": {"release": Block({"record": ONE})}} | terms),
            "name": "five hospitals",
        }
        return Ledger.open(path, **(settings | changes))

    return open_it
