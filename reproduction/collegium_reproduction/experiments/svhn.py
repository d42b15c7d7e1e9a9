"""What the papers report on SVHN, for whoever has its files: PATE's Figure 4, and a row of Private-kNN's Table 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from collegium.data import DataSource, default_task, load
from collegium_accounting.mechanisms import SeededNoise, VoteMechanism
from collegium_accounting.mechanisms.lnmax import LNMax
from collegium_reproduction.experiments.base import Setting, mean_and_spread, percent, register, table, two_digits
from collegium_reproduction.experiments.ensembles import Ensemble, load_or_compute_votes
from collegium_reproduction.experiments.epsilons import epsilons
from collegium_reproduction.experiments.exams import Exam
from collegium_reproduction.experiments.knn_accounting import TABLE_1
from collegium_reproduction.experiments.knn_runs import NearestPlan, measure
from collegium_reproduction.experiments.knn_table_1 import HEADER, PAPER, measured_lines, paper_line

TASK = default_task("svhn")
PRIVATE = DataSource(source="svhn", split="train")
"""73,257 images; the papers add the 531,131 of the set's extra part."""

SVHN = Ensemble(
    TASK, private=PRIVATE, queries=DataSource(source="svhn", split="test"), parties=250, kind="paper-cnn-svhn", seed=0
)
LNMAX = LNMax(gamma=0.05)
PUBLISHED = {500: (5.04, 0.8272), 1000: (8.19, 0.9066)}
"""Papernot et al., ICLR 2017, Figure 4: queries, then ε at δ = 1e-6 and the student's accuracy."""


@register
@dataclass(frozen=True)
class PateSvhn:
    """Labels of queries drawn by chance among the first 10,000 test images; students are measured on the others."""

    name: ClassVar[str] = "pate-svhn"
    title: ClassVar[str] = "SVHN, 250 teachers, LNMax γ = 0.05"
    source: ClassVar[str] = "Papernot et al., ICLR 2017, Figure 4"
    data: ClassVar[str] = "svhn"
    slow: ClassVar[bool] = True

    ensemble: Ensemble = SVHN
    pool: int = 10_000
    queries: tuple[int, ...] = tuple(PUBLISHED)
    method: str = "consistency"
    mechanism: VoteMechanism = LNMAX

    def run(self, setting: Setting) -> dict[str, Any]:
        rows = []
        for seed in setting.seeds:
            said = load_or_compute_votes(self.ensemble.of(parties=self.ensemble.parties, seed=seed), setting)
            exam = Exam.of(self.ensemble, self.pool, setting)
            order = np.random.default_rng(seed).permutation(self.pool)
            for queries in self.queries:
                setting.say(f"seed {seed}, {queries} queries")
                asked = order[:queries]
                labels = self.mechanism.release(said.votes[asked], noise=SeededNoise(seed))
                rows.append(
                    {
                        "seed": seed,
                        "queries": queries,
                        "teachers": float(said.teachers.mean()),
                        "labels": float((labels == said.truth[asked]).mean()),
                        "student": exam.accuracy(exam.fit(self.method, asked, labels, seed)),
                        **epsilons(self.mechanism, said.votes[asked]),
                    }
                )
        return {"rows": rows}

    def render(self, results: Mapping[str, Any]) -> str:
        lines = []
        for queries in sorted({row["queries"] for row in results["rows"]}):
            rows = [row for row in results["rows"] if row["queries"] == queries]
            if queries in PUBLISHED:
                epsilon, student = PUBLISHED[queries]
                lines.append([f"{queries}", "paper", "–", "–", percent(student), f"{epsilon:g}, δ = 1e-6", "–"])
            lines.append(
                [f"{queries}", "Collegium"]
                + [mean_and_spread([row[key] for row in rows], percent) for key in ("teachers", "labels", "student")]
                + [mean_and_spread([row[key] for row in rows], two_digits) for key in ("exact", "independent")]
            )
        header = [
            "queries",
            "",
            "mean teacher",
            "labels right",
            "student",
            "ε, exact (*secret*)",
            "ε, data-independent",
        ]
        return table(header, lines) + (
            "\n\nδ = 1e-5. Teachers have the paper's network, but the 73,257 training images alone to share; the paper "
            "adds the set's 531,131 extra ones. Students are measured on the test images after the pool."
        )


STATED = next(row for row in TABLE_1 if row.data == "SVHN")
_PUBLIC = 13_000


def plans() -> tuple[NearestPlan, ...]:
    """The paper's parameters and its 6,000 queries, half of them by the features of the student of the others."""
    data = {
        "task": TASK.model_dump(),
        "pool": {"source": "svhn", "split": "test", "stop": _PUBLIC},
        "holdout": {"source": "svhn", "split": "test", "start": _PUBLIC},
        "student": {"method": "consistency"},
    }
    half = STATED.screened // 2
    return (NearestPlan("stated", "SVHN, parameters of the paper", data, STATED.mechanism, (half, half), budget=3.0),)


@register
@dataclass(frozen=True)
class KnnTable1Svhn:
    """Labels, ε and student of the paper's parameters."""

    name: ClassVar[str] = "knn-table-1-svhn"
    title: ClassVar[str] = "Private-kNN, Table 1: SVHN"
    source: ClassVar[str] = "Zhu et al., CVPR 2020, Table 1 and section 4.1"
    data: ClassVar[str] = "svhn"
    slow: ClassVar[bool] = True

    measured: tuple[NearestPlan, ...] = field(default_factory=plans)

    def run(self, setting: Setting) -> dict[str, Any]:
        private = load(PRIVATE, TASK, data_root=setting.data_root)
        rows = [
            row for seed in setting.seeds for plan in self.measured for row in measure(plan, seed, private, setting)
        ]
        return {"rows": rows, "records": len(private)}

    def render(self, results: Mapping[str, Any]) -> str:
        paper = next(row for row in PAPER if row.data == "SVHN")
        lines = [paper_line(paper, STATED.screened)]
        lines += [line for plan in self.measured for line in measured_lines(plan, results)]
        return table(HEADER, lines) + (
            f"\n\nUnit: one of the {results['records']:,} training images, added or removed; δ = 1e-5; every ε of ours "
            f"is data-independent. The first {_PUBLIC:,} test images are public, students are measured on the others."
        )
