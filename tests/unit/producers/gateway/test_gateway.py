"""What a device that posts its reports may rely on."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from estimators import define
from producers.gateway import Gateway, bodies, receiving
from producers.gateway.bodies import JSON, PROTOBUF, Times
from producers.wire.batch import encode_batch, heartbeat, new_batch_id
from producers.wire.framing import frame
from producers.wire.reports_pb2 import ReportBatch
from tests.support.paths import ROOT
from tests.support.running import http_client
from tests.support.running.broker import LATE, METRICS, PLACE, Broker, count
from tests.support.running.gateway_server import serving

ALL = {metric.name: metric for metric in [*METRICS, PLACE]}
GUIDE = ROOT / "docs" / "gateway.md"
NOWHERE = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0}
PANE_MS = 1_700_000_000_000
PROMPT_SECONDS, AT_ONCE_SECONDS = 4.0, 0.5
"""Kafka's client knows in milliseconds that nobody is there, and one question of a second proves
it; the rest is for a busy machine."""


class Post:
    """Posts to a served gateway."""

    def __init__(self, url: str, client: httpx.Client) -> None:
        self.url, self.client = url, client

    def batch(self, body: bytes, media_type: str = PROTOBUF, **headers: str) -> httpx.Response:
        return self.client.post(
            self.url, content=body, headers={"Content-Type": media_type, **headers}
        )

    def json(self, body: Any) -> httpx.Response:
        return self.client.post(self.url, json=body)


@pytest.fixture
def post(broker: Broker, topic: str) -> Iterator[Post]:
    with serving(Gateway(ALL, broker.config, topic)) as url, httpx.Client() as client:
        yield Post(url, client)


@pytest.fixture(scope="module")
def refusing(broker: Broker) -> Iterator[Post]:
    """A gateway for posts that must not reach Kafka: afterwards the topic is still empty."""
    topic = broker.topic()
    with serving(Gateway(ALL, broker.config, topic)) as url, httpx.Client() as client:
        yield Post(url, client)
    assert broker.read(topic) == []


PAY = define(name="pay", kind="mean", trust="central", range=(0, 9), levels=[1])


def test_true_values_of_a_trusted_metric_are_taken_over_tls_alone(
    broker: Broker, topic: str
) -> None:
    known = {**ALL, "pay": PAY}
    true = encode_batch(PAY, [0], [7], PANE_MS)
    as_json = {"metric": "pay", "reports": [{"report": 7, "level": 0}]}
    with serving(Gateway(known, broker.config, topic)) as url, httpx.Client() as client:
        post = Post(url, client)
        for answer in (post.batch(true), post.json(as_json)):
            assert answer.status_code == 403
            told = problem(answer)
            assert "true values" in told["detail"]
            assert "gateway.trusted_without_tls" in told["remedy"]
        assert problem(post.json({**as_json, "metric": "paid"}))["status"] == 400
        assert post.batch(one_report()).status_code == 202, "private reports may come"
        claimed = post.batch(true, **{"X-Forwarded-Proto": "https"})
        assert claimed.status_code == 403, "anybody can say so"
    with (
        serving(Gateway(known, broker.config, topic), behind_proxy=True) as url,
        httpx.Client() as client,
    ):
        post = Post(url, client)
        behind_tls = post.batch(true, **{"X-Forwarded-Proto": "https"})  # a proxy of this machine
        assert behind_tls.status_code == 202
        empty = post.batch(heartbeat(PAY, PANE_MS), **{"X-Forwarded-Proto": "https"})
        assert "without reports" in problem(empty)["detail"], "a device closes no pane"
    allowing = Gateway(known, broker.config, topic, trusted_without_tls=True)
    with serving(allowing) as url, httpx.Client() as client:
        assert Post(url, client).batch(true).status_code == 202


def one_report(key: bytes | None = None, time_ms: int = PANE_MS) -> bytes:
    return encode_batch(LATE, [1], [1], time_ms, key)


def problem(answer: httpx.Response) -> dict[str, Any]:
    """Return a problem, after a look at what all problems have."""
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["status"] == answer.status_code
    assert found["instance"] == "/v1/reports"
    assert found["remedy"]
    return found


def test_a_serialized_batch_reaches_kafka_as_it_is_under_its_own_id(
    post: Post, broker: Broker, topic: str
) -> None:
    level = LATE.level_of([0.5] * 500 + [4.0] * 500)
    key, reports = new_batch_id(), LATE.randomize(np.zeros(1000), level)
    body = encode_batch(LATE, level, reports, PANE_MS, key)
    answer = post.batch(body)
    assert answer.status_code == 202, answer.text
    assert answer.json() == {"batch_id": key.hex(), "reports": 1000}
    [message] = broker.read(topic)
    assert message.key == key
    assert message.batch == ReportBatch.FromString(body)


def test_a_gateway_frames_what_it_sends_and_takes_both(broker: Broker, topic: str) -> None:
    bare, framed = one_report(), frame(9, one_report())
    with (
        serving(Gateway(ALL, broker.config, topic, schema_id=258)) as url,
        httpx.Client() as client,
    ):
        for body in (bare, framed):
            assert Post(url, client).batch(body).status_code == 202
        assert "bad_frame" in problem(Post(url, client).batch(b"\0\0\0\0\1\2\2"))["detail"]
    messages = broker.read(topic)
    assert [message.frame for message in messages] == [b"\0\0\0\1\2\0"] * 2
    assert {message.key for message in messages} == {m.batch.batch_id for m in messages}


def test_json_says_the_same_for_every_shape_of_report(
    post: Post, broker: Broker, topic: str
) -> None:
    for metric in ALL.values():
        values: Any = [[0.0, 1.0], [3.0, 2.0]] if metric is PLACE else [0, 1]
        level = metric.level_of([1, 4])
        reports = metric.randomize(values, level)
        key = uuid.uuid4()
        rows = [
            {"level": int(level[0]), "report": reports[0].tolist()},
            {"epsilon": metric.levels[level[1]], "report": reports[1].tolist()},
        ]
        given = {
            "metric": metric.name,
            "revision": metric.revision,
            "batch_id": str(key),
            "time": "2023-11-14T23:13:20+01:00",
            "reports": rows,
        }
        answer = post.json(given)
        assert answer.status_code == 202, answer.text
        assert answer.json() == {"batch_id": key.hex, "reports": 2}
        expected = encode_batch(metric, level, reports, PANE_MS, key.bytes)
        assert ReportBatch.FromString(expected) in broker.batches(topic)


def test_the_documentation_s_example_is_answered_as_it_says(
    post: Post, broker: Broker, topic: str
) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    example = re.search(r"--json '(.*?)'\n```\s+```json\n(.*?)\n```", text, re.DOTALL)
    assert example is not None
    answer = post.batch(example[1].encode(), JSON)
    assert (answer.status_code, answer.text) == (202, example[2])
    assert [len(batch.levels) for batch in broker.batches(topic)] == [2]


def test_the_guides_example_of_several_batches_is_answered_as_it_says(post: Post) -> None:
    text = GUIDE.read_text(encoding="utf-8").partition("/batches --json")[2]
    example = re.search(r"'(\[.*?\])'\n```\s+```json\n(.*?)\n```", text, re.DOTALL)
    assert example is not None
    answer = post.client.post(f"{post.url}/batches", json=json.loads(example[1]))
    assert (answer.status_code, answer.text) == (207, example[2])


def test_json_without_id_and_time_is_given_an_id_and_kafkas_time(
    post: Post, broker: Broker, topic: str
) -> None:
    given = {"metric": "late", "reports": [{"epsilon": 1, "report": 0}]}
    answers = [post.json(given).json()["batch_id"] for _ in range(2)]
    messages = broker.read(topic)
    assert sorted(answers) == sorted(message.key.hex() for message in messages)
    assert len(set(answers)) == 2
    assert [message.batch.time_ms for message in messages] == [0, 0]


def test_the_same_batch_posted_again_lies_beside_itself(
    post: Post, broker: Broker, topic: str
) -> None:
    keys = [new_batch_id() for _ in range(20)]
    for key in keys * 3:
        assert post.batch(one_report(key)).status_code == 202
    places: dict[bytes, set[int]] = {}
    for message in broker.read(topic):
        places.setdefault(message.key, set()).add(message.partition)
    assert places.keys() == set(keys)
    assert all(len(partitions) == 1 for partitions in places.values())


def test_many_devices_at_once_are_all_counted(post: Post, broker: Broker, topic: str) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: post.batch(one_report()), range(80)))
    assert {answer.status_code for answer in answers} == {202}
    assert LATE.counts(count(LATE, broker.batches(topic))).tolist() == [0, 80, 0, 0]


def test_what_the_definition_of_a_batch_does_not_have_goes_no_further(
    post: Post, broker: Broker, topic: str
) -> None:
    body = one_report()
    name = b"\x7a\x05alice"  # field 15
    assert post.batch(body + name).status_code == 202
    [message] = broker.read(topic)
    assert message.batch.SerializeToString() == body


def changed(**fields: Any) -> bytes:
    batch = ReportBatch.FromString(one_report())
    for name, value in fields.items():
        setattr(batch, name, value)
    return batch.SerializeToString()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\xff\xff", "malformed: not a ReportBatch"),
        (b"", "unknown_metric: metric ''"),
        (changed(metric="latte"), "unknown_metric: metric 'latte'"),
        (changed(revision=7), f"revision 00000007 of late: expected {LATE.revision:08x}"),
        (changed(levels=b"", values=b""), "empty: a batch without reports"),
        (changed(batch_id=b""), "bad_batch_id: 0 bytes: expected 16"),
        (changed(batch_id=b"x" * 15), "bad_batch_id: 15 bytes: expected 16"),
        (changed(round=1), "bad_round: round 1"),
        (changed(levels=b"\x04"), "bad_level: level 4: expected 0 to 3"),
        (changed(values=b"\x02"), "bad_value: report 2: expected 0 or 1"),
        (changed(values=b"\x01\x01"), "bad_length: 2 bytes of values for 1 reports"),
        (one_report() + b"\x42\x00\x42\x00", "bad_attributes: ['', '']: expected names in order"),
        (changed(time_ms=-1), "time_ms = -1: expected milliseconds since the epoch"),
        (changed(time_ms=PANE_MS * 1000), "before the year 10000"),
    ],
    ids=lambda given: given if isinstance(given, str) else "body",
)  # fmt: skip
def test_a_batch_that_nobody_could_count_is_refused_and_says_why(
    refusing: Post, body: bytes, said: str
) -> None:
    answer = refusing.batch(body)
    assert answer.status_code == 400
    assert said in problem(answer)["detail"]


GOOD = {"level": 1, "report": 1}
MANY = {f"a{number}": "" for number in range(17)}
SLICED = dataclasses.replace(
    LATE,
    by=["version", "country"],
    attributes={"version": ["1"], "country": ["DE", "FR"]},
)


def test_json_has_attributes_which_the_gateway_coarsens(broker: Broker, topic: str) -> None:
    own = {"version": "1", "country": "Liechtenstein", "city": "Vaduz"}
    given = {"metric": "late", "reports": [GOOD, GOOD], "batch_id": "7" * 32, "attributes": own}
    with serving(Gateway({"late": SLICED}, broker.config, topic)) as url, httpx.Client() as client:
        assert Post(url, client).json(given).status_code == 202
    [message] = broker.read(topic)
    expected = encode_batch(SLICED, [1, 1], [1, 1], 0, bytes.fromhex("7" * 32), attributes=own)
    assert message.batch == ReportBatch.FromString(expected)
    pairs = [(each.name, each.value) for each in message.batch.attributes]
    assert pairs == [("country", "other"), ("version", "1")]


def test_a_serialized_batch_with_attributes_reaches_kafka_as_it_is(
    post: Post, broker: Broker, topic: str
) -> None:
    """Also if the gateway knows nothing of them: workers may."""
    body = encode_batch(SLICED, [1], [1], PANE_MS, attributes={"country": "DE"})
    assert post.batch(body).status_code == 202
    [message] = broker.read(topic)
    assert message.batch == ReportBatch.FromString(body)
    assert [each.value for each in message.batch.attributes] == ["DE"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "a list: expected one batch of reports"),
        (7, "not a batch of reports: Expected `object`, got `int`"),
        ({"metric": "late"}, "missing required field `reports`"),
        ({"metric": "late", "reports": [], "size": 1}, "unknown field `size`"),
        ({"metric": "lat", "reports": [GOOD]}, "metric 'lat': did you mean 'late'?"),
        ({"metric": "late", "reports": []}, "empty: a batch without reports"),
        ({"metric": "late", "reports": [GOOD], "revision": 7}, f"expected {LATE.revision}"),
        ({"metric": "late", "reports": [GOOD], "batch_id": "7"}, "batch_id = '7': expected 32"),
        *(
            ({"metric": "late", "reports": [GOOD], "batch_id": start.ljust(32, "0")}, "expected 32")
            for start in ("0x1c", "+f1c", " +1c", "f_1c", "\uff16f1c")
        ),
        ({"metric": "late", "reports": [GOOD], "time": "now"}, "time = 'now': expected ISO 8601"),
        ({"metric": "late", "reports": [GOOD], "time": "2026-01-31"}, "with a time zone"),
        ({"metric": "late", "reports": [GOOD], "time": -1}, "time -1.0: expected a time after"),
        ({"metric": "late", "reports": [GOOD], "time": PANE_MS}, "not milliseconds"),
        ({"metric": "late", "reports": [GOOD], "attributes": {"os": 7}}, "got `int` - at `$.attr"),
        ({"metric": "late", "reports": [GOOD], "attributes": {"os": "x" * 65}}, "of 64 bytes at"),
        ({"metric": "late", "reports": [GOOD], "attributes": MANY}, "17 attributes: expected 16"),
        ({"metric": "late", "reports": [{"report": 1}]}, "reports[0]: expected one of level and"),
        ({"metric": "late", "reports": [GOOD | {"epsilon": 1}]}, "expected one of level and"),
        ({"metric": "late", "reports": [GOOD, {"level": 4, "report": 1}]}, "reports[1].level = 4"),
        ({"metric": "late", "reports": [{"level": -1, "report": 1}]}, "expected 0 to 3"),
        ({"metric": "late", "reports": [{"epsilon": 0.7, "report": 1}]}, "one of [0.5, 1, 2, 4]"),
        ({"metric": "late", "reports": [{"level": 1, "report": 2}]}, "report 2: expected 0 or 1"),
        ({"metric": "late", "reports": [{"level": 1, "report": -1}]}, "reports = -1: expected"),
        ({"metric": "late", "reports": [{"level": 1, "report": 2**70}]}, "integers from 0 to 255"),
        ({"metric": "late", "reports": [{"level": 1, "report": 0.5}]}, "got `float`"),
        ({"metric": "late", "reports": [{"level": 1, "report": [1]}]}, "is a list of 1 integers"),
        ({"metric": "carrier", "reports": [GOOD]}, "expected a list of 2 integers for rappor"),
        ({"metric": "carrier", "reports": [{"level": 1, "report": [1, 7]}]}, "last byte 7"),
    ],
)  # fmt: skip
def test_json_that_cannot_be_counted_is_refused_and_says_why(
    refusing: Post, given: Any, said: str
) -> None:
    answer = refusing.json(given)
    assert answer.status_code == 400
    assert said in problem(answer)["detail"]


def test_a_batch_with_more_reports_than_the_metric_allows_is_refused(broker: Broker) -> None:
    small, topic = dataclasses.replace(LATE, max_batch_reports=2), broker.topic()
    bodies = [encode_batch(LATE, [1] * size, [1] * size, PANE_MS) for size in (2, 3)]
    gateway = Gateway({"late": small}, broker.config, topic)
    with serving(gateway) as url, httpx.Client() as client:
        post = Post(url, client)
        for size, body in zip((2, 3), bodies, strict=True):
            for answer in (
                post.batch(body),
                post.json({"metric": "late", "reports": [GOOD] * size}),
            ):
                assert answer.status_code == (202 if size == 2 else 400)
                if size == 3:
                    told = problem(answer)
                    assert "3 reports in one batch: late allows 2" in told["detail"]
                    assert "several batches" in told["remedy"]


@pytest.mark.parametrize("body", [b"{", b"", b"\xff", b'{"metric": "\xff"}', b"[" * 10_000])
def test_what_is_not_json_is_refused(refusing: Post, body: bytes) -> None:
    answer = refusing.batch(body, JSON)
    assert answer.status_code == 400
    assert re.match("not |an empty body|a list", problem(answer)["detail"])


@pytest.mark.parametrize(
    "given",
    [
        {"metric": "late", "value": 1, "epsilon": 1},
        {"metric": "late", "values": [1], "epsilon": 1},
        {"metric": "late", "reports": [{"level": 1, "value": 1}]},
    ],
)
def test_a_true_value_is_refused_with_what_to_do_instead(refusing: Post, given: Any) -> None:
    answer = refusing.json(given)
    assert answer.status_code == 400
    found = problem(answer)
    assert "a true value" in found["detail"]
    assert "randomize it on the device" in found["remedy"]


def test_other_media_types_encodings_and_methods_are_refused(post: Post) -> None:
    answer = post.batch(one_report(), "text/plain")
    assert answer.status_code == 415
    assert answer.headers["accept-post"] == "application/x-protobuf, application/json"
    assert "text/plain" in problem(answer)["detail"]
    for encoding in ("br", "gzip, gzip"):
        answer = post.batch(one_report(), **{"Content-Encoding": encoding})
        assert answer.status_code == 415
        assert answer.headers["accept-encoding"] == "gzip, zstd"
        assert encoding in problem(answer)["detail"]
    assert post.batch(one_report(), "Application/X-Protobuf; v=1").status_code == 202
    assert post.client.get(post.url).status_code == 405


def chunks(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), 10_000):
        yield body[start : start + 10_000]


def test_a_body_may_come_in_pieces_but_not_without_end(broker: Broker, topic: str) -> None:
    level = np.ones(40_000, dtype=int)
    body = encode_batch(LATE, level, level, PANE_MS)
    served = Gateway(ALL, broker.config, topic, max_body=100_000)
    with serving(served) as url, httpx.Client() as client:
        headers = {"Content-Type": PROTOBUF}
        assert client.post(url, content=chunks(body), headers=headers).status_code == 202
        for content in (body * 2, chunks(body * 2)):
            answer = client.post(url, content=content, headers=headers)
            assert answer.status_code == 413
            assert "expected at most 100000 bytes" in problem(answer)["detail"]
        assert served.in_flight == 0
    assert LATE.counts(count(LATE, broker.batches(topic))).tolist() == [0, 40_000, 0, 0]


def test_a_small_body_of_unknown_length_is_measured_too(broker: Broker, topic: str) -> None:
    level = np.ones(1000, dtype=int)
    body = encode_batch(LATE, level, level, PANE_MS)
    with serving(Gateway(ALL, broker.config, topic, max_body=500)) as url, httpx.Client() as client:
        answer = client.post(url, content=chunks(body), headers={"Content-Type": PROTOBUF})
        assert answer.status_code == 413


def test_a_batch_that_is_too_large_for_kafka_is_refused_at_once(broker: Broker, topic: str) -> None:
    config = {**broker.config, "message.max.bytes": 1000}
    level = np.ones(2000, dtype=int)
    body = encode_batch(LATE, level, level, PANE_MS)
    with serving(Gateway(ALL, config, topic)) as url, httpx.Client() as client:
        answer = Post(url, client).batch(body)
        assert answer.status_code == 413
        assert "several batches" in problem(answer)["remedy"]


def test_a_length_that_is_told_in_two_ways_is_refused(broker: Broker, topic: str) -> None:
    level = np.ones(1000, dtype=int)
    body = encode_batch(LATE, level, level, PANE_MS)
    head = (
        b"POST /v1/reports HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
        b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with serving(Gateway(ALL, broker.config, topic)) as url:
        place = httpx.URL(url)
        with socket.create_connection((place.host, place.port or 80), timeout=30) as client:
            client.sendall(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            answer = client.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(("begun", "ends"), [(b"", "stalls"), (b"{", "stalls"), (b"{", "leaves")])
def test_a_body_that_does_not_come_holds_nothing_for_long(
    broker: Broker, topic: str, begun: bytes, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "BODY_SECONDS", 0.3 if ends == "stalls" else 20)
    served = Gateway(ALL, broker.config, topic)
    with serving(served) as url:
        where = httpx.URL(url)
        with socket.create_connection((where.host, where.port), timeout=20) as device:
            device.sendall(
                b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: 1000\r\n\r\n" + begun
            )
            if ends == "leaves":
                wait_until(lambda: served.in_flight > 0, "the post began")
            else:
                assert device.recv(100).startswith(b"HTTP/1.1 408")
        wait_until(lambda: served.in_flight == 0, "nothing is held")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(2000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"still not: {what}")


@pytest.fixture
def silent() -> Iterator[dict[str, Any]]:
    """A Kafka that takes connections and says nothing, as one that is frozen."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        port = server.getsockname()[1]
        yield {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}


def test_posts_to_a_kafka_that_is_away_are_refused_at_once() -> None:
    served = Gateway(ALL, NOWHERE, "reports", acknowledge_timeout=PROMPT_SECONDS + 1)
    key = new_batch_id()
    with serving(served) as url, httpx.Client(timeout=30) as client:
        post, began = Post(url, client), time.monotonic()
        answer = post.batch(one_report(key))
        assert time.monotonic() - began < PROMPT_SECONDS, "not after the ten of a slow Kafka"
        assert answer.status_code == 504
        assert f"it is unknown whether it has batch {key.hex()}" in problem(answer)["detail"]
        assert "post the same batch again" in problem(answer)["remedy"]
        assert int(answer.headers["retry-after"]) >= 1
        began = time.monotonic()
        refused = post.batch(one_report())
        assert time.monotonic() - began < AT_ONCE_SECONDS
        assert refused.status_code == 503
        assert problem(refused)["detail"] == "Kafka does not answer"
        assert int(refused.headers["retry-after"]) >= 1
        assert asyncio.run(served.check_kafka()) == "Kafka does not answer"


def test_a_kafka_that_is_frozen_is_noticed_too(silent: dict[str, Any]) -> None:
    served = Gateway(ALL, silent, "reports", acknowledge_timeout=2 * PROMPT_SECONDS + 1)
    with serving(served) as url, httpx.Client(timeout=30) as client:
        post, began = Post(url, client), time.monotonic()
        assert post.batch(one_report()).status_code == 504
        assert time.monotonic() - began < 2 * PROMPT_SECONDS
        began = time.monotonic()
        assert post.batch(one_report()).status_code == 503
        assert time.monotonic() - began < AT_ONCE_SECONDS


def test_a_gateway_whose_kafka_answers_says_so(broker: Broker, topic: str) -> None:
    served = Gateway(ALL, broker.config, topic)
    with serving(served):
        assert asyncio.run(served.check_kafka()) == ""


def test_while_kafka_is_slow_nothing_is_acknowledged_and_memory_is_bounded(
    silent: dict[str, Any],
) -> None:
    served = Gateway(
        ALL,
        silent,
        "reports",
        rate_limit_bytes="",
        rate_limit_reports="",
        acknowledge_timeout=1.5,
        max_in_flight=400_000,
    )
    key = new_batch_id()
    with serving(served) as url, httpx.Client(timeout=30) as client:
        post = Post(url, client)
        answer = post.batch(one_report(key))
        assert answer.status_code == 504
        assert int(answer.headers["retry-after"]) >= 1
        found = problem(answer)
        assert f"has not acknowledged batch {key.hex()} within 1.5 seconds" in found["detail"]
        assert "post the same batch again" in found["remedy"]

        level = np.ones(100_000, dtype=int)
        large = encode_batch(LATE, level, level, PANE_MS)
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: post.batch(large), range(4)))
        assert sorted(answer.status_code for answer in answers) == [503, 503, 503, 504]
        refused = next(answer for answer in answers if answer.status_code == 503)
        assert int(refused.headers["retry-after"]) >= 1
        assert "wait for Kafka" in problem(refused)["detail"]
        wait_until(lambda: served.in_flight == 0, "nothing is held")


def test_a_full_queue_of_the_kafka_client_is_answered_503() -> None:
    config = {**NOWHERE, "queue.buffering.max.messages": 1}
    served = Gateway(ALL, config, "reports", acknowledge_timeout=1.5)
    with serving(served) as url, httpx.Client(timeout=30) as client:
        with ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda _: Post(url, client).batch(one_report()), range(3)))
        assert sorted(answer.status_code for answer in answers) == [503, 503, 504]
        wait_until(lambda: served.in_flight == 0, "nothing is held")


def test_posts_are_refused_until_the_topic_is_there(
    broker: Broker,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("producers.gateway.sender.PREPARE_AGAIN_SECONDS", 0.05)
    there = threading.Event()

    def prepare() -> None:
        if not there.is_set():
            raise RuntimeError("no broker answers at kafka:9092")

    served = Gateway(ALL, broker.config, topic, prepare=prepare)
    with serving(served) as url, httpx.Client() as client:
        post = Post(url, client)
        answer = post.batch(one_report())
        assert answer.status_code == 503
        assert problem(answer)["detail"] == "Kafka does not answer yet"
        assert "kafka:9092" not in answer.text, "addresses are for the log"
        wait_until(lambda: "no broker answers at kafka:9092" in caplog.text, "the log tells why")
        there.set()
        wait_until(lambda: post.batch(one_report()).status_code == 202, "it is taken")
    assert len(broker.read(topic)) == 1


def test_a_client_that_posts_too_often_is_told_when_to_go_on(broker: Broker, topic: str) -> None:
    served = Gateway(ALL, broker.config, topic, rate_limit="3/minute")
    with serving(served) as url, httpx.Client() as client:
        post = Post(url, client)
        answers = [post.batch(one_report()) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [202, 202, 202, 429]
        assert 1 <= int(answers[3].headers["retry-after"]) <= 60
        assert "more than 3 posts per 1 minute from 127.0.0.1" in problem(answers[3])["detail"]
    assert len(broker.read(topic)) == 3


def test_a_client_that_reports_too_much_is_told_when_to_go_on(broker: Broker, topic: str) -> None:
    limited = {
        "bytes": Gateway(ALL, broker.config, topic, rate_limit_bytes="5000/minute"),
        "reports": Gateway(ALL, broker.config, topic, rate_limit_reports="600/minute"),
    }
    for unit, served in limited.items():
        ones = np.ones(1500 if unit == "bytes" else 400, dtype=int)
        with serving(served) as url, httpx.Client() as client:
            headers = {"Content-Type": PROTOBUF}
            bodies = [encode_batch(LATE, ones, ones, PANE_MS) for _ in range(3)]
            first = client.post(url, content=chunks(bodies[0]), headers=headers)
            others = [client.post(url, content=body, headers=headers) for body in bodies[1:]]
            codes = [answer.status_code for answer in (first, *others)]
            assert codes == [202, 202, 429]
            assert f"{unit} per 1 minute from 127.0.0.1" in problem(others[-1])["detail"]
            assert served.in_flight == 0


def test_others_are_answered_while_a_large_body_is_checked(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, read = threading.Event(), threading.Event(), bodies.read_batch

    def read_slowly(*args: Any) -> Any:
        begun.set()
        assert go_on.wait(30)
        return read(*args)

    monkeypatch.setattr("producers.gateway.gateway.read_batch", read_slowly)
    ones = np.ones(50_000, dtype=int)
    large = encode_batch(LATE, ones, ones, PANE_MS)
    beside = [Route("/healthz", lambda _: PlainTextResponse("alive"))]
    served = Gateway(ALL, broker.config, topic)
    with (
        serving(served, beside) as url,
        httpx.Client(timeout=30) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(Post(url, client).batch, large)
        try:
            assert begun.wait(30)
            assert http_client.get(str(httpx.URL(url).join("/healthz")), timeout=10).text == "alive"
        finally:
            go_on.set()
        assert waiting.result().status_code == 202


def test_a_producer_that_failed_for_good_is_replaced(broker: Broker, topic: str) -> None:
    served = Gateway(ALL, broker.config, topic)
    with serving(served) as url, httpx.Client() as client:
        post = Post(url, client)
        assert post.batch(one_report()).status_code == 202
        first = served._sender._connection
        assert first is not None
        served._sender.replace_failed()
        assert post.batch(one_report()).status_code == 202
        assert served._sender._connection is not first
        wait_until(lambda: first.closed, "the first connection is closed")
    assert len(broker.read(topic)) == 2


def test_what_was_posted_before_the_end_is_still_acknowledged(broker: Broker, topic: str) -> None:
    served = Gateway(ALL, {**broker.config, "linger.ms": 500}, topic)
    with ThreadPoolExecutor(1) as pool, httpx.Client() as client:
        with serving(served) as url:
            waiting = pool.submit(Post(url, client).batch, one_report())
            wait_until(lambda: served.in_flight > 0, "the post is under way")
        assert waiting.result().status_code == 202
    assert len(broker.read(topic)) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rate_limit": "often"}, "rate_limit = 'often': expected a rate such as '100/second'"),
        ({"max_body": 0}, "max_body = 0"),
        ({"max_body": 2000, "max_in_flight": 2000}, "4096 fewer than max_in_flight = 2000"),
        ({"acknowledge_timeout": 0}, "acknowledge_timeout = 0"),
    ],
)
def test_limits_that_cannot_be_used_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Gateway(ALL, NOWHERE, "reports", **options)


def test_times_that_workers_would_refuse_are_refused_before_they_reach_kafka(
    broker: Broker, topic: str
) -> None:
    """Nobody can fill the dead letters, or a quiet partition, with posts of another time."""
    served = Gateway(ALL, broker.config, topic, times=Times(future=600, past=86_400))
    given = {"metric": "late", "reports": [{"epsilon": 1, "report": 0}]}
    now = time.time()
    level = LATE.level_of([1.0])
    with serving(served) as url, httpx.Client() as client:
        post = Post(url, client)
        for at, told in (
            (
                now + 700,
                r"future: .* of 20.*Z, .* in the future: expected at most 600 \(aggregate.future\)",
            ),
            (
                now - 90_000,
                r"too_old: .* of 20.*Z, .* in the past: expected at most 86,400 \(aggregate.past\)",
            ),
        ):
            body = encode_batch(LATE, level, LATE.randomize([0], level), int(at * 1000))
            for answer in (post.json({**given, "time": at}), post.batch(body)):
                assert answer.status_code == 400, answer.text
                assert re.search(told, answer.json()["detail"]), answer.text
                assert "clock" in answer.json()["remedy"]
        assert broker.read(topic) == []
        for at in (now + 300, now - 80_000):
            assert post.json({**given, "time": at}).status_code == 202
        assert post.json(given).status_code == 202, "without a time: that of arrival"
    assert len(broker.read(topic)) == 3
