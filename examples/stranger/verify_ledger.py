"""A stranger's check of a Collegium ledger: what is signed, and an ε by other means. It shares no code with Collegium.

    python verify_ledger.py ledger.sqlite [coordinator/certificate.pem coordinator/authority.pem]

It needs numpy, scipy and cryptography; docs/decisions/ledger.md has the file's format. A round that releases a winner
is a game (docs/research/exact-accountant.md, section 5), played backwards: V(r) = (1 − r)₊ after the last round, and
each round adds the largest Σⱼ dⱼ·G(r/rⱼ), dⱼ the kinks of V's chords, G by what a position's hockey stick exceeds
(1 − k)₊. A table has G at positions so dense that what lies between them is below a reserve, and k and s on one grid.
"""

import hashlib
import itertools
import json
import math
import sqlite3
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from scipy.ndimage import maximum_filter1d
from scipy.signal import fftconvolve
from scipy.special import expit, log_ndtr, ndtr

SIGNING_KEY = x509.ObjectIdentifier("2.25.226015053978625745633806602240951590548")
EITHER = "replace or add-remove"
REACH, DENSE = 6.5, 10  # deviations of a loss that are followed; tabulated positions per σ
real = float.fromhex


class Wrong(Exception):
    """What does not hold, in a sentence."""


def require(holds, why):
    if not holds:
        raise Wrong(why)


def read_chain(path, key=None):
    """Lines, heads and witnesses; every hash and signature is checked."""
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    lines, heads, before, owner = [], [], bytes(32), b""
    for seq, body, digest, signature in database.execute("SELECT seq, body, hash, signature FROM entries ORDER BY seq"):
        linked = before + seq.to_bytes(8, "big") + hashlib.sha256(body).digest()
        before = hashlib.sha256(b"collegium ledger entry v1\0" + linked).digest()
        follows = seq == len(lines) and digest == before
        require(follows, f"entry {len(lines)}: it or one before it was changed or removed")
        lines.append(json.loads(body))
        require((lines[-1]["kind"] == "settings") == (seq == 0), f"entry {seq}: the settings are the first entry alone")
        owner = bytes.fromhex(lines[0]["public_key"])
        require(key in (None, owner), "entry 0: another key than the certificate's signs this ledger")
        said = b"collegium ledger signature v1\0" + digest
        require(not owner or signed(owner, signature, said), f"entry {seq}: not the owner's signature")
        heads.append(f"{seq}:{digest.hex()}")
    require(lines, "it has no entries")
    witnesses = database.execute("SELECT party, key, head, signature, agreed FROM witnesses ORDER BY party").fetchall()
    for party, public, head, signature, agreed in witnesses:
        said = b"collegium ledger followed v2\0" + head.encode() + b"\0" + agreed.encode()
        require(signed(public, signature, said), f"{party}: its signature is false")
        require(head in heads, f"{party}: it followed another ledger")
    return lines, heads, witnesses


def signed(key, signature, message):
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except Exception:
        return False
    return True


def key_of(certificate, authority):
    """The signing key that the authority's certificate binds to a name, proved by its owner."""
    found, issuer = (x509.load_pem_x509_certificate(Path(path).read_bytes()) for path in (certificate, authority))
    try:
        found.verify_directly_issued_by(issuer)
    except Exception:
        raise Wrong("the certificate is not the authority's") from None
    return found.extensions.get_extension_for_oid(SIGNING_KEY).value.value[1:33]


def taken(lines):
    """Blocks that count together, by family: {purpose: [block, used, rounds stated last, first]}; charges by step."""
    terms, families, charges = None, {}, defaultdict(int)
    for seq, line in enumerate(lines):
        if line["kind"] == "terms":
            terms = line
            for purpose, block in terms["blocks"].items():
                for unit in block["laws"]:
                    check_law(block, unit, f"entry {seq}: {purpose!r} of one {unit}")
        if line["kind"] != "charge":
            continue
        purpose, block = line["purpose"], terms["blocks"][line["purpose"]]
        charges[json.dumps(block["step"], sort_keys=True)] += line["queries"]
        fixed = {name: one for name, one in terms["blocks"].items() if one["laws"] and one["rounds"] is not None}
        if not block["laws"]:
            held = families.get(family(terms, fixed), {})
            paid = fixed and held and all(0 < one["rounds"] <= held[name][1] for name, one in fixed.items())
            require(paid, f"entry {seq}: it costs nothing, and no run is paid for")
            continue
        members = {purpose: block} if block["rounds"] is None else fixed
        begun = {name: [one, 0, 0, one["rounds"] or 0] for name, one in members.items()}
        held = families.setdefault(family(terms, members), begun)
        held[purpose][1] += line["queries"]
        for name, one in members.items():
            held[name][2] = max(held[name][2], one["rounds"] or 0)
        within = block["rounds"] is None or held[purpose][1] <= block["rounds"]
        require(within, f"entry {seq}: it charges more rounds than the terms state")
    return families, charges


def family(terms, members):
    near = EITHER if terms["fixed_voters"] and terms["adjacency"] == "replace" else terms["adjacency"]
    return json.dumps([near, {name: [one["laws"], one["fixed"]] for name, one in members.items()}], sort_keys=True)


def own_law(step, unit):
    """Noise, its scale in votes, how far one unit moves the numbers (L2), adjacency, sampling; None where unknown."""
    (votes, near), p, name = step["units"][unit], step["parameters"], step["mechanism"]
    both, shared = near == "replace", step["honest_survivors"] > 0
    turned = votes * math.sqrt(2.0) if both else votes
    if name in ("confident-gnmax", "interactive-gnmax", "knn") and step["stage"]:
        first = step["stage"] in ("threshold", "agreement")
        sigma, rate = p["sigma1" if first else "sigma2"], p.get("sampling_rate", 1.0)
        return "gaussian", sigma, votes if first and not shared else turned, "add-remove" if first else near, rate
    sigma, inverse = p.get("sigma"), 1.0 / p.get("gamma", 1.0)
    known = {
        "gnmax": ("gaussian", sigma, turned),
        "individual-knn": ("gaussian", sigma, votes),
        "class-sums": ("gaussian", sigma, votes * (2.0 if both else 1.0)),
        "record-counts": ("gaussian", sigma, turned * math.sqrt(p.get("parts", 1))),
        "lnmax": ("laplace", inverse, turned),
        "exponential": ("gumbel", inverse, turned),
    }
    return (*known[name], near, 1.0) if name in known else None


def check_law(block, unit, where):
    """Refuse a stated law that costs less than what its mechanism, parameters and unit force."""
    law, step = block["laws"][unit], block["step"]
    require(step is not None, f"{where}: it names no mechanism")
    if (own := own_law(step, unit)) is None:
        return
    noise, scale, moved, near, rate = own
    if law["kind"] == "vector":
        holds = real(law["mu"]) >= moved / scale * (1 - 1e-9)
    elif law["kind"] == "winner":
        same = law["noise"].removeprefix("discrete-") == noise and near in (law["adjacency"], "add-remove")
        same = same and real(law["scale"]) <= scale * (1 + 1e-9) and real(law["sampling_rate"]) >= rate
        holds = same and step["units"][unit][0] == 1
        holds = holds and (noise == "gumbel" or law["classes"] in (None, step["classes"]))
    else:
        alpha, values = (np.array([real(one) for one in law[name]]) for name in ("orders", "values"))
        whole = step["honest_survivors"] > 0 or step["mechanism"] in ("class-sums", "record-counts")
        least = 0.98 * alpha * (moved / scale) ** 2 / 2 if whole else forced(noise, scale, near, alpha)
        holds = rate < 1.0 or (values >= least * (1 - 1e-6)).all()
    require(holds, f"{where}: it states less than {step['mechanism']} costs")


def forced(noise, scale, near, alpha):
    """The Rényi divergence of the winner of two equal counts, of which one vote is moved or added."""
    x = (1.0 if near == "replace" else 0.5) / scale
    wins = {"gaussian": ndtr(x / math.sqrt(2)), "laplace": 1 - (2 + x) / 4 * math.exp(-x), "gumbel": expit(x)}
    p = 0.5 + 0.97 * (wins[noise] - 0.5)  # whole numbers move it a little
    one, other = (alpha * math.log(a) + (1 - alpha) * math.log(1 - a) for a in (p, 1 - p))
    return np.maximum(0.0, np.logaddexp(one, other) / (alpha - 1))


def gaussian(s, mu):
    """δ at ε = −s of the Gaussian mechanism: Balle and Wang 2018, Theorem 8."""
    return ndtr(s / mu + mu / 2) - np.exp(np.minimum(log_ndtr(s / mu - mu / 2) - s, 700.0))


def kinks(value, step):
    """V's chords in r as hockey sticks (1 − r/rⱼ)₊; V = 1 at r = 0."""
    rise = np.diff(value) / -np.expm1(-step)
    return np.maximum(np.append(rise, 1 - value[-1]) - np.insert(rise, 0, 0.0) * np.exp(-step), 0.0)


def excess(pair, k):
    """G(k) = Σ (Pᵢ − k·Qᵢ)₊ − (1 − k)₊ at every position, with the reserve of an outcome where it can be positive."""
    below, above = k[k < 1.0], k[k >= 1.0]
    parts = [np.zeros((len(pair[0]), len(side)), np.float32) for side in (below, above)]
    for a, b, most, least, d0, d1 in zip(*(one.T[:, :, None] for one in pair), strict=True):
        parts[0] += np.maximum(below * b - a, 0.0) + (least <= below) * (d0 + (1.0 - below) * d1)
        parts[1] += np.maximum(a - above * b, 0.0) + (most >= above) * (d0 + (above - 1.0) * d1)
    return np.hstack(parts) * np.float32(1 + 1e-4)  # more than single precision errs by


def tables(law, rounds):
    """A round's P, Q, enclosures of P/Q and reserves, by position and outcome; under sampling for both directions."""
    noise, scale, rate = law["noise"].removeprefix("discrete-"), real(law["scale"]), real(law["sampling_rate"])
    moved = law["adjacency"] == "replace"
    votes, rival = (2, True) if moved else (1, law["classes"] == 2)
    if noise == "gumbel":  # two outcomes whose odds change by e^{η}; between steps of .01 by |F″| < .0963, |F‴| ≤ .125
        eta, x = votes / scale, np.arange(-46.0, 46.0, 0.01)
        p, q = (expit(np.stack([y, -y], -1)) for y in (x, x - eta))
        one = 1.25e-5 * np.ones_like(p)
        pairs = [(p, q, one * 8e4 * math.exp(eta), one * 8e4 * math.exp(-eta), one * 0.125 * eta, one * 0.0963)]
    else:
        wide = math.ceil((9.5 if noise == "gaussian" else 46.0) * scale) + 4
        n = np.arange(-wide, wide + 1)
        f = np.exp(-((n / scale) ** 2) / 2 if noise == "gaussian" else -np.abs(n) / scale)
        f = f / f.sum()
        one, both = np.cumsum(f), np.cumsum(fftconvolve(f, f) if len(f) > 20000 else np.convolve(f, f))
        pairs = [two(both if rival else one, votes)]
        if moved and law["classes"] != 2:
            pairs += [*three(f, noise, scale, rounds), two(one, 1)]
    if rate == 1.0:
        return [pairs]
    mixed = [
        (*(rate * a + (1 - rate) * b for a, b in ((p, q), (q, q), (h, 1.0), (m, 1.0))), rate * c, d)
        for p, q, h, m, c, d in pairs
    ]
    return [mixed, [(q, p, 1 / m, 1 / h, c, c + d) for p, q, h, m, c, d in mixed]]


def two(below, votes):
    """The first outcome has probability F(x) and F(x − votes); a tie goes either way by another x."""
    high = np.append(below[-2::-1], 0.0)  # the noise is symmetric: Pr[Z > n] = Pr[Z ≤ −n − 1], without cancellation
    both = np.minimum(np.stack([below, high], -1), 1.0)
    return both[votes:], both[:-votes], *[np.zeros_like(both[votes:])] * 4


def three(f, noise, scale, rounds):
    """Outcomes a, b, rest at (x, y) votes above the largest other count, and at (x − 1, y + 1).

    With Laplace noise the laws are affine in e^{x} up to x = 1, in e^{y} up to y = 0, and in e^{−(x + y)} beyond: by
    convexity the lines x = 1 and y = 0, and a or b out of reach, stand for all positions. Gaussian noise is tabulated
    at every w-th x and y. Between these each Pᵢ − k·Qᵢ is interpolated, wrong by at most w²/8 of its second
    differences; |Δₓⁱ Δᵧʲ| of a law is at most the same sum over |Δⁱ| and |Δʲ| of f and F, largest within w.
    """
    wide, half = len(f) // 2, math.ceil(7.0 * scale)
    w = max(1, int(scale / (DENSE if rounds >= 4 else 1.5 * DENSE))) if noise == "gaussian" else 1
    u = np.arange(1, 2 * wide)[:, None]
    tail = np.pad(f, 2 * wide)
    exact = [np.cumsum(tail), tail]
    bounds = [maximum_filter1d(np.abs(one), 2 * w + 7) for one in (*exact, *(np.diff(tail, i) for i in (1, 2, 3)))]

    def laws(tie, h, x, y, i=0, j=0):
        first, second, third, fourth = (lambda n, one=h[at]: one[n + 3 * wide] for at in (i, i + 1, j, j + 1))
        a = second(u - x).T @ third(u - y - 1 + tie)
        b = (fourth(u - y).T @ first(u - x - tie)).T
        return np.stack([a, b, np.outer(first(-x), third(-y))], -1).reshape(-1, 3)

    side, out = np.arange(-half, half + w, w) if noise == "gaussian" else np.arange(0, wide), []
    lines = [(side, side)] if noise == "gaussian" else [(np.array([1]), side), (side + 1, np.array([0]))]
    for tie, (x, y) in itertools.product((0, 1), lines):
        p, q = laws(tie, exact, x, y), laws(tie, exact, x - 1, y + 1)
        if w == 1:
            out.append((p, q, *[np.zeros_like(p)] * 4))
            continue
        c0 = sum(laws(tie, bounds, x, y, i, 3 - i) for i in range(4)) * w * w / 8
        c1 = (laws(tie, bounds, x, y, 2, 0) + laws(tie, bounds, x, y, 0, 2)) * w * w / 8
        high, low = (laws(tie, exact, x - d, y + d) / laws(tie, exact, x - d - 1, y + d + 1) for d in (w, -w))
        out.append((p, q, np.nan_to_num(high, nan=np.inf), np.nan_to_num(low), c0, c1))
    return out


def stride(pairs, rounds):
    """What the loss of a round at the most telling position deviates by, and the step of a fine enough grid."""
    spread = max(float((2 * (p - q) ** 2 / np.maximum(p + q, 1e-300)).sum(1).max()) for p, q, *_ in pairs) ** 0.5
    return spread, spread / (3.5 if rounds >= 200 else 5 if rounds >= 20 else 10 if rounds >= 4 else 16)


def played(pairs, law, rounds, delta, step):
    """V after so many rounds at s = (i − half)·step, r = e^{−s}: an upper bound."""
    spread, entries = stride(pairs, rounds)[0], 2 if law["adjacency"] == "replace" else 1
    mu, bounded = math.sqrt(entries) / real(law["scale"]), not law["noise"].endswith("gaussian")
    widest = entries / real(law["scale"]) if bounded else REACH * mu + mu * mu / 2
    reach = math.ceil(widest / step) + 1
    k = np.exp(np.arange(-reach, reach + 1) * step)
    rows = [excess([one[i : i + 8192] for one in pair], k) for pair in pairs for i in range(0, len(pair[0]), 8192)]
    table = np.concatenate(rows)
    few = table.max(1) * rounds < 0.1 * delta  # one curve above all of these stands for them
    table = np.vstack([table[~few], table[few].max(0, initial=0.0)])
    table = table[np.argsort(-table.sum(1))]
    blocks = [(some, some.max(0)) for some in np.array_split(table, len(table) // 256 + 1)]
    lost = 0.0 if bounded else float(gaussian(np.array(-widest), mu)) + 2e-11
    half = math.ceil(min(7.5 * spread * math.sqrt(rounds) + rounds * spread**2 / 2, rounds * widest) / step) + 1
    value = np.maximum(0.0, -np.expm1(-np.arange(-half, half + 1) * step))
    for _ in range(rounds):
        sticks = kinks(value, step)
        seen = np.lib.stride_tricks.sliding_window_view(np.pad(sticks, reach), 2 * reach + 1)
        live = np.flatnonzero(seen.sum(1) > 1e-15)
        part = slice(live[0], live[-1] + 1)
        looked = np.where(seen[part] > 1e-30, seen[part], 0.0).astype(np.float32).T
        best = np.zeros(looked.shape[1], np.float32)
        for some, above in blocks:  # only where one curve above all of a block passes what is found already
            more = above @ looked > best
            best[more] = np.maximum(best[more], (some @ looked[:, more]).max(0))
        value[part] += best
        value = np.minimum(1.0, (value + lost * sticks.sum() + 1e-15) * (1 + 1e-9))
    return value


def of_curve(s, alpha, values, lost):
    """δ at ε = −s from a Rényi curve: Canonne, Kamath and Steinke 2020, Proposition 12."""
    with np.errstate(over="ignore", invalid="ignore"):
        exponent = (alpha - 1) * (values - np.abs(s)[:, None] + np.log1p(-1 / alpha)) - np.log(alpha)
        near = np.minimum(1.0, np.exp(np.nan_to_num(exponent, nan=np.inf).min(1)))
    return np.minimum(1.0, np.where(s > 0, -np.expm1(-np.abs(s)) + np.exp(-np.abs(s)) * near, near) + lost)


def of_vectors(s, mu, slack):
    """δ at ε = −s of Gaussian vectors that are within e^{±slack} of continuous ones."""
    return np.minimum(1.0, np.exp(slack) * gaussian(s + 2 * slack, mu) * (1 + 1e-9))


def epsilon(group, delta):
    """ε at δ of so many rounds of each law, interleaved in any way; dominating pairs are convolved."""
    games, mu, slack, alpha, values, lost = [], 0.0, 0.0, None, 0.0, 0.0
    for law, rounds in group:
        if law["kind"] == "vector":
            mu, slack = math.hypot(mu, math.sqrt(rounds) * real(law["mu"])), slack + rounds * real(law["slack"])
        elif law["kind"] == "renyi":
            alpha, added = (np.array([real(one) for one in law[name]]) for name in ("orders", "values"))
            values, lost = values + rounds * added, lost + rounds * real(law["delta"])
        else:
            games.append((tables(law, rounds), law, rounds))
    if not games and alpha is None:
        return 0.0 if mu == 0.0 else smallest(lambda e: float(of_vectors(np.array(-e), mu, slack)), delta)
    if not games:
        values = values + alpha * mu**2 / 2 + slack * (2 * alpha - 1) / (alpha - 1)
        return smallest(lambda e: float(of_curve(np.array([-e]), alpha, values, lost)[0]), delta)
    step = min(stride(pairs, rounds)[1] for choices, _, rounds in games for pairs in choices)
    parts = [[played(pairs, law, rounds, delta, step) for pairs in choices] for choices, law, rounds in games]
    if mu:
        half = math.ceil((8 * mu + mu * mu / 2 + 2 * slack) / step)
        parts.append([of_vectors(np.arange(-half, half + 1) * step, mu, slack) + 1e-15])
    if alpha is not None:
        half = math.ceil(float((values + 30 / (alpha - 1)).min()) / step)
        parts.append([of_curve(np.arange(-half, half + 1) * step, alpha, values, lost)])
    totals = parts[0]
    for choice in parts[1:]:
        totals = [together(one, other, step) for one in totals for other in choice]
    return max(read(value, step, delta) for value in totals)


def smallest(delta_at, delta):
    """The least ε at which a falling δ(ε) is small enough, by halving."""
    low, high = 0.0, 1e4
    if delta_at(high) > delta:
        return math.inf
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high * (1 + 1e-9)


def together(one, other, step):
    """E[V₂(r·e^{−D})] with D the loss of the pair that dominates V₁."""
    masses, half = kinks(one, step), len(other) // 2
    more = len(one) // 2
    s = np.arange(half + 1, half + 2 * more + 1) * step
    longer = np.concatenate([np.full(2 * more, other[0]), other, 1 - (1 - other[-1]) * np.exp(-(s - half * step))])
    return np.minimum(1.0, (np.convolve(longer, masses, "valid") + one[0]) * (1 + 1e-9))


def read(value, step, delta):
    s = (np.arange(len(value)) - len(value) // 2) * step
    i = int(np.searchsorted(value, delta, side="right"))
    if i == 0 or i == len(value):
        return math.inf if i == 0 else 0.0
    share = (delta - value[i - 1]) / (value[i] - value[i - 1])
    return max(0.0, -s[i - 1] + math.log1p(share * math.expm1(-step)))


def of_unit(families, unit, near, delta):
    """ε of everything for one unit and adjacency; groups that were fixed apart add up, each at its share of δ."""
    groups = {}
    for name, members in families.items():
        if json.loads(name)[0] not in (near, EITHER) or any(unit not in one["laws"] for one, *_ in members.values()):
            return math.inf
        laws = {purpose: json.dumps(one["laws"][unit], sort_keys=True) for purpose, (one, *_) in members.items()}
        vectors = all(one["laws"][unit]["kind"] == "vector" for one, *_ in members.values())
        apart = sum(not one["fixed"] for one, *_ in members.values()) == 1
        grown = [(one["fixed"], now, first) for one, _, now, first in members.values() if now > first]
        if not vectors and any(fixed or (not apart and first == 0) for fixed, _, first in grown):
            return math.inf  # a number that was fixed with others was raised
        key = json.dumps(sorted(set(laws.values()))) if len(set(laws.values())) == 1 else name
        group = groups.setdefault("all vectors" if len(laws) == 1 and vectors else key, defaultdict(int))
        for purpose, (one, used, now, first) in members.items():
            raised = (
                [] if vectors or one["fixed"] else [-(-first * later // began) for _, later, began in grown if began]
            )
            group[laws[purpose]] += used if apart and not one["fixed"] else max(used, now, *raised)
    share = delta / max(1, len(groups))
    return sum(epsilon([(json.loads(law), n) for law, n in group.items() if n], share) for group in groups.values())


def agreed(witnesses, charges, ledger):
    """Refuse a ledger that charges fewer rounds than the parties signed that they answered."""
    for party, *_, text in witnesses:
        for said in json.loads(text):
            if said["ledger"] != ledger[:32]:
                continue
            told = [(one, said[one]) for one in ("mechanism", "parameters", "stage", "honest_survivors")]
            steps = [(json.loads(step), n) for step, n in charges.items() if step != "null"]
            paid = sum(n for step, n in steps if all(step[one] == value for one, value in told))
            each = said["mode"] == "masked+noised" and said["mechanism"] != "individual-knn"
            why = f"{party} agreed to {said['answers']} rounds of {said['mechanism']}; the ledger has {paid}"
            require(paid >= (said["answers"] if each else 1), why)


def main(path, *certificates):
    lines, heads, witnesses = read_chain(path, key_of(*certificates) if certificates else None)
    families, charges = taken(lines)
    agreed(witnesses, charges, heads[0].partition(":")[2])
    delta = real(lines[0]["delta"])
    print(f"{len(lines)} entries agree; signed by {lines[0]['public_key'] or 'nobody'}; head {heads[-1]}")
    print(f"followed, as they signed, by {', '.join(party for party, *_ in witnesses) or 'no party'}")
    blocks = [(name, one) for name, held in families.items() for one, *_ in held.values()]
    for unit, near in sorted(
        {(unit, json.loads(name)[0].partition(" ")[0]) for name, one in blocks for unit in one["laws"]}
    ):
        print(f"ε = {of_unit(families, unit, near, delta):.5g} for one {unit} ({near}) at δ = {delta:g}, at most")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Wrong as wrong:
        sys.exit(f"refused: {wrong}")
    except (sqlite3.Error, OSError, ValueError, KeyError, TypeError, AttributeError) as wrong:
        sys.exit(f"refused: a ledger or a certificate cannot be read: {type(wrong).__name__} {wrong}")
