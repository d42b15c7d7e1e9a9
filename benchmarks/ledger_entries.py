"""A ledger with a given number of entries, charged and released as a run does."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.privacy.ledger.entry import Charge, Release, Terms
from collegium.privacy.ledger.ledger import Ledger
from collegium.privacy.mechanisms.gnmax import GNMax
from collegium.privacy.renyi import WIDE_ORDERS, RenyiCurve


def filled_ledger(path: Path, entries: int, owner: Ed25519PrivateKey) -> None:
    """Write a ledger of ``entries`` entries, half charges of one query each and half their releases."""
    mechanism = GNMax(sigma=40.0)
    curve = RenyiCurve(WIDE_ORDERS, 1e-9 * mechanism.stages[0].charge(WIDE_ORDERS, mechanism.unit()).values)
    terms = Terms(epsilon_budget=4.0)
    ledger = Ledger.open(path, signer=owner, orders=WIDE_ORDERS, delta=1e-5, terms=terms, name="scale")
    # One transaction for all, where a run has one for each: what is written is the same.
    with ledger, ledger._writing():
        for number in range((entries - 2) // 2):
            charge = ledger._append(Charge("label", {"name": "gnmax"}, {"record": curve}, 1, ""))
            ledger._append(Release(charge, {f"{number:032x}": number % 10}))
