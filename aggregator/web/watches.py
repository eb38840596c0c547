"""Comparisons of slices, windows and metrics, and alarms."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from aggregator.alarms.answers import AlarmsAnswer
from aggregator.alarms.frames import alarms_frame
from aggregator.alarms.standing import all_alarms
from aggregator.errors import UnknownComparison
from aggregator.reading.comparisons.answers import ComparisonsAnswer, comparison_answer
from aggregator.reading.comparisons.compared import CompareQuery, comparison_frame
from aggregator.reading.comparisons.living import LivingAnswer, LivingAnswers, living_answer
from aggregator.reading.grouping import Grouping
from aggregator.reading.steps import COMPARED, check_slices
from aggregator.web.http.pools import still_wanted
from aggregator.web.http.problem_responses import asking
from aggregator.web.operations import Content, Operation, as_json, as_table
from aggregator.web.queries import AlarmsParameters, CompareParameters, LivingParameters, parse
from aggregator.web.service_context import Service
from producers.gateway.problems import Problem


@Operation(
    method="GET",
    path="/v1/compare",
    summary="Compare two slices, a slice and the rest, two windows, or two metrics.",
    query=CompareParameters,
    answers={
        200: Content(
            "The comparison; with `by`, one for each slice.", ComparisonsAnswer, is_table=True
        )
    },
    problems=(400, 404, 429, 503),
)
async def compare(service: Service, request: Request) -> Response:
    """Answer with a comparison."""
    reader = service.reader
    with asking():
        parameters = parse(request, CompareParameters)
        query = CompareQuery.of_options(**parameters.fields())
        metric = reader.metric(parameters.metric)
        labels, _ = metric.domain.select(query.a.categories)
        slices = 1
        if query.a.by and (grouping := Grouping.of(metric, query.a)) is not None:
            slices = min(grouping.size, query.a.top or grouping.size)
        check_slices(metric, slices, len(labels), COMPARED)

    def compute() -> Response:
        with asking():
            found = reader.compare_all(parameters.metric, query, still_wanted)
        if parameters.format == "csv":
            return as_table(comparison_frame(found), f"{parameters.metric}-comparison")
        return as_json(ComparisonsAnswer(comparisons=[comparison_answer(one) for one in found]))

    return await service.surveys.run(request, compute)


@Operation(
    method="GET",
    path="/v1/comparisons",
    summary="How all comparisons of the definitions stand.",
    query=LivingParameters,
    answers={200: Content("Every comparison of the definitions.", LivingAnswers, is_table=True)},
    problems=(400, 429, 503),
)
async def comparisons(service: Service, request: Request) -> Response:
    """Answer with all comparisons of the definitions."""
    with asking():
        parameters = parse(request, LivingParameters)

    def compute() -> Response:
        found = service.reader.comparisons(each=parameters.each, progress=still_wanted)
        if parameters.format == "csv":
            return as_table(comparison_frame(found), "comparisons")
        return as_json(LivingAnswers(comparisons=[living_answer(one) for one in found]))

    return await service.surveys.run(request, compute)


@Operation(
    method="GET",
    path="/v1/comparisons/{comparison}",
    summary="How a comparison of the definitions stands, and how it stood before.",
    query=LivingParameters,
    answers={200: Content("The comparison.", LivingAnswer, is_table=True)},
    problems=(400, 404, 429, 503),
)
async def comparison(service: Service, request: Request) -> Response:
    """Answer with a comparison of the definitions."""
    with asking():
        parameters = parse(request, LivingParameters)
    name = request.path_params["comparison"]

    def compute() -> Response:
        try:
            found = service.reader.comparison(name, each=parameters.each)
        except UnknownComparison as error:
            remedy = "GET /v1/comparisons lists the comparisons of the definitions"
            raise Problem(404, str(error), remedy) from None
        if parameters.format == "csv":
            return as_table(found.to_frame(), f"{name}-comparison")
        return as_json(living_answer(found, history=True))

    return await service.surveys.run(request, compute)


@Operation(
    method="GET",
    path="/v1/alarms",
    summary="How all alarms stand, and what they have raised.",
    query=AlarmsParameters,
    answers={200: Content("Every alarm of the definitions.", AlarmsAnswer, is_table=True)},
    problems=(400, 429, 503),
)
async def alarms(service: Service, request: Request) -> Response:
    """Answer with all alarms."""
    with asking():
        parameters = parse(request, AlarmsParameters)

    def compute() -> Response:
        found = all_alarms(service.reader)
        if parameters.format == "csv":
            return as_table(alarms_frame(found), "alarms")
        return as_json(found)

    return await service.estimates.run(request, compute)


OPERATIONS = (compare, comparisons, comparison, alarms)
