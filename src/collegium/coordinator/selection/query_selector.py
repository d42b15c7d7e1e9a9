"""Rounds of choosing: which inputs of the pool are asked next.

A choice looks at the pool and at released labels alone, so it is post-processing and costs nothing. What was chosen is
noted in run.json with a digest of what it was chosen from: a run that is taken up again asks the same.
"""

from __future__ import annotations

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
from collegium.coordinator.selection.queries import check_count, least_confident, query_key, random_queries
from collegium.coordinator.selection.representatives import class_balanced, farthest_first, representatives
from collegium.coordinator.settings.run_config import BY_STUDENT, RunConfig
from collegium.data.feature_spec import Features
from collegium.data.features import dimensions, extract
from collegium.data.task import ImageInputs
from collegium.errors import ConfigurationError
from collegium.privacy.mechanisms import IntArray
from collegium.protocol.messages import ArraySpec

COMPONENTS = 64
"""Principal components of the pool's histograms, pixels or columns that are compared."""

_WHAT_DECIDES = ("choice", "first", "features", "pretraining")

GIVEN = "given"
"""The choice of a run whose caller named the inputs."""


class Plan:
    """The rounds of a run as configured, and what is noted of them.

    Parameters
    ----------
    spec : names the pool.
    positions : the inputs to ask, in one round; chosen by the configuration where it is None.

    Raises
    ------
    ConfigurationError
        When more queries are asked than the pool has inputs.
    """

    def __init__(self, config: RunConfig, spec: ArraySpec, positions: Sequence[int] | None = None) -> None:
        self._config, self._spec = config, spec
        self.positions = None if positions is None else np.asarray(positions, dtype=np.int64)
        self.sizes = config.queries.round_sizes() if self.positions is None else (len(self.positions),)
        check_count(sum(self.sizes), spec.shape[0])

    def origin(self, number: int, issued: LabelSet) -> str:
        """A digest of everything that the queries of round ``number`` follow from, but for the student's settings.

        Whoever changes these later keeps the queries, and hence the labels that are paid for.
        """
        settings = self._config.queries.model_dump(mode="json", include=set(_WHAT_DECIDES))
        made_of = [settings, number, self.sizes[number], self._config.seed, self._spec.sha256]
        if self.positions is not None:
            made_of.append(self.positions.tolist())
        if number:
            made_of += [issued.indices.tolist(), issued.labels.tolist()]
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()

    def noted(self, record: RunRecord, number: int, issued: LabelSet) -> IntArray | None:
        """The queries that ``record`` has for round ``number`` after ``issued``; None where none are chosen yet."""
        if number >= len(record.chosen) or record.chosen[number].origin != self.origin(number, issued):
            return None
        return np.array(record.chosen[number].indices, dtype=np.int64)


def all_labelled(plan: Plan, record: RunRecord, pool: NDArray[Any], held: Mapping[str, int]) -> bool:
    """Whether every round of the plan is chosen and all its queries have a label or an abstention in ``held``."""
    issued = LabelSet.nothing()
    for number in range(len(plan.sizes)):
        indices = plan.noted(record, number, issued)
        keys = None if indices is None else [query_key(pool[index]) for index in indices]
        if indices is None or keys is None or not held.keys() >= set(keys):
            return False
        issued = issued.followed_by(LabelSet.of(indices, keys, held))
    return True


class QuerySelector:
    """Chooses the queries of a plan's rounds from the pool ``[inputs, …]``."""

    def __init__(self, config: RunConfig, plan: Plan, pool: NDArray[Any], learning: StudentTrainer) -> None:
        self._config, self._plan, self._pool, self._learning = config, plan, pool, learning
        self._settings, self._seed = config.queries, config.seed or 0
        self._check()

    def choose(self, number: int, issued: LabelSet) -> tuple[str, IntArray]:
        """How round ``number`` is chosen after ``issued``, and its queries: distinct positions, none asked before.

        Where the labels so far teach no student (none, or all of one class), it is chosen as the first round is.
        """
        if self._plan.positions is not None:
            return GIVEN, self._plan.positions
        student = number > 0 and issued.teaches
        choice = self._settings.choice if student or self._settings.choice not in BY_STUDENT else self._settings.first
        return choice, self._by(choice, self._plan.sizes[number], issued, student)

    def learns(self, number: int) -> bool:
        """Whether a choice for round ``number`` may have to train a network first."""
        if self._plan.positions is not None or self._settings.choice == "random":
            return False
        return number > 0 or self._name in ("pretrained", "student")

    def _by(self, choice: str, count: int, issued: LabelSet, student: bool) -> IntArray:
        asked = issued.indices
        if choice == "random":
            return random_queries(len(self._pool), count, asked, self._seed)
        if choice == "least-confident":
            return least_confident(self._learning.interim(issued).probabilities(self._pool), count, asked)
        features = self._features(issued, student)
        if choice == "class-balanced":
            predicted = self._learning.interim(issued).predict(self._pool)
            classes = len(self._config.task.classes)
            so_far = np.bincount(issued.classes, minlength=classes).tolist()
            return class_balanced(features, predicted, so_far, count, asked, self._seed)
        by = representatives if choice == "representative" else farthest_first
        return by(features, count, asked, self._seed)

    def _features(self, issued: LabelSet, student: bool) -> NDArray[Any]:
        if self._name == "student" and student:
            return self._learning.student_features(issued)
        if self._name == "pretrained" or (self._name == "student" and self._images):
            return self._learning.pretrained_features()
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
