"""PATE Figure 2: how much noise can be injected into a query?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from collegium_accounting.mechanisms import create
from collegium_reproduction.experiments.base import Setting, percent, register, table
from collegium_reproduction.experiments.ensembles import MNIST, Ensemble, load_or_compute_votes
from collegium_reproduction.experiments.epsilons import label_accuracy
from collegium_reproduction.experiments.figures import OTHERS, OURS, PAPERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAMMAS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)
PAPER_POINT = {"parties": 250, "gamma": 0.05, "accuracy": 0.9318}
"""The one point of the figure that the text states."""

_DRAWS = 20
_SHOWN = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@register
@dataclass(frozen=True)
class PateFigure2:
    """Accuracy of LNMax labels against γ for several numbers of teachers."""

    name: ClassVar[str] = "pate-figure-2"
    title: ClassVar[str] = "MNIST: accuracy of noisy labels against γ"
    source: ClassVar[str] = "Papernot et al., ICLR 2017, Figure 2"
    data: ClassVar[str] = "mnist"
    slow: ClassVar[bool] = True

    ensemble: Ensemble = MNIST
    parties: tuple[int, ...] = (10, 100, 250)

    def run(self, setting: Setting) -> dict[str, Any]:
        curves = [
            self._curve(parties, mechanism, setting)
            for mechanism in ("lnmax", "exponential")
            for parties in (self.parties if mechanism == "lnmax" else self.parties[-1:])
        ]
        return {"curves": curves, "draws": _DRAWS}

    def _curve(self, parties: int, mechanism: str, setting: Setting) -> dict[str, Any]:
        setting.say(f"{mechanism}, {parties} teachers")
        heard = [
            (seed, load_or_compute_votes(self.ensemble.of(parties=parties, seed=seed), setting))
            for seed in setting.seeds
        ]
        accuracy = [
            [
                label_accuracy(create(mechanism, gamma=gamma), said.votes, said.truth, draws=_DRAWS, seed=seed)
                for seed, said in heard
            ]
            for gamma in GAMMAS
        ]
        return {
            "parties": parties,
            "mechanism": mechanism,
            "queries": len(heard[0][1].truth),
            "gamma": list(GAMMAS),
            "accuracy": [float(np.mean(of_seeds)) for of_seeds in accuracy],
        }

    def render(self, results: Mapping[str, Any]) -> str:
        lines = []
        for curve in results["curves"]:
            found = dict(zip(curve["gamma"], curve["accuracy"], strict=True))
            lines.append([_title(curve), *(percent(found[gamma]) for gamma in _SHOWN)])
        lines.append(
            [f"the paper, {PAPER_POINT['parties']} teachers"]
            + [percent(PAPER_POINT["accuracy"]) if gamma == PAPER_POINT["gamma"] else "–" for gamma in _SHOWN]
        )
        return table(["", *(f"γ = {gamma:g}" for gamma in _SHOWN)], lines) + (
            f"\n\nAll {results['curves'][0]['queries']:,} test images, mean over {results['draws']} draws of noise. "
            "The paper prints its curves as a picture and states one point of them in numbers, marked. Its "
            "text that “a large γ leads to a strong privacy guarantee” is the wrong way round: a label is (2γ, 0)-DP."
        )

    def draw(self, results: Mapping[str, Any], figure: Figure) -> None:
        axes = figure.add_subplot()
        colours = iter((*OTHERS[:2], OURS))
        for curve in results["curves"]:
            if curve["mechanism"] == "lnmax":
                style: dict[str, Any] = {"color": next(colours, OURS), "marker": "o"}
            else:
                style = {"color": OURS, "linestyle": "--"}
            axes.plot(curve["gamma"], 100 * np.array(curve["accuracy"]), label=_title(curve), **style)
        axes.plot(
            PAPER_POINT["gamma"],
            100 * PAPER_POINT["accuracy"],
            marker="*",
            markersize=13,
            linestyle="",
            color=PAPERS,
            label="the paper, 250 teachers",
            zorder=5,
        )
        axes.set(xscale="log", xlabel="γ per query (1 / votes)", ylabel="labels that are right, %", ylim=(0, 102))
        axes.set_title("How much noise can be injected into a query?")
        axes.legend(loc="lower right")


def _title(curve: Mapping[str, Any]) -> str:
    name = "LNMax" if curve["mechanism"] == "lnmax" else "exponential mechanism"
    return f"{name}, {curve['parties']} teachers"
