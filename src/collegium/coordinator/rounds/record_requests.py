"""Requests that records answer: they find each other by features that come from the pool alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.rounds.neighbour_features import STUDENT, features_of
from collegium.coordinator.settings.run_config import NeighboursConfig, RunConfig
from collegium.data.features import extract
from collegium.privacy.mechanisms import Mechanism
from collegium.protocol.messages import PoolRange, Terms, VoteRequest

if TYPE_CHECKING:
    from collegium.coordinator.students import Student


class RecordRequests(ABC):
    """Requests about inputs of the pool that the records near them answer.

    Parameters
    ----------
    ledger_id : names the ledger under which the labels are released.
    pretrained : see `finding.features_of`.
    student : of the labels so far, where the settings want its features.
    """

    votes_per_unit: Mapping[str, int] = {"record": 1}
    teacher = None

    def __init__(
        self,
        config: RunConfig,
        settings: NeighboursConfig,
        pool: NDArray[Any],
        ledger_id: str,
        pretrained: Callable[[], bytes],
        student: Student | None = None,
    ) -> None:
        self._config, self._settings, self._pool, self._ledger_id = config, settings, pool, ledger_id
        self._pretrained = pretrained
        self.want_student = settings.features == STUDENT
        self.features = features_of(settings, pool, config.task.inputs, pretrained, student)
        self._values = extract(self.features, pool, config.task.inputs)

    def informed_by(self, student: Student) -> Self:
        return type(self)(self._config, self._settings, self._pool, self._ledger_id, self._pretrained, student)

    def request(self, mechanism: Mechanism, mode: str, asked: PoolRange, stage: str) -> VoteRequest:
        """See `RoundRequests.request`."""
        return self._ask(Terms.of(mechanism, mode, stage), asked, np.asarray(asked.indices, dtype=np.int64))

    @abstractmethod
    def _ask(self, terms: Terms, asked: PoolRange, positions: NDArray[np.int64]) -> VoteRequest:
        """The request for the inputs at ``positions`` of the pool."""
