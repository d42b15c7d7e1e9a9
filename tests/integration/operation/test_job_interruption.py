"""A coordinator's process that is killed while label jobs wait and run: no label is lost, none is paid for twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.consortium import NAMES, Scene
from support.label_jobs import Desk, Order, desk_of
from support.members import PATIENCE_S

SETTINGS = 'own_run = false\nstudents = [{ name = "lab" }, { name = "firm" }]'
FIRST, SECOND = list(range(12)), [3, 50, 11, 51, 0]


class Process:
    """`collegium coordinator serve`, which may be killed."""

    def __init__(self, scene: Scene) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "collegium", "coordinator", "serve", scene.path, "--wait", "0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.seen: list[str] = []

    def read_until(self, words: str) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.seen.append(line)
            if words in line:
                return
        raise AssertionError(f"ended before {words!r}: {''.join(self.seen)}")

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=PATIENCE_S)

    def interrupt(self) -> int:
        self._process.send_signal(signal.SIGINT)
        _, rest = self._process.communicate(timeout=PATIENCE_S)
        self.seen.append(rest)
        return self._process.returncode


@dataclass(frozen=True)
class Story:
    """Killed in the middle of the first of two jobs, and again when that had ended; then left alone."""

    desk: Desk
    orders: tuple[Order, Order]
    labels_at_first_kill: dict[str, int]
    status: int


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    scene = Scene(tmp_path_factory.mktemp("killed"), settings=SETTINGS, extra="seed = 5")
    desk = Desk(scene)
    running = Process(scene)
    try:
        running.read_until("enrolment at")
        for name in ("lab", "firm"):
            desk.enrol(name)
        orders = desk.order("lab", "first", FIRST), desk.order("firm", "second", SECOND)
        for name in NAMES[:3]:
            scene.join(name)
        running.read_until("labels: 3 of 12")
        running.kill()
        labels = desk.ledger()[1]
        running = Process(scene)
        running.read_until("12 of 12 inputs")
        running.kill()
        running = Process(scene)
        for order in orders:
            order.delivered()
        yield Story(desk, orders, labels, running.interrupt())
    finally:
        running.kill()
        scene.close()


def test_both_jobs_end_and_their_students_never_noticed_but_for_the_wait(story: Story) -> None:
    for order, asked in zip(story.orders, (FIRST, SECOND), strict=True):
        delivery = order.delivered()
        assert delivery.status.state == "done" and set(delivery.labels) == set(asked)
    assert story.status == 130


def test_nothing_was_paid_twice_and_what_was_released_before_the_kill_stands(story: Story) -> None:
    paid, labels = story.desk.ledger()
    assert paid == len(labels) == len({*FIRST, *SECOND})
    assert 3 <= len(story.labels_at_first_kill) < 12
    assert {query: labels[query] for query in story.labels_at_first_kill} == story.labels_at_first_kill


def test_parties_came_back_by_themselves_and_wait_for_the_next_job(story: Story) -> None:
    for party in story.desk.scene.parties.values():
        assert party.ended == [] and party.thread.is_alive()


def test_the_labels_are_those_of_a_coordinator_that_nobody_killed(story: Story, tmp_path: Path) -> None:
    """The noise of these runs follows from a seed and the query, so that equal votes give equal labels."""
    with desk_of(Scene(tmp_path, settings=SETTINGS, extra="seed = 5")) as calm:
        calm.enrol("lab")
        for name in NAMES[:3]:
            calm.scene.join(name)
        together = calm.order("lab", "all", [*FIRST, 50, 51]).delivered().labels
    for order in story.orders:
        got = order.delivered().labels
        assert got == {at: together[at] for at in got}
