"""Private-kNN's ε again: Table 1 by its stated parameters, and Figure 4, ε against the number of queries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from collegium_accounting.analysis.account import account
from collegium_accounting.analysis.epsilons import exact_epsilon, planned_charges
from collegium_accounting.renyi import WIDE_ORDERS, Conversion, RenyiCurve
from collegium_reproduction.experiments.base import Setting, register, table
from collegium_reproduction.experiments.figures import OTHERS, OURS, PAPERS
from collegium_reproduction.loss_distributions import loss_distribution_epsilon
from collegium_reproduction.nearest.knn import PrivateKNN
from collegium_reproduction.screening import private_knn_curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DELTA = 1e-5


@dataclass(frozen=True)
class Published:
    """A run as the paper states it, and the ε that it claims."""

    data: str
    mechanism: PrivateKNN
    screened: int
    answered: int
    claimed: float

    def renyi(self, conversion: Conversion, sampling_rate: float | None = None) -> float:
        """ε by the composed Rényi curves, at another sampling rate where one is given."""
        rate = sampling_rate or self.mechanism.sampling_rate
        mechanism = replace(self.mechanism, sampling_rate=rate)
        curve = private_knn_curve(mechanism, WIDE_ORDERS, self.screened, self.answered)
        return curve.to_epsilon(DELTA, conversion).epsilon

    def by_published_bounds(self, conversion: Conversion) -> float:
        """ε as `account` has it."""
        return account(
            self.mechanism,
            queries=self.screened,
            answered=self.answered,
            delta=DELTA,
            bound="classic",
            conversion=conversion,
        ).published.epsilon


TABLE_1 = (
    Published("MNIST", PrivateKNN(300, 10, 180.0, 75.0, 25.0, 0.15), 1000, 735, 0.47),
    Published("SVHN", PrivateKNN(800, 10, 480.0, 200.0, 60.0, 0.03), 6000, 2939, 0.49),
    Published("CIFAR-10", PrivateKNN(300, 10, 210.0, 85.0, 20.0, 0.2), 18_000, 3877, 2.92),
)
"""Section 4.1 and 4.2. Of 6,000 queries on SVHN the text says 2,919 and the table 2,939 were answered."""

FIGURE_4 = PrivateKNN(800, 10, 480.0, 240.0, 60.0, 0.03)
FIGURE_4_RATES = (0.02, 0.03, 0.05, 0.1)
FIGURE_4_QUERIES = (0, 500, 1000, 2000, 3000, 4000, 5000, 6000)
ANSWERED_SHARE = 2939 / 6000
PATE_POINTS = (("LNMax", 1000, 8.19), ("GNMax", 3098, 4.96))


def certified_epsilon(published: Published) -> float:
    """ε when the winner alone is charged for, Poisson-sampled (docs/research/exact-accountant.md).

    For integer noise, as in a release; a sampled record displaces another neighbour.
    """
    mechanism = published.mechanism
    charges = planned_charges(mechanism, mechanism.unit(), published.screened, published.answered)
    return exact_epsilon(charges, DELTA)


def rate_for(published: Published) -> float:
    """The sampling rate at which the stated run would cost what the paper claims, by its own way of counting."""

    def at(rate: float) -> float:
        return published.renyi(Conversion.CLASSIC, rate)

    low, high = 1e-3, 1.0
    if not at(low) < published.claimed < at(high):
        return math.nan
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if at(middle) < published.claimed else (low, middle)
    return math.sqrt(low * high)


@register
class Table1Accounting:
    """What Table 1's stated parameters cost."""

    name: ClassVar[str] = "knn-table-1-accounting"
    title: ClassVar[str] = "Private-kNN, Table 1: ε of the stated parameters"
    source: ClassVar[str] = "Zhu et al., CVPR 2020, Table 1 and sections 4.1, 4.2"
    data: ClassVar[str] = "none"
    slow: ClassVar[bool] = False

    def run(self, setting: Setting) -> dict[str, Any]:
        rows = []
        for published in TABLE_1:
            setting.say(published.data)
            mechanism = published.mechanism
            charges = planned_charges(mechanism, mechanism.unit(), published.screened, published.answered)
            rows.append(
                {
                    "data": published.data,
                    "parameters": published.mechanism.parameters(),
                    "screened": published.screened,
                    "answered": published.answered,
                    "paper": published.claimed,
                    "classic_gaussian": published.by_published_bounds(Conversion.CLASSIC),
                    "classic": published.renyi(Conversion.CLASSIC),
                    "improved": published.renyi(Conversion.IMPROVED),
                    "pld": loss_distribution_epsilon(charges, DELTA),
                    "certified": certified_epsilon(published),
                    "rate_for_paper": rate_for(published),
                }
            )
        return {"rows": rows}

    def render(self, results: Mapping[str, Any]) -> str:
        lines = []
        for row in results["rows"]:
            stated = row["parameters"]
            lines.append(
                [
                    f"{row['data']}: k {stated['k']:g}, T {stated['threshold']:g}, σ₁ {stated['sigma1']:g}, "
                    f"σ₂ {stated['sigma2']:g}, γ {stated['sampling_rate']:g}",
                    f"{row['answered']:,} of {row['screened']:,}",
                    f"{row['paper']:g}",
                    *(f"{row[key]:.2f}" for key in ("classic_gaussian", "classic", "improved", "pld")),
                    f"**{row['certified']:.2f}**",
                    f"{row['rate_for_paper']:.3f}",
                ]
            )
        header = ["stated parameters", "answered", "ε, paper", "sampled Gaussian twice, classic conversion"]
        header += ["Theorem 7 for screening, classic (the paper's method)", "the same, improved conversion"]
        header += ["loss distributions", "Theorem 7, winner alone, improved", "γ that gives the paper's ε"]
        return table(header, lines) + (
            "\n\nThe paper's ε do not follow from the parameters that it states: MNIST and CIFAR-10 cost more, SVHN "
            "less. The bold column is the least that is proved here for the same releases: screening by Theorem 7 "
            "under Poisson sampling, aggregation by the certified bound of its winner (docs/privacy.md, section 4). "
            "All are data-independent, for adding or removing one record, with a fresh sample for each stage."
        )


@register
class Figure4:
    """ε against queries for several sampling rates."""

    name: ClassVar[str] = "knn-figure-4"
    title: ClassVar[str] = "Private-kNN, Figure 4: ε against queries by sampling rate"
    source: ClassVar[str] = "Zhu et al., CVPR 2020, Figure 4 (SVHN: k 800, T 480, σ₁ 240, σ₂ 60)"
    data: ClassVar[str] = "none"
    slow: ClassVar[bool] = False

    def run(self, setting: Setting) -> dict[str, Any]:
        series = {}
        for rate in FIGURE_4_RATES:
            setting.say(f"γ = {rate:g}")
            mechanism = replace(FIGURE_4, sampling_rate=rate)
            screened, answered = (private_knn_curve(mechanism, WIDE_ORDERS, *once) for once in ((1, 0), (0, 1)))
            series[f"{rate:g}"] = [
                [queries, *(_both(screened * queries + answered * share) for share in _shares(queries))]
                for queries in FIGURE_4_QUERIES
            ]
        return {"series": series}

    def draw(self, results: Mapping[str, Any], figure: Figure) -> None:
        axes = figure.add_subplot()
        for (rate, points), colour in zip(results["series"].items(), (OURS, *OTHERS), strict=True):
            queries = [point[0] for point in points]
            axes.plot(queries, [point[1][0] for point in points], color=colour, label=f"γ = {rate}")
            axes.plot(queries, [point[2][0] for point in points], color=colour, linestyle="--")
        for name, answered, claimed in PATE_POINTS:
            axes.plot(answered, claimed, "o", color=PAPERS)
            axes.annotate(f"PATE, {name}", (answered, claimed), xytext=(6, -3), textcoords="offset points")
        axes.set(
            yscale="log", xlabel="queries screened (PATE: asked)", ylabel="ε, classic conversion", title=self.title
        )
        axes.legend()

    def render(self, results: Mapping[str, Any]) -> str:
        lines = []
        for rate, points in results["series"].items():
            for queries, some, every in points:
                if queries in (1000, 3000, 6000):
                    cells = [f"{value:.3f}" for value in (*some, *every)]
                    lines.append([rate, f"{queries:,}", *cells])
        header = [
            "γ",
            "queries screened",
            "ε, 49 % answered, classic",
            "improved",
            "ε, all answered, classic",
            "improved",
        ]
        return table(header, lines) + (
            "\n\nLines: 49 % of the queries pass, as in the paper's run on SVHN; dashed: all pass. The points are "
            "PATE's on SVHN as the paper quotes them. The accuracies of the figure need SVHN, which is not at hand."
        )


def _shares(queries: int) -> tuple[int, int]:
    return round(queries * ANSWERED_SHARE), queries


def _both(curve: RenyiCurve) -> list[float]:
    """ε by the classic conversion, and by the improved one; nothing asked costs nothing."""
    if not curve.values.any():
        return [0.0, 0.0]
    return [curve.to_epsilon(DELTA, conversion).epsilon for conversion in (Conversion.CLASSIC, Conversion.IMPROVED)]
