"""An independent check of a ledger's file: chain, signatures, rules, and two ε from the entries alone.

It shares nothing with the ledger but the file's format, so that an error there does not repeat itself here: table
``entries`` (seq, body, hash, signature); a body is a line of JSON, hash = SHA-256(purpose ‖ hash before ‖ seq in
8 bytes ‖ SHA-256(body)), and the signature is the owner's Ed25519 over purpose ‖ hash.

The exact accountant is too long to be written twice. `Verified.epsilon` is an ε that holds by textbook Rényi bounds,
which is larger; `Verified.least` one that a fixed adversary forces, in closed form: what is printed lies between.
"""

import hashlib
import json
import math
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from scipy.special import gammaln, log_ndtr, logsumexp, ndtr
from scipy.stats import binom

from collegium.errors import LedgerCorrupt


def verify(path: Path, public_key: bytes | None = None, head: str | None = None) -> "Verified":
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

    ``periods`` pairs each terms entry with the queries charged under it; ``blocks`` holds, by all that was stated of
    blocks that were fixed together, the rounds charged and stated by purpose; with ``seeded`` noise no ε holds.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    public_key: bytes = b""
    heads: list[str] = field(default_factory=list)
    charges: int = 0
    queries: int = 0
    seeded: bool = False
    unit: tuple[str, str] = ("", "")
    labels: dict[str, int] = field(default_factory=dict)
    periods: list[tuple[dict[str, Any], int]] = field(default_factory=list)
    blocks: dict[str, tuple[str, dict[str, Any], dict[str, int], dict[str, int]]] = field(default_factory=dict)
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
        seeded = line["noise"] == "seeded"
        _require(not self.charges or seeded == self.seeded, "it changes between noise with and without a seed")
        self.seeded, self.unit = seeded, (line["unit"], line["adjacency"])
        self.periods.append((line, 0))

    def _charge(self, seq: int, line: dict[str, Any]) -> None:
        (terms, before), queries, purpose = self.periods[-1], line["queries"], line["purpose"]
        _require(type(queries) is int and queries >= 1, "it cannot be read: it pays for no whole number of queries")
        _require(purpose in terms["blocks"], f"it charges {purpose!r}, which the terms in force do not state")
        block, fixed = terms["blocks"][purpose], {p: b for p, b in terms["blocks"].items() if b["rounds"] and b["laws"]}
        members = fixed if block["rounds"] is not None and block["laws"] else {purpose: block}
        family = {name: one["laws"] for name, one in members.items()}
        key = json.dumps([self.unit[1], family], sort_keys=True)
        if not block["laws"]:  # the run as a whole was paid for
            whole = json.dumps([self.unit[1], {name: one["laws"] for name, one in fixed.items()}], sort_keys=True)
            paid = self.blocks[whole][2].items() if whole in self.blocks else []
            _require(any(n == fixed[name]["rounds"] for name, n in paid), "it is free, but the run is not paid for")
        else:
            _require(self.unit[0] in block["laws"], f"it does not say what it costs one {self.unit[0]}")
            *_, used, stated = self.blocks.setdefault(key, (self.unit[1], family, {}, {}))
            used[purpose] = used.get(purpose, 0) + queries
            for name, one in members.items():
                stated[name] = max(stated.get(name, 0), one["rounds"] or 0)
            _require(used[purpose] <= (block["rounds"] or math.inf), f"it charges more than {block['rounds']} rounds")
        self.unreleased[seq], self.periods[-1] = queries, (terms, before + queries)
        self.charges, self.queries = self.charges + 1, self.queries + queries
        budget, least = float.fromhex(terms["epsilon_budget"] or "inf"), self.least(self.unit)
        _require(least <= budget * (1 + 1e-9), f"ε is at least {least:.6g}, past the budget of {budget:.6g}")

    def _release(self, seq: int, line: dict[str, Any]) -> None:
        charge, labels = line["charge"], line["labels"]
        _require(charge in self.unreleased, f"it releases labels under entry {charge}, which is no charge")
        _require(self.unreleased[charge] >= len(labels), f"it releases more labels than entry {charge} paid for")
        _require(self.labels.keys().isdisjoint(labels), "it releases a label for a query that already has one")
        self.unreleased[charge] -= len(labels)
        self.labels |= labels

    def units(self) -> list[tuple[str, str]]:
        """Every unit that a cost is stated for, with its adjacency."""
        stated = {(u, adjacency) for adjacency, family, *_ in self.blocks.values() for o in family.values() for u in o}
        return sorted(stated, reverse=True)

    def _rounds(self, unit: tuple[str, str]) -> list[tuple[dict[str, Any], int]] | None:
        """Laws and rounds of all blocks, the stated ones where several were fixed together; None if one is unstated."""
        found = []
        for adjacency, family, used, stated in self.blocks.values():
            for name, laws in family.items():
                if adjacency != unit[1] or unit[0] not in laws:
                    return None
                found.append((laws[unit[0]], stated[name] if len(family) > 1 else used[name]))
        return found

    def epsilon(self, unit: tuple[str, str]) -> float:
        """An ε that holds (Canonne et al. 2020, Prop. 12) if terms did not follow from labels; infinite if unstated."""
        rounds, delta = self._rounds(unit), float.fromhex(self.settings["delta"])
        left = delta - sum(n * _float(law.get("delta", 0.0)) for law, n in rounds or [] if law["kind"] == "renyi")
        if rounds is None or left <= 0.0:
            return math.inf
        orders = {float.fromhex(order) for law, _ in rounds for order in law.get("orders", [])} or set(_ORDERS)
        spent = {alpha: sum(n * _renyi(law, alpha) for law, n in rounds) for alpha in orders}
        gain = {a: math.log1p(-1.0 / a) - (math.log(a) + math.log(left)) / (a - 1.0) for a in orders}
        return max(0.0, min(spent[alpha] + gain[alpha] for alpha in orders)) if rounds else 0.0

    def least(self, unit: tuple[str, str]) -> float:
        """An ε that an adversary forces who chooses one histogram, and the best test, for all rounds of one law."""
        rounds, delta = self._rounds(unit) or [], float.fromhex(self.settings["delta"])
        if len(rounds) == 1 and rounds[0][0]["kind"] == "renyi":
            return self.epsilon(unit)  # nothing more is known of it
        forced = [_forced(law, n, delta) for law, n in rounds if law["kind"] == "winner" and n]
        mu = math.sqrt(sum(n * _float(law["mu"]) ** 2 for law, n in rounds if law["kind"] == "vector"))
        if mu:  # Balle and Wang 2018, Theorem 8
            forced.append(_solve(lambda e: ndtr(mu / 2 - e / mu) - math.exp(e + log_ndtr(-mu / 2 - e / mu)), delta))
        return max(forced, default=0.0)


_ORDERS = [1.0 + x / 10.0 for x in range(1, 10)] + [float(x) for x in (*range(2, 65), *(2**k for k in range(7, 14)))]


def _float(value: str | float) -> float:
    return float.fromhex(value) if isinstance(value, str) else value


def _renyi(law: dict[str, Any], alpha: float) -> float:
    """Rényi divergence of one round: of Gaussian noise, sampled or not, of pure privacy, of bounded range."""
    if law["kind"] == "renyi":  # it grows with the order
        return min(_float(v) for o, v in zip(law["orders"], law["values"], strict=True) if _float(o) >= alpha)
    if law["kind"] == "vector":
        return alpha * _float(law["mu"]) ** 2 / 2 + _float(law["slack"]) * (2 * alpha - 1) / (alpha - 1)
    scale, rate, entries = _float(law["scale"]), _float(law["sampling_rate"]), 2 if law["adjacency"] == "replace" else 1
    if not law["noise"].endswith("gaussian"):
        pure = entries / scale
        return min(pure, alpha * pure * pure / (8.0 if law["noise"] == "gumbel" else 2.0))
    if rate == 1.0:
        return alpha * entries / (2 * scale**2)
    whole, k = math.ceil(alpha), np.arange(math.ceil(alpha) + 1)
    chosen = gammaln(whole + 1) - gammaln(k + 1) - gammaln(whole - k + 1)
    terms = chosen + (whole - k) * math.log1p(-rate) + k * math.log(rate) + (k * k - k) * entries / (2 * scale**2)
    return float(logsumexp(terms)) / (whole - 1)


def _forced(law: dict[str, Any], rounds: int, delta: float) -> float:
    """ε forced where two classes, or one and a fixed level, stand at one place: the best over some places."""
    scale, rate, replace = _float(law["scale"]), _float(law["sampling_rate"]), law["adjacency"] == "replace"
    both, best = replace or law["classes"] == 2, 0.0
    shift = (2.0 if replace else 1.0) / scale
    for x in shift / 2.0 + np.arange(0.0, 4.5, 0.5):
        p, q = (_below(law["noise"].removeprefix("discrete-"), both, at) for at in (x, x - shift))
        p, hits = q + rate * (p - q), np.arange(rounds + 1)
        one, other = binom.pmf(hits, rounds, p), binom.pmf(hits, rounds, q)
        best = max(best, _solve(lambda e, a=one, b=other: np.maximum(a - math.exp(e) * b, 0.0).sum(), delta))
    return 0.98 * best  # integer noise differs from continuous noise by less


def _below(noise: str, both: bool, x: float) -> float:
    """The distribution function of the noise on one count, or of the difference of two."""
    if noise == "gaussian":
        return float(ndtr(x / math.sqrt(2.0 if both else 1.0)))
    if noise == "gumbel":
        return 1.0 / (1.0 + math.exp(-x))
    tail = math.exp(-abs(x)) * ((2.0 + abs(x)) / 4.0 if both else 0.5)
    return tail if x < 0.0 else 1.0 - tail


def _solve(curve: Any, delta: float) -> float:
    """The ε at which the falling ``curve`` is δ."""
    low, high = 0.0, 700.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if curve(middle) > delta else (low, middle)
    return low


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise LedgerCorrupt(why)
