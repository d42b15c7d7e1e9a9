"""Which inputs of the pool are asked in each round.

A choice uses the pool and released labels alone, so it is post-processing and costs no privacy. run.json holds the
chosen inputs with a digest of what they were chosen from, so that a resumed run asks the same inputs.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.run.label_set import LabelSet
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.run.student_trainer import StudentTrainer
from collegium.coordinator.selection.pool_geometry import fit_features
from collegium.coordinator.selection.queries import (
    check_count,
    class_balanced,
    farthest_first,
    least_confident,
    query_key,
    random_queries,
    representatives,
)
from collegium.coordinator.settings.run_config import BY_STUDENT, RunConfig
from collegium.data.task import ImageInputs
from collegium.data.values import ArraySpec
from collegium.errors import ConfigurationError
from collegium.models.features import Features, dimensions, extract
from collegium.protocol.question import about_all_records
from collegium_accounting.mechanisms import IntArray

COMPONENTS = 64
"""Principal components of the pool's histograms, pixels or columns that are compared."""

_WHAT_DECIDES = ("choice", "first", "features", "pretraining")

GIVEN = "given"
"""The choice of a run whose caller named the inputs."""


class Plan:
    """The sizes of a run's rounds, and the queries that its record holds for them.

    Parameters
    ----------
    spec : names the pool.
    positions : the inputs to ask, in one round; where it is None, chosen by the configuration, and all of the pool
        where one sum over all records labels them.

    Raises
    ------
    ConfigurationError
        When more queries are asked than the pool has inputs.
    """

    def __init__(self, config: RunConfig, spec: ArraySpec, positions: Sequence[int] | None = None) -> None:
        self._config, self._spec = config, spec
        if positions is None and about_all_records(config.mechanism.kind):
            positions = range(spec.shape[0])  # one sum labels every input
        self.positions = None if positions is None else np.asarray(positions, dtype=np.int64)
        self.sizes = config.queries.round_sizes() if self.positions is None else (len(self.positions),)
        check_count(sum(self.sizes), spec.shape[0])

    def origin(self, number: int, label_set: LabelSet) -> str:
        """A digest of everything that the queries of round ``number`` follow from, but for the student's settings.

        Whoever changes these later keeps the queries, and hence the labels that are paid for.
        """
        settings = self._config.queries.model_dump(mode="json", include=set(_WHAT_DECIDES))
        made_of = [settings, number, self.sizes[number], self._config.seed, self._spec.sha256]
        if self.positions is not None:
            made_of.append(self.positions.tolist())
        if number:
            made_of += [label_set.indices.tolist(), label_set.labels.tolist()]
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()

    def noted(self, record: RunRecord, number: int, label_set: LabelSet) -> IntArray | None:
        """The queries that ``record`` has for round ``number`` after ``label_set``; None where none are chosen yet."""
        if number >= len(record.chosen) or record.chosen[number].origin != self.origin(number, label_set):
            return None
        return np.array(record.chosen[number].indices, dtype=np.int64)

    def so_far(
        self, record: RunRecord, pool: NDArray[Any], held: Mapping[str, int], study: str | None = None
    ) -> tuple[LabelSet, list[str]]:
        """The queries that ``record`` has, round by round, with their labels in ``held``; and their keys."""
        label_set, keys = LabelSet.nothing(), list[str]()
        for number in range(len(self.sizes)):
            indices = self.noted(record, number, label_set)
            if indices is None:
                break
            own = [query_key(pool[index], study) for index in indices]
            label_set, keys = label_set.followed_by(LabelSet.of(indices, own, held)), keys + own
        return label_set, keys


def all_labelled(
    plan: Plan, record: RunRecord, pool: NDArray[Any], held: Mapping[str, int], study: str | None = None
) -> bool:
    """Whether every round of the plan is chosen and all its queries have a label or an abstention in ``held``."""
    _, keys = plan.so_far(record, pool, held, study)
    return len(keys) == sum(plan.sizes) and held.keys() >= set(keys)


class QuerySelector:
    """Chooses the queries of a plan's rounds from the pool ``[inputs, …]``."""

    def __init__(self, config: RunConfig, plan: Plan, pool: NDArray[Any], trainer: StudentTrainer) -> None:
        self._config, self._plan, self._pool, self._trainer = config, plan, pool, trainer
        self._settings, self._seed = config.queries, config.seed or 0
        self._check()

    def choose(self, number: int, label_set: LabelSet) -> tuple[str, IntArray]:
        """How round ``number`` is chosen after ``label_set``, and its queries: distinct positions, none asked before.

        Where the labels so far teach no student (none, or all of one class), it is chosen as the first round is.
        """
        if self._plan.positions is not None:
            return GIVEN, self._plan.positions
        student = number > 0 and label_set.teaches
        choice = self._settings.choice if student or self._settings.choice not in BY_STUDENT else self._settings.first
        return choice, self._by(choice, self._plan.sizes[number], label_set, student)

    def needs_training(self, number: int) -> bool:
        """Whether the choice for round ``number`` may need a network that has to be trained first."""
        if self._plan.positions is not None or self._settings.choice == "random":
            return False
        return number > 0 or self._name in ("pretrained", "student")

    def _by(self, choice: str, count: int, label_set: LabelSet, student: bool) -> IntArray:
        asked = label_set.indices
        if choice == "random":
            return random_queries(len(self._pool), count, asked, self._seed)
        if choice == "least-confident":
            return least_confident(self._trainer.interim(label_set).probabilities(self._pool), count, asked)
        features = self._features(label_set, student)
        if choice == "class-balanced":
            predicted = self._trainer.interim(label_set).predict(self._pool)
            classes = len(self._config.task.classes)
            so_far = np.bincount(label_set.classes, minlength=classes).tolist()
            return class_balanced(features, predicted, so_far, count, asked, self._seed)
        by = representatives if choice == "representative" else farthest_first
        return by(features, count, asked, self._seed)

    def _features(self, label_set: LabelSet, student: bool) -> NDArray[Any]:
        if self._name == "student" and student:
            return self._trainer.student_features(label_set)
        if self._name == "pretrained" or (self._name == "student" and self._images):
            return self._trainer.pretrained_features()
        return self._components

    @cached_property
    def _components(self) -> NDArray[np.int16]:
        name, inputs = ("hog" if self._name == "hog" else "raw"), self._config.task.inputs
        kept = min(COMPONENTS, dimensions(Features(name), inputs), max(1, len(self._pool) - 1))
        return extract(fit_features(name, kept, self._pool, inputs), self._pool, inputs)

    @property
    def _images(self) -> bool:
        return isinstance(self._config.task.inputs, ImageInputs)

    @property
    def _name(self) -> str:
        return self._settings.features or ("hog" if self._images else "raw")

    def _check(self) -> None:
        if self._name in ("hog", "pretrained") and not self._images:
            raise ConfigurationError(f"queries.features = {self._name!r} is for images: use 'raw' for a table")
