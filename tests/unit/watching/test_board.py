"""The board: who is here since when, and what was counted, from session events as they come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from collegium.coordinator.run.coordinator import Progress
from collegium.coordinator.service.peer_events import EventKind, SessionEvent
from collegium.coordinator.watching.live_state import LiveState

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.minutes = 0

    def __call__(self) -> datetime:
        return START + timedelta(minutes=self.minutes)


def happen(board: LiveState, kind: EventKind, party: str | None = "ash", peer: str = "a", **more: str) -> None:
    board.take_event(SessionEvent(kind, party, peer, more.get("detail", ""), more.get("code", "")))


def test_a_party_is_here_from_its_connection_to_its_disconnection() -> None:
    board = LiveState(clock := Clock())
    clock.minutes = 5
    happen(board, "connected")
    clock.minutes = 9
    assert board.snapshot().connected_since == {"ash": START + timedelta(minutes=5)}
    happen(board, "disconnected", detail="it went away")
    assert board.snapshot().connected_since == {} and board.snapshot().disconnections == 1


def test_a_party_that_dials_again_before_its_old_connection_ends_stays_here() -> None:
    board = LiveState(clock := Clock())
    happen(board, "connected", peer="a")
    clock.minutes = 3
    happen(board, "connected", peer="b")
    happen(board, "disconnected", peer="a", detail="another process has connected")
    assert board.snapshot().connected_since == {"ash": START + timedelta(minutes=3)}


def test_a_farewell_is_no_disconnection_to_worry_about() -> None:
    board = LiveState()
    happen(board, "connected")
    happen(board, "disconnected", detail="farewell")
    assert board.snapshot().disconnections == 0


def test_refusals_are_counted_by_codes_that_are_known_and_no_others() -> None:
    board = LiveState()
    for code in ("identity", "identity", "version", "<script>", "party-17-is-ill"):
        happen(board, "refused", None, code=code)
    happen(board, "violation", code="protocol")
    assert board.snapshot().refused == {"identity": 2, "version": 1, "other": 2}
    assert board.snapshot().violations == 1


def test_the_latest_step_is_the_one_that_is_shown() -> None:
    board = LiveState()
    board.take_step(Progress("fit", 1, 3))
    board.take_step(Progress("votes", 0, 3))
    assert board.snapshot().step == Progress("votes", 0, 3)


def test_the_time_since_a_step_began_is_that_of_the_step_and_not_of_its_parts() -> None:
    board = LiveState(clock := Clock())
    board.take_step(Progress("hold_pool", 1, 2))
    clock.minutes = 4
    board.take_step(Progress("fit", 0, 5))
    clock.minutes = 6
    board.take_step(Progress("fit", 2, 5))
    assert board.snapshot().step_began == START + timedelta(minutes=4)
