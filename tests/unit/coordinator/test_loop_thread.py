"""A thread that closes in the very moment in which a call ends prints nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc import aio

from collegium.protocol.loop_thread import LoopThread, cancel_the_rest


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
