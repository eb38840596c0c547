"""A client that reads slowly has its whole answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvicorn

from aggregator.web.http import connection_limits

BODY = bytes(1_000_000)
BUFFER_BYTES = 16_384


async def app(scope: object, receive: object, send: Callable[..., object]) -> None:
    length = (b"content-length", b"%d" % len(BODY))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})  # type: ignore[misc]
    await send({"type": "http.response.body", "body": BODY})  # type: ignore[misc]


def test_a_client_that_reads_all_the_time_has_its_whole_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_limits, "UNREAD_SECONDS", 0.4)
    monkeypatch.setattr(connection_limits, "HEAD_SECONDS", 0.4)

    async def run() -> int:
        config = uvicorn.Config(
            app,
            lifespan="off",
            http=connection_limits.PunctualProtocol,
            log_level="critical",
        )
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as client:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, listening.getsockname())
            await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            read = 0
            while read < len(BODY) and (data := await loop.sock_recv(client, 25_000)):
                read += len(data)
                await asyncio.sleep(0.02)
            server.should_exit = True
            await serving
            return read

    assert asyncio.run(run()) > len(BODY)
