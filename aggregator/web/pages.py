"""The pages for people."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Route


async def _index(_: Request) -> PlainTextResponse:
    return PlainTextResponse("Dither: see /v1/metrics, /metrics and /openapi.json\n")


def routes() -> list[BaseRoute]:
    """Return the pages' routes."""
    return [Route("/", _index)]
