"""A second sum, under features that networks learned from the first: each is paid for, asked and drawn once.

Where the sum says that the networks are worse than its own classifier, the second is a round under weights.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coordinators import charges, dies
from support.misbehaving import Misbehaving, number_of
from support.sums_scene import SPEC, Consortium
from unit.sums.test_sum_runs import POLICY, config, driven, institutions

from collegium.coordinator.asking import Asking
from collegium.coordinator.report.page import render
from collegium.coordinator.run.coordinator import CoordinatorRun, Reach, Storage
from collegium.coordinator.run.open_run import StudentTrainer
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.run_config import PublicData
from collegium.data import Examples
from collegium.errors import (
    ConfigurationError,
    MissingExtra,
    ProtocolViolation,
    QueriesRefused,
    QuorumNotReached,
    StorageError,
)
from collegium.models.arrays import load_arrays
from collegium.models.codes import Weights
from collegium.models.kernel_student import KernelStudent
from collegium.models.students import read_student
from collegium.models.whole_networks import read_whole_network
from collegium.parties.answer_book import AnswerBook
from collegium.protocol.question import QuestionTerms
from collegium.simulations.local import LocalParties
from collegium.whole_files import read_digested, write_digested
from collegium_accounting.mechanisms.class_sums import ClassSums

SETTINGS: dict[str, Any] = {
    "budget": {"epsilon": 4.5},
    "seed": 1,
    "votes": {"mode": "clear"},
    "sums": {"landmarks": 20},
    "student": {"method": "kernel", "options": {"steps": 12}},
}


@pytest.fixture(scope="module")
def few(digits: Examples) -> Examples:
    return digits.take(np.random.default_rng(0).permutation(len(digits))[:120])


@pytest.fixture(scope="module")
def public(few: Examples) -> PublicData:
    return PublicData(few.take(np.arange(60, 100)), few.take(np.arange(100, 120)))


@pytest.fixture
def parties(few: Examples) -> Misbehaving:
    return institutions(few.take(np.arange(60)), POLICY)


def dies_at_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Asking.total

    def total(self: Asking, question: Any, *told: Any) -> Any:
        return honest(self, question, *told) if getattr(question.question, "number", 1) == 1 else dies()

    monkeypatch.setattr(Asking, "total", total)


@pytest.mark.slow
def test_a_run_that_is_killed_between_two_sums_goes_on_with_the_same_question(
    parties: LocalParties, public: PublicData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, asked = RunFolder(tmp_path), config(**SETTINGS | {"evaluation": {"share": 0.02}})
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        dies_at_the_second(patched)
        driven(asked, parties, public, tmp_path).run()
    (kept,) = tmp_path.glob("class-sums-next-*")
    (sums,) = tmp_path.glob("released-*")
    first, network = sums.read_bytes(), read_digested(kept).removeprefix(b"networks\n")
    assert charges(tmp_path) == 3
    with monkeypatch.context() as patched:
        patched.setattr(StudentTrainer, "networks_of", dies)
        record = driven(asked, parties, public, tmp_path).run()
    assert charges(tmp_path) == 4, "the evaluation, two sums, and the labels, which cost nothing"
    assert len(record.rounds) == 2 and sums.read_bytes() == first
    assert record.labels is not None and record.labels.answered == 40 and record.labels.stopped is None
    assert record.privacy is not None and 4.0 < record.privacy.epsilon <= 4.5
    assert record.evaluation is not None and record.evaluation.measures is not None
    student = read_student(folder.student, device="cpu")
    assert isinstance(student, KernelStudent) and student.network is not None
    assert student.kernel.features.network == network
    student.save(tmp_path / "copy.safetensors")
    assert (tmp_path / "copy.safetensors").read_bytes() == folder.student.read_bytes()
    study = Storage(tmp_path / "two", ledger=tmp_path / "ledger.sqlite", study="two")
    other = CoordinatorRun(asked, Reach(parties, signing_keys=parties.signing_keys), study, public=public)
    other.label()
    again = other.fit()
    assert not again.rounds and charges(tmp_path) == 6, "its evaluation, and its labels, which cost nothing"
    assert read_student(RunFolder(tmp_path / "two").student, device="cpu").predict(public.pool.x).tolist() == (
        student.predict(public.pool.x).tolist()
    )


@pytest.mark.slow
def test_where_the_sum_says_that_networks_are_worse_the_second_is_a_round_under_weights_and_none_is_published(
    parties: LocalParties, public: PublicData, tmp_path: Path
) -> None:
    """Two steps teach a network nothing."""
    taught_nothing: dict[str, Any] = {
        "budget": {"epsilon": 15.0},
        "student": {"method": "kernel", "options": {"steps": 2}},
    }
    record = driven(config(**SETTINGS | taught_nothing), parties, public, tmp_path).run()
    (kept,) = tmp_path.glob("class-sums-next-*")
    assert Weights.from_bytes(read_digested(kept)).whole.shape == (21, 10)
    student = read_student(RunFolder(tmp_path).student, device="cpu")
    assert isinstance(student, KernelStudent) and student.logistic and student.network is None
    assert record.labels is not None and record.labels.stopped is None and len(record.rounds) == 2


def second_of(record: RunRecord) -> str:
    assert record.labels is not None and record.labels.answered == 40
    return record.labels.stopped or ""


@pytest.mark.slow
def test_where_a_second_sum_is_refused_the_first_labels_all(
    few: Examples, public: PublicData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By parties, which have no torch; by the budget, which is lowered after the first."""

    def without_torch(features: Any, inputs: Any) -> int:
        if features.name == "network":
            raise MissingExtra("features by a network need torch")
        return 1

    parties = institutions(few.take(np.arange(60)), POLICY)
    with monkeypatch.context() as patched:
        patched.setattr("collegium.parties.kinds.class_sums.dimensions", without_torch)
        record = driven(config(**SETTINGS), parties, public, tmp_path / "torch").label()
    assert "5 institutions gave none (missing-extra: features by a network need torch)" in second_of(record)

    folder = tmp_path / "budget"
    sigma = {"mechanism": {"name": "class-sums", "parameters": {"sigma": 1.6}}}
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(StudentTrainer, "networks_of", dies)
        driven(config(**SETTINGS | sigma), parties, public, folder).run()
    record = driven(config(**SETTINGS | sigma | {"budget": {"epsilon": 3.0}}), parties, public, folder).run()
    assert "class sums alone: 1 more class sums do not fit the budget" in second_of(record)
    assert charges(folder) == 2 and record.student_accuracy is not None


def edited(path: Path) -> None:
    write_digested(path, read_digested(path)[:-4] + np.float32(0.5).tobytes())


def damaged(path: Path) -> None:
    path.write_bytes(b"damaged")


@pytest.mark.bits
@pytest.mark.parametrize("change", [edited, damaged, Path.unlink])
def test_another_network_is_another_question_and_paid_as_such(
    parties: LocalParties,
    public: PublicData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
) -> None:
    sigma: dict[str, Any] = {"mechanism": {"name": "class-sums", "parameters": {"sigma": 1.6}}}
    sigma |= {"budget": {"epsilon": 30.0}, "sums": {"landmarks": 20, "rounds": 2}}
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        dies_at_the_second(patched)
        driven(config(**SETTINGS | sigma), parties, public, tmp_path).label()
    (kept,) = tmp_path.glob("class-sums-next-*")
    change(kept)
    learned = StudentTrainer.networks_of
    monkeypatch.setattr(StudentTrainer, "networks_of", lambda self, found: _turned(learned(self, found)))
    start = driven(config(**SETTINGS | sigma), parties, public, tmp_path)
    if change is damaged:
        with pytest.raises(StorageError, match="restore it from a copy"):
            start.label()
        return
    assert start.label().labels is not None
    assert charges(tmp_path) == 4, "the charge of the question that was not asked stays unspent"


def _turned(file: bytes) -> bytes:
    """The networks of a file in another order, as another machine may fit others."""
    network = read_whole_network(file, "the networks")
    return replace(network, members=network.members[::-1]).to_bytes()


def test_one_charge_does_not_pay_for_a_second_sum_at_the_parties_whatever_the_coordinator_says(
    consortium: Callable[..., Consortium], tmp_path: Path
) -> None:
    """It names the same entry of its ledger with two maps, draws noise once, and has two exact sums."""
    policy = POLICY.model_copy(update={"record_epsilon": 9.0})
    accounts = {}

    def account(name: str) -> AnswerBook:
        (tmp_path / name).mkdir()
        accounts[name] = AnswerBook(tmp_path / name, name, policy, None)
        return accounts[name]

    parties = consortium(account=account)
    spent = [0.0]
    for number in (1, 2):
        kernel = replace(SPEC, bandwidth_squared=SPEC.bandwidth_squared * number)
        asked = parties.request("clear", kernel=kernel, ledger_id="ledger:7")
        parties.asks(asked)
        spent.append(accounts["beta"].record_spent())
    assert spent[2] > 1.4 * spent[1] > 0.0


@pytest.mark.parametrize(
    "changes",
    [
        {"mechanism": {"name": "class-sums", "parameters": {"rounds": 1}}, "sums": {"rounds": 2}},
        {"mechanism": {"name": "class-sums", "parameters": {"rounds": 9}}, "sums": {}},
        {"sums": {"rounds": 8}, "budget": {"epsilon": 1.0, "unit": "party"}},
        {"sums": {"rounds": 0}},
    ],
)
def test_rounds_that_contradict_each_other_or_the_unit_are_refused_in_one_line(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"rounds") as refused:
        config(**changes)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "rounds"),
    [
        ({}, 2),
        ({"votes": {"mode": "clear"}}, 2),
        ({"budget": {"epsilon": 1.0, "unit": "party"}}, 1),
        ({"student": {"method": "kernel", "options": {"steps": 0}}}, 8),
        ({"student": {"method": "random-forest"}}, 8),
        ({"student": {"method": "random-forest"}, "budget": {"epsilon": 0.4}}, 8),
        ({"sums": {"rounds": 1}}, 1),
        ({"mechanism": {"name": "class-sums", "parameters": {"sigma": 5.0, "rounds": 1}}}, 1),
    ],
)
def test_public_facts_alone_decide_how_many_sums_there_are(changes: dict[str, Any], rounds: int) -> None:
    asked = config(**{"student": {"method": "kernel"}, "sums": {}} | changes)
    assert asked.class_sums == rounds and ("two sums" in asked.choice) == (rounds == 2)
    assert ("8 rounds of sums" in asked.choice) == (rounds == 8)


def test_parties_that_are_away_at_the_second_sum_are_waited_for(
    parties: Misbehaving, public: PublicData, tmp_path: Path
) -> None:
    """Labels of the first sum would stay for good. One refuses meanwhile, which alone would be lasting."""
    refuses = ["beta"]

    def no_more(question: Any, vector: np.ndarray) -> np.ndarray:
        if refuses and question.number == 2:
            raise QueriesRefused("policy: no more")
        return vector

    parties.lies("beta", no_more)
    away = parties.cut_off(lambda name, body: name not in ("alpha", "beta") and number_of(body) == 2)
    with away, pytest.raises(QuorumNotReached, match=r"1 parties answered .*refused-queries.*unreachable"):
        driven(config(**SETTINGS), parties, public, tmp_path).label()
    assert charges(tmp_path) == 2
    refuses.clear()
    record = driven(config(**SETTINGS), parties, public, tmp_path).label()
    assert len(record.rounds) == 2 and record.labels is not None and record.labels.stopped is None


def test_where_the_first_sum_is_mostly_noise_the_second_is_under_the_same_map(
    few: Examples, public: PublicData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks would learn noise. The mean of two sums with half of the budget is as good as one with all of it.

    The noise follows from a seed: 60 noisy records pass for the 665 that a network needs once in 150 draws.
    """
    once = institutions(few.take(np.arange(60)), POLICY)
    asked, dead = config(**SETTINGS | {"budget": {"epsilon": 0.2}}), list[int]()

    def total(self: Asking, question: Any, *told: Any) -> Any:
        if question.question.number == 2 and not dead:
            dead.append(1)
            dies()
        return honest(self, question, *told)

    honest = Asking.total
    monkeypatch.setattr(Asking, "total", total)
    with pytest.raises(KeyboardInterrupt):
        driven(asked, once, public, tmp_path).label()
    record = driven(asked, once, public, tmp_path).label()
    assert charges(tmp_path) == 3 and record.labels is not None
    assert record.labels.answered == 40 and "noise decides" in (record.labels.stopped or "")
    assert record.labels.stopped in render(record)
    again = driven(asked, once, public, tmp_path).label()
    assert again.labels == record.labels and charges(tmp_path) == 3
    (network,) = tmp_path.glob("class-sums-next-*")
    assert not read_digested(network)
    one, two = (load_arrays(path, "released vector", {"values": np.int64}) for path in tmp_path.glob("released-*"))
    assert one[1]["question"] != two[1]["question"] and not np.array_equal(one[0]["values"], two[0]["values"])


def test_a_sum_beyond_those_that_the_terms_name_is_refused(consortium: Callable[..., Consortium]) -> None:
    with pytest.raises(ProtocolViolation, match="so many class sums"):
        consortium().request("clear", number=2)
    twice = QuestionTerms.of(ClassSums(5.0, 3, 2), "clear", "")
    first, second = (consortium().request("clear", terms=twice, number=number) for number in (1, 2))
    assert first.asked != second.asked
