"""Records of several labels: a run from records to labels and student, in both modes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collegium_reproduction.clipped_votes import swap_l2
from collegium_reproduction.exact_nearest import ExactNearest, exact_shares
from collegium_reproduction.nearest.party import SampledRecords
from collegium_reproduction.nearest.question import CountNearest
from support.coordinators import coordinator_for
from support.digit_parties import NAMES, ROSTER, begin_ledger, members, run_config
from support.digit_parties import TASK as DIGITS
from support.misbehaving import Unreliable
from support.nearest import AGREED

from collegium.coordinator.kind import RunFacts, kind_of
from collegium.coordinator.run.run_folder import read_labels
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.coordinator.students import fit_student
from collegium.data import DataSource, Examples, load
from collegium.data.several_labels import held_in, numbers_of
from collegium.data.task import NumberColumn, TableInputs, Task, TeacherSettings
from collegium.errors import ConfigurationError, DataError
from collegium.models.students import read_student
from collegium.parties.policy import Policy, PolicyConfig
from collegium.parties.teachers.splits import simulated_key
from collegium.protocol.messages import Request
from collegium.protocol.question import PoolRange, Question, QuestionTerms
from collegium.protocol.replies import Failure
from collegium.protocol.requests import Ask, Fit, SecureSumStep
from collegium_accounting.divergences.independent import sampled_gaussian_curve
from collegium_accounting.mechanisms import create
from collegium_accounting.renyi import WIDE_ORDERS

pytestmark = pytest.mark.slow

KINDS = {"even": (0, 2, 4, 6, 8), "loop": (0, 6, 8, 9), "large": (5, 6, 7, 8, 9)}
TASK = DIGITS.model_copy(update={"classes": tuple(KINDS), "multilabel": True})
QUERIES = 40
SETTINGS: dict[str, Any] = {
    "task": TASK.model_dump(),
    "mechanism": {"name": "multilabel-knn", "parameters": {"tau": 3.0, "sigma": 4.0, "sampling_rate": 0.3}},
    "neighbours": {"features": "hog", "dimensions": 16, "share": 0.045, "k": 20},
    "budget": {"epsilon": 60},
    "queries": {"count": QUERIES, "batch": 25},
    "votes": {"mode": "clear", "quorum": 0.5},
    "student": {"method": "supervised", "options": {"steps": 2, "network": "linear"}},
}


def config(**changes: Any) -> RunConfig:
    return run_config(SETTINGS, changes)


@pytest.fixture(scope="module")
def of_kinds(digits: Examples) -> Examples:
    """The digits, each with all the kinds that it is of."""
    held = np.stack([np.isin(digits.labels(), kind) for kind in KINDS.values()], axis=1)
    return Examples(digits.x, numbers_of(held))


class Consortium(Unreliable):
    """Four parties, of which one may leave before a masked sum."""

    def __init__(self, private: Examples, folder: Path, leaving: str | None) -> None:
        super().__init__(members(private, folder, task=TASK), "trial")
        self.leaving, self.gone = leaving, set[str]()

    def ask(self, requests: Mapping[str, Any], **options: Any) -> Any:
        if any(isinstance(body, SecureSumStep) for body in requests.values()) and self.leaving:
            self.gone.add(self.leaving)
        with self.cut_off(lambda name, body: name in self.gone):
            return super().ask(requests, **options)


@pytest.fixture
def go(of_kinds: Examples, tmp_path: Path) -> Callable[..., Any]:
    public = PublicData(of_kinds.take(np.arange(300)), of_kinds.take(np.arange(300, 500)))

    def run(
        folder: str,
        *,
        leaving: str | None = None,
        without: str | None = None,
        only: bool = True,
        vote_sum: Any = None,
        **changes: Any,
    ) -> Any:
        consortium = Consortium(of_kinds.take(np.arange(500, 1797)), tmp_path / "parties", leaving)
        consortium.gone |= {without} if without else set()
        begin_ledger(tmp_path / folder)
        made = coordinator_for(
            config(**changes), consortium, tmp_path / folder, public=public, signing_keys=ROSTER, vote_sum=vote_sum
        )
        return made.label() if only else made.run()

    return run


def issued(folder: Path) -> list[tuple[int, int | None]]:
    return read_labels(folder / "labels.csv", tuple(KINDS))


def test_a_run_gives_labels_as_columns_and_a_student_that_knows_several(
    go: Any, tmp_path: Path, of_kinds: Examples
) -> None:
    run = go("run", only=False, votes__mode="masked")
    assert (tmp_path / "run" / "labels.csv").read_text().startswith("index,even,loop,large\n")
    rows = issued(tmp_path / "run")
    assert len(rows) == QUERIES and {0, 1} <= {label & 1 for _, label in rows if label is not None}
    given, truth = np.array([label for _, label in rows]), of_kinds.labels()[[index for index, _ in rows]]
    right = held_in(given, 3) == held_in(truth, 3)
    labels = run.labels
    assert labels.quality.accuracy == pytest.approx(right.mean()) and right.mean() > 0.85
    assert [row.labels for row in labels.per_class] == [
        sum(label >> bit & 1 for _, label in rows if label is not None) for bit in range(3)
    ]
    assert 0 < run.student.quality.accuracy < 1 and [row.inputs for row in run.student.quality.per_class] == [200] * 3
    assert read_student(tmp_path / "run" / "student.safetensors").task == TASK
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_student_learns_several_labels_an_input(of_kinds: Examples) -> None:
    """Naming the more frequent answer is right in 56 %."""
    known, asked = of_kinds.take(np.arange(300)), of_kinds.take(np.arange(300, 500))
    options: dict[str, Any] = {"steps": 100, "network": "small-cnn"}
    student = fit_student("supervised", known.x, np.arange(300), known.labels(), TASK, seed=0, options=options)
    probabilities, predicted = student.probabilities(asked.x), student.predict(asked.x)
    assert ((probabilities >= 0.5) == held_in(predicted, 3)).all() and (probabilities.sum(axis=1) > 2).any()
    assert (held_in(predicted, 3) == held_in(asked.labels(), 3)).mean() > 0.8


def test_masked_sums_give_the_labels_of_clear_ones_at_the_sampled_gaussians_price(go: Any, tmp_path: Path) -> None:
    clear, masked = go("clear"), go("masked", votes__mode="masked")
    assert issued(tmp_path / "clear") == issued(tmp_path / "masked")
    curve = sampled_gaussian_curve(swap_l2(3.0, 3), 4.0, 0.3, WIDE_ORDERS) * QUERIES
    for run in (clear, masked):
        assert run.privacy.epsilon == pytest.approx(curve.to_epsilon(1e-5).epsilon)
        assert not run.privacy.adaptive and run.labels.answered == QUERIES


def test_the_exact_mode_gives_nearly_the_same_labels(go: Any, of_kinds: Examples, tmp_path: Path) -> None:
    private = of_kinds.take(np.arange(500, 1797))
    records = {"all": SampledRecords(private, TASK.inputs, simulated_key(1, "all"))}
    go("exact", vote_sum=ExactNearest(records, of_kinds.x[:300], "trial"))
    go("binned", neighbours__bins=256)
    exact, binned = (np.array([label for _, label in issued(tmp_path / name)]) for name in ("exact", "binned"))
    assert (held_in(exact, 3) == held_in(binned, 3)).mean() > 0.85, "other samples, the same noise"


def test_exact_places_are_shared_by_those_as_far_as_the_last() -> None:
    votes = np.array([[256, 0], [0, 256], [256, 0], [256, 256]])
    distances = np.array([1, 4, 4, 9])
    assert exact_shares(distances, votes, 2).tolist() == [256 + 128, 128]
    assert exact_shares(distances, votes, 3).tolist() == [512, 256]
    assert exact_shares(distances, votes, 9).tolist() == votes.sum(axis=0).tolist()
    assert exact_shares(distances[:0], votes[:0], 2).tolist() == [0, 0]


def test_who_leaves_between_its_answer_and_the_sum_is_not_in_it(go: Any, tmp_path: Path) -> None:
    go("left", leaving=NAMES[1], votes__mode="masked")
    go("without", without=NAMES[1], votes__mode="masked")
    assert issued(tmp_path / "left") == issued(tmp_path / "without")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"task__multilabel": False}, "task.multilabel and the mechanism multilabel-knn belong together"),
        ({"mechanism": {"name": "knn", "parameters": {}}}, "belong together"),
        ({"votes__mode": "masked+noised"}, "does not suit multilabel-knn"),
        ({"neighbours__k": 2000, "neighbours__share": 0.5}, "at most 1023"),
        ({"task__classes": [f"kind {number}" for number in range(63)]}, "at most 62"),
        ({"budget__unit": "party"}, "must be 'record'"),
    ],
)
def test_what_does_not_go_together_is_refused_with_a_reason(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        config(**changes)


def test_students_of_one_class_are_refused(go: Any, of_kinds: Examples) -> None:
    for method in ("consistency", "random-forest", "vat"):
        with pytest.raises(ConfigurationError, match="for a multilabel task choose supervised"):
            fit_student(method, of_kinds.x[:20], [0, 1], [1, 2], TASK, seed=0)
    with pytest.raises(ConfigurationError, match="choose supervised"):
        go("run", only=False, student={"method": "consistency"})


def question(**changes: Any) -> CountNearest:
    pool = np.zeros((70, 8, 8, 1), dtype=np.uint8)
    made: Any = kind_of(RunFacts(config(), pool, "a" * 64, "ledger", None, lambda: b"", 0.0))
    mechanism = create("multilabel-knn", k=20, labels=3, tau=2.0, sigma=4.0, sampling_rate=0.3)
    asked = made.ask(QuestionTerms.of(mechanism, "clear", "release"), PoolRange("a" * 64, (1,)))
    return replace(asked, terms=replace(asked.terms, parameters=asked.terms.parameters | changes))


def test_a_party_refuses_what_its_task_or_policy_does_not_know(of_kinds: Examples, tmp_path: Path) -> None:
    def code(body: Any, **options: Any) -> str:
        party, *_ = members(of_kinds.take(np.arange(50)), tmp_path, task=TASK, **options)
        answer = party.handle(Request("r", "trial", Ask("round", body) if isinstance(body, Question) else body)).body
        assert isinstance(answer, Failure)
        return f"{answer.code}: {answer.message}"

    assert "does not answer Fit" in code(Fit(TeacherSettings()))
    assert code(question(labels=4)).startswith("refused-mechanism")
    assert code(question(sigma=0.0)).startswith("refused-mechanism")
    single = replace(question(), terms=replace(question().terms, mechanism="knn"))
    assert code(single).startswith("refused")
    quiet = Policy(PolicyConfig(**AGREED, minimum_noise_votes=5.0, sum_modes=("clear",)))
    assert "less than the party agreed to" in code(question(), policy=quiet)
    with pytest.raises(DataError, match="outside"):
        members(Examples(of_kinds.x[:9], np.full(9, 8)), tmp_path, task=TASK)


def test_labels_are_read_from_columns_of_zeros_and_ones(tmp_path: Path) -> None:
    inputs = TableInputs(columns=(NumberColumn(name="age", low=0.0, high=1.0),))
    task = Task(classes=("ill", "old"), inputs=inputs, multilabel=True)
    file = tmp_path / "records.csv"

    def read(text: str, **options: Any) -> Any:
        file.write_text(text)
        return load(DataSource(source=str(file), **options), task, data_root=None).y

    assert read("age,ill,old\n0.1,1,0\n0.2,0,0\n0.3,1,1\n0.4,0,1\n").tolist() == [1, 0, 3, 2]
    assert read("age\n0.1\n") is None
    for text, says in (("age,ill\n0,1\n", "no column old"), ("age,ill,old\n0,yes,1\n", "'yes'")):
        with pytest.raises(DataError, match=says):
            read(text)
    with pytest.raises(DataError, match="leave label out"):
        read("age,ill,old\n0,1,1\n", label="ill")
    np.savez(tmp_path / "records.npz", x=np.zeros((3, 1)), y=np.array([[1, 0], [0, 1], [1, 1]]))
    source = DataSource(source=str(tmp_path / "records.npz"))
    assert load(source, task, data_root=None).labels().tolist() == [1, 2, 3]
    np.savez(tmp_path / "records.npz", x=np.zeros((3, 1)), y=np.array([1, 0, 1]))
    with pytest.raises(DataError, match=r"needs \[3, 2\]"):
        load(source, task, data_root=None)


def test_sets_of_62_labels_and_their_numbers_are_the_same() -> None:
    held = np.random.default_rng(0).integers(0, 2, (50, 62))
    held[0] = 1
    assert (held_in(numbers_of(held), 62) == held).all() and numbers_of(held).min() >= 0
