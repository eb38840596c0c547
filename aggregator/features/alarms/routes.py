"""The HTTP operation of alarms."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from aggregator.features.alarms.alarm_answers import AlarmsAnswer, alarms_frame, all_alarms
from aggregator.web.operations import Content, Operation, Service, as_json, as_table
from aggregator.web.query_parameters import Format, parse


class AlarmsParameters(msgspec.Struct, kw_only=True, frozen=True):
    """Query parameters of alarms."""

    format: Format = "json"


@Operation(
    path="/v1/alarms",
    summary="The state of all alarms, and the latest moves that raised one.",
    query=AlarmsParameters,
    answers={200: Content("Every alarm of the definitions.", AlarmsAnswer, is_table=True)},
    problems=(400, 429, 503),
)
async def alarms(service: Service, request: Request) -> Response:
    """Answer with all alarms."""
    parameters = parse(request, AlarmsParameters)

    def compute() -> Response:
        answer = all_alarms(service.reader)
        if parameters.format == "csv":
            return as_table(alarms_frame(answer), "alarms")
        return as_json(answer)

    return await service.estimates.run(request, compute)


HTTP_OPERATIONS = (alarms,)
