"""What a device that posts its reports may rely on."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import httpx
import numpy as np
import pytest

from estimators import define
from producers.gateway import Gateway, receiving
from producers.gateway.bodies import PROTOBUF_TYPE, Times
from producers.gateway.problems import Problem
from producers.gateway.rate_limits import UNKNOWN_CLIENT
from producers.gateway.receiving import Head
from producers.wire.batch import encode_batch, heartbeat, new_batch_id
from producers.wire.framing import frame
from tests.support.clocks import wait_until
from tests.support.rows import row
from tests.support.running import http_client
from tests.support.running.broker import LATE, METRICS, Broker, count
from tests.support.running.gateway_server import serving

PAY = define(name="pay", kind="mean", trust="central", range=(0, 9), levels=[1])
ALL = {metric.name: metric for metric in [*METRICS, PAY]}
NOWHERE = {"bootstrap.servers": "127.0.0.1:9", "log_level": 0}
PANE_MS = 1_700_000_000_000
PROMPT_SECONDS = 50.0
"""Kafka's client knows in milliseconds that nobody is there, and one question of a second proves
it; the rest is for a busy machine."""
ONE = {"metric": "late", "reports": [{"level": 1, "report": 1}]}


class Post:
    """Posts to a served gateway."""

    def __init__(self, gateway: Gateway, url: str) -> None:
        self.gateway, self.url = gateway, url

    def batch(self, body: Any, media_type: str = PROTOBUF_TYPE, **headers: str) -> httpx.Response:
        headers["Content-Type"] = media_type
        return http_client.post(self.url, content=body, headers=headers)

    def json(self, body: Any) -> httpx.Response:
        return http_client.post(self.url, json=body)


@contextlib.contextmanager
def posting(
    config: dict[str, Any], topic: str, *, behind_proxy: bool = False, **options: Any
) -> Iterator[Post]:
    gateway = Gateway(ALL, config, topic, **options)
    with serving(gateway, behind_proxy=behind_proxy) as url:
        yield Post(gateway, url)


@pytest.fixture
def post(broker: Broker, topic: str) -> Iterator[Post]:
    with posting(broker.config, topic) as found:
        yield found


def one_report(key: bytes | None = None) -> bytes:
    return encode_batch(LATE, [1], [1], PANE_MS, key)


def ones(reports: int) -> bytes:
    level = np.ones(reports, dtype=int)
    return encode_batch(LATE, level, level, PANE_MS)


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """Return a problem, after a look at what all problems have."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["status"] == status
    assert found["instance"] == "/v1/reports"
    assert found["remedy"]
    return found


def test_true_values_of_a_trusted_metric_need_tls(broker: Broker, topic: str) -> None:
    true, https = encode_batch(PAY, [0], [7], PANE_MS), {"X-Forwarded-Proto": "https"}
    with posting(broker.config, topic) as post:
        as_json = {"metric": "pay", "reports": [{"report": 7, "level": 0}]}
        for answer in (post.batch(true), post.json(as_json), post.batch(true, **https)):
            told = problem(answer, 403)  # anybody can say that it came over TLS
            assert "true values" in told["detail"]
            assert "gateway.trusted_without_tls" in told["remedy"]
        assert post.batch(one_report()).status_code == 202, "private reports may come"
    with posting(broker.config, topic, behind_proxy=True) as post:
        assert post.batch(true, **https).status_code == 202, "from a proxy of this machine"
        empty = post.batch(heartbeat(PAY, PANE_MS), **https)
        assert "without reports" in problem(empty, 400)["detail"], "a device closes no pane"
    with posting(broker.config, topic, trusted_without_tls=True) as post:
        assert post.batch(true).status_code == 202
    assert [batch.metric for batch in broker.batches(topic)].count("pay") == 2


def test_a_gateway_frames_what_it_sends_and_takes_both(broker: Broker, topic: str) -> None:
    with posting(broker.config, topic, schema_id=258) as post:
        keys = sorted(new_batch_id() for _ in range(2))
        for body in (one_report(keys[0]), frame(9, one_report(keys[1]))):
            assert post.batch(body).status_code == 202
        assert "bad_frame" in problem(post.batch(b"\0\0\0\0\1\2\2"), 400)["detail"]
    messages = broker.read(topic)
    assert [message.frame for message in messages] == [b"\0\0\0\1\2\0"] * 2
    assert sorted(message.key for message in messages) == keys
    expected = sorted(map(one_report, keys))
    assert sorted(message.batch.SerializeToString() for message in messages) == expected


def test_what_is_refused_does_not_reach_kafka(broker: Broker, topic: str) -> None:
    with posting(broker.config, topic, times=Times(future=600, past=86_400)) as post:
        soon = ONE | {"time": time.time() + 700}
        assert "future: an event time" in problem(post.json(soon), 400)["detail"]
        assert "too_old: an event time" in problem(post.batch(one_report()), 400)["detail"]
        assert "a true value" in problem(post.json(ONE | {"value": 1}), 400)["detail"]
        answer = post.batch(one_report(), "text/plain")
        assert "text/plain" in problem(answer, 415)["detail"]
        assert answer.headers["accept-post"] == "application/x-protobuf, application/json"
        for encoding in ("br", "gzip, gzip"):
            answer = post.batch(one_report(), **{"Content-Encoding": encoding})
            assert encoding in problem(answer, 415)["detail"]
            assert answer.headers["accept-encoding"] == "gzip, zstd"
        assert http_client.get(post.url).status_code == 405
        assert broker.read(topic) == []
        assert post.json(ONE).status_code == 202, "without a time: that of arrival"
    [message] = broker.read(topic)
    assert message.batch.time_ms == 0


def chunks(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), 10_000):
        yield body[start : start + 10_000]


def test_a_body_may_come_in_pieces_but_not_without_end(broker: Broker, topic: str) -> None:
    body = ones(40_000)
    with posting(broker.config, topic, max_body=100_000) as post:
        assert post.batch(chunks(body)).status_code == 202
        for content in (body * 2, chunks(body * 2)):
            assert "expected at most 100000 bytes" in problem(post.batch(content), 413)["detail"]
        assert post.gateway._memory.reserved == 0
    assert LATE.counts(count(LATE, broker.batches(topic))).tolist() == [0, 40_000, 0, 0]
    with posting({**broker.config, "message.max.bytes": 1000}, topic) as post:
        assert "several batches" in problem(post.batch(ones(2000)), 413)["remedy"]
        wait_until(lambda: post.gateway._memory.reserved == 0, "nothing is held")
    with pytest.raises(ValueError, match="4096 fewer than max_in_flight = 6095"):
        Gateway(ALL, NOWHERE, "reports", max_body=2000, max_in_flight=6095)


@pytest.mark.parametrize(("begun", "ends"), [(b"", "stalls"), (b"{", "stalls"), (b"{", "leaves")])
def test_a_body_that_does_not_come_holds_nothing_for_long(
    broker: Broker, topic: str, begun: bytes, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "BODY_SECONDS", 0.3 if ends == "stalls" else 200)
    with posting(broker.config, topic) as post:
        where = httpx.URL(post.url)
        with socket.create_connection((where.host, where.port), timeout=60) as device:
            device.sendall(
                b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: 1000\r\n\r\n" + begun
            )
            if ends == "leaves":
                wait_until(lambda: post.gateway._memory.reserved > 0, "the post began")
            else:
                assert device.recv(100).startswith(b"HTTP/1.1 408")
        wait_until(lambda: post.gateway._memory.reserved == 0, "nothing is held")


@pytest.fixture
def silent() -> Iterator[dict[str, Any]]:
    """A Kafka that takes connections and says nothing, as one that is frozen."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        port = server.getsockname()[1]
        yield {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}


@pytest.mark.parametrize("is_frozen", [False, pytest.param(True, marks=pytest.mark.more)])
def test_posts_to_a_kafka_that_is_away_or_frozen_are_refused_at_once(
    silent: dict[str, Any], is_frozen: bool
) -> None:
    config, key = silent if is_frozen else NOWHERE, new_batch_id()
    with posting(config, "reports", acknowledge_timeout=PROMPT_SECONDS + 1) as post:
        began = time.monotonic()
        answer = post.batch(one_report(key))
        assert time.monotonic() - began < PROMPT_SECONDS, "not when a slow Kafka is given up"
        told = problem(answer, 504)
        assert f"it is unknown whether it has batch {key.hex()}" in told["detail"]
        assert "post the same batch again" in told["remedy"]
        assert int(answer.headers["retry-after"]) >= 1
        began = time.monotonic()
        refused = post.batch(one_report())
        assert time.monotonic() - began < PROMPT_SECONDS
        assert problem(refused, 503)["detail"] == "Kafka does not answer"
        assert asyncio.run(post.gateway.check_kafka()) == "Kafka does not answer"
        post.gateway._sender.timeout = 0  # it ends without a further attempt


def test_slow_kafka_acknowledges_nothing_and_memory_is_bounded(
    silent: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.gateway.sender.DOUBT_SECONDS", 3600.0)
    options: dict[str, Any] = {"rate_limit_bytes": "", "rate_limit_reports": ""}
    options["max_in_flight"] = 400_000
    key = new_batch_id()
    with posting(silent, "reports", acknowledge_timeout=3600, **options) as post:
        post.gateway._sender.timeout = 1.5
        told = problem(post.batch(one_report(key)), 504)
        assert f"has not acknowledged batch {key.hex()} within 1.5 seconds" in told["detail"]
        assert "Kafka has acknowledged no post" in post.gateway.stalled
        large = ones(100_000)
        with ThreadPoolExecutor(4) as pool:
            post.gateway._sender.timeout = 3600
            posts = [pool.submit(post.batch, large) for _ in range(4)]
            wait_until(lambda: sum(map(Future.done, posts)) == 3, "one waits for Kafka")
            post.gateway._sender.timeout = 0
        answers = [each.result() for each in posts]
        assert sorted(answer.status_code for answer in answers) == [503, 503, 503, 504]
        refused = next(answer for answer in answers if answer.status_code == 503)
        assert "wait for Kafka" in problem(refused, 503)["detail"]
        cast(Any, post.gateway._sender._connection).producer.purge()  # as after an hour
        wait_until(lambda: post.gateway._memory.reserved == 0, "nothing is held")


def test_posts_are_refused_until_the_topic_is_there(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("producers.gateway.sender.PREPARE_AGAIN_SECONDS", 0.05)
    there = threading.Event()

    def prepare() -> None:
        if not there.is_set():
            raise RuntimeError("no broker answers at kafka:9092")

    with posting(broker.config, topic, prepare=prepare) as post:
        answer = post.batch(one_report())
        assert problem(answer, 503)["detail"] == "Kafka does not answer yet"
        assert "kafka:9092" not in answer.text, "addresses are for the log"
        wait_until(lambda: "no broker answers at kafka:9092" in caplog.text, "the log tells why")
        there.set()
        wait_until(lambda: post.batch(one_report()).status_code == 202, "it is taken")
    assert len(broker.read(topic)) == 1


def test_a_client_that_posts_too_much_is_told_when_to_go_on(broker: Broker, topic: str) -> None:
    cases: list[tuple[str, dict[str, Any], int]] = [
        ("posts", {"rate_limit": "2/hour"}, 1),
        ("bytes", {"rate_limit_bytes": "5000/hour"}, 1500),
        ("reports", {"rate_limit_reports": "600/hour"}, 400),
    ]
    for unit, limit, reports in cases:
        with row(unit), posting(broker.config, topic, **limit) as post:
            answers = [post.batch(chunks(ones(reports)))]
            answers += [post.batch(ones(reports)) for _ in range(2)]
            assert [answer.status_code for answer in answers] == [202, 202, 429]
            assert f"{unit} per 1 hour from 127.0.0.1" in problem(answers[2], 429)["detail"]
            assert 1 <= int(answers[2].headers["retry-after"]) <= 5400
            assert post.gateway._memory.reserved == 0
    assert len(broker.read(topic)) == 6


def test_a_producer_that_failed_is_replaced(post: Post, broker: Broker, topic: str) -> None:
    sender = post.gateway._sender
    assert post.batch(one_report()).status_code == 202
    first = sender._connection
    assert first is not None
    sender.replace_failed()
    assert post.batch(one_report()).status_code == 202
    assert sender._connection is not first
    wait_until(lambda: first.closed, "the first connection is closed")
    assert len(broker.read(topic)) == 2


def test_reports_of_small_posts_are_counted_too() -> None:
    async def main() -> None:
        limits: dict[str, Any] = {"rate_limit_reports": "1/hour", "acknowledge_timeout": 0.1}
        async with Gateway(ALL, NOWHERE, "reports", **limits) as gateway:
            for _ in range(2):
                head = Head(PROTOBUF_TYPE, 0, "")
                gateway.post_whole(
                    head, one_report(), UNKNOWN_CLIENT, lambda *_: None, is_secret=True
                )

    with pytest.raises(Problem, match="more than 1 reports per 1 hour"):
        asyncio.run(main())
