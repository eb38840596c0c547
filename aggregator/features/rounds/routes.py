"""The HTTP operation of rounds."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from aggregator.features.rounds.plan import SearchPlan
from aggregator.web.http.problem_responses import invalid_as_problem, unavailable
from aggregator.web.operations import Content, Operation, Service, as_json_unless_known
from estimators import SearchMetric
from producers.device.rounds import Round


@Operation(
    path="/v1/metrics/{name}/round",
    summary="The open round of a minimum or maximum: what devices answer.",
    scopes=("read", "report"),
    answers={200: Content("The round; its threshold is null once all are decided.", Round)},
    conditional=True,
)
async def show_round(service: Service, request: Request) -> Response:
    """Answer with the open or last round."""
    name, reader = service.metric_name(request), service.reader
    with invalid_as_problem():
        search = SearchMetric.require(reader.metric(name))
    rounds = await service.lookups.run(request, reader.store.registry.rounds)
    opened = SearchPlan(reader.sums, search).open_round(rounds)
    if opened is None:
        raise unavailable(f"no round of {name!r} was opened yet", "`dither coordinate` opens it")
    return as_json_unless_known(request, opened)


HTTP_OPERATIONS = (show_round,)
