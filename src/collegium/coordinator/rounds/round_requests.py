"""The requests of a round: they ask for the votes of teachers, or for the classes of neighbouring records.

A new kind of request needs a class here, a line in `build_requests` and, where its answers are added up in another
way, a sum in `factories.vote_sum_of`.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.rounds.rounds import round_id
from collegium.coordinator.selection.kernel_choice import kernel_spec
from collegium.coordinator.selection.pool_geometry import fit_features, nearest_edges_squared, public_radii_squared
from collegium.coordinator.settings.run_config import NeighboursConfig, RunConfig
from collegium.data.features import Features, dimensions, extract
from collegium.data.kernels import KernelSpec
from collegium.data.task import Inputs, TeacherSettings
from collegium.errors import ConfigurationError, DataError, StorageError
from collegium.models.students import Student
from collegium.privacy.mechanisms import AnsweredBy, Mechanism, SumMode
from collegium.protocol.requests import (
    CastNeighbours,
    CastVotes,
    CountNearest,
    PoolRange,
    SumClasses,
    Terms,
    VoteRequest,
)

PRETRAINED = "pretrained"
"""Features that a network learned from the pool without labels."""

STUDENT = "student"
"""Features of the student of the labels so far; Private-kNN's iterations (Zhu et al. 2020, section 3)."""


def features_of(
    settings: NeighboursConfig,
    pool: NDArray[Any],
    inputs: Inputs,
    pretrained: Callable[[], bytes],
    student: Student | None = None,
) -> Features:
    """The features by which records near a query are found. They are made from the pool and from ``student`` alone.

    Parameters
    ----------
    pretrained : returns the file of a network that learned from the pool without labels; called only where
        ``settings`` want it.
    student : of the labels so far; None before there is one, and then the features do not need it.

    Raises
    ------
    ConfigurationError
        If the student is no network, or too few principal components exist.
    """
    name, network = settings.features, settings.network_bytes()
    if name == PRETRAINED:
        name, network = "network", pretrained()
    if name == STUDENT:
        name = "hog" if inputs.kind == "image" else "standard"
        if student is not None:
            name, network = "network", _network_of(student, inputs)
    kept = settings.dimensions
    if kept is not None and student is not None:
        # Another network may have fewer features than the components that were asked for.
        kept = min(kept, dimensions(Features(name, network=network), inputs), len(pool) - 1)
    return fit_features(name, kept, pool, inputs, network)


def _network_of(student: Student, inputs: Inputs) -> bytes:
    network = getattr(student, "to_bytes", bytes)()
    try:
        dimensions(Features("network", network=network), inputs)
    except (DataError, StorageError) as error:
        raise ConfigurationError(
            f"neighbours.features = 'student' needs a student that is a network ending in a linear layer: {error}"
        ) from error
    return network


class RoundRequests(ABC):
    """How inputs of the pool become requests; `selection.query_selector` chooses the inputs."""

    votes_per_unit: Mapping[str, int]
    """How many votes one unit can change, by the names of the units that are protected."""
    teacher: TeacherSettings | None = None
    """What parties must have fitted before; None where records answer for themselves."""
    want_student = False
    """Whether a student changes the requests of later rounds: `informed_by` is called then."""

    def informed_by(self, student: Student) -> "RoundRequests":
        """The requests that use what the student of all labels so far has learned. It is public: it may be sent.

        Equal students must give equal requests, so that a round that is taken up again is asked as it was.
        """
        return self

    @abstractmethod
    def request(self, mechanism: Mechanism, mode: str, asked: PoolRange, stage: str) -> VoteRequest:
        """The request of a round for a stage of ``mechanism``; equal requests on equal terms make equal rounds.

        ``stage`` is `WHOLE_MECHANISM` where one sum serves every stage.
        """


class TeacherRequests(RoundRequests):
    """Requests about inputs of the pool that the parties' teachers answer.

    Parameters
    ----------
    ledger_id : as for `RecordRequests`.
    """

    def __init__(self, config: RunConfig, ledger_id: str) -> None:
        self._teacher = self.teacher = config.teachers
        self._ledger_id = ledger_id
        self.votes_per_unit = {"record": 1, "party": config.teachers.per_party}

    def request(self, mechanism: Mechanism, mode: str, asked: PoolRange, stage: str) -> CastVotes:
        terms = Terms.of(mechanism, mode, stage)
        name = round_id(asked.pool_sha256, asked.indices, (terms, self._ledger_id))
        return CastVotes(terms, self._teacher, asked, name, self._ledger_id)


class RecordRequests(RoundRequests):
    """Requests about inputs of the pool that the records near them answer.

    Parameters
    ----------
    ledger_id : names the ledger under which the labels are released, and the study: each has labels of its own, so that
        records would pay once for two releases if the answers of one were given to another.
    pretrained : see `features_of`.
    student : of the labels so far, where the settings want its features.
    """

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
        self.votes_per_unit = {config.budget.unit: 1}
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


class NearestRequests(RecordRequests):
    """Requests about inputs of the pool that the nearest of a sample of the records answer."""

    def _ask(self, terms: Terms, asked: PoolRange, positions: NDArray[np.int64]) -> CountNearest:
        """The first request of a round; `nearest_sum.NearestSum` derives the second from its sum."""
        edges = nearest_edges_squared(self._values, positions, self._settings.share, self._settings.bins)
        name = round_id(asked.pool_sha256, asked.indices, (terms, self.features.digest(), edges.tolist()))
        return CountNearest(terms, self.features, asked, edges, False, name, self._ledger_id)


class NeighbourRequests(RecordRequests):
    """Requests about inputs of the pool that all records within a radius answer."""

    def _ask(self, terms: Terms, asked: PoolRange, positions: NDArray[np.int64]) -> CastNeighbours:
        radii = tuple(public_radii_squared(self._values, positions, self._settings.share).tolist())
        kernel, per_party = self._settings.kernel, self._config.budget.unit == "party"
        name = round_id(asked.pool_sha256, asked.indices, (terms, radii, self.features.digest(), kernel, per_party))
        return CastNeighbours(terms, self.features, asked, radii, kernel, name, self._ledger_id, per_party)


class SumRequests(RoundRequests):
    """A request for class sums, which all records answer; the labels of all inputs follow from one or two.

    Parameters
    ----------
    pool_sha256 : the name of ``pool``.
    ledger_id : names the ledger under which the sums are released.
    noise : of the sums, in contributions; it may follow from the budget.
    """

    network: bytes | None = None
    """Records are compared by its features; by those of the settings where it is None."""
    number = 1
    """1 for the first sum, 2 for the second."""

    def __init__(self, config: RunConfig, pool: NDArray[Any], pool_sha256: str, ledger_id: str, noise: float) -> None:
        self._config, self._pool, self._pool_sha256, self._ledger_id = config, pool, pool_sha256, ledger_id
        self._noise = noise
        self.votes_per_unit = {config.budget.unit: 1}
        self._charge = 0

    def paid_by(self, charge: int) -> Self:
        """The request of the one release that this entry of the ledger pays."""
        paid = copy(self)
        paid._charge = charge
        return paid

    def under(self, network: bytes) -> Self:
        """The request for a second sum, under features of these networks, which learned from the first sum alone.

        Where the file is empty, it is a second sum under the same map.
        """
        second = type(self)(self._config, self._pool, self._pool_sha256, self._ledger_id, self._noise)
        second.network, second.number = network or None, 2
        return second

    @cached_property
    def spec(self) -> KernelSpec:
        """The public kernel."""
        task = self._config.task
        asked = self._config.sums, self._pool, task.inputs, len(task.classes)
        return kernel_spec(*asked, self._noise, self._config.seed or 0, self.network)

    @property
    def per_party(self) -> bool:
        """Whether each party sends one vector for all of its records."""
        return self._config.budget.unit == "party"

    @cached_property
    def question(self) -> str:
        """What is asked, of which pool and under which ledger, with which noise: equal texts have equal answers."""
        asked = [self.number, self.spec.digest(), self._pool_sha256, self._ledger_id]
        return json.dumps([*asked, self._noise, self._config.votes.mode, self._config.budget.unit])

    def request(self, mechanism: Mechanism, mode: str, asked: PoolRange, stage: str) -> SumClasses:
        """The request; ``asked`` does not matter, as a sum labels every input."""
        terms = Terms.of(mechanism, mode, stage)
        name = round_id(self._pool_sha256, (), (terms, self.question))
        ledger, pool = paid_from(self._ledger_id, self._charge, mode), self._pool_sha256
        return SumClasses(terms, name, ledger, self.per_party, self.spec, pool, self.number)


def paid_from(ledger_id: str, charge: int, mode: str) -> str:
    """What a request for a sum over all records calls its ledger, where this entry pays for the release.

    A party takes what an entry pays for as one answer. Where the parties add the noise, every answer is a new one to
    them in any case, and the entry is left out.
    """
    return ledger_id if mode == SumMode.MASKED_AND_NOISED else f"{ledger_id}:{charge}"


def build_requests(
    config: RunConfig,
    pool: NDArray[Any],
    pool_sha256: str,
    ledger_id: str,
    pretrained: Callable[[], bytes],
    study: str | None = None,
    noise: float = 0.0,
) -> RoundRequests:
    """How ``config`` asks about the pool ``[inputs, …]`` of that name; see `RecordRequests` and `SumRequests`."""
    if config.mechanism.kind.answered_by is AnsweredBy.ALL_RECORDS:
        return SumRequests(config, pool, pool_sha256, ledger_id, noise)
    own = ledger_id if study is None else f"{ledger_id}:{study}"
    if config.neighbours is None:
        return TeacherRequests(config, own)
    if config.mechanism.kind.answered_by is AnsweredBy.SAMPLED_RECORDS:
        return NearestRequests(config, config.neighbours, pool, own, pretrained)
    return NeighbourRequests(config, config.neighbours, pool, own, pretrained)
