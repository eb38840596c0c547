"""Routes of metrics: definitions, estimates, series, and weights."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection
from typing import Annotated

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from aggregator.reading import serialization, steps
from aggregator.reading.frames.estimates import estimate_frame
from aggregator.reading.grouping import Grouping
from aggregator.reading.plans import LocalPlan
from aggregator.reading.query import Query, SeriesQuery
from aggregator.reading.serialization import Answer, Definition
from aggregator.reading.series import Series
from aggregator.reading.slices.estimates import SlicesAnswer, slices_answer
from aggregator.web.http.pools import stop_if_abandoned
from aggregator.web.http.problem_responses import invalid_as_problem
from aggregator.web.operations import (
    JSON_TYPE,
    Content,
    Operation,
    Service,
    as_json,
    as_json_unless_known,
    as_table,
    not_modified,
    validators,
)
from aggregator.web.query_parameters import EstimateParameters, SeriesParameters, parse
from estimators import weights
from estimators.central import release_weights
from estimators.errors import meant
from producers.gateway.problems import Problem
from producers.wire.decoding import decode_json

log = structlog.get_logger()


class Definitions(msgspec.Struct, frozen=True):
    """All metrics, in the order of the file; `definitions_hash` differs after a change of them."""

    metrics: list[Definition]
    definitions_hash: str


WEIGHT_POLICIES = dict.fromkeys(
    itertools.chain(weights.WEIGHTINGS, *release_weights.RELEASE_WEIGHTINGS.values())
)
"""All policies, including those of releases; a metric's definition names those that apply."""


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The weight policy of privacy levels, from the next read on."""

    policy: Annotated[str, msgspec.Meta(extra_json_schema={"enum": [*WEIGHT_POLICIES]})]


@Operation(
    path="/v1/metrics",
    summary="All metrics: everything a device needs to randomize.",
    scopes=("read", "report"),
    answers={200: Content("The definitions.", Definitions)},
    conditional=True,
    problems=(429, 503),
)
async def list_metrics(service: Service, request: Request) -> Response:
    """Answer with the definitions of all metrics."""

    def read() -> Response:
        policies = service.reader.store.registry.policies()
        # Read first: the next status shows a later change.
        definitions_hash = service.definitions_hash()
        tag = validators(definitions_hash, sorted(policies.items()))
        if (unchanged := not_modified(request, tag)) is not None:
            return unchanged
        definitions = [
            serialization.definition(metric, policies.get(name))
            for name, metric in service.reader.metrics.items()
        ]
        return as_json(Definitions(definitions, definitions_hash), headers=tag)

    return await service.lookups.run(request, read)


@Operation(
    path="/v1/metrics/{name}",
    summary="A metric's definition: everything a device needs to randomize.",
    scopes=("read", "report"),
    answers={200: Content("The definition.", Definition)},
    conditional=True,
    problems=(404, 429, 503),
)
async def show_metric(service: Service, request: Request) -> Response:
    """Answer with a metric's definition."""
    name = service.metric_name(request)

    def read() -> Response:
        policy = service.reader.store.registry.policies().get(name)
        return as_json_unless_known(request, _definition(service, name, policy))

    return await service.lookups.run(request, read)


@Operation(
    path="/v1/metrics/{name}/estimate",
    summary="A metric's estimate and its confidence bounds over a window of event time.",
    query=EstimateParameters,
    answers={
        200: Content(
            "The answer; its status says how reliable it is. With `by`, one for each slice.",
            Answer,
            or_schema=SlicesAnswer,
            is_table=True,
        )
    },
    conditional=True,
)
async def estimate(service: Service, request: Request) -> Response:
    """Answer with an estimate."""
    name, reader = service.metric_name(request), service.reader
    with invalid_as_problem():
        parameters = parse(request, EstimateParameters)
        query = Query(**parameters.fields())
        metric = reader.metric(name)

    def is_light() -> bool:
        shares = metric.share_names if query.categories is None and not query.by else ()
        with invalid_as_problem():
            labels = (*metric.domain.select(query.categories)[0], *shares)
            work = metric.domain.work_of(labels)
            if query.by and (grouping := Grouping.of(metric, query)) is not None:
                steps.check_slices(metric, min(grouping.size, query.top or grouping.size), work)
            else:
                steps.check_shown(min(len(labels), query.top or len(labels)))
                if query.categories is not None:
                    steps.check_work(metric, work)
        cost = steps.numbers_per_estimate(metric, work)
        return not query.is_sliced and cost <= steps.MAX_QUICK_NUMBERS

    def compute() -> Response:
        with invalid_as_problem():
            described = reader.describe(reader.progress(name), name, query)
        tag = validators(described.version, query, parameters.format)
        if (unchanged := not_modified(request, tag)) is not None:
            return unchanged
        window, is_table = reader.read(described), parameters.format == "csv"
        with invalid_as_problem():
            if query.by:
                (slices,) = LocalPlan.answer_slices([window], query, stop_if_abandoned)
                if is_table:
                    return as_table(slices.to_frame(), f"{name}-slices", tag)
                return as_json(slices_answer(slices), headers=tag)
            answer = reader.cached_answer(window, query)
        if is_table:
            return as_table(estimate_frame(window, answer, query.top), f"{name}-estimate", tag)
        return as_json(serialization.answer(window, answer, query.top), headers=tag)

    response = await service.estimates.run(request, lambda: compute() if is_light() else None)
    return await service.surveys.run(request, compute) if response is None else response


@Operation(
    path="/v1/metrics/{name}/series",
    summary="A metric over time: an estimate for each step of event time, at most 1,000.",
    query=SeriesParameters,
    answers={200: Content("The points, the oldest first.", Series, is_table=True)},
    conditional=True,
)
async def series(service: Service, request: Request) -> Response:
    """Answer with a series."""
    name = service.metric_name(request)
    with invalid_as_problem():
        parameters = parse(request, SeriesParameters)
        query = SeriesQuery(metric=name, **parameters.fields())
        if query.top is None and query.categories is None:
            query = dataclasses.replace(query, top=service.settings.serve.top_categories)

    def compute() -> Response:
        with invalid_as_problem():
            plan = service.reader.plan_series(query)
        tag = validators(plan.version, query, parameters.format)
        if (unchanged := not_modified(request, tag)) is not None:
            return unchanged
        with invalid_as_problem():
            answers = service.reader.read_series(plan, stop_if_abandoned)
        if parameters.format == "csv":
            return as_table(answers.to_frame(), f"{name}-series", tag)
        return as_json(answers, headers=tag)

    return await service.surveys.run(request, compute)


@Operation(
    method="PUT",
    path="/v1/metrics/{name}/weights",
    summary="Set the policy of a metric's weights, in force from the next read on.",
    scopes=("admin",),
    body=Content("The policy.", Weights),
    answers={200: Content("The definition, with the policy now in force.", Definition)},
    problems=(400, 404, 408, 413, 415, 429, 503),
)
async def set_weights(service: Service, request: Request) -> Response:
    """Set the policy of a metric's weights, and answer with its definition."""
    name = service.metric_name(request)
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != JSON_TYPE:
        detail = f"Content-Type {media!r}: expected {JSON_TYPE}"
        raise Problem(415, detail, f"send the header Content-Type: {JSON_TYPE}")
    with invalid_as_problem():
        policy = _policy(await request.body(), service.reader.metric(name).policies)
    await service.lookups.run(request, service.reader.store.registry.set_policy, name, policy)
    caller = request.scope.get("dither.caller")
    log.info("weights", metric=name, policy=policy, token=caller.name if caller else "")
    service.hub.wake()
    return as_json(_definition(service, name, policy))


def _policy(body: bytes, policies: Collection[str]) -> str:
    """Return the policy that a body names; raise ValueError if it is not one of `policies`."""
    try:
        policy = decode_json(body, Weights).policy
    except ValueError as error:
        why = str(error).replace("`", "").replace(" - at $.", " at ")
        raise ValueError(f'body: {why}: expected JSON such as {{"policy": "optimal"}}') from None
    if policy not in policies:
        raise ValueError(f"policy {policy!r}: {meant(policy, policies)}")
    return policy


def _definition(service: Service, name: str, policy: str | None) -> Definition:
    return serialization.definition(service.reader.metric(name), policy)


METRIC_OPERATIONS = (list_metrics, show_metric, estimate, series, set_weights)
