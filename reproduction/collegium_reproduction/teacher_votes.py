"""What only a simulation may know: its teachers' votes, how good they are, their gaps, data-dependent ε.

Every figure here is computed from the votes without noise, so it is as private as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.data import load
from collegium.parties.teachers.ensemble import TeacherEnsemble
from collegium.parties.teachers.specs import TeacherFactory, TeacherStore, specs_of
from collegium.parties.teachers.splits import load_or_create_key, simulated_key
from collegium.simulations.cohort import PreparedRun
from collegium_accounting.analysis.epsilons import SecretEpsilons
from collegium_accounting.mechanisms import IntArray, VoteMechanism
from collegium_reproduction.secret_epsilons import secret_epsilons


def teacher_votes(run: PreparedRun, x: NDArray[Any]) -> IntArray:
    """The votes of all teachers of a simulation for inputs ``x``, shape ``[inputs, classes]``.

    They are those that the run sums: its fitted teachers are read from its folder, and missing ones are fitted.
    """
    config, votes = run.config, np.zeros((len(x), len(run.config.task.classes)), dtype=np.int64)
    assert config.teachers is not None  # its mechanism asks teachers
    factory = TeacherFactory(config.teachers, config.task, (config.teachers.kind,))
    for member in run.cohort:
        records = load(member.source, config.task, data_root=None)
        key = load_or_create_key(member.folder) if config.seed is None else simulated_key(config.seed, member.name)
        store = TeacherStore(member.folder / "teachers")
        specs = specs_of(member.name, records, factory, key=key, store=store)
        votes += TeacherEnsemble(specs, device=config.engine.device, threads=config.engine.threads).votes(x)
    return votes


@dataclass(frozen=True)
class VoteFigures:
    """Figures of the votes for some queries."""

    teacher_accuracy: float
    """Of the mean teacher."""
    plurality_accuracy: float
    """Of the class with the most votes."""
    gap: float
    """Between the two largest counts, as a share of the votes; the mean over queries."""
    epsilons: SecretEpsilons
    """Of answering all of them with discrete noise."""


def vote_figures(votes: IntArray, truth: IntArray, mechanism: VoteMechanism, delta: float) -> VoteFigures:
    """Figures of ``votes``, shape ``[queries, classes]``, given the queries' true classes, shape ``[queries]``."""
    ordered, teachers = np.sort(votes, axis=1), votes.sum(axis=1)
    return VoteFigures(
        teacher_accuracy=float((votes[np.arange(len(truth)), truth] / teachers).mean()),
        plurality_accuracy=float((votes.argmax(axis=1) == truth).mean()),
        gap=float(((ordered[:, -1] - ordered[:, -2]) / teachers).mean()),
        epsilons=secret_epsilons(mechanism, votes, delta, unit=mechanism.unit(), noise=("discrete",)),
    )
