"""A stranger's check of a Collegium ledger: what is signed, and an ε by other means. It shares no code with Collegium.

    python verify_ledger.py ledger.sqlite [coordinator/certificate.pem coordinator/authority.pem]

It needs numpy, scipy and cryptography; docs/decisions/ledger.md has the file's format. A round that releases a winner
is a game (docs/research/exact-accountant.md, section 5), played backwards: V(r) = (1 − r)₊ after the last round, and
each round adds the largest Σⱼ dⱼ·G(r/rⱼ), dⱼ the kinks of V's chords, G by what a position's hockey stick exceeds
(1 − k)₊. Every integer position within reach is a row of a table. The largest G of a block of rows stands for its rows
where that costs little more than the best row does, so that the bound rounds up.
"""

import hashlib
import json
import math
import sqlite3
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from scipy.signal import fftconvolve
from scipy.special import log_ndtr, ndtr

SIGNING_KEY = x509.ObjectIdentifier("2.25.226015053978625745633806602240951590548")
EITHER = "replace or add-remove"
REACH, WIDEST = 6.5, 50.0  # deviations of a loss that are followed; σ in votes up to which three outcomes are played
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
        require(
            seq == len(lines) and digest == before, f"entry {len(lines)}: it or one before it was changed or removed"
        )
        lines.append(json.loads(body))
        require((lines[-1]["kind"] == "settings") == (seq == 0), f"entry {seq}: the settings are the first entry alone")
        owner = bytes.fromhex(lines[0]["public_key"])
        require(key in (None, owner), "entry 0: another key than the certificate's signs this ledger")
        if owner:
            signed(
                owner, signature, b"collegium ledger signature v1\0" + digest, f"entry {seq}: not the owner's signature"
            )
        heads.append(f"{seq}:{digest.hex()}")
    witnesses = database.execute("SELECT party, key, head, signature, agreed FROM witnesses ORDER BY party").fetchall()
    for party, public, head, signature, agreed in witnesses:
        said = b"collegium ledger followed v2\0" + head.encode() + b"\0" + agreed.encode()
        signed(public, signature, said, f"{party}: its signature is false")
        require(head in heads, f"{party}: it followed another ledger")
    return lines, heads, witnesses


def signed(key, signature, message, why):
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except Exception:
        raise Wrong(why) from None


def key_of(certificate, authority):
    """The signing key that the authority's certificate binds to a name, proved by its owner."""
    found, issuer = (x509.load_pem_x509_certificate(Path(path).read_bytes()) for path in (certificate, authority))
    try:
        found.verify_directly_issued_by(issuer)
    except Exception:
        raise Wrong("the certificate is not the authority's") from None
    value = found.extensions.get_extension_for_oid(SIGNING_KEY).value.value
    return value[1:33]


def taken(lines):
    """Groups of blocks that count together: for each a list of (adjacency, law by unit, rounds)."""
    terms, families, charges = None, {}, defaultdict(int)
    for seq, line in enumerate(lines):
        if line["kind"] == "terms":
            terms = line
            for purpose, block in terms["blocks"].items():
                for unit in block["laws"]:
                    check_law(block, unit, f"entry {seq}: {purpose!r} of one {unit}")
        if line["kind"] != "charge":
            continue
        block, n = terms["blocks"][line["purpose"]], line["queries"]
        charges[json.dumps(block["step"], sort_keys=True)] += n
        fixed = {name: one for name, one in terms["blocks"].items() if one["laws"] and one["rounds"] is not None}
        if not block["laws"]:
            paid = all(0 < one["rounds"] <= families[family(terms, fixed)][name][1] for name, one in fixed.items())
            require(fixed and paid, f"entry {seq}: it costs nothing, and no run is paid for")
            continue
        members = {line["purpose"]: block} if block["rounds"] is None else fixed
        held = families.setdefault(
            family(terms, members), {name: [one, 0, 0, one["rounds"] or 0] for name, one in members.items()}
        )
        held[line["purpose"]][1] += n
        for name, one in members.items():
            held[name][2] = max(held[name][2], one["rounds"] or 0)
        over = block["rounds"] is not None and held[line["purpose"]][1] > block["rounds"]
        require(not over, f"entry {seq}: it charges more rounds than the terms state")
    return families, charges


def family(terms, members):
    near = EITHER if terms["fixed_voters"] and terms["adjacency"] == "replace" else terms["adjacency"]
    return json.dumps([near, {name: [one["laws"], one["fixed"]] for name, one in members.items()}], sort_keys=True)


def own_law(step, unit):
    """Noise, its scale in votes, how far one unit moves the numbers (L2), adjacency, sampling; None where unknown."""
    (votes, near), p, name = step["units"][unit], step["parameters"], step["mechanism"]
    both, shared = near == "replace", step["honest_survivors"] > 0
    turned = votes * math.sqrt(2.0) if both else votes
    first = step["stage"] in ("threshold", "agreement")
    if name in ("confident-gnmax", "interactive-gnmax", "knn") and step["stage"]:
        sigma, rate = p["sigma1" if first else "sigma2"], p.get("sampling_rate", 1.0)
        return "gaussian", sigma, votes if first and not shared else turned, "add-remove" if first else near, rate
    known = {
        "gnmax": ("gaussian", p.get("sigma"), turned),
        "individual-knn": ("gaussian", p.get("sigma"), votes),
        "class-sums": ("gaussian", p.get("sigma"), votes * (2.0 if both else 1.0)),
        "record-counts": ("gaussian", p.get("sigma"), turned * math.sqrt(p.get("parts", 1))),
        "lnmax": ("laplace", 1.0 / p.get("gamma", 1.0), turned),
        "exponential": ("gumbel", 1.0 / p.get("gamma", 1.0), turned),
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
        require(
            real(law["mu"]) >= moved / scale * (1 - 1e-9), f"{where}: it states less than {step['mechanism']} costs"
        )
    elif law["kind"] == "winner":
        same = law["noise"].removeprefix("discrete-") == noise and near in (law["adjacency"], "add-remove")
        same = same and real(law["scale"]) <= scale * (1 + 1e-9) and real(law["sampling_rate"]) >= rate
        fits = step["units"][unit][0] == 1 and (noise == "gumbel" or law["classes"] in (None, step["classes"]))
        require(same and fits, f"{where}: it states less than {step['mechanism']} costs")
    elif rate == 1.0:
        alpha, values = (np.array([real(one) for one in law[name]]) for name in ("orders", "values"))
        whole = step["honest_survivors"] > 0 or step["mechanism"] in ("class-sums", "record-counts")
        least = forced(noise, scale, moved, near, alpha, whole)
        require((values >= least * (1 - 1e-6)).all(), f"{where}: it states less than {step['mechanism']} costs")


def forced(noise, scale, moved, near, alpha, whole):
    """A Rényi divergence that some pair of neighbours has: of the vector, or of the winner of two equal counts."""
    if whole:
        return 0.98 * alpha * (moved / scale) ** 2 / 2
    x = (1.0 if near == "replace" else 0.5) / scale
    p = {
        "gaussian": ndtr(x / math.sqrt(2)),
        "laplace": 1 - (2 + x) / 4 * math.exp(-x),
        "gumbel": 1 / (1 + math.exp(-x)),
    }
    p = 0.5 + 0.97 * (p[noise] - 0.5)  # whole numbers move it a little
    large = alpha * math.log(p) + (1 - alpha) * math.log(1 - p)
    return np.maximum(0.0, (large + np.log1p(np.exp((1 - 2 * alpha) * math.log(p / (1 - p))))) / (alpha - 1))


def gaussian(s, mu):
    """δ at ε = −s of the Gaussian mechanism: Balle and Wang 2018, Theorem 8."""
    return ndtr(s / mu + mu / 2) - np.exp(np.minimum(log_ndtr(s / mu - mu / 2) - s, 700.0))


def kinks(value, step):
    """V's chords in r as hockey sticks (1 − r/rⱼ)₊; V = 1 at r = 0."""
    rise = np.diff(value) / -np.expm1(-step)
    return np.maximum(np.append(rise, 1 - value[-1]) - np.insert(rise, 0, 0.0) * np.exp(-step), 0.0)


def excess(p, q, k):
    """G(k) = Σ (Pᵢ − k·Qᵢ)₊ − (1 − k)₊ at every position; outcomes are the last axis."""
    low, out = int(np.searchsorted(k, 1.0)), np.zeros((len(p), len(k)), np.float32)
    for i in range(p.shape[-1]):
        a, b = p[:, i, None], q[:, i, None]
        out[:, :low] += np.maximum(k[:low] * b - a, 0.0)
        out[:, low:] += np.maximum(a - k[low:] * b, 0.0)
    return out * np.float32(1 + 1e-5)


def tables(law):
    """P and Q of a round's outcomes at every position that matters, and what other positions add at most."""
    noise, scale, rate = law["noise"].removeprefix("discrete-"), real(law["scale"]), real(law["sampling_rate"])
    moved = law["adjacency"] == "replace"
    votes, rival = (2, True) if moved else (1, law["classes"] == 2)
    if (
        noise == "gumbel"
    ):  # two outcomes whose odds change by e^{η}; x in steps of .01, what lies between in ``between``
        eta, x = votes / scale, np.arange(-46.0, 46.0, 0.01)
        pairs = [tuple(np.stack([1 / (1 + np.exp(-y)), 1 / (1 + np.exp(y))], -1) for y in (x, x - eta))]
    else:
        wide = math.ceil((9.5 if noise == "gaussian" else 46.0) * scale) + 4
        n = np.arange(-wide, wide + 1)
        f = np.exp(-((n / scale) ** 2) / 2 if noise == "gaussian" else -np.abs(n) / scale)
        f = f / f.sum()
        one, both = np.cumsum(f), np.cumsum(np.convolve(f, f) if len(f) < 20000 else fftconvolve(f, f))
        line = [two(both, votes) if rival else two(one, votes)]
        pairs = line if not moved or law["classes"] == 2 else [*line, *three(f, one, noise, scale), two(one, 1)]
    if rate == 1.0:
        return [pairs]
    mixed = [(rate * p + (1 - rate) * q, q) for p, q in pairs]
    return [mixed, [(q, p) for p, q in mixed]]


def two(below, votes):
    """The first outcome has probability F(x) and F(x − votes); a tie goes either way by another x."""
    low = np.minimum(below, 1.0)
    high = low[::-1]  # the noise is symmetric: Pr[Z > n] = Pr[Z ≤ −n − 1], without cancellation
    high = np.append(high[1:], 0.0)
    p, q = (np.stack([low, high], -1)[part] for part in (slice(votes, None), slice(0, -votes)))
    return p, q


def three(f, one, noise, scale):
    """Outcomes a, b, rest at (x, y) votes above the largest other count, and at (x − 1, y + 1).

    With Laplace noise the laws are affine in e^{x} up to x = 1, in e^{y} up to y = 0, and in e^{−(x + y)} beyond: by
    convexity the lines x = 1 and y = 0, and a or b out of reach, stand for all positions.
    """
    wide, out = len(one) // 2, []
    mass, below = (
        (lambda n: f[np.clip(n + wide, 0, 2 * wide)] * (np.abs(n) <= wide)),
        (lambda n: one[np.clip(n + wide, 0, 2 * wide)] * (n >= -wide)),
    )
    half = math.ceil(7.0 * scale)
    side = np.arange(-half, half + 1) if noise == "gaussian" else np.arange(0, wide)
    u = np.arange(1, 2 * wide)[:, None]

    def laws(x, y, tie):
        a, b = mass(u - x).T @ below(u - y - 1 + tie), (mass(u - y).T @ below(u - x - tie)).T
        return np.stack([a, b, np.outer(below(-x), below(-y))], -1)

    for tie in (0, 1):
        for x, y in ((side, side),) if noise == "gaussian" else ((np.array([1]), side), (side + 1, np.array([0]))):
            out.append((laws(x, y, tie), laws(x - 1, y + 1, tie)))
    return out


def ordered(p):
    """Rows so that every 16 and every 256 are neighbours, the last one repeated where some are missing."""
    if p.ndim == 3:
        if min(p.shape[:2]) > 1:
            p = np.pad(p, [(0, -p.shape[0] % 16), (0, -p.shape[1] % 16), (0, 0)], mode="edge")
            n, m = p.shape[0] // 16, p.shape[1] // 16
            p = p.reshape(n, 4, 4, m, 4, 4, 3).transpose(0, 3, 1, 4, 2, 5, 6)
        p = p.reshape(-1, 3)
    return np.pad(p, [(0, -len(p) % 256), (0, 0)], mode="edge")


def played(pairs, law, rounds, delta):
    """V after so many rounds at s = (i − half)·step, r = e^{−s}: an upper bound; the step."""
    pairs = [(ordered(p), ordered(q)) for p, q in pairs]
    spread = max(float((2 * (p - q) ** 2 / np.maximum(p + q, 1e-300)).sum(1).max()) for p, q in pairs) ** 0.5
    entries, scale = (2 if law["adjacency"] == "replace" else 1), real(law["scale"])
    mu, pure = math.sqrt(entries) / scale, entries / scale
    bounded = not law["noise"].endswith("gaussian")
    widest = pure if bounded else REACH * mu + mu * mu / 2
    step = spread / (5 if rounds >= 20 else 10 if rounds >= 4 else 40)
    reach = math.ceil(widest / step) + 1
    k = np.exp(np.arange(-reach, reach + 1) * step)
    rows = [excess(p[i : i + 8192], q[i : i + 8192], k) for p, q in pairs for i in range(0, len(p), 8192)]
    table = np.concatenate(rows) + np.float32(1e-5 * 0.125 * pure) * (law["noise"] == "gumbel") * (
        np.abs(np.log(k)) < pure
    )
    levels = [table, table.reshape(-1, 16, len(k)).max(1), table.reshape(-1, 256, len(k)).max(1)]
    lost = 0.0 if bounded else float(gaussian(np.array(-widest), mu)) + 2e-11
    half = math.ceil(min(7.5 * spread * math.sqrt(rounds) + rounds * spread**2 / 2, rounds * widest) / step) + 1
    s = np.arange(-half, half + 1) * step
    value = np.maximum(0.0, -np.expm1(-s))
    for t in range(rounds):
        sticks = kinks(value, step)
        seen = np.lib.stride_tricks.sliding_window_view(np.pad(sticks, reach), 2 * reach + 1)
        live = np.flatnonzero(seen.sum(1) > 1e-15)
        part = slice(live[0], live[-1] + 1)
        if t & (t - 1) == 0:
            some = slice(live[0], live[-1] + 1, max(1, len(live) // 100))
            chosen = cover(levels, seen[some].astype(np.float32), 0.1 * (value[some] + delta) / rounds)
        value[part] += (seen[part] @ chosen.T).max(1)
        value = np.minimum(1.0, (value + lost * sticks.sum() + 1e-15) * (1 + 1e-9))
    return value, step


def cover(levels, seen, slack):
    """Curves of which one is at least that of every row; few, and close to the best row where ``seen`` looks."""
    table, sixteen, many = levels
    share = 0.015 if len(table) < 50_000 else 0.03
    best = (seen @ table[128::256].T).max(1)
    blocks, width, kept = np.arange(len(many)), 256, []
    for curves in (many, sixteen, table):
        if not len(blocks):
            break
        bound = seen @ curves[blocks].T
        best = np.maximum(best, bound.max(1)) if width == 1 else best
        far = (bound <= (best * (1 + share) + slack)[:, None]).all(0) | (width == 1)
        kept += [(int(block) * width, curves[block]) for block in blocks[far]]
        blocks, width = (blocks[~far][:, None] * 16 + np.arange(16)).ravel(), width // 16
        if width == 16 and len(blocks):
            best = np.maximum(best, (seen @ table[blocks * 16 + 8].T).max(1))
    kept.sort(key=lambda one: one[0])
    merged, stack, limit = [], [np.array([curve for _, curve in kept])], best * (1 + share) + slack
    while stack:
        curves = stack.pop()
        whole = curves.max(0)
        if len(curves) == 1 or (seen @ whole <= limit).all():
            merged.append(whole)
        else:
            stack += [curves[: len(curves) // 2], curves[len(curves) // 2 :]]
    return np.array(merged, dtype=np.float64)


def renyi(law, rounds):
    """log δ at ε − what is left of it: Canonne, Kamath and Steinke 2020, Proposition 12."""
    alpha, values = (np.array([real(one) for one in law[name]]) for name in ("orders", "values"))
    return alpha, rounds * values, rounds * real(law["delta"])


def of_curve(s, alpha, values, delta):
    """δ at ε = −s from a Rényi curve."""
    with np.errstate(over="ignore", invalid="ignore"):
        exponent = (alpha - 1) * (values - np.abs(s)[:, None] + np.log1p(-1 / alpha)) - np.log(alpha)
        near = np.minimum(1.0, np.exp(np.nan_to_num(exponent, nan=np.inf).min(1)))
    return np.minimum(1.0, np.where(s > 0, -np.expm1(-np.abs(s)) + np.exp(-np.abs(s)) * near, near) + delta)


def epsilon(group, delta):
    """ε at δ of so many rounds of each law, interleaved in any way; dominating pairs are convolved."""
    winners, mu, slack, curves = [], 0.0, 0.0, []
    for law, rounds in group:
        if law["kind"] == "vector":
            mu, slack = math.hypot(mu, math.sqrt(rounds) * real(law["mu"])), slack + rounds * real(law["slack"])
        elif law["kind"] == "renyi":
            curves.append(renyi(law, rounds))
        elif rounds and (law["adjacency"], law["classes"]) == ("replace", None) and wide(law):
            both = math.sqrt(2.0) / real(law["scale"])  # the whole counts, a little more for their integers
            mu, slack = math.hypot(mu, math.sqrt(rounds) * both * 1.005), slack + rounds * 2e-5 * both**2
        elif rounds:
            winners.append([played(pairs, law, rounds, delta) for pairs in tables(law)])
    alpha = curves[0][0] if curves else None
    curve = (alpha, sum(one[1] for one in curves), sum(one[2] for one in curves)) if curves else None
    found = by_curve(*curve, mu, slack, delta) if curve and not winners else math.inf
    steps = [step for choice in winners for _, step in choice] or [max(mu, 1e-3) / 40]
    step = min(steps) if winners or mu else found / 4000 if found else 1.0
    parts = [[resampled(value, had, step) for value, had in choice] for choice in winners]
    if mu:
        half = math.ceil((8 * mu + mu * mu / 2 + 2 * slack) / step)
        s = np.arange(-half, half + 1) * step
        parts.append([np.minimum(1.0, np.exp(slack) * gaussian(s + 2 * slack, mu) * (1 + 1e-9) + 1e-15)])
    if curve and parts:
        half = math.ceil(float((curve[1] + 30 / (alpha - 1)).min()) / step)
        parts.append([of_curve(np.arange(-half, half + 1) * step, *curve)])
    if not winners and not curves:
        return closed(mu, slack, delta)
    if not parts:
        return found
    totals = parts[0]
    for choice in parts[1:]:
        totals = [together(one, other, step) for one in totals for other in choice]
    return min(found, max(at(value, step, delta) for value in totals))


def by_curve(alpha, values, lost, mu, slack, delta):
    """ε of a Rényi curve and of Gaussian vectors, which have one as well."""
    if (left := delta - lost) <= 0:
        return math.inf
    added = alpha * mu**2 / 2 + slack * (2 * alpha - 1) / (alpha - 1)
    gain = np.log1p(-1 / alpha) - np.log(alpha * left) / (alpha - 1)
    return max(0.0, float(np.min(values + added + gain)))


def wide(law):
    noise, scale = law["noise"], real(law["scale"])
    return noise == "discrete-gaussian" and scale > WIDEST


def closed(mu, slack, delta):
    """ε of Gaussian vectors, by halving."""
    low, high = 0.0, mu * mu / 2 + 40 * mu
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian(np.array(-middle), mu) <= delta * math.exp(-slack) else (middle, high)
    return high * (1 + 1e-9) + 2 * slack if mu else 0.0


def resampled(value, had, step):
    """V at multiples of a finer step: its chords in r."""
    half = math.floor(len(value) // 2 * had / step)
    r = np.exp(-np.arange(-half, half + 1) * step)
    known = np.exp(-(np.arange(len(value)) - len(value) // 2) * had)
    return np.interp(r, np.append(0.0, known[::-1]), np.append(1.0, value[::-1]))


def together(one, other, step):
    """E[V₂(r·e^{−D})] with D the loss of the pair that dominates V₁."""
    masses, half = kinks(one, step), len(other) // 2
    more = len(one) // 2
    s = np.arange(half + 1, half + 2 * more + 1) * step
    longer = np.concatenate([np.full(2 * more, other[0]), other, 1 - (1 - other[-1]) * np.exp(-(s - half * step))])
    return np.minimum(1.0, (np.convolve(longer, masses, "valid") + one[0]) * (1 + 1e-9))


def at(value, step, delta):
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
        adjacency, apart = json.loads(name)[0], sum(not one["fixed"] for one, *_ in members.values()) == 1
        laws = {purpose: one["laws"].get(unit) for purpose, (one, *_) in members.items()}
        if adjacency not in (near, EITHER) or None in laws.values():
            return math.inf
        vectors = all(law["kind"] == "vector" for law in laws.values())
        grown = [(now, first) for one, _, now, first in members.values() if now > first]
        if not vectors and any(one["fixed"] and now > first for one, _, now, first in members.values()):
            return math.inf
        most = {p: max(used, now) for p, (_, used, now, _) in members.items()}
        if grown and not vectors and not apart:
            for purpose, (one, _, _, first) in members.items():
                raised = [-(-first * now // began) if began else math.inf for now, began in grown]
                most[purpose] = most[purpose] if one["fixed"] else max(most[purpose], *raised)
            if math.inf in most.values():
                return math.inf
        key = (
            name
            if len({json.dumps(law, sort_keys=True) for law in laws.values()}) > 1
            else json.dumps(sorted({json.dumps(law, sort_keys=True) for law in laws.values()}))
        )
        key = "all vectors" if len(laws) == 1 and vectors else key
        for purpose, (one, used, *_) in members.items():
            group, law = groups.setdefault(key, defaultdict(int)), json.dumps(laws[purpose], sort_keys=True)
            group[law] += used if apart and not one["fixed"] else most[purpose]
    share = delta / max(1, len(groups))
    return sum(epsilon([(json.loads(law), n) for law, n in group.items() if n], share) for group in groups.values())


def agreed(witnesses, charges, ledger):
    """Refuse a ledger that charges fewer rounds than the parties signed that they answered."""
    for party, _, _, _, text in witnesses:
        for said in json.loads(text):
            mode, answers, _ = said.pop("mode"), said.pop("answers"), said.pop("classes")
            if said.pop("ledger") != ledger[:32]:
                continue
            told = ("mechanism", "parameters", "stage", "honest_survivors")
            paid = sum(
                n for step, n in charges.items() if step != "null" and all(json.loads(step)[x] == said[x] for x in told)
            )
            least = answers if mode == "masked+noised" and said["mechanism"] != "individual-knn" else 1
            require(paid >= least, f"{party} agreed to {answers} rounds of {said['mechanism']}; the ledger has {paid}")


def main(path, *certificates):
    key = key_of(*certificates) if certificates else None
    lines, heads, witnesses = read_chain(path, key)
    families, charges = taken(lines)
    agreed(witnesses, charges, heads[0].partition(":")[2])
    delta = real(lines[0]["delta"])
    print(f"{len(lines)} entries agree; signed by {lines[0]['public_key'] or 'nobody'}; head {heads[-1]}")
    print(f"followed, as they signed, by {', '.join(party for party, *_ in witnesses) or 'no party'}")
    units = {
        (unit, json.loads(name)[0])
        for name, held in families.items()
        for one, *_ in held.values()
        for unit in one["laws"]
    }
    for unit, near in sorted(units):
        near = near.partition(" ")[0]
        print(f"ε = {of_unit(families, unit, near, delta):.5g} for one {unit} ({near}) at δ = {delta:g}, at most")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Wrong as wrong:
        sys.exit(f"refused: {wrong}")
