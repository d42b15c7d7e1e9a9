"""The party's side: waiting times, requests that come twice, and connections that end."""

from __future__ import annotations

import gc
import itertools
import logging
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.sessions import Kits
from support.waiting import PATIENCE_S

from collegium.computing import computed
from collegium.parties import session
from collegium.parties.session import PartySession, Worker
from collegium.protocol.channels import ATTEND, Backoff, server_credentials
from collegium.protocol.grpc_tls13 import grpc
from collegium.protocol.messages import Reply, Request
from collegium.protocol.replies import Description, Failure
from collegium.protocol.requests import Describe
from collegium.protocol.v1 import collegium_pb2 as pb


def test_waiting_doubles_to_a_limit_with_jitter() -> None:
    backoff = Backoff(first_s=0.5, longest_s=30.0)
    longest = [backoff.delay_s(failures, lambda low, high: high) for failures in (1, 2, 3, 6, 7, 10_000)]
    assert longest == [0.5, 1.0, 2.0, 16.0, 30.0, 30.0]
    assert backoff.delay_s(3, lambda low, high: low) == 1.0


class Slow:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.begun, self.release = threading.Event(), threading.Event()
        self.seen: list[str] = []

    def handle(self, request: Request) -> Reply:
        self.seen.append(request.request_id)
        self.begun.set()
        assert self.release.wait(PATIENCE_S)
        return Reply(request.request_id, Description("ash", "slow", 1, "none"))


def ask(request_id: str) -> pb.Request:
    return Request(request_id, "run-1", Describe()).to_proto()


def next_reply(outbox: queue.SimpleQueue[bytes | None]) -> Reply:
    data = outbox.get(timeout=PATIENCE_S)
    assert data is not None
    return Reply.from_proto(pb.FromParty.FromString(data).reply)


def test_a_request_repeated_while_it_is_answered_is_answered_once_over_the_newest_connection() -> None:
    party = Slow()
    worker = Worker(party)
    first: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    second: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    worker.reply_to(first.put)
    worker.take(ask("r1"))
    assert party.begun.wait(PATIENCE_S)
    worker.reply_to(None)
    worker.reply_to(second.put)
    worker.take(ask("r1"))
    worker.take(ask("r2"))
    party.release.set()
    assert [next_reply(second).request_id for _ in range(2)] == ["r1", "r2"]
    assert party.seen == ["r1", "r2"]
    assert first.empty()
    worker.close()


def test_requests_beyond_what_may_wait_are_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MAX_WAITING_REQUESTS", 2)
    party = Slow()
    worker = Worker(party)
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    worker.reply_to(outbox.put)
    for number in range(3):
        worker.take(ask(f"r{number}"))
    declined = next_reply(outbox)
    assert declined.request_id == "r2"
    assert isinstance(declined.body, Failure) and declined.body.code == "protocol"
    party.release.set()
    assert [next_reply(outbox).request_id for _ in range(2)] == ["r0", "r1"]
    worker.close()


def test_a_request_that_is_not_valid_is_answered_with_what_is_wrong() -> None:
    worker = Worker(Slow())
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    worker.reply_to(outbox.put)
    worker.take(pb.Request(request_id="r1", run_id="run-1"))
    body = next_reply(outbox).body
    assert isinstance(body, Failure) and body.code == "protocol"
    worker.close()


def test_an_answer_too_long_for_a_message_becomes_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.limits, "MAX_REPLY_BYTES", 20)
    party = Slow()
    party.release.set()
    worker = Worker(party)
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    worker.reply_to(outbox.put)
    worker.take(ask("r1"))
    body = next_reply(outbox).body
    assert isinstance(body, Failure) and "too long" in body.message
    worker.close()


class Computes:
    """Tells of its records as often as the test lets it, then answers."""

    def __init__(self) -> None:
        self.blocks: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def handle(self, request: Request) -> Reply:
        while (records := self.blocks.get(timeout=PATIENCE_S)) is not None:
            computed(records)
        return Reply(request.request_id, Description("ash", "computes", 1, "none"))


@pytest.mark.parametrize("hears", [True, False])
def test_who_computes_for_long_says_so_now_and_then_to_a_coordinator_that_hears_it(
    monkeypatch: pytest.MonkeyPatch, hears: bool
) -> None:
    """A coordinator of an older version would end the session."""
    now, party = [100.0], Computes()
    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=lambda: now[0]))
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    worker = Worker(party)
    worker.reply_to(outbox.put, says_computing=hears)
    worker.take(ask("r1"))
    party.blocks.put(10)
    for _ in range(2 * hears):
        while not party.blocks.empty():
            pass
        now[0] += session.COMPUTING_EVERY_S
        party.blocks.put(10)
        said = outbox.get(timeout=PATIENCE_S)
        assert said == pb.FromParty(computing=pb.Computing(request_id="r1")).SerializeToString()
        party.blocks.put(10)  # too soon for another
    now[0] += session.COMPUTING_EVERY_S * (not hears)
    party.blocks.put(10)
    party.blocks.put(None)
    assert next_reply(outbox).request_id == "r1" and outbox.empty()
    computed(10)  # on a thread that answers nothing
    worker.close()


def test_connections_that_the_coordinator_ends_leave_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It refuses each right after the first message, as one that is started again does; sixty times."""
    kits, attempts = Kits.make(tmp_path), itertools.count(1)

    def refuse(said: Iterator[bytes], context: Any) -> Iterator[bytes]:
        next(said)
        context.abort(grpc.StatusCode.UNAVAILABLE, "the coordinator goes on")
        yield b""

    _, service, method = ATTEND.split("/")
    handler = {method: grpc.stream_stream_rpc_method_handler(refuse)}
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handler),))
    port = server.add_secure_port("127.0.0.1:0", server_credentials(kits.coordinator))
    server.start()

    def sleep(seconds: float) -> None:
        if next(attempts) >= 60:
            served.stop()

    nobody: Any = lambda task: None  # noqa: E731
    served = PartySession(nobody, lambda: kits.parties["ash"], f"127.0.0.1:{port}", sleep=sleep)
    try:
        served.run()
    finally:
        server.stop(0)
    gc.collect()
    assert next(attempts) > 60
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []
