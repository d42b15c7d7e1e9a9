"""Private-kNN's Table 3 by its method, on attributes of MNIST's digits: votes clipped to L1 ≤ τ, no screening.

CelebA and Market-1501 are not at hand. Six attributes follow from the digit, four from the pixels against the
medians of public images. The sums are those of the mechanism `multilabel-knn` over parties.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.selection.pool_geometry import fit_features
from collegium.data import DataSource, Examples, array_spec, default_task, load
from collegium.data.several_labels import held_in, numbers_of
from collegium.data.task import Inputs
from collegium.models.features import Features, distances_squared, extract
from collegium.parties.teachers.splits import simulated_key
from collegium.protocol.question import PoolRange, QuestionTerms
from collegium_accounting.divergences.independent import sampled_gaussian_curve
from collegium_accounting.mechanisms import IntArray, SeededNoise
from collegium_accounting.renyi import WIDE_ORDERS, Conversion, RenyiCurve
from collegium_reproduction.experiments.base import Setting, mean_and_spread, percent, register, table
from collegium_reproduction.experiments.figures import OTHERS, OURS, PAPERS
from collegium_reproduction.nearest.coordinator import nearest_edges_squared, shares_of_nearest
from collegium_reproduction.nearest.multilabel_knn import MultiLabelKNN
from collegium_reproduction.nearest.party import SampledRecords
from collegium_reproduction.nearest.question import CountNearest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float64]

DIGITS_WITH = {
    "even": (0, 2, 4, 6, 8),
    "five or more": (5, 6, 7, 8, 9),
    "prime": (2, 3, 5, 7),
    "closed loop": (0, 6, 8, 9),
    "straight strokes": (1, 4, 7),
    "open curve": (2, 3, 5),
}
MEASURED = ("bold", "wide", "leaning", "low")
ATTRIBUTES = (*DIGITS_WITH, *MEASURED)
TYPICAL_ONES = sum(len(digits) for digits in DIGITS_WITH.values()) / 10 + len(MEASURED) / 2
"""4.4 attributes for digits that are equally frequent: follows from the definitions alone, so it is public."""

NEIGHBOURS = 300
QUERIES = 800
SIGMA = 50.0
SAMPLING_RATE = 0.05
BINS = 64
TAUS = (1.0, 2.0, 3.0, 4.0, 5.0, float(len(ATTRIBUTES)))
DELTA = 1e-5
STUDENT_NEIGHBOURS = 5
_RECORDS_APART = 100

SOURCES = (
    DataSource(source="mnist", split="train"),
    DataSource(source="mnist", split="test", stop=5000),
    DataSource(source="mnist", split="test", start=5000),
)
"""Private, public pool, test: half of the test set each, as in the paper."""

PAPER = (
    ("CelebA", 50.0, 0.05, 800, 1e-6, 1.24),
    ("CelebA", 100.0, 0.10, 800, 1e-6, 1.20),
    ("Market-1501", 100.0, 0.05, 1200, 1e-5, 0.67),
    ("Market-1501", 100.0, 0.10, 1200, 1e-5, 1.38),
)
"""Rows "Ours" of Table 3: σ, γ, queries, δ and ε."""
PAPER_TAU = 10.0


def _cost(tau: float) -> RenyiCurve:
    """Of one query for a record."""
    return mechanism(tau).stages[0].charge(WIDE_ORDERS, mechanism(tau).unit())


def mechanism(tau: float, on_share: float = 0.5) -> MultiLabelKNN:
    """As it runs here."""
    return MultiLabelKNN(NEIGHBOURS, len(ATTRIBUTES), tau, SIGMA, SAMPLING_RATE, on_share)


def epsilons(one: RenyiCurve, queries: int = QUERIES, delta: float = DELTA) -> list[float]:
    """ε per record of so many queries, by the classic conversion and the improved one."""
    both = (Conversion.CLASSIC, Conversion.IMPROVED)
    return [(one * queries).to_epsilon(delta, conversion).epsilon for conversion in both]


def stated_epsilons(sigma: float, rate: float, queries: int, delta: float) -> list[float]:
    """ε of a row of the paper: L2 ≤ √(2τ) in a Poisson sample, votes that are not rounded."""
    return epsilons(sampled_gaussian_curve(math.sqrt(2.0 * PAPER_TAU), sigma, rate, WIDE_ORDERS), queries, delta)


def measured(images: NDArray[np.uint8]) -> FloatArray:
    """Ink, width, slant and height of the centre of ``[n, 28, 28, 1]``, shape ``[n, 4]``."""
    ink = images[..., 0].astype(np.float64) / 255.0
    mass = ink.sum(axis=(1, 2)) + 1e-9
    place = np.arange(ink.shape[1], dtype=np.float64)
    row = (ink.sum(axis=2) @ place) / mass
    column = (ink.sum(axis=1) @ place) / mass
    down, across = place[None, :] - row[:, None], place[None, :] - column[:, None]
    slant = -np.einsum("nrc,nr,nc->n", ink, down, across) / np.einsum("nrc,nr->n", ink, down**2).clip(1e-9)
    width = (ink.max(axis=1) > 0.25).sum(axis=1)
    return np.stack([mass, width, slant, row], axis=1)


def attributes(images: NDArray[np.uint8], digits: IntArray, medians: FloatArray) -> IntArray:
    """0 or 1 for each of `ATTRIBUTES`, shape ``[n, attributes]``."""
    by_digit = np.stack([np.isin(digits, which) for which in DIGITS_WITH.values()], axis=1)
    return np.concatenate([by_digit, measured(images) > medians], axis=1).astype(np.int64)


def clipped_sums(
    records: SampledRecords,
    mechanism: MultiLabelKNN,
    pool: NDArray[Any],
    inputs: Inputs,
    queries: IntArray,
    features: Features,
) -> IntArray:
    """The sums over the nearest of a sample per query, ``[queries, labels]`` in parts of a vote, as parties make them.

    One party's counts stand for any number of parties': sums do not know how records are dealt.
    """
    asked = PoolRange(array_spec(pool).sha256, tuple(queries.tolist()))
    terms = QuestionTerms.of(mechanism, "clear", "release")
    values, share = extract(features, pool, inputs), mechanism.k / (mechanism.sampling_rate * len(records.labels))
    edges = nearest_edges_squared(values, queries, share, BINS)
    question = CountNearest(terms, "ledger", features, asked, mechanism.labels, edges)
    counts = records.counts("table-3", question, pool[queries])
    return shares_of_nearest(counts.reshape(len(queries), question.intervals, question.per_interval), mechanism.k)


@register
class MultiLabelNeighbours:
    """Accuracy against τ."""

    name: ClassVar[str] = "knn-table-3"
    title: ClassVar[str] = "Private-kNN, Table 3: several labels at once, clipped to τ"
    source: ClassVar[str] = "Zhu et al., CVPR 2020, Table 3 and appendix D; here with attributes of MNIST"
    data: ClassVar[str] = "mnist"
    slow: ClassVar[bool] = False

    def run(self, setting: Setting) -> dict[str, Any]:
        task = default_task("mnist")
        private, pool, test = (load(source, task, data_root=setting.data_root) for source in SOURCES)
        setting.say("features")
        features = fit_features("hog", 64, pool.x, task.inputs)
        known, public, asked = (extract(features, part.x, task.inputs) for part in (private, pool, test))
        medians = np.median(measured(pool.x), axis=0)
        held, truth, hidden = (attributes(part.x, part.labels(), medians) for part in (private, pool, test))
        rows = []
        for seed in setting.seeds:
            queries = np.random.default_rng([seed, 0x71]).permutation(len(pool))[:QUERIES]
            distances = distances_squared(known, public[queries])
            nearest = np.argpartition(distances, _RECORDS_APART, axis=0)[:_RECORDS_APART]
            exact = (2 * held[nearest].sum(axis=0) >= _RECORDS_APART).astype(np.int64)
            row: dict[str, Any] = {"seed": seed, "exact": _quality(exact, truth[queries])}
            row["exact"]["student"] = _student(public[queries], exact, asked, hidden)
            records = SampledRecords(Examples(private.x, numbers_of(held)), task.inputs, simulated_key(seed, "all"))
            for tau in TAUS:
                sums = clipped_sums(records, mechanism(tau), pool.x, task.inputs, queries, features)
                for kind, share in (("half", 1.0), ("lowered", min(1.0, tau / TYPICAL_ONES))):
                    numbers = mechanism(tau, share / 2).stages[0].run(sums, SeededNoise(seed))
                    labels = held_in(numbers, len(ATTRIBUTES))
                    row[f"{kind} {tau:g}"] = _quality(labels, truth[queries]) | {
                        "student": _student(public[queries], labels, asked, hidden)
                    }
            rows.append(row)
            setting.say(f"seed {seed}: exact {percent(row['exact']['accuracy'])}")
        return {
            "rows": rows,
            "ones": float(held.sum(axis=1).mean()),
            "majority": float(np.maximum(hidden.mean(axis=0), 1.0 - hidden.mean(axis=0)).mean()),
            "epsilon": {f"{tau:g}": epsilons(_cost(tau)) for tau in TAUS},
            "paper": [{"row": list(stated), "epsilon": stated_epsilons(*stated[1:5])} for stated in PAPER],
        }

    def draw(self, results: Mapping[str, Any], figure: Figure) -> None:
        axes = figure.add_subplot()
        for kind, label, colour in (("half", "half of the voters", PAPERS), ("lowered", "lowered with τ", OURS)):
            mean = [np.mean([row[f"{kind} {tau:g}"]["accuracy"] for row in results["rows"]]) for tau in TAUS]
            axes.plot(TAUS, 100 * np.array(mean), "o-", color=colour, label=f"threshold {label}")
        exact = np.mean([row["exact"]["accuracy"] for row in results["rows"]])
        axes.axhline(100 * exact, color=OTHERS[2], linestyle="--", label="without privacy")
        axes.set(xlabel="τ", ylabel="labels right, %", title=self.title)
        axes.legend()

    def render(self, results: Mapping[str, Any]) -> str:
        rows = results["rows"]

        def cells(key: str) -> list[str]:
            return [
                mean_and_spread([row[key][what] for row in rows], percent) for what in ("accuracy", "recall", "student")
            ]

        lines = [["without privacy", "–", *cells("exact"), "∞", "∞"]]
        for tau in TAUS:
            classic, improved = results["epsilon"][f"{tau:g}"]
            kinds = ("half",) if tau >= TYPICAL_ONES else ("half", "lowered")
            lines += [
                [f"τ = {tau:g}", kind, *cells(f"{kind} {tau:g}"), f"{classic:.2f}", f"{improved:.2f}"] for kind in kinds
            ]
        header = ["", "threshold", "labels right", "ones found", "student", "ε, classic", "ε, improved"]
        stated = [
            [f"{data}: σ {sigma:g}, γ {rate:g}, {queries} queries, δ = {delta:g}", f"{claimed:g}"]
            + [f"{value:.2f}" for value in row["epsilon"]]
            for row in results["paper"]
            for data, sigma, rate, queries, delta, claimed in (row["row"],)
        ]
        return "\n\n".join(
            [
                table(header, lines),
                f"{len(ATTRIBUTES)} attributes of MNIST's images ({', '.join(ATTRIBUTES)}), {results['ones']:.1f} of "
                f"them hold on average; always naming the more frequent answer has "
                f"{percent(results['majority'])} right. {QUERIES} queries, k = {NEIGHBOURS}, σ = {SIGMA:g} votes "
                f"on every sum of ones, γ = {SAMPLING_RATE:g} "
                f"afresh for each query, gradient histograms in 64 dimensions, {BINS} intervals of distance, "
                "δ = 1e-5, for adding or removing one "
                "record. *Half*: a label is on where its sum reaches half of the voters, as published. A record with "
                "more than τ ones then cannot reach it by a plain majority. *Lowered*: the threshold falls with "
                f"min(1, τ/{TYPICAL_ONES:g}), from the attributes' definitions; it costs nothing. Students are the "
                f"{STUDENT_NEIGHBOURS} nearest labelled public images, measured on 5,000 others.",
                table(["Table 3, rows “Ours”, τ = 10", "ε, paper", "recomputed, classic", "improved"], stated),
                "Only the ones are noised: noising the zeros too doubles the charge, and leaving zeros unclipped has "
                f"no bound of this kind. Of {len(ATTRIBUTES)} labels a record moves no more than {len(ATTRIBUTES)} "
                f"by 1 each, whatever τ: above τ = {len(ATTRIBUTES) / 2:g} clipping saves nothing.",
            ]
        )


def _quality(labels: IntArray, truth: IntArray) -> dict[str, float]:
    """Share of right answers over all labels, and of the ones that were found."""
    return {"accuracy": float((labels == truth).mean()), "recall": float(labels[truth == 1].mean())}


def _student(known: NDArray[np.int16], labels: IntArray, asked: NDArray[np.int16], truth: IntArray) -> float:
    distances = distances_squared(known, asked)
    nearest = np.argpartition(distances, STUDENT_NEIGHBOURS, axis=0)[:STUDENT_NEIGHBOURS]
    said = 2 * labels[nearest].sum(axis=0) >= STUDENT_NEIGHBOURS
    return float((said.astype(np.int64) == truth).mean())
