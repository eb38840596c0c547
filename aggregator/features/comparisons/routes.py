"""The HTTP operations of comparisons: those that a request asks for, and the living ones."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from aggregator.errors import UnknownComparison
from aggregator.features.comparisons.arms import compare_all
from aggregator.features.comparisons.changes import Changes, Period
from aggregator.features.comparisons.comparison_answers import ComparisonsAnswer, comparisons_answer
from aggregator.features.comparisons.definitions import REST_SLICE
from aggregator.features.comparisons.living import (
    LivingAnswer,
    LivingAnswers,
    all_comparisons,
    definition_of,
    living,
    living_answer,
)
from aggregator.features.comparisons.query import CompareQuery, comparison_frame
from aggregator.reading.grouping import Grouping
from aggregator.reading.query import conditions
from aggregator.reading.steps import ESTIMATES_PER_COMPARISON, check_slices
from aggregator.web.http.pools import stop_if_abandoned
from aggregator.web.http.problem_responses import invalid_as_problem
from aggregator.web.operations import Content, Operation, Service, as_json, as_table
from aggregator.web.query_parameters import (
    Format,
    Policy,
    Time,
    Where,
    WindowParameters,
    moment,
    parse,
)
from producers.gateway.problems import Problem

Below = Annotated[
    list[float],
    Meta(
        max_length=100,
        description="Of a distribution: the shares below these edges instead of quantiles; may be "
        "repeated.",
    ),
]
Each = Annotated[bool, Meta(description="Give both arms bounds, which share beta, too.")]


class CompareParameters(WindowParameters, kw_only=True, frozen=True):
    """Query parameters of a comparison of two arms."""

    format: Format = "json"
    metric: Annotated[str, Meta(max_length=64)]
    against: Annotated[
        Where,
        Meta(description="The second slice, as in country=FR, or the word rest (by default)."),
    ] = msgspec.field(default_factory=list)
    against_start: Time | None = msgspec.field(name="against-from", default=None)
    against_end: Time | None = msgspec.field(name="against-to", default=None)
    other: Annotated[str, Meta(max_length=64)] | None = msgspec.field(
        name="against-metric", default=None
    )
    of: Literal["difference", "ratio"] = "difference"
    bound: Literal["auto", "fixed", "anytime"] = "auto"
    target: Literal["population", "sample"] = "population"
    weights: Policy | Literal["standard"] | None = None  # type: ignore[assignment]
    split: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    independent: bool | None = None
    below: Below = msgspec.field(default_factory=list)
    each: Each = False

    def fields(self) -> dict[str, Any]:
        """Return the arguments of :meth:`CompareQuery.of_options`."""
        options = super().fields()
        options.pop("metric")
        options["against_start"] = moment("against-from", self.against_start)
        options["against_end"] = moment("against-to", self.against_end)
        is_rest = self.against in ([], [REST_SLICE])
        options["against"] = REST_SLICE if is_rest else conditions(self.against)
        return options


class ChangeParameters(msgspec.Struct, kw_only=True, frozen=True):
    """The period that is compared with the period before it."""

    period: (
        Annotated[
            Period,
            Meta(
                description="Compare the last closed panes of this duration with as many before "
                "them; by default the longest that the metric has twice. With trusted collection, "
                "compare the latest release with the release this duration before it."
            ),
        ]
        | None
    ) = None


class LivingParameters(msgspec.Struct, kw_only=True, frozen=True):
    """Query parameters of a comparison of the definitions."""

    format: Format = "json"
    each: Each = False


@Operation(
    path="/v1/compare",
    summary="Compare two slices, a slice and the rest, two windows, or two metrics.",
    query=CompareParameters,
    answers={
        200: Content(
            "The comparison; with `by`, one for each slice.", ComparisonsAnswer, is_table=True
        )
    },
)
async def compare(service: Service, request: Request) -> Response:
    """Answer with a comparison."""
    reader = service.reader
    with invalid_as_problem():
        parameters = parse(request, CompareParameters)
        query = CompareQuery.of_options(**parameters.fields())
        metric = reader.metric(parameters.metric)

    def check_size() -> None:
        with invalid_as_problem():
            labels, _ = metric.domain.select(query.a.categories)
            slices = 1
            if query.a.by and (grouping := Grouping.of(metric, query.a)) is not None:
                slices = min(grouping.size, query.a.top or grouping.size)
            check_slices(metric, slices, metric.domain.work_of(labels), ESTIMATES_PER_COMPARISON)

    def compute() -> Response:
        with invalid_as_problem():
            comparisons = compare_all(reader, parameters.metric, query, stop_if_abandoned)
        if parameters.format == "csv":
            return as_table(comparison_frame(comparisons), f"{parameters.metric}-comparison")
        return as_json(comparisons_answer(comparisons))

    await service.estimates.run(request, check_size)
    return await service.surveys.run(request, compute)


@Operation(
    path="/v1/metrics/{name}/change",
    summary="Compare a metric's last period with the one before it.",
    query=ChangeParameters,
    answers={
        200: Content(
            "The comparison, and one of the definition's shares among; none while no pane is "
            "closed. The bounds hold together with those of all other metrics and periods.",
            ComparisonsAnswer,
        )
    },
)
async def change(service: Service, request: Request) -> Response:
    """Answer with a metric's change against the period before."""
    name, reader = service.metric_name(request), service.reader
    period = parse(request, ChangeParameters).period

    def compute() -> Response:
        with invalid_as_problem():
            changes = service.shared(Changes, lambda: Changes(reader)).read(name, period)
        return as_json(comparisons_answer(changes))

    return await service.surveys.run(request, compute)


@Operation(
    path="/v1/comparisons",
    summary="The state of all comparisons of the definitions.",
    query=LivingParameters,
    answers={200: Content("Every comparison of the definitions.", LivingAnswers, is_table=True)},
    problems=(400, 429, 503),
)
async def comparisons(service: Service, request: Request) -> Response:
    """Answer with all comparisons of the definitions."""
    parameters = parse(request, LivingParameters)

    def compute() -> Response:
        all_living = all_comparisons(
            service.reader, with_arm_bounds=parameters.each, progress=stop_if_abandoned
        )
        if parameters.format == "csv":
            return as_table(comparison_frame(all_living), "comparisons")
        return as_json(LivingAnswers(comparisons=[*map(living_answer, all_living)]))

    return await service.surveys.run(request, compute)


@Operation(
    path="/v1/comparisons/{comparison}",
    summary="The state of a comparison of the definitions, now and before.",
    query=LivingParameters,
    answers={200: Content("The comparison.", LivingAnswer, is_table=True)},
)
async def comparison(service: Service, request: Request) -> Response:
    """Answer with a comparison of the definitions."""
    parameters = parse(request, LivingParameters)
    name = request.path_params["comparison"]

    def compute() -> Response:
        try:
            definition = definition_of(service.reader.metrics, name)
            living_comparison = living(service.reader, definition, with_arm_bounds=parameters.each)
        except UnknownComparison as error:
            remedy = "GET /v1/comparisons lists the comparisons of the definitions"
            raise Problem(404, str(error), remedy) from None
        if parameters.format == "csv":
            return as_table(living_comparison.to_frame(), f"{name}-comparison")
        return as_json(living_answer(living_comparison, history=True))

    return await service.surveys.run(request, compute)


HTTP_OPERATIONS = (change, compare, comparisons, comparison)
