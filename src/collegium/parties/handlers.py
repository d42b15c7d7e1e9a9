"""What a party does with each kind of request: one small object per kind, `party.Party` chooses among them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from collegium import limits
from collegium.data.task import Task, TeacherSettings
from collegium.errors import DataError, ProtocolViolation
from collegium.parties.memory import fingerprint
from collegium.parties.teachers.ensemble import TeacherEnsemble
from collegium.protocol.messages import (
    ArraySpec,
    CastVotes,
    Description,
    Fit,
    Fitted,
    HoldPool,
    InlineInputs,
    PoolChunk,
    PoolState,
    Prepared,
    ReplyBody,
    Request,
    VoteRequest,
    Votes,
)
from collegium.version import __version__

if TYPE_CHECKING:
    from collegium.data import PoolStore

_MAX_FACULTIES = 4
_MAX_POOLS_REMEMBERED = 8
_MAX_ROUNDS_PREPARED = 8


ChargeAnswer = Callable[[VoteRequest], None]
"""Called with every request for votes whose answer is about to be given; raises Refused when it must not be."""


class Handler(Protocol):
    """Answers one kind of request; a CollegiumError becomes the answer that says what went wrong."""

    def __call__(self, request: Request) -> ReplyBody: ...


class EnsembleCache:
    """The party's teachers under each of the latest settings, fitted when they are first asked for."""

    def __init__(self, fit: Callable[[TeacherSettings], TeacherEnsemble]) -> None:
        self._fit = fit
        self._by_settings: OrderedDict[str, TeacherEnsemble] = OrderedDict()

    @property
    def latest(self) -> TeacherSettings | None:
        """The settings asked for last."""
        return TeacherSettings.model_validate_json(next(reversed(self._by_settings))) if self._by_settings else None

    def under(self, settings: TeacherSettings) -> tuple[TeacherEnsemble, bool]:
        """The teachers, and whether they were in memory already."""
        text = settings.canonical_json()
        ensemble = self._by_settings.get(text)
        known = ensemble is not None
        if ensemble is None:
            ensemble = self._by_settings[text] = self._fit(settings)
        self._by_settings.move_to_end(text)
        while len(self._by_settings) > _MAX_FACULTIES:
            self._by_settings.popitem(last=False)
        return ensemble, known


class DescribeHandler:
    """Says who the party is and which teachers it has ready; nothing of its records."""

    def __init__(self, name: str, ensembles: EnsembleCache) -> None:
        self._name = name
        self._ensembles = ensembles

    def __call__(self, request: Request) -> Description:
        latest = self._ensembles.latest
        return Description(
            party=self._name,
            software=f"collegium {__version__}",
            teachers=latest.per_party if latest else 0,
            teacher_kind=latest.kind[:64] if latest else "",
        )


class PoolHandler:
    """Takes the pool in, once, if it is made of inputs of the task."""

    def __init__(self, task: Task, pools: PoolStore) -> None:
        self._task = task
        self._pools = pools

    def __call__(self, request: Request) -> PoolState:
        assert isinstance(request.body, HoldPool | PoolChunk)
        check_inputs(self._task, request.body.pool)
        if isinstance(request.body, PoolChunk):
            return self._pools.accept(request.body)
        return self._pools.state(request.body.pool)


class FitHandler:
    """Has the teachers ready."""

    def __init__(self, ensembles: EnsembleCache) -> None:
        self._ensembles = ensembles

    def __call__(self, request: Request) -> Fitted:
        assert isinstance(request.body, Fit)
        ensemble, known = self._ensembles.under(request.body.teacher)
        return Fitted(teachers=len(ensemble), reused=len(ensemble) if known else ensemble.reused)


class CastVotesHandler:
    """Lets the teachers vote: the answer in the clear mode, a vector kept for the secure sum in the others."""

    def __init__(self, task: Task, pools: PoolStore, ensembles: EnsembleCache, charge: ChargeAnswer) -> None:
        self._task = task
        self._pools = pools
        self._ensembles = ensembles
        self._charge = charge
        # Votes by position in a pool, so that an input asked about twice is predicted once.
        self._cast: OrderedDict[tuple[str, str], dict[int, NDArray[np.int64]]] = OrderedDict()
        self._prepared: OrderedDict[tuple[str, str], tuple[bytes, CastVotes, NDArray[np.uint16]]] = OrderedDict()

    def __call__(self, request: Request) -> Votes | Prepared:
        body = request.body
        assert isinstance(body, CastVotes)
        if body.terms.sum_mode == "clear":
            votes = self._votes(body)
            self._charge(body)
            return Votes(votes)
        asked, key = fingerprint(request), (request.run_id, body.round_id)
        if key in self._prepared:
            # Two vectors summed in one round would show their difference.
            if self._prepared[key][0] != asked:
                raise ProtocolViolation(f"round {body.round_id} was prepared for other queries: use a fresh id")
            return Prepared(body.round_id)
        votes = self._votes(body)
        self._charge(body)
        self._prepared[key] = (asked, body, votes.astype(np.uint16))
        while len(self._prepared) > _MAX_ROUNDS_PREPARED:
            self._prepared.popitem(last=False)
        return Prepared(body.round_id)

    def prepared(self, run_id: str, round_id: str) -> tuple[CastVotes, NDArray[np.int64]]:
        """What was asked and the votes kept for it, ``[queries, classes]``; ProtocolViolation if there are none."""
        if (run_id, round_id) not in self._prepared:
            raise ProtocolViolation(f"no votes are prepared for round {round_id[:128]}: ask for them first")
        _, asked, votes = self._prepared[run_id, round_id]
        return asked, votes.astype(np.int64)

    def _votes(self, body: CastVotes) -> NDArray[np.int64]:
        queries = len(body.inputs.array if isinstance(body.inputs, InlineInputs) else body.inputs.indices)
        if queries * len(self._task.classes) > limits.MAX_COUNTS_PER_ANSWER:
            raise ProtocolViolation(f"{queries} queries are too many at once for this many classes: ask in parts")
        if isinstance(body.inputs, InlineInputs):
            check_inputs(self._task, body.inputs.array)
            return self._ensembles.under(body.teacher)[0].votes(body.inputs.array)
        pool = self._pools.open(body.inputs.pool_sha256)
        positions = body.inputs.indices
        if not 0 <= min(positions) <= max(positions) < len(pool):
            raise ProtocolViolation(f"a query lies outside the pool: its {len(pool)} inputs are numbered from 0")
        cast = self._remembered(body.teacher.canonical_json(), body.inputs.pool_sha256)
        missing = sorted(set(positions) - cast.keys())
        if missing:
            inputs = pool[np.array(missing)]
            check_inputs(self._task, inputs)
            ensemble, _ = self._ensembles.under(body.teacher)
            cast.update(zip(missing, ensemble.votes(inputs), strict=True))
        return np.stack([cast[position] for position in positions])

    def _remembered(self, settings: str, pool_sha256: str) -> dict[int, NDArray[np.int64]]:
        cast = self._cast.setdefault((settings, pool_sha256), {})
        self._cast.move_to_end((settings, pool_sha256))
        while len(self._cast) > _MAX_POOLS_REMEMBERED:
            self._cast.popitem(last=False)
        return cast


def check_inputs(task: Task, inputs: ArraySpec | NDArray[Any]) -> None:
    """Raise DataError unless the inputs have the task's shape and type and, where seen, are finite."""
    wanted = f"{task.inputs.dtype} of shape [n, {', '.join(map(str, task.inputs.shape))}]"
    if str(inputs.dtype) != task.inputs.dtype or tuple(inputs.shape[1:]) != task.inputs.shape:
        raise DataError(f"inputs are {inputs.dtype} of shape {list(inputs.shape)}; this task needs {wanted}")
    if not isinstance(inputs, ArraySpec) and inputs.dtype.kind == "f" and not np.isfinite(inputs).all():
        raise DataError("inputs hold numbers that are not finite: replace them before they become a pool")
