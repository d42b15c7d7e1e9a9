"""PATE Figure 5: does distillation help the student?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from collegium_reproduction.experiments.base import Setting, percent, register, table
from collegium_reproduction.experiments.ensembles import MNIST, Ensemble, load_or_compute_votes
from collegium_reproduction.experiments.exams import Exam, Options
from collegium_reproduction.experiments.figures import OTHERS, OURS, PAPERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUDENTS = {"plurality": None, "distillation, T = 1": 1.0, "distillation, T = 5": 5.0}
SMALL: Options = {"network": "small-cnn", "steps": 300, "batch": 64}
"""The same small student for every curve, so that only what it learns differs."""


@register
@dataclass(frozen=True)
class PateFigure5:
    """Students of plurality labels and of the ensemble's shares of votes, against the number of queries."""

    name: ClassVar[str] = "pate-figure-5"
    title: ClassVar[str] = "MNIST: students of labels and of distilled votes, without noise"
    source: ClassVar[str] = "Papernot et al., ICLR 2017, Figure 5 (there SVHN, 50 teachers)"
    data: ClassVar[str] = "mnist"
    slow: ClassVar[bool] = True

    ensemble: Ensemble = MNIST
    pool: int = 9000
    queries: tuple[int, ...] = (100, 300, 1000, 3000, 9000)
    student: Options = field(default_factory=lambda: SMALL)

    def run(self, setting: Setting) -> dict[str, Any]:
        from collegium_reproduction.students.distillation import Distillation

        seed = setting.seeds[0]
        said = load_or_compute_votes(self.ensemble.of(parties=self.ensemble.parties, seed=seed), setting)
        exam = Exam.of(self.ensemble, self.pool, setting)
        shares = said.votes / said.votes.sum(axis=1, keepdims=True)
        order = np.random.default_rng(seed).permutation(self.pool)
        curves: dict[str, list[float]] = {name: [] for name in STUDENTS}
        for count in self.queries:
            chosen = order[:count]
            labels = said.votes[chosen].argmax(axis=1)
            for name, temperature in STUDENTS.items():
                if temperature is None:
                    student = exam.fit("supervised", chosen, labels, seed, self.student)
                else:
                    method = Distillation.model_validate({**self.student, "temperature": temperature})
                    pool = exam.inputs.x[: self.pool]
                    student = method.fit(
                        pool,
                        chosen,
                        shares[chosen],
                        self.ensemble.task,
                        seed=seed,
                        device=setting.device,
                        threads=setting.workers,
                    )
                curves[name].append(exam.accuracy(student))
                setting.say(f"{count} queries, {name}: {percent(curves[name][-1])}")
        return {
            "queries": list(self.queries),
            "curves": curves,
            "measured": len(exam),
            "parties": self.ensemble.parties,
        }

    def render(self, results: Mapping[str, Any]) -> str:
        lines = [[name, *map(percent, results["curves"][name])] for name in STUDENTS]
        gain = np.max(np.array(results["curves"]["distillation, T = 1"]) - np.array(results["curves"]["plurality"]))
        return table(["student of", *(f"{count:,} queries" for count in results["queries"])], lines) + (
            f"\n\n{results['parties']} teachers, measured on {results['measured']:,} images. **None of this is "
            "private**: labels and shares of votes are released without noise, so it runs in simulation alone. "
            "Distilled are shares of votes; the paper sums the teachers' probabilities. The paper finds the gain “too "
            "limited to justify the increased privacy cost”; here T = 1 gains at most "
            f"{100 * gain:.2f} points over labels."
        )

    def draw(self, results: Mapping[str, Any], figure: Figure) -> None:
        axes = figure.add_subplot()
        for name, colour, marker in zip(STUDENTS, (PAPERS, OURS, OTHERS[0]), "osD", strict=True):
            values = [100 * value for value in results["curves"][name]]
            axes.plot(results["queries"], values, color=colour, marker=marker, label=name)
        axes.set(xscale="log", xlabel="queries (none of them private)", ylabel="accuracy of the student, %")
        axes.set_title(f"Labels or distilled votes, {results['parties']} teachers, no noise")
        axes.legend(loc="lower right")
