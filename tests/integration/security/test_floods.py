"""Certified peers that flood the coordinator with long messages: they fill no memory, and the honest work on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from support.attackers import (
    DATA,
    HEADERS,
    HONEST,
    INSIDER,
    PREFACE,
    SETTINGS,
    Fortress,
    frame,
)
from support.waiting import PATIENCE_S

from collegium import limits
from collegium.protocol.channels import ATTEND, channel_credentials, channel_options
from collegium.protocol.grpc_tls13 import grpc
from collegium.protocol.v1 import collegium_pb2 as pb

FAR_TOO_LONG_BYTES = 60 * 1024 * 1024
MOST_GROWTH_BYTES = 256 * 1024 * 1024
"""Far less than any flood here sends."""
CROWD, MOST_OF_ONE_BYTES = 200, 256 * 1024
MOST_CPU_S = 10.0
CONNECTIONS, STREAMS = 14, 4

Open = Callable[[Iterable[bytes]], Any]


@contextmanager
def connection(fortress: Fortress) -> Iterator[Open]:
    """A connection of the insider's own; opens streams on which it sends what it is given, however long."""
    address = fortress.config.consortium.address
    unlimited = [("grpc.max_send_message_length", -1)]
    options = [*(o for o in channel_options(address) if o[0] != unlimited[0][0]), *unlimited]
    with grpc.secure_channel(address, channel_credentials(fortress.credentials(INSIDER)), options) as channel:
        yield lambda messages: channel.stream_stream(ATTEND)(iter(messages), timeout=PATIENCE_S)


def end_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError):
        for _ in call:
            pass
    ended: grpc.StatusCode = call.code()
    return ended


@contextmanager
def bounded(fortress: Fortress) -> Iterator[None]:
    """Memory and processor time stay within their bounds, and afterwards the honest parties answer."""
    before, cpu_s = fortress.memory_bytes(), fortress.cpu_s()
    fortress.watch_peak()
    yield
    grown, spent_s = fortress.peak_bytes() - before, fortress.cpu_s() - cpu_s
    assert grown < MOST_GROWTH_BYTES, f"{grown / 2**20:.0f} MiB more at the peak"
    assert spent_s < MOST_CPU_S, f"{spent_s:.1f} s of processor time"
    assert fortress.ask() == dict.fromkeys(HONEST, "Description")


def test_a_message_far_too_long_is_refused_by_its_length_alone(fortress: Fortress) -> None:
    """480 MiB in all, one after the other."""
    long = bytes(FAR_TOO_LONG_BYTES)
    with bounded(fortress):
        for _ in range(8):
            with connection(fortress) as opened:
                assert end_of(opened([long])) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_of_one_peer_few_messages_are_read_however_many_streams_it_opens(fortress: Fortress) -> None:
    """224 MiB at the same time, each message as long as one may be, and again: 2.2 GiB in all."""
    turned_away = grpc.StatusCode.UNAVAILABLE
    longest, ends = bytes(limits.MAX_REPLY_BYTES), Counter[grpc.StatusCode]()
    with bounded(fortress):
        for _ in range(10):
            with ExitStack() as held:
                opened = [held.enter_context(connection(fortress)) for _ in range(CONNECTIONS)]
                calls = [stream([longest]) for stream in opened for _ in range(STREAMS)]
                ends.update(end_of(call) for call in calls)
    assert set(ends) <= {turned_away, grpc.StatusCode.INVALID_ARGUMENT} and ends[turned_away] > 0, ends


def test_answers_that_nobody_asked_for_are_let_go_of_one_by_one(fortress: Fortress) -> None:
    """Up to 260 MiB of them, within a session, before it is ended."""
    hello = pb.Hello(protocol_version=limits.PROTOCOL_VERSION, party=INSIDER, software="flood")
    counts = pb.Counts(rows=1, entries=1, entry_bytes=2, counts=bytes(limits.MAX_REPLY_BYTES - 1024))
    unasked = pb.FromParty(reply=pb.Reply(request_id="x", counts=counts)).SerializeToString()
    with bounded(fortress), connection(fortress) as opened:
        ended = end_of(opened([pb.FromParty(hello=hello).SerializeToString(), *[unasked] * 65]))
        assert ended is grpc.StatusCode.INVALID_ARGUMENT


def test_what_a_connection_costs_is_little_whatever_is_sent_on_it(fortress: Fortress) -> None:
    """Four streams each, as many as there may be; on one of them as much of a message as fits before it is read."""
    path = ATTEND.encode()
    # HPACK: :method POST, :scheme https, then literals: :path, :authority, content-type.
    head = b"\x83\x87\x04" + bytes([len(path)]) + path + b"\x41\x09localhost\x5f\x10application/grpc"
    heads = b"".join(frame(HEADERS, head, flags=4, stream=number) for number in (1, 3, 5, 7))
    message = b"\0" + limits.MAX_REPLY_BYTES.to_bytes(4, "big") + bytes(60_000)
    data = b"".join(frame(DATA, message[at : at + 16_000], stream=1) for at in range(0, len(message), 16_000))
    before = fortress.memory_bytes()
    with ExitStack() as held:
        for _ in range(CROWD):
            held.enter_context(fortress.tls(as_party=INSIDER)).sendall(PREFACE + frame(SETTINGS) + heads + data)
        assert fortress.ask() == dict.fromkeys(HONEST, "Description")
        each = (fortress.memory_bytes() - before) / CROWD
    assert each < MOST_OF_ONE_BYTES, f"{each / 1024:.0f} KiB each"
