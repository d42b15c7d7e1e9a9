"""How kept results become the page of all results: one chapter for each paper, what matters most at the top."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from collegium_reproduction.experiments.base import EXPERIMENTS, MADE, Drawn, Experiment

Kept = tuple[str, Experiment, dict[str, Any]]

CHAPTERS = (
    ("At one glance", ("mnist-frontier",)),
    ("PATE (Papernot et al. 2017)", ("pate-",)),
    ("GNMax (Papernot et al. 2018)", ("gnmax-",)),
    ("Near-zero-cost (ICLR 2020 submission)", ("nzc-",)),
    ("Private-kNN (Zhu et al. 2020)", ("knn-",)),
    ("Individual neighbours", ("individual-",)),
    ("Institutions as they are", ("natural-",)),
)
"""Titles, and how the names of their experiments begin; all others stand at the end."""
_OTHERS = "Others"

WAS = "was"
"""The key of figures that earlier bounds gave, each under its place in the results, like ``rows[0].epsilon``."""


def render_results(folder: Path) -> str:
    """The page of all results under ``folder``."""
    chapters = [(title, list(kept)) for title, kept in _chapters(list(kept_results(folder))) if kept]
    parts = [
        "# Results",
        "Every figure here comes from the JSON files in `docs/research/results/`, which `collegium reproduce NAME` "
        "writes; `collegium reproduce --page` makes this page and its pictures from them. `collegium reproduce "
        "--check` computes those figures again that need no training, and says which differ. ε is at δ = 1e-5 unless "
        "said otherwise. ε marked *secret* depends on the votes: it is for comparison only and may not be published as "
        "it stands.",
        "\n".join(
            f"- **{title}**: " + "; ".join(f"[{experiment.title}](#{name})" for name, experiment, _ in kept)
            for title, kept in chapters
        ),
    ]
    for title, kept in chapters:
        parts.append(f"## {title}")
        for name, experiment, results in kept:
            # Links lead to names, which stay when a title is put better.
            parts += [f'<a id="{name}"></a>\n\n### {experiment.title}']
            parts.append(f"{experiment.source}. `collegium reproduce {name}`")
            if isinstance(experiment, Drawn):
                parts.append(f"![{experiment.title}]({folder.name}/{name}.svg)")
            parts.append(experiment.render(results))
            if WAS in results:
                parts.append(_what_was(results))
            if MADE in results:
                parts.append(_how_made(results[MADE]))
    return "\n\n".join(parts) + "\n"


def _what_was(results: Mapping[str, Any]) -> str:
    """Which figures are others now, and what they were."""
    changes = []
    for place, before in results[WAS].items():
        now: Any = results
        for step in place.replace("[", ".").replace("]", "").split("."):
            now = now[int(step)] if step.isdigit() else now[step]
        changes.append(f"{now:.3g} (was {before:.3g})")
    return (
        f"ε counted again, by Rényi bounds before and by the exact accountant now: {', '.join(dict.fromkeys(changes))}."
    )


def kept_results(folder: Path) -> Iterator[Kept]:
    """The experiments that have results under ``folder``, with these, in the order of their names."""
    for name, experiment in sorted(EXPERIMENTS.items()):
        path = folder / f"{name}.json"
        if path.is_file():
            yield name, experiment, json.loads(path.read_text(encoding="utf-8"))


def _chapters(kept: list[Kept]) -> Iterator[tuple[str, list[Kept]]]:
    for title, beginnings in CHAPTERS:
        yield title, [one for one in kept if one[0].startswith(beginnings)]
    known = tuple(beginning for _, beginnings in CHAPTERS for beginning in beginnings)
    yield _OTHERS, [one for one in kept if not one[0].startswith(known)]


def _how_made(made: Mapping[str, Any]) -> str:
    seeds = ", ".join(map(str, made["seeds"]))
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    return f"<sub>Seeds {seeds}; {made['wall_s']:.0f} s, {made['cpu_s']:.0f} s of processor time; {versions}.</sub>"
