"""A stranger's check of a Collegium ledger: what is signed, and an ε by other means. It shares no code with Collegium.

Run `python verify_ledger.py LEDGER [CERTIFICATE AUTHORITY]`, say of ledger.sqlite, coordinator/certificate.pem and
coordinator/authority.pem; docs/decisions/ledger.md has the format. A round that releases a winner is a game, played
backwards: V(r) = (1 − r)₊ after the last, and each adds the largest Σⱼ dⱼ·G(r/rⱼ) of all positions, where V's chords
are Σⱼ dⱼ·(1 − r/rⱼ)₊ and G(k) = Σᵢ (Pᵢ − k·Qᵢ)₊ − (1 − k)₊ (docs/research/exact-accountant.md, section 5). V is convex
in r, so below its chords on a coarse grid of s = −log r; LOST is more than lies beyond the reach of sums and losses.
"""

import json
import math
import sqlite3
import sys
from collections import Counter
from contextlib import suppress
from hashlib import sha256

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from scipy.special import expit, log_ndtr, ndtr

SIGNING_KEY = x509.ObjectIdentifier("2.25.226015053978625745633806602240951590548")
REACH, LOST = 7.5, 2e-11  # deviations of a loss that are followed: as noise is ρ-zCDP, e^{−REACH²/2} = 6e-13 is beyond
MOVED = dict.fromkeys(("gnmax", "lnmax", "exponential", "confident-gnmax", "interactive-gnmax", "knn"), math.sqrt(2.0))
MOVED |= {"record-counts": math.sqrt(2.0), "class-sums": 2.0, "individual-knn": 1.0}  # in L2, if one replaces another
real, read_key, view = float.fromhex, Ed25519PublicKey.from_public_bytes, np.lib.stride_tricks.sliding_window_view


def require(holds, why, *arguments):
    with suppress(Exception):
        if holds(*arguments) is None if arguments else holds:
            return
    sys.exit(f"refused: {why}")


def read_chain(path, key=None):  # lines, heads and witnesses; every hash and signature is checked
    database, lines, heads, before = sqlite3.connect(f"file:{path}?mode=ro", uri=True), [], [], bytes(32)
    for seq, body, digest, signature in database.execute("SELECT seq, body, hash, signature FROM entries ORDER BY seq"):
        before = sha256(b"collegium ledger entry v1\0" + before + seq.to_bytes(8) + sha256(body).digest()).digest()
        require(seq == len(lines) and digest == before, f"entry {len(lines)}: it or one before was changed or removed")
        lines.append(json.loads(body))
        owner, said = bytes.fromhex(lines[0]["public_key"]), b"collegium ledger signature v1\0" + digest
        require(key in (None, owner), "entry 0: another key than the certificate's signs this ledger")
        owner and require(read_key(owner).verify, f"entry {seq}: not the owner's signature", signature, said)
        heads.append(f"{seq}:{digest.hex()}")
    witnesses = database.execute("SELECT party, key, head, signature, agreed FROM witnesses ORDER BY party").fetchall()
    for party, public, head, signature, agreed in witnesses:
        said = b"collegium ledger followed v2\0" + head.encode() + b"\0" + agreed.encode()
        require(read_key(public).verify, f"{party}: its signature is false", signature, said)
        require(head in heads, f"{party}: it followed another ledger")
    return lines, heads, witnesses


def taken(lines, witnesses, ledger):  # blocks that count together: {purpose: [block, used, rounds stated last, first]}
    terms, families, charges, due, own = None, {}, Counter(), Counter(), ledger[:32]
    for seq, line in enumerate(lines):
        if line["kind"] == "terms":
            terms = line
            for purpose, one in terms["blocks"].items():
                one["laws"] = {unit: checked(one, unit, terms, f"entry {seq}: {purpose!r}") for unit in one["laws"]}
        elif line["kind"] == "charge":
            purpose, block = line["purpose"], terms["blocks"][line["purpose"]]
            charges[json.dumps(block["step"])] += line["queries"]
            fixed = {name: one for name, one in terms["blocks"].items() if one["laws"] and one["rounds"] is not None}
            members = {purpose: block} if block["laws"] and block["rounds"] is None else fixed
            near = (terms["adjacency"], *["add-remove"] * terms["fixed_voters"])
            family = near, json.dumps({name: [m["laws"], m["fixed"]] for name, m in members.items()}, sort_keys=True)
            held = families.setdefault(family, {name: [m, 0, 0, m["rounds"] or 0] for name, m in members.items()})
            for name, one in members.items():
                held[name][1] += line["queries"] * (name == purpose)
                held[name][2] = max(held[name][2], one["rounds"] or 0)
            paid = block["laws"] or (held and all(0 < one["rounds"] <= held[name][1] for name, one in fixed.items()))
            require(line["queries"] > 0 and paid, f"entry {seq}: it charges nothing, and no run is paid for")
    for party, said in ((party, one) for party, *_, text in witnesses for one in json.loads(text)):
        told = {name: said[name] for name in ("mechanism", "parameters", "stage")}  # of however many honest parties
        paid = sum(n for step, n in charges.items() if told.items() <= (json.loads(step) or {}).items())
        each = said["mode"] == "masked+noised" and said["mechanism"] != "individual-knn"
        due[key := str((party, told, each or said))] += (said["answers"] if each else 1) * (said["ledger"] == own)
        require(paid >= due[key], f"{party} agreed to {due[key]} rounds of {said['mechanism']}; the ledger has {paid}")
    return families


def checked(block, unit, terms, where):  # a unit's law, unless more is forced; for a Rényi curve what its noise shows
    law, step = block["laws"][unit], block["step"]
    require(step and step["mechanism"] in MOVED, f"{where} names no mechanism that is known here")
    name, p, (votes, near), share = step["mechanism"], step["parameters"], step["units"][unit], step["honest_survivors"]
    moved = votes * (MOVED[name] if near == "replace" else 1.0) * math.sqrt(p.get("parts", 1))
    scale, rate = p.get("sigma") or p.get("sigma2") or 1.0 / p["gamma"], p.get("sampling_rate", 1.0)
    noise, mu = {"lnmax": "laplace", "exponential": "gumbel"}.get(name, "gaussian"), moved / scale
    if "sigma1" in p:
        tested, first = (moved if share else votes) / p["sigma1"], step["stage"] in ("threshold", "agreement")
        mu = tested if first else mu if step["stage"] else math.hypot(tested, mu)
        scale, near = (p["sigma1"], "add-remove") if first else (scale, near)
    holds = votes >= terms["votes_per_unit"].get(unit, 1) or name in ("class-sums", "record-counts", "individual-knn")
    if law["kind"] == "vector":
        holds = holds and real(law["mu"]) >= mu * (1 - 1e-9) and real(law["slack"]) >= 0.0
    elif law["kind"] == "winner":
        same = law["noise"].removeprefix("discrete-") == noise and law["adjacency"] in (near, "replace")
        same = same and 0.0 < real(law["scale"]) <= scale * (1 + 1e-9) and real(law["sampling_rate"]) >= rate
        holds = holds and same and law["classes"] in (None, step["classes"]) and votes == 1 and not share
    else:
        alpha, values = (np.array([real(one) for one in law[part]]) for part in ("orders", "values"))
        pure = mu * math.sqrt(2.0 if near == "replace" else 1.0)
        least = alpha * mu**2 / 2 if noise == "gaussian" else np.minimum(pure / 2, alpha * pure**2 / 8)
        holds = holds and (rate < 1.0 or (values >= least * (1 - 1e-9)).all())
        if noise == "gaussian" and (share or not step["stage"]):  # all numbers as one, if noise is not finer
            holds, scale, near = holds and votes / mu > 2.0 * max(1, share) ** 0.5, votes / mu, "add-remove"
        law = {"kind": "counts", "noise": noise, "scale": scale.hex(), "adjacency": near, "votes": votes}
    require(holds, f"{where} states less than {name} costs one {unit}")
    return law


def line(below, moved, gap=0):
    """P and Q of two outcomes, F(x) and F(x − moved) the first one's, that tell as much as any x in gap steps, or more:
    F is log-concave, so that P₁/Q₁ is largest at the first x and P₂/Q₂ smallest at the last (Blackwell)."""
    rise, fall = (one[moved:] / np.maximum(one[:-moved], 1e-300) for one in (below, below[::-1]))
    rise, fall = rise[: len(rise) - gap], fall[gap:]
    q = np.stack([1 - fall, rise - 1, 0 * rise], -1) / (rise - fall)[:, None]
    return q * np.stack([rise, fall, rise], -1), q


def plane(f, x, y):
    """P and Q of outcomes a, b, rest a at x and b at y votes above the largest other count; a vote goes to b. Noise
    of variance r² + σ² around x is a mixture of noise of σ² around multiples z of w, weights e^{−(z − x)²/2r²} in both
    laws, but for a part 8·e^{−2π²r²σ²/(r² + σ²)w²} < LOST (Poisson); a mixture costs at most its dearest part."""
    f, below, laws = np.pad(f, 1), np.cumsum(np.pad(f, 1)), []
    u = np.arange(1, max(x.max(), y.max()) + len(f) // 2 + 2)[:, None]
    at = lambda law, n: law[np.clip(n + len(f) // 2, 0, len(f) - 1)]  # noqa: E731 -- a value of one of two tables
    for s, t, tie in ((x, y, 0), (x, y, 1), (x - 1, y + 1, 0), (x - 1, y + 1, 1)):  # b or a wins a tie between them
        a, b = at(f, u - s).T @ at(below, u - t - 1 + tie), (at(f, u - t).T @ at(below, u - s - tie)).T
        laws.append(np.stack([a, b, np.outer(at(below, -s), at(below, -t))], -1).reshape(-1, 3))
    return np.concatenate(laws[:2]), np.concatenate(laws[2:])


def rivals(f, scale, k):
    """G, a row for each difference d of two counts between which a vote goes; Laplace noise. It is a mean over M, the
    largest other count: a time of law e^{−e^{−fall·t}} tells M, each in a unit at most (Lemma 8; both rules of ties);
    so M is among n values no oftener than t is in its likeliest n units, the largest gains first (Lemmas 10 and 11)."""
    half, below, rows, z = len(f) // 2, np.append(np.cumsum(f), 1.0), [], np.arange(len(f)) - len(f) // 2
    at = lambda n: below[np.clip(n + half, 0, len(f))]  # noqa: E731
    won = lambda d: np.append(np.cumsum((f * at(z + d))[::-1])[::-1], [0.0, 0.0])  # noqa: E731 -- Z₁ ≥ z, Z₁ + d ≥ Z₂
    n = -np.diff(np.log(-np.log(at(np.arange(-1, 2))))).min() * np.arange(1, len(f) + 1)
    likeliest = np.diff(np.exp(-n / np.expm1(n)) - np.exp(n / np.expm1(-n)), prepend=0.0)
    for d in range(-math.ceil(27 * scale) - 3, math.ceil(27 * scale) + 5):
        rest = np.maximum(*(at(z) * at(z + e) - k * at(z + 1) * at(z + e - 1) for e in (d, d + 1))).clip(0.0)
        gain = rest + np.maximum(won(d)[1:-1] - k * won(d - 2)[2:], 0.0)  # a is −z votes above M: at first without it
        rows.append(gain[:, 0] - np.sort(np.minimum(gain[:, :1] - gain, 0.0)) @ likeliest)
    return np.concatenate([np.array(rows[::-1])[:, :0:-1] / k[:0:-1, 0], rows], 1)  # 1 − d and 1/k, if exchanged


def tables(law):  # P and Q of a round at all positions, how often it counts, how far losses go and what they vary by
    noise, scale, votes = law["noise"].removeprefix("discrete-"), real(law["scale"]), law.get("votes", 1)
    moved, rate = 2 if law["adjacency"] == "replace" else 1, real(law.get("sampling_rate", "1"))
    gaussian, plural, times = noise == "gaussian", moved == 2 and law.get("classes") != 2, 1
    w = int(scale / 8) if gaussian and plural and scale >= 16 else 1
    narrow = math.sqrt((1 + math.sqrt(1 - 6.08 * (w / scale) ** 2)) / 2) if w > 1 else 1.0
    n = np.arange(-math.ceil((9.5 if gaussian else 56.0) * scale) - 4, 1) / scale
    f = np.exp(-((n / narrow) ** 2) / 2 if gaussian else n)  # r²σ²/(r² + σ²)w² = 1.52 with σ = narrow·scale
    f = np.append(f, f[-2::-1]) / (2 * f.sum() - f[-1])
    if noise == "gumbel":  # real positions, in steps of 1/200 of a scale or less
        moved, gap = moved * votes, math.ceil(200 * moved * votes / scale)
        pairs = [line(expit(np.arange(-30.0, 30.0, moved / gap / scale)), gap, 1)]
    elif law["kind"] == "counts":  # each of them alone
        times, moved = moved, votes**2 if gaussian else votes
        pairs = [(np.pad(f, (0, votes))[None], np.pad(f, (votes, 0))[None])]
    else:
        pairs = [line(np.cumsum(np.pad(np.convolve(f, f) if moved == 2 or law["classes"] == 2 else f, (1, 0))), moved)]
        if plural:
            x = np.arange(-math.ceil(7 * scale / w), math.ceil(7 * scale / w) + 1) * w
            pairs += [line(np.cumsum(np.pad(f, (1, 0))), 1), plane(f, x, x)] if gaussian else []
    p, q = (np.concatenate(part) for part in zip(*pairs, strict=True))
    p = rate * p + (1 - rate) * q
    spread = float((2 * (p - q) ** 2 / np.maximum(p + q, 1e-300)).sum(1).max()) ** 0.5
    widest = (REACH + moved**0.5 / scale) * moved**0.5 / scale if gaussian else moved / scale
    named = (f, scale) if plural and noise == "laplace" and law["kind"] == "winner" else ()
    return [(p, q), (q, p)][: 1 + (rate < 1.0)], times, named, widest, spread


def kinks(value, step):  # V's chords in r as hockey sticks (1 − r/rⱼ)₊; V = 1 at r = 0
    rise = np.diff(value) / -np.expm1(-step)
    return np.maximum(np.append(rise, 1 - value[-1]) - np.insert(rise, 0, 0.0) * np.exp(-step) - 1e-30, 0.0)


def played(pair, rounds, named, widest, spread, step):  # V after so many rounds at s = (i − half)·step, from above
    reach, half = (math.ceil(one / step) + 1 for one in (widest, 7.5 * spread * rounds**0.5 + rounds * spread**2 / 2))
    k, both = np.exp(np.arange(-reach, reach + 1) * step), zip(*(one.T[:, :, None] for one in pair), strict=True)
    table = sum(np.maximum(np.where(k < 1, k * b - a, a - k * b), 0.0).astype(np.float32) for a, b in both)
    if named:
        table = rivals(*named, k[reach:, None])
    value, blocks = np.maximum(0.0, -np.expm1(np.arange(half, -half - 1, -1) * step)), len(table) // 1024 + 1
    for _ in range(rounds):
        seen = view(np.pad(kinks(value, step), reach).astype(np.float32), 2 * reach + 1).T
        gain = np.max([(some @ seen).max(0) for some in np.array_split(table, blocks)], axis=0)
        value = np.minimum(1.0, (value + gain * (1 + 1e-4) + LOST) * (1 + 1e-9))
    return value


def epsilon(group, delta):  # ε at δ of rounds of each law in any order; Laplace noise's largest loss is on the grid
    group = [(json.loads(law), n) for law, n in group.items() if n]
    vectors = [(real(law["mu"]), real(law["slack"]), n) for law, n in group if law["kind"] == "vector"]
    mu, slack = math.sqrt(sum(n * m * m for m, _, n in vectors) + 1e-18), sum(n * t for _, t, n in vectors)
    games = [(*tables(law), n) for law, n in group if law["kind"] != "vector"]
    far = 9 * mu + mu * mu / 2 + 2 * slack
    step = min((w / math.ceil(w / s * max(3.5, 16 * n**-0.3)) for *_, w, s, n in games), default=far / 5000)
    t = np.arange(-math.ceil(far / step) - 1, math.ceil(far / step) + 2) * step + 2 * slack
    closed = ndtr(t / mu + mu / 2) - np.exp(np.minimum(log_ndtr(t / mu - mu / 2) - t, 700.0))  # Balle and Wang, Thm 8
    parts = [np.minimum(1.0, np.exp(slack) * closed * (1 + 1e-9) + 1e-15)]
    for pairs, times, *rest, n in games:
        parts.append(np.max([played(pair, n * times, *rest, step) for pair in pairs], axis=0))
    value = np.maximum(0.0, -np.expm1(np.arange(half := sum(map(len, parts)), -half - 1, -1) * step))
    for part in parts:  # E[V(r·e^{−D})] with D the loss of the pair that dominates this part
        value = (np.convolve(value, kinks(part, step), "valid") + part[0]) * (1 + 1e-9)
    r = np.exp((len(value) // 2 - np.arange(len(value))) * step)
    return max(0.0, math.log(np.interp(delta, value, r))) if value[0] <= delta else math.inf


def of_unit(families, unit, near, delta):  # ε of all for one unit; groups fixed apart add up, each at its share of δ
    sums = {}
    for name, members in families.items():
        laws = {purpose: json.dumps(block["laws"].get(unit)) for purpose, (block, *_) in members.items()}
        free = [purpose for purpose, (one, *_) in members.items() if not one["fixed"]]
        vectors = all('"vector"' in law for law in laws.values())
        # Answers may have decided which of several numbers was raised, so that all count as raised by the same factor.
        raised = [(n, last) for one, _, last, n in members.values() if last > n and (one["fixed"] or len(free) > 1)]
        path = max((last / n if n else math.inf for n, last in raised if not vectors), default=1.0)
        if near not in name[0] or "null" in laws.values() or path == math.inf:
            return math.inf
        key = "vectors" if vectors else name if len(set(laws.values())) > 1 else next(iter(laws.values()))
        for purpose, (_, used, last, first) in members.items():
            most = max(used, last, math.ceil(first * path * (1 - 1e-12)))
            sums.setdefault(key, Counter())[laws[purpose]] += used if free == [purpose] and path == 1.0 else most
    return sum(epsilon(group, delta / len(sums)) for group in sums.values())


def main(path, *certificates, key=None):
    if certificates:
        own, issuer = (x509.load_pem_x509_certificate(np.fromfile(one, np.uint8).tobytes()) for one in certificates)
        require(own.verify_directly_issued_by, "the certificate is not the authority's", issuer)
        key = own.extensions.get_extension_for_oid(SIGNING_KEY).value.value[1:33]
    lines, heads, witnesses = read_chain(path, key)
    found, delta = taken(lines, witnesses, heads[0].partition(":")[2]), real(lines[0]["delta"])
    print(f"{len(lines)} entries agree; signed by {lines[0]['public_key'] or 'nobody'}; head {heads[-1]}")
    print(f"followed, as they signed, by {', '.join(party for party, *_ in witnesses) or 'no party'}")
    for unit, near in sorted({(u, n[0]) for (n, _), m in found.items() for b, *_ in m.values() for u in b["laws"]}):
        print(f"ε = {of_unit(found, unit, near, delta):.5g} for one {unit} ({near}) at δ = {delta:g}, at most")


if __name__ == "__main__":
    require(main, "a ledger or a certificate cannot be read", *(sys.argv[1:] or [""]))
