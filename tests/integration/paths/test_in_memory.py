"""The default configuration in this process: {image, table, vector} × {with the parties' noise, clear} × {first start,
killed with -9 before each question, second study}, and {table, vector} without a pool.

What adds nothing, and is left out:

- `cg.Coordinator` has the usual mode alone; the clear one is asked of the same parties through `CoordinatorRun`.
- Vectors differ from tables by how records are read, which is over before the first question, and by the kernel's
  features, which no phase knows: they are killed in one phase. Images are asked twice, the second time under networks
  that learned from the first sum: they are killed before three questions of that second sum, which are those at which
  something new is kept. The networks of the runs that are killed learn in fewer steps than they usually do.
- A second study in the clear: the mode decides how an answer is sent, not whether it is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.paths import (
    EPSILON,
    KINDS,
    MODES,
    POOL,
    SUMS,
    Case,
    brief,
    case,
    killed,
    pool_of,
    right,
)
from support.runs import paid

import collegium as cg
from collegium.coordinator.run.run_record import RunRecord

NOISED, CLEAR = MODES
PHASES: Mapping[str, tuple[str, ...]] = {
    NOISED: (
        "Describe",
        "HoldPool",
        "PoolChunk",
        "SumClasses",
        "advertise_keys",
        "share_keys",
        "mask_input",
        "ShowLedger",
        "sign_survivors",
        "unmask",
        "ShowReleased",
    ),
    CLEAR: ("Describe", "HoldPool", "PoolChunk", "SumClasses", "ShowLedger", "ShowReleased"),
}
"""What parties are asked for in a run, in the order of the first time."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[Case, list[str], RunRecord]]:
    """Each kind in each mode, from its beginning to its end."""
    done = {}
    for kind in KINDS:
        for mode in MODES:
            one = case(kind, mode, tmp_path_factory.mktemp(kind))
            parties = one.parties()
            record = one.run(parties)
            done[kind, mode] = one, parties.asked, record
    return done


@pytest.fixture(scope="module")
def undisturbed_in_brief(tmp_path_factory: pytest.TempPathFactory, undisturbed: Undisturbed) -> dict[Any, Case]:
    """The same, whose networks learn in a few steps."""
    done = {asked: one for asked, (one, _, _) in undisturbed.items()}
    for mode in MODES:
        done["image", mode] = case("image", mode, tmp_path_factory.mktemp("brief"), **brief("image"))
        done["image", mode].run()
    return done


Undisturbed = dict[tuple[str, str], tuple[Case, list[str], RunRecord]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_default_labels_the_whole_pool_within_the_budget(kind: str, mode: str, undisturbed: Undisturbed) -> None:
    one, asked, record = undisturbed[kind, mode]
    assert record.state == "finished" and record.labels.answered == POOL and record.sum_mode == mode
    assert (one.folder / "run" / "student.safetensors").exists()
    assert paid(one.folder / "run").epsilon <= EPSILON and right(one.folder / "run") > 0.6
    assert tuple(dict.fromkeys(asked)) == PHASES[mode], "no phase is left out below"
    assert asked.count("SumClasses") == SUMS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_notebook_needs_records_a_task_a_pool_and_a_budget(kind: str, tmp_path: Path) -> None:
    """And says of itself that its noise is private."""
    one = case(kind, NOISED, tmp_path)
    coordinator = cg.Coordinator(
        cg.LocalParties(one.records, one.config.task), pool_of(one.config), epsilon=EPSILON, folder=tmp_path / "run"
    )
    labels = coordinator.label()
    student = coordinator.fit()
    assert (labels >= 0).all() and len(student.predict(pool_of(one.config))) == POOL
    assert coordinator.record.private and coordinator.epsilon <= EPSILON


@pytest.mark.parametrize(
    ("kind", "mode", "phase", "before"),
    [
        *(("table", NOISED, phase, 0) for phase in PHASES[NOISED]),
        *(("table", CLEAR, phase, 0) for phase in PHASES[CLEAR]),
        ("vector", NOISED, "mask_input", 0),
        ("image", NOISED, "SumClasses", 1),
        ("image", NOISED, "mask_input", 1),
        ("image", NOISED, "sign_survivors", 1),
        ("image", CLEAR, "SumClasses", 1),
    ],
)
def test_killed_before_any_question_the_next_start_gives_what_an_undisturbed_run_gives(
    kind: str, mode: str, phase: str, before: int, undisturbed_in_brief: dict[Any, Case], tmp_path: Path
) -> None:
    one = case(kind, mode, tmp_path, **brief(kind))
    assert killed(lambda: one.run(one.parties((phase, before))))
    assert one.run(one.parties()).state == "finished"
    assert one.done() == undisturbed_in_brief[kind, mode].done()


@pytest.mark.parametrize(("kind", "phase"), [("table", "mask_input"), ("vector", "SumClasses")])
def test_without_a_pool_a_run_that_was_killed_publishes_the_student_of_one_that_was_not(
    kind: str, phase: str, tmp_path: Path
) -> None:
    """Both draw the same inputs from the schema; killed in the second round, whose weights follow from the first."""
    two: dict[str, Any] = {"pool": None, "sums": {"rounds": 2}}
    undisturbed, disturbed = (case(kind, NOISED, tmp_path / name, **two) for name in ("one", "other"))
    record = undisturbed.run()
    assert killed(lambda: disturbed.run(disturbed.parties((phase, 1))))
    assert disturbed.run().state == record.state == "finished"
    students = [(one.folder / "run" / "student.safetensors").read_bytes() for one in (undisturbed, disturbed)]
    assert students[0] == students[1] and disturbed.done() == undisturbed.done()
    assert paid(undisturbed.folder / "run").epsilon <= EPSILON
    named = cg.load_student(undisturbed.folder / "run" / "student.safetensors").student
    own = [(named.predict(x) == y).mean() for x, y in undisturbed.records.values()]
    assert min(own) > 0.6


@pytest.mark.parametrize("kind", ["table", "image"])
def test_started_again_after_its_end_it_asks_and_pays_for_nothing(kind: str, undisturbed: Undisturbed) -> None:
    one, _, record = undisturbed[kind, NOISED]
    before, parties = one.done(), one.parties()
    assert one.run(parties).labels == record.labels
    assert one.done() == before and "SumClasses" not in parties.asked


def test_a_second_study_has_noise_of_its_own(tmp_path: Path) -> None:
    one = case("table", NOISED, tmp_path)
    parties = cg.LocalParties(one.records, one.config.task, policy=cg.PolicyConfig(queries=2 * SUMS["table"]))
    for study in ("first", "second"):
        coordinator = cg.Coordinator(parties, pool_of(one.config), epsilon=EPSILON, folder=tmp_path / study)
        assert (coordinator.label() >= 0).all() and coordinator.epsilon <= EPSILON
    first, second = ((next((tmp_path / study).glob("released-*"))).read_bytes() for study in ("first", "second"))
    assert first != second
