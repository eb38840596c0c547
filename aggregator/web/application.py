"""The web application: routes, and what every request passes through."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from aggregator.reader import Reader
from aggregator.settings import Settings
from aggregator.web import documents, metrics, pages, probes
from aggregator.web.failures import HANDLERS
from aggregator.web.service import Service

if TYPE_CHECKING:
    from starlette.types import Lifespan

OPERATIONS = (*metrics.OPERATIONS, *probes.OPERATIONS, *documents.OPERATIONS)


def application(reader: Reader, settings: Settings, *, gateway: Any = None) -> Starlette:
    """Return the application that serves a reader's estimates.

    Parameters
    ----------
    reader : Reader
    settings : Settings
    gateway : Gateway, optional
        Where devices report: an asynchronous context manager with `routes`.
    """
    service = Service(reader, settings)
    routes: list[BaseRoute] = [operation.route(service) for operation in OPERATIONS]
    if gateway is not None:
        routes += gateway.routes
    routes += pages.routes()
    return Starlette(
        routes=routes, exception_handlers=HANDLERS, lifespan=_lifespan(service, gateway)
    )


def _lifespan(service: Service, gateway: Any) -> Lifespan[Starlette]:
    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            if gateway is not None:
                await stack.enter_async_context(gateway)
            yield

    return lifespan
