"""Lets the party's teachers vote."""

import numpy as np
from numpy.typing import NDArray

from collegium.latest import Latest
from collegium.parties.kind import Asked, Institution, PartyKind, check_classes, check_inputs, register
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium_accounting.units import IntArray

_MAX_POOLS_REMEMBERED = 8


@register
class TeacherVotes(PartyKind[CastVotes]):
    """Answers `CastVotes`."""

    question = CastVotes

    def __init__(self, own: Institution) -> None:
        super().__init__(own)
        # Votes by position in a pool, so that an input asked about twice is predicted once.
        self._cast: Latest[tuple[str, str], dict[int, NDArray[np.int64]]] = Latest(_MAX_POOLS_REMEMBERED)

    def validate(self, question: CastVotes) -> None:
        check_classes(self.own.task, question.classes)

    def compute(self, question: CastVotes, asked: Asked) -> IntArray:
        inputs = question.inputs
        cast = self._cast.of((question.teacher.canonical_json(), inputs.pool_sha256), dict)
        missing = sorted(set(inputs.indices) - cast.keys())
        if missing:
            unseen = self.own.pools.open(inputs.pool_sha256)[np.array(missing)]
            check_inputs(self.own.task, unseen)
            cast.update(zip(missing, self.own.teachers(question.teacher).votes(unseen), strict=True))
        return np.stack([cast[position] for position in inputs.indices])
