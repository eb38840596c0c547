"""A gateway behind a real HTTP server, in a thread."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from producers.gateway import Gateway
from tests.support.running.served_application import served_plainly


@contextlib.contextmanager
def serving(
    gateway: Gateway, beside: Sequence[BaseRoute] = (), *, behind_proxy: bool = False
) -> Iterator[str]:
    """Serve a gateway and the routes of `beside`, and yield the address to post to."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with gateway:
            yield

    app = Starlette(routes=[*gateway.routes, *beside], lifespan=lifespan)
    with served_plainly(app, proxy_headers=behind_proxy) as url:
        yield f"{url}/v1/reports"
