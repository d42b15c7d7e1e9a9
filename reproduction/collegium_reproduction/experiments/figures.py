"""Pictures of results: one style, readable in print, the same bytes for the same results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collegium.errors import StorageError
from collegium_reproduction.experiments.base import Drawn
from collegium_reproduction.experiments.results_page import kept_results

OURS = "#1f5fa8"
PAPERS = "#c4451c"
OTHERS = ("#2f7d4f", "#7a4fa3", "#6b6b6b")
"""Colours that differ in lightness too: ours, the papers', and further curves."""

_STYLE: dict[Any, Any] = {
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "grid.alpha": 0.3,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "svg.hashsalt": "collegium",
}
_SIZE_INCHES = (7.0, 4.0)


def save_figure(experiment: Drawn, results: Mapping[str, Any], path: Path) -> None:
    """Draw the results of an experiment to an SVG file; StorageError when it cannot be written."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
        FigureCanvasSVG(figure)
        experiment.draw(results, figure)
        try:
            figure.savefig(path, metadata={"Date": None, "Creator": None})
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror}") from error


def save_figures(folder: Path) -> list[Path]:
    """Draw the pictures of all results under ``folder`` again; returns what was written."""
    written = []
    for name, experiment, results in kept_results(folder):
        if isinstance(experiment, Drawn):
            written.append(folder / f"{name}.svg")
            save_figure(experiment, results, written[-1])
    return written
