"""What a secure sum costs: CPU seconds and bytes at a party and at the coordinator, beside Flower's SecAgg+.

``python -m benchmarks.secure_sum --json`` prints one JSON object; ``--plot FILE`` draws how the cost
grows. Both sides run in one process, messages are serialised and parsed as on the wire, and time is
the process's CPU time. Drop-outs fall silent after they have shared their keys, which is the most
expensive moment for the coordinator.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.local_sums import local_round
from collegium.protocol.codec import parse
from collegium.protocol.secure_sum import GraphPlan, Phase, keys, plan_graph
from collegium.protocol.v1 import secure_sum_pb2 as pb

QUERIES, CLASSES = 1000, 10
PARTIES = (10, 50, 250, 1000)
DROPOUTS = (0.0, 0.1)
LENGTHS = (10, 100, 1000, 10_000, 100_000, 1_000_000)
PARTIES_OF_LENGTHS = 50

FLOWER_PARTIES, FLOWER_NEIGHBOURS, FLOWER_THRESHOLD, FLOWER_LENGTH = 250, 51, 34, 10


@dataclass(frozen=True)
class Cost:
    """One measured round; the party's figures are means over those who answered every phase."""

    parties: int
    dropped: int
    length: int
    neighbours: int
    threshold: int
    party_cpu_s: float
    party_bytes_sent: float
    party_bytes_received: float
    coordinator_cpu_s: float
    coordinator_bytes_sent: int
    coordinator_bytes_received: int


def measure(parties: int, dropout: float, length: int, plan: GraphPlan | None = None) -> Cost:
    """Run one round and check its total."""
    plan = plan or plan_graph(parties, quorum=0.8)
    vectors = np.random.default_rng(parties).integers(0, 2, (parties, length))
    made = local_round(vectors, 0, 1, plan=plan)
    silent = set(list(made.setup.names)[:: max(1, round(1 / dropout))][: round(dropout * parties)] if dropout else [])
    coordinator = made.coordinator
    party_cpu, coordinator_cpu, sent, received = 0.0, 0.0, 0, 0
    party_sent, party_received = 0, 0
    while coordinator.phase is not Phase.DONE:
        start = time.process_time()
        requests = {name: request.SerializeToString() for name, request in coordinator.requests().items()}
        coordinator_cpu += time.process_time() - start
        sent += sum(map(len, requests.values()))
        for name, wire in requests.items():
            if name in silent and coordinator.phase >= Phase.MASK:
                continue
            start = time.process_time()
            answer = made.parties[name].handle(parse(pb.SecureSumRequest, wire)).SerializeToString()
            middle = time.process_time()
            coordinator.accept(name, parse(pb.SecureSumReply, answer))
            coordinator_cpu += time.process_time() - middle
            received += len(answer)
            if name not in silent:
                party_cpu += middle - start
                party_sent += len(answer)
                party_received += len(wire)
        start = time.process_time()
        coordinator.close_phase()
        coordinator_cpu += time.process_time() - start
    left = [i for i, name in enumerate(made.setup.names) if name not in silent]
    if not np.array_equal(coordinator.result.total, vectors[left].sum(axis=0)):
        raise AssertionError("the total is not the survivors' sum")
    return Cost(
        parties,
        len(silent),
        length,
        plan.neighbours,
        plan.threshold,
        party_cpu / len(left),
        party_sent / len(left),
        party_received / len(left),
        coordinator_cpu,
        sent,
        received,
    )


def wire_bytes(parties: int, dropout: float, length: int) -> float:
    """Bytes that the coordinator sends and receives; signatures and keys are stand-ins, as long as the real ones.

    The lengths of messages follow from the graph alone, so that 10,000 parties take two minutes.
    """

    def short_key(secret: bytes, purpose: bytes, transcript: bytes, *indices: int) -> bytes:
        return hashlib.sha256(secret + purpose + repr(indices).encode()).digest()

    with ExitStack() as stack:
        for name, stand_in in (
            ("verify", lambda *_: None),
            ("agree", lambda private, public: bytes(32)),
            ("derive_key", short_key),
            ("seal", lambda key, plaintext: plaintext + bytes(16)),
            ("open_sealed", lambda key, ciphertext, sender: ciphertext[:-16]),
        ):
            stack.enter_context(patch.object(keys, name, stand_in))
        cost = measure(parties, dropout, length)
    return float(cost.coordinator_bytes_sent + cost.coordinator_bytes_received)


def complete_graph(parties: int) -> GraphPlan:
    """Everyone holds shares of everyone, as in Bonawitz et al. 2017."""
    plan = plan_graph(parties)
    return replace(
        plan, neighbours=parties - 1, threshold=plan.quorum - 1, secrecy_failure=0.0, liveness_failure=0.0, isolated=0
    )


def measure_flower(sample: int, dropout: float = 0.1, length: int = FLOWER_LENGTH) -> dict[str, Any]:
    """CPU of Flower's own SecAgg+ primitives in its unmask stage, from ``sample`` owners, scaled to all 250.

    A survivor costs one reconstruction and one mask, a drop-out one reconstruction, and a key agreement and
    a mask for each neighbour; every share that arrives goes into a reconstruction, as in flwr's workflow.
    """
    from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
    from flwr.supercore.primitives.asymmetric import (
        bytes_to_private_key,
        bytes_to_public_key,
        generate_key_pairs,
        private_key_to_bytes,
        public_key_to_bytes,
    )

    dropped = round(dropout * FLOWER_PARTIES)
    answering = round((1 - dropout) * (FLOWER_NEIGHBOURS - 1))
    public_keys = [public_key_to_bytes(generate_key_pairs()[1]) for _ in range(FLOWER_NEIGHBOURS - 1)]
    total = np.zeros(length, dtype=np.int64)
    sharing, survivor, drop_out = 0.0, 0.0, 0.0
    sampled_drop_outs = max(1, round(dropout * sample))
    for owner in range(sample):
        lost = owner < sampled_drop_outs
        private, _ = generate_key_pairs()
        secrets = (os.urandom(32), private_key_to_bytes(private))
        start = time.process_time()
        shares = [create_shares(secret, FLOWER_THRESHOLD, FLOWER_NEIGHBOURS) for secret in secrets]
        sharing += time.process_time() - start
        start = time.process_time()
        secret = combine_shares(shares[int(lost)][:answering])
        if lost:
            for public in public_keys:
                key = generate_shared_key(bytes_to_private_key(secret), bytes_to_public_key(public))
                total = total + pseudo_rand_gen(key, 1 << 32, [(length,)])[0]
            drop_out += time.process_time() - start
        else:
            total = total - pseudo_rand_gen(secret, 1 << 32, [(length,)])[0]
            survivor += time.process_time() - start
    coordinator = survivor / (sample - sampled_drop_outs) * (FLOWER_PARTIES - dropped)
    coordinator += drop_out / sampled_drop_outs * dropped
    return {
        "parties": FLOWER_PARTIES,
        "dropped": dropped,
        "length": length,
        "neighbours": FLOWER_NEIGHBOURS,
        "threshold": FLOWER_THRESHOLD,
        "owners_measured": sample,
        "coordinator_cpu_s": coordinator,
        "party_sharing_cpu_s": sharing / sample,
    }


def targets(costs: list[Cost], flower: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Each promise of docs/protocol.md beside what was measured."""
    checks: dict[str, dict[str, Any]] = {}
    limits = {250: (1.0, 0.060), 1000: (5.0, 0.100)}
    for cost in costs:
        if cost.parties in limits and cost.dropped and cost.length == QUERIES * CLASSES:
            for what, value, limit in (
                ("coordinator_cpu_s", cost.coordinator_cpu_s, limits[cost.parties][0]),
                ("party_cpu_s", cost.party_cpu_s, limits[cost.parties][1]),
            ):
                checks[f"{what}_at_{cost.parties}"] = {"value": value, "limit": limit, "met": value < limit}
            if flower is not None and cost.parties == flower["parties"]:
                ratio = flower["coordinator_cpu_s"] / cost.coordinator_cpu_s
                checks["times_cheaper_than_flower"] = {"value": ratio, "limit": 50.0, "met": ratio >= 50.0}
    return checks


def plot(costs: list[Cost], lengths: list[Cost], path: Path) -> None:
    """Growth in the number of parties and in the vector's length, one panel each."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "collegium"
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
    for dropout, style in ((False, "--"), (True, "-")):
        chosen = [cost for cost in costs if bool(cost.dropped) == dropout]
        label = "10 % drop-outs" if dropout else "no drop-outs"
        x = [cost.parties for cost in chosen]
        panels[0].plot(x, [c.coordinator_cpu_s for c in chosen], f"{style}o", color="C0", label=f"coordinator, {label}")
        panels[0].plot(x, [c.party_cpu_s for c in chosen], f"{style}s", color="C1", label=f"a party, {label}")
    x = [cost.length for cost in lengths]
    panels[1].plot(x, [c.coordinator_cpu_s for c in lengths], "-o", color="C0", label="coordinator, 10 % drop-outs")
    panels[1].plot(x, [c.party_cpu_s for c in lengths], "-s", color="C1", label="a party, 10 % drop-outs")
    panels[0].set(xlabel="parties", title=f"{QUERIES * CLASSES:,} counts")
    panels[1].set(xlabel="counts in the vector", title=f"{PARTIES_OF_LENGTHS} parties")
    for panel in panels:
        panel.set(xscale="log", yscale="log", ylabel="CPU seconds per round")
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.secure_sum", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--parties", type=int, nargs="+", default=list(PARTIES), help="roster sizes to measure")
    parser.add_argument("--length", type=int, default=QUERIES * CLASSES, help="counts in the vector")
    parser.add_argument("--full-graph", action="store_true", help="also measure 250 parties on the complete graph")
    parser.add_argument("--flower-sample", type=int, default=30, help="owners measured for Flower's baseline; 0: none")
    parser.add_argument("--plot", type=Path, help="draw growth in parties and in vector length to this SVG file")
    chosen = parser.parse_args()
    if min(chosen.parties) < 3 or chosen.length < 1 or 0 < chosen.flower_sample < 2:
        parser.error("a sum needs 3 parties and 1 count, Flower's baseline at least 2 owners")
    measure(10, 0.1, 100)  # the first round pays for imports and caches
    costs = [measure(parties, dropout, chosen.length) for parties in chosen.parties for dropout in DROPOUTS]
    flower = measure_flower(chosen.flower_sample) if chosen.flower_sample else None
    result: dict[str, Any] = {
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()},
        "rounds": [asdict(cost) for cost in costs],
        "flower_secagg_plus": flower,
        "targets": targets(costs, flower),
    }
    if chosen.full_graph:
        result["complete_graph"] = asdict(measure(250, 0.1, QUERIES * CLASSES, complete_graph(250)))
    if chosen.plot:
        lengths = [measure(PARTIES_OF_LENGTHS, 0.1, length) for length in LENGTHS]
        result["lengths"] = [asdict(cost) for cost in lengths]
        plot(costs, lengths, chosen.plot)
    if chosen.json:
        print(json.dumps(result, indent=2))
        return
    print("parties  dropped  k    party CPU   party sends  receives   coordinator CPU")
    for cost in costs:
        print(
            f"{cost.parties:7d}  {cost.dropped:7d}  {cost.neighbours:3d}  {cost.party_cpu_s * 1e3:6.1f} ms  "
            f"{cost.party_bytes_sent / 1e3:8.1f} kB  {cost.party_bytes_received / 1e3:5.1f} kB  "
            f"{cost.coordinator_cpu_s:10.3f} s"
        )
    for name, check in result["targets"].items():
        verdict = "met" if check["met"] else "MISSED"
        print(f"{name}: {check['value']:.3g} against {check['limit']:g}: {verdict}")


if __name__ == "__main__":
    main()
