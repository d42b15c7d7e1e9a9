"""A ledger with one owner, a small grid and cheap charges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.privacy.ledger.entry import Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.renyi import WIDE_ORDERS

OpenLedger = Callable[..., Ledger]


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
            "orders": WIDE_ORDERS,
            "delta": 1e-5,
            "terms": Terms(**{"epsilon_budget": 4.0} | terms),
            "name": "five hospitals",
        }
        return Ledger.open(path, **(settings | changes))

    return open_it
