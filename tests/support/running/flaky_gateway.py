"""An unreliable connection to a gateway: a TCP proxy that parses HTTP.

It cuts requests and answers, delays them, posts requests twice, sends answers twice, and answers
429 and 503 itself.
"""

import asyncio
import contextlib
import email.utils
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

from tests.support.running.proxy import LoopThread

HARMLESS = "pass"
FAULTS = (
    *("cut_request", "cut_answer", "half_answer", "delay", "post_twice", "answer_twice"),
    *("too_many", "unavailable", "unavailable_until", "login_page"),
)
SECONDS = 0.02
"""How long a request is delayed."""


def drawn(seed: int, share: float) -> Callable[[], str]:
    """Return a function that draws faults for a share of the requests, with a seed."""
    source = random.Random(seed)
    return lambda: source.choice(FAULTS) if source.random() < share else HARMLESS


def listed(faults: Sequence[str]) -> Callable[[], str]:
    """Return a function that gives these faults in order, and no fault after them."""
    left = iter(faults)
    return lambda: next(left, HARMLESS)


class FlakyGateway(LoopThread):
    """An HTTP proxy before a gateway, in a thread of its own, that makes faults.

    Parameters
    ----------
    port : int
        The port of the gateway.
    fault : callable
        Returns the fault of the next post; other requests are passed on.

    Attributes
    ----------
    done : Counter
        How often each fault occurred.
    """

    def __init__(self, port: int, fault: Callable[[], str] = lambda: HARMLESS) -> None:
        super().__init__()
        self._port, self.fault = port, fault
        self.done: Counter[str] = Counter()
        self._server = self.run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        host, port = self._server.sockets[0].getsockname()[:2]
        self.url = f"http://{host}:{port}"

    async def finish(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while await self._serve_one(reader, writer):
                    await writer.drain()
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; return whether the connection stays open."""
        request = await _message(reader)
        fault = self.fault() if request.startswith(b"POST") else HARMLESS
        self.done[fault] += 1
        if fault == "cut_request":
            return False
        if answer := _canned(fault):
            writer.write(answer)
            return True
        if fault == "delay":
            await asyncio.sleep(SECONDS)
        answer = await self._passed_on(request)
        if fault == "post_twice":
            answer = await self._passed_on(request)
        if fault == "cut_answer":
            return False
        if fault == "half_answer":
            writer.write(answer[: len(answer) // 2])
            return False
        writer.write(answer * 2 if fault == "answer_twice" else answer)
        return True

    async def _passed_on(self, request: bytes) -> bytes:
        """Return the gateway's answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(request)
            return await _message(reader)
        finally:
            writer.close()


def _canned(fault: str) -> bytes:
    """Return what it answers itself; nothing, if the gateway answers."""
    date = email.utils.formatdate(time.time() + 1, usegmt=True)
    answers = {
        "too_many": ("429 Too Many Requests\r\nRetry-After: 1", ""),
        "unavailable": ("503 Service Unavailable", ""),
        "unavailable_until": (f"503 Service Unavailable\r\nRetry-After: {date}", ""),
        "login_page": ("200 OK\r\nContent-Type: text/html", "Log in"),
    }
    if fault not in answers:
        return b""
    head, body = answers[fault]
    return f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Read a request or an answer with its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return head + await reader.readexactly(length)
