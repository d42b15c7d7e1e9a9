"""Everything that a run learns: the published student, and features of the pool.

It is learned from public data and released labels alone. Torch is loaded when something is learned, not before.
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator import students
from collegium.coordinator.run.label_set import LabelSet
from collegium.coordinator.run.surroundings import Compute, Tell
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.extras import optional_import
from collegium.models.devices import resolve_device, set_threads
from collegium.models.noisy_sums import NoisySums, OfPool
from collegium.models.students import Student

if TYPE_CHECKING:
    from collegium.coordinator.students.pretraining import Encoder


class StudentTrainer:
    """Fits the students of one run.

    Parameters
    ----------
    cache : folder in which networks are kept by what they were made from.
    tell : called with (step, done, total) as a network is trained.
    """

    def __init__(
        self,
        config: RunConfig,
        public: PublicData,
        cache: Path,
        compute: Compute,
        tell: Tell,
    ) -> None:
        self._config, self._pool, self._spec, self._cache = config, public.pool.x, public.spec, cache
        self._device, self._threads, self._tell = compute.device, compute.threads, tell

    def check(self) -> None:
        """ConfigurationError when the student's method or settings are not what they may be."""
        self._method()

    def origin(self, label_set: LabelSet) -> str:
        """A digest of everything that a student of ``label_set`` is fitted from."""
        student, seed = self._config.student.model_dump(mode="json"), self._config.seed or 0
        made_of = [label_set.indices.tolist(), label_set.labels.tolist(), student, seed, self._spec.sha256]
        return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()

    def fit(self, label_set: LabelSet, sums: NoisySums | None = None) -> Student:
        """Fit a student on these labels and the pool; see `fit_student` for errors.

        Parameters
        ----------
        sums : the class sums that the labels come from, where they do.
        """
        return students.fit_student(
            self._config.student.method,
            self._pool,
            label_set.labelled,
            label_set.classes,
            self._config.task,
            seed=self._config.seed or 0,
            device=self._device,
            threads=self._threads,
            options=self._config.student.options,
            progress=lambda done, total: self._tell("student", done, total),
            cache=self._cache,
            sums=sums,
        )

    def networks_of(self, found: OfPool) -> bytes:
        """Networks that learned what class sums say of the pool, as a safetensors file that parties may be sent.

        Empty where the sums say that the records' classes agree less with the networks than with the sums' classifier.
        """
        steps: int = vars(self._method())["steps"]
        with optional_import("networks that learn from class sums (student.options.steps = 0 leaves them out)"):
            from collegium.coordinator.students.networks import networks_beside
        networks = networks_beside(self._problem("networks"), found, steps)
        return b"" if networks is None else networks.to_bytes()

    def pretrained_features(self) -> NDArray[np.float32]:
        """Features of the pool, ``[inputs, dimensions]``, from a network that was pretrained without labels."""
        return self._pretrained().features(self._pool)

    def pretrained_network(self) -> bytes:
        """The network that was pretrained without labels, in whole numbers, as a file that parties may be sent."""
        return self._pretrained().published(self._pool).to_bytes()

    def _pretrained(self) -> "Encoder":
        """The network, by the student's own settings of a pretraining, so that both share it."""
        with optional_import("pretraining"):
            from collegium.coordinator.students.pretraining import Pretraining, pretrained

        return pretrained(self._problem("pretraining"), getattr(self._method(), "pretraining", Pretraining()))

    def _method(self) -> students.StudentMethod:
        student = self._config.student
        return students.chosen_method(student.method, student.options, self._config.task)

    def _problem(self, step: str) -> students.LearningProblem:
        """The pool without labels, for what is told as this step."""
        set_threads(self._threads)
        nothing = np.empty(0, dtype=np.int64)
        return students.LearningProblem(
            self._config.task,
            self._pool,
            nothing,
            nothing,
            self._config.seed or 0,
            resolve_device(self._device),
            lambda done, total: self._tell(step, done, total),
            self._cache,
        )
