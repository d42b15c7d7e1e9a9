"""The baseline of a simulation: what the pooled records would give without privacy.

A student is fitted with torch's own generator, of which a process has one. So what is measured beside a run is measured
in a process of its own.
"""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.run.label_set import prediction_quality
from collegium.coordinator.run.run_record import BaselineRecord
from collegium.coordinator.run.surroundings import OnProgress, Progress
from collegium.data.task import Task
from collegium.errors import CollegiumError
from collegium.simulations.party_processes import give

if TYPE_CHECKING:
    from collegium.simulations.cohort import PreparedRun


@dataclass(frozen=True)
class Baseline:
    """Everything that a baseline is measured from.

    Parameters
    ----------
    records, held_out : inputs and their labels, of all parties together and of the holdout.
    settings : what `fit_student` is given by name.
    """

    method: str
    task: Task
    records: tuple[NDArray[Any], NDArray[np.int64]]
    held_out: tuple[NDArray[Any], NDArray[np.int64]]
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, run: "PreparedRun") -> "Baseline | None":
        """The baseline that a run asks for, if it does; ConfigurationError for a mistake in what it says of it."""
        from collegium.coordinator.students import chosen_method

        wanted, holdout, engine = run.config.baseline, run.public.holdout, run.config.engine
        if wanted is None or holdout is None:
            return None
        chosen_method(wanted.method, wanted.options, run.config.task)
        settings = {
            "seed": run.config.seed or 0,
            "device": engine.device,
            "threads": engine.workers * engine.threads,
            "options": wanted.options,
        }
        records, held_out = (run.private.x, run.private.labels()), (holdout.x, holdout.labels())
        return cls(wanted.method, run.config.task, records, held_out, settings)

    def to_bytes(self) -> bytes:
        """A line of JSON, which tells how long the arrays after it are, for `read`."""
        arrays = io.BytesIO()
        np.savez(arrays, *self.records, *self.held_out)
        said = {"task": self.task.model_dump(mode="json"), "method": self.method, "settings": dict(self.settings)}
        return json.dumps(said | {"length": arrays.tell()}).encode() + b"\n" + arrays.getvalue()

    @classmethod
    def read(cls, stream: IO[bytes]) -> "Baseline":
        """What `to_bytes` wrote."""
        said = json.loads(stream.readline())
        x, labels, held_x, held_labels = np.load(io.BytesIO(stream.read(said["length"]))).values()
        task = Task.model_validate(said["task"])
        return cls(said["method"], task, (x, labels), (held_x, held_labels), said["settings"])

    def measure(self, on_progress: OnProgress) -> BaselineRecord:
        """Fit it and measure it; see `fit_student` for errors."""
        from collegium.coordinator.students import fit_student

        x, labels = self.records
        student = fit_student(
            self.method,
            x,
            np.arange(len(x)),
            labels,
            self.task,
            progress=lambda done, total: on_progress(Progress("baseline", done, total)),
            **self.settings,
        )
        quality = prediction_quality(student.predict(self.held_out[0]), self.held_out[1], self.task)
        return BaselineRecord(method=self.method, records=len(x), accuracy=quality.accuracy)


class MeasuredBeside:
    """A baseline that another process measures while a run goes on; a context manager, with which the process ends."""

    def __init__(self, baseline: Baseline, on_progress: OnProgress) -> None:
        self._baseline, self._on_progress = baseline, on_progress
        self._process: subprocess.Popen[bytes] | None = None
        self._giving: Thread | None = None

    def __enter__(self) -> "MeasuredBeside":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._giving is not None:
            with self._process:
                self._process.kill()
                self._giving.join()

    def begin(self) -> "subprocess.Popen[bytes]":
        """Begin, where it has not begun."""
        if self._process is None:
            words = [sys.executable, "-m", __name__]
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self._process.stdin is not None
            # By a thread: it waits until the process has loaded what it needs, and the run goes on.
            what = self._process.stdin.fileno(), self._baseline.to_bytes()
            self._giving = Thread(target=give, args=what, daemon=True)
            self._giving.start()
        return self._process

    def __call__(self) -> BaselineRecord:
        """Wait for what was found; CollegiumError with what went wrong in the other process."""
        process = self.begin()
        assert process.stdout is not None
        for line in map(json.loads, process.stdout):
            if "record" in line:
                return BaselineRecord.model_validate(line["record"])
            if "error" in line:
                raise CollegiumError(f"the baseline: {line['error']}")
            self._on_progress(Progress("baseline", line["done"], line["total"]))
        raise CollegiumError(f"the process of the baseline ended with {process.wait()}; start the run again")


def main() -> None:
    """Measure the baseline that comes in; print how far that is, and what was found, as lines of JSON."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches what started this, which ends it
    baseline = Baseline.read(sys.stdin.buffer)
    Thread(target=_end_with_starter, daemon=True).start()
    told = 0

    def tell(step: Progress) -> None:
        nonlocal told
        if (percent := 100 * step.done // step.total) > told:  # what nobody reads yet has to fit in a pipe
            told = percent
            print(json.dumps({"done": step.done, "total": step.total}), flush=True)

    try:
        found: dict[str, object] = {"record": baseline.measure(tell).model_dump(mode="json")}
    except CollegiumError as error:
        found = {"error": str(error)}
    print(json.dumps(found), flush=True)


def _end_with_starter() -> None:
    os.read(0, 1)  # nothing comes: it closes with the process that started this, however that ends
    os._exit(1)


if __name__ == "__main__":
    main()
