"""What nearest neighbours cost: exact ones in one process, beside a plain loop, and federated ones over parties.

``python -m benchmarks.knn --json`` prints one JSON object. In one process: 4,000 queries against 60,000 records of
1,296 features (as of gradient histograms), k = 300, every record in: the k nearest by blocked products of matrices, and
by whole numbers where these leave a question open. The plain loop subtracts the query
from all records and sorts, one query at a time in single precision over 784 pixels, as published code does; it is
run for a few queries. Federated: the sum of a release in the mode ``masked``, with a sampling rate of 0.15 and 64
bins; seconds of all parties and the coordinator in one process, bytes of all messages as on the wire. Times are wall
times, and processor times over all cores, which tell what a busy machine would take if it were idle.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from collegium_reproduction.exact_nearest import closest
from collegium_reproduction.nearest.coordinator import nearest_edges_squared, votes_in
from collegium_reproduction.nearest.knn import PrivateKNN
from collegium_reproduction.nearest.question import CountNearest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from collegium.coordinator.rounds.masked_sum import MaskedSum
from collegium.coordinator.rounds.rounds import OnReply, VoteRound
from collegium.data import Examples, PoolStore
from collegium.data.task import NumberColumn, TableInputs, Task
from collegium.models.features import Features
from collegium.parties.neighbours.search import Search
from collegium.parties.party import Party, unrestricted
from collegium.parties.summing import Membership
from collegium.parties.teachers.splits import simulated_key
from collegium.protocol.messages import Reply, Request
from collegium.protocol.question import PoolRange, QuestionTerms
from collegium.protocol.replies import ReplyBody
from collegium.protocol.requests import RequestBody
from collegium.protocol.secure_sum import plan_graph

K, CLASSES = 300, 10
RECORDS, QUERIES, DIMENSIONS = 60_000, 4_000, 1_296
PLAIN_QUERIES, PLAIN_DIMENSIONS = 5, 784
PARTIES = (5, 50)
FEDERATED_QUERIES, FEDERATED_COLUMNS, RATE, BINS = 200, 32, 0.15, 64


@dataclass(frozen=True)
class Exact:
    """Milliseconds a query in one process; ``peak_bytes`` is what the search adds to its records, at most."""

    device: str
    records: int
    queries: int
    dimensions: int
    ms_per_query: float
    cpu_ms_per_query: float
    plain_ms_per_query: float
    plain_cpu_ms_per_query: float
    peak_bytes: int


@dataclass(frozen=True)
class Federated:
    """Per 1,000 queries of one release, both sums."""

    parties: int
    records: int
    dimensions: int
    queries_measured: int
    seconds: float
    cpu_seconds: float
    bytes: float


class Stopwatch:
    """Wall and processor time since it was made."""

    def __init__(self) -> None:
        self._wall_s, self._cpu_s = time.perf_counter(), time.process_time()

    def ms_each(self, count: int) -> tuple[float, float]:
        """Milliseconds for each of ``count``: wall time, processor time."""
        wall_s, cpu_s = time.perf_counter() - self._wall_s, time.process_time() - self._cpu_s
        return 1000 * wall_s / count, 1000 * cpu_s / count


def exact(records: int, queries: int, dimensions: int, device: str) -> Exact:
    """Time the search and the plain loop; the k-th neighbour of one query is looked up in whole numbers besides."""
    generator = np.random.default_rng(0)
    held = generator.integers(0, 400, (records, dimensions), dtype=np.int16)
    asked = generator.integers(0, 400, (queries, dimensions), dtype=np.int16)
    everyone = np.arange(records)
    search = Search(held, device)
    farthest = np.empty(queries, dtype=np.int64)
    watch = Stopwatch()
    for number, view in enumerate(search.views(asked)):
        farthest[number] = closest(view, everyone, min(K, records))[1].max()
    taken_ms, cpu_ms = watch.ms_each(queries)
    blocks = np.array_split(held, max(1, records // 4096))
    squared = np.concatenate([np.square(block.astype(np.int64) - asked[0]).sum(axis=1) for block in blocks])
    if np.sort(squared)[min(K, records) - 1] != farthest[0]:
        raise AssertionError("the search missed a neighbour")
    at_once = min(128, max(16, 2**23 // records))
    width = 4 if device == "cpu" else 8
    peak = width * (4096 * dimensions + at_once * (records + 4096))
    return Exact(device, records, queries, dimensions, taken_ms, cpu_ms, *_plain(records), peak)


def _plain(records: int) -> tuple[float, float]:
    generator = np.random.default_rng(1)
    held = generator.random((records, PLAIN_DIMENSIONS), dtype=np.float32)
    asked = generator.random((PLAIN_QUERIES, PLAIN_DIMENSIONS), dtype=np.float32)
    watch = Stopwatch()
    for query in asked:
        np.argsort(np.square(held - query).sum(axis=1))[:K]
    return watch.ms_each(PLAIN_QUERIES)


class CountingParties:
    """`Parties` in this process whose messages are written and read as on the wire, and counted."""

    def __init__(self, parties: Sequence[Party]) -> None:
        self._parties = {party.name: party for party in parties}
        self._numbers = itertools.count()
        self.bytes = 0

    def names(self) -> list[str]:
        return sorted(self._parties)

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        replies = {}
        for name, body in requests.items():
            sent = Request(f"request-{next(self._numbers)}", "bench", body).to_bytes()
            answer = self._parties[name].handle(Request.from_bytes(sent)).to_bytes()
            self.bytes += len(sent) + len(answer)
            replies[name] = Reply.from_bytes(answer).body
        return replies


def federated(parties: int, records: int, queries: int) -> Federated:
    """One release among ``parties`` that share the records, after a first round that makes them ready."""
    columns = tuple(NumberColumn(name=f"c{number}", low=0.0, high=1.0) for number in range(FEDERATED_COLUMNS))
    task = Task(classes=tuple(map(str, range(CLASSES))), inputs=TableInputs(columns=columns))
    generator = np.random.default_rng(2)
    width = task.inputs.shape[0]
    x = generator.random((records, width)).astype(np.float32)
    y = generator.integers(0, CLASSES, records)
    pool = generator.random((max(queries + 1, 2000), width)).astype(np.float32)
    store = PoolStore(None)
    spec = store.put(pool)
    names = [f"party-{number:03d}" for number in range(parties)]
    keys = {name: Ed25519PrivateKey.generate() for name in names}
    roster = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    members = [
        Party(
            name,
            Examples(x[number::parties], y[number::parties]),
            task,
            folder=None,
            pools=store,
            device="cpu",
            split_key=simulated_key(0, name),
            membership=Membership("bench", roster, keys[name].sign),
            policy=unrestricted,
        )
        for number, name in enumerate(names)
    ]
    counting = CountingParties(members)
    adding = MaskedSum(counting, "bench", roster, plan_graph(parties))
    values = _raw_features(pool)

    def release(positions: NDArray[np.int64]) -> None:
        edges = nearest_edges_squared(values, positions, K / (RATE * records), BINS)
        mechanism = PrivateKNN(K, CLASSES, 0.6 * K, 75.0, 25.0, RATE)
        terms = QuestionTerms.of(mechanism, "masked", "release")
        asked = PoolRange(spec.sha256, tuple(positions.tolist()))
        question = CountNearest(terms, "ledger", Features("raw"), asked, CLASSES, edges)
        result = adding.sum_votes(VoteRound(question, dict.fromkeys(names, 0), deadline_s=60.0, quorum=parties))
        if not (votes_in(question, result.counts).sum(axis=1) == K).all():
            raise AssertionError("other than k neighbours voted")

    release(np.array([len(pool) - 1]))
    counting.bytes, watch = 0, Stopwatch()
    release(np.arange(queries))
    taken_ms, cpu_ms = watch.ms_each(queries)
    # Milliseconds a query are seconds per 1,000.
    return Federated(parties, records, width, queries, taken_ms, cpu_ms, 1000 * counting.bytes / queries)


def _raw_features(pool: NDArray[np.float32]) -> NDArray[np.int16]:
    return np.floor(pool.astype(np.float64) * 1024 + 0.5).astype(np.int16)


def results(records: int, queries: int, federated_queries: int, device: str) -> dict[str, Any]:
    """Everything, as plain values."""
    return {
        "machine": {"cores": os.cpu_count(), "processor": platform.machine(), "numpy": np.__version__},
        "exact": asdict(exact(records, queries, DIMENSIONS, device)),
        "federated_per_1000_queries": [asdict(federated(count, records, federated_queries)) for count in PARTIES],
    }


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--federated-queries", type=int, default=FEDERATED_QUERIES)
    parser.add_argument("--device", default=None, help="cpu or cuda; cuda where there is one")
    parser.add_argument("--out", type=Path, default=None, help="also write the JSON here")
    chosen = parser.parse_args()
    device = chosen.device or _device()
    found = results(chosen.records, chosen.queries, chosen.federated_queries, device)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if chosen.json:
        print(json.dumps(found, indent=1))
        return
    one = found["exact"]
    for name in ("", "plain_"):
        wall_ms, cpu_ms = one[f"{name}ms_per_query"], one[f"{name}cpu_ms_per_query"]
        print(f"{name or 'exact_'}: {wall_ms:.2f} ms a query, {cpu_ms:.2f} ms of processor time".replace("_:", ":"))
    for row in found["federated_per_1000_queries"]:
        told = f"{row['seconds']:.1f} s, {row['cpu_seconds']:.1f} s of processor time, {row['bytes'] / 1e6:.1f} MB"
        print(f"{row['parties']} parties: {told} per 1,000 queries")


if __name__ == "__main__":
    main()
