"""Students of experiments: fitted on labels for the first public inputs, measured on the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collegium.data import Examples, load
from collegium_accounting.mechanisms import IntArray
from collegium_reproduction.experiments.base import Setting
from collegium_reproduction.experiments.ensembles import Ensemble

if TYPE_CHECKING:
    from collegium.models.students import Student

Options = Mapping[str, float | int | str | bool]


@dataclass(frozen=True, eq=False)
class Exam:
    """The queries of an ensemble: the first ``pool`` of them may be asked about, the others measure."""

    ensemble: Ensemble
    inputs: Examples
    pool: int
    workers: int
    device: str

    @staticmethod
    def of(ensemble: Ensemble, pool: int, setting: Setting) -> Exam:
        return Exam(
            ensemble,
            load(ensemble.queries, ensemble.task, data_root=setting.data_root),
            pool,
            setting.workers,
            setting.device,
        )

    def fit(
        self,
        method: str,
        indices: IntArray,
        labels: IntArray,
        seed: int,
        options: Options | None = None,
    ) -> Student:
        """The student of these labels for the pool's inputs at ``indices``."""
        from collegium.coordinator.students import fit_student

        return fit_student(
            method,
            self.inputs.x[: self.pool],
            indices,
            labels,
            self.ensemble.task,
            seed=seed,
            device=self.device,
            threads=self.workers,
            options=options,
        )

    def accuracy(self, student: Student) -> float:
        """On the inputs after the pool."""
        return float((student.predict(self.inputs.x[self.pool :]) == self.inputs.labels()[self.pool :]).mean())

    def __len__(self) -> int:
        """How many inputs measure."""
        return len(self.inputs) - self.pool
