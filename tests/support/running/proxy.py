"""A network for tests: TCP connections that can be cut, refused, delayed or silenced."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

T = TypeVar("T")

CHUNK_BYTES = 65_536
CHUNKS_UNDER_WAY = 64
Line = asyncio.Queue[tuple[float, bytes]]
"""What is under way in one direction, and when it arrives."""
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for 0 seconds; closing then sends a reset."""


class Proxy:
    """Passes the connections to a loopback port on to another one, well or badly.

    Parameters
    ----------
    network : Network
    port : int
        The port to which clients connect.
    target : callable
        Returns, for each new connection, the port to which it is passed on.

    Attributes
    ----------
    distance : float
        The delay in each direction, in seconds; `heal` does not change it.
    delay : float
        A further delay, until `heal`.
    """

    def __init__(self, network: Network, port: int, target: Callable[[], int]) -> None:
        self.port, self.target = port, target
        self.distance = self.delay = 0.0
        self._network = network
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._passes = {"requests": asyncio.Event(), "replies": asyncio.Event()}
        self.heal()

    def heal(self) -> None:
        """Pass everything on without delay again, and what was held back."""
        self.delay = 0.0
        self._network.run(self._heal())

    def cut(self) -> None:
        """Reset every connection; new ones are accepted."""
        self._network.run(self._cut())

    def refuse(self) -> None:
        """Reset every connection, and refuse new ones until `heal`."""
        self._network.run(self.close())

    def silence(self, *directions: str) -> None:
        """Pass nothing on until `heal`; the connections stay open.

        Parameters
        ----------
        *directions : str
            ``"requests"`` or ``"replies"``; both if none is given.
        """
        for direction in directions or self._passes:
            self._network.loop.call_soon_threadsafe(self._passes[direction].clear)

    async def _heal(self) -> None:
        for passes in self._passes.values():
            passes.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)

    async def finish(self) -> None:
        """Abort every connection, in the network's thread."""
        for task in self._tasks:
            task.cancel()
        await self._cut()

    async def _cut(self) -> None:
        for writer in list(self._writers):
            carrier = writer.get_extra_info("socket")
            if carrier is not None:
                with contextlib.suppress(OSError):
                    carrier.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()

    async def close(self) -> None:
        """Do what `refuse` does, in the network's thread."""
        server, self._server = self._server, None
        if server is not None:
            for listening in server.sockets:  # asyncio loses what it accepts while a server closes
                self._network.loop.remove_reader(listening.fileno())
            await asyncio.sleep(0)
            server.close()
        await self._cut()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)  # at once: a task may be cancelled before it begins
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                there = await asyncio.open_connection("127.0.0.1", self.target())
                self._writers.add(there[1])
                try:
                    ways = (("requests", reader, there[1]), ("replies", there[0], writer))
                    lines: list[Line] = [asyncio.Queue(CHUNKS_UNDER_WAY) for _ in ways]
                    tasks = [
                        asyncio.create_task(self._deliver(direction, line, writer))
                        for (direction, _, writer), line in zip(ways, lines, strict=True)
                    ]
                    tasks += [
                        asyncio.create_task(self._take(reader, line))
                        for (_, reader, _), line in zip(ways, lines, strict=True)
                    ]
                    await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
                finally:
                    self._writers.discard(there[1])
                    there[1].transport.abort()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _take(self, reader: asyncio.StreamReader, line: Line) -> None:
        """Put what arrives on the line; empty bytes mark the end."""
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await line.put((self._network.loop.time() + self.distance + self.delay, data))
        await line.put((0.0, b""))

    async def _deliver(self, direction: str, line: Line, writer: asyncio.StreamWriter) -> None:
        """Pass on what is under way, each piece when it is due."""
        while True:
            due, data = await line.get()
            if not data:
                return
            await asyncio.sleep(max(0.0, due - self._network.loop.time()))
            await self._passes[direction].wait()
            writer.write(data)
            await writer.drain()


class LoopThread:
    """An event loop in a thread of its own; as a context manager, it ends with its connections."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, job: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread, wait for it and return its result."""
        return asyncio.run_coroutine_threadsafe(job, self.loop).result(timeout=60)

    async def finish(self) -> None:
        """Abort every connection, in the thread."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.finish())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()


class Network(LoopThread):
    """Proxies, all served by one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.proxies: list[Proxy] = []

    def proxy(self, port: int, target: Callable[[], int]) -> Proxy:
        """Return a new proxy that listens."""
        self.proxies.append(Proxy(self, port, target))
        return self.proxies[-1]

    async def finish(self) -> None:
        for proxy in self.proxies:
            await proxy.close()
        mine = asyncio.current_task()
        while others := asyncio.all_tasks() - {mine}:  # some may be accepting a connection
            for proxy in self.proxies:
                await proxy.finish()
            await asyncio.wait(others)
        for proxy in self.proxies:
            await proxy.finish()
