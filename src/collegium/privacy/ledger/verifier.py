"""An independent check of a ledger's file: chain, signatures, rules, and ε from the entries alone.

It shares nothing with the ledger but the file's format, so that an error there does not repeat itself here: table
``entries`` (seq, body, hash, signature); a body is a line of JSON, hash = SHA-256(purpose ‖ hash before ‖ seq in
8 bytes ‖ SHA-256(body)), and the signature is the owner's Ed25519 over purpose ‖ hash.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from collegium.errors import LedgerCorrupt


def verify(path: Path, public_key: bytes | None = None, head: str | None = None) -> Verified:
    """Walk the whole chain of the ledger at ``path``; LedgerCorrupt names the first bad entry.

    ``public_key`` (32 bytes) is what the entries must be signed with: without it the chain is only shown to agree with
    itself. ``head`` (``SEQ:HASH``) was printed earlier: the ledger must still hold that entry.
    """
    unused = "" if path.with_name(path.name + "-wal").exists() else "&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro{unused}", uri=True)) as database:
            rows = database.execute("SELECT seq, body, hash, signature FROM entries ORDER BY seq").fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise LedgerCorrupt(f"{path} is damaged or no ledger ({error}); restore it from a backup") from None
    found, before = Verified(), bytes(32)
    for number, (seq, body, digest, signature) in enumerate(rows):
        try:
            _require(seq == number, "an entry before it is missing; restore the ledger from a backup")
            linked = b"collegium ledger entry v1\0" + before + seq.to_bytes(8, "big") + hashlib.sha256(body).digest()
            _require(digest == hashlib.sha256(linked).digest(), "its hash does not follow from the entries before it")
            found.take(seq, json.loads(body), digest, signature)
        except LedgerCorrupt as error:
            raise LedgerCorrupt(f"entry {seq}: {error}") from None
        except Exception:
            raise LedgerCorrupt(f"entry {seq}: it cannot be read; restore the ledger from a backup") from None
        before = digest
    _require(bool(found.periods), "the ledger is empty: its first entries are missing")
    _require(public_key in (None, found.public_key), "entry 0: the ledger is not signed with the given key")
    cut = f"entry {(head or '').partition(':')[0]}: it is not the one that was printed; the ledger was cut or rewritten"
    _require(head is None or head in found.heads, cut)
    return found


@dataclass
class Verified:
    """What the entries say; `verify` returns it only where every entry passed.

    ``periods`` pairs each terms entry with the queries charged under it; ``costs`` holds, by (unit, adjacency), the
    charges, their Rényi divergence per order, and their failure probability; with ``seeded`` noise no ε holds.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    public_key: bytes = b""
    heads: list[str] = field(default_factory=list)
    charges: int = 0
    queries: int = 0
    seeded: bool = False
    unit: tuple[str, str] = ("", "")
    order: float | None = None
    labels: dict[str, int] = field(default_factory=dict)
    periods: list[tuple[dict[str, Any], int]] = field(default_factory=list)
    costs: dict[tuple[str, str], tuple[int, list[float], float]] = field(default_factory=dict)
    unreleased: dict[int, int] = field(default_factory=dict)
    time: datetime | None = None

    def take(self, seq: int, line: dict[str, Any], digest: bytes, signature: bytes) -> None:
        """Add one entry; LedgerCorrupt when it cannot follow those before it."""
        _require((line["kind"] == "settings") == (seq == 0), "the settings must be the first entry and only that")
        if seq == 0:
            self.settings, self.public_key = line, bytes.fromhex(line["public_key"])
        _require(bool(self.public_key) or not signature, "it is signed, in a ledger that is not")
        try:
            if self.public_key:
                key = Ed25519PublicKey.from_public_bytes(self.public_key)
                key.verify(signature, b"collegium ledger signature v1\0" + digest)
        except InvalidSignature:
            raise LedgerCorrupt("its signature is not the ledger owner's") from None
        made = datetime.fromisoformat(line["time_utc"]).astimezone()
        _require(self.time is None or self.time <= made, "it is dated before the entry that it follows")
        self.time = made
        self.heads.append(f"{seq}:{digest.hex()}")
        if seq:
            {"terms": self._terms, "charge": self._charge, "release": self._release}[line["kind"]](seq, line)

    def _terms(self, seq: int, line: dict[str, Any]) -> None:
        order, seeded = line["filter_order"] and float.fromhex(line["filter_order"]), line["noise"] == "seeded"
        _require(not self.charges or seeded == self.seeded, "it changes between noise with and without a seed")
        _require(self.order in (None, order), "it changes the order of the budget's filter")
        self.order, self.seeded, self.unit = order, seeded, (line["unit"], line["adjacency"])
        self.periods.append((line, 0))

    def _charge(self, seq: int, line: dict[str, Any]) -> None:
        (terms, before), queries = self.periods[-1], line["queries"]
        _require(type(queries) is int and queries >= 1, "it cannot be read: it pays for no whole number of queries")
        _require(self.unit[0] in line["curves"], f"it does not say what it costs one {self.unit[0]}")
        for unit, texts in line["curves"].items():
            curve, delta = [float.fromhex(text) for text in texts], float.fromhex(line["curve_deltas"][unit])
            _require(all(value >= 0 for value in [*curve, delta]), "it cannot be read: a cost is below 0")
            charges, total, failure = self.costs.get((unit, self.unit[1]), (0, [0.0] * len(curve), 0.0))
            total = [spent + queries * value for spent, value in zip(total, curve, strict=True)]
            self.costs[unit, self.unit[1]] = charges + 1, total, failure + queries * delta
        self.unreleased[seq], self.periods[-1] = queries, (terms, before + queries)
        self.charges, self.queries = self.charges + 1, self.queries + queries
        budget, spent = float.fromhex(terms["epsilon_budget"] or "inf"), self.epsilon(self.unit)
        _require(spent <= budget * (1 + 1e-9), f"ε reaches {spent:.6g}, past the budget of {budget:.6g}")

    def _release(self, seq: int, line: dict[str, Any]) -> None:
        charge, labels = line["charge"], line["labels"]
        _require(charge in self.unreleased, f"it releases labels under entry {charge}, which is no charge")
        _require(self.unreleased[charge] >= len(labels), f"it releases more labels than entry {charge} paid for")
        _require(self.labels.keys().isdisjoint(labels), "it releases a label for a query that already has one")
        self.unreleased[charge] -= len(labels)
        self.labels |= labels

    def epsilon(self, unit: tuple[str, str]) -> float:
        """ε of all charges (Canonne et al. 2020, Prop. 12; Mironov 2017, Prop. 3); infinite if one leaves it out."""
        orders = [float.fromhex(order) for order in self.settings["orders"]]
        charges, total, failure = self.costs.get(unit, (0, [0.0] * len(orders), 0.0))
        left = float.fromhex(self.settings["delta"]) - failure
        if charges < self.charges or left <= 0.0:
            return math.inf
        improved, best = self.settings["conversion"] == "improved", math.inf
        for alpha, value in zip(orders, total, strict=True):
            gain = math.log1p(-1.0 / alpha) - math.log(alpha) / (alpha - 1.0) if improved else 0.0
            if self.order in (None, alpha):
                best = min(best, max(0.0, value - math.log(left) / (alpha - 1.0) + gain))
        return best if self.charges else 0.0

    def guarantee(self) -> float:
        """What may be published for ``unit``: under a filter, the largest budget that anything was charged under."""
        kept = [terms["epsilon_budget"] or "inf" for terms, queries in self.periods if queries and self.order]
        return max([self.epsilon(self.unit), *map(float.fromhex, kept)])


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise LedgerCorrupt(why)
