"""The ensemble of PATE: how good one teacher is, and how good the noisy label of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from collegium_accounting.mechanisms import create
from collegium_reproduction.experiments.base import Setting, mean_and_spread, percent, register, table
from collegium_reproduction.experiments.ensembles import MNIST, Ensemble, load_or_compute_votes
from collegium_reproduction.experiments.epsilons import label_accuracy

GAMMA = 0.05
PAPER = {"teacher": 0.8386, "lnmax": 0.9318}
MECHANISMS = ("lnmax", "exponential")
KINDS = {"small-cnn": "Collegium's default", "paper-cnn": "the paper's network, in Collegium"}
_DRAWS = 20


@register
@dataclass(frozen=True)
class PateNoisyLabels:
    """Mean teacher, plurality and noisy labels at γ = 0.05 over the whole test set."""

    name: ClassVar[str] = "pate-noisy-labels"
    title: ClassVar[str] = "MNIST, 250 teachers: one teacher and their noisy label at γ = 0.05"
    source: ClassVar[str] = "Papernot et al., ICLR 2017, section 4.1"
    data: ClassVar[str] = "mnist"
    slow: ClassVar[bool] = True

    ensemble: Ensemble = MNIST
    kinds: tuple[str, ...] = ("small-cnn",)

    def run(self, setting: Setting) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        for kind in self.kinds:
            for seed in setting.seeds:
                said = load_or_compute_votes(
                    self.ensemble.of(parties=self.ensemble.parties, seed=seed, kind=kind), setting
                )
                plurality = float((said.votes.argmax(axis=1) == said.truth).mean())
                rows.append(
                    {
                        "kind": kind,
                        "seed": seed,
                        "parties": self.ensemble.parties,
                        "queries": len(said.truth),
                        "teacher": float(np.mean(said.teachers)),
                        "plurality": plurality,
                        "fitting_cpu_s": said.cpu_s,
                        **{
                            name: label_accuracy(
                                create(name, gamma=GAMMA), said.votes, said.truth, draws=_DRAWS, seed=seed
                            )
                            for name in MECHANISMS
                        },
                    }
                )
                setting.say(f"{kind}, seed {seed}: LNMax {percent(rows[-1]['lnmax'])}")
        return {"rows": rows, "draws": _DRAWS}

    def render(self, results: Mapping[str, Any]) -> str:
        lines = [["the paper", percent(PAPER["teacher"]), "–", percent(PAPER["lnmax"]), "–", "–"]]
        for kind, title in KINDS.items():
            rows = [row for row in results["rows"] if row["kind"] == kind]
            if not rows:
                continue
            cells = [
                mean_and_spread([row[key] for row in rows], percent)
                for key in ("teacher", "plurality", "lnmax", "exponential")
            ]
            seconds = np.mean([row["fitting_cpu_s"] for row in rows])
            lines.append([f"{title}, {_seeds(len(rows))}", *cells, f"{seconds:.0f} s"])
        header = ["teachers", "mean teacher", "plurality, no noise", "LNMax label", "exponential mechanism"]
        header.append("processor time to fit and ask them")
        first = results["rows"][0]
        return table(header, lines) + (
            f"\n\n{first['parties']} teachers, all {first['queries']:,} test images, mean over {results['draws']} "
            "draws of the noise. LNMax and the exponential mechanism are both (0.1, 0)-DP per label at γ = 0.05; the "
            "second costs less by Rényi accounts. The paper's “privacy budget of ε = 0.05 per query” is γ: a label is "
            "(0.1, 0)-DP."
        )


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"
