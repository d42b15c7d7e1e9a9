"""A run over class sums: one round labels the whole pool, the student comes from the same sums, and ε is paid once."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coordinators import dies, purposes
from support.data import pool_and_test
from support.liar import phase_of
from support.misbehaving import Misbehaving, Unheard

from collegium.coordinator.run import coordinator as run
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples
from collegium.data.task import ImageInputs, Task
from collegium.errors import BudgetExceeded, QuorumNotReached, StorageError
from collegium.models.kernel_student import KernelStudent
from collegium.models.students import read_student
from collegium.parties.policy import PolicyConfig
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.requests import Ask
from collegium.settings import validate_config
from collegium.simulations.local import LocalParties
from collegium_accounting.game.laws import block_epsilon
from collegium_accounting.mechanisms import AddedBy
from collegium_accounting.mechanisms.class_sums import ClassSums

TASK = Task(classes=tuple("0123456789"), inputs=ImageInputs(height=8, width=8))
NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")


POLICY = PolicyConfig(minimum_noise_sums=0.5, queries=100, sum_modes=("clear", "masked", "masked+noised"))


def institutions(shuffled: Examples, policy: PolicyConfig) -> Misbehaving:
    parts = {name: slice(number, 1200, len(NAMES)) for number, name in enumerate(NAMES)}
    records = {name: (shuffled.x[rows, ..., 0], shuffled.labels()[rows]) for name, rows in parts.items()}
    return Misbehaving(records, TASK, policy=policy)


@pytest.fixture(scope="module")
def parties(shuffled: Examples) -> Misbehaving:
    return institutions(shuffled, POLICY)


@pytest.fixture(scope="module")
def public(shuffled: Examples) -> PublicData:
    return pool_and_test(shuffled)


def config(**changes: Any) -> RunConfig:
    values: dict[str, Any] = {
        "name": "local",
        "task": TASK,
        "pool": {"source": "digits"},
        "mechanism": {"name": "class-sums"},
        "budget": {"epsilon": 1.0},
        "student": {"method": "kernel", "options": {"steps": 0}},
        "sums": {"rounds": 1},
    }
    return validate_config(values | changes, RunConfig, "test")


def driven(asked: RunConfig, parties: LocalParties, public: PublicData, folder: Path) -> run.CoordinatorRun:
    return run.CoordinatorRun(
        asked, run.Reach(parties, signing_keys=parties.signing_keys), run.Storage(folder), public=public
    )


@pytest.mark.bits
@pytest.mark.parametrize("mode", ["clear", "masked+noised"])
def test_one_round_labels_the_whole_pool_and_makes_the_student(
    shuffled: Examples, public: PublicData, tmp_path: Path, mode: str
) -> None:
    policy = PolicyConfig(minimum_noise_sums=0.5, queries=2, record_epsilon=2.0, sum_modes=(mode,))
    parties = institutions(shuffled, policy)
    record = driven(config(votes={"mode": mode}), parties, public, tmp_path).run()
    assert record.state == "finished" and len(record.rounds) == 1
    assert record.labels is not None and record.labels.answered == 300
    assert record.label_accuracy is not None and record.label_accuracy > 0.8
    assert record.student_accuracy is not None and record.student_accuracy > 0.8
    assert record.privacy is not None and 0.9 < record.privacy.epsilon <= 1.0
    again = driven(config(votes={"mode": mode}), parties, public, tmp_path).run()
    assert len(again.rounds) == 1 and again.privacy == record.privacy


@pytest.mark.bits
def test_a_party_unit_is_served_by_a_vector_of_each(parties: LocalParties, public: PublicData, tmp_path: Path) -> None:
    """Five parties cannot hide one of them and show a digit: what counts is that the round is paid per party."""
    asked = config(budget={"epsilon": 4.0, "unit": "party"})
    record = driven(asked, parties, public, tmp_path).label()
    assert record.privacy is not None and record.privacy.terms.unit == "party"
    assert set(record.privacy.units) == {"party"} and 3.6 < record.privacy.epsilon <= 4.0


def only_two_hear(kind: type) -> Unheard:
    return lambda name, body: name not in NAMES[:2] and isinstance(body, kind)


@pytest.mark.bits
def test_a_round_that_fails_is_asked_again_free_until_there_are_noisy_sums(
    parties: Misbehaving, public: PublicData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = config(votes={"mode": "masked+noised"}, budget={"epsilon": 9.0}, mechanism={
        "name": "class-sums", "parameters": {"sigma": 3.0}})  # fmt: skip
    reach = run.Reach(parties, roster=sorted(parties.names()), signing_keys=parties.signing_keys)

    def start() -> None:
        run.CoordinatorRun(asked, reach, run.Storage(tmp_path), public=public).label()

    # Nothing is paid while too few are ready: with another budget it would be another question.
    for unheard, failed, paid in ((object, "are ready", 0), (Ask, "answered", 1), (Ask, "answered", 1)):
        with parties.cut_off(only_two_hear(unheard)), pytest.raises(QuorumNotReached, match=f"2 parties {failed}"):
            start()
        assert len(purposes(tmp_path)) == paid
    with monkeypatch.context() as patched, pytest.raises(StorageError, match="No space left"):
        patched.setattr("collegium.coordinator.journal.save_arrays", _no_room)
        start()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("collegium.coordinator.kinds.class_sums.NoisySums", dies)
        start()
    assert len(purposes(tmp_path)) == 1, "a full disk is noticed before the charge is spent"
    next(tmp_path.glob("released-*")).unlink()
    start()
    # Somebody may have seen the sums that were lost. The third charge is for the labels, which costs nothing.
    assert len(purposes(tmp_path)) == 3


@pytest.mark.bits
@pytest.mark.parametrize("bound", ["exact", "classic"])
def test_a_party_that_leaves_while_the_sum_of_all_is_collected_costs_no_second_charge(
    parties: Misbehaving, public: PublicData, tmp_path: Path, bound: str
) -> None:
    """The sum without it is taken under the same charge, by either bound."""
    asked = config(budget={"epsilon": 9.0, "bound": bound}, votes={"mode": "masked+noised"}, mechanism={
        "name": "class-sums", "parameters": {"sigma": 3.0}})  # fmt: skip
    before = len(parties.asked)
    with parties.cut_off(lambda name, body: name == NAMES[0] and phase_of(body) == "mask_input"):
        driven(asked, parties, public, tmp_path).label()
    masked = [len(sent) for sent in parties.asked[before:] if "mask_input" in map(phase_of, sent.values())]
    assert masked == [5, 5], "of all, and then of those who answer"
    assert purposes(tmp_path)[:-1] == ["sums"]
    assert not list(tmp_path.glob("open-sum-*"))


@pytest.mark.bits
def test_a_study_pays_for_sums_of_its_own_and_uses_those_of_another_for_nothing(
    parties: LocalParties, public: PublicData, tmp_path: Path
) -> None:
    """The noise and so the charge are the same; whether a sum was released before is what counts."""
    terms: dict[str, Any] = {"votes": {"mode": "masked+noised"}, "budget": {"epsilon": 9.0}}
    terms["mechanism"] = {"name": "class-sums", "parameters": {"sigma": 3.0}}
    spent = []
    for study, sums in (("one", {}), ("two", {}), ("three", {"bandwidth": 0.5}), ("four", {})):
        storage = run.Storage(tmp_path / study, ledger=tmp_path / "ledger.sqlite", study=study)
        reach = run.Reach(parties, signing_keys=parties.signing_keys)
        record = run.CoordinatorRun(config(**terms, sums=sums), reach, storage, public=public).label()
        assert record.labels is not None and record.labels.answered == 300
        with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
            spent.append(ledger.epsilon())
    one, two, three, four = spent
    assert one == two and three > 1.3 * one
    assert four == three, "each question has a file of its own"


@pytest.mark.bits
def test_sums_that_the_budget_did_not_take_leave_labels_of_paid_ones_free(
    parties: LocalParties, public: PublicData, tmp_path: Path
) -> None:
    """They were stated: whoever used the sums that are there was told that the ledger is damaged."""
    terms: dict[str, Any] = {"budget": {"epsilon": 1.5}}
    terms["mechanism"] = {"name": "class-sums", "parameters": {"sigma": 3.0}}
    given = {}
    for study, sums in (("one", {}), ("two", {"bandwidth": 0.5}), ("three", {})):
        storage = run.Storage(tmp_path / study, ledger=tmp_path / "ledger.sqlite", study=study)
        reach = run.Reach(parties, signing_keys=parties.signing_keys)
        record = run.CoordinatorRun(config(**terms, sums=sums), reach, storage, public=public).label()
        assert record.labels is not None
        given[study] = record.labels.answered
    assert given == {"one": 300, "two": 0, "three": 300}


@pytest.mark.slow
def test_a_second_study_whose_noise_follows_from_its_part_of_the_budget_fits(
    parties: LocalParties, public: PublicData, tmp_path: Path
) -> None:
    def study(name: str, **budget: float) -> float:
        storage = run.Storage(tmp_path / name, ledger=tmp_path / "ledger.sqlite", study=name)
        reach = run.Reach(parties, signing_keys=parties.signing_keys)
        record = run.CoordinatorRun(config(budget=budget), reach, storage, public=public).label()
        assert len(record.rounds) == 1, "it asks for sums of its own noise, as it pays for them"
        with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
            return ledger.epsilon()

    assert 0.9 < study("one", epsilon=1.0) <= 1.0
    with pytest.raises(BudgetExceeded, match=r"of ε = 2.5 is spent, and a run of class-sums alone costs 2\.\d+"):
        study("two", epsilon=2.5)
    assert 1.2 < study("three", epsilon=2.5, study=1.1) <= 2.5


def _no_room(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.bits
@pytest.mark.parametrize("flipped", [False, True])
def test_damaged_sums_are_not_bought_again(
    parties: LocalParties, public: PublicData, tmp_path: Path, flipped: bool
) -> None:
    """Also where one bit of a number is another, which no format notices."""
    driven(config(), parties, public, tmp_path).label()
    file = next(tmp_path.glob("released-*"))
    held = file.read_bytes()
    file.write_bytes(held[:-9] + bytes([held[-9] ^ 1]) + held[-8:] if flipped else b"damaged")
    with pytest.raises(StorageError, match="restore it from a copy, or remove it: it is then paid anew"):
        driven(config(), parties, public, tmp_path).fit()


def test_a_sum_that_the_budget_does_not_take_is_not_asked_for(
    parties: LocalParties, public: PublicData, tmp_path: Path
) -> None:
    asked = config(mechanism={"name": "class-sums", "parameters": {"sigma": 1.0}})
    with pytest.raises(BudgetExceeded, match="class-sums"):
        driven(asked, parties, public, tmp_path).label()


def test_the_student_is_the_same_from_its_file(parties: LocalParties, public: PublicData, tmp_path: Path) -> None:
    driven(config(), parties, public, tmp_path).run()
    student = read_student(RunFolder(tmp_path).student, device="cpu")
    assert isinstance(student, KernelStudent)
    probabilities = student.probabilities(public.pool.x)
    assert np.allclose(probabilities.sum(axis=1), 1.0) and (probabilities > 0.0).all()
    assert (student.predict(public.pool.x) == probabilities.argmax(axis=1)).all()
    right = student.predict(public.pool.x) == public.pool.labels()
    assert 0.2 < probabilities.max(axis=1).mean() < right.mean() + 0.05  # not surer than it may be
    student.save(tmp_path / "copy.safetensors")
    assert (tmp_path / "copy.safetensors").read_bytes() == RunFolder(tmp_path).student.read_bytes()


@pytest.mark.slow
def test_a_network_beside_the_sums_classifier_of_images_is_right_more_often(
    parties: LocalParties, public: PublicData, tmp_path: Path
) -> None:
    """Of 297 digits, under so much noise that it is 9 points: how a processor rounds while it learns moves it by one.

    The noise and the labels are whole numbers from a seed, the same on every processor.
    """
    brief = {"method": "kernel", "options": {"steps": 120}}
    asked = {"seed": 2, "budget": {"epsilon": 0.1}, "votes": {"mode": "clear"}, "sums": {"rounds": 1}}
    alone = driven(config(**asked), parties, public, tmp_path).run()
    again = driven(config(**asked, student=brief), parties, public, tmp_path).run()
    assert alone.student_accuracy is not None and again.student_accuracy is not None
    assert again.student_accuracy > alone.student_accuracy + 0.02
    assert alone.privacy == again.privacy and len(again.rounds) == 1


@pytest.mark.parametrize("budget", [0.05, 0.3, 2.0])
def test_the_noise_follows_from_the_budget(budget: float) -> None:
    chosen: Callable[..., dict[str, Any]] = ClassSums.within_budget
    sigma = chosen({"classes": 3}, budget, 1e-5)["sigma"]
    assert chosen({"classes": 3, "sigma": 7.0}, budget, 1e-5)["sigma"] == 7.0
    assert 1.0 / budget < sigma < 5.0 / budget
    twice = ClassSums(classes=3, rounds=2, sigma=chosen({"classes": 3, "rounds": 2}, budget, 1e-5)["sigma"])
    assert twice.sigma == pytest.approx(2**0.5 * sigma, rel=1e-3)
    law = twice.summed(AddedBy(4))[0].law(twice.unit())
    assert 0.999 * budget < block_epsilon({law: twice.charged_queries(5000)}, 1e-5) <= budget
    assert twice.charged_queries(5000, AddedBy(4)) == 2, "one round's charge for two releases"
