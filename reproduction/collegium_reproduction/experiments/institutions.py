"""Institutions whose records were divided by nature: asked together, pooled without privacy, and each alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.run.coordinator import CoordinatorRun, Reach, Storage, Watch
from collegium.coordinator.run.run_record import reached
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples, PoolStore
from collegium.data.task import Task, TeacherSettings
from collegium.errors import DataError
from collegium.models.features import Features, extract
from collegium.parties.party import Party, unrestricted
from collegium.parties.teachers.splits import simulated_key
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.messages import Request
from collegium.protocol.question import PoolRange, QuestionTerms
from collegium.protocol.replies import Counts
from collegium.protocol.requests import Ask
from collegium.simulations.local import InProcessParties
from collegium_reproduction.experiments.base import Setting

NON_PRIVATE_K = (1, 5, 15, 50, 150)
"""Neighbours tried by the non-private yardstick, which is granted the best of them on the test."""


@dataclass(frozen=True, eq=False)
class Institutions:
    """Who holds which records, and what is public.

    Attributes
    ----------
    records : by party name; an institution without a record is in no consortium, and not here.
    public : the pool, and the inputs that everything is measured on.
    """

    task: Task
    records: Mapping[str, Examples]
    public: PublicData
    seed: int

    @classmethod
    def of(
        cls, task: Task, private: Examples, parts: Sequence[NDArray[np.int64]], public: PublicData, seed: int
    ) -> Institutions:
        """From the positions of each institution's records."""
        width = len(str(len(parts) - 1))
        records = {f"party-{n:0{width}d}": private.take(part) for n, part in enumerate(parts) if len(part)}
        return cls(task, records, public, seed)

    def parties(self, folder: Path | None, pools: PoolStore) -> list[Party]:
        """Real parties in this process; what they fit and spend is kept under ``folder``."""
        return [
            self._party(name, own, None if folder is None else folder / name, pools)
            for name, own in self.records.items()
        ]

    def pooled(self, pools: PoolStore) -> Party:
        """One party that holds all records: what nobody would allow."""
        return self._party("pooled", self.all_records(), None, pools)

    def all_records(self) -> Examples:
        parts = list(self.records.values())
        return Examples(np.concatenate([part.x for part in parts]), np.concatenate([part.labels() for part in parts]))

    def _party(self, name: str, examples: Examples, folder: Path | None, pools: PoolStore) -> Party:
        return Party(
            name,
            examples,
            self.task,
            folder=folder,
            pools=pools,
            split_key=simulated_key(self.seed, name),
            record_rho=math.inf,  # what a run would give; its own budget per record holds
            policy=unrestricted,
        )

    def accuracy(self, predicted: NDArray[np.int64]) -> float:
        """Share of the public test that is predicted right."""
        assert self.public.holdout is not None
        return float((predicted == self.public.holdout.labels()).mean())


def together(
    config: RunConfig,
    institutions: Institutions,
    everyone: InProcessParties,
    folder: Path,
    setting: Setting,
    *,
    student: bool,
) -> dict[str, Any]:
    """One run over all institutions: how good labels and student are, and ε per record and per institution."""
    coordinator = CoordinatorRun(
        config,
        Reach(everyone),
        Storage(folder),
        public=institutions.public,
        watch=Watch(setting.progress),
    )
    run = coordinator.run() if student else coordinator.label()
    units = reached(run.privacy).units
    return {
        "answered": reached(run.labels).answered,
        "labels": run.label_accuracy,
        "student": run.student_accuracy if student else None,
        "record": units["record"],
        "party": units.get("party"),
    }


def votes_on_the_test(
    institutions: Institutions, parties: Sequence[Party], pools: PoolStore, teacher: TeacherSettings
) -> list[NDArray[np.int64]]:
    """What each party's teachers say of the public test, ``[inputs, classes]`` each: asked as a coordinator asks."""
    assert institutions.public.holdout is not None
    spec = pools.put(institutions.public.holdout.x)
    everything = PoolRange(spec.sha256, tuple(range(spec.shape[0])))
    terms = QuestionTerms(
        "gnmax", {"sigma": 1.0}
    )  # a party answers where it knows the mechanism; no noise is added here
    question = CastVotes(terms, "test", teacher, everything, len(institutions.task.classes))
    said = []
    for party in parties:
        answer = party.handle(Request(f"test-{party.name}", "test", Ask("test", question))).body
        if not isinstance(answer, Counts):
            raise DataError(f"{party.name} did not vote on the test: {answer}")
        said.append(answer.counts)
    return said


def accuracies(
    institutions: Institutions, parties: Sequence[Party], pools: PoolStore, teacher: TeacherSettings
) -> list[float]:
    """How good one model of each party alone is on the test, without privacy."""
    one_each = teacher.model_copy(update={"per_party": 1})
    votes = votes_on_the_test(institutions, parties, pools, one_each)
    return [institutions.accuracy(counts.argmax(axis=1)) for counts in votes]


def neighbours_pooled_and_alone(institutions: Institutions) -> dict[str, Any]:
    """The same for k nearest neighbours on the inputs themselves, with the k that is best on the test."""
    return {
        "pooled": _by_neighbours(institutions.all_records(), institutions),
        "alone": [_by_neighbours(own, institutions) for own in institutions.records.values()],
    }


def _by_neighbours(examples: Examples, institutions: Institutions) -> float:
    from sklearn.neighbors import NearestNeighbors

    assert institutions.public.holdout is not None
    raw, inputs = Features("raw"), institutions.task.inputs
    own, asked = extract(raw, examples.x, inputs), extract(raw, institutions.public.holdout.x, inputs)
    index = NearestNeighbors(n_neighbors=min(max(NON_PRIVATE_K), len(own))).fit(own)
    nearest = examples.labels()[index.kneighbors(asked, return_distance=False)]
    is_class = nearest[:, :, None] == np.arange(len(institutions.task.classes))
    return max(institutions.accuracy(is_class[:, :k].sum(axis=1).argmax(axis=1)) for k in NON_PRIVATE_K)
