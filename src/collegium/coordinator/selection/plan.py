"""Which inputs of the pool are asked.

A choice uses the pool alone, so it costs no privacy. run.json holds the chosen inputs with a digest of what they were
chosen from, so that a resumed run asks the same inputs.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.run.label_set import LabelSet
from collegium.coordinator.run.run_record import ChosenQueries, RunRecord
from collegium.coordinator.run.student_trainer import StudentTrainer
from collegium.coordinator.selection.pool_geometry import fit_features
from collegium.coordinator.selection.queries import check_count, choose_queries, query_key, representatives
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data.task import ImageInputs
from collegium.errors import ConfigurationError
from collegium.models.features import Features, dimensions, extract
from collegium.protocol.question import about_all_records
from collegium_accounting.mechanisms import IntArray

COMPONENTS = 64
"""Principal components of the pool's histograms, pixels or columns that are compared."""

ALL = "all"
"""The choice of a run whose labels follow from sums over all records: these label every input."""


class Plan:
    """The queries of a run, and what its record holds of them.

    Parameters
    ----------
    study : whose labels are asked for; None outside a consortium's studies.

    Raises
    ------
    ConfigurationError
        When more queries are asked than the pool has inputs, or they are compared by what the inputs do not have.
    """

    def __init__(self, config: RunConfig, public: PublicData, study: str | None = None) -> None:
        self._config, self._pool, self._spec, self._study = config, public.pool.x, public.spec, study
        self._choice: str = ALL if about_all_records(config.mechanism.kind) else config.queries.choice
        self.size = len(self._pool) if self._choice == ALL else config.queries.count
        check_count(self.size, len(self._pool))
        images = isinstance(config.task.inputs, ImageInputs)
        self._features = config.queries.features or ("hog" if images else "raw")
        if self._features != "raw" and not images:
            raise ConfigurationError(f"queries.features = {self._features!r} is for images: use 'raw' for a table")

    @property
    def origin(self) -> str:
        """A digest of everything that the queries follow from.

        Whoever changes the student's settings later keeps the queries, and hence the labels that are paid for.
        """
        settings = self._config.queries.model_dump(mode="json", include={"choice", "features"})
        made_of = [self._choice, settings, self.size, self._config.seed, self._spec.sha256]
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()

    @property
    def needs_training(self) -> bool:
        """Whether a network has to be trained before the queries can be chosen."""
        return self._choice not in (ALL, "random") and self._features == "pretrained"

    def noted(self, record: RunRecord) -> IntArray | None:
        """The queries that ``record`` has; None where none are chosen yet."""
        if record.chosen is None or record.chosen.origin != self.origin:
            return None
        return np.array(record.chosen.indices, dtype=np.int64)

    def keys(self, indices: IntArray) -> list[str]:
        """The keys of queries at these positions in the pool."""
        return [query_key(self._pool[index], self._study) for index in indices]

    def so_far(self, record: RunRecord, held: Mapping[str, int]) -> tuple[LabelSet, list[str]]:
        """The queries that ``record`` has, with their labels in ``held``; and their keys."""
        if (indices := self.noted(record)) is None:
            indices = np.empty(0, dtype=np.int64)
        keys = self.keys(indices)
        return LabelSet.of(indices, keys, held), keys

    def all_labelled(self, record: RunRecord, held: Mapping[str, int]) -> bool:
        """Whether the queries are chosen and have a label or an abstention each in ``held``."""
        _, keys = self.so_far(record, held)
        return len(keys) == self.size and held.keys() >= set(keys)

    def choose(self, trainer: StudentTrainer) -> ChosenQueries:
        """The queries: distinct positions in the pool, and how they are chosen."""
        seed = self._config.seed or 0
        if self._choice == ALL:
            indices = np.arange(self.size)
        elif self._choice == "random":
            indices = choose_queries(len(self._pool), self.size, seed)
        else:
            indices = representatives(self._compared(trainer), self.size, seed)
        return ChosenQueries(origin=self.origin, choice=self._choice, indices=indices.tolist())

    def _compared(self, trainer: StudentTrainer) -> NDArray[Any]:
        """The features by which inputs are compared."""
        if self._features == "pretrained":
            return trainer.pretrained_features()
        inputs, pool = self._config.task.inputs, self._pool
        kept = min(COMPONENTS, dimensions(Features(self._features), inputs), max(1, len(pool) - 1))
        return extract(fit_features(self._features, kept, pool, inputs), pool, inputs)
