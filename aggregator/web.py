"""The HTTP server's application: metrics for Prometheus, health for an orchestrator."""

from __future__ import annotations

import redis
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator.exporter import Exporter
from aggregator.reader import Reader
from aggregator.traffic import CountTraffic, Traffic

RETRY_SECONDS = 5


def application(reader: Reader, top_categories: int) -> Starlette:
    """Return the application that serves a reader's estimates."""
    registry = CollectorRegistry()
    registry.register(Exporter(reader, top_categories))
    traffic = Traffic()
    registry.register(traffic)

    async def metrics(request: Request) -> Response:
        """Answer in Prometheus or OpenMetrics text, as the scraper asks for."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        try:
            body = await run_in_threadpool(encode, registry)
        except redis.RedisError as error:
            return _unavailable(f"Redis does not answer: {error}")
        return Response(body, media_type=content_type)

    async def healthz(_: Request) -> Response:
        """Say that the process is alive."""
        return JSONResponse({"status": "alive"})

    async def readyz(_: Request) -> Response:
        """Say whether Redis answers and a worker has taken up at least one partition."""
        try:
            partitions = await run_in_threadpool(reader.store.partitions)
        except redis.RedisError as error:
            return _unavailable(f"Redis does not answer: {error}")
        if not partitions:
            return _unavailable("nothing was counted yet: start `dither aggregate`")
        return JSONResponse({"status": "ready", "partitions": len(partitions)})

    routes = [Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz)]
    return Starlette(routes=routes, middleware=[Middleware(CountTraffic, traffic)])


def _unavailable(reason: str) -> JSONResponse:
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return JSONResponse({"status": "not ready", "reason": reason}, 503, headers)
