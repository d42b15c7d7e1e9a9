"""What a run shows while it goes on: one bar per step at a terminal, plain lines where output is piped."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from collegium.coordinator.run.surroundings import Progress as Step

_TITLES = {
    "describe": "parties present",
    "hold_pool": "pool, MB at parties",
    "fit": "teachers fitted",
    "votes": "votes in",
    "labels": "labels issued",
    "pretraining": "pretraining's steps",
    "interim student": "interim student",
    "student": "student's steps",
    "baseline": "baseline's steps",
    "report": "report written",
}

_MEGABYTE = 1_000_000


class RunProgress:
    """Shows steps as they come; a context manager. Safe to call from another thread than the console's."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tasks: dict[str, TaskID] = {}
        self._shown_tenths: dict[str, int] = {}
        self._bars = Progress(
            TextColumn("{task.description:<20}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> RunProgress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def __call__(self, step: Step) -> None:
        title = _TITLES.get(step.step, step.step)
        if step.step == "hold_pool":
            step = Step(step.step, step.done // _MEGABYTE, max(1, step.total // _MEGABYTE))
        if self._console.is_terminal:
            if step.step not in self._tasks:
                self._tasks[step.step] = self._bars.add_task(title, total=step.total)
            self._bars.update(self._tasks[step.step], completed=step.done, total=step.total)
            return
        tenths = 10 * step.done // max(1, step.total)
        if self._shown_tenths.get(step.step) != tenths:
            self._shown_tenths[step.step] = tenths
            self._console.print(f"{title}: {step.done} of {step.total}", highlight=False)
