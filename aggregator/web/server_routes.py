"""Routes about the server: metrics, liveness, readiness, and the documents of its interfaces."""

from __future__ import annotations

import time

import msgspec
import redis
from msgspec import UNSET, UnsetType
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from aggregator.errors import StateUnreadable
from aggregator.monitoring.families import Encode, text_of
from aggregator.reading import status
from aggregator.storage.progress import TopicProgress
from aggregator.web import asyncapi, openapi
from aggregator.web.http.problem_responses import as_problem, unavailable
from aggregator.web.operations import Content, Operation, Service, as_json
from producers.gateway.problems import Problem

DOCUMENT_CONTENT = Content("The document.", plain={"type": "object"})


class Alive(msgspec.Struct, frozen=True):
    """The process answers."""

    status: str = "alive"


class Ready(msgspec.Struct, frozen=True):
    """Whether the server can do the work for which it is configured.

    `partitions` is the number of partitions that were ever counted, if Redis was asked. `warnings`
    say what else does not answer, since when no worker counts, which partitions nobody counts,
    what keeps this server from publishing, which stored values are missing, or that changed
    definitions cannot be used.
    """

    status: str = "ready"
    partitions: int | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET


@Operation(
    path="/metrics",
    summary="Prometheus metrics, in its text format or OpenMetrics.",
    answers={
        200: Content(
            "Everything declared in docs/metrics.md.",
            media=("text/plain", "application/openmetrics-text"),
        )
    },
    problems=(421, 429, 503),
)
async def metrics(service: Service, request: Request) -> Response:
    """Answer in Prometheus or OpenMetrics text, as requested."""
    serve = service.settings.serve
    if serve.workers > 1 and (request.scope.get("server") or ("", 0))[1] == serve.port:
        first_port, last_port = serve.worker_port, serve.worker_port + serve.workers - 1
        ports = f"{first_port} to {last_port}" if first_port else "from [serve] worker_port on"
        raise Problem(
            421,
            f"port {serve.port} is shared by {serve.workers} processes, each with metrics of its "
            "own: a scrape would reach any one of them",
            f"scrape each process at its own port, {ports}",
        )
    encode, content_type = _encoder(request.headers.get("accept", ""))
    body = await service.probes.run(request, text_of, service.exported, encode, content_type)
    return Response(body, media_type=content_type)


def _encoder(accept: str) -> tuple[Encode, str]:
    """Return the encoder for the format that a scraper accepts, and its content type."""
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):  # the version is not a number
        return choose_encoder("")


@Operation(
    path="/healthz",
    summary="Whether the process is alive.",
    scopes=(),
    answers={200: Content("It is.", Alive)},
    problems=(),
)
async def healthz(_: Service, __: Request) -> Response:
    """Answer that the process is alive."""
    return as_json(Alive())


@Operation(
    path="/readyz",
    summary="Whether this server is ready. Accepting reports needs Kafka. Showing estimates needs "
    "Redis and a first commit. A server that does both is ready while one of them works.",
    scopes=(),
    answers={200: Content("Ready; warnings say what else is wrong.", Ready)},
    problems=(429, 503),
)
async def readyz(service: Service, request: Request) -> Response:
    """Answer whether this server can do its work, with warnings."""
    partitions: int | UnsetType = UNSET
    overview: TopicProgress | None = None
    warnings, failures = list[str](), list[Problem]()
    gateway = service.gateway
    if gateway is not None and (why := await gateway.check_kafka()):
        failures.append(unavailable(f"{why}: posts are refused", "check the brokers and the log"))
    elif gateway is not None and (why := gateway.stalled):
        warnings.append(why)
    if service.needs_redis:
        try:
            overview = await service.lookups.run(request, service.reader.store.overview)
            partitions = len(overview.partitions) + len(overview.unreadable)
            if not partitions:
                raise unavailable("nothing was counted yet", "start `dither aggregate`")
            evicts = await service.lookups.run(request, service.eviction)
            warnings += [evicts] * bool(evicts)
        except (Problem, redis.RedisError, StateUnreadable) as error:
            failures.append(as_problem(error))
        else:
            now_ms, silent_ms = time.time_ns() // 10**6, service.silent_ms
            silent = status.silence_text(overview, now_ms, silent_ms)
            warnings += [f"{silent}: {status.START_WORKERS}"] * bool(silent)
            unowned = [] if silent else status.uncounted_partitions(overview, now_ms, silent_ms)
            if unowned:
                warnings.append(f"no worker counts partitions {unowned}, see /v1/status")
            halted = [n for n, partition in overview.partitions.items() if partition.is_halted]
            warnings += [f"halted partitions, see /v1/status: {halted}"] * bool(halted)
            warnings += await service.lookups.run(request, service.reader.sums.missing_panes)
            warnings += await service.lookups.run(request, _publishing_obstacles, service)
    if len(failures) == (gateway is not None) + service.needs_redis:
        if len(failures) == 1:
            raise failures[0]
        details = "; ".join(problem.detail for problem in failures)
        raise unavailable(details, "; ".join(problem.remedy for problem in failures))
    warnings += [problem.detail for problem in failures]
    warnings += status.unusable_definitions(service.reader.metrics, overview)
    return as_json(Ready(partitions=partitions, warnings=warnings or UNSET))


def _publishing_obstacles(service: Service) -> list[str]:
    """Return what keeps this server from publishing, as public sentences."""
    if service.publisher is None:
        return []
    obstacles = service.publisher.obstacles()
    try:
        failed = service.reader.store.registry.failed_searches()
    except StateUnreadable as error:
        return [*obstacles, str(error)]
    return obstacles + [
        f"{panes} final events of {name} wait for a search of strings that failed"
        for name, panes in failed.items()
        if panes
    ]


@Operation(
    path="/openapi.json",
    summary="This interface, as OpenAPI 3.1.",
    scopes=(),
    answers={200: DOCUMENT_CONTENT},
    problems=(429, 503),
)
async def openapi_json(service: Service, request: Request) -> Response:
    """Answer with the OpenAPI document."""
    operations, metrics = request.app.state.operations, service.reader.metrics
    return await service.probes.run(request, lambda: as_json(openapi.document(operations, metrics)))


@Operation(
    path="/asyncapi.json",
    summary="What is in the Kafka topics, as AsyncAPI 3.",
    scopes=(),
    answers={200: DOCUMENT_CONTENT},
    problems=(429, 503),
)
async def asyncapi_json(service: Service, request: Request) -> Response:
    """Answer with the AsyncAPI document."""
    return await service.probes.run(request, lambda: as_json(asyncapi.document(service.settings)))


SERVER_OPERATIONS = (metrics, healthz, readyz, openapi_json, asyncapi_json)
