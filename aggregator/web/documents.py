"""Routes of the OpenAPI and AsyncAPI documents."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from aggregator.web import asyncapi, openapi
from aggregator.web.operations import Content, Operation, Service, as_json

DOCUMENT_CONTENT = Content("The document.", plain={"type": "object"})


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


DOCUMENT_OPERATIONS = (openapi_json, asyncapi_json)
