"""Individual nearest neighbours on MNIST: few labels by representative queries, ε per record a constant."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from collegium.coordinator.run.coordinator import CoordinatorRun, Reach, Storage, Watch
from collegium.coordinator.run.run_record import reached
from collegium.coordinator.settings.run_config import PublicData, RunConfig, load_public
from collegium.data import DataSource, Examples, PoolStore, load
from collegium.parties.party import Party, unrestricted
from collegium.parties.teachers.splits import simulated_key
from collegium.settings import validate_config
from collegium.simulations.local import InProcessParties
from collegium.simulations.partitions import PartitionConfig, partition
from collegium_reproduction.experiments.base import Setting, mean_and_spread, percent, register, table
from collegium_reproduction.experiments.epsilons import participation_epsilons

_DIGITS = tuple("0123456789")

CONFIG: dict[str, Any] = {
    "name": "individual-knn",
    "task": {"classes": _DIGITS, "inputs": {"kind": "image", "height": 28, "width": 28}},
    "pool": {"source": "mnist", "split": "test", "stop": 5000},
    "holdout": {"source": "mnist", "split": "test", "start": 5000},
    "votes": {"mode": "clear"},
    "mechanism": {"name": "individual-knn"},
    "budget": {"epsilon": 1.0, "delta": 1e-5},
    "neighbours": {"features": "hog", "share": 0.5},
    "queries": {"choice": "representative"},
    "student": {"method": "consistency"},
}

PRIVATE = DataSource(source="mnist", split="train")


@dataclass(frozen=True)
class Plan:
    """One row: how many queries, the expected neighbours among 60,000 records, the noise, the votes a record has."""

    queries: int
    neighbours: int
    sigma: float
    participations: int

    def config(self, seed: int) -> RunConfig:
        config = validate_config(CONFIG, RunConfig, "individual-knn")
        parameters: dict[str, float] = {"sigma": self.sigma, "participations": self.participations}
        assert config.neighbours is not None
        return config.model_copy(
            update={
                "seed": seed,
                "mechanism": config.mechanism.model_copy(update={"parameters": parameters}),
                "queries": config.queries.model_copy(update={"count": self.queries}),
                "neighbours": config.neighbours.model_copy(update={"share": self.neighbours / 60_000}),
            }
        )


PLANS = (Plan(40, 1000, 70.0, 1), Plan(100, 600, 50.0, 2))
PARTIES = (1, 50)
"""All records in one process (exact), and dealt to 50 parties: the labels must be the same."""


@register
class IndividualKnn:
    """Labels and ε of 40 and 100 queries, and the student that the labels of the first seed make."""

    name: ClassVar[str] = "individual-knn"
    title: ClassVar[str] = "MNIST, individual nearest neighbours"
    source: ClassVar[str] = "Zhu et al. 2023; docs/research/individual-neighbours.md"
    data: ClassVar[str] = "mnist"
    slow: ClassVar[bool] = True

    def run(self, setting: Setting) -> dict[str, Any]:
        config = PLANS[0].config(0)
        public = load_public(config, setting.data_root)
        private = load(PRIVATE, config.task, data_root=setting.data_root)
        rows = []
        for plan in PLANS:
            for seed in setting.seeds:
                for parties in PARTIES:
                    folder = _folder(plan, seed, parties, setting)
                    setting.say(f"{plan.queries} queries, {parties} parties, seed {seed}")
                    rows.append(_measure(plan, seed, parties, private, public, folder, setting))
                    setting.say(f"labels {percent(rows[-1]['labels'])}, ε {rows[-1]['epsilon']:.3f}")
        for row in rows:
            if row["parties"] == 1 and row["seed"] == setting.seeds[0]:
                plan = next(plan for plan in PLANS if plan.queries == row["queries"])
                setting.say(f"{plan.queries} labels, student")
                row["student"] = _student(plan, row["seed"], public, setting)
                setting.say(f"student {percent(row['student'])}")
        for row in rows:
            row["labels_sha256"] = hashlib.sha256(row.pop("labels_csv").encode()).hexdigest()
        return {"rows": rows, "records": len(private)}

    def recount(self, results: Mapping[str, Any]) -> dict[str, Any]:
        plans = {plan.queries: plan for plan in PLANS}
        rows = [plans[row["queries"]] for row in results["rows"]]
        return {"rows": [participation_epsilons(plan.sigma, plan.participations) for plan in rows]}

    def render(self, results: Mapping[str, Any]) -> str:
        lines = []
        for plan in PLANS:
            rows = [row for row in results["rows"] if row["queries"] == plan.queries]
            if not rows:
                continue
            exact = [row for row in rows if row["parties"] == 1]
            students = [row["student"] for row in exact if "student" in row]
            same = all(
                row["labels_sha256"] == other["labels_sha256"]
                for row in rows
                for other in exact
                if other["seed"] == row["seed"]
            )
            lines.append(
                [
                    f"{plan.queries}",
                    f"{plan.neighbours}",
                    f"{plan.sigma:g}",
                    f"{plan.participations}",
                    mean_and_spread([row["labels"] for row in exact], percent),
                    f"{exact[0]['epsilon']:.3f}",
                    f"{exact[0]['epsilon_pld']:.3f}",
                    mean_and_spread(students, percent) if students else "–",
                    "the same" if same else "other labels",
                ]
            )
        header = ["queries", "neighbours in the radius", "σ", "votes a record has", "labels"]
        header += ["ε", "ε, loss distribution", "student", f"over {PARTIES[1]} parties"]
        return table(header, lines) + (
            f"\n\nUnit: one of {results['records']} records, added or removed; δ = 1e-5. ε is a constant of the terms, "
            "whatever the votes were and however many queries are asked: it may be published. Queries are cluster "
            "centres of the 5,000 public images, radii are those within which the same share of the public images "
            "lies. Students, of the first seed alone, are measured on the other 5,000 images of the test set. Labels "
            "differ between seeds mostly by the queries that the clustering chose."
        )


def _folder(plan: Plan, seed: int, parties: int, setting: Setting) -> Path:
    return setting.folder / f"{plan.queries}-queries-{parties}-parties-seed-{seed}"


def _student(plan: Plan, seed: int, public: PublicData, setting: Setting) -> float:
    """Accuracy of the student from labels that are there already: nobody is asked again."""
    nobody = Reach(InProcessParties([], "individual-knn"))
    folder = Storage(_folder(plan, seed, 1, setting))
    run = CoordinatorRun(plan.config(seed), nobody, folder, public=public, watch=Watch(setting.progress)).fit()
    return reached(run.student_accuracy)


def _measure(  # noqa: PLR0913 -- a row of the table has so many columns
    plan: Plan, seed: int, parties: int, private: Examples, public: PublicData, folder: Path, setting: Setting
) -> dict[str, Any]:
    config = plan.config(seed)
    names = [f"party-{number:02d}" for number in range(parties)]
    dealt = PartitionConfig(parties=parties, seed=seed)
    parts = partition(private, dealt) if parties > 1 else [np.arange(len(private))]
    pools = PoolStore(None)
    members = [
        Party(
            name,
            private.take(part),
            config.task,
            folder=folder / "parties" / name,
            pools=pools,
            split_key=simulated_key(seed, name),
            policy=unrestricted,
        )
        for name, part in zip(names, parts, strict=True)
    ]
    began_s = time.process_time()
    coordinator = CoordinatorRun(
        config,
        Reach(InProcessParties(members, config.name)),
        Storage(folder),
        public=public,
        watch=Watch(setting.progress),
    )
    run = coordinator.label()
    labels_s = time.process_time() - began_s
    return {
        "queries": plan.queries,
        "parties": parties,
        "seed": seed,
        "answered": reached(run.labels).answered,
        "labels": run.label_accuracy,
        "epsilon": reached(run.privacy).units["record"],
        "epsilon_pld": participation_epsilons(plan.sigma, plan.participations)["epsilon_pld"],
        "labels_csv": (folder / "labels.csv").read_text(encoding="utf-8"),
        "cpu_s": labels_s,
    }
