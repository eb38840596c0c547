"""Reports are posted to a real gateway, and none is lost or repeated when it says to wait."""

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from starlette.responses import RedirectResponse, Response

from producers.gateway import Gateway
from producers.gateway.problems import Problem
from producers.wire.reports_pb2 import ReportBatch
from tests.services.browser.conftest import Modules
from tests.support.rows import row
from tests.support.running.broker import CARRIER, LATE, METRICS, Broker, count
from tests.support.running.gateway_server import serving
from tests.support.running.scripted_server import ScriptedServer
from tests.support.running.served import definition

ALL = {metric.name: metric for metric in METRICS}
MOODY = "moody/v1/reports"


REPORT = """
async ([url, definition, values, epsilons, options]) => {
  try { return await dither.report(url, definition, values, epsilons, options); }
  catch (error) {
    return { name: error.name, message: error.message, status: error.status,
             body: error.body && Array.from(error.body) };
  }
}
"""


class Site(ScriptedServer):
    """A gateway, and one at `MOODY`, which answers as it is told to; a device reports to either."""

    def __init__(self, device: Modules) -> None:
        super().__init__()
        self.device = device

    def report(self, path: str, metric: Any, values: Any, epsilons: Any, **options: Any) -> Any:
        given = [f"{self.url}{path}", definition(metric), values, epsilons, options]
        return self.device.evaluate(REPORT, given)


@pytest.fixture
def site(device: Modules, broker: Broker, topic: str) -> Iterator[Site]:
    site, gateway = Site(device), Gateway(ALL, broker.config, topic, rate_limit="3/second")
    with serving(gateway, [site.route("/moody")]) as url:
        site.url = url.removesuffix("v1/reports")
        yield site


def test_reports_are_in_kafka_when_that_is_said(site: Site, broker: Broker, topic: str) -> None:
    before = time.time() * 1000
    one = site.report("v1/reports", LATE, 1, 2)
    values, moment = ["AA", 3, "B6"], 1_357_034_400_000
    many = site.report("v1/reports", CARRIER, values, [1, 4, 5], time=moment)
    assert (one["reports"], many["reports"]) == (1, 3)
    found = {message.batch.metric: message for message in broker.read(topic)}
    assert found["late"].key.hex() == one["batch_id"]
    assert found["carrier"].key.hex() == many["batch_id"]
    assert before - 1 <= found["late"].batch.time_ms <= time.time() * 1000 + 1
    assert found["carrier"].batch.time_ms == moment
    assert CARRIER.counts(count(CARRIER, [found["carrier"].batch])).tolist() == [1, 2]


@pytest.mark.more  # it waits two seconds
def test_what_is_posted_too_often_waits_and_arrives(site: Site, broker: Broker, topic: str) -> None:
    answers = site.device.evaluate(
        """([url, definition]) => Promise.all(Array.from({ length: 6 }, () =>
          dither.report(url, definition, [0, 1], 4)))""",
        [f"{site.url}v1/reports", definition(LATE)],
    )
    messages = broker.read(topic)
    expected = sorted(answer["batch_id"] for answer in answers)
    assert sorted(message.key.hex() for message in messages) == expected
    assert np.sum(LATE.counts(count(LATE, [message.batch for message in messages]))) == 12


def test_what_is_posted_again_is_the_same_batch_after_the_time_asked_for(site: Site) -> None:
    site.answers += [
        Problem(503, "Kafka is away", retry_after=1).response("/moody"),
        Problem(504, "nobody knows", retry_after=1).response("/moody"),
        Response(b'{"batch_id":"00","reports":2}', 202, media_type="application/json"),
    ]
    token = "dither_secret"  # noqa: S105
    assert site.report(MOODY, LATE, [0, 1], [1, 2], token=token) == {"batch_id": "00", "reports": 2}
    assert len(set(site.posted)) == 1
    assert all(gap >= 1 for gap in np.diff(site.moments))
    batch, headers = site.batches[0], site.headers
    assert (len(batch.batch_id), len(batch.levels)) == (16, 2)
    assert headers[0]["authorization"] == f"Bearer {token}"
    assert headers[0]["content-type"] == "application/x-protobuf"
    assert not {"cookie", "referer"} & headers[0].keys()


def test_what_is_not_acknowledged_is_an_error_with_the_batch(site: Site) -> None:
    """It names no batch, found nobody, or is to be asked again in an hour."""
    answers = [
        Response(body, status, media_type="application/json")
        for body, status in ((b'{"batch_id": "00"}', 200), (b"{}", 202), (b"[1]", 202))
    ]
    for after in ("3600", "Fri, 31 Dec 2999 23:59:59 GMT"):
        answers.append(Problem(429, "too often").response("/moody"))
        answers[-1].headers["Retry-After"] = after
    for answer in answers:
        site.posted.clear()
        site.answers.append(answer)
        attempts = {"attempts": 1} if answer.status_code != 429 else {}
        found = site.report(MOODY, LATE, 1, 2, **attempts)
        with row(answer.body, answer.status_code):
            assert (found["name"], found["status"]) == ("DeliveryError", answer.status_code)
            assert [bytes(found["body"])] == site.posted
    site.posted.clear()
    site.answers += [Problem(503, "Kafka is away", retry_after=1).response("/moody")] * 2
    found = site.report(MOODY, LATE, 1, 2, attempts=2)
    assert "503: Kafka is away" in found["message"]
    assert [bytes(found["body"])] * 2 == site.posted
    again = "([url, body]) => dither.post(url, Uint8Array.from(body))"
    batch_id = ReportBatch.FromString(bytes(found["body"])).batch_id
    told = site.device.evaluate(again, [f"{site.url}v1/reports", found["body"]])
    assert told == {"batch_id": batch_id.hex(), "reports": 1}


def test_an_address_to_which_nothing_can_be_posted_is_named(site: Site) -> None:
    found = site.report("v1/report", LATE, 1, 2)
    assert (found["name"], found["status"]) == ("DeliveryError", 404)
    assert found["message"].endswith("; the gateway takes reports at /v1/reports")
    site.url = ""
    for url in ("http://x:99999/", "localhost:1/", "ftp://x/", "http://u:secret@x/"):
        with row(url):
            found = site.report(url, LATE, 1, 2)
            assert found["name"] == "TypeError"
            assert found["message"].startswith(
                f'url = "{url.replace("u:secret", "***")}": expected'
            )
    found = site.report("http://127.0.0.1:9/", LATE, 1, 2, attempts=1)
    told = "fetch failed (Error: bad port); is a gateway at http://127.0.0.1:9/?"
    assert found["message"].endswith(told)


def test_an_answer_without_end_is_not_read(site: Site) -> None:
    site.answers.append(Response(b" " * (2**20 + 1), 202))
    found = site.report(MOODY, LATE, 1, 2, attempts=1)
    assert "expected an answer of at most 1048576 bytes" in found["message"]


def test_a_report_goes_to_no_other_address_and_takes_nothing_of_the_page_along(site: Site) -> None:
    site.answers.append(RedirectResponse("/v1/reports", 303))
    found = site.report(MOODY, LATE, 1, 2, attempts=1)
    assert (found["name"], found["status"], len(site.posted)) == ("DeliveryError", 0, 1)
    script = """async (definition) => {
      let given;
      globalThis.fetch = async (_, init) => { given = init; return Response.json({}); };
      await dither.report("http://device.test/", definition, 1, 2, { attempts: 1 }).catch(() => 0);
      return [given.credentials, given.referrerPolicy, Object.keys(given.headers)];
    }"""
    found = site.device.evaluate(script, definition(LATE))
    assert found == ["omit", "no-referrer", ["Content-Type"]]


def test_a_refusal_is_final_and_says_why(site: Site) -> None:
    old = dataclasses.replace(LATE, pane="2m")
    found = site.report("v1/reports", old, 1, 2)
    assert found["status"] == 400
    assert f"wrong_revision: revision {old.revision:08x} of late" in found["message"]
    assert "GET /v1/metrics/NAME has the definition" in found["message"]


def test_what_cannot_be_reported_is_not_posted(site: Site) -> None:
    for values, epsilons, said in (
        ([], 1, "no values of late"),
        ([1, 0], [1, 0.1], "epsilon = 0.1: metric late offers 0.5"),
    ):
        with row(values, epsilons):
            assert said in site.report(MOODY, LATE, values, epsilons)["message"]
    assert site.posted == []
