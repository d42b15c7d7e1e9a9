"""PATE Appendix B.2: the student asks for labels of the inputs that it is least sure of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from collegium.coordinator.selection.queries import choose_queries
from collegium_accounting.mechanisms import IntArray, SeededNoise
from collegium_accounting.mechanisms.lnmax import LNMax
from collegium_reproduction.experiments.base import Setting, percent, register, table
from collegium_reproduction.experiments.ensembles import MNIST, Ensemble, load_or_compute_votes
from collegium_reproduction.experiments.epsilons import epsilons
from collegium_reproduction.experiments.exams import Exam, Options
from collegium_reproduction.experiments.figures import OURS, PAPERS
from collegium_reproduction.experiments.pate_figure_5 import SMALL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAMMA = 0.05
PAPER_GAIN = "4 % – 10 %"
WAYS = {"random": "inputs at random", "least-confident": "least confident first"}


@register
@dataclass(frozen=True)
class PateAppendixB2:
    """Two students by supervision alone, one with inputs at random and one that chooses, after the same queries."""

    name: ClassVar[str] = "pate-appendix-b2"
    title: ClassVar[str] = "MNIST: the student chooses what it asks"
    source: ClassVar[str] = "Papernot et al., ICLR 2017, Appendix B.2"
    data: ClassVar[str] = "mnist"
    slow: ClassVar[bool] = True

    ensemble: Ensemble = MNIST
    pool: int = 9000
    rounds: tuple[int, ...] = (50, 100, 200, 400, 800)
    """Queries after each round, all earlier ones included."""
    student: Options = field(default_factory=lambda: SMALL)

    def run(self, setting: Setting) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        exam = Exam.of(self.ensemble, self.pool, setting)
        for seed in setting.seeds:
            said = load_or_compute_votes(self.ensemble.of(parties=self.ensemble.parties, seed=seed), setting)
            mechanism = LNMax(gamma=GAMMA)
            # One draw of noise per input: whichever way asks for it gets the same label.
            labels = mechanism.release(said.votes[: self.pool], noise=SeededNoise(seed))
            for way in WAYS:
                asked = np.empty(0, dtype=np.int64)
                probabilities = None
                for count in self.rounds:
                    asked = np.concatenate([asked, self._next(way, count - len(asked), asked, probabilities, seed)])
                    student = exam.fit("supervised", asked, labels[asked], seed, self.student)
                    probabilities = student.probabilities(exam.inputs.x[: self.pool])
                    rows.append(
                        {
                            "way": way,
                            "seed": seed,
                            "queries": count,
                            "student": exam.accuracy(student),
                            "labels": float((labels[asked] == said.truth[asked]).mean()),
                            **epsilons(mechanism, said.votes[asked]),
                        }
                    )
                    setting.say(f"{WAYS[way]}, {count} queries: {percent(rows[-1]['student'])}")
        return {"rows": rows, "measured": len(exam)}

    def _next(
        self, way: str, count: int, asked: IntArray, probabilities: np.ndarray[Any, Any] | None, seed: int
    ) -> IntArray:
        if way == "random" or probabilities is None:
            order = choose_queries(self.pool, self.pool, seed)
            return order[~np.isin(order, asked)][:count]
        sureness = probabilities.max(axis=1)
        sureness[asked] = np.inf
        return np.argsort(sureness, kind="stable")[:count].astype(np.int64)

    def render(self, results: Mapping[str, Any]) -> str:
        counts = sorted({row["queries"] for row in results["rows"]})
        lines = []
        for key, title in (("student", "student"), ("labels", "labels right"), ("exact", "ε, exact (*secret*)")):
            for way, name in WAYS.items():
                values = [_mean(results, way, count, key) for count in counts]
                cells = [f"{value:.2f}" if key == "exact" else percent(value) for value in values]
                lines.append([f"{title}, {name}", *cells])
        gains = [100 * (_mean(results, "least-confident", c, "student") - _mean(results, "random", c, "student"))
                 for c in counts[1:]]  # fmt: skip
        return table(["", *(f"{count} queries" for count in counts)], lines) + (
            f"\n\nLNMax, γ = {GAMMA:g}; students by supervision alone, measured on {results['measured']:,} images. The "
            f"paper reports gains of {PAPER_GAIN} in accuracy for the same number of queries, without saying for which "
            f"data or how many; here they are {min(gains):.1f} to {max(gains):.1f} points. Inputs that a student is "
            "unsure of are those on which teachers disagree: their labels are worse and, by every data-dependent "
            "account, dearer. The data-independent ε is the same for both."
        )

    def draw(self, results: Mapping[str, Any], figure: Figure) -> None:
        axes = figure.add_subplot()
        counts = sorted({row["queries"] for row in results["rows"]})
        for (way, name), colour, marker in zip(WAYS.items(), (PAPERS, OURS), "so", strict=True):
            values = [100 * _mean(results, way, count, "student") for count in counts]
            axes.plot(counts, values, color=colour, marker=marker, label=name)
        axes.set(xscale="log", xlabel="queries", ylabel="accuracy of the student, %")
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.minorticks_off()
        axes.set_title("Inputs at random, or those the student is least sure of")
        axes.legend(loc="lower right")


def _mean(results: Mapping[str, Any], way: str, count: int, key: str) -> float:
    return float(np.mean([r[key] for r in results["rows"] if r["way"] == way and r["queries"] == count]))
