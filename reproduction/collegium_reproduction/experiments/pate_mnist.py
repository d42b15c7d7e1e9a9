"""PATE on MNIST with 250 parties: 100 and 1,000 LNMax queries at γ = 0.05."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

from collegium.coordinator.run.run_folder import read_labels
from collegium.coordinator.run.run_record import RunRecord, reached
from collegium.settings import validate_config
from collegium.simulations.cohort import PreparedRun, prepare_run
from collegium.simulations.config import SimulationConfig, with_changes
from collegium.simulations.simulate import simulate
from collegium_accounting.mechanisms.lnmax import LNMax
from collegium_reproduction.experiments.base import (
    Setting,
    mean_and_spread,
    percent,
    register,
    table,
    two_digits,
)
from collegium_reproduction.experiments.epsilons import independent_epsilons
from collegium_reproduction.teacher_votes import teacher_votes, vote_figures

QUERIES = (100, 1000)

PAPER = {
    100: {"student": 0.9800, "epsilon": 2.04},
    1000: {"student": 0.9810, "epsilon": 8.03},
}
"""Papernot et al., ICLR 2017, Figure 4; its ensemble: mean teacher 83.86 %, noisy labels 93.18 %."""

_DIGITS = tuple("0123456789")
_MECHANISM = LNMax(gamma=0.05)

CONFIG: dict[str, Any] = {
    "name": "pate-mnist",
    "task": {"classes": _DIGITS, "inputs": {"kind": "image", "height": 28, "width": 28}},
    "private": {"source": "mnist", "split": "train"},
    "pool": {"source": "mnist", "split": "test", "stop": 9000},
    "holdout": {"source": "mnist", "split": "test", "start": 9000},
    "partition": {"kind": "iid", "parties": 250},
    "teachers": {"kind": "small-cnn"},
    "mechanism": {"name": "lnmax", "parameters": {"gamma": 0.05}},
    "budget": {"epsilon": 25.0, "delta": 1e-5},
    "student": {"method": "consistency"},
    "baseline": {"options": {"steps": 1500, "batch": 128}},
}


@register
class PateMnist:
    """The paper's headline table, ε by its own analysis and by ours."""

    name: ClassVar[str] = "pate-mnist"
    title: ClassVar[str] = "MNIST, 250 parties, LNMax γ = 0.05"
    source: ClassVar[str] = "Papernot et al., ICLR 2017, Figure 4 and section 4.1"
    data: ClassVar[str] = "mnist"
    slow: ClassVar[bool] = True

    def run(self, setting: Setting) -> dict[str, Any]:
        config = validate_config(CONFIG, SimulationConfig, self.name)
        rows = []
        for seed in setting.seeds:
            for queries in QUERIES:
                setting.say(f"seed {seed}, {queries} queries")
                began_s = time.monotonic()
                run = prepare_run(
                    with_changes(config, queries=queries, seed=seed),
                    setting.folder / f"seed-{seed}",
                    data_root=setting.data_root,
                )
                record = simulate(run, setting.progress)
                rows.append(_row(run, record, seed, queries, time.monotonic() - began_s))
                setting.say(f"student {percent(rows[-1]['student'])}, ε {rows[-1]['epsilon']:.2f}")
        return {"rows": rows}

    def recount(self, results: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "rows": [
                {"epsilon": independent_epsilons(_MECHANISM, row["queries"])["independent"]} for row in results["rows"]
            ]
        }

    def render(self, results: Mapping[str, Any]) -> str:
        lines = []
        for queries in QUERIES:
            rows = [row for row in results["rows"] if row["queries"] == queries]
            if not rows:
                continue
            paper = PAPER[queries]
            lines += [
                [f"{queries}", "paper", percent(paper["student"]), "93.18 %", "83.86 %", two_digits(paper["epsilon"])]
                + ["–"] * 3,
                [f"{queries}", f"Collegium, {len(rows)} seeds"]
                + [mean_and_spread([row[key] for row in rows], percent) for key in ("student", "labels", "teachers")]
                + [
                    mean_and_spread([row[key] for row in rows], two_digits)
                    for key in ("epsilon_paper_grid", "epsilon_paper_bound", "epsilon_exact", "epsilon")
                ],
            ]
        header = ["queries", "", "student", "noisy labels", "mean teacher"]
        header += ["ε, Theorem 3, λ ≤ 8", "ε, Theorem 3, wide grid", "ε, exact", "ε, data-independent"]
        last = results["rows"][-1]
        seconds = sum(row["seconds"] for row in results["rows"] if row["seed"] == last["seed"])
        return table(header, lines) + (
            f"\n\nThe first three ε depend on the votes and are for comparison only: they may not be published as they "
            f"stand. The last one may. Students are measured on the {last['holdout']} images held out, a pooled "
            f"non-private model of the same architecture reaches {percent(last['baseline'])}; the mean gap is "
            f"{percent(last['gap'])} of the votes. Seeds {', '.join(str(s) for s in _seeds(results))}; "
            f"{seconds / 60:.0f} minutes for the last one, 100 and then 1,000 queries, on two shared cores."
        )


def _seeds(results: Mapping[str, Any]) -> list[int]:
    return sorted({row["seed"] for row in results["rows"]})


def _row(run: PreparedRun, record: RunRecord, seed: int, queries: int, seconds: float) -> dict[str, Any]:
    pool = run.public.pool
    asked = [index for index, _ in read_labels(run.folder / "labels.csv")]
    votes = vote_figures(teacher_votes(run, pool.x[asked]), pool.labels()[asked], _MECHANISM, run.config.budget.delta)
    secret = votes.epsilons
    return {
        "seed": seed,
        "queries": queries,
        "answered": reached(record.labels).answered,
        "student": record.student_accuracy,
        "holdout": reached(reached(record.student).quality).inputs,
        "baseline": reached(record.baseline).accuracy,
        "labels": record.label_accuracy,
        "teachers": votes.teacher_accuracy,
        "plurality": votes.plurality_accuracy,
        "gap": votes.gap,
        "epsilon": reached(record.privacy).units["record"],
        "epsilon_paper_grid": reached(secret.paper_bound_moments).epsilon,
        "epsilon_paper_bound": reached(secret.paper_bound).epsilon,
        "epsilon_exact": reached(secret.exact).epsilon,
        "seconds": seconds,
    }
