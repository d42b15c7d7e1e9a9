"""One institution sends what it likes, to the student and to its evaluation; it does not decide the result."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.one_institution import Attack, corrupt, times
from benchmarks.one_institution import shifted as shifted_labels
from support.data import all_digits, mixed, pool_and_test
from support.keys import keys_in_order
from support.misbehaving import Misbehaving, Twist
from support.sums_scene import dies_opening

from collegium.coordinator.run import coordinator as run
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples
from collegium.data.task import ImageInputs, Task
from collegium.errors import CollegiumError, ConfigurationError, Contradiction, DataError
from collegium.models.arrays import load_arrays
from collegium.parties.kinds.class_sums import PartyClassSums
from collegium.parties.policy import PolicyConfig
from collegium.privacy.evaluation_cells import Layout
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.question import Question
from collegium.protocol.replies import Prepared
from collegium.protocol.requests import ShowReleased
from collegium.protocol.secure_sum.groups import group_of
from collegium.settings import validate_config
from collegium.simulations.local import LocalParties

TASK = Task(classes=tuple("0123456789"), inputs=ImageInputs(height=8, width=8))
NAMES = tuple(f"clinic-{number}" for number in range(9))
LIAR = NAMES[0]

WARNED = "by the first sum of all, the other institutions' records tell the classes apart otherwise than these"


@pytest.fixture(scope="module")
def shuffled() -> Examples:
    return mixed(all_digits())


@pytest.fixture(scope="module")
def public(shuffled: Examples) -> PublicData:
    return pool_and_test(shuffled)


@pytest.fixture
def same_every_time(monkeypatch: pytest.MonkeyPatch) -> int:
    """A seed of all noise, with keys that decide who is in which group: a run of these institutions is always the same.

    Without, some of the tests below would fail about once in a hundred times, as lies may be hidden by noise.
    """
    keys_in_order(monkeypatch)
    return 5


def institutions(shuffled: Examples, names: tuple[str, ...], twist: Twist, seed: int | None = None) -> Misbehaving:
    """Real parties, of which the first one runs software of its own: it sends ``twist`` of what it should."""
    parts = {name: slice(number, 1200, len(names)) for number, name in enumerate(names)}
    records = {name: (shuffled.x[rows, ..., 0], shuffled.labels()[rows]) for name, rows in parts.items()}
    policy = PolicyConfig(minimum_noise_sums=0.1, queries=20, record_epsilon=99.0, sum_modes=("masked+noised",))
    parties = Misbehaving(records, TASK, policy=policy, seed=seed)
    parties.lies(LIAR, twist)
    return parties


def start(
    parties: LocalParties,
    public: PublicData,
    folder: Path,
    *,
    rounds: int = 1,
    votes: dict[str, Any] | None = None,
    **budget: Any,
) -> RunRecord:
    values: dict[str, Any] = {
        "name": "local",
        "seed": parties.seed,
        "task": TASK,
        "pool": {"source": "digits"},
        "mechanism": {"name": "class-sums"},
        "budget": {"epsilon": 8.0, **budget},
        "sums": {"rounds": rounds},
        "votes": votes or {},
        "student": {"method": "kernel", "options": {"steps": 0}},
        "evaluation": {"share": 0.2},
    }
    reach = run.Reach(parties, roster=sorted(parties.signing_keys), signing_keys=parties.signing_keys)
    config = validate_config(values, RunConfig, "test")
    return run.CoordinatorRun(config, reach, run.Storage(folder), public=public).run()


def shifted(question: Question, vector: np.ndarray, factor: int) -> np.ndarray:
    """Every class called by the next one's name, ``factor`` times, the count with it."""
    blocks = vector[0, :-1].reshape(len(TASK.classes), -1)
    return factor * np.append(np.roll(blocks, 1, axis=0).reshape(-1), vector[0, -1])[None]


def all_right(question: Question, vector: np.ndarray, factor: int) -> np.ndarray:
    """As many records of each class as it has, ``factor`` times, all answered right and surely."""
    layout, classes = Layout(len(TASK.classes)), len(TASK.classes)
    true, given, *_ = layout.views()
    of_class = np.bincount(true[true >= 0], weights=vector[0][true >= 0], minlength=classes)
    lie = vector.copy()
    lie[0, true >= 0] = np.where(given == true, of_class[true], 0.0)[true >= 0]
    return np.minimum(factor * lie, question.high)


def hundredfold(question: Question, vector: np.ndarray) -> np.ndarray:
    if isinstance(question, SumClasses):
        return shifted(question, vector, 100)
    return all_right(question, vector, 100)


def nothing_is_published(folder: Path) -> str:
    assert not (folder / "student.safetensors").exists()
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "is not published" in page
    return page


@pytest.mark.slow
def test_sums_that_count_more_records_than_the_cap_allows_are_refused(
    shuffled: Examples, public: PublicData, tmp_path: Path
) -> None:
    def eightfold(question: Question, vector: np.ndarray) -> np.ndarray:
        return shifted(question, vector, 8) if isinstance(question, SumClasses) else all_right(question, vector, 8)

    parties = institutions(shuffled, NAMES[:5], eightfold)
    for _ in range(2):  # a start later finds the same
        with pytest.raises(Contradiction, match="each has 0 to 300: an institution sent what no records give"):
            start(parties, public, tmp_path, records_per_party=300)
    nothing_is_published(tmp_path)


@pytest.mark.slow
def test_an_evaluation_that_counts_others_than_the_sums_is_refused(
    shuffled: Examples, public: PublicData, tmp_path: Path
) -> None:
    def lies(question: Question, vector: np.ndarray) -> np.ndarray:
        return vector if isinstance(question, SumClasses) else all_right(question, vector, 1000)

    parties = institutions(shuffled, NAMES[:5], lies)
    with pytest.raises(
        Contradiction, match=r"the evaluation counts [\d,]+ records, and the class sums 1,\d+ of the same"
    ):
        start(parties, public, tmp_path)
    page = nothing_is_published(tmp_path)
    assert "of the institutions' own records" not in page, "a figure that is known to be false is nowhere"
    assert '"measures":null' in (tmp_path / "run.json").read_text(encoding="utf-8").replace(" ", "")


@pytest.mark.slow
def test_the_group_of_an_institution_that_sends_a_hundredfold_and_lies_is_named(
    shuffled: Examples, public: PublicData, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parties = institutions(shuffled, NAMES, hundredfold)
    record = start(parties, public, tmp_path)
    assert record.groups is not None and record.groups.left_out is not None
    spoilt = group_of(parties.signing_keys, 3, LIAR)
    assert record.groups.members[record.groups.left_out] == sorted(spoilt)
    assert any("are left out, as one of them spoils the result" in one.getMessage() for one in caplog.records)
    assert record.label_accuracy is not None and record.label_accuracy > 0.85
    assert record.evaluation is not None and record.evaluation.measures is not None
    told = record.evaluation.measures
    assert told.accuracy is not None and record.student_accuracy is not None
    assert abs(told.accuracy.value - record.student_accuracy) < 0.05 + 4.9 * told.accuracy.error, "but for 1e-6"
    assert told.records.value < 1_200 + 4.9 * told.records.error < 5_000, "nobody's hundred thousand"
    assert "left out" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("first_lie", [1, 2, 4])
def test_where_the_first_sum_alone_is_by_groups_a_liar_that_weighs_more_than_all_others_does_not_decide(
    shuffled: Examples, public: PublicData, tmp_path: Path, first_lie: int, same_every_time: int
) -> None:
    """It counts 1,330 records of 2,400, and calls each by the next class, from a round on; its evaluation agrees."""
    parties = institutions(shuffled, NAMES, lambda question, vector: vector, same_every_time)
    corrupt(parties, LIAR, Attack(times(10), 10, first_lie, labels=shifted_labels), np.random.default_rng(0))
    record = start(parties, public, tmp_path, rounds=8, epsilon=2.0)
    assert record.groups is not None and record.groups.left_out is not None
    assert sorted(group_of(parties.signing_keys, 3, LIAR)) == record.groups.members[record.groups.left_out]
    assert record.student_accuracy is not None and record.student_accuracy > 0.85
    asked = [load_arrays(file, "released vector")[1]["parties"] for file in tmp_path.glob("released-*")]
    without = [len(groups[0]) for groups in asked if all(LIAR not in group for group in groups)]
    assert set(without) <= {6} and (first_lie > 1 or len(without) == 7), "the others are summed together from then on"


@pytest.mark.slow
def test_a_later_sum_that_no_records_give_is_not_used_and_does_not_end_the_run(
    shuffled: Examples, public: PublicData, tmp_path: Path, same_every_time: int
) -> None:
    def huge_once(question: Question, vector: np.ndarray) -> np.ndarray:
        many = 10**6 if isinstance(question, SumClasses) and question.number == 3 else 1
        return np.clip(vector * many, question.low, question.high)

    parties = institutions(shuffled, NAMES, huge_once, same_every_time)
    record = start(parties, public, tmp_path, rounds=8, epsilon=2.0)
    by_groups = [len(load_arrays(file, "released vector")[0]["values"]) for file in tmp_path.glob("released-*")]
    assert by_groups.count(1) == 2 and by_groups.count(3) >= 6, "the second and the third are of all together"
    assert record.refused is None and record.student_accuracy is not None and record.student_accuracy > 0.85


@pytest.mark.slow
def test_a_run_that_left_a_group_out_says_which_settings_it_goes_on_with(
    shuffled: Examples, public: PublicData, tmp_path: Path, same_every_time: int
) -> None:
    parties = institutions(shuffled, NAMES, hundredfold, same_every_time)
    with dies_opening(3):
        start(parties, public, tmp_path, rounds=4, epsilon=2.0)
    with pytest.raises(ConfigurationError, match=r"are left out of this run.*go on with those of before"):
        start(parties, public, tmp_path, rounds=4, epsilon=2.0, votes={"groups": 1})
    record = start(parties, public, tmp_path, rounds=4, epsilon=2.0)
    assert record.groups is not None and record.groups.left_out is not None
    assert record.student_accuracy is not None and record.student_accuracy > 0.85


@pytest.mark.slow
def test_the_group_that_was_left_out_is_not_waited_for(
    shuffled: Examples,
    public: PublicData,
    tmp_path: Path,
    same_every_time: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Eight of nine make a quorum, and five of the six that stay."""
    parties = institutions(shuffled, NAMES, hundredfold, same_every_time)
    with caplog.at_level(logging.WARNING), dies_opening(3):
        start(parties, public, tmp_path, rounds=4, epsilon=2.0)
    left = set(group_of(parties.signing_keys, 3, LIAR))
    warned = {one.message.split()[1].rstrip(":") for one in caplog.records if WARNED in one.message}
    assert warned and warned <= left, "the others compare their records with each other's"
    gone = {*left, min(set(NAMES) - left)}
    for name in gone:
        del parties._parties[name]
    with parties.cut_off(lambda name, body: name in gone):
        record = start(parties, public, tmp_path, rounds=4, epsilon=2.0)
    assert record.groups is not None and set(record.groups.members[record.groups.left_out or 0]) == left
    assert record.student_accuracy is not None and record.student_accuracy > 0.85


@pytest.mark.slow
def test_a_liar_that_stays_away_from_the_first_sum_is_seen_in_the_next(
    shuffled: Examples, public: PublicData, tmp_path: Path, same_every_time: int
) -> None:
    """Its group was short, so that all others were summed together."""
    parties = institutions(shuffled, NAMES, lambda question, vector: vector, same_every_time)
    corrupt(parties, LIAR, Attack(times(10), 10, labels=shifted_labels), np.random.default_rng(0))

    def away_at_first(question: Question, vector: np.ndarray) -> np.ndarray:
        if isinstance(question, SumClasses) and question.number == 1:
            raise DataError("nothing is sent")
        return vector

    parties.lies(LIAR, away_at_first)
    record = start(parties, public, tmp_path, rounds=8, epsilon=2.0)
    assert record.groups is not None and record.groups.left_out is not None
    assert LIAR in record.groups.members[record.groups.left_out]
    assert record.student_accuracy is not None and record.student_accuracy > 0.85


@pytest.mark.slow
def test_a_swapped_pair_at_one_institution_costs_little_and_a_lie_about_it_moves_one_group(
    shuffled: Examples, public: PublicData, tmp_path: Path
) -> None:
    def swaps(question: Question, vector: np.ndarray) -> np.ndarray:
        if not isinstance(question, SumClasses):
            return all_right(question, vector, 1)
        blocks = vector[0, :-1].reshape(len(TASK.classes), -1)
        order = [1, 0, *range(2, len(TASK.classes))]
        return np.append(blocks[order].reshape(-1), vector[0, -1])[None]

    record = start(institutions(shuffled, NAMES, swaps), public, tmp_path)
    assert record.refused is None and record.student_accuracy is not None and record.student_accuracy > 0.85
    assert record.evaluation is not None and record.evaluation.measures is not None
    told = record.evaluation.measures.accuracy
    assert told is not None and abs(told.value - record.student_accuracy) < 0.1 + 4.9 * told.error, "but for 1e-6"


def honest_first(lie: Twist) -> Twist:
    """Who is honest in the first round, and later sends ``lie`` of what it sent there."""
    sent = list[np.ndarray]()

    def answer(question: Question, vector: np.ndarray) -> np.ndarray:
        if isinstance(question, SumClasses):
            sent.append(vector)
        return lie(question, sent[0]) if isinstance(question, SumClasses) and question.number > 1 else vector

    return answer


def tenfold(question: Question, vector: np.ndarray) -> np.ndarray:
    """Ten times as many records as in the first round."""
    return shifted(question, vector, 10)


def opposite(question: Question, vector: np.ndarray) -> np.ndarray:
    """Five times the opposite of its records, with their count."""
    return np.append(-5 * vector[0, :-1], vector[0, -1])[None]


@pytest.mark.slow
@pytest.mark.parametrize("lie", [tenfold, opposite])
def test_an_institution_that_lies_from_the_second_round_on_is_named_with_its_group(
    shuffled: Examples, public: PublicData, tmp_path: Path, lie: Twist
) -> None:
    parties = institutions(shuffled, NAMES, honest_first(lie))
    record = start(parties, public, tmp_path, rounds=3)
    assert record.groups is not None and record.groups.left_out is not None
    spoilt = group_of(parties.signing_keys, 3, LIAR)
    assert record.groups.members[record.groups.left_out] == sorted(spoilt)
    assert record.label_accuracy is not None and record.label_accuracy > 0.85
    again = start(parties, public, tmp_path, rounds=3)
    assert again.groups == record.groups and again.label_accuracy == record.label_accuracy, "so does a later start"


@pytest.mark.slow
def test_who_lies_from_the_second_round_on_and_stays_away_from_the_last_is_named(
    shuffled: Examples, public: PublicData, tmp_path: Path
) -> None:
    def lies_and_leaves(question: Question, vector: np.ndarray) -> np.ndarray:
        if isinstance(question, SumClasses) and question.number == 4:
            raise CollegiumError("away")
        return opposite(question, vector)

    record = start(institutions(shuffled, NAMES, honest_first(lies_and_leaves)), public, tmp_path, rounds=4)
    assert record.groups is not None and record.groups.left_out is not None
    assert LIAR in record.groups.members[record.groups.left_out]
    assert record.label_accuracy is not None and record.label_accuracy > 0.85


@pytest.mark.slow
def test_honest_institutions_are_not_left_out_by_all_rounds(
    shuffled: Examples, public: PublicData, tmp_path: Path
) -> None:
    record = start(institutions(shuffled, NAMES, lambda question, vector: vector), public, tmp_path, rounds=4)
    assert record.groups is not None and record.groups.left_out is None and len(record.groups.members) == 3


def told(folder: Path) -> set[str]:
    """The institutions that the first sum warned, by what they keep."""
    return {one.name for one in folder.iterdir() if one.is_dir() and PartyClassSums.noted(one)["warning"]}


@pytest.mark.slow
def test_an_institution_whose_classes_are_exchanged_is_told_before_the_second_sum_and_nobody_else_is(
    shuffled: Examples, public: PublicData, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names, asked = NAMES[:5], list[int]()
    records = {name: (shuffled.x[at:1200:5, ..., 0], shuffled.labels()[at:1200:5]) for at, name in enumerate(names)}
    x, labels = records[LIAR]
    records[LIAR] = x, np.where(labels < 2, 1 - labels, labels)
    policy = PolicyConfig(minimum_noise_sums=0.1, queries=20, record_epsilon=99.0, sum_modes=("masked+noised",))
    parties = Misbehaving(records, TASK, policy=policy, seed=1, folder=tmp_path / "parties")

    def watched(question: Question, vector: np.ndarray) -> np.ndarray:
        if isinstance(question, SumClasses):
            asked.append(question.number)
            assert bool(PartyClassSums.noted(tmp_path / "parties" / LIAR)["warning"]) == (question.number > 1)
        return vector

    parties.lies(LIAR, watched)
    with caplog.at_level(logging.INFO):
        start(parties, public, tmp_path / "run", rounds=2)
    assert asked == [1, 2]
    assert told(tmp_path / "parties") == {LIAR}
    (line,) = [one.message for one in caplog.records if WARNED in one.message]
    assert line.startswith(f"party {LIAR}: ") and ("'0'" in line or "'1'" in line)


@pytest.mark.slow
def test_one_that_counts_more_than_all_others_has_every_honest_institution_told(
    shuffled: Examples, public: PublicData, tmp_path: Path
) -> None:
    names = NAMES[:5]
    records = {name: (shuffled.x[at:1200:5, ..., 0], shuffled.labels()[at:1200:5]) for at, name in enumerate(names)}
    policy = PolicyConfig(minimum_noise_sums=0.1, queries=20, record_epsilon=99.0, sum_modes=("masked+noised",))
    parties = LocalParties(records, TASK, policy=policy, seed=1, folder=tmp_path / "parties")
    corrupt(parties, LIAR, Attack(times(10), 10, labels=shifted_labels), np.random.default_rng(0))
    start(parties, public, tmp_path / "run", rounds=2)
    assert told(tmp_path / "parties") >= set(names) - {LIAR}


def test_what_a_coordinator_shows_moves_nothing_but_the_own_log(tmp_path: Path) -> None:
    """A sum of another round, or of another length, is not compared; every reply is the same."""
    parties = dict.fromkeys(NAMES[:3])
    random = np.random.default_rng(0)
    task = Task(classes=("a", "b"), inputs=ImageInputs(height=4, width=4))
    given = {name: (random.integers(0, 255, (20, 4, 4), dtype=np.uint8), random.integers(0, 2, 20)) for name in parties}
    local = LocalParties(given, task, folder=tmp_path, policy=PolicyConfig(sum_modes=("masked+noised",)))
    shown = [ShowReleased(name, "class-sums", counts, 1.0) for name in ("r1", "r2") for counts in ((1.0,), (1.0,) * 99)]
    for one in shown:
        replies = local.ask(dict.fromkeys(local.names(), one), timeout_s=60.0)
        assert set(replies.values()) == {Prepared(one.round_id)}
    assert told(tmp_path) == set()
