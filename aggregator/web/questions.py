"""Routes of metrics: definitions, estimates, series, discoveries, and weights."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection
from typing import Annotated, Any

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from aggregator.reading import serialization
from aggregator.reading.discovery.answers import DiscoveryAnswer
from aggregator.reading.discovery.searches import DiscoveryProgress, TooManySearchesError
from aggregator.reading.frames.estimates import estimate_frame
from aggregator.reading.grouping import Grouping
from aggregator.reading.plans import SearchPlan
from aggregator.reading.query import Query, SeriesQuery
from aggregator.reading.serialization import Answer, Definition
from aggregator.reading.series import Series
from aggregator.reading.slices.answers import SlicesAnswer, slices_answer
from aggregator.reading.steps import LIGHT, check_shown, check_slices, estimated
from aggregator.web import conditional
from aggregator.web.http.pools import still_wanted
from aggregator.web.http.problem_responses import asking, unavailable
from aggregator.web.operations import JSON, Content, Operation, as_json, as_table
from aggregator.web.queries import DiscoveryParameters, EstimateParameters, SeriesParameters, parse
from aggregator.web.service_context import Service
from estimators import SearchMetric, weights
from estimators.central import release_weights
from estimators.errors import meant
from producers.device.rounds import Round
from producers.gateway.clients import client_of
from producers.gateway.problems import Problem
from producers.wire.decoding import decode_json

log = structlog.get_logger()


class Definitions(msgspec.Struct, frozen=True):
    """All metrics, in the order of their definitions; `definitions_hash` as in the status."""

    metrics: list[Definition]
    definitions_hash: str


POLICIES = dict.fromkeys(
    itertools.chain(weights.WEIGHTINGS, *release_weights.RELEASE_WEIGHTINGS.values())
)
"""Those of releases, too: which of them a metric may have, its definition says."""


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much each privacy level counts, from the next read on."""

    policy: Annotated[str, msgspec.Meta(extra_json_schema={"enum": [*POLICIES]})]


@Operation(
    method="GET",
    path="/v1/metrics",
    summary="All metrics: everything a device needs to randomize.",
    scopes=("read", "report"),
    answers={200: Content("The definitions.", Definitions)},
    conditional=True,
    problems=(429, 503),
)
async def list_metrics(service: Service, request: Request) -> Response:
    """Answer with the definitions of all metrics."""

    def look() -> Response:
        policies = service.reader.store.registry.policies()
        known = service.definitions_hash()  # before: the next status tells a change meanwhile
        found = [
            serialization.definition(metric, policies.get(name))
            for name, metric in service.reader.metrics.items()
        ]
        return _known_or(request, Definitions(found, known))

    return await service.lookups.run(request, look)


@Operation(
    method="GET",
    path="/v1/metrics/{name}",
    summary="A metric's definition: everything a device needs to randomize.",
    scopes=("read", "report"),
    answers={200: Content("The definition.", Definition)},
    conditional=True,
    problems=(404, 429, 503),
)
async def show_metric(service: Service, request: Request) -> Response:
    """Answer with a metric's definition."""
    name = _name(service, request)

    def look() -> Response:
        policies = service.reader.store.registry.policies()
        return _known_or(request, _definition(service, name, policies.get(name)))

    return await service.lookups.run(request, look)


@Operation(
    method="GET",
    path="/v1/metrics/{name}/round",
    summary="The round of a minimum or maximum that is open: what devices answer.",
    scopes=("read", "report"),
    answers={200: Content("The round; its threshold is null once all are decided.", Round)},
    conditional=True,
    problems=(400, 404, 429, 503),
)
async def show_round(service: Service, request: Request) -> Response:
    """Answer with the round that is open."""
    name, reader = _name(service, request), service.reader
    metric = reader.metric(name)
    with asking():
        search = SearchMetric.require(metric)
    rounds = await service.lookups.run(request, reader.store.registry.rounds)
    found = SearchPlan(reader.sums, search).open_round(rounds)
    if found is None:
        raise unavailable(f"no round of {name!r} was opened yet", "`dither coordinate` opens it")
    return _known_or(request, found)


@Operation(
    method="GET",
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
    problems=(400, 404, 429, 503),
)
async def estimate(service: Service, request: Request) -> Response:
    """Answer with an estimate."""
    name, reader = _name(service, request), service.reader
    with asking():
        asked = parse(request, EstimateParameters)
        query = Query(**asked.fields())
        metric = reader.metric(name)
        labels, _ = metric.domain.select(query.categories)
        if query.by and (grouping := Grouping.of(metric, query)) is not None:
            slices = min(grouping.size, query.top or grouping.size)
            check_slices(metric, slices, len(labels))
        else:
            check_shown(min(len(labels), query.top or len(labels)))

    def compute() -> Response:
        with asking():
            described = reader.describe(reader.store.overview(), name, query)
        tag = conditional.etag(
            reader.meaning(described.metric), described.version, query, asked.format
        )
        if (known := conditional.unchanged(request, tag)) is not None:
            return known
        window, is_table = reader.read(described), asked.format == "csv"
        with asking():
            if query.by:
                slices = reader.answer_slices(window, query, still_wanted)
                if is_table:
                    return conditional.answered_table(slices.to_frame(), tag, f"{name}-slices")
                return conditional.answered(slices_answer(slices), tag)
            found = reader.answer(window, query)
        if is_table:
            table = estimate_frame(window, found, query.top)
            return conditional.answered_table(table, tag, f"{name}-estimate")
        return conditional.answered(serialization.answer(window, found, query.top), tag)

    is_light = not query.is_sliced and estimated(metric, len(labels)) <= LIGHT
    pool = service.estimates if is_light else service.surveys
    return await pool.run(request, compute)


@Operation(
    method="GET",
    path="/v1/metrics/{name}/series",
    summary="A metric over time: an estimate for each step of event time, at most 1,000.",
    query=SeriesParameters,
    answers={200: Content("The points, the oldest first.", Series, is_table=True)},
    conditional=True,
    problems=(400, 404, 429, 503),
)
async def series(service: Service, request: Request) -> Response:
    """Answer with a series."""
    name = _name(service, request)
    with asking():
        asked = parse(request, SeriesParameters)
        query = SeriesQuery(metric=name, **asked.fields())
        if query.top is None and query.categories is None:
            query = dataclasses.replace(query, top=service.settings.serve.top_categories)

    def compute() -> Response:
        with asking():
            plan = service.historian.plan(query)
        meaning = service.reader.meaning(plan.window.metric)
        tag = conditional.etag(meaning, plan.version, query, asked.format)
        if (known := conditional.unchanged(request, tag)) is not None:
            return known
        found = service.historian.read(plan, still_wanted)
        if asked.format == "csv":
            return conditional.answered_table(found.to_frame(), tag, f"{name}-series")
        return conditional.answered(found, tag)

    return await service.surveys.run(request, compute)


@Operation(
    method="GET",
    path="/v1/metrics/{name}/discoveries",
    summary="The frequent strings of a metric with `discover = true`; ask again while it is 202.",
    query=DiscoveryParameters,
    answers={
        200: Content("The strings, the most frequent first.", DiscoveryAnswer, is_table=True),
        202: Content("The search has begun, or goes on: how far it is.", DiscoveryProgress),
    },
    problems=(400, 404, 429, 503),
)
async def discover(service: Service, request: Request) -> Response:
    """Answer with the strings that were found, or with how far the search is."""
    name = _name(service, request)
    with asking():
        asked = parse(request, DiscoveryParameters)
        fields = asked.fields()

    def look() -> DiscoveryAnswer | DiscoveryProgress:
        with asking():
            return service.searches.ask(name, **fields, asker=client_of(request.scope))

    try:
        found = await service.estimates.run(request, look)
    except TooManySearchesError as error:
        raise unavailable(str(error), "try again later, or run another `dither serve`") from None
    if isinstance(found, DiscoveryProgress):
        return as_json(found, 202, {"Retry-After": "1", "Cache-Control": "no-store"})
    uncached = {"Cache-Control": "no-cache"}
    if asked.format == "csv":
        return as_table(found.to_frame(), f"{name}-discoveries", uncached)
    return as_json(found, headers=uncached)


@Operation(
    method="DELETE",
    path="/v1/metrics/{name}/discoveries",
    summary="Cancel a search for frequent strings.",
    query=DiscoveryParameters,
    answers={200: Content("How far it was.", DiscoveryProgress)},
    problems=(400, 404, 429, 503),
)
async def cancel_discovery(service: Service, request: Request) -> Response:
    """End a search that is under way."""
    name = _name(service, request)
    with asking():
        fields = parse(request, DiscoveryParameters).fields()

    def cancel() -> DiscoveryProgress | None:
        with asking():
            return service.searches.cancel(name, **fields)

    found = await service.estimates.run(request, cancel)
    if found is None:
        remedy = "GET with the same parameters begins one, or has its answer"
        raise Problem(404, f"no such search of {name!r} is under way", remedy)
    return as_json(found)


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
    """Set the policy that is in force."""
    name = _name(service, request)
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != JSON:
        detail = f"Content-Type {media!r}: expected {JSON}"
        raise Problem(415, detail, f"send the header Content-Type: {JSON}")
    with asking():
        policy = _policy(await request.body(), service.reader.metric(name).policies)
    await service.lookups.run(request, service.reader.store.registry.set_policy, name, policy)
    caller = request.scope.get("dither.caller")
    log.info("weights", metric=name, policy=policy, token=caller.name if caller else "")
    service.hub.wake()
    return as_json(_definition(service, name, policy))


def _policy(body: bytes, known: Collection[str]) -> str:
    """Return the policy that a body names; a ValueError says what was expected instead."""
    try:
        policy = decode_json(body, Weights).policy
    except ValueError as error:
        why = str(error).replace("`", "").replace(" - at $.", " at ")
        raise ValueError(f'body: {why}: expected JSON such as {{"policy": "optimal"}}') from None
    if policy not in known:
        raise ValueError(f"policy {policy!r}: {meant(policy, known)}")
    return policy


def _name(service: Service, request: Request) -> str:
    return service.reader.metric(request.path_params["name"]).name


def _definition(service: Service, name: str, policy: str | None) -> Definition:
    return serialization.definition(service.reader.metric(name), policy)


def _known_or(request: Request, value: Any) -> Response:
    tag = conditional.etag(msgspec.json.encode(value))
    return conditional.unchanged(request, tag) or conditional.answered(value, tag)


OPERATIONS = (
    list_metrics,
    show_metric,
    show_round,
    estimate,
    series,
    discover,
    cancel_discovery,
    set_weights,
)
