"""The definition that a browser receives, and the files of the modules that it loads."""

from importlib import resources
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from aggregator.reading import serialization
from aggregator.web.pages import RANDOMIZER_FILES
from estimators import Metric


def definition(metric: Metric) -> dict[str, Any]:
    """Return the answer to `GET /v1/metrics/NAME`."""
    found: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(serialization.definition(metric))
    )
    return found


def page_routes() -> list[Route]:
    """Return the routes of an empty page, and of the modules that it may load."""

    async def page(_: Request) -> Response:
        return HTMLResponse("<!doctype html><title>device</title>")

    async def script(request: Request) -> Response:
        return Response(module(request.url.path), media_type="text/javascript")

    return [Route("/", page), *(Route(f"/static/{name}", script) for name in RANDOMIZER_FILES)]


def module(address: str) -> str:
    """Return the file of the browser's randomizers with which an address ends."""
    found = [name for name in RANDOMIZER_FILES if address.endswith(f"/{name}")]
    assert found, address
    name = max(found, key=len)
    return resources.files("producers").joinpath("browser", name).read_text(encoding="utf-8")
