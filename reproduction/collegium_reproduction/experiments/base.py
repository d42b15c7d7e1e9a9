"""What an experiment is, and how its results are kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, runtime_checkable

from collegium.coordinator.run.coordinator import Progress
from collegium.errors import StorageError
from collegium.whole_files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Say = Callable[[str], None]

MADE = "made"
"""The key of results under which stands how they were made: seeds, times, versions."""


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
    ensembles : folder of the votes of fitted ensembles, shared by the experiments.
    workers : processes that fit teachers.
    device : what networks compute on: auto, cpu, cuda, cuda:1, …
    student : whether to also fit the students that an experiment can do without.
    """

    folder: Path
    data_root: Path | None
    seeds: Sequence[int]
    say: Say
    progress: Callable[[Progress], None] | None = None
    ensembles: Path = Path("runs/ensembles")
    workers: int = 1
    student: bool = False
    device: str = "auto"


class Experiment(Protocol):
    """One table or figure: `run` measures and returns plain values, `render` turns them into Markdown."""

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    """The paper and its table or figure."""
    data: ClassVar[str]
    """The data sets that it needs."""
    slow: ClassVar[bool]
    """Whether it takes more than a few minutes on two cores, once its ensembles are fitted."""

    def run(self, setting: Setting) -> dict[str, Any]: ...

    def render(self, results: Mapping[str, Any]) -> str: ...


@runtime_checkable
class Drawn(Protocol):
    """An experiment with a figure, which stands above its text on the page."""

    def draw(self, results: Mapping[str, Any], figure: Figure) -> None:
        """Draw the results on an empty figure; the house's style is set already."""


EXPERIMENTS: dict[str, Experiment] = {}

_Kind = TypeVar("_Kind", bound=type[Experiment])


def register(kind: _Kind) -> _Kind:
    """Class decorator: make an experiment known under its name."""
    EXPERIMENTS[kind.name] = kind()
    return kind


def kept_or_measured(path: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``measure`` returns, kept as JSON at ``path``: an experiment that was interrupted finds it there."""
    if not path.is_file():
        measured = measure()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(measured))
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


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
