"""The documents that describe the interfaces to programs."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from aggregator.web import asyncapi
from aggregator.web.operations import Content, Operation, as_json
from aggregator.web.service import Service


@Operation(
    method="GET",
    path="/asyncapi.json",
    summary="What is in the Kafka topics, as AsyncAPI 3.",
    scopes=(),
    answers={200: Content("The document.")},
)
async def asyncapi_json(service: Service, _: Request) -> Response:
    """Answer with the AsyncAPI document."""
    return as_json(asyncapi.document(service.settings))


OPERATIONS = (asyncapi_json,)
