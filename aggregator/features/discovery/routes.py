"""The HTTP operations of searches for frequent strings."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from aggregator.features.discovery.searches import (
    DiscoveryProgress,
    Searches,
    StringsQuestion,
    TooManySearchesError,
)
from aggregator.reading.discovered_strings import DiscoveryAnswer
from aggregator.reading.query import Query
from aggregator.web.http.problem_responses import invalid_as_problem, unavailable
from aggregator.web.operations import Content, Operation, Service, as_json, as_table
from aggregator.web.query_parameters import Beta, Duration, Format, Time, moment, parse
from producers.gateway.problems import Problem
from producers.gateway.rate_limits import client_of


class WindowOfStrings(msgspec.Struct, kw_only=True, frozen=True):
    """The window of a search for strings: by default, all closed panes."""

    start: Time | None = msgspec.field(name="from", default=None)
    end: Time | None = msgspec.field(name="to", default=None)
    window: Duration | None = None
    beta: Beta = 0.05

    def question(self, service: Service, name: str) -> StringsQuestion:
        """Return the question; raise ValueError if the metric or the window cannot be used."""
        start, end = moment("from", self.start), moment("to", self.end)
        query = Query(start, end, window=self.window)
        return StringsQuestion(*service.reader.describe_closed(name, query), self.beta)


class DiscoveryParameters(WindowOfStrings, kw_only=True, frozen=True):
    """The selection of strings, and whether to search for them."""

    format: Format = "json"
    search: Annotated[
        bool,
        Meta(
            description="false: only what was found last (202 and `not_searched` if nothing was "
            "searched); a search starts only if a pane was closed since, at most every ten minutes."
        ),
    ] = True


@Operation(
    path="/v1/metrics/{name}/discoveries",
    summary="The frequent strings of a metric with `discover = true`; ask again after a 202.",
    query=DiscoveryParameters,
    answers={
        200: Content("The strings, the most frequent first.", DiscoveryAnswer, is_table=True),
        202: Content("The search has begun or continues: its progress.", DiscoveryProgress),
    },
)
async def discover(service: Service, request: Request) -> Response:
    """Answer with the strings, or with the progress of the search."""
    name = service.metric_name(request)
    parameters = parse(request, DiscoveryParameters)

    def look() -> DiscoveryAnswer | DiscoveryProgress:
        client, should_search = client_of(request.scope), parameters.search
        with invalid_as_problem():
            question = parameters.question(service, name)
            return _searches(service).result_or_start(question, client, search=should_search)

    try:
        answer = await service.estimates.run(request, look)
    except TooManySearchesError as error:
        raise unavailable(str(error), "try again later, or run another `dither serve`") from None
    if isinstance(answer, DiscoveryProgress):
        return as_json(answer, 202, {"Retry-After": "1", "Cache-Control": "no-store"})
    uncached = {"Cache-Control": "no-cache"}
    if parameters.format == "csv":
        return as_table(answer.to_frame(), f"{name}-discoveries", uncached)
    return as_json(answer, headers=uncached)


@Operation(
    method="DELETE",
    path="/v1/metrics/{name}/discoveries",
    summary="Cancel a search for frequent strings.",
    query=WindowOfStrings,
    answers={200: Content("The progress of the cancelled search.", DiscoveryProgress)},
)
async def cancel_discovery(service: Service, request: Request) -> Response:
    """Cancel a search, and answer with its progress."""
    name = service.metric_name(request)
    parameters = parse(request, WindowOfStrings)

    def cancel() -> DiscoveryProgress | None:
        with invalid_as_problem():
            return _searches(service).cancel(parameters.question(service, name))

    progress = await service.estimates.run(request, cancel)
    if progress is None:
        remedy = "GET with the same parameters begins one, or has its answer"
        raise Problem(404, f"no such search of {name!r} is under way", remedy)
    return as_json(progress)


HTTP_OPERATIONS = (discover, cancel_discovery)


def _searches(service: Service) -> Searches:
    return service.shared(Searches, lambda: Searches(service.reader.read))
