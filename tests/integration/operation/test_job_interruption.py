"""A coordinator's process that is killed while label jobs wait and run: no label is lost, none is paid for twice."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.consortium import NAMES, Scene
from support.label_jobs import JobScene, Order, jobs_served_by
from support.processes import interrupt, kill, killed_at_the_end, read_until, start_collegium

SETTINGS = 'own_run = false\nstudents = [{ name = "lab" }, { name = "firm" }]'
FIRST, SECOND = list(range(12)), [3, 50, 11, 51, 0]


def serve(scene: Scene) -> subprocess.Popen[str]:
    """As a script starts it in the background, where SIGINT is ignored at first."""
    words = ("coordinator", "serve", scene.path, "--wait", "0")
    return start_collegium(*words, ignoring=[signal.SIGINT], stdout=subprocess.DEVNULL)


@dataclass(frozen=True)
class Story:
    """Killed in the middle of the first of two jobs, and again when that had ended; then left alone."""

    service: JobScene
    orders: tuple[Order, Order]
    labels_at_first_kill: dict[str, int]
    status: int


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    scene = Scene(tmp_path_factory.mktemp("killed"), settings=SETTINGS, extra="seed = 5")
    service = JobScene(scene)
    with killed_at_the_end() as started, ExitStack() as closing:
        closing.callback(scene.close)
        started.append(serve(scene))
        read_until(started[-1].stderr, "enrolment at")
        for name in ("lab", "firm"):
            service.enrol(name)
        orders = service.order("lab", "first", FIRST), service.order("firm", "second", SECOND)
        for name in NAMES[:3]:
            scene.join(name)
        read_until(started[-1].stderr, "labels: 3 of 12")
        kill(started[-1])
        labels = service.ledger()[1]
        started.append(serve(scene))
        read_until(started[-1].stderr, "12 of 12 inputs")
        kill(started[-1])
        started.append(serve(scene))
        for order in orders:
            order.delivered()
        yield Story(service, orders, labels, interrupt(started[-1]).status)


def test_both_jobs_end_and_their_students_never_noticed_but_for_the_wait(story: Story) -> None:
    for order, asked in zip(story.orders, (FIRST, SECOND), strict=True):
        delivery = order.delivered()
        assert delivery.status.state == "done" and set(delivery.labels) == set(asked)
    assert story.status == 130


def test_nothing_was_paid_twice_and_what_was_released_before_the_kill_stands(story: Story) -> None:
    paid, labels = story.service.ledger()
    assert paid == len(labels) == len({*FIRST, *SECOND})
    assert 3 <= len(story.labels_at_first_kill) < 12
    assert {query: labels[query] for query in story.labels_at_first_kill} == story.labels_at_first_kill


def test_parties_came_back_by_themselves_and_wait_for_the_next_job(story: Story) -> None:
    for party in story.service.scene.parties.values():
        assert party.ended == [] and party.thread.is_alive()


def test_the_labels_are_those_of_a_coordinator_that_nobody_killed(story: Story, tmp_path: Path) -> None:
    """The noise of these runs follows from a seed and the query, so that equal votes give equal labels."""
    with jobs_served_by(Scene(tmp_path, settings=SETTINGS, extra="seed = 5")) as calm:
        calm.enrol("lab")
        for name in NAMES[:3]:
            calm.scene.join(name)
        together = calm.order("lab", "all", [*FIRST, 50, 51]).delivered().labels
    for order in story.orders:
        got = order.delivered().labels
        assert got == {at: together[at] for at in got}
