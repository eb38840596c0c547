"""A gateway behind a real HTTP server, in a thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from producers.gateway import Gateway, problems
from tests.support.running.served_application import served


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
    with served(config, asyncio.run) as port:
        yield f"http://127.0.0.1:{port}/v1/reports"
