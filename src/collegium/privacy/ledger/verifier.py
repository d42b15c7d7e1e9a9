"""An independent check of a ledger's file: chain, signatures, rules, and two bounds of ε from the entries alone.

It shares nothing with the ledger but the file's format, so errors there do not repeat here: table ``entries`` (seq,
body, hash, signature); a body is a line of JSON, hash = SHA-256(purpose ‖ hash before ‖ seq in 8 bytes ‖ SHA-256 of the
body), signature the owner's Ed25519 over purpose ‖ hash. The exact accountant's figure lies between the two bounds.
What a round costs follows here from the mechanism's name, its parameters and the unit; what the entry states as its law
counts only for mechanisms of other packages, and where it is the larger one.
"""

import hashlib
import json
import math
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from collegium.errors import LedgerCorrupt

_float = float.fromhex


@dataclass
class Verified:
    """What the entries say: the labels that each charge still pays for, and named charges without any release."""

    settings: dict[str, Any] = field(default_factory=dict)
    heads: list[str] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    charges: dict[int, int] = field(default_factory=dict)
    unopened: set[int] = field(default_factory=set)
    periods: list[tuple[dict[str, Any], int]] = field(default_factory=list)
    families: dict[str, tuple[str, dict[str, list[Any]]]] = field(default_factory=dict)
    """Blocks stated together: adjacencies; by purpose laws, rounds charged, stated, whether fixed, stated at first."""

    def bounds(self, unit: str, adjacency: str) -> tuple[float, float]:
        """An ε that a fixed adversary forces by the rounds of one law, and an ε that holds by Rényi bounds."""
        least, highest, delta = 0.0, 0.0, _float(self.settings["delta"])
        for neighbours, family in self.families.values():
            # Families add up, each at its share of δ. Of several open numbers, one that was raised raises the others.
            grown = [now / first if first else math.inf for _, _, now, _, first in family.values() if now > first]
            alone, c = sum(not fixed for *_, fixed, _ in family.values()) == 1, max([1.0, *grown])
            held = [(law.get(unit), n if alone and not fixed else m) for law, n, m, fixed, _ in family.values()]
            raised = held if alone or c == 1.0 else [(law, (m + 1) * c) for law, m in held]
            unstated = adjacency not in neighbours or any(law is None for law, _ in held)
            least = max([least, *(_forced(law, rounds, delta) for law, rounds in held if not unstated)])
            highest += math.inf if unstated else _by_renyi(raised, delta / len(self.families))
        return least, highest


def verify(
    path: Path, public_key: bytes | None = None, head: str | None = None, nth: int = 0, of: int = 1, chain: str = ""
) -> Verified:
    """Walk the whole chain of the ledger at ``path``; LedgerCorrupt names the first bad entry.

    ``public_key`` (32 bytes) is what the entries must be signed with: without it the chain is only shown to agree with
    itself. ``head`` (``SEQ:HASH``) was printed earlier: the ledger must still hold that entry. Of several walks at once
    each checks its part of the signatures. ``chain`` names one of several ledgers in a file: its tables begin with it.
    """
    unused = "" if path.with_name(path.name + "-wal").exists() else "&immutable=1"
    found, before, time, key = Verified(), bytes(32), "", b""
    entries = f"{chain}_entries" if chain else "entries"
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro{unused}", uri=True)) as database:
            for seq, body, digest, signed in database.execute(f"SELECT * FROM {entries} ORDER BY seq"):
                linked = before + seq.to_bytes(8, "big") + hashlib.sha256(body).digest()
                before, line = hashlib.sha256(b"collegium ledger entry v1\0" + linked).digest(), json.loads(body)
                follows = seq == len(found.heads) and digest == before and time <= line["time_utc"]
                _require(follows, "it, or an entry before it, was changed, removed or dated back")
                _take(found, seq, line)
                key, time = bytes.fromhex(found.settings["public_key"]), line["time_utc"]
                if (key or signed) and seq % of == nth:
                    Ed25519PublicKey.from_public_bytes(key).verify(signed, b"collegium ledger signature v1\0" + digest)
                found.heads.append(f"{seq}:{digest.hex()}")
    except Exception as error:
        why = error if isinstance(error, LedgerCorrupt | sqlite3.Error) else "it cannot be read, or is not its owner's"
        raise LedgerCorrupt(f"entry {len(found.heads)}: {why}; restore the ledger from a backup") from None
    _require(bool(found.periods), "the ledger is empty: its first entries are missing")
    _require(public_key in (None, key), "entry 0: the ledger is not signed with the given key")
    _require(head in (None, *found.heads), f"entry {str(head).split(':')[0]}: printed, and cut or rewritten since")
    return found


def _take(found: Verified, seq: int, line: dict[str, Any]) -> None:
    """Add one entry; LedgerCorrupt where the rules do not allow it."""
    terms, before = found.periods[-1] if found.periods else ({}, 0)
    match line:
        case {"kind": "settings"} if seq == 0:
            found.settings = line
        case {"kind": "terms"} if not found.charges or (line["noise"] == "seeded") == (terms["noise"] == "seeded"):
            found.periods.append((line, 0))
        case {"kind": "charge", "purpose": purpose, "queries": int(queries)} if queries > 0:
            block, adjacency = terms["blocks"][purpose], terms["adjacency"]
            adjacency += " or add-remove" if terms["fixed_voters"] else ""  # a record turns one vote
            fixed = {name: one for name, one in terms["blocks"].items() if one["laws"] and one["rounds"] is not None}
            members = {purpose: block} if block["laws"] and block["rounds"] is None else fixed
            key = json.dumps([adjacency, {p: [m["laws"], m["fixed"]] for p, m in members.items()}], sort_keys=True)
            fresh = {p: [_laws(one), 0, 0, one["fixed"], one["rounds"] or 0] for p, one in members.items()}
            _, held = found.families.setdefault(key, (adjacency, fresh))
            for name, one in members.items():
                held[name][1] += queries if name == purpose else 0
                held[name][2] = max(held[name][2], one["rounds"] or 0)
            paid = bool(fixed) and not block["laws"] and all(0 < n["rounds"] <= held[p][1] for p, n in fixed.items())
            stated = terms["unit"] in block["laws"] and (block["rounds"] is None or held[purpose][1] <= block["rounds"])
            _require(stated or paid, "the terms in force do not allow it")
            found.periods[-1], found.charges[seq] = (terms, before + queries), queries
            found.unopened |= {seq} if line["queries_sha256"] else set()
        case {"kind": "release", "charge": charge, "labels": labels} if found.labels.keys().isdisjoint(labels):
            _require(found.charges[charge] >= len(labels), f"entry {charge} does not pay for its labels")
            opens = not labels or line["sum"]
            _require(not opens or charge in found.unopened, f"it opens again what entry {charge} paid for")
            found.charges[charge] -= len(labels)
            found.unopened.discard(charge)
            found.labels |= labels
        case _:
            raise LedgerCorrupt("it is of no known kind, out of place, a second label, or noise with and without seed")


def _laws(block: dict[str, Any]) -> dict[str, Any]:
    """What one round of ``block`` releases, by unit, as its mechanism has it; as stated where that is not known here.

    A stated Rényi curve stays beside what is forced at least by the noise (``floor``).
    """
    step, laws = block["step"], dict(block["laws"])
    for unit, law in laws.items() if step is not None else ():
        votes, adjacency = step["units"][unit]
        if (noise := _noise(step, votes, adjacency)) is not None:
            kind, scale, moved, near, rate = noise
            own = {"kind": "winner", "noise": kind, "scale": (scale / votes).hex(), "adjacency": near}
            own["sampling_rate"] = float(rate).hex()
            if law["kind"] == "vector" or step["honest_survivors"]:
                own = {"kind": "vector", "mu": (moved / scale).hex(), "slack": law.get("slack", "0x0p+0")}
            laws[unit] = law | {"floor": own} if law["kind"] == "renyi" else own
    return laws


def _noise(step: dict[str, Any], votes: int, adjacency: str) -> tuple[str, float, float, str, float] | None:
    """Noise, its scale, how far a unit moves the numbers under it (L2), adjacency, sampling rate; None if unknown."""
    replaced, p = adjacency == "replace", step["parameters"]
    shared, name = step["honest_survivors"] > 0, step["mechanism"]
    turned = votes * math.sqrt(2.0 if replaced else 1.0)
    if step["stage"] == "" and name not in ("class-sums", "record-counts", "gnmax", "individual-knn"):
        return None  # several steps at once
    match name, step["stage"]:
        case "gnmax", _:
            return "gaussian", p["sigma"], turned, adjacency, 1.0
        case "confident-gnmax" | "interactive-gnmax", "threshold" | "agreement":
            return "gaussian", p["sigma1"], turned if shared else votes, "add-remove", 1.0
        case "confident-gnmax" | "interactive-gnmax", "release":
            return "gaussian", p["sigma2"], turned, adjacency, 1.0
        case ("lnmax" | "exponential") as laplace, _:
            return "laplace" if laplace == "lnmax" else "gumbel", 1.0 / p["gamma"], turned, adjacency, 1.0
        case "individual-knn", _:
            return "gaussian", p["sigma"], votes, adjacency, 1.0
        case "knn", "threshold":
            return "gaussian", p["sigma1"], votes, "add-remove", p["sampling_rate"]
        case "knn", "release":
            return "gaussian", p["sigma2"], votes * math.sqrt(2.0), "replace", p["sampling_rate"]
        case "class-sums", _:
            return "gaussian", p["sigma"], votes * (2.0 if replaced else 1.0), adjacency, 1.0
        case "record-counts", _:
            return "gaussian", p["sigma"], turned * math.sqrt(p["parts"]), adjacency, 1.0
    return None


def _by_renyi(rounds: list[Any], delta: float) -> float:
    """ε of so many rounds by Rényi divergence of all their noise: Canonne, Kamath, Steinke 2020, Proposition 12."""
    orders = {_float(order) for law, _ in rounds for order in law.get("orders", [])}
    alpha = np.array(sorted(orders) or np.r_[1.1:1.95:0.1, 2:32, 2.0 ** np.r_[5:12], 3.0 * 2.0 ** np.r_[4:11]])
    left, spent = delta - sum(n * _float(law.get("delta", "0")) for law, n in rounds), np.zeros(len(alpha))
    for law, n in rounds:
        if law["kind"] == "renyi":
            spent += n * np.array([_float(value) for value in law["values"]])
        elif law["kind"] == "vector":
            spent += n * (alpha * _float(law["mu"]) ** 2 / 2 + _float(law["slack"]) * (2 * alpha - 1) / (alpha - 1))
        else:
            moved = 2.0 if law["adjacency"] == "replace" else 1.0
            square = {"gaussian": moved, "laplace": moved**2, "gumbel": moved**2 / 4}[law["noise"].split("-")[-1]]
            spent += n * alpha * square / _float(law["scale"]) ** 2 / 2.0
    gain = np.log1p(-1.0 / alpha) - np.log(alpha * left) / (alpha - 1.0) if left > 0.0 else math.inf
    return max(0.0, float(np.min(spent + gain)))


def _forced(law: dict[str, Any], n: int, delta: float) -> float:
    """ε, less 2 % for noise on integers, of the best threshold on a sum of vectors, or on how often a leader wins."""
    law = law.get("floor", law)
    if law["kind"] == "renyi":  # nothing more is known of it
        return _by_renyi([(law, n)], delta)
    if law["kind"] == "vector":
        from scipy.special import log_ndtr, ndtr  # takes half a second to load

        mu, z = math.sqrt(n) * _float(law["mu"]), np.linspace(-9.0, 9.0, 200)
        likely, other = ndtr(z), log_ndtr(z - mu)
    else:
        from scipy.special import expit, ndtr
        from scipy.stats import binom  # takes a second to load

        x, fewer = (1.0 if law["adjacency"] == "replace" else 0.5) / _float(law["scale"]), np.arange(-1, n)
        wins = {"gaussian": ndtr(x / math.sqrt(2.0)), "laplace": 1 - (2 + x) / 4 * math.exp(-x), "gumbel": expit(x)}
        p = wins[law["noise"].split("-")[-1]]
        sampled = 1.0 - p + _float(law["sampling_rate"]) * (2.0 * p - 1.0)
        likely, other = binom.sf(fewer, n, sampled), binom.logsf(fewer, n, 1.0 - p)
    return max(0.0, 0.98 * float((np.log(np.maximum(likely - delta, 1e-300)) - other).max()))


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise LedgerCorrupt(why)
