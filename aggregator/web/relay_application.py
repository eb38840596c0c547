"""The web application of a relay, and the pages of its health port."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from prometheus_client import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.config.live_metrics import unusable
from aggregator.config.settings import Settings
from aggregator.errors import UnknownMetric
from aggregator.health_port import Page
from aggregator.monitoring import metric_definitions, relay_metrics
from aggregator.monitoring.collector import DITHER_VERSION
from aggregator.monitoring.families import Collected, Families
from aggregator.reading import serialization
from aggregator.web.http.access import Guard
from aggregator.web.http.hosts import ExpectedHosts, cors_middleware, proxy_middleware
from aggregator.web.http.middleware import AddressLimit, BodyLimit, ProtectiveHeaders, UnreadLimit
from aggregator.web.http.problem_responses import EXCEPTION_HANDLERS
from aggregator.web.http.small_posts import SmallPosts
from aggregator.web.http.traffic import CountTraffic, Traffic
from aggregator.web.operations import as_json, as_json_unless_known, not_modified, validators
from estimators import Metric
from estimators.errors import meant
from producers.relay.intake import MAX_BODY, SEALED_PATH, CrowdRelay


def relay_application(relay: CrowdRelay, settings: Settings, traffic: Traffic) -> Starlette:
    """Return the application that devices reach, without a token.

    `relay`: the relay, which the application starts and closes; `settings`: the settings of the
    deployment; `traffic`: counts the application's answers.
    """
    encoded: dict[str, tuple[Metric, msgspec.Raw, Mapping[str, str]]] = {}

    async def show_metric(request: Request) -> Response:
        name = request.path_params["name"]
        metric = relay.metrics.get(name)
        if metric is None:
            raise UnknownMetric(name, meant(name, relay.metrics))
        if name not in encoded or encoded[name][0] is not metric:
            data = msgspec.json.encode(serialization.definition(metric, None))
            encoded[name] = metric, msgspec.Raw(data), validators(data)
        _, definition, tag = encoded[name]
        return not_modified(request, tag) or as_json(definition, headers=tag)

    async def show_key(request: Request) -> Response:
        return as_json_unless_known(request, {"key": relay.public_key.hex()})

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with relay:
            yield

    app = Starlette(
        routes=[
            *relay.routes,
            Route("/v1/metrics/{name}", show_metric),
            Route("/v1/key", show_key),
        ],
        middleware=[
            *proxy_middleware(settings.serve),
            Middleware(CountTraffic, traffic=traffic),
            Middleware(ProtectiveHeaders),
            Middleware(AddressLimit),
            Middleware(ExpectedHosts, serve=settings.serve),
            *cors_middleware(settings.serve),
            Middleware(UnreadLimit),
            Middleware(BodyLimit, max_bytes=MAX_BODY),
        ],
        exception_handlers=EXCEPTION_HANDLERS,
        lifespan=lifespan,
    )
    app.state.small_posts = SmallPosts(
        relay, Guard(settings.access), traffic, settings.serve, (), proxy_middleware(settings.serve)
    )
    app.router.redirect_slashes = False
    return app


def relay_pages(relay: CrowdRelay, traffic: Traffic) -> Mapping[str, Callable[[], Page]]:
    """Return the pages of a relay's health port, by path."""

    def metrics() -> Page:
        families = Collected(relay_families(relay, traffic))
        return Page(200, generate_latest(families), CONTENT_TYPE_LATEST)

    return {"/readyz": lambda: readiness(relay), "/metrics": metrics}


def readiness(relay: CrowdRelay) -> Page:
    """Return a page: whether the relay accepts reports, and if so, what else is wrong."""
    if relay.obstacle:
        return Page(503, f"{relay.obstacle}: posts are refused\n".encode())
    forwarder = relay.forwarder
    folder, crowds = forwarder.folder, forwarder.folder.parts().values()
    warnings = [forwarder.failure, forwarder.unshuffled, folder.damaged, unusable(relay.metrics)]
    if overdue := sum(crowd.is_overdue(relay.now_ms()) for crowd in crowds):
        warnings.append(f"{overdue} parts of crowds will soon be too late for the service")
    return Page(200, "\n".join(["ready", *filter(None, warnings), ""]).encode())


def relay_families(relay: CrowdRelay, traffic: Traffic) -> list[Family]:
    """Return the metric families of a relay."""
    folder, now_ms = relay.forwarder.folder, relay.now_ms()
    parts = folder.parts().values()
    samples: dict[metric_definitions.Exported, Mapping[Any, float]] = {
        relay_metrics.RELAY_REPORTS: folder.reports,
        relay_metrics.RELAY_REFUSED: {
            str(status): count
            for (route, status), count in list(traffic.statuses.items())
            if route == SEALED_PATH and status >= HTTPStatus.BAD_REQUEST
        },
        relay_metrics.RELAY_WAITING: relay.waiting,
        relay_metrics.RELAY_CROWDS: folder.crowds,
        relay_metrics.RELAY_PARTS: Counter(part.label.metric for part in parts),
        relay_metrics.RELAY_OVERDUE_PARTS: {(): sum(p.is_overdue(now_ms) for p in parts)},
        metric_definitions.DEFINITIONS_UNUSABLE: {(): int(bool(unusable(relay.metrics)))},
        metric_definitions.BUILD_INFO: {DITHER_VERSION: 1},
    }
    families = Families()
    for exported, values in samples.items():
        for labels, value in sorted(values.items()):
            families.put(exported, value, *([labels] if isinstance(labels, str) else labels))
    return [*families.filled(), *traffic.collect()]
