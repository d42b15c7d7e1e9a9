"""The network between one party and the coordinator: a TCP proxy that can close, reset, refuse or swallow."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Weather = Literal["fair", "refused", "black hole"]
_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER so that closing sends RST."""


@dataclass(eq=False)
class _Line:
    """One connection through the cable."""

    near: asyncio.StreamWriter
    far: asyncio.StreamWriter
    lost_bytes: int = 0

    def end(self, *, reset: bool) -> None:
        for writer in (self.near, self.far):
            transport = writer.transport
            if reset and not transport.is_closing():
                peer: socket.socket = transport.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                transport.abort()
            else:
                writer.close()


@dataclass(eq=False)
class Cable:
    """What a party dials; see `Cables` for how to use it."""

    target: int
    weather: Weather = "fair"
    lines: set[_Line] = field(default_factory=set)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.weather == "refused":
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("localhost", self.target)
        except OSError:  # the coordinator is down
            writer.transport.abort()
            return
        line = _Line(writer, far_writer)
        self.lines.add(line)
        pumps = {
            asyncio.ensure_future(self._pump(line, reader, far_writer)),
            asyncio.ensure_future(self._pump(line, far_reader, writer)),
        }
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.lines.discard(line)
            line.end(reset=False)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, line: _Line, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if self.weather == "black hole":
                    line.lost_bytes += len(data)
                    continue
                sink.write(data)
                await sink.drain()

    def cut(self, *, reset: bool) -> None:
        for line in list(self.lines):
            line.end(reset=reset)

    def clear_up(self) -> None:
        """The hole is gone: what lost bytes in it is of no use any more, as a router that forgot it would say."""
        self.weather = "fair"
        for line in [line for line in self.lines if line.lost_bytes]:
            line.end(reset=True)


class Cables:
    """A cable per party, on a thread of their own, while it is entered."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cables", daemon=True)
        self._servers: list[asyncio.Server] = []

    def lay(self, target: int) -> tuple[Cable, int]:
        """A cable to the port ``target`` of this machine, and the port where it begins."""
        cable = Cable(target)

        async def listen() -> int:
            self._servers.append(await asyncio.start_server(cable.carry, "127.0.0.1", 0))
            return int(self._servers[-1].sockets[0].getsockname()[1])

        return cable, asyncio.run_coroutine_threadsafe(listen(), self._loop).result()

    def do(self, change: Callable[[], None]) -> None:
        """Have a cable changed on the thread that all of them are on."""
        self._loop.call_soon_threadsafe(change)

    def __enter__(self) -> Cables:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        async def shut() -> None:
            for server in self._servers:
                server.close()
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for work in rest:
                work.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(shut(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
