"""What an experiment is, and how results become a page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from collegium.coordinator.coordinator import Progress
from collegium.protocol.errors import StorageError

Say = Callable[[str], None]


@dataclass(frozen=True)
class Setting:
    """Where an experiment works.

    Parameters
    ----------
    folder : for its runs; started again, it goes on where it was.
    data_root : folder of the data files.
    seeds : one repetition each.
    say : told one line at a time how it goes.
    progress : called as the steps of a run go on.
    """

    folder: Path
    data_root: Path | None
    seeds: Sequence[int]
    say: Say
    progress: Callable[[Progress], None] | None = None


class Experiment(Protocol):
    """One table or figure: `run` measures and returns plain values, `render` turns them into Markdown."""

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    """The paper and its table or figure."""

    def run(self, setting: Setting) -> dict[str, Any]: ...

    def render(self, results: Mapping[str, Any]) -> str: ...


EXPERIMENTS: dict[str, Experiment] = {}

_Kind = TypeVar("_Kind", bound=type[Experiment])


def register(kind: _Kind) -> _Kind:
    """Class decorator: make an experiment known under its name."""
    EXPERIMENTS[kind.name] = kind()
    return kind


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def mean_and_spread(values: Sequence[float], unit: Callable[[float], str]) -> str:
    """The mean, and the smallest and largest where there are several."""
    mean = sum(values) / len(values)
    return unit(mean) if len(values) == 1 else f"{unit(mean)} ({unit(min(values))} to {unit(max(values))})"


def percent(fraction: float) -> str:
    return f"{100 * fraction:.2f} %"


def two_digits(value: float) -> str:
    return f"{value:.2f}"


def save_results(folder: Path, name: str, results: Mapping[str, Any]) -> Path:
    """Write an experiment's results as JSON under ``folder``."""
    path = folder / f"{name}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error
    return path


def render_results(folder: Path) -> str:
    """The page of all results under ``folder``, in the order in which experiments are registered."""
    parts = [
        "# Results",
        "Every figure here comes from the JSON files in `docs/results/`, which `collegium reproduce NAME` writes; "
        "`collegium reproduce --page` makes this page from them. ε is at δ = 1e-5 unless said otherwise.",
    ]
    for name, experiment in EXPERIMENTS.items():
        path = folder / f"{name}.json"
        if path.is_file():
            results = json.loads(path.read_text(encoding="utf-8"))
            command = f"`collegium reproduce {name}`"
            parts += [f"## {experiment.title}", f"{experiment.source}. {command}", experiment.render(results)]
    return "\n\n".join(parts) + "\n"
