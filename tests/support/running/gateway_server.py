"""A gateway behind a real HTTP server, in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from producers.gateway import Gateway, problems


@contextlib.contextmanager
def serving(
    gateway: Gateway, beside: Sequence[BaseRoute] = (), *, behind_proxy: bool = False
) -> Iterator[str]:
    """Serve a gateway and whatever else, and return the address to post to."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with gateway:
            yield

    handlers: Any = {problems.Problem: problems.answer}
    app = Starlette(
        routes=[*gateway.routes, *beside], lifespan=lifespan, exception_handlers=handlers
    )
    config = uvicorn.Config(
        app, port=0, log_level="error", timeout_graceful_shutdown=10, proxy_headers=behind_proxy
    )
    started = threading.Event()

    class Announced(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started.set()

    server = Announced(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), name="http")
    thread.start()
    try:
        assert started.wait(30)
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        yield f"http://{host}:{port}/v1/reports"
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
