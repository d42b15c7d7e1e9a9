"""What a round asks: the votes of teachers, or the classes of neighbouring records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.config import SAMPLED_KNN, NeighboursConfig, RunConfig
from collegium.coordinator.mechanisms import Adjacency
from collegium.coordinator.neighbours.geometry import fit_features, public_radii_squared
from collegium.coordinator.neighbours.nearest_questions import NearestQuestions
from collegium.coordinator.neighbours.representatives import representatives
from collegium.coordinator.queries import choose_queries
from collegium.coordinator.rounds import round_id
from collegium.protocol.features import extract
from collegium.protocol.messages import CastNeighbours, CastVotes, PoolRange, Question, Terms
from collegium.protocol.task import TeacherSettings

Parameters = Mapping[str, float]


class Questions(Protocol):
    """The queries of a run and the requests that ask them."""

    @property
    def indices(self) -> NDArray[np.int64]:
        """Positions in the pool, in the order in which they are asked."""
        ...

    @property
    def adjacency(self) -> Adjacency:
        """What neighbouring data sets are."""
        ...

    @property
    def votes_per_unit(self) -> Mapping[str, int]:
        """How many votes one unit can change, by the names of the units that are protected."""
        ...

    @property
    def teacher(self) -> TeacherSettings | None:
        """What parties must have fitted before; None where records answer for themselves."""
        ...

    def request(self, mechanism: str, parameters: Parameters, mode: str, asked: PoolRange, purpose: str) -> Question:
        """The request of a round; equal questions on equal terms make equal rounds.

        ``purpose`` is the mechanism's stage, for those whose stages ask each for itself.
        """
        ...


class VoteQuestions:
    """Inputs of the pool, put to the parties' teachers.

    Parameters
    ----------
    positions : which ones; random ones where it is None.
    """

    adjacency = Adjacency.REPLACE

    def __init__(self, config: RunConfig, pool: NDArray[Any], positions: Sequence[int] | None = None) -> None:
        self.teacher = config.teachers
        if positions is None:
            self.indices = choose_queries(len(pool), config.queries.count, config.seed or 0)
        else:
            self.indices = np.asarray(positions, dtype=np.int64)
        self.votes_per_unit = {"record": 1, "party": config.teachers.per_party}

    def request(self, mechanism: str, parameters: Parameters, mode: str, asked: PoolRange, purpose: str) -> CastVotes:
        terms = Terms(mechanism, dict(parameters), self.adjacency.value, mode)
        return CastVotes(terms, self.teacher, asked, round_id(asked.pool_sha256, asked.indices, terms))


class NeighbourQuestions:
    """Inputs of the pool, put to the records around them.

    Parameters
    ----------
    ledger_id : names the ledger under which the labels are released.
    positions : which ones; representative ones where it is None.
    """

    adjacency = Adjacency.ADD_REMOVE
    votes_per_unit: Mapping[str, int] = {"record": 1}
    teacher = None

    def __init__(
        self,
        config: RunConfig,
        settings: NeighboursConfig,
        pool: NDArray[Any],
        ledger_id: str,
        positions: Sequence[int] | None = None,
    ) -> None:
        inputs = config.task.inputs
        self._kernel = settings.kernel
        self._ledger_id = ledger_id
        network = settings.network_bytes()
        self._features = fit_features(settings.features, settings.dimensions, pool, inputs, network)
        values = extract(self._features, pool, inputs)
        if positions is None:
            self.indices = representatives(values, config.queries.count, settings.choice, config.seed or 0)
        else:
            self.indices = np.asarray(positions, dtype=np.int64)
        radii = public_radii_squared(values, self.indices, settings.share)
        self._radius = dict(zip(self.indices.tolist(), radii.tolist(), strict=True))

    def request(
        self, mechanism: str, parameters: Parameters, mode: str, asked: PoolRange, purpose: str
    ) -> CastNeighbours:
        terms = Terms(mechanism, dict(parameters), self.adjacency.value, mode)
        radii = self._radii(asked.indices)
        name = round_id(asked.pool_sha256, asked.indices, (terms, radii, self._features.digest(), self._kernel))
        return CastNeighbours(terms, self._features, asked, radii, self._kernel, name, self._ledger_id)

    def _radii(self, indices: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._radius[index] for index in indices)


def questions_of(
    config: RunConfig, pool: NDArray[Any], ledger_id: str, positions: Sequence[int] | None = None
) -> Questions:
    """What ``config`` asks about the pool ``[inputs, …]``, or about the inputs at ``positions`` of it."""
    if config.neighbours is None:
        return VoteQuestions(config, pool, positions)
    if config.mechanism.name == SAMPLED_KNN:
        return NearestQuestions(config, config.neighbours, pool, ledger_id, positions)
    return NeighbourQuestions(config, config.neighbours, pool, ledger_id, positions)
