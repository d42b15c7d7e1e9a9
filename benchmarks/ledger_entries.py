"""A ledger with a given number of entries, charged and released as a run does."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.privacy.accounting.game.laws import VectorLaw
from collegium.privacy.ledger.entry import Block, Charge, Release, Terms
from collegium.privacy.ledger.ledger import Ledger


def filled_ledger(path: Path, entries: int, owner: Ed25519PrivateKey) -> None:
    """Write a ledger of ``entries`` entries, half charges of one query each and half their releases."""
    terms = Terms(epsilon_budget=4.0, blocks={"label": Block({"record": VectorLaw(1e-4)}, entries)})
    ledger = Ledger.open(path, signer=owner, delta=1e-5, terms=terms, name="scale")
    # One transaction for all, where a run has one for each: what is written is the same.
    with ledger, ledger._writing():
        for number in range((entries - 2) // 2):
            charge = ledger._append(Charge("label", 1, ""))
            ledger._append(Release(charge, {f"{number:032x}": number % 10}))
