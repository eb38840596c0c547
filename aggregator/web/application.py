"""The web application: its routes and its middleware."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import anyio.to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from aggregator.config import web_settings
from aggregator.config.settings import Serve, Settings
from aggregator.feature import features
from aggregator.kafka.log_ends import Ends
from aggregator.reading.reader import MetricReader
from aggregator.web import documents, events, pages, probes, questions
from aggregator.web.events import Abortable
from aggregator.web.http.access import AccessControl, Guard
from aggregator.web.http.hosts import ExpectedHosts
from aggregator.web.http.middleware import AddressLimit, BodyLimit, ProtectiveHeaders, UnreadLimit
from aggregator.web.http.problem_responses import HANDLERS
from aggregator.web.http.small_posts import SmallPosts
from aggregator.web.http.tracing import TraceRequests
from aggregator.web.http.traffic import CountTraffic
from aggregator.web.operations import Operation
from aggregator.web.reports import BATCHES, REPORTS
from aggregator.web.service_context import Service

if TYPE_CHECKING:
    from starlette.types import Lifespan

    from aggregator.monitoring.otlp.sender import OtlpSender
    from aggregator.monitoring.otlp.tracing import Tracing
    from aggregator.publishing.publisher import Publisher
    from producers.gateway import Gateway

PREFLIGHT_SECONDS = 600


def core_and_features() -> list[Operation]:
    """Return the operations of the core and of all features."""
    of_features = [operation for feature in features() for operation in feature.routes()]
    core = (*questions.OPERATIONS, *events.OPERATIONS, *probes.OPERATIONS, *documents.OPERATIONS)
    return [*core, *of_features]


def application(
    reader: MetricReader,
    settings: Settings,
    *,
    gateway: Gateway | None = None,
    publisher: Publisher | None = None,
    ends: Ends | None = None,
    tracing: Tracing | None = None,
) -> Starlette:
    """Return the application that serves a reader's estimates.

    Parameters
    ----------
    reader : MetricReader
    settings : Settings
    gateway : Gateway, optional
        Started and closed with the application.
    publisher : Publisher, optional
        Likewise.
    ends : Ends, optional
        What to ask where the log ends; the settings' Kafka if left out.
    tracing : Tracing, optional
        Sends spans of requests; stopped with the application.
    """
    operations = [*core_and_features(), *([] if gateway is None else [REPORTS, BATCHES])]
    posts = None if gateway is None else gateway.check_kafka
    stalled = None if gateway is None else lambda: gateway.stalled
    unpublished = None if publisher is None else publisher.obstacles
    service = Service(reader, settings, ends, posts, stalled, unpublished)
    routes: list[BaseRoute] = [] if gateway is None else [*gateway.routes]  # the busiest first
    routes += [o.route(service) for o in operations if o.handler is not None]
    routes += pages.routes()
    scopes = {(o.method, o.path): o.scopes for o in operations}
    guard = Guard(settings.access)
    sender = _sender(service)
    most = max(settings.serve.max_request_bytes, settings.gateway.max_body if gateway else 0)
    middleware = [
        *_proxies(settings.serve),
        Middleware(CountTraffic, traffic=service.traffic),
        *_traced(tracing),
        Middleware(Abortable),
        Middleware(ProtectiveHeaders),
        Middleware(AddressLimit),
        Middleware(ExpectedHosts, serve=settings.serve),
        *_cors(settings.serve),
        Middleware(
            AccessControl,
            guard=guard,
            routes=routes,
            scopes=scopes,
            origins=settings.serve.cors_origins,
        ),
        Middleware(UnreadLimit),
        Middleware(BodyLimit, most=most),
    ]
    app = Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers=HANDLERS,
        lifespan=_lifespan(service, gateway, publisher, sender, tracing),
    )
    app.state.operations = operations
    app.state.small_posts = gateway and SmallPosts(
        gateway, guard, service.traffic, settings.serve, REPORTS.scopes, _proxies(settings.serve)
    )
    app.router.redirect_slashes = False
    return app


def _sender(service: Service) -> OtlpSender | None:
    """Return what sends metrics to a collector, if one is configured."""
    if not service.settings.otlp.endpoint:
        return None
    from aggregator.monitoring.otlp.sender import OtlpSender

    sender = OtlpSender(service.settings, service.exported.collect)
    service.exported.register(sender)
    return sender


def _traced(tracing: Tracing | None) -> list[Middleware]:
    if tracing is None:
        return []
    return [
        Middleware(TraceRequests, tracing=tracing, untraced=frozenset({REPORTS.path, BATCHES.path}))
    ]


def _proxies(serve: Serve) -> list[Middleware]:
    """Return what takes a client's address and scheme from proxies that are trusted, if any are."""
    found = web_settings.networks(serve.trusted_proxies)
    if not found:
        return []
    mapped = [  # as a socket that takes both IPv4 and IPv6 tells it
        f"::ffff:{network.network_address}/{96 + network.prefixlen}"
        for network in found
        if network.version == 4
    ]
    trusted = [*(str(network) for network in found), *mapped]
    return [Middleware(ProxyHeadersMiddleware, trusted_hosts=trusted)]


def _cors(serve: Serve) -> list[Middleware]:
    """Return what lets pages of other origins ask, if any may."""
    if not serve.cors_origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=serve.cors_origins,
            allow_methods=["DELETE", "GET", "POST", "PUT"],
            allow_headers=["Authorization", "Content-Type", "If-None-Match", "Last-Event-ID"],
            expose_headers=["ETag", "Retry-After", "WWW-Authenticate"],
            max_age=PREFLIGHT_SECONDS,
        )
    ]


def _lifespan(
    service: Service,
    gateway: Gateway | None,
    publisher: Publisher | None,
    sender: OtlpSender | None,
    tracing: Tracing | None,
) -> Lifespan[Starlette]:
    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            if gateway is not None:
                await stack.enter_async_context(gateway)
            if tracing is not None:
                stack.push_async_callback(anyio.to_thread.run_sync, tracing.stop)
            stack.push_async_callback(service.hub.close)
            stack.push_async_callback(anyio.to_thread.run_sync, service.close)
            if publisher is not None:
                publisher.start()
                stack.push_async_callback(anyio.to_thread.run_sync, publisher.stop)
            if sender is not None:
                sender.start()
                stack.push_async_callback(anyio.to_thread.run_sync, sender.stop)
            yield

    return lifespan
