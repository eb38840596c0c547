"""Requests that are generated from the OpenAPI document."""

from collections import Counter
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


STREAM = "/v1/events"
LONGEST_URL = 60_000
"""The server refuses a longer URL before the application sees it."""
SENT = ("method", "url", "params", "headers", "cookies", "data", "json")


def exercise(url: str, names: list[str], examples: int) -> Counter[int]:
    """Send generated requests, valid and invalid ones; return the count of each status."""
    described = requests.get(f"{url}/openapi.json", timeout=60).json()
    for operations in described["paths"].values():
        for description in operations.values():
            for parameter in description["parameters"]:
                if parameter["in"] == "path":
                    parameter["schema"] = {"type": "string", "enum": [*names, "unknown"]}
    schema = schemathesis.openapi.from_dict(described)
    statuses: Counter[int] = Counter()
    session = requests.Session()
    for result in schema.get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]
        modes = _modes(operation.definition.raw)
        for mode in modes:
            _round(url, session, operation, mode, examples if len(modes) > 1 else 5, statuses)
    session.close()
    return statuses


def _modes(operation: dict[str, Any]) -> list[GenerationMode]:
    # given values, repeated reports are as those of more users
    places = {parameter["in"] for parameter in operation["parameters"]}
    content = operation.get("requestBody", {}).get("content", {})
    if "query" in places or "application/json" in content:  # bytes are always valid
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
        assume(len(requests.Request(**_sent(url, case)).prepare().url or "") < LONGEST_URL)
        if operation.path == STREAM:
            statuses[_stream(url, session, case)] += 1
            return
        answer = case.call(base_url=url, session=session)
        statuses[answer.status_code] += 1
        # an invalid batch among several is refused alone, in an answer of status 200
        wrong = [] if answer.status_code == 207 else [checks.negative_data_rejection]
        case.validate_response(answer, checks=[*CHECKS, *wrong])

    one()


def _sent(url: str, case: Any) -> dict[str, Any]:
    return {k: v for k, v in case.as_transport_kwargs(base_url=url).items() if k in SENT}


def _stream(url: str, session: requests.Session, case: Any) -> int:
    """Read only the beginning of a stream, since it does not end."""
    with session.request(**_sent(url, case), stream=True, timeout=60) as answer:
        media = {200: "text/event-stream"}.get(answer.status_code, "application/problem+json")
        assert answer.headers["content-type"].partition(";")[0] == media
        assert str(answer.status_code) in case.operation.definition.raw["responses"]
        assert answer.status_code < 500
        return answer.status_code
