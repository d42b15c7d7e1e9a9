"""Parties measure a student on their own records: what is released, what it costs, and who learns of a bad clinic."""

from __future__ import annotations

import html
import json
import logging
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import collegium_reproduction.nearest.question  # noqa: F401  its mechanisms are named here
import numpy as np
import pytest
import scipy.optimize
from scipy.stats import chi2
from sklearn.datasets import load_breast_cancer
from sklearn.utils import shuffle
from support.digit_parties import run_config
from support.party_requests import KEY, Asker
from support.sums_scene import SPEC

import collegium as cg
from collegium.coordinator.cli.coordinator_cli import say
from collegium.coordinator.kinds.evaluation import PrivateEvaluation
from collegium.coordinator.release import Releases
from collegium.coordinator.report.page import render
from collegium.coordinator.rounds.masked_sum import MaskedSum
from collegium.coordinator.rounds.rounds import ClearSum, VoteRound
from collegium.coordinator.run.counts_terms import announced_counts, counted_unit, counts_mechanism
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.run.surroundings import Compute, Reach, RunSetup, Storage, Watch
from collegium.coordinator.settings.run_config import CountsConfig, RunConfig
from collegium.data import Examples, PoolStore
from collegium.data.task import Task
from collegium.errors import MechanismRefused
from collegium.models.features import Features
from collegium.models.kernel_student import KernelStudent
from collegium.models.kernels import KernelMap, KernelSpec
from collegium.parties import kind as party_kind
from collegium.parties.answer_book import FILE, AnswerBook
from collegium.parties.enrolment import policy_text
from collegium.parties.kind import Institution
from collegium.parties.kinds.evaluation import Evaluation
from collegium.parties.party import Party, unrestricted
from collegium.parties.policy import DEFAULT_RECORD_RHO, Policy, PolicyConfig, described
from collegium.privacy.evaluation_cells import Layout
from collegium.privacy.ledger.entry import Charge
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.kinds.evaluation import Evaluate
from collegium.protocol.question import QuestionTerms
from collegium.protocol.replies import Failure
from collegium.protocol.requests import ShowReleased
from collegium.protocol.roster import AnnouncedLimits, AnnouncedTerms
from collegium_accounting.game.gaussian import gaussian_mechanism_profile
from collegium_accounting.mechanisms import Adjacency, Unit
from collegium_accounting.mechanisms.class_sums import ONE as SUMS_ONE
from collegium_accounting.mechanisms.class_sums import ClassSums
from collegium_accounting.mechanisms.record_counts import ONE, RecordCounts
from collegium_accounting.noise.distributed import NoiseShare

X, Y = shuffle(*load_breast_cancer(return_X_y=True), random_state=0)
TASK: Task = cg.Task.from_array(X[:100], classes=["malignant", "benign"])
POLICY = cg.PolicyConfig(minimum_noise_votes=5, minimum_noise_sums=0.1, queries=1000)
SWAPPED = "clinic-3"


def records() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Five clinics, one of which writes each class for the other."""
    found = {f"clinic-{n}": (X[100 + n :: 5], Y[100 + n :: 5]) for n in range(5)}
    return found | {SWAPPED: (found[SWAPPED][0], 1 - found[SWAPPED][1])}


@dataclass
class Measured:
    coordinator: cg.Coordinator
    parties: cg.LocalParties
    folder: Path
    student: Any
    log: list[logging.LogRecord]
    replies: list[Any]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    folder = tmp_path_factory.mktemp("measured")
    parties = cg.LocalParties(records(), TASK, policy=POLICY, folder=folder / "parties")
    seen: list[Any] = []
    asked = parties.ask

    def ask(requests: Any, **how: Any) -> Any:
        replies = asked(requests, **how)
        seen.extend(replies[name] for name, body in requests.items() if isinstance(body, ShowReleased))
        return replies

    parties.ask = ask  # type: ignore[method-assign]
    kept: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = kept.append  # type: ignore[method-assign]
    logger = logging.getLogger("collegium.parties.kind")
    logger.addHandler(handler)
    coordinator = cg.Coordinator(
        parties,
        X[:100],
        cg.GNMax(sigma=5.0),
        epsilon=20,
        teachers_per_party=4,
        evaluation_share=0.2,
        folder=folder / "run",
    )
    coordinator.label(queries=30)
    student = coordinator.fit("random-forest", trees=20)
    logger.removeHandler(handler)
    yield Measured(coordinator, parties, folder, student, kept, seen)


def right_at(measured: Measured, name: str) -> float:
    x, y = records()[name]
    return float((measured.student.predict(x) == np.array(TASK.classes)[y]).mean())


@pytest.mark.slow
def test_the_figures_are_those_of_all_records_but_for_the_stated_errors(measured: Measured) -> None:
    """Six standard errors: once in 500 million, of noise alone far less."""
    found = measured.coordinator.evaluation
    assert found is not None and found.accuracy is not None and found.balanced is not None
    x, y = (np.concatenate(part) for part in zip(*records().values(), strict=True))
    truth = (measured.student.predict(x) == np.array(TASK.classes)[y]).mean()
    assert abs(found.accuracy.value - truth) < 6 * found.accuracy.error < 0.2
    assert abs(found.records.value - len(y)) < 6 * found.records.error
    record = measured.coordinator.record.evaluation
    assert record is not None and record.sum_mode == "masked+noised" and record.why_not is None
    page = (measured.folder / "run" / "report.html").read_text(encoding="utf-8")
    card = (measured.folder / "run" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "Measured by the institutions" in page and "was not measured" not in page
    assert str(found.accuracy) in page and f"| accuracy | {found.accuracy} |" in card and "was not measured" not in card


@pytest.mark.slow
def test_it_is_charged_to_the_same_ledger_and_to_every_record_at_its_party(measured: Measured) -> None:
    with Ledger.read(measured.folder / "run" / "ledger.sqlite") as ledger:
        charges = [entry.content for entry in ledger.entries() if isinstance(entry.content, Charge)]
    assert [charge.purpose for charge in charges].count("evaluation") == 1
    assert charges[0].purpose == "evaluation"  # before the first label, which cannot use up its share
    for name in records():
        with Ledger.read(measured.folder / "parties" / name / FILE, chain="record") as own:
            paid = [entry.content for entry in own.entries() if isinstance(entry.content, Charge)]
            assert sum(charge.queries for charge in paid if "record-counts" in charge.purpose) == 1
            assert sum(charge.queries for charge in paid) == own.queries_charged() > 1, "and votes, which cost it too"


@pytest.mark.slow
def test_only_the_institution_with_swapped_classes_is_told_so(measured: Measured) -> None:
    warned = [record.getMessage() for record in measured.log if record.levelno == logging.WARNING]
    assert len(warned) == 1 and f"party {SWAPPED}: the student is right for" in warned[0]
    assert "if they write 'malignant' for 'benign', 'benign' for 'malignant', it is right for" in warned[0]
    accuracy = measured.coordinator.evaluation.accuracy
    for name in records():
        kept = party_kind.kept(measured.folder / "parties" / name / "evaluation.json")
        assert kept["own"] == pytest.approx(right_at(measured, name)) and (kept["warning"] is not None) == (
            name == SWAPPED
        )
        low, high = kept["own_interval"]
        assert low < kept["own"] < high and kept["consortium_interval"] == pytest.approx([accuracy.low, accuracy.high])
        assert (measured.folder / "parties" / name / "evaluation.json").stat().st_mode & 0o077 == 0
    assert len(measured.replies) == 5 and len(set(measured.replies)) == 1  # they tell nothing
    told = "".join(path.read_text(errors="ignore") for path in (measured.folder / "run").glob("*.[jhMc]*"))
    assert "if they write" not in told and "of the own" not in told


def test_a_party_computes_the_same_whether_or_not_it_is_far_from_the_consortium(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The time of its reply tells nothing: what is needed for a warning is loaded and computed each time."""
    x, y = cg.encode(records()["clinic-0"][0][:60], TASK), records()["clinic-0"][1][:60]
    here = Institution(
        "clinic-0", Examples(x, y), TASK, PoolStore(None), KEY, None, "cpu", Mock(), Mock(), DEFAULT_RECORD_RHO
    )
    own = Evaluation(here)
    calls = []
    assign = scipy.optimize.linear_sum_assignment
    monkeypatch.setattr(scipy.optimize, "linear_sum_assignment", lambda cost: calls.append(1) or assign(cost))
    for right in (10, 50):
        own._confusion = "round", np.array([[right, 50 - right], [0, 0]])
        counts = np.zeros(Layout(2).length)
        counts[[0, -1]] = 1e6  # everything is right
        own.shown(ShowReleased("round", Evaluate.kind, tuple(counts.tolist()), 1.0))
        assert bool(caplog.messages) == (right == 10)
        caplog.clear()
    assert len(calls) == 2


def test_fitting_again_measures_and_charges_nothing_new(measured: Measured) -> None:
    before = measured.coordinator.record
    measured.coordinator.fit("random-forest", trees=20)
    after = measured.coordinator.record
    assert after.evaluation == before.evaluation and measured.coordinator.epsilon == before.privacy.epsilon  # type: ignore[union-attr]


def test_the_end_of_a_run_and_its_report_give_one_verdict(
    measured: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever serves read "finished: 700 labels of 700 queries" of a student that was no better than a constant."""
    record = measured.coordinator.record
    assert record is not None and record.evaluation is not None and record.evaluation.measures is not None
    verdict = record.evaluation.measures.verdict
    say(record, SimpleNamespace(run=measured.folder), as_json=False)  # type: ignore[arg-type]
    assert f"student: {verdict}" in capsys.readouterr().out.splitlines()
    assert verdict in html.unescape(render(record.model_copy(update={"student": None})))
    say(record.model_copy(update={"refused": "contradiction"}), SimpleNamespace(run=measured.folder), as_json=False)  # type: ignore[arg-type]
    assert verdict not in capsys.readouterr().out


def open_evaluation(measured: Measured) -> tuple[PrivateEvaluation, Releases, RunRecord, Any]:
    """The evaluation of the run, opened once more, beside its releases, its record and its context."""
    with measured.coordinator._shown() as run:
        context = run.prepare()
    opened = context.__enter__()
    return opened._evaluation, opened._releases, opened.record, context


def test_figures_are_released_under_the_noise_that_was_paid_whatever_is_configured_since(measured: Measured) -> None:
    evaluation, _, record, context = open_evaluation(measured)
    try:
        assert record.evaluation is not None and record.evaluation.paid
        budget = evaluation._config.budget.model_copy(update={"epsilon": 100.0})
        evaluation._config = evaluation._config.model_copy(update={"budget": budget})
        assert evaluation._settings is not None
        evaluation._settings = evaluation._settings.model_copy(update={"share": 0.9})
        assert evaluation.mechanism().parameters()["sigma"] == record.evaluation.sigma
    finally:
        context.__exit__(None, None, None)


def evaluations_paid(measured: Measured) -> list[Any]:
    """Purpose and law of each charge for an evaluation."""
    with Ledger.read(measured.folder / "run" / "ledger.sqlite") as ledger:
        entries = [entry for entry in ledger.entries() if isinstance(entry.content, Charge)]
    paid = [(entry.content.purpose, entry.terms) for entry in entries]  # type: ignore[union-attr]
    return [(name, terms.blocks[name].laws["record"]) for name, terms in paid if name.startswith("evaluation")]


@pytest.mark.parametrize("kept", [True, False])
def test_an_attempt_that_was_interrupted_is_paid_again_only_if_its_counts_were_lost(
    measured: Measured, kept: bool
) -> None:
    """run.json says nothing of it: the process died before."""
    before, student = evaluations_paid(measured), measured.folder / "run" / "student.safetensors"
    measures = []
    for number in (1, 2):
        evaluation, releases, record, context = open_evaluation(measured)
        try:
            assert record.evaluation is not None
            record.evaluation = record.evaluation.model_copy(update={"fitted_from": "", "measures": None})
            for file in (measured.folder / "run").glob("released-*") if number == 2 and not kept else ():
                file.unlink()
            evaluation.measure(releases, student, "the same student")
            measures.append(record.evaluation.measures)
        finally:
            context.__exit__(None, None, None)
    assert (measures[0] == measures[1]) == kept
    after = evaluations_paid(measured)[len(before) :]
    assert [purpose for purpose, _ in after] == ["evaluation once more"] * (not kept)


def config(**changes: Any) -> RunConfig:
    known = {"name": "trial", "task": TASK, "pool": {"source": "x"}, "budget": {"epsilon": 2.0}, "evaluation": {}}
    return RunConfig.model_validate(known | changes)


NOISE = {"threshold": 9.0, "sigma1": 4.0, "sigma2": 3.0, "sampling_rate": 0.3}
SAMPLED = {"mechanism": {"name": "knn", "parameters": NOISE}, "neighbours": {"share": 0.05, "k": 20}}
VOTED = {"mechanism": {"name": "gnmax", "parameters": {"sigma": 40.0}}}


@pytest.mark.parametrize(
    ("settings", "mode", "counts_mode", "parties"),
    [(SAMPLED, "clear", "clear", 4), (SAMPLED, "masked", "masked+noised", 4), (VOTED, "masked", "masked+noised", 300)],
)
def test_counts_beside_labels_have_a_sum_that_parties_open(
    settings: dict[str, Any], mode: str, counts_mode: str, parties: int, tmp_path: Path
) -> None:
    """The sum of the labels is none for counts: it adds up neighbours, or is on a sparse graph."""
    asked = {**settings, "votes": {"mode": mode}, "evaluation": {"mode": counts_mode}}
    config = run_config({"budget": {"epsilon": 10}}, asked)
    keys = {f"party-{number}": bytes(32) for number in range(parties)}
    reach = Reach(cg.LocalParties(records(), TASK), signing_keys=keys)
    nothing: Any = None
    setup = RunSetup(config, reach, Storage(tmp_path), nothing, Compute(), Watch())
    added = PrivateEvaluation(setup, nothing, "ledger", config.evaluation).sum
    assert added.mode == counts_mode and isinstance(added, ClearSum if mode == "clear" else MaskedSum)
    assert not isinstance(added, MaskedSum) or added.noised


def test_the_noise_of_a_share_is_the_least_that_keeps_it() -> None:
    for name, adjacency in (("gnmax", Adjacency.REPLACE), ("individual-knn", Adjacency.ADD_REMOVE)):
        more = {"neighbours": {"share": 0.1}} if name == "individual-knn" else {}
        asked = config(
            mechanism={"name": name, "parameters": {"sigma": 9.0} | ({"participations": 1} if more else {})}, **more
        )
        assert asked.evaluation is not None and counted_unit(asked).adjacency is adjacency
        mechanism = counts_mechanism(asked, asked.evaluation, 1, Layout(2).length)
        moved = mechanism.stages[0].moved(Unit(1, adjacency))
        assert gaussian_mechanism_profile(moved / mechanism.parameters()["sigma"]).epsilon(1e-5) == pytest.approx(
            0.2, rel=1e-3
        )
    assert counts_mechanism(asked, CountsConfig(sigma=7.0), 1, 20).parameters()["sigma"] == 7.0


def asked_of(file: bytes, mechanism: Any = None, **changes: Any) -> Evaluate:
    terms = QuestionTerms.of(mechanism or of_classifiers(9.0, 2), "clear")
    known = {"terms": terms, "ledger_id": "ledger", "student": file, "per_party": False}
    return Evaluate(**(known | {"classes": 2} | changes))


def of_classifiers(sigma: float, classes: int) -> RecordCounts:
    return RecordCounts(sigma=sigma, parts=Layout(classes).parts, cells=Layout(classes).length)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Asker]:
    x, y = records()["clinic-0"]
    policy = PolicyConfig(
        minimum_noise_votes=1, minimum_noise_sums=2.0, sum_modes=("clear",), queries=10, record_epsilon=9.0
    )
    account = AnswerBook(tmp_path, "clinic-0", policy, None)
    examples = Examples(cg.encode(x, TASK), y)
    there: Any = {"folder": tmp_path, "pools": PoolStore(None), "split_key": KEY}
    yield Asker(Party("clinic-0", examples, TASK, policy=Policy(policy), account=account, **there))
    account.close()


def test_a_liars_requests_are_refused(alone: Asker, measured: Measured, tmp_path: Path) -> None:
    student = (measured.folder / "run" / "student.safetensors").read_bytes()
    assert not isinstance(alone(asked_of(student)), Failure)
    of_sums = QuestionTerms.of(ClassSums(sigma=9.0, classes=2), "clear")
    bad = {
        "mechanism": asked_of(
            student, terms=replace(of_sums, parameters={**of_sums.parameters, "parts": 1.0, "cells": 20.0})
        ),
        "noise": asked_of(student, of_classifiers(1.9, 2)),
        "about 3 classes, this task has 2": asked_of(student, of_classifiers(9.0, 3), classes=3),
        "the classifier cannot be read": asked_of(b"no student"),
    }
    for words, question in bad.items():
        reply = alone(question, round_id=f"round-{len(words)}")
        assert isinstance(reply, Failure) and words in reply.message, (words, reply)
    other = cg.Task.from_array(X[:100], classes=["malignant", "other"])
    replace(measured.student.student, task=other).save(tmp_path / "other.safetensors")
    reply = alone(asked_of((tmp_path / "other.safetensors").read_bytes()), round_id="round-9")
    assert isinstance(reply, Failure) and "another task" in reply.message


def test_terms_of_an_evaluation_do_not_pay_for_class_sums_which_move_further() -> None:
    terms = replace(
        QuestionTerms.of(of_classifiers(9.0, 3), "clear"),
        parameters={"sigma": 9.0, "parts": 3, "cells": 69, "classes": 3},
    )
    asked = SumClasses(terms, "ledger", False, SPEC, "ab" * 32)
    with pytest.raises(MechanismRefused, match="has no parameter 'classes'"):
        described(asked)


class Wild:
    """A method that another package installed: what it answers depends on all that it is given, and it may fail."""

    task = TASK

    def probabilities(self, given: np.ndarray) -> np.ndarray:
        if given[0].mean() > 0.18:
            raise ValueError("the first of these records is large")
        wild = np.array([[np.nan, 1e300], [-5.0, np.inf], [7.0, -7.0], [0.0, 1.0]])
        return wild[(1e3 * (given.mean(axis=1) + given.mean())).astype(int) % 4]


@pytest.mark.slow
def test_whatever_a_liars_classifier_answers_a_record_moves_no_more_than_is_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: the records in one block, as they once were."""
    x, y = cg.encode(records()["clinic-0"][0][:30], TASK), records()["clinic-0"][1][:30]
    monkeypatch.setattr("collegium.parties.kinds.evaluation.read_student", lambda *_, **__: Wild())
    assert 0 < (x.mean(axis=1) > 0.18).sum() < 30
    bound = of_classifiers(9.0, 2).stages[0].moved(Unit(1, Adjacency.ADD_REMOVE)) * ONE

    def moved() -> list[float]:
        """By how much leaving out the first of some records moves the counts, in L2."""

        def counted(first: int, last: int) -> np.ndarray:
            examples, there = Examples(x[first:last], y[first:last]), {"folder": None, "pools": PoolStore(None)}
            party = Party("clinic-0", examples, TASK, split_key=KEY, policy=unrestricted, **there)
            counts: np.ndarray = Asker(party)(asked_of(b"")).counts[0]
            return counts

        return [float(np.linalg.norm(counted(0, last) - counted(1, last))) for last in range(2, 31)]

    assert moved() == pytest.approx([bound] * 29)

    def in_one_block(function: Any, block: np.ndarray, width: int) -> np.ndarray:
        try:
            return np.asarray(function(block))
        except ValueError:
            return np.zeros((len(block), width))

    monkeypatch.setattr("collegium.parties.kinds.evaluation.each_alone", in_one_block)
    assert max(moved()) > 1.4 * bound


def test_a_kernel_student_gives_a_record_the_same_scores_in_any_company() -> None:
    """Planted: coefficients that are no whole numbers."""
    x = cg.encode(X[:200], TASK)
    kernel = KernelMap.of_pool(KernelSpec(Features("raw"), tuple(range(64)), 10**7), x, TASK.inputs)
    student = KernelStudent(TASK, kernel, np.random.default_rng(0).normal(size=(65, 2)))
    together, vectors = student.probabilities(x), kernel(x).astype(np.float64)
    for first, last in ((0, 1), (7, 8), (3, 6), (100, 199)):
        assert np.array_equal(student.probabilities(x[first:last]), together[first:last])
    product = vectors @ student.coefficients
    assert any(not np.array_equal(vectors[n : n + 1] @ student.coefficients, product[n : n + 1]) for n in range(200))
    expected = np.maximum(product / SUMS_ONE + 0.5, 0.025)
    assert np.allclose(together, expected / expected.sum(axis=1, keepdims=True), atol=1e-6)


@pytest.mark.slow
def test_the_parties_noise_is_all_there_and_half_of_it_would_be_missed(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over 16 times 20 counts the variance is at least σ² but once in a million. Planted: a quarter as large shares."""
    sigma = 3.0
    student = (measured.folder / "run" / "student.safetensors").read_bytes()
    evaluation, *_, context = open_evaluation(measured)
    context.__exit__(None, None, None)
    x, y = (np.concatenate(part) for part in zip(*records().values(), strict=True))
    shares = measured.student.predict_proba(x)
    exact = np.bincount(Layout(2).cells(y, shares, 1 - y)[:, 0], minlength=Layout(2).length)

    def spread() -> float:
        plain = of_classifiers(sigma, 2)
        assert isinstance(evaluation.sum, MaskedSum)
        plan = evaluation.sum.plan
        terms = QuestionTerms.of(plain, "masked+noised", plain.stages[0].name, plan.honest_survivors)
        total = 0.0
        for number in range(16):
            question = Evaluate(terms, f"ledger-{number}", False, student, 2)
            asked = VoteRound(question, dict.fromkeys(measured.parties.names(), 0), 60.0, 5)
            total += float(((evaluation.sum.sum_votes(asked).counts[0] / ONE - exact) ** 2).sum())
        return total / sigma**2

    least = chi2.ppf(1e-6, 16 * Layout(2).length)
    assert spread() > least
    draw = NoiseShare.draw
    monkeypatch.setattr(NoiseShare, "draw", lambda self, length, noise: draw(self, length, noise) // 4)
    assert spread() < least


def test_a_policy_from_enrolment_agrees_to_the_announced_evaluation_and_to_no_weaker_one() -> None:
    asked = config(mechanism={"name": "gnmax", "parameters": {"sigma": 9.0}})
    (told,) = announced_counts(asked)
    assert told.sum_mode == "masked+noised" and told.mechanism == "record-counts"
    terms = AnnouncedTerms(
        limits=AnnouncedLimits(epsilon=1.0, delta=1e-5, record_epsilon=2.0),
        sum_mode="masked",
        mechanism="gnmax",
        noise_votes=9.0,
        answers=9,
        counts=(told,),
        pools=("ab" * 32,),
    )
    policy = PolicyConfig.model_validate(tomllib.loads(policy_text(terms)))
    assert policy.mechanisms == ("gnmax", "record-counts") and policy.sum_modes == (
        "masked",
        "masked+noised",
    )
    assert policy.minimum_noise_votes == 9.0 and policy.minimum_noise_sums == pytest.approx(told.noise)
    assert json.loads(terms.model_dump_json())["counts"][0]["noise"] == told.noise
