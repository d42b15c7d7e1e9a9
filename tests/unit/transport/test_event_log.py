"""A scanner that knocks all day is logged once in a while, and remembered in bounded memory."""

from __future__ import annotations

import pytest

from collegium.coordinator.service.sessions import EventLog, SessionEvent


def test_the_same_refusal_is_logged_once_in_ten_minutes(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    log = EventLog(clock=lambda: now_s)
    for port in range(5):
        log(SessionEvent("refused", "ash", f"ipv4:192.0.2.1:{port}", "not on the roster"))
    log(SessionEvent("refused", "birch", "ipv4:192.0.2.1:9", "not on the roster"))
    assert [record.message.split(" at ")[0] for record in caplog.records] == ["refused: ash", "refused: birch"]
    now_s = EventLog.QUIET_S
    log(SessionEvent("refused", "ash", "ipv4:192.0.2.1:6", "not on the roster"))
    assert len(caplog.records) == 3


@pytest.mark.slow
def test_what_is_remembered_is_bounded() -> None:
    log = EventLog(clock=lambda: 0.0)
    for number in range(2 * EventLog.REMEMBERED):
        log(SessionEvent("refused", None, "ipv4:192.0.2.1:1", f"detail {number}"))
    assert len(log._said_at_s) == EventLog.REMEMBERED


def test_every_connection_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = EventLog(clock=lambda: 0.0)
    for _ in range(2):
        log(SessionEvent("connected", "ash", "ipv4:192.0.2.1:1", "admitted"))
    assert len(caplog.records) == 2
