"""For machines that watch the server: Prometheus, and an orchestrator."""

from __future__ import annotations

import msgspec
from prometheus_client.exposition import choose_encoder
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from aggregator.web.failures import unavailable
from aggregator.web.operations import Content, Operation, as_json
from aggregator.web.service import Service


class Alive(msgspec.Struct, frozen=True):
    """The process answers."""

    status: str = "alive"


class Ready(msgspec.Struct, frozen=True):
    """Redis answers, and so many partitions are counted."""

    partitions: int
    status: str = "ready"


@Operation(
    method="GET",
    path="/metrics",
    summary="Prometheus metrics, in its text format or OpenMetrics.",
    answers={
        200: Content(
            "Everything declared in docs/metrics.md.",
            media=("text/plain", "application/openmetrics-text"),
        )
    },
    problems=(503,),
)
async def metrics(service: Service, request: Request) -> Response:
    """Answer in Prometheus or OpenMetrics text, as the scraper asks for."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    body = await run_in_threadpool(encode, service.exported)
    return Response(body, media_type=content_type)


@Operation(
    method="GET",
    path="/healthz",
    summary="Whether the process is alive.",
    scopes=(),
    answers={200: Content("It is.", Alive)},
)
async def healthz(_: Service, __: Request) -> Response:
    """Say that the process is alive."""
    return as_json(Alive())


@Operation(
    method="GET",
    path="/readyz",
    summary="Whether Redis answers and a worker has taken up at least one partition.",
    scopes=(),
    answers={200: Content("Both are so.", Ready)},
    problems=(503,),
)
async def readyz(service: Service, _: Request) -> Response:
    """Say whether Redis answers and a worker has taken up at least one partition."""
    partitions = await run_in_threadpool(service.reader.store.partitions)
    if not partitions:
        raise unavailable("nothing was counted yet", "start `dither aggregate`")
    return as_json(Ready(len(partitions)))


OPERATIONS = (metrics, healthz, readyz)
