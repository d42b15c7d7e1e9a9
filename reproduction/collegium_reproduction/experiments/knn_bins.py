"""How many distance bins Private-kNN over many parties needs: its labels beside those of the exact k nearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.selection.queries import choose_queries
from collegium.data import DataSource, Examples, array_spec, default_task, load
from collegium.data.task import Inputs
from collegium.models.features import Features, extract
from collegium.parties.teachers.splits import simulated_key
from collegium.protocol.question import PoolRange, QuestionTerms
from collegium_accounting.mechanisms import NEXT_STAGE, SeededNoise
from collegium_accounting.units import IntArray
from collegium_reproduction.exact_nearest import closest, exact_votes
from collegium_reproduction.experiments.base import Setting, mean_and_spread, percent, register, table
from collegium_reproduction.experiments.figures import OURS
from collegium_reproduction.nearest.coordinator import class_orders, nearest_edges_squared, votes_of_nearest
from collegium_reproduction.nearest.knn import PrivateKNN
from collegium_reproduction.nearest.party import SampledRecords, intervals_of
from collegium_reproduction.nearest.question import CountNearest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = (8, 16, 32, 64, 128, 256)
QUERIES = 1000
WANTED = 0.99

MECHANISM = PrivateKNN(k=300, classes=10, threshold=180.0, sigma1=75.0, sigma2=25.0, sampling_rate=0.15)
"""As in Private-kNN's Table 1 for MNIST."""


@dataclass(frozen=True, eq=False)
class Votes:
    """Votes of the exact k nearest and of the binned ones, for one stage, from the same samples.

    Parameters
    ----------
    exact : ``[queries, classes]``.
    binned : the same by the number of bins.
    """

    exact: IntArray
    binned: Mapping[int, IntArray]


def votes_by_bins(  # noqa: PLR0913 -- the algorithm's symbols
    records: SampledRecords,
    mechanism: PrivateKNN,
    pool: NDArray[Any],
    inputs: Inputs,
    positions: IntArray,
    *,
    features: Features,
    share: float,
    bins: Sequence[int],
    stage: str,
) -> Votes:
    """Votes around the inputs at ``positions`` of ``pool``.

    One party's counts stand for any number of parties': sums do not know how records are dealt.
    """
    k, classes = int(mechanism.k), int(mechanism.classes)
    values = extract(features, pool, inputs)
    edges = {count: nearest_edges_squared(values, positions, share, count) for count in bins}
    asked = PoolRange(array_spec(pool).sha256, tuple(positions.tolist()))
    terms = QuestionTerms.of(mechanism, "clear", stage)
    body = CountNearest(terms, "ledger", features, asked, classes, edges[bins[0]])
    orders = class_orders(asked, classes)
    exact = np.empty((len(positions), classes), dtype=np.int64)
    binned = {count: np.empty_like(exact) for count in bins}
    for row, (around, sampled) in enumerate(records.samples("bins", body, pool[positions])):
        rows, distances = closest(around, sampled, k)
        exact[row] = exact_votes(distances, records.labels[rows], orders[row], k, classes)
        for count in bins:
            cells = intervals_of(around, sampled, edges[count][row]) * classes + records.labels[sampled]
            counts = np.bincount(cells, minlength=count * classes).reshape(1, count, classes)
            binned[count][row] = votes_of_nearest(counts, orders[row : row + 1], k)[0]
    return Votes(exact, binned)


def agreement(mechanism: PrivateKNN, screened: Votes, released: Votes, seed: int) -> dict[str, Any]:
    """How often binned labels are the exact ones, under the same noise for both.

    Returns ``answered``, queries that the exact votes let pass, and by number of bins ``labels``, the share of
    these that pass with the binned votes too and get the same label; ``votes``, the share of votes moved.
    """
    noisy_test, release = mechanism.stages
    passed = noisy_test.run(screened.exact, SeededNoise(seed)) == NEXT_STAGE
    labels = release.run(released.exact, SeededNoise(seed + 1))
    shares: dict[str, Any] = {"answered": int(passed.sum()), "labels": {}, "votes": {}}
    for count, votes in released.binned.items():
        also = noisy_test.run(screened.binned[count], SeededNoise(seed)) == NEXT_STAGE
        same = release.run(votes, SeededNoise(seed + 1)) == labels
        shares["labels"][str(count)] = float((also & same)[passed].mean())
        moved = np.abs(votes - released.exact).sum() / 2 / released.exact.sum()
        shares["votes"][str(count)] = float(moved)
    return shares


@register
class KnnBins:
    """Agreement with the exact neighbours from 8 to 256 bins."""

    name: ClassVar[str] = "knn-bins"
    title: ClassVar[str] = "MNIST, Private-kNN over many parties: how many distance bins"
    source: ClassVar[str] = "Zhu et al., CVPR 2020, Table 1 (parameters); docs/research/private-knn.md"
    data: ClassVar[str] = "mnist"
    slow: ClassVar[bool] = False

    def run(self, setting: Setting) -> dict[str, Any]:
        task = default_task("mnist")
        private: Examples = load(DataSource(source="mnist", split="train"), task, data_root=setting.data_root)
        public = load(DataSource(source="mnist", split="test", stop=5000), task, data_root=setting.data_root)
        share = MECHANISM.k / (MECHANISM.sampling_rate * len(private))
        rows = []
        for seed in setting.seeds:
            records = SampledRecords(private, task.inputs, simulated_key(seed, "all"))
            positions = choose_queries(len(public), QUERIES, seed)
            made = {}
            for stage in (one.name for one in MECHANISM.stages):
                setting.say(f"seed {seed}, {stage}")
                made[stage] = votes_by_bins(
                    records,
                    MECHANISM,
                    public.x,
                    task.inputs,
                    positions,
                    features=Features("hog"),
                    share=share,
                    bins=BINS,
                    stage=stage,
                )
            rows.append({"seed": seed} | agreement(MECHANISM, made["threshold"], made["release"], seed))
            setting.say(f"64 bins: {percent(rows[-1]['labels']['64'])}")
        return {"rows": rows, "records": len(private), "queries": QUERIES, "mechanism": MECHANISM.parameters()}

    def render(self, results: Mapping[str, Any]) -> str:
        rows = results["rows"]
        lines = [
            [
                f"{count}",
                mean_and_spread([row["labels"][str(count)] for row in rows], percent),
                mean_and_spread([row["votes"][str(count)] for row in rows], percent),
            ]
            for count in BINS
        ]
        answered = ", ".join(str(row["answered"]) for row in rows)
        told = ", ".join(f"{name} {value:g}" for name, value in results["mechanism"].items())
        return table(["bins", "labels as of the exact neighbours", "votes moved"], lines) + (
            f"\n\n{results['queries']} public images against {results['records']} records, histograms of oriented "
            f"gradients with 1,296 numbers; {told}. Both get the same samples and the same noise. A label counts as "
            f"the same where the exact votes pass the threshold, the binned ones do too, and the winners are equal; "
            f"{answered} queries pass."
        )

    def draw(self, results: Mapping[str, Any], figure: Figure) -> None:
        axes = figure.subplots()
        shares = [[row["labels"][str(count)] for row in results["rows"]] for count in BINS]
        axes.plot(BINS, [100 * np.mean(one) for one in shares], marker="o", color=OURS, label="labels that agree")
        axes.axhline(100 * WANTED, color="#6b6b6b", linestyle="--", linewidth=1.0, label="99 %")
        axes.set_xscale("log", base=2)
        axes.set_xticks(BINS, [str(count) for count in BINS])
        axes.set_xlabel("distance bins")
        axes.set_ylabel("labels as of the exact neighbours, %")
        axes.legend(loc="lower right")
