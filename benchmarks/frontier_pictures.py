"""Two pictures of the rows that ``benchmarks.frontier`` keeps: all sets and methods, and three sets for a newcomer.

``python -m benchmarks.frontier_pictures`` reads ``docs/research/frontier.json`` and writes ``frontier.svg`` beside it,
and ``docs/accuracy.svg``.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

from benchmarks.frontier import SETS, Row

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "collegium", "font.size": 8.5, "axes.titlesize": 9.5})

from matplotlib import pyplot as plt  # noqa: E402  (after the choice of the backend)

DRAWN = {
    "class-sums": ("Collegium, its default", "C0"),
    "noisy gradient": ("noisy gradient descent", "C1"),
    "dp-sgd network": ("DP-SGD, network", "C2"),
    "dp-sgd linear": ("DP-SGD, linear", "C8"),
    "dp-ebm": ("DP-EBM, boosting", "C6"),
    "dp-fedavg": ("DP-FedAvg", "C4"),
    "gnmax": ("PATE", "C3"),
    "private-knn": ("Private-kNN", "C5"),
    "pooled forest": ("no privacy: forest, all records", "0.35"),
    "no noise": ("no privacy: the same sums", "0.35"),
    "alone": ("no privacy: one institution", "0.35"),
}
"""The methods: their names in a picture and their colours."""

FLAT = {"pooled forest": "-.", "no noise": "--", "alone": ":"}
"""The styles of lines that do not depend on ε."""

FEW = {
    "hearts": "Patients of four hospitals\n(a table, 2 classes)",
    "medical": "Medical abstracts\n(text, 5 classes)",
    "schools": "Pupils of 139 schools\n(a table, 2 classes)",
}
"""The sets in the picture for a newcomer, on one of which a rival is ahead at ε = 2, and what stands above each."""

FEW_METHODS = ("class-sums", "noisy gradient", "dp-sgd linear", "gnmax", "no noise")


def draw(panel: Any, rows: list[Row], name: str, methods: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Draw one set's lines; AUROC where nine of ten records are of one class. ``{method: its line}``."""
    area, every, shown = name == "diabetes", [], {}
    for method, (label, colour) in methods.items():
        own = sorted((row.epsilon or 0.0, (row.auroc or 0.0) if area else row.accuracy)
                     for row in rows if (row.set, row.method) == (name, method))  # fmt: skip
        every += [value for _, value in own]
        if own and method in FLAT:
            shown[method] = panel.axhline(own[0][1], linestyle=FLAT[method], linewidth=1, color=colour, label=label)
        elif own:
            style = {"linewidth": 1, "markersize": 2.5}
            if method == "class-sums":
                style = {"linewidth": 2.4, "markersize": 4.5, "zorder": 3}
            shown[method] = panel.plot(*zip(*own, strict=True), "-o", color=colour, label=label, **style)[0]
    low, high = min(every), max(every)
    room = max(0.0, 5.0 - (high - low)) / 2 + 0.04 * (high - low)  # a tenth of a point shall not look large
    panel.set(xscale="log", xlim=(0.04, 2.5), ylim=(low - room, high + room))
    panel.set_xticks([0.05, 0.2, 0.5, 1, 2], ["0.05", "0.2", "0.5", "1", "2"])
    panel.minorticks_off()
    panel.grid(alpha=0.3)
    return shown


def plot(rows: list[Row], path: Path) -> None:
    """Accuracy against ε, one panel for each set of ``SETS`` on which rivals were run and whose pool is its own."""
    figure, panels = plt.subplots(2, 5, figsize=(10, 4.8), layout="constrained")
    shown: dict[str, Any] = {}
    rivals = {row.set for row in rows if row.method == "dp-fedavg"}
    compared = [name for name in SETS if name in rivals and "elsewhere" not in name]
    for panel, name in zip(panels.flat, compared, strict=False):
        shown |= draw(panel, rows, name, DRAWN)
        panel.set_title(f"{name}, AUROC in %" if name == "diabetes" else f"{name}, %")
    handles = [shown[method] for method in DRAWN if method in shown]
    panels[-1, -1].set_axis_off()
    panels[-1, -1].legend(handles=handles, loc="center", frameon=False, borderaxespad=0)
    figure.supxlabel("ε (δ = 1e-5; one record added or removed)", fontsize=9)
    figure.savefig(path, metadata={"Date": None})


def plot_few(rows: list[Row], path: Path) -> None:
    """The sets and methods of the README's picture, with titles at its axes."""
    figure, panels = plt.subplots(1, len(FEW), figsize=(9.6, 3.6), layout="constrained")
    shown: dict[str, Any] = {}
    for panel, (name, title) in zip(panels, FEW.items(), strict=True):
        shown |= draw(panel, rows, name, {method: DRAWN[method] for method in FEW_METHODS})
        panel.set_title(title)
        panel.set_xlabel("ε for one record: the smaller, the less may show")
    panels[0].set_ylabel("right answers about new records, in %")
    figure.legend(handles=[shown[method] for method in FEW_METHODS], loc="outside lower center", ncols=5, frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Draw both pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="the folder of the pages")
    docs = parser.parse_args().docs
    rows = [Row(**one) for one in json.loads((docs / "research" / "frontier.json").read_text(encoding="utf-8"))]
    plot(rows, docs / "research" / "frontier.svg")
    plot_few(rows, docs / "accuracy.svg")


if __name__ == "__main__":
    main()
