"""Generated posts, right and wrong ones, are answered as the interface's description says."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from aggregator.web.openapi import document
from aggregator.web.reports import REPORTS
from producers.gateway import Gateway
from producers.gateway.bodies import PROTOBUF
from tests.support.running.broker import METRICS, PLACE, Broker
from tests.support.running.gateway_server import serving

ALL = {metric.name: metric for metric in [*METRICS, PLACE]}


async def description(_: Request) -> JSONResponse:
    """Return the description, with the names of the metrics: others are refused at once."""
    described = document([REPORTS])
    batch = described["components"]["schemas"]["JsonBatch"]["properties"]
    batch["metric"]["enum"] = list(ALL)
    return JSONResponse(described)


@pytest.mark.more
def test_generated_posts_are_answered_as_described(broker: Broker, topic: str) -> None:
    import schemathesis

    from tests.support.exercised import exercise

    @schemathesis.serializer(PROTOBUF)
    def as_it_is(_: Any, value: Any) -> bytes:
        return value if isinstance(value, bytes) else str(value).encode()

    served = Gateway(ALL, broker.config, topic, rate_limit="")
    with serving(served, [Route("/openapi.json", description)]) as url:
        statuses = exercise(url.removesuffix("/v1/reports"), [], 200)
    assert statuses[400] > 50
    assert not [status for status in statuses if status >= 500]
