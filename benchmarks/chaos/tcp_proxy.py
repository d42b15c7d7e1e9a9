"""A TCP proxy between one party and the coordinator: it can close, reset or refuse connections, or swallow bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Mode = Literal["forward", "refused", "black hole"]
_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER so that closing sends RST."""


@dataclass(eq=False)
class _Connection:
    """One connection through the proxy."""

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
class Proxy:
    """The proxy that one party connects to; `Proxies` opens and runs them."""

    target: int
    mode: Mode = "forward"
    connections: set[_Connection] = field(default_factory=set)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mode == "refused":
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("localhost", self.target)
        except OSError:  # the coordinator is down
            writer.transport.abort()
            return
        connection = _Connection(writer, far_writer)
        self.connections.add(connection)
        pumps = {
            asyncio.ensure_future(self._pump(connection, reader, far_writer)),
            asyncio.ensure_future(self._pump(connection, far_reader, writer)),
        }
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.connections.discard(connection)
            connection.end(reset=False)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, connection: _Connection, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if self.mode == "black hole":
                    connection.lost_bytes += len(data)
                    continue
                sink.write(data)
                await sink.drain()

    def cut(self, *, reset: bool) -> None:
        for connection in list(self.connections):
            connection.end(reset=reset)

    def mend(self) -> None:
        """Forward again, and reset the connections that lost bytes, as a router that forgot them would."""
        self.mode = "forward"
        for connection in [connection for connection in self.connections if connection.lost_bytes]:
            connection.end(reset=True)


class Proxies:
    """One proxy per party; all of them run on a thread of their own while this context is entered."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._servers: list[asyncio.Server] = []

    def open(self, target: int) -> tuple[Proxy, int]:
        """A proxy to the port ``target`` of this machine, and the port that it listens on."""
        proxy = Proxy(target)

        async def listen() -> int:
            self._servers.append(await asyncio.start_server(proxy.carry, "127.0.0.1", 0))
            return int(self._servers[-1].sockets[0].getsockname()[1])

        return proxy, asyncio.run_coroutine_threadsafe(listen(), self._loop).result()

    def do(self, change: Callable[[], None]) -> None:
        """Call ``change`` on the thread that runs the proxies."""
        self._loop.call_soon_threadsafe(change)

    def __enter__(self) -> Proxies:
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
