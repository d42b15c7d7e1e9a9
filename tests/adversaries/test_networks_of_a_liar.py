"""A coordinator that sends a network of its choice, so that a party's answers or refusals single out a record."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adversaries.test_coordinator_that_repeats import TASK, X
from adversaries.test_indistinguishable import PLAN, RECORDS, everything_said, parameters_of
from collegium_reproduction.nearest.question import CountNearest
from support.liar_networks import follow_company, largest, most_moved, of_weights, ordinary
from support.nearest import AGREED

from collegium.data import Examples, PoolStore
from collegium.data.task import TeacherSettings
from collegium.data.values import ArraySpec
from collegium.models.coverage import CoverageSpec
from collegium.models.features import Features
from collegium.models.kernel_student import KernelStudent
from collegium.models.kernels import KernelMap, KernelSpec
from collegium.models.whole_networks import WholeNetwork, network_for, read_whole_network
from collegium.parties.kind import Asked, Institution
from collegium.parties.kinds.evaluation import Evaluation
from collegium.parties.policy import PolicyConfig
from collegium.parties.teachers.ensemble import TeacherEnsemble
from collegium.privacy.evaluation_cells import Layout
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.kinds.coverage import CountCoverage
from collegium.protocol.kinds.evaluation import Evaluate
from collegium.protocol.kinds.near_records import CastNeighbours
from collegium.protocol.question import PoolRange, Question, QuestionTerms
from collegium.protocol.replies import Failure
from collegium.protocol.requests import RequestBody
from collegium_accounting.mechanisms import mechanism_named
from collegium_accounting.mechanisms.record_counts import ONE, RecordCounts

GENEROUS = PolicyConfig(
    **AGREED,
    minimum_noise_votes=5,
    minimum_noise_sums=1,
    queries=100,
    record_epsilon=9.0,
    sum_modes=("masked", "masked+noised"),
)
BRIGHT = Examples(np.full((1, 4, 4, 1), 255, dtype=np.uint8), np.array([1]))
WITH_BRIGHT = Examples(np.concatenate([RECORDS.x, BRIGHT.x]), np.concatenate([RECORDS.labels(), BRIGHT.labels()]))


def terms(name: str, **changes: float) -> QuestionTerms:
    kind = mechanism_named(name)
    described = QuestionTerms(name, parameters_of(kind) | changes).described()
    mode, honest = ("masked", 0) if "masked" in kind.sum_modes else ("masked+noised", PLAN.honest_survivors)
    stage = described.stages[-1].name if honest or name == "knn" else ""
    return QuestionTerms(name, described.parameters(), described.adjacencies[0].value, mode, stage, honest)


def every_question(network: bytes, folder: Path) -> Callable[[ArraySpec], list[RequestBody | Question]]:
    """All questions that carry a network, one of each: as features, and as a classifier to be evaluated."""
    features, path = Features("network", network=network), folder / "student.safetensors"
    landmarks = np.zeros((2, network_for(network, TASK.inputs).dimensions), dtype=np.int16)
    kernel = KernelMap.of_landmarks(features, TASK.inputs, 10**6, 1.0, landmarks, "cpu")
    KernelStudent(TASK, kernel, np.ones((3, 2))).save(path)

    def bodies(pool: ArraySpec) -> list[RequestBody | Question]:
        inputs, edges = PoolRange(pool.sha256, (3,)), np.array([[10**6, 10**8]], dtype=np.int64)
        cells = CoverageSpec(features, (0, 1), (0, 1), (1, 10**9))
        counted = terms("record-counts", cells=cells.cells)
        measured = terms("record-counts", cells=float(Layout(2).length))
        around = terms("individual-knn")
        sums = terms("class-sums")
        return [
            CountNearest(terms("knn"), "ledger", features, inputs, 2, edges),
            CastNeighbours(around, "ledger", features, PoolRange(pool.sha256, (4,)), 2, (10**8,), "flat"),
            SumClasses(sums, "ledger", False, KernelSpec(features, (0, 1, 2), 10**6), pool.sha256),
            CountCoverage(counted, "ledger", False, cells, pool.sha256),
            Evaluate(measured, "ledger", False, path.read_bytes(), 2),
            Evaluate(measured, "ledger", False, network, 2),
        ]

    return bodies


def said_of_both(network: bytes, folder: Path) -> list[list[Any]]:
    """What a party says to all requests without a bright record, and with one."""
    folder.mkdir(exist_ok=True)
    bodies = every_question(network, folder)
    both = {"without": RECORDS, "with": WITH_BRIGHT}
    return [everything_said(records, GENEROUS, bodies, folder / name) for name, records in both.items()]


@pytest.mark.slow
def test_no_record_is_told_by_a_refusal_whatever_the_network(tmp_path: Path) -> None:
    """One request of every kind that carries a network.

    Searched beside this for errors that a record could cause: every ``raise`` in `models.features`, `models.kernels`,
    `models.coverage`, `models` and `parties` that a handler reaches. The others look at the request, the task, files
    that are sent, the policy or the disk.
    """
    without, with_bright = said_of_both(largest(TASK), tmp_path)
    assert without == with_bright
    assert not any(isinstance(reply, Failure) for reply in without) and without[-1][2] == 6


def test_a_party_that_checks_what_a_network_gives_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = WholeNetwork._passed

    def checked(network: WholeNetwork, x: np.ndarray) -> Any:
        inside, shares = passed(network, x)
        assert not (x.reshape(len(x), -1) == 255).all(axis=1).any() or not np.isfinite(inside[0]).all()
        return inside, shares

    monkeypatch.setattr(WholeNetwork, "_passed", checked)
    without, with_bright = said_of_both(largest(TASK), tmp_path)
    assert without != with_bright


@pytest.mark.parametrize("weight", [math.inf, math.nan, 1e30, 0.5])
def test_weights_that_are_no_whole_numbers_are_refused_whatever_the_records_are(weight: float, tmp_path: Path) -> None:
    sound = tmp_path / "sound"
    sound.mkdir()
    bodies = every_question(ordinary(TASK), sound)
    bad = of_weights(TASK, weight)

    def asked_about(pool: ArraySpec) -> list[RequestBody | Question]:
        sums = next(body for body in bodies(pool) if isinstance(body, SumClasses))
        kernel = KernelSpec(Features("network", network=bad), sums.kernel.landmarks, 10**6)
        evaluate = next(body for body in bodies(pool) if isinstance(body, Evaluate))
        asked = {"terms": sums.terms, "ledger_id": "l", "per_party": False}
        return [
            SumClasses(**asked, kernel=kernel, pool_sha256=pool.sha256),
            Evaluate(evaluate.terms, "l", False, bad, 2),
        ]

    both = [everything_said(r, GENEROUS, asked_about, tmp_path / str(len(r))) for r in (RECORDS, WITH_BRIGHT)]
    assert both[0] == both[1] and both[0][-1] == (0.0, 0.0, 0)
    assert {reply.code for reply in both[0][:-1]} == {"data"}


def moved_in_sums(network: bytes) -> float:
    """The most that leaving out the first record moves class sums under the network's features, in parts of Δ."""
    spec = KernelSpec(Features("network", network=network), tuple(range(20)), 3 * 10**7)
    kernel = KernelMap.of_pool(spec, X, TASK.inputs)
    return most_moved(kernel, RECORDS, TASK, (2, 4, 5, 8, 9, 33, 60))


def beside_a_kernel(network: bytes, folder: Path) -> bytes:
    """The file of a student of a kernel that says nothing, beside the network."""
    kernel = KernelMap.of_landmarks(Features("raw"), TASK.inputs, 10**6, 1.0, np.zeros((2, 16), dtype=np.int16))
    alone = KernelStudent(TASK, kernel, np.zeros((3, 2)))
    replace(alone, network=read_whole_network(network, "test")).save(folder / "beside.safetensors")
    return (folder / "beside.safetensors").read_bytes()


def evaluated(records: Examples, asked: Evaluate) -> np.ndarray:
    def no_teachers(_: TeacherSettings) -> TeacherEnsemble:
        raise AssertionError("nobody asked for teachers")

    own = Institution("alpha", records, TASK, PoolStore(None), bytes(32), None, "cpu", no_teachers, no_teachers, 1.0)
    return Evaluation(own).compute(asked, Asked("run", "round"))


def moved_in_evaluations(student: bytes) -> float:
    """The same of the counts of an evaluation of a classifier by rounding, in records."""
    mechanism = RecordCounts(9.0, 1, Layout(2).length)
    asked = Evaluate(QuestionTerms.of(mechanism, "clear"), "l", False, student, 2)

    def moved(count: int) -> float:
        parts = [RECORDS.take(np.arange(first, count)) for first in (0, 1)]
        most, least = (evaluated(part, asked) for part in parts)
        return float(np.linalg.norm(most - least)) / ONE

    return max(map(moved, (2, 4, 5, 8, 9, 33, 60)))


def test_a_record_that_leaves_changes_no_other_whatever_network_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: features, and answers of a classifier, that follow their company."""
    told = ordinary(TASK)
    for network in (largest(TASK), told, ordinary(TASK, members=2)):
        students = (network, beside_a_kernel(network, tmp_path))
        assert moved_in_sums(network) <= 1.0 and [moved_in_evaluations(student) for student in students] == [1.0, 1.0]
    students = (told, beside_a_kernel(told, tmp_path))
    follow_company(monkeypatch)
    assert moved_in_sums(told) > 1.2
    assert min(moved_in_evaluations(student) for student in students) > 1.2
