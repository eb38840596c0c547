"""The browser posts to a real gateway, and does not lose or repeat a report when told to wait."""

from __future__ import annotations

import dataclasses
import re
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from aggregator.web.pages import RANDOMIZERS
from producers.gateway import Gateway
from producers.gateway.problems import Problem
from producers.wire.reports_pb2 import ReportBatch
from tests.support.paths import ROOT
from tests.support.running.broker import CARRIER, LATE, METRICS, Broker, count
from tests.support.running.gateway_server import serving
from tests.support.running.served import definition, module

GUIDE = ROOT / "docs" / "gateway.md"
ALL = {metric.name: metric for metric in METRICS}


@dataclasses.dataclass
class Site:
    """A page with the module, a gateway, and `/moody`, which answers as it is told to."""

    url: str = ""
    answers: deque[Response] = dataclasses.field(default_factory=deque)
    seen: list[tuple[float, dict[str, str], bytes]] = dataclasses.field(default_factory=list)

    async def moody(self, request: Request) -> Response:
        self.seen.append((time.monotonic(), dict(request.headers), await request.body()))
        return self.answers.popleft()

    async def page(self, _: Request) -> Response:
        return HTMLResponse("<!doctype html><title>device</title>")

    async def module(self, request: Request) -> Response:
        return Response(module(request.url.path), media_type="text/javascript")

    async def guide(self, _: Request) -> Response:
        script = re.search(r"```html\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
        assert script is not None
        return HTMLResponse(f"<!doctype html><title>guide</title>{script[1]}")

    async def definition(self, _: Request) -> Response:
        return JSONResponse(definition(LATE))

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/", self.page),
            Route("/guide", self.guide),
            *(Route(f"/static/{name}", self.module) for name in RANDOMIZERS),
            Route("/v1/metrics/late", self.definition),
            Route("/moody", self.moody, methods=["POST"]),
        ]


@pytest.fixture(scope="module")
def broker() -> Broker:
    return Broker()


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.topic()


@pytest.fixture
def site(broker: Broker, topic: str, page: Page) -> Iterator[Site]:
    site = Site()
    with serving(Gateway(ALL, broker.config, topic, rate_limit="3/second"), site.routes) as url:
        site.url = url.removesuffix("v1/reports")
        page.goto(site.url)
        page.evaluate("async () => { window.dither = await import('/static/dither.js'); }")
        yield site


REPORT = """
async ([url, definition, values, epsilons, options]) => {
  try { return await dither.report(url, definition, values, epsilons, options); }
  catch (error) {
    return { name: error.name, message: error.message, status: error.status,
             body: error.body && Array.from(error.body) };
  }
}
"""


def report(page: Page, url: str, metric: Any, values: Any, epsilons: Any, **options: Any) -> Any:
    return page.evaluate(REPORT, [url, definition(metric), values, epsilons, options])


@pytest.mark.usefixtures("site")
def test_reports_of_a_page_are_in_kafka_when_it_is_told_so(
    page: Page, broker: Broker, topic: str
) -> None:
    before = time.time() * 1000
    one = report(page, "/v1/reports", LATE, 1, 2)
    many = report(page, "/v1/reports", CARRIER, ["AA", 3, "B6"], [1, 4, 5], time=1_357_034_400_000)
    assert (one["reports"], many["reports"]) == (1, 3)
    found = {message.batch.metric: message for message in broker.read(topic)}
    assert found["late"].key.hex() == one["batch_id"]
    assert found["carrier"].key.hex() == many["batch_id"]
    assert before - 1 <= found["late"].batch.time_ms <= time.time() * 1000 + 1
    assert found["carrier"].batch.time_ms == 1_357_034_400_000
    assert CARRIER.counts(count(CARRIER, [found["carrier"].batch])).tolist() == [1, 2]


def test_the_documentation_s_example_reports(
    page: Page, site: Site, broker: Broker, topic: str
) -> None:
    page.goto(f"{site.url}guide")
    sizes = sorted(len(message.batch.levels) for message in broker.read(topic, at_least=2))
    assert sizes == [1, 3]


@pytest.mark.usefixtures("site")
def test_a_page_that_posts_too_often_waits_and_loses_nothing(
    page: Page, broker: Broker, topic: str
) -> None:
    answers = page.evaluate(
        """([definition]) => Promise.all(Array.from({ length: 6 }, () =>
          dither.report("/v1/reports", definition, [0, 1], 4)))""",
        [definition(LATE)],
    )
    messages = broker.read(topic)
    assert sorted(message.key.hex() for message in messages) == sorted(
        answer["batch_id"] for answer in answers
    )
    assert np.sum(LATE.counts(count(LATE, [message.batch for message in messages]))) == 12


def test_what_is_posted_again_is_the_same_batch_after_the_time_that_was_asked_for(
    page: Page, site: Site
) -> None:
    done = Response(b'{"batch_id":"00","reports":2}', 202, media_type="application/json")
    site.answers += [
        Problem(503, "Kafka is away", retry_after=2).response("/moody"),
        Problem(504, "nobody knows", retry_after=1).response("/moody"),
        done,
    ]
    token = "dither_secret"  # noqa: S105
    answer = report(page, "/moody", LATE, [0, 1], [1, 2], token=token)
    assert answer == {"batch_id": "00", "reports": 2}
    moments, headers, bodies = zip(*site.seen, strict=True)
    assert len(set(bodies)) == 1
    assert moments[1] - moments[0] >= 2
    assert moments[2] - moments[1] >= 1
    batch = ReportBatch.FromString(bodies[0])
    assert (len(batch.batch_id), len(batch.levels)) == (16, 2)
    assert headers[0]["authorization"] == f"Bearer {token}"
    assert headers[0]["content-type"] == "application/x-protobuf"
    assert not {"cookie", "referer"} & headers[0].keys()


@pytest.mark.parametrize(("body", "status"), [(b"{}", 200), (b"{}", 202), (b"[1]", 202)])
def test_an_answer_that_names_no_batch_is_no_acknowledgement(
    page: Page, site: Site, body: bytes, status: int
) -> None:
    site.answers.append(Response(body, status, media_type="application/json"))
    found = report(page, "/moody", LATE, 1, 2, attempts=1)
    assert (found["name"], found["status"]) == ("DeliveryError", status)
    assert bytes(found["body"]) == site.seen[0][2]


def test_a_batch_that_found_nobody_can_be_posted_again_later(page: Page, site: Site) -> None:
    site.answers += [Problem(503, "Kafka is away", retry_after=1).response("/moody")] * 2
    found = report(page, "/moody", LATE, 1, 2, attempts=2)
    assert (found["name"], found["status"]) == ("DeliveryError", 503)
    assert "503: Kafka is away" in found["message"]
    assert [bytes(found["body"])] * 2 == [body for _, _, body in site.seen]
    kept = "(body) => dither.post('/v1/reports', Uint8Array.from(body))"
    batch_id = ReportBatch.FromString(bytes(found["body"])).batch_id
    assert page.evaluate(kept, found["body"]) == {"batch_id": batch_id.hex(), "reports": 1}


def test_a_server_that_asks_for_an_hour_is_not_waited_for(page: Page, site: Site) -> None:
    for after in ("3600", "Fri, 31 Dec 2999 23:59:59 GMT"):
        answer = Problem(429, "too often").response("/moody")
        answer.headers["Retry-After"] = after
        site.answers.append(answer)
        assert report(page, "/moody", LATE, 1, 2)["status"] == 429
    assert len(site.seen) == 2


def test_a_refusal_is_final_and_says_why(page: Page, site: Site) -> None:
    old = dataclasses.replace(LATE, pane="2m")
    stale = definition(old)
    found = page.evaluate(REPORT, ["/v1/reports", stale, 1, 2, {}])
    assert found["status"] == 400
    assert f"wrong_revision: revision {old.revision:08x} of late" in found["message"]
    assert "GET /v1/metrics/NAME has the definition" in found["message"]
    assert site.seen == []


@pytest.mark.usefixtures("site")
def test_what_cannot_be_reported_is_not_posted(page: Page) -> None:
    posted: list[str] = []
    page.on("request", lambda request: posted.append(request.url))
    for values, epsilons, said in (
        ([], 1, "no values of late"),
        ([1, 0], [1], "1 epsilons for 2 values"),
        ([1, None], 1, "value null of late: expected a number"),
        ([1, 0], [1, 0.1], "epsilon = 0.1: metric late offers 0.5"),
    ):
        assert said in report(page, "/v1/reports", LATE, values, epsilons)["message"]
    assert posted == []
