"""How a party answers each kind of request: one small object per kind, of which `party.Party` chooses one."""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from collegium.data import PoolStore
from collegium.data.task import Task, TeacherSettings
from collegium.data.values import ArraySpec, PoolChunk, PoolState
from collegium.errors import DataError
from collegium.parties.gate import AnswerGate, pool_asked
from collegium.parties.held_sums import HeldSums
from collegium.parties.known_ledger import KnownLedger
from collegium.parties.teachers.ensemble import TeacherEnsemble
from collegium.protocol.messages import Request
from collegium.protocol.replies import Description, Fitted, Neighbours, Prepared, Sums, Votes
from collegium.protocol.requests import CastVotes, Fit, HoldPool, VoteRequest
from collegium.version import __version__

_MAX_ENSEMBLES = 4
_MAX_POOLS_REMEMBERED = 8

_Asked = TypeVar("_Asked", bound=VoteRequest)
_Voters = TypeVar("_Voters")


class EnsembleCache:
    """The party's teachers under each of the latest settings, fitted when they are first asked for.

    As the handler of `Fit` it has them ready.
    """

    def __init__(self, fit: Callable[[TeacherSettings], TeacherEnsemble]) -> None:
        self._fit = fit
        self._by_settings: OrderedDict[str, TeacherEnsemble] = OrderedDict()

    @property
    def latest(self) -> TeacherSettings | None:
        """The settings asked for last."""
        return TeacherSettings.model_validate_json(next(reversed(self._by_settings))) if self._by_settings else None

    def under(self, settings: TeacherSettings) -> TeacherEnsemble:
        """The teachers under these settings, fitted now if they are not in memory."""
        text = settings.canonical_json()
        if text not in self._by_settings:
            self._by_settings[text] = self._fit(settings)
        self._by_settings.move_to_end(text)
        while len(self._by_settings) > _MAX_ENSEMBLES:
            self._by_settings.popitem(last=False)
        return self._by_settings[text]

    def __call__(self, request: Request) -> Fitted:
        assert isinstance(request.body, Fit)
        return Fitted(teachers=len(self.under(request.body.teacher)))


class DescribeHandler:
    """Says who the party is and which teachers it has ready; nothing of its records."""

    def __init__(self, name: str, ensembles: EnsembleCache, ledger: KnownLedger) -> None:
        self._name, self._ensembles, self._ledger = name, ensembles, ledger

    def __call__(self, request: Request) -> Description:
        latest, head = self._ensembles.latest, self._ledger.head()
        return Description(
            party=self._name,
            software=f"collegium {__version__}",
            teachers=latest.per_party if latest else 0,
            teacher_kind=latest.kind[:64] if latest else "",
            ledger_head="" if head is None else str(head),
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


class VotesHandler(ABC, Generic[_Asked, _Voters]):
    """Answers one kind of request for votes: with counts in the clear mode, else with counts kept for a secure sum.

    Parameters
    ----------
    voters : who answers: the teachers, or a function that returns the records when they are first needed.
    rounds : keeps counts for secure sums.
    gate : what answers pass before they leave.
    """

    reply: ClassVar[type[Votes] | type[Neighbours] | type[Sums]] = Neighbours
    kept_as: ClassVar[type[np.integer]] = np.int64

    def __init__(self, task: Task, pools: PoolStore, voters: _Voters, rounds: HeldSums, gate: AnswerGate) -> None:
        self._task, self._pools, self._voters = task, pools, voters
        self._rounds, self._gate = rounds, gate

    def __call__(self, request: Request) -> Votes | Neighbours | Sums | Prepared:
        body: Any = request.body
        if body.terms.sum_mode == "clear":
            return self.reply(self._gate.let_out(request, self._answer(request, body)))
        return self._rounds.prepare(request, body, lambda: self._answer(request, body).astype(self.kept_as, copy=False))

    @abstractmethod
    def _answer(self, request: Request, body: _Asked) -> NDArray[np.int64]:
        """The counts, shape ``[queries, entries]``; the gate was asked whether they may leave."""


class CastVotesHandler(VotesHandler[CastVotes, EnsembleCache]):
    """Lets the teachers vote."""

    reply = Votes
    kept_as = np.uint16

    def __init__(self, task: Task, pools: PoolStore, voters: EnsembleCache, rounds: HeldSums, gate: AnswerGate) -> None:
        super().__init__(task, pools, voters, rounds, gate)
        # Votes by position in a pool, so that an input asked about twice is predicted once.
        self._cast: OrderedDict[tuple[str, str], dict[int, NDArray[np.int64]]] = OrderedDict()

    def _answer(self, request: Request, body: CastVotes) -> NDArray[np.int64]:
        votes = self._votes(body)
        self._gate.check(request)
        return votes

    def _votes(self, body: CastVotes) -> NDArray[np.int64]:
        pool = pool_asked(self._pools, body.inputs, len(self._task.classes))
        cast = self._remembered(body.teacher.canonical_json(), body.inputs.pool_sha256)
        missing = sorted(set(body.inputs.indices) - cast.keys())
        if missing:
            unseen = pool[np.array(missing)]
            check_inputs(self._task, unseen)
            cast.update(zip(missing, self._voters.under(body.teacher).votes(unseen), strict=True))
        return np.stack([cast[position] for position in body.inputs.indices])

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
