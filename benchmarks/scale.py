"""Cost against size, ten times at a time: ``python -m benchmarks.scale`` prints a table of fitted exponents.

Each axis grows one size: parties, records, classes, pool, queries, ledger entries. The cost is CPU seconds of one
process and bytes, and its exponent is the slope of log cost over log size by least squares over the upper half of
the sizes. Beside it stand what a user would take instead, in the same run, and the share of the machine's own rate of
matrix products where products are what must be done. Every size is measured on made-up data. ``--large`` adds the
sizes that take minutes each and gigabytes of memory. ``--keep`` measures some axes again and draws them beside the
others, as the file of ``--json`` has these; ``--axes ""`` measures nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from benchmarks import knn, load, secure_sum
from benchmarks.ledger_entries import filled_ledger, opened
from collegium.coordinator.cli import ledger_cli
from collegium.coordinator.selection.pool_geometry import public_radii_squared
from collegium.coordinator.selection.queries import representatives
from collegium.data import Examples, PoolStore
from collegium.data.task import NumberColumn, TableInputs, Task
from collegium.models.features import Features
from collegium.models.kernels import KernelMap, KernelSpec
from collegium.parties.kinds.class_sums import RecordsOfClasses
from collegium.parties.neighbours.search import Search
from collegium.privacy.ledger.ledger import Ledger
from collegium_accounting.game import laws
from collegium_accounting.game.profile import Profile
from collegium_accounting.game.recursion import play
from collegium_accounting.game.winner import RoundLaw
from collegium_accounting.mechanisms.gnmax import GNMax
from collegium_accounting.noise.sources import SeededNoise

COLUMNS = 64
LANDMARKS = 1000
QUERIES = 256
VOTERS = 250


@dataclass(frozen=True)
class Cost:
    """What one size of one axis costs.

    Parameters
    ----------
    axis, what : what grows, and which work is measured.
    size : the number that grows.
    cpu_s : CPU seconds of this process.
    bound : the largest exponent that is allowed, of CPU and of bytes.
    bytes : on the wire, where anything crosses, and of connecting and of counts the coordinator's memory;
        ``least_bytes`` is the information that must cross.
    rate_share : share of the machine's own rate of matrix products.
    beside, beside_s : what a user would take instead, and its CPU seconds.
    """

    axis: str
    what: str
    size: int
    cpu_s: float
    bound: float = 1.0
    bytes: float | None = None
    least_bytes: float | None = None
    rate_share: float | None = None
    beside: str | None = None
    beside_s: float | None = None


def cpu(work: Callable[[], Any]) -> float:
    """The least CPU seconds of this process for ``work``, of several times where it is short."""
    taken: list[float] = []
    while sum(taken) < 0.3 and len(taken) < 20:
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


def once(work: Callable[[], Any]) -> float:
    """CPU seconds of this process for ``work`` that can be done a single time."""
    start = time.process_time()
    work()
    return time.process_time() - start


def product_rate(dtype: type[np.floating[Any]] = np.float32) -> float:
    """Multiplications and additions of a large matrix product, per CPU second."""
    one = np.ones((1536, 1536), dtype=dtype)
    one @ one
    return float(2 * 1536**3 / cpu(lambda: one @ one))


def parties(sizes: Sequence[int]) -> Iterator[Cost]:
    """A masked sum of 1,000 counts, 10 % of the parties silent, both sides in this process."""
    length = 1000
    flower = secure_sum.measure_flower(4)
    for size in sizes:
        cost = secure_sum.measure(size, 0.1, length)
        # Flower's coordinator does the same for each owner: its seconds scale with their number.
        beside_s = flower["coordinator_cpu_s"] * size / flower["parties"]
        least = cost.parties * length * 2
        total = cost.coordinator_bytes_sent + cost.coordinator_bytes_received
        # The neighbours of a party, which are costs too, still grow with the parties where these are few.
        name = "masked sum, coordinator"
        yield Cost("parties", name, size, cost.coordinator_cpu_s, 1.6, total, least, None, "Flower SecAgg+", beside_s)
        edges = size * cost.neighbours
        yield Cost("edges", "masked sum, coordinator", edges, cost.coordinator_cpu_s, bytes=total)
        one = cost.party_bytes_sent + cost.party_bytes_received
        yield Cost("parties", "masked sum, one party", size, cost.party_cpu_s, 1.0, one, length * 2)


def wire(sizes: Sequence[int]) -> Iterator[Cost]:
    """The bytes of a masked sum of 1,000 counts, and the CPU of both sides without signatures and keys."""
    for size in sizes:
        start = time.process_time()
        sent = secure_sum.wire_bytes(size, 0.1, 1000)
        # For each of about log n neighbours a proof of log n hashes: n log² n has the exponent 1.25 here.
        yield Cost("wire", "masked sum, all", size, time.process_time() - start, 1.25, sent, size * 2000.0)


def sessions(sizes: Sequence[int]) -> Iterator[Cost]:
    """One masked round of 1,000 queries over real sessions and TLS: the coordinator's process, and all parties'.

    The neighbours of a party, which are costs too, still grow with the parties where these are few.
    """
    for size in sizes:
        found = load.over_grpc(load.Workload(size, queries=1000, deadline_s=600.0), hosts=2)
        spent, least = found["round"], 2.0 * 1000 * load.CLASSES * size
        wire = float(spent["bytes_sent"] + spent["bytes_received"])
        yield Cost("sessions", "round, coordinator", size, spent["cpu_s"]["coordinator"], 1.6, wire, least)
        yield Cost("sessions", "round, all parties", size, spent["cpu_s"]["parties"], 1.6)
        memory = found["coordinator_peak_memory_bytes"]
        yield Cost(
            "sessions", "connecting, coordinator", size, found["connecting"]["cpu_s"]["coordinator"], bytes=memory
        )


def sums_over_sessions(axis: str, size: int, asked: load.Workload) -> Iterator[Cost]:
    """One round of the default over real sessions, the mean of its rounds; by their number what all of them cost."""
    found, times = load.over_grpc(asked, hosts=2), asked.rounds if axis == "default-rounds" else 1
    if asked.groups > 1 and found["groups"] != asked.groups:
        raise AssertionError(f"{found['groups']} groups were summed instead of {asked.groups}")
    beside_s = times * load.secagg_plus(asked)["coordinator_cpu_s"] / asked.rounds
    spent = [one for one in found["questions"] if one["name"] == "class-sums"]

    def mean(value: Callable[[dict[str, Any]], float]) -> float:
        return times * float(np.mean([value(one) for one in spent]))

    wire = mean(lambda one: one["bytes_sent"] + one["bytes_received"])
    least = times * 8.0 * asked.length * asked.parties
    cpu_s = {who: mean(lambda one: one["cpu_s"][who]) for who in ("coordinator", "parties")}  # noqa: B023
    bound = 1.6 if axis == "default-parties" else 1.0  # see `sessions`
    name = "class sums, coordinator"
    yield Cost(axis, name, size, cpu_s["coordinator"], bound, wire, least, None, "Flower SecAgg+", beside_s)
    yield Cost(axis, "class sums, all parties", size, cpu_s["parties"], bound)
    counts = sum(one["cpu_s"]["coordinator"] for one in found["questions"] if one["name"] in ("coverage", "evaluation"))
    memory = found["coordinator_peak_memory_bytes"]
    yield Cost(axis, "pool check and evaluation, coordinator", size, counts, bound, memory)


def default_parties(sizes: Sequence[int]) -> Iterator[Cost]:
    """The default with 10,000 entries and two rounds, by the number of sessions."""
    for size in sizes:
        yield from sums_over_sessions("default-parties", size, load.Workload(size, 0, 10_000, 2))


def default_entries(sizes: Sequence[int]) -> Iterator[Cost]:
    """The default with 50 sessions and two rounds, by the length of its vectors."""
    for size in sizes:
        yield from sums_over_sessions("default-entries", size, load.Workload(50, 0, size, 2))


def default_rounds(sizes: Sequence[int]) -> Iterator[Cost]:
    """The default with 30 sessions and 10,000 entries, by the number of rounds: all of them together."""
    for size in sizes:
        yield from sums_over_sessions("default-rounds", size, load.Workload(30, 0, 10_000, size))


def default_groups(sizes: Sequence[int]) -> Iterator[Cost]:
    """The default with 30 sessions, 10,000 entries and two rounds, by the number of groups."""
    for size in sizes:
        yield from sums_over_sessions("default-groups", size, load.Workload(30, 0, 10_000, 2, size))


def table(records: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    generator = np.random.default_rng(seed)
    return generator.random((records, COLUMNS), dtype=np.float32), generator.integers(0, 10, records)


def records(sizes: Sequence[int]) -> Iterator[Cost]:
    """Neighbours within a radius and class sums of one party's records; products are what must be done."""
    columns = tuple(NumberColumn(name=f"c{number}", low=0.0, high=1.0) for number in range(COLUMNS // 2))
    task = Task(classes=tuple("0123456789"), inputs=TableInputs(columns=columns))
    single, double = product_rate(), product_rate(np.float64)
    generator = np.random.default_rng(0)
    queries = generator.integers(0, 1025, (QUERIES, COLUMNS), dtype=np.int16)
    pool, _ = table(LANDMARKS, 1)
    kernel = KernelMap.of_pool(KernelSpec(Features("raw"), tuple(range(LANDMARKS)), 1024**2), pool, task.inputs)
    for size in sizes:
        held = generator.integers(0, 1025, (size, COLUMNS), dtype=np.int16)
        sample = np.square(held[:4000].astype(np.float64) - queries[0]).sum(axis=1)
        radii = np.full(QUERIES, int(np.quantile(sample, 0.01)), dtype=np.int64)
        search = Search(held)
        taken = cpu(lambda: sum(1 for _ in search.within(queries, radii)))  # noqa: B023
        share = 2.0 * size * COLUMNS * QUERIES / single / taken
        beside_s = faiss_s(held, queries, radii)
        what = f"{QUERIES} radius queries"
        yield Cost("records", what, size, taken, rate_share=share, beside="faiss", beside_s=beside_s)
        held = held[:0]
        search = Search(held)
        gc.collect()
        if size <= 100_000:
            x, y = table(size, 2)
            summing = RecordsOfClasses(Examples(x, y), task)
            taken = cpu(lambda: summing.sums(kernel))  # noqa: B023
            flops = size * (2.0 * COLUMNS * LANDMARKS + LANDMARKS**2)
            others = sklearn_s(x, pool)
            yield Cost(
                "records", f"class sums, {LANDMARKS} landmarks", size, taken, rate_share=flops / double / taken,
                beside="scikit-learn Nyström", beside_s=others,
            )  # fmt: skip


def faiss_s(held: NDArray[np.int16], queries: NDArray[np.int16], radii: NDArray[np.int64]) -> float | None:
    """The same by faiss, in single precision and without exactness; None where it is not installed."""
    try:
        import faiss
    except ImportError:
        return None
    index = faiss.IndexFlatL2(held.shape[1])
    index.add(held.astype(np.float32))
    asked = queries.astype(np.float32)
    return cpu(lambda: index.range_search(asked, float(radii[0])))


def sklearn_s(x: NDArray[np.float32], pool: NDArray[np.float32]) -> float:
    """Nyström features of all records by scikit-learn, without labels or sums."""
    from sklearn.kernel_approximation import Nystroem

    made = Nystroem(gamma=0.5, n_components=len(pool), random_state=0).fit(pool)
    return cpu(lambda: made.transform(x))


def classes(sizes: Sequence[int]) -> Iterator[Cost]:
    """1,000 noisy winners, and the vector that a party sends for them."""
    for size in sizes:
        generator = np.random.default_rng(size)
        votes = np.stack([np.bincount(generator.integers(0, size, VOTERS), minlength=size) for _ in range(1000)])
        taken = cpu(lambda: GNMax(sigma=40.0).release(votes, noise=SeededNoise(1)))  # noqa: B023
        wire = 2.0 * 1000 * size
        yield Cost("classes", "1,000 winners", size, taken, bytes=wire, least_bytes=wire)


def pool(sizes: Sequence[int]) -> Iterator[Cost]:
    """What the coordinator does with a pool before the first label."""
    for size in sizes:
        features = np.random.default_rng(size).integers(0, 1025, (size, 32), dtype=np.int16)
        inputs = features.astype(np.float32)
        chosen = np.arange(40)
        yield Cost("pool", "identity of every input", size, cpu(lambda: PoolStore(None).put(inputs)))  # noqa: B023
        taken = cpu(lambda: public_radii_squared(features, chosen, 0.01))  # noqa: B023
        yield Cost("pool", "radii of 40 queries", size, taken)
        taken = cpu(lambda: representatives(features, 40, 0))  # noqa: B023
        yield Cost("pool", "40 representative queries", size, taken, 1.15)


def queries(sizes: Sequence[int]) -> Iterator[Cost]:
    """ε of as many rounds of GNMax, certified; and one release of them all in a party's federated answer."""
    for size in sizes:
        law = RoundLaw("discrete-gaussian", 40.0 * math.sqrt(size / 100.0))

        def ours() -> None:
            Profile(tuple(play(game, size) for game in law.games())).epsilon(1e-5)  # noqa: B023

        yield Cost("queries", "ε, certified", size, cpu(ours), 1.3, beside="dp-accounting", beside_s=cpu(
            lambda: pld_epsilon(law.scale, size)))  # fmt: skip # noqa: B023


def pld_epsilon(sigma: float, count: int) -> float:
    """The whole noisy histogram by dp-accounting."""
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    event = dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(sigma / math.sqrt(2.0)), count)
    return float(PLDAccountant().compose(event).get_epsilon(1e-5))


def ledger(sizes: Sequence[int]) -> Iterator[Cost]:
    """Starting a ledger, verifying it, and its ε. Of the command, other processes check a share of the signatures."""
    owner = Ed25519PrivateKey.generate()
    with tempfile.TemporaryDirectory(prefix="collegium-scale-") as folder:
        for size in sizes:
            path = Path(folder) / f"{size}.sqlite"
            filled_ledger(path, size, owner)
            held: list[Ledger] = []

            def start() -> None:
                laws._block_epsilon.cache_clear()  # a process that starts remembers no ε
                held[:] = [opened(path, size, owner)]  # noqa: B023

            yield Cost("ledger", "first start, no checkpoint", size, once(start))
            labels = json.dumps({f"{seq:032x}": seq % 10 for seq in range(size // 2)})
            read = cpu(lambda: json.loads(labels))  # noqa: B023
            yield Cost("ledger", "start", size, cpu(start), beside="reading as many labels from JSON", beside_s=read)
            yield Cost("ledger", "ε", size, cpu(held[0].epsilon), 1.0)
            with contextlib.redirect_stdout(io.StringIO()):
                seconds = cpu(lambda: ledger_cli.verify(path, None, None, as_json=True))  # noqa: B023
            yield Cost("ledger", "verify", size, seconds)


def federated(sizes: Sequence[int]) -> Iterator[Cost]:
    """Both masked sums of a federated nearest-neighbours release, all parties and the coordinator in this process."""
    for size in sizes:
        cost = knn.federated(5, 20_000, size)
        taken = cost.cpu_seconds * size / 1000
        yield Cost("queries", "masked neighbours, 5 parties", size, taken, bytes=cost.bytes * size / 1000)


AXES: dict[str, tuple[Callable[[Sequence[int]], Iterator[Cost]], tuple[int, ...], tuple[int, ...]]] = {
    "parties": (parties, (30, 100, 300, 1000), (3000, 10_000)),
    "wire": (wire, (1000, 3000, 10_000), ()),
    "sessions": (sessions, (10, 30, 100), (300, 1000)),
    "default-parties": (default_parties, (10, 30, 100), (250, 1000)),
    "default-entries": (default_entries, (1000, 10_000, 50_000), (250_000,)),
    "default-rounds": (default_rounds, (2, 4, 8), ()),
    "default-groups": (default_groups, (1, 3, 5), ()),
    "records": (records, (1000, 10_000, 100_000, 1_000_000), (10_000_000,)),
    "classes": (classes, (2, 10, 100, 1000), ()),
    "pool": (pool, (1000, 10_000, 100_000, 1_000_000), ()),
    "queries": (queries, (100, 1000), (10_000,)),
    "federated": (federated, (30, 100, 300), (1000,)),
    "ledger": (ledger, (1000, 10_000), (100_000, 1_000_000)),
}
"""Of each axis what measures it, its sizes, and those that ``--large`` adds."""


def fitted(costs: list[Cost], value: Callable[[Cost], float | None]) -> float | None:
    """The exponent over the upper half of the sizes, two at least; None where nothing is given."""
    points = [(math.log(cost.size), math.log(max(found, 1e-9))) for cost in costs if (found := value(cost)) is not None]
    points = points[-max(2, len(points) // 2 + 1) :]
    if len(points) < 2:
        return None
    sizes, values = np.array(points).T
    return float(np.polyfit(sizes, values, 1)[0])


def exponents(costs: list[Cost]) -> list[dict[str, Any]]:
    """One row per axis and work: the largest size, its costs, the exponents, and whether the bound is kept."""
    rows = []
    for key in dict.fromkeys((cost.axis, cost.what) for cost in costs):
        own = [cost for cost in costs if (cost.axis, cost.what) == key]
        last = own[-1]
        beside = [cost.beside_s for cost in own if cost.beside_s is not None]
        rows.append({
            **asdict(last),
            "beside_s": beside[-1] if beside else None,
            "beside_at": [cost.size for cost in own if cost.beside_s is not None][-1] if beside else None,
            "exponent": (exponent := fitted(own, lambda cost: cost.cpu_s)),
            "exponent_of_bytes": (of_bytes := fitted(own, lambda cost: cost.bytes)),
            "exponent_beside": fitted(own, lambda cost: cost.beside_s),
            "kept": max(exponent or 0.0, of_bytes or 0.0) <= last.bound + 0.1,
        })  # fmt: skip
    return rows


def beside_kept(kept: list[dict[str, Any]], measured: list[Cost]) -> list[Cost]:
    """What a file has of costs, in the order of the axes and sizes; what was measured now stands in its place."""
    costs = {(one.axis, one.what, one.size): one for one in [*(Cost(**fields) for fields in kept), *measured]}
    order = list(dict.fromkeys((axis, what) for axis, what, _ in costs))
    return [costs[key] for key in sorted(costs, key=lambda key: (order.index(key[:2]), key[2]))]


def plot(costs: list[Cost], path: Path) -> None:
    """CPU seconds over size, one panel per axis; dashed what a user would take instead."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "collegium"
    from matplotlib import pyplot as plt

    axes = list(dict.fromkeys(cost.axis for cost in costs))
    figure, panels = plt.subplots(4, 4, figsize=(14, 12.8), layout="constrained")
    for panel, axis in zip(panels.flat, axes, strict=False):
        for number, what in enumerate(dict.fromkeys(cost.what for cost in costs if cost.axis == axis)):
            own = [cost for cost in costs if (cost.axis, cost.what) == (axis, what)]
            sizes = [cost.size for cost in own]
            panel.plot(sizes, [max(cost.cpu_s, 1e-6) for cost in own], "-o", color=f"C{number}", label=what)
            others = [(cost.size, cost.beside_s) for cost in own if cost.beside_s is not None]
            if others:
                panel.plot(*zip(*others, strict=True), "--", color=f"C{number}", label=own[0].beside)
        panel.set(xscale="log", yscale="log", xlabel=axis, ylabel="CPU seconds")
        panel.grid(alpha=0.3)
        panel.legend(fontsize=7)
    for panel in list(panels.flat)[len(axes) :]:
        panel.set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def line(row: dict[str, Any]) -> str:
    """One row of the table."""

    def shown(value: float | None, form: str, unit: str = "") -> str:
        return "–" if value is None else f"{value:{form}}{unit}"

    beside = "–" if row["beside_s"] is None else f"{row['beside']} {row['beside_s']:.3g} s at {row['beside_at']:,}"
    share = row["rate_share"]
    return " | ".join((
        f"| {row['axis']}", row["what"], f"{row['size']:,}", f"{row['cpu_s']:.3g} s", shown(row["exponent"], ".2f"),
        f"{row['bound']:g}" + ("" if row["kept"] else " **passed**"),
        shown(row["bytes"] and row["bytes"] / 1e6, ".3g", " MB"), shown(row["exponent_of_bytes"], ".2f"),
        shown(share, ".0%"), beside, f"{shown(row['exponent_beside'], '.2f')} |",
    ))  # fmt: skip


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--axes", default=",".join(AXES), help=f"some of {','.join(AXES)}")
    parser.add_argument("--large", action="store_true", help="add the sizes that take minutes and gigabytes")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument("--keep", action="store_true", help="keep what that file has of other axes and sizes")
    parser.add_argument("--plot", type=Path, help="draw cost against size to this SVG file")
    chosen = parser.parse_args()
    wanted = [axis for axis in chosen.axes.split(",") if axis]
    if chosen.keep and chosen.json is None:
        parser.error("--keep needs the file of --json")
    if unknown := [axis for axis in wanted if axis not in AXES]:
        parser.error(f"there is no axis {unknown[0]}; the axes are {', '.join(AXES)}")
    costs: list[Cost] = []
    for axis in wanted:
        measure, sizes, large = AXES[axis]
        costs += measure(sizes + large if chosen.large else sizes)
    kept: dict[str, Any] = {"costs": []}
    if chosen.keep and chosen.json.exists():
        kept = json.loads(chosen.json.read_text(encoding="utf-8"))
    costs = beside_kept(kept["costs"], costs)
    rows = exponents(costs)
    print("| axis | work | size | CPU | exponent | bound | wire | exponent | share of products | beside | exponent |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(line(row))
    products = None if "records" in wanted else kept.get("products_per_cpu_s")  # the rows of records are shares of it
    result: dict[str, Any] = {
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()},
        "products_per_cpu_s": products or {"float32": product_rate(), "float64": product_rate(np.float64)},
        "load_average": os.getloadavg()[0],
        "costs": [asdict(cost) for cost in costs],
        "exponents": rows,
    }
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    if chosen.plot:
        plot(costs, chosen.plot)
    if not all(row["kept"] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
