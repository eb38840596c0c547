"""The OpenAPI document is valid, is complete, and tells the truth about every answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks
from starlette.routing import Route

from aggregator.web.application import OPERATIONS
from aggregator.web.openapi import document
from aggregator.web.pages import routes
from aggregator.web.reports import REPORTS
from estimators import Metric
from tests.aggregator.web.counted import Client, Counting, Server, serving

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
STREAM = "/v1/events"


def test_the_document_is_valid_openapi(client: Client, metrics: dict[str, Metric]) -> None:
    served = client.json("/openapi.json")
    assert served["openapi"] == "3.1.0"
    OpenAPIV31SpecValidator(served).validate()
    OpenAPIV31SpecValidator(document([*OPERATIONS, REPORTS], metrics)).validate()


def test_every_route_is_described(client: Client) -> None:
    described = {
        (method.upper(), path)
        for path, operations in client.json("/openapi.json")["paths"].items()
        for method in operations
    }
    pages: set[Any] = {getattr(route, "path", "") for route in routes()}
    routed: Any = [route for route in client.app.routes if isinstance(route, Route)]
    for route in routed:
        for method in set(route.methods) - {"HEAD"}:
            assert route.path in pages or (method, route.path) in described
    assert {"/healthz", "/readyz", "/metrics", "/v1/status", "/v1/events"} <= {
        path for _, path in described
    }
    assert "/v1/reports" in document([*OPERATIONS, REPORTS])["paths"]


def test_every_operation_says_what_it_needs_and_how_it_fails(client: Client) -> None:
    paths = client.json("/openapi.json")["paths"]
    for path, operations in paths.items():
        for operation in operations.values():
            assert operation["summary"].endswith(".")
            assert operation["operationId"]
            is_open = "security" not in operation
            assert is_open == (path in ("/healthz", "/readyz", "/openapi.json", "/asyncapi.json"))
            assert is_open or {"401", "403"} <= operation["responses"].keys()
            for status, answer in operation["responses"].items():
                if status >= "400":
                    assert "application/problem+json" in answer["content"]
    estimate = paths["/v1/metrics/{name}/estimate"]["get"]
    assert {"from", "to", "window", "beta", "top", "If-None-Match"} <= {
        parameter["name"] for parameter in estimate["parameters"]
    }


# -- Generated requests --------------------------------------------------------------------------


@pytest.fixture
def server(metrics_file: Path, redis_url: str, counting: Counting) -> Iterator[Server]:
    counting.some(30)
    flags = ("--set", "access.anonymous=read report admin")
    with serving(metrics_file, redis_url, *flags) as running:
        yield running


def exercise(url: str, names: list[str], requests_wanted: int) -> Counter[int]:
    """Send generated requests, right and wrong ones; return how often each status came."""
    described = requests.get(f"{url}/openapi.json", timeout=30).json()
    for operations in described["paths"].values():
        for operation in operations.values():
            for parameter in operation["parameters"]:
                if parameter["in"] == "path":
                    parameter["schema"] = {"type": "string", "enum": [*names, "unknown"]}
    schema = schemathesis.openapi.from_dict(described)
    operations_found: list[Any] = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]
    statuses: Counter[int] = Counter()
    session = requests.Session()
    rounds = [(one, mode) for one in operations_found for mode in _modes(one.definition.raw)]
    many = [(one, mode) for one, mode in rounds if len(_modes(one.definition.raw)) > 1]
    for operation, mode in rounds:
        if (operation, mode) not in many:
            _round(url, session, operation, mode, 5, statuses)
    while (missing := requests_wanted - statuses.total()) > 0:
        for operation, mode in many:
            _round(url, session, operation, mode, -(-missing // len(many)), statuses)
    session.close()
    return statuses


def _modes(operation: dict[str, Any]) -> list[GenerationMode]:
    """Return which requests are worth sending often: those with something to get wrong."""
    places = {parameter["in"] for parameter in operation["parameters"]}
    if "query" in places or "requestBody" in operation:
        return list(GenerationMode)
    return [GenerationMode.POSITIVE]


def _round(
    url: str,
    session: requests.Session,
    operation: Any,
    mode: GenerationMode,
    examples: int,
    statuses: Counter[int],
) -> None:
    @seed(statuses.total())
    @settings(
        max_examples=max(1, examples),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode))
    def one(case: Any) -> None:
        if operation.path == STREAM:
            statuses[_stream(url, session, case)] += 1
            return
        answer = case.call(base_url=url, session=session)
        statuses[answer.status_code] += 1
        case.validate_response(answer, checks=CHECKS)

    one()


def _stream(url: str, session: requests.Session, case: Any) -> int:
    """Look at the beginning of a stream, as it has no end."""
    arguments = {**case.as_transport_kwargs(base_url=url), "stream": True, "timeout": 30}
    with session.request(**arguments) as answer:
        media = {200: "text/event-stream"}.get(answer.status_code, "application/problem+json")
        assert answer.headers["content-type"].partition(";")[0] == media
        assert str(answer.status_code) in case.operation.definition.raw["responses"]
        assert answer.status_code < 500
        return answer.status_code


def test_generated_requests_are_answered_as_described(
    server: Server, metrics: dict[str, Metric]
) -> None:
    statuses = exercise(server.url, list(metrics), 300)
    assert statuses.total() >= 300
    assert statuses[200] > 50
    assert statuses[400] > 50
    assert not [status for status in statuses if status >= 500]
    assert "Traceback" not in server.told.read_text()


@pytest.mark.slow
def test_ten_thousand_generated_requests_are_answered_as_described(
    server: Server, metrics: dict[str, Metric]
) -> None:
    statuses = exercise(server.url, list(metrics), 10_000)
    assert statuses.total() >= 10_000
    assert not [status for status in statuses if status >= 500]
    assert "Traceback" not in server.told.read_text()
