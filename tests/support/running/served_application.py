"""The whole application of `dither serve` in a thread, on the loop and protocol of the command."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any

import uvicorn
import uvloop
from starlette.applications import Starlette

from aggregator.web.http.small_posts import PostProtocol


@contextlib.contextmanager
def served(
    config: uvicorn.Config, run: Callable[[Coroutine[Any, Any, None]], None]
) -> Iterator[int]:
    """Run a configured server in a thread, on the event loop of `run`; yield its port."""
    started = threading.Event()

    class Announced(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started.set()

    server = Announced(config)
    thread = threading.Thread(target=lambda: run(server.serve()), name="http")
    thread.start()
    try:
        assert started.wait(90)
        yield int(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(90)
        assert not thread.is_alive()


@contextlib.contextmanager
def served_application(app: Starlette) -> Iterator[int]:
    """Serve an application; yield its port."""
    config = uvicorn.Config(
        app,
        port=0,
        http=PostProtocol,
        ws="none",
        log_level="error",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=10,
    )
    with served(config, uvloop.run) as port:
        yield port


@contextlib.contextmanager
def served_plainly(app: Any, **options: Any) -> Iterator[str]:
    """Serve any application, with options of uvicorn; yield its address."""
    usual: dict[str, Any] = {"log_level": "error", "timeout_graceful_shutdown": 10}
    with served(uvicorn.Config(app, port=0, **usual, **options), asyncio.run) as port:
        yield f"http://127.0.0.1:{port}"


class Answer:
    """A response as it was read from the socket."""

    def __init__(self, head: bytes, body: bytes) -> None:
        status, *lines = head.decode("latin-1").split("\r\n")
        self.status, self.body = int(status.split()[1]), body
        pairs = (line.partition(": ") for line in lines)
        self.headers = {name.lower(): value for name, _, value in pairs}


class Raw:
    """A connection that sends the given bytes unchanged."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=90)
        self._left = b""

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> bytes:
        """Return the next bytes; none when the other side has closed."""
        try:
            return self.socket.recv(65536)
        except ConnectionError:
            return b""

    def answer(self) -> Answer:
        """Return the next response, which has a Content-Length."""
        while b"\r\n\r\n" not in self._left:
            more = self.read()
            assert more, f"closed after {self._left!r}"
            self._left += more
        head, _, rest = self._left.partition(b"\r\n\r\n")
        found = Answer(head, b"")
        size = int(found.headers["content-length"])
        while len(rest) < size:
            more = self.read()
            assert more, "closed within a body"
            rest += more
        found.body, self._left = rest[:size], rest[size:]
        return found


def post(body: bytes, path: str = "/v1/reports", **headers: str) -> bytes:
    """Return a post of a protobuf body as bytes; header names have underscores for hyphens."""
    given: Mapping[str, str] = {
        "Host": "localhost",
        "Content-Type": "application/x-protobuf",
        "Content-Length": str(len(body)),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body
