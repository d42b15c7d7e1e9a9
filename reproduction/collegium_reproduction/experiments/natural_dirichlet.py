"""MNIST over 250 institutions that see different digits: class shares by a Dirichlet distribution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from collegium.coordinator.settings.run_config import RunConfig, load_public
from collegium.data import DataSource, PoolStore, load
from collegium.settings import validate_config
from collegium.simulations.local import InProcessParties
from collegium.simulations.partitions import PartitionConfig, partition
from collegium_reproduction.experiments.base import Setting, mean_and_spread, percent, register, table, two_digits
from collegium_reproduction.experiments.institutions import (
    Institutions,
    accuracies,
    together,
    votes_on_the_test,
)

ALPHAS = (0.1, 1.0)
PARTIES = 250
QUERIES = 100
MECHANISMS: dict[str, dict[str, Any]] = {
    "LNMax, γ = 0.05": {"name": "lnmax", "parameters": {"gamma": 0.05}},
    "GNMax, σ = 40": {"name": "gnmax", "parameters": {"sigma": 40.0}},
}
PRIVATE = DataSource(source="mnist", split="train")

POOLED = {"steps": 1500, "batch": 128}
"""The pooled model is of the teachers' kind, with more steps for its more records."""

CONFIG: dict[str, Any] = {
    "name": "natural-dirichlet",
    "task": {"classes": tuple("0123456789"), "inputs": {"kind": "image", "height": 28, "width": 28}},
    "pool": {"source": "mnist", "split": "test", "stop": 9000},
    "holdout": {"source": "mnist", "split": "test", "start": 9000},
    "votes": {"mode": "clear"},
    "teachers": {"kind": "small-cnn"},
    "budget": {"epsilon": 25.0, "delta": 1e-5},
    "queries": {"count": QUERIES},
    "student": {"method": "consistency"},
}


@register
class NaturalDirichlet:
    """Noisy labels when most institutions have seen few of the digits."""

    name: ClassVar[str] = "natural-dirichlet"
    title: ClassVar[str] = "MNIST, 250 institutions with their own mix of digits"
    source: ClassVar[str] = "Label skew as in Hsu, Qi, Brown 2019; the mechanism of PATE"
    data: ClassVar[str] = "mnist"
    slow: ClassVar[bool] = True

    def run(self, setting: Setting) -> dict[str, Any]:
        config = validate_config(CONFIG, RunConfig, self.name)
        public = load_public(config, setting.data_root)
        private = load(PRIVATE, config.task, data_root=setting.data_root)
        rows = []
        for seed in setting.seeds:
            assert config.teachers is not None  # CONFIG names them
            teacher = config.teachers.model_copy(update={"seed": seed})
            pooled = None
            for alpha in ALPHAS:
                setting.say(f"seed {seed}, concentration {alpha:g}")
                parts = partition(private, PartitionConfig(kind="dirichlet", parties=PARTIES, seed=seed, alpha=alpha))
                institutions = Institutions.of(config.task, private, parts, public, seed)
                folder, pools = setting.folder / f"alpha-{alpha:g}-seed-{seed}", PoolStore(None)
                parties = institutions.parties(folder / "parties", pools)
                everyone = InProcessParties(parties, config.name)
                if pooled is None:
                    strong = teacher.model_copy(update={"options": POOLED})
                    pooled = accuracies(institutions, [institutions.pooled(pools)], pools, strong)[0]
                    setting.say(f"pooled {percent(pooled)}")
                row: dict[str, Any] = {
                    "seed": seed,
                    "alpha": alpha,
                    "parties": len(parties),
                    "classes": [len(np.unique(own.labels())) for own in institutions.records.values()],
                    "records": [len(own) for own in institutions.records.values()],
                    "pooled": pooled,
                    "runs": {},
                }
                for number, (name, mechanism) in enumerate(MECHANISMS.items()):
                    chosen = config.model_copy(
                        update={
                            "seed": seed,
                            "teachers": teacher,
                            "mechanism": config.mechanism.model_copy(update=mechanism),
                        }
                    )
                    run_folder = folder / f"run-{number}"
                    row["runs"][name] = together(
                        chosen, institutions, everyone, run_folder, setting, student=setting.student
                    )
                    setting.say(f"{name}: labels {percent(row['runs'][name]['labels'])}")
                votes = votes_on_the_test(institutions, parties, pools, teacher)
                row["alone"] = [institutions.accuracy(one.argmax(axis=1)) for one in votes]
                row["plurality"] = institutions.accuracy(np.sum(votes, axis=0).argmax(axis=1))
                setting.say(f"mean teacher {percent(float(np.mean(row['alone'])))}")
                rows.append(row)
        return {"rows": rows}

    def render(self, results: Mapping[str, Any]) -> str:
        lines = []
        for alpha in ALPHAS:
            rows = [row for row in results["rows"] if row["alpha"] == alpha]
            for name in MECHANISMS:
                runs = [row["runs"][name] for row in rows]
                students = [run["student"] for run in runs if run["student"] is not None]
                lines.append(
                    [
                        f"{alpha:g}",
                        f"{np.mean([np.median(row['classes']) for row in rows]):.0f}",
                        mean_and_spread([float(np.mean(row["alone"])) for row in rows], percent),
                        percent(max(max(row["alone"]) for row in rows)),
                        mean_and_spread([row["plurality"] for row in rows], percent),
                        name,
                        mean_and_spread([run["labels"] for run in runs], percent),
                        mean_and_spread([run["record"] for run in runs], two_digits),
                        mean_and_spread(students, percent) if students else "–",
                        mean_and_spread([row["pooled"] for row in rows], percent),
                    ]
                )
        header = ["concentration", "digits an institution has seen, median", "alone, mean", "alone, best"]
        header += ["plurality without noise", "mechanism", f"labels of {QUERIES} queries", "ε", "student", "pooled"]
        counts = sorted({row["parties"] for row in results["rows"]})
        return table(header, lines) + (
            f"\n\nOne teacher per institution: ε is the same per record and per institution, data-independent. "
            f"{PARTIES} shares are drawn; those without a record take no part ({counts[0]} to {counts[-1]} do). Alone, "
            "plurality and pooled are measured on 1,000 images held out, labels on the queries; the pooled model has "
            "no privacy."
        )
