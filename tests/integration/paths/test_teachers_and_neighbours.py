"""Votes by every path: of teachers, for each mechanism and kind of teacher, and of the records near a query.

{LNMax, GNMax, Confident-GNMax} × {linear, forest, small network, one of the user's own}, each in one of the modes, so
that every mechanism and every kind of teacher is summed under masks and in the clear; individual neighbours in all
three. Killed with -9 before each question are one run of teachers and one of neighbours: mechanisms draw after the last
question, and a kind of teacher is over before the first vote. Under masks a sum is opened before it is paid, so that
nothing is lost in any phase. Left out here, as it is elsewhere: both over Flower's engine and over real processes
(`runs/test_transports_agree`, `runs/test_neighbours`), launched and killed (`runs/test_interruption`), in a consortium,
killed (`operation/test_operating_page`), with a second study (`operation/test_studies`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.paths import Case, case, killed

import collegium as cg
from collegium.simulations.cohort import prepare_run
from collegium.simulations.launcher import launch

QUERIES = 6
OWN = "sklearn.naive_bayes:GaussianNB"
MECHANISMS: dict[str, dict[str, float]] = {
    "lnmax": {"gamma": 1.0},
    "gnmax": {"sigma": 1.0},
    "confident-gnmax": {"sigma1": 1.0, "sigma2": 1.0, "threshold": 1.0},
}
TEACHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "linear": ("vector", {"steps": 20}),
    "random-forest": ("table", {"trees": 5}),
    "small-cnn": ("image", {"steps": 60}),
    OWN: ("vector", {}),
}
"""The kind of inputs, and options that keep the test short."""
MODES = ("masked", "clear")
VOTES = [
    (mechanism, kind, MODES[(first + second) % 2])
    for first, mechanism in enumerate(MECHANISMS)
    for second, kind in enumerate(TEACHERS)
]
"""Every mechanism with every kind of teacher, by turns under masks and in the clear."""
TAUGHT = ("Describe", "HoldPool", "PoolChunk", "Fit", "CastVotes")
NEAR = ("Describe", "HoldPool", "PoolChunk", "CastNeighbours")
SUMMED = ("advertise_keys", "share_keys", "mask_input", "ShowLedger", "sign_survivors", "unmask")


def agreed(mode: str) -> cg.PolicyConfig:
    """What three institutions agree to so that votes of so few may be summed, with so little noise."""
    return cg.PolicyConfig(
        sum_modes=(mode,), few_parties=True, queries=100, epsilon=500.0, record_rho=1.0, teacher_imports=(OWN,)
    )


def taught(mechanism: str, kind: str, mode: str, folder: Path) -> Case:
    inputs, options = TEACHERS[kind]
    return case(
        inputs,
        mode,
        folder,
        agreed(mode),
        mechanism={"name": mechanism, "parameters": MECHANISMS[mechanism]},
        teachers={"kind": kind, "options": options},
        votes={"mode": mode},
        queries={"count": QUERIES},
        budget={"epsilon": 200.0, "bound": "classic"},  # the exact accountant's curves take longer than these runs
        student={"method": "supervised", "options": {"steps": 2}}
        if inputs == "image"
        else {"method": "random-forest", "options": {"trees": 5}},
    )


def near(mode: str, folder: Path) -> Case:
    return case(
        "vector",
        mode,
        folder,
        agreed(mode),
        mechanism={"name": "individual-knn", "parameters": {"sigma": 2.0, "participations": 1}},
        neighbours={"features": "raw", "dimensions": 4, "share": 0.2},
        votes={"mode": mode},
        queries={"count": QUERIES},
        budget={"epsilon": 20.0},
        student={"method": "random-forest", "options": {"trees": 5}},
    )


@pytest.mark.parametrize(("mechanism", "kind", "mode"), VOTES)
def test_teachers_of_every_kind_vote_for_every_mechanism(mechanism: str, kind: str, mode: str, tmp_path: Path) -> None:
    record = taught(mechanism, kind, mode, tmp_path).run()
    assert record.state == "finished" and record.sum_mode == mode
    assert record.labels.answered + record.labels.abstained == QUERIES and record.labels.answered > 0
    assert {party.teachers for party in record.parties.values()} == {1}


@pytest.mark.parametrize("mode", ["masked", "masked+noised", "clear"])
def test_records_near_a_query_vote_in_every_mode(mode: str, tmp_path: Path) -> None:
    record = near(mode, tmp_path).run()
    assert record.state == "finished" and record.sum_mode == mode and record.labels.answered == QUERIES


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    done = {
        "taught": taught("gnmax", "random-forest", "masked", tmp_path_factory.mktemp("taught")),
        "near": near("masked", tmp_path_factory.mktemp("near")),
    }
    for name, phases in (("taught", TAUGHT), ("near", NEAR)):
        parties = done[name].parties()
        done[name].run(parties)
        assert set(parties.asked) == {*phases, *SUMMED}, "no phase is left out below"
    return done


@pytest.mark.parametrize(
    ("votes", "phase"),
    [*(("taught", phase) for phase in TAUGHT + SUMMED), *(("near", phase) for phase in NEAR + SUMMED)],
)
def test_killed_before_any_question_the_next_start_gives_what_an_undisturbed_run_gives(
    votes: str, phase: str, undisturbed: dict[str, Case], tmp_path: Path
) -> None:
    one = taught("gnmax", "random-forest", "masked", tmp_path) if votes == "taught" else near("masked", tmp_path)
    assert killed(lambda: one.run(one.parties((phase, 0))))
    assert one.run().state == "finished"
    assert one.done() == undisturbed[votes].done()


def test_a_teacher_of_the_users_own_is_fitted_by_real_processes_as_in_memory(tmp_path: Path) -> None:
    one = taught("gnmax", OWN, "masked", tmp_path / "memory")
    record = launch(prepare_run(one.config, tmp_path / "run", data_root=None))
    alike = one.run()
    assert record.labels == alike.labels and record.state == alike.state == "finished"
