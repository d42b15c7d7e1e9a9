"""What a round asks: the votes of teachers, or the classes of neighbouring records.

A new kind of questions is a class here or beside it, a line in `build_requests`, and whatever sum its answers need in
`opening.vote_sum_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.rounds.nearest_requests import NearestRequests
from collegium.coordinator.rounds.record_requests import RecordRequests
from collegium.coordinator.rounds.rounds import round_id
from collegium.coordinator.selection.pool_geometry import public_radii_squared
from collegium.coordinator.settings.run_config import RunConfig
from collegium.data.task import TeacherSettings
from collegium.privacy.mechanisms import AnsweredBy, Mechanism
from collegium.protocol.messages import CastNeighbours, CastVotes, PoolRange, Terms, VoteRequest

if TYPE_CHECKING:
    from collegium.coordinator.students import Student


class RoundRequests(Protocol):
    """How inputs of the pool become requests; which inputs is chosen elsewhere (`choosing`)."""

    @property
    def votes_per_unit(self) -> Mapping[str, int]:
        """How many votes one unit can change, by the names of the units that are protected."""
        ...

    @property
    def teacher(self) -> TeacherSettings | None:
        """What parties must have fitted before; None where records answer for themselves."""
        ...

    @property
    def want_student(self) -> bool:
        """Whether later rounds are put otherwise once there is a student: `informed_by` is called then."""
        ...

    def informed_by(self, student: Student) -> RoundRequests:
        """The same questions, put by what the student of all labels so far has learned (public: it may be sent).

        Equal students must give equal questions: a round that is taken up again is asked as it was.
        """
        ...

    def request(self, mechanism: Mechanism, mode: str, asked: PoolRange, stage: str) -> VoteRequest:
        """The request of a round for a stage of ``mechanism``; equal requests on equal terms make equal rounds.

        ``stage`` is `WHOLE_MECHANISM` where one sum serves every stage.
        """
        ...


class TeacherRequests:
    """Requests about inputs of the pool that the parties' teachers answer."""

    want_student = False

    def __init__(self, config: RunConfig) -> None:
        self.teacher = config.teachers
        self.votes_per_unit = {"record": 1, "party": config.teachers.per_party}

    def informed_by(self, student: Student) -> TeacherRequests:
        return self

    def request(self, mechanism: Mechanism, mode: str, asked: PoolRange, stage: str) -> CastVotes:
        terms = Terms.of(mechanism, mode, stage)
        return CastVotes(terms, self.teacher, asked, round_id(asked.pool_sha256, asked.indices, terms))


class NeighbourRequests(RecordRequests):
    """Requests about inputs of the pool that all records within a radius answer."""

    def _ask(self, terms: Terms, asked: PoolRange, positions: NDArray[np.int64]) -> CastNeighbours:
        radii = tuple(public_radii_squared(self._values, positions, self._settings.share).tolist())
        kernel = self._settings.kernel
        name = round_id(asked.pool_sha256, asked.indices, (terms, radii, self.features.digest(), kernel))
        return CastNeighbours(terms, self.features, asked, radii, kernel, name, self._ledger_id)


def build_requests(
    config: RunConfig, pool: NDArray[Any], ledger_id: str, pretrained: Callable[[], bytes]
) -> RoundRequests:
    """How ``config`` asks about the pool ``[inputs, …]``; ``pretrained``: see `neighbours.finding.features_of`."""
    if config.neighbours is None:
        return TeacherRequests(config)
    if config.mechanism.kind.answered_by is AnsweredBy.SAMPLED_RECORDS:
        return NearestRequests(config, config.neighbours, pool, ledger_id, pretrained)
    return NeighbourRequests(config, config.neighbours, pool, ledger_id, pretrained)
