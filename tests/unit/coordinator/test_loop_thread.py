"""A loop on a thread: it ends with the last that uses it, and prints nothing where a call ends at that moment."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc import aio

from collegium.protocol.loop_thread import LoopThread, SharedLoop, cancel_the_rest


async def _echo(requests: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


async def _stopped_between_two_steps_of_a_call() -> None:
    """A call's handler has ended, and gRPC's task that waits for it has not been told yet: tried until it is so."""
    for _ in range(200):
        await _stopped_after_a_call()
        if any(work.get_name() == "rpc_task" for work in asyncio.all_tasks()):
            break
    else:
        raise AssertionError("no call ended in two steps")
    await cancel_the_rest()


async def _stopped_after_a_call() -> None:
    server = aio.server()
    method: Any = grpc.stream_stream_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("of.Test", {"Echo": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.stream_stream("/of.Test/Echo")()
        await call.write(b"here")
        assert await call.read() == b"here"
        await server.stop(None)
        while any(work.get_name().startswith("HandleExceptions[") for work in asyncio.all_tasks()):
            await asyncio.sleep(0)


def test_closing_while_a_call_ends_prints_no_error(capfd: pytest.CaptureFixture[str]) -> None:
    thread = LoopThread("of a test")
    thread.start()
    thread.close(_stopped_between_two_steps_of_a_call)
    assert capfd.readouterr().err == ""


def test_a_shared_loop_is_one_for_all_that_use_it_at_once_and_ends_with_the_last() -> None:
    shared, loops = SharedLoop("of a test"), list[asyncio.AbstractEventLoop]()

    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    with shared.used() as first:
        loops.append(first.run(running()))
        with shared.used() as second:
            loops.append(second.run(running()))
        loops.append(first.run(running()))
    assert loops[0] is loops[1] is loops[2]
    assert loops[0].is_closed()
    with shared.used() as again:
        assert again.run(running()) is not loops[0]
