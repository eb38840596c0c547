"""The web application: the routes of its operations and of the gateway, and its middleware."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import anyio.to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from aggregator.config.settings import Settings
from aggregator.feature import features
from aggregator.kafka.log_ends import Ends
from aggregator.monitoring.tracing_setup import server_instance
from aggregator.reading.reader import MetricReader
from aggregator.web import pages
from aggregator.web.event_routes import EVENT_OPERATIONS, Abortable
from aggregator.web.http.access import AccessControl, Guard
from aggregator.web.http.hosts import ExpectedHosts, cors_middleware, proxy_middleware
from aggregator.web.http.middleware import AddressLimit, BodyLimit, ProtectiveHeaders, UnreadLimit
from aggregator.web.http.problem_responses import EXCEPTION_HANDLERS
from aggregator.web.http.small_posts import SmallPosts
from aggregator.web.http.traffic import CountTraffic, TraceRequests
from aggregator.web.metric_routes import METRIC_OPERATIONS
from aggregator.web.operations import Operation, Service
from aggregator.web.report_routes import GATEWAY_OPERATIONS, POST_REPORTS, CrowdCounts
from aggregator.web.server_routes import SERVER_OPERATIONS
from producers.gateway.crowds import CROWDS_PATH, MAX_CROWD_BODY

if TYPE_CHECKING:
    from aggregator.monitoring.otlp.sender import OtlpSender
    from aggregator.monitoring.otlp.tracing import Tracing
    from aggregator.publishing.publisher import Publisher
    from producers.gateway import Gateway


def core_and_features() -> list[Operation]:
    """Return the HTTP operations of the core and of all features."""
    of_features = [operation for feature in features() for operation in feature.routes()]
    return [*METRIC_OPERATIONS, *EVENT_OPERATIONS, *SERVER_OPERATIONS, *of_features]


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

    `reader`: reads the sums in Redis; `settings`: the settings of the deployment; `gateway`,
    `publisher`, optional: the application starts and closes them; `ends`: a function that returns
    where the logs end; by default the publisher's, or else its own; `tracing`, optional: sends the
    spans of requests; it is stopped with the application.
    """
    operations = [*core_and_features(), *(() if gateway is None else GATEWAY_OPERATIONS)]
    ends = publisher.ends if ends is None and publisher is not None else ends
    counts = () if gateway is None else (CrowdCounts(gateway.crowds.counts),)
    service = Service(reader, settings, ends, gateway, publisher, counts)
    routes: list[BaseRoute] = [] if gateway is None else [*gateway.routes]  # the busiest first
    routes += [o.route(service) for o in operations if o.handler is not None]
    routes += pages.routes()
    scopes = {(o.method, o.path): o.scopes for o in operations}
    untraced = frozenset(operation.path for operation in GATEWAY_OPERATIONS)
    tracers = () if tracing is None else (Middleware(TraceRequests, tracing, untraced),)
    guard, proxies = Guard(settings.access), proxy_middleware(settings.serve)
    max_bytes = max(settings.serve.max_request_bytes, settings.gateway.max_body if gateway else 0)
    middleware = [
        *proxies,
        Middleware(CountTraffic, traffic=service.traffic),
        *tracers,
        Middleware(Abortable),
        Middleware(ProtectiveHeaders),
        Middleware(AddressLimit),
        Middleware(ExpectedHosts, serve=settings.serve),
        *cors_middleware(settings.serve),
        Middleware(AccessControl, guard, routes, scopes, settings.serve.cors_origins),
        Middleware(UnreadLimit),
        Middleware(BodyLimit, max_bytes=max_bytes, by_path={CROWDS_PATH: MAX_CROWD_BODY}),
    ]
    app = Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers=EXCEPTION_HANDLERS,
        lifespan=functools.partial(_running, service, _metrics_sender(service), tracing),
    )
    app.state.operations = operations
    app.state.small_posts = gateway and SmallPosts(
        gateway, guard, service.traffic, settings.serve, POST_REPORTS.scopes, proxies
    )
    app.router.redirect_slashes = False
    return app


def _metrics_sender(service: Service) -> OtlpSender | None:
    """Return a sender of metrics; None if no collector is configured."""
    settings = service.settings
    if not settings.otlp.endpoint:
        return None
    from aggregator.monitoring.otlp.sender import OtlpSender

    sender = OtlpSender(settings, server_instance(settings), service.exported.collect)
    service.exported.register(sender)
    return sender


@contextlib.asynccontextmanager
async def _running(
    service: Service, sender: OtlpSender | None, tracing: Tracing | None, _: Starlette
) -> AsyncIterator[None]:
    """Start what serves the application, and close it at the end."""
    async with contextlib.AsyncExitStack() as stack:
        if service.gateway is not None:
            await stack.enter_async_context(service.gateway)
        if tracing is not None:
            stack.push_async_callback(anyio.to_thread.run_sync, tracing.stop)
        stack.push_async_callback(service.hub.close)
        stack.push_async_callback(anyio.to_thread.run_sync, service.close)
        for thread in (service.publisher, sender):
            if thread is not None:
                thread.start()
                stack.push_async_callback(anyio.to_thread.run_sync, thread.stop)
        yield
