"""The record of an open run together with its folder and whoever watches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from collegium.coordinator.run.progress import Progress
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.run.surroundings import Watch
from collegium.errors import CollegiumError


class RunNotes:
    """Notes what happens in a run, and tells it."""

    def __init__(self, record: RunRecord, folder: RunFolder, watch: Watch) -> None:
        self.record, self._folder, self._watch = record, folder, watch

    def write(self) -> None:
        """Replace run.json by the record as it is now."""
        self._folder.write(self.record)

    def tell(self, step: str, done: int, total: int) -> None:
        """Tell whoever watches how far a step is."""
        if self._watch.on_progress is not None:
            self._watch.on_progress(Progress(step, done, total))

    def now_s(self) -> float:
        """Monotonic seconds."""
        return self._watch.clock()

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Note how long what is done within this context takes, as a part of ``step``."""
        began_s = self.now_s()
        yield
        self.record.note_seconds(step, self.now_s() - began_s)

    @contextmanager
    def errors_noted(self) -> Iterator[None]:
        """An error that ends what is done within this context becomes the state of the run."""
        try:
            yield
        except CollegiumError as error:
            self.record.state = f"stopped: {error}"
            self.write()
            raise
