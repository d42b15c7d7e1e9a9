"""Eight rounds of class sums that are killed, missed by parties or refused between any two: nothing is paid twice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coordinators import charges
from support.misbehaving import Misbehaving, number_of
from support.sums_scene import TASK, records

from collegium.coordinator.asking import Asking
from collegium.coordinator.run import coordinator as run
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples
from collegium.errors import QueriesRefused, QuorumNotReached, StorageError
from collegium.models.kernel_student import KernelStudent
from collegium.models.students import read_student
from collegium.parties.policy import PolicyConfig
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.question import Question
from collegium.settings import validate_config
from collegium.simulations.local import LocalParties
from collegium.whole_files import read_digested, write_digested

ROUNDS = 4
POLICY = PolicyConfig(minimum_noise_sums=0.5, queries=100, sum_modes=("masked+noised",))


@pytest.fixture(scope="module")
def public() -> PublicData:
    pool, holdout = records(7, 60), records(8, 40)
    return PublicData(Examples(pool.x, None), holdout)


@pytest.fixture
def parties() -> Misbehaving:
    """Five institutions without a history."""
    return institutions(POLICY)


def institutions(policy: PolicyConfig) -> Misbehaving:
    own = {name: records(seed, 80) for seed, name in enumerate(("a", "b", "c", "d", "e"))}
    columns = {name: (one.x, one.labels()) for name, one in own.items()}
    return Misbehaving(columns, TASK, policy=policy)


def config(**changes: Any) -> RunConfig:
    values: dict[str, Any] = {
        "name": "local",
        "task": TASK,
        "pool": {"source": "pool.npz"},
        "budget": {"epsilon": 2.0},
        "sums": {"landmarks": 12, "rounds": ROUNDS},
    }
    return validate_config(values | changes, RunConfig, "test")


def driven(parties: LocalParties, public: PublicData, folder: Path, **changes: Any) -> run.CoordinatorRun:
    reach = run.Reach(parties, signing_keys=parties.signing_keys)
    return run.CoordinatorRun(config(**changes), reach, run.Storage(folder), public=public)


def whole(record: RunRecord, folder: Path) -> None:
    assert record.labels is not None and record.labels.answered == 60 and record.labels.stopped is None
    assert charges(folder) == ROUNDS + 1, "each round once, and the labels, which cost nothing"
    assert record.privacy is not None and 1.8 < record.privacy.epsilon <= 2.0


@pytest.mark.bits
@pytest.mark.parametrize(
    "number", [pytest.param(at, marks=[] if at == 2 else [pytest.mark.bits]) for at in range(1, ROUNDS + 1)]
)
@pytest.mark.parametrize("after", [False, True], ids=["before it is asked", "after it was opened"])
def test_a_run_that_is_killed_between_two_rounds_asks_the_same_question_and_pays_once(
    parties: LocalParties, public: PublicData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, after: bool
) -> None:
    honest = Asking.total

    def killed(self: Asking, question: Any, *told: Any) -> Any:
        if question.question.number == number:
            if after:
                honest(self, question, *told)
            raise KeyboardInterrupt
        return honest(self, question, *told)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Asking, "total", killed)
        driven(parties, public, tmp_path).run()
    known = {path: path.read_bytes() for path in tmp_path.glob("class-sums-next-*")}
    assert len(known) == number - 1
    whole(driven(parties, public, tmp_path).run(), tmp_path)
    assert all(path.read_bytes() == data for path, data in known.items())
    student = read_student(tmp_path / "student.safetensors", device="cpu")
    assert isinstance(student, KernelStudent) and student.logistic


def test_rounds_without_one_party_go_on_and_end_in_a_student(
    parties: Misbehaving, public: PublicData, tmp_path: Path
) -> None:
    """One of five is away in the second and in the third round."""
    with parties.cut_off(lambda name, body: name == "b" and number_of(body) in (2, 3)):
        record = driven(parties, public, tmp_path).run()
    assert ["b" in one.failed for one in record.rounds] == [False, True, True, False]
    whole(record, tmp_path)


def test_where_parties_refuse_later_rounds_those_so_far_label_all(
    parties: Misbehaving, public: PublicData, tmp_path: Path
) -> None:
    """Each agreed to all four, and changes its mind after two."""

    def no_more(question: Question, vector: np.ndarray) -> np.ndarray:
        assert isinstance(question, SumClasses)
        if question.number > 2:
            raise QueriesRefused("policy: no more")
        return vector

    for name in parties.names():
        parties.lies(name, no_more)
    record = driven(parties, public, tmp_path).run()
    assert record.labels is not None and record.labels.answered == 60
    assert "follow from 2 of 4 class sums alone" in (record.labels.stopped or "")


def test_weights_that_were_edited_are_another_question_and_damaged_ones_are_noticed(
    parties: LocalParties, public: PublicData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Asking.total

    def killed(self: Asking, question: Any, *told: Any) -> Any:
        if question.question.number == 2:
            raise KeyboardInterrupt
        return honest(self, question, *told)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Asking, "total", killed)
        driven(parties, public, tmp_path).label()
    (kept,) = tmp_path.glob("class-sums-next-*")
    first = read_digested(kept)
    for damaged in (b"damaged", kept.read_bytes()[:-4]):
        kept.write_bytes(damaged)
        with pytest.raises(StorageError, match="restore it from a copy"):
            driven(parties, public, tmp_path).label()
    write_digested(kept, first[:-4] + np.int32(5).tobytes())
    record = driven(parties, public, tmp_path).label()
    assert record.labels is not None
    spent = charges(tmp_path)
    assert spent == ROUNDS + 2 or "do not fit the budget" in (record.labels.stopped or "")


@pytest.mark.bits
@pytest.mark.parametrize(
    ("limit", "too_little", "enough"),
    [("record_epsilon", 1.2, 4.0), ("queries", ROUNDS - 1, ROUNDS)],
)
def test_parties_whose_policy_bears_some_rounds_alone_refuse_the_first(
    public: PublicData, tmp_path: Path, limit: str, too_little: float, enough: float
) -> None:
    """They answered it: a student of one noisy round of several was published, and the budget gone."""

    def run_with(most: float) -> tuple[LocalParties, run.CoordinatorRun]:
        parties = institutions(POLICY.model_copy(update={limit: most}))
        return parties, driven(parties, public, tmp_path / str(most))

    few, refused = run_with(too_little)
    with pytest.raises(QuorumNotReached, match="refused-cost" if limit == "record_epsilon" else "refused-queries"):
        refused.label()
    assert [party._own.book().record_spent() for party in few._parties.values()] == [0.0] * 5
    _, borne = run_with(enough)
    label = borne.label().labels
    assert label is not None and label.stopped is None
