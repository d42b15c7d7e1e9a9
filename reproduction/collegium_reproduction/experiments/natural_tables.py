"""Tables that were collected by institutions: 139 schools and four heart hospitals.

Neither set has public unlabelled records, so two shares of the records, drawn by the seed over all institutions,
are taken to be public: one is the pool, without its labels, the other the test. The institutions hold the rest.
The claims are about that rest.

Every institution has the same number of teachers, whatever its size: a number that followed from how many
records it holds would change with a record, and with it more than one vote. Where its splits get too small,
teachers learn little or vote for a constant, and cost votes rather than privacy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import DataSource, PoolStore, default_task, load
from collegium.data.task import TeacherSettings
from collegium.settings import validate_config
from collegium.simulations.local import InProcessParties
from collegium.simulations.partitions import PartitionConfig, partition
from collegium_reproduction.experiments.base import Setting, mean_and_spread, percent, register, table, two_digits
from collegium_reproduction.experiments.institutions import (
    Institutions,
    accuracies,
    neighbours_pooled_and_alone,
    together,
)

TEACHER = TeacherSettings(kind="linear", options={"steps": 200})
STUDENT = {"method": "supervised", "options": {"network": "linear", "learning_rate": 0.03}}


@dataclass(frozen=True)
class Votes:
    """Teachers vote; GNMax adds noise."""

    teachers: int
    queries: int
    sigma: float

    @property
    def name(self) -> str:
        each = "1 teacher each" if self.teachers == 1 else f"{self.teachers} teachers each"
        return f"GNMax, {each}, {self.queries} queries, σ {self.sigma:g}"

    def settings(self) -> dict[str, Any]:
        return {
            "mechanism": {"name": "gnmax", "parameters": {"sigma": self.sigma}},
            "queries": {"count": self.queries},
            "teachers": TEACHER.model_copy(update={"per_party": self.teachers}).model_dump(),
        }


@dataclass(frozen=True)
class Neighbours:
    """Records vote, each within its own budget."""

    queries: int
    share: float
    sigma: float
    participations: int

    @property
    def name(self) -> str:
        votes = "1 vote" if self.participations == 1 else f"{self.participations} votes"
        return (
            f"neighbours, {votes} a record, {self.queries} queries, {self.share:.0%} of the records, σ {self.sigma:g}"
        )

    def settings(self) -> dict[str, Any]:
        parameters = {"sigma": self.sigma, "participations": self.participations}
        return {
            "mechanism": {"name": "individual-knn", "parameters": parameters},
            "queries": {"count": self.queries},
            "neighbours": {"features": "raw", "dimensions": 0, "share": self.share},
        }


@dataclass(frozen=True)
class Collected:
    """A set, its column of institutions, how much of it is public, and what is tried on it."""

    data: str
    column: str
    public: int
    """Records of the pool, and as many of the test."""
    plans: tuple[Votes | Neighbours, ...]
    numbered: bool = False
    """Whether equal rows are different people, known by their row's number; else equal rows count as one."""

    def institutions(self, seed: int, data_root: Path | None) -> Institutions:
        """Pool, test and the institutions' records of one seed."""
        task = default_task(self.data)

        def part(start: int, stop: int | None) -> Any:
            source = DataSource(source=self.data, shuffle_seed=seed, start=start, stop=stop)
            return load(source, task, data_root=data_root)

        private = part(2 * self.public, None)
        if self.numbered:
            private = replace(private, groups=np.arange(len(private)).astype(np.str_))
        public = PublicData(part(0, self.public), part(self.public, 2 * self.public))
        return Institutions.of(
            task, private, partition(private, PartitionConfig(kind="column", column=self.column)), public, seed
        )

    def config(self, plan: Votes | Neighbours, seed: int) -> RunConfig:
        common = {
            "name": f"natural-{self.data}",
            "task": default_task(self.data).model_dump(),
            "pool": {"source": self.data, "shuffle_seed": seed, "stop": self.public},
            "holdout": {"source": self.data, "shuffle_seed": seed, "start": self.public, "stop": 2 * self.public},
            "seed": seed,
            "votes": {"mode": "clear"},
            "budget": {"epsilon": 100.0, "delta": 1e-5},
            "student": STUDENT,
        }
        return validate_config(common | plan.settings(), RunConfig, f"natural-{self.data}")

    def run(self, setting: Setting) -> dict[str, Any]:
        rows = []
        for seed in setting.seeds:
            institutions, pools = self.institutions(seed, setting.data_root), PoolStore(None)
            folder = setting.folder / f"seed-{seed}"
            parties = institutions.parties(folder / "parties", pools)
            everyone = InProcessParties(parties, f"natural-{self.data}")
            setting.say(f"seed {seed}: {len(parties)} institutions")
            row: dict[str, Any] = {
                "seed": seed,
                "institutions": len(parties),
                "records": [len(own) for own in institutions.records.values()],
                "majority": _majority(institutions),
                "model": {
                    "pooled": accuracies(institutions, [institutions.pooled(pools)], pools, TEACHER)[0],
                    "alone": accuracies(institutions, parties, pools, TEACHER),
                },
                "neighbours": neighbours_pooled_and_alone(institutions),
                "runs": [],
            }
            for number, plan in enumerate(self.plans):
                config = self.config(plan, seed)
                run = together(config, institutions, everyone, folder / f"run-{number}", setting, student=True)
                row["runs"].append({"plan": plan.name, **run})
                setting.say(f"{plan.name}: student {percent(run['student'])}, ε {run['record']:.2f}")
            rows.append(row)
        return {"rows": rows}

    def render(self, results: Mapping[str, Any]) -> str:
        rows = results["rows"]
        alone = [
            ["most frequent class", "–", mean_and_spread([row["majority"] for row in rows], percent), "–", "–"],
            *(
                [
                    what,
                    "–",
                    mean_and_spread([row[kind]["pooled"] for row in rows], percent),
                    "∞",
                    "∞",
                ]
                for kind, what in (("model", "pooled, linear model"), ("neighbours", "pooled, nearest neighbours"))
            ),
            *(
                [f"each alone, {what}", "–", _spread([one for row in rows for one in row[kind]["alone"]]), "–", "–"]
                for kind, what in (("model", "linear model"), ("neighbours", "nearest neighbours"))
            ),
        ]
        lines = []
        for number, run in enumerate(rows[0]["runs"]):
            runs = [row["runs"][number] for row in rows]
            lines.append(
                [
                    run["plan"],
                    mean_and_spread([one["labels"] for one in runs], percent),
                    mean_and_spread([one["student"] for one in runs], percent),
                    two_digits(max(one["record"] for one in runs)),
                    "not protected" if run["party"] is None else two_digits(max(one["party"] for one in runs)),
                ]
            )
        sizes = [size for row in rows for size in row["records"]]
        header = ["", "labels right", "accuracy on the test", "ε per record", "ε per institution"]
        return table(header, [*alone, *lines]) + (
            f"\n\n{rows[0]['institutions']} institutions of {min(sizes)} to {max(sizes)} records; by the seed "
            f"{self.public:,} records over all of them are the public pool, as many the test, and the claims are about "
            f"the others. Means over {len(rows)} seeds, smallest to largest in brackets; alone: lowest, quartiles and "
            "highest over institutions. Without privacy, neighbours are granted the k that is best on the test. ε is "
            "data-independent, the largest over the seeds (equal inputs are asked once); noise and queries were "
            "chosen on other seeds. Every institution has the same number of teachers: one that followed "
            "its number of records would tell it, and move more than one vote. "
            + ("Equal rows are different people." if self.numbered else "Equal rows count as one person.")
        )


SCHOOLS = Collected(
    "school",
    "school",
    1536,
    (
        Votes(1, 50, 40.0),
        Votes(1, 200, 60.0),
        Votes(2, 200, 60.0),
        Neighbours(200, 0.02, 50.0, 4),
        Neighbours(100, 0.02, 50.0, 2),
    ),
    numbered=True,  # most pupils have the columns and the class of another of their school
)
HEARTS = Collected(
    "heart",
    "hospital",
    184,
    (
        Votes(1, 10, 4.0),
        Votes(10, 20, 8.0),
        Neighbours(10, 0.2, 8.0, 2),
        Neighbours(20, 0.2, 16.0, 4),
    ),
)


@register
class NaturalSchools:
    """139 schools: do their pupils' exams reach 20 points?"""

    name: ClassVar[str] = "natural-schools"
    title: ClassVar[str] = "139 schools"
    source: ClassVar[str] = "Inner London Education Authority, 1985 to 1987"
    data: ClassVar[str] = "school"
    slow: ClassVar[bool] = True

    def run(self, setting: Setting) -> dict[str, Any]:
        return SCHOOLS.run(setting)

    def render(self, results: Mapping[str, Any]) -> str:
        return SCHOOLS.render(results)


@register
class NaturalHearts:
    """Four hospitals: is there a heart disease?"""

    name: ClassVar[str] = "natural-hearts"
    title: ClassVar[str] = "Four heart hospitals"
    source: ClassVar[str] = "UCI Heart Disease (Janosi, Steinbrunn, Pfisterer, Detrano 1988)"
    data: ClassVar[str] = "heart"
    slow: ClassVar[bool] = False

    def run(self, setting: Setting) -> dict[str, Any]:
        return HEARTS.run(setting)

    def render(self, results: Mapping[str, Any]) -> str:
        return HEARTS.render(results) + (
            "\n\nFour institutions cannot be hidden among each other: the noise that would hide one of four votes "
            "drowns the other three, and with more teachers each an institution moves them all. What can be "
            "protected well is a patient's record."
        )


def _majority(institutions: Institutions) -> float:
    """What always saying the class that is most frequent on the test would get."""
    assert institutions.public.holdout is not None
    counts = np.bincount(institutions.public.holdout.labels())
    return float(counts.max() / counts.sum())


def _spread(values: list[float]) -> str:
    low, first, middle, third, high = np.quantile(values, (0.0, 0.25, 0.5, 0.75, 1.0))
    return f"{percent(middle)} ({percent(low)}, {percent(first)} to {percent(third)}, {percent(high)})"
