"""Generated posts, right and wrong ones, are answered as the interface's description says."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from aggregator.web.openapi import document
from aggregator.web.reports import REPORTS
from producers.gateway import Gateway
from producers.gateway.bodies import PROTOBUF
from tests.support.exercised import exercise
from tests.support.running.broker import METRICS, PLACE, Broker
from tests.support.running.gateway_server import serving

ALL = {metric.name: metric for metric in [*METRICS, PLACE]}


@schemathesis.serializer(PROTOBUF)
def as_it_is(_: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


async def description(_: Request) -> JSONResponse:
    """Return the description, with the names of the metrics: others are refused at once."""
    described = document([REPORTS])
    batch = described["components"]["schemas"]["JsonBatch"]["properties"]
    batch["metric"]["enum"] = list(ALL)
    return JSONResponse(described)


def posts(broker: Broker, topic: str, count: int) -> dict[int, int]:
    served = Gateway(ALL, broker.config, topic, rate_limit="")
    with serving(served, [Route("/openapi.json", description)]) as url:
        return exercise(url.removesuffix("/v1/reports"), [], count)


def test_generated_posts_are_answered_as_described(broker: Broker, topic: str) -> None:
    statuses = posts(broker, topic, 200)
    assert statuses[400] > 50
    assert not [status for status in statuses if status >= 500]


@pytest.mark.slow
def test_ten_thousand_generated_posts_are_answered_as_described(broker: Broker, topic: str) -> None:
    statuses = posts(broker, topic, 10_000)
    assert statuses[202] > 0
    assert not [status for status in statuses if status >= 500]
