"""A coordinator that wants two exact sums over other parties: it puts almost the same question in another way."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.liar import Liar
from support.sums_scene import LENGTH, NAMES, SPEC, TASK, Consortium

from collegium.data.coverage import CoverageSpec
from collegium.data.features import Features
from collegium.data.kernels import KernelMap
from collegium.errors import QuorumNotReached
from collegium.parties.answer_book import FILE, AnswerBook
from collegium.parties.class_sums import RecordsOfClasses
from collegium.parties.policy import Policy, PolicyConfig
from collegium.privacy.mechanisms.class_sums import count_of_one
from collegium.privacy.mechanisms.record_counts import ONE, RecordCounts
from collegium.protocol.requests import CountCoverage, Terms
from collegium.protocol.secure_sum import plan_graph

LIMITS = PolicyConfig(minimum_noise_sums=2.0, queries=10)
NEAR = replace(SPEC, bandwidth_squared=SPEC.bandwidth_squared + 1)
"""Nearly the same map: every record contributes what it does under the other, but for rounding."""
FEWER = [name for name in NAMES if name != "alpha"]


def asked(consortium: Callable[..., Consortium], folder: Path, policy: PolicyConfig) -> tuple[Consortium, Liar]:
    def account(name: str) -> AnswerBook:
        (folder / name).mkdir(parents=True)
        return AnswerBook(folder / name, name, policy, None)

    parties = consortium(policy=lambda name: Policy(policy), account=account)
    return parties, Liar(parties.parties, parties.roster, parties.plan, "trial")


def forget(folder: Path) -> None:
    """Have every party below ``folder`` forget which sums it took part in."""
    for file in folder.glob(f"*/{FILE}"):
        with closing(sqlite3.connect(file, isolation_level=None)) as database:
            database.execute("DELETE FROM answered")
            database.execute("DELETE FROM bound")


def test_exact_sums_by_a_near_copy_of_the_kernel_over_fewer_parties_are_not_opened(
    consortium: Callable[..., Consortium], kernel: KernelMap, tmp_path: Path
) -> None:
    """The planted bug, parties that forget what left: the difference of the two sums is what the fifth party sent."""
    parties, liar = asked(consortium, tmp_path / "two", LIMITS)
    everybody = liar.total(parties.request("masked"), LENGTH).counts[0]
    again = parties.request("masked", kernel=NEAR, round_id="round-2")
    forget(tmp_path / "two")
    stolen = everybody - liar.total(again, LENGTH, FEWER).counts[0]
    alone = RecordsOfClasses(parties.examples["alpha"], TASK).sums(kernel)
    assert np.abs(stolen - alone).max() < 0.01 * np.abs(alone).max()

    parties, liar = asked(consortium, tmp_path / "one", LIMITS)
    liar.total(parties.request("masked"), LENGTH)
    liar.forget()
    with pytest.raises(QuorumNotReached):
        liar.total(again, LENGTH, FEWER)
    assert liar.refusals() == dict.fromkeys(FEWER, "refused-queries")


def test_exact_sums_of_two_kinds_over_other_parties_are_not_opened(
    consortium: Callable[..., Consortium], tmp_path: Path
) -> None:
    """The number of all records is in the class sums, that of the others in the counts of a pool's coverage."""
    cells = CoverageSpec(Features("raw"), (0, 1), (0, 1), (1, 1000))
    mechanism = RecordCounts(5.0, 1, cells.cells)

    def counted(parties: Consortium) -> CountCoverage:
        terms = Terms.of(mechanism, "masked")
        return CountCoverage(terms, "round-2", "ledger", False, cells, parties.pool_sha256)

    parties, liar = asked(consortium, tmp_path / "two", LIMITS)
    everybody = liar.total(parties.request("masked"), LENGTH).counts[0][-1] / count_of_one(3)
    forget(tmp_path / "two")
    others = liar.total(counted(parties), cells.cells, FEWER).counts.sum() / ONE
    assert everybody - others == len(parties.examples["alpha"])

    parties, liar = asked(consortium, tmp_path / "one", LIMITS)
    liar.total(parties.request("masked"), LENGTH)
    liar.forget()
    with pytest.raises(QuorumNotReached):
        liar.total(counted(parties), cells.cells, FEWER)
    assert liar.refusals() == dict.fromkeys(FEWER, "refused-queries")
    same = replace(counted(parties), round_id="round-3")
    assert liar.total(same, cells.cells).counts.sum() / ONE == sum(map(len, parties.examples.values()))


def test_exact_sums_of_two_kinds_over_two_rosters_are_not_opened(
    consortium: Callable[..., Consortium], tmp_path: Path
) -> None:
    """Quorums of two rosters need not meet: whoever gave a sum over one gives none over another."""
    cells = CoverageSpec(Features("raw"), (0, 1), (0, 1), (1, 1000))
    parties, liar = asked(consortium, tmp_path, LIMITS.model_copy(update={"few_parties": True}))
    liar.total(parties.request("masked"), LENGTH)
    del parties.roster["alpha"]  # each party holds this very roster
    liar = Liar(parties.parties, parties.roster, plan_graph(len(FEWER), 0.2, 0.1), "trial")
    terms = Terms.of(RecordCounts(5.0, 1, cells.cells), "masked")
    with pytest.raises(QuorumNotReached):
        counted = CountCoverage(terms, "round-2", "ledger", False, cells, parties.pool_sha256)
        liar.total(counted, cells.cells)
    assert liar.refusals() == dict.fromkeys(FEWER, "refused-queries")


def test_where_parties_add_the_noise_another_question_is_answered_and_counted(
    consortium: Callable[..., Consortium], tmp_path: Path
) -> None:
    parties, _ = asked(consortium, tmp_path, LIMITS)
    for number, kernel in enumerate((SPEC, NEAR)):
        parties.asks(parties.request("masked+noised", kernel=kernel, round_id=f"round-{number}"))
