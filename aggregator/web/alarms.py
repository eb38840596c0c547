"""Alarms, and what they have raised."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from aggregator.alarms.answers import AlarmsAnswer
from aggregator.alarms.standing import all_alarms
from aggregator.web.operations import Content, Operation, as_json
from aggregator.web.service_context import Service


@Operation(
    method="GET",
    path="/v1/alarms",
    summary="How all alarms stand, and what they have raised.",
    answers={200: Content("Every alarm of the definitions.", AlarmsAnswer)},
    problems=(503,),
)
async def alarms(service: Service, request: Request) -> Response:
    """Answer with all alarms."""
    return as_json(await service.compute(lambda: all_alarms(service.reader)))


OPERATIONS = (alarms,)
