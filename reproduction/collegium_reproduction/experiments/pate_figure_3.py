"""PATE Figure 3: how certain is the aggregation of teacher predictions?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from collegium_reproduction.experiments.base import Setting, percent, register, table
from collegium_reproduction.experiments.ensembles import MNIST, Ensemble, load_or_compute_votes
from collegium_reproduction.experiments.figures import OTHERS, OURS, PAPERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER_FLOOR = 0.6
"""“As n increases, the gap remains larger than 60 % of the teachers” (section 4.1)."""


@register
@dataclass(frozen=True)
class PateFigure3:
    """Mean gap between the two largest counts, as a share of the teachers, against their number."""

    name: ClassVar[str] = "pate-figure-3"
    title: ClassVar[str] = "MNIST: gap between the two largest counts"
    source: ClassVar[str] = "Papernot et al., ICLR 2017, Figure 3"
    data: ClassVar[str] = "mnist"
    slow: ClassVar[bool] = True

    ensemble: Ensemble = MNIST
    parties: tuple[int, ...] = (2, 5, 10, 100, 250)

    def run(self, setting: Setting) -> dict[str, Any]:
        rows = []
        for parties in self.parties:
            heard = [
                load_or_compute_votes(self.ensemble.of(parties=parties, seed=seed), setting) for seed in setting.seeds
            ]
            ordered = [np.sort(said.votes, axis=1) for said in heard]
            gaps = np.concatenate([counts[:, -1] - counts[:, -2] for counts in ordered]) / parties
            rows.append(
                {
                    "parties": parties,
                    "queries": len(heard[0].truth),
                    "gap": float(gaps.mean()),
                    "gap_tenth": float(np.quantile(gaps, 0.1)),
                    "teacher": float(np.mean([said.teachers.mean() for said in heard])),
                    "plurality": float(np.mean([(said.votes.argmax(1) == said.truth).mean() for said in heard])),
                }
            )
        return {"rows": rows}

    def render(self, results: Mapping[str, Any]) -> str:
        lines = [
            [
                str(row["parties"]),
                percent(row["gap"]),
                percent(row["gap_tenth"]),
                percent(row["teacher"]),
                percent(row["plurality"]),
            ]
            for row in results["rows"]
        ]
        header = ["teachers", "mean gap / teachers", "a tenth of the queries below", "mean teacher", "plurality"]
        return table(header, lines) + (
            f"\n\nAll {results['rows'][0]['queries']:,} test images. The paper prints its curve as a picture; its text "
            f"says that the gap “remains larger than 60 % of the teachers”, the line marked. More of the gap is what "
            "makes labels cheap by every data-dependent account. Our teachers take the same number of steps whatever "
            "they hold, so that a teacher with more records is hardly better."
        )

    def draw(self, results: Mapping[str, Any], figure: Figure) -> None:
        axes = figure.add_subplot()
        parties = [row["parties"] for row in results["rows"]]
        for key, label, colour, marker in (
            ("gap", "mean gap", OURS, "o"),
            ("gap_tenth", "a tenth of the queries lie below", OTHERS[0], "s"),
        ):
            axes.plot(parties, [100 * row[key] for row in results["rows"]], color=colour, marker=marker, label=label)
        axes.axhline(100 * PAPER_FLOOR, color=PAPERS, linestyle="--", label="the paper's text: above 60 %")
        axes.set(xscale="log", xlabel="teachers", ylabel="gap, % of the teachers", ylim=(0, 102))
        axes.set_xticks(parties, [str(count) for count in parties])
        axes.minorticks_off()
        axes.set_title("How certain is the aggregation of the teachers' votes?")
        axes.legend(loc="lower right")
