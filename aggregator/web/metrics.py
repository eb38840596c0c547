"""Questions about metrics: their definitions and their estimates."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from aggregator import answers
from aggregator.answers import Answer, Definition
from aggregator.web.failures import asking
from aggregator.web.operations import Content, Operation, as_json
from aggregator.web.queries import EstimateQuery, moment, parse
from aggregator.web.service import Service
from estimators.weights import DEFAULT_POLICY


class Definitions(msgspec.Struct, frozen=True):
    """All metrics, in the order of their definitions."""

    metrics: list[Definition]


@Operation(
    method="GET",
    path="/v1/metrics",
    summary="All metrics: everything a device needs to randomize.",
    scopes=("read", "report"),
    answers={200: Content("The definitions.", Definitions)},
    problems=(503,),
)
async def list_metrics(service: Service, _: Request) -> Response:
    """Answer with the definitions of all metrics."""
    policies = await service.compute(service.reader.store.policies)
    found = [
        answers.definition(metric, policies.get(name, DEFAULT_POLICY))
        for name, metric in service.reader.metrics.items()
    ]
    return as_json(Definitions(found))


@Operation(
    method="GET",
    path="/v1/metrics/{name}",
    summary="A metric's definition: everything a device needs to randomize.",
    scopes=("read", "report"),
    answers={200: Content("The definition.", Definition)},
    problems=(404, 503),
)
async def show_metric(service: Service, request: Request) -> Response:
    """Answer with a metric's definition."""
    metric = service.reader.metric(request.path_params["name"])
    policies = await service.compute(service.reader.store.policies)
    return as_json(answers.definition(metric, policies.get(metric.name, DEFAULT_POLICY)))


@Operation(
    method="GET",
    path="/v1/metrics/{name}/estimate",
    summary="A metric's estimate and its confidence bounds over a window of event time.",
    query=EstimateQuery,
    answers={200: Content("The answer; its status says how far it can be relied on.", Answer)},
    problems=(400, 404, 503),
)
async def estimate(service: Service, request: Request) -> Response:
    """Answer with an estimate."""
    name = service.reader.metric(request.path_params["name"]).name
    with asking():
        query = parse(request, EstimateQuery)
        start, end = moment("from", query.start), moment("to", query.end)

    def compute() -> Any:
        with asking():
            window = service.reader.window(name, start, end)
            found = service.reader.answer(
                window,
                query.beta,
                query.weights,
                query.bound,
                query.target,
                categories=query.category or None,
                simultaneous=not query.pointwise,
            )
        return answers.answer(window, found, query.top)

    return as_json(await service.compute(compute))


OPERATIONS = (list_metrics, show_metric, estimate)
