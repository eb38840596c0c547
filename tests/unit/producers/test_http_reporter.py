"""What a device that reports over HTTP may rely on."""

import asyncio
import atexit
import dataclasses
import json
import os
import re
import socket
import sqlite3
import stat
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from aggregator.reading.serialization import definition
from estimators import LocalMetric, Metric, SearchMetric, define
from estimators.extremes import Progress
from estimators.limits import LARGEST_ANSWER
from estimators.metrics.loading import definition_of, metrics_of
from producers import (
    AsyncHttpReporter,
    AsyncReporter,
    DefinitionChanged,
    DeliveryError,
    Failure,
    GatewayError,
    HttpConnection,
    HttpReporter,
    Ledger,
    QueueError,
    Reporter,
    RollUp,
)
from producers.delivery.batches import Columns, PendingBatch
from producers.device.rounds import Round, decode, encode
from producers.gateway import Gateway
from producers.gateway.problems import Problem
from producers.http import gateway_answers, gateway_client
from producers.http.definitions import read_served
from producers.http.gateway_answers import Verdict
from producers.http.gateway_client import GatewayClient
from producers.http.report_queue import (
    LONGEST_FAILING_MS,
    MOST_ERRORS,
    BatchRule,
    ReportQueue,
    Totals,
)
from producers.ledger.ledger_file import _TRANSACTION_LOCK
from tests.support.axes import CRASH, LIES
from tests.support.clocks import Clock, wait_until
from tests.support.metrics import BY_COUNTRY, frequency_metric, mean_metric
from tests.support.paths import ROOT
from tests.support.rows import row
from tests.support.running.broker import CARRIER, DELAY, LATE, METRICS, PLACE, WORDS, Broker, count
from tests.support.running.flaky_gateway import FAULTS, FlakyGateway, listed
from tests.support.running.gateway_server import serving
from tests.support.running.processes import run
from tests.support.running.scripted_server import ScriptedServer

PAY = define(name="pay", kind="mean", trust="central", range=(0, 9), levels=[1])
LONGEST = define(
    name="longest", kind="maximum", range=(0, 128), levels=[1, 2], rounds=7, split="budget"
)
SLICED = mean_metric(
    "sliced", "laplace", (0, 1), [1], pane="7s", by_pane="14s", max_batch_reports=3, **BY_COUNTRY
)
FOUND = define(
    name="found", kind="frequency", categories="open", discover=True, preset="upper", levels=[1, 2]
)
SPREAD = define(
    name="spread", kind="distribution", range=(1, 100), scale="log", levels=[1, 2], bins=64
)
MEMOIZED = frequency_metric("kept", "oue", 5, [0.5, 3], memoized=True)
CHOSEN = define(name="chosen", kind="frequency", mechanism="auto", categories=40, levels=[0.5, 3])
EVERY = [*METRICS, PLACE, WORDS, PAY, LONGEST, SLICED, FOUND, SPREAD, MEMOIZED, CHOSEN, CRASH]
NOWHERE = "http://127.0.0.1:9"


def served(metric: Metric) -> bytes:
    """Return a metric's definition as `GET /v1/metrics/NAME` answers."""
    return msgspec.json.encode(definition(metric))


class Service(ScriptedServer):
    """A gateway, beside it definitions that may have moved, and a gateway that fails."""

    def __init__(self, broker: Broker, topic: str) -> None:
        super().__init__(*EVERY)
        self.broker, self.topic = broker, topic
        opened = Round.of(SearchMetric.require(LONGEST), Progress(), 0)
        self.definitions["longest/round"] = encode(opened)
        self.requests: list[dict[str, str]] = []
        self.moved: dict[str, Response] = {}

    async def answer(self, request: Request) -> ASGIApp:
        self.requests.append(dict(request.headers))
        answer = self.moved.get(request.path_params["path"]) or await super().answer(request)
        if request.method == "GET" and isinstance(answer, Response):
            answer.headers["ETag"] = '"marks a device"'
        return answer

    def counted(self, metric: Metric) -> int:
        return sum(
            len(b.levels) for b in self.broker.batches(self.topic) if b.metric == metric.name
        )


@pytest.fixture
def service(broker: Broker, topic: str) -> Iterator[Service]:
    found = Service(broker, topic)
    gateway = Gateway({metric.name: metric for metric in EVERY}, broker.config, topic)
    with serving(gateway, [found.route(), found.route("/failing")]) as url:
        found.url = url.removesuffix("/v1/reports")
        yield found


@pytest.fixture
def way(service: Service) -> Iterator[FlakyGateway]:
    with FlakyGateway(urlsplit(service.url).port or 0) as flaky:
        yield flaky


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_answers, "FIRST_PAUSE", 0.01)


# -- Reports arrive -------------------------------------------------------------------------------


def test_reports_arrive_and_are_counted(service: Service, tmp_path: Path) -> None:
    with HttpReporter(LATE, service.url, queue=tmp_path / "queue") as reporter:
        reporter.report([1.0, 0.0, 1.0], epsilon=[0.5, 1, 9])
        reporter.flush()
        assert reporter.delivered.reports == 3
        assert reporter.delivered.batches == 1
        assert reporter.totals.left == 0
    assert LATE.counts(count(LATE, service.broker.batches(service.topic))).tolist() == [1, 1, 0, 1]


def test_a_batch_is_full_old_or_of_another_pane_or_slice(service: Service) -> None:
    with HttpReporter(SLICED, service.url, attributes={"country": "DE"}) as reporter:
        reporter.report([0.5] * 7, epsilon=1, time=[700.0] * 7)
        reporter.report([0.5], epsilon=1, time=700.0, attributes={"country": "GB"})
        reporter.report([0.5], epsilon=1, time=707.0)
        wait_until(lambda: reporter.delivered.reports >= 6, "full batches leave by themselves")
        reporter.flush()
    found = service.broker.batches(service.topic)
    shown = sorted((len(b.levels), b.time_ms, b.attributes[0].value) for b in found)
    assert shown == [
        (1, 700_000, "DE"),
        (1, 700_000, "other"),
        (1, 707_000, "DE"),
        (3, 700_000, "DE"),
        (3, 700_000, "DE"),
    ]


def test_network_faults_leave_every_report_once(service: Service, way: FlakyGateway) -> None:
    for number, fault in enumerate(FAULTS, 1):
        way.fault = listed([fault] * 2)
        with row(fault), HttpReporter(DELAY, way.url) as reporter:
            for _ in range(3):
                reporter.report([5.0] * 4, epsilon=1)
                reporter.connection.queue.seal()
            reporter.flush(60)
            assert reporter.delivered.reports == 12
            assert way.done[fault] == 2
            batches = {b.batch_id: len(b.levels) for b in service.broker.batches(service.topic)}
            assert sum(batches.values()) == 12 * number


def test_it_waits_for_as_long_as_it_is_asked_to(service: Service, way: FlakyGateway) -> None:
    told: list[Failure] = []
    way.fault = listed(["too_many"])
    with HttpReporter(LATE, way.url, on_failure=told.append) as reporter:
        reporter.report(1.0, epsilon=1)
        began = time.monotonic()
        reporter.flush()
        assert time.monotonic() - began >= 1
    assert [(each.kind, each.status, each.metric) for each in told] == [("delivery", 429, "late")]
    assert 1 <= told[0].retry_in <= 1.25


def test_what_an_answer_means_is_in_the_gateways_own_words() -> None:
    key, told = bytes(16), b'{"batch_id": "%b"}' % (b"0" * 32)
    problem = "application/problem+json"
    for status, media_type, retry_after, body, expected in (
        (202, "application/json", "", told, Verdict.ACCEPTED),
        (202, "application/json", "", told.replace(b"0", b"1"), Verdict.AGAIN),
        (200, "application/json", "", told, Verdict.AGAIN),
        (400, problem, "", b'{"detail": "no"}', Verdict.REFUSED),
        (422, problem, "", b'{"detail": "no"}', Verdict.REFUSED),
        (400, problem, "", b'{"status": 400}', Verdict.FAILED),
        (400, "text/html", "", b'{"detail": "no"}', Verdict.FAILED),
        (401, problem, "", b'{"detail": "no"}', Verdict.AGAIN),
        (429, "", "", b"", Verdict.AGAIN),
        (500, "", "", b"", Verdict.FAILED),
        (500, "", "1", b"", Verdict.AGAIN),
    ):
        with row(status, media_type, retry_after, body):
            answer = gateway_answers.GatewayAnswer(status, media_type, retry_after, "", body)
            assert gateway_answers.verdict(answer, key) is expected


def test_pauses_double_to_a_minute_with_a_random_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_answers, "FIRST_PAUSE", 1.0)
    for failures, least in ((1, 1), (2, 2), (5, 16), (9, 60), (10**9, 60)):
        drawn = {gateway_answers.pause(failures, None) for _ in range(50)}
        assert len(drawn) > 40
        assert all(least <= each <= 1.25 * least for each in drawn)
    assert 30 <= gateway_answers.pause(1, 30) <= 37.5
    assert gateway_answers.asked_pause("9" * 20, 0.0) == gateway_answers.LONGEST_PAUSE
    assert gateway_answers.asked_pause("Thu, 01 Jan 1970 00:00:10 GMT", 100.0) == 0


def test_a_refused_batch_is_told(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Failure] = []

    def tell(failure: Failure) -> None:
        told.append(failure)
        raise KeyError("what an application raises here stops nothing")

    unknown = define(name="unknown", kind="mean", mechanism="laplace", range=(0, 1), levels=[1])
    with HttpConnection(service.url, on_failure=tell) as connection:
        refused, late = HttpReporter(unknown, connection), HttpReporter(LATE, connection)
        refused.report([0.5, 0.5], epsilon=1)
        refused.connection.queue.seal()
        late.report(1.0, epsilon=1)
        connection.flush()
        assert (refused.totals.refused, refused.totals.left) == (2, 0)
        assert late.delivered.reports == 1
    assert [each.kind for each in told] == ["delivery", "delivery", "refused"]
    assert "metric 'unknown' is not defined here" in told[-1].detail
    assert "GET /v1/metrics lists the metrics" in caplog.text
    assert "on_failure raised an error" in caplog.text


def test_a_batch_that_fails_by_itself_keeps_no_other_waiting(service: Service) -> None:
    told: list[Failure] = []
    service.failing["late"] = Problem(404, "no").response("/")
    with HttpConnection(f"{service.url}/failing", on_failure=told.append) as connection:
        late, carrier = HttpReporter(LATE, connection), HttpReporter(CARRIER, connection)
        late.report(1.0, epsilon=1)
        connection.queue.seal()
        for _ in range(3):
            carrier.report(["AA"], epsilon=1)
            connection.queue.seal()
        wait_until(lambda: carrier.totals.left == 0, "the others' reports arrive")
        assert (late.totals.left, carrier.totals.delivered) == (1, 3)
        assert {(each.kind, each.metric) for each in told} == {("delivery", "late")}
        service.failing.clear()
        connection.flush()
        assert late.totals.delivered == 1


@pytest.mark.parametrize("is_own_word", [True, False], ids=["gateway", "proxy"])
def test_a_batch_that_failed_for_a_week_is_told(service: Service, is_own_word: bool) -> None:
    told: list[Failure] = []
    own, other = Problem(404, "no").response("/"), Response("no", 404)
    service.failing["late"] = own if is_own_word else other
    with HttpConnection(f"{service.url}/failing", on_failure=told.append) as connection:
        late = HttpReporter(LATE, connection, batch_age=0)
        late.report([1.0, 0.0], epsilon=1)
        wait_until(lambda: bool(told), "it failed")
        week = (MOST_ERRORS, LONGEST_FAILING_MS)
        with connection.queue.file.transaction() as database:
            database.execute("UPDATE failing SET errors = ?, since_ms = since_ms - ?", week)
        with nullcontext() if is_own_word else pytest.raises(DeliveryError):
            connection.flush(timeout=60 if is_own_word else 1)
        wait_until(lambda: len(told) > 1, "the application is told")
        assert {each.kind for each in told[:-1]} == {"delivery"}
        assert told[-1].kind == ("refused" if is_own_word else "delivery")
        assert (late.totals.refused, late.totals.left) == ((2, 0) if is_own_word else (0, 2))
        service.failing.clear()


# -- The queue ------------------------------------------------------------------------------------


def test_what_was_not_acknowledged_is_sent_after_a_restart(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with HttpReporter(LATE, NOWHERE, queue=tmp_path / "queue") as reporter:
        reporter.report([1.0] * 5, epsilon=1)
        began = time.monotonic()
        assert reporter.close(90) == 5
        assert time.monotonic() - began < 60
    assert "5 reports in 1 batches wait in" in caplog.text
    with HttpReporter(CARRIER, service.url, queue=tmp_path / "queue") as other:
        wait_until(lambda: other.connection.queue.left() == (0, 0), "others' reports left")
    assert service.counted(LATE) == 5


def test_a_queue_in_memory_tells_what_is_lost() -> None:
    reporter = HttpReporter(LATE, NOWHERE, batch_age=0)
    reporter.report([1.0] * 5, epsilon=1)
    wait_until(lambda: reporter.failures > 0, "an attempt fails")
    with ThreadPoolExecutor(2) as pool:  # the second one waits for the first
        closings = [pool.submit(reporter.close, 0.3) for _ in range(2)]
    for each in closings:
        with pytest.raises(DeliveryError, match=r"5 reports in 1 batches .* the gateway") as lost:
            each.result()
        assert not lost.value.kept
        assert "Connection refused" in str(lost.value)


def test_no_handler_of_the_log_ends_the_thread_that_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producers.delivery.thread_log.logger.log", lambda *_, **__: 1 / 0)
    reporter = HttpReporter(LATE, NOWHERE)
    reporter.connection.background.serve(lambda: 1 / 0)
    atexit.unregister(reporter.connection._at_exit)
    reporter.report(1.0, epsilon=1)
    while reporter.failures < 2:
        with pytest.raises(DeliveryError):
            reporter.flush(0.3)


def test_close_does_not_wait_for_whoever_has_a_file(tmp_path: Path) -> None:
    clock, (queue, book) = Clock(86_400.0 * 20_000), (tmp_path / "queue", tmp_path / "ledger")
    metric, ledger = dataclasses.replace(LATE, lateness="1d"), Ledger(book, budget=9)
    reporter = HttpReporter(metric, NOWHERE, queue=queue, batch_age=100)
    reporter.report([1.0, 0.0], epsilon=1)
    RollUp(reporter, "count", "1h", 1, clock=clock, ledger=ledger)
    with closing(sqlite3.connect(queue)) as one, closing(sqlite3.connect(book)) as other:
        other.execute("BEGIN IMMEDIATE")
        clock.now, reporter._next_look = clock.now + 7200, 0.0
        reporter.connection.background.wake()
        wait_until(_TRANSACTION_LOCK.locked, "a look waits for the ledger")
        one.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        assert reporter.close(0.5) == 2
        assert time.monotonic() - began < 20, "a file that is locked is waited for longer"
    with HttpReporter(metric, NOWHERE, queue=queue) as reporter:
        assert reporter.totals.left >= 2, "nothing is lost"


def test_what_is_charged_is_sent_before_closing(broker: Broker, topic: str, tmp_path: Path) -> None:
    class SlowLedger(Ledger):
        def spend(self, *arguments: Any, **options: Any) -> None:
            super().spend(*arguments, **options)
            charged.set()
            assert go_on.wait(60)

    own = HttpReporter(LATE, NOWHERE, queue=tmp_path / "own")
    shared = HttpConnection(NOWHERE, queue=tmp_path / "shared")
    over_kafka = Reporter(LATE, broker.config, topic=topic)
    cases: Any = [(over_kafka, over_kafka), (own, own), (HttpReporter(LATE, shared), shared)]
    ledger = SlowLedger(tmp_path / "ledger", budget=3)
    for reporter, closed in cases:
        charged, go_on = threading.Event(), threading.Event()
        with row(reporter), ThreadPoolExecutor(2) as pool:
            reported = pool.submit(reporter.report, 1.0, 1, ledger=ledger)
            assert charged.wait(60)
            left = pool.submit(closed.close, 60.0)
            with pytest.raises(ValueError, match="closed"):
                all(reporter.report([], epsilon=1) is None for _ in range(10**6))
            go_on.set()
            reported.result()
            assert left.result() == (None if reporter is over_kafka else 1)
    assert sum(len(batch.levels) for batch in broker.batches(topic)) == 1


def test_a_call_cannot_close_its_reporter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal's handler would wait for the call that it interrupts."""
    uses: list[Any] = [lambda: reporter.close(1.0), lambda: reporter.flush(1.0)]
    reporter: HttpReporter = HttpReporter(LATE, NOWHERE, clock=lambda: uses[0]())
    monkeypatch.setattr(reporter.connection.queue, "seal", lambda *_: uses[0]())
    for name in ("close", "flush"):
        with pytest.raises(RuntimeError, match=f"{name} was called within a call"):
            reporter.report(1.0, epsilon=1)
        with pytest.raises(RuntimeError, match=f"{name} was called within a call"):
            reporter.flush()
        del uses[0]
    monkeypatch.undo()
    assert reporter.close(0.1) == 0


def test_the_file_can_be_read_by_its_owner_alone(tmp_path: Path) -> None:
    with HttpReporter(LATE, NOWHERE, queue=tmp_path / "queue") as reporter:
        reporter.report(1.0, epsilon=1)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert "queue" in modes
    assert set(modes.values()) == {0o600}


def damaged(path: Path) -> None:
    with HttpReporter(LATE, NOWHERE, queue=path) as reporter:
        reporter.report([1.0] * 3000, epsilon=1)
    content = bytearray(path.read_bytes())
    content[4096:12288] = os.urandom(8192)
    path.write_bytes(content)


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE mine (x)")


def test_a_file_that_cannot_be_used_is_told_and_left_as_it_is(tmp_path: Path) -> None:
    told = "this is not a queue of reports"
    for make, expected in (
        (damaged, "the file is damaged .* move it away to begin with an empty one"),
        (Path.touch, told),
        (foreign, told),
        (lambda path: path.write_text("reports" * 1000), told),
    ):
        path = tmp_path / "queue"
        path.unlink(missing_ok=True)
        make(path)
        before = path.read_bytes()
        with row(make), pytest.raises(QueueError, match=expected):
            HttpReporter(LATE, NOWHERE, queue=path)
        assert path.read_bytes() == before
    (others := tmp_path / "others").touch()
    others.chmod(0o666)
    with pytest.raises(QueueError, match=r"mode 0666, .* expected 0600. If nobody has, `chmod 600"):
        HttpReporter(LATE, NOWHERE, queue=others)
    reporter = HttpReporter(LATE, NOWHERE, queue=tmp_path / "taken away")
    (tmp_path / "taken away").unlink()
    for use in (lambda: reporter.report(1.0, epsilon=1), reporter.close):
        with pytest.raises(QueueError, match="removed or replaced while it was in use"):
            use()


def test_a_full_queue_refuses_or_drops_new_reports_that_cost_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", budget=100)
    full: dict[str, Any] = {"most_bytes": 200}
    with HttpReporter(LATE, NOWHERE, queue=tmp_path / "one", **full) as reporter:
        reporter.report([1.0] * 100, epsilon=1)
        with pytest.raises(DeliveryError) as refused:
            reporter.report(1.0, epsilon=1, ledger=ledger)
        assert "the queue is full (200 bytes)" in refused.value.__notes__[0]
        assert (reporter.totals.taken, reporter.totals.dropped) == (100, 0)
    options: Any = full | {"when_full": "drop_new"}
    with HttpReporter(LATE, NOWHERE, queue=tmp_path / "two", **options) as reporter:
        reporter.report([1.0] * 100, epsilon=1)
        reporter.report([1.0] * 7, epsilon=1, ledger=ledger)
        totals = reporter.totals
    assert (totals.taken, totals.dropped, totals.left) == (100, 7, 100)
    assert ledger.accounts()[""].spent == 0


def test_a_full_queue_drops_and_counts_old_batches(service: Service, tmp_path: Path) -> None:
    options: Any = {"queue": tmp_path / "queue", "most_bytes": 300, "when_full": "drop_old"}
    with HttpReporter(LATE, NOWHERE, batch_reports=50, **options) as reporter:
        for _ in range(6):
            reporter.report([1.0] * 50, epsilon=1)
        totals = reporter.totals
        assert totals.taken == 300
        assert 50 <= totals.left < 300
        assert totals.dropped + totals.left == totals.taken
    with HttpReporter(LATE, service.url, **options) as reporter:
        reporter.flush()
    assert service.counted(LATE) == totals.left


def test_a_batch_that_was_dropped_on_its_way_and_arrives_is_delivered() -> None:
    queue = ReportQueue(None, most_bytes=60, when_full="drop_old")
    queue.put("late", PendingBatch(bytes(16), bytes(40), reports=5))
    under_way = queue.oldest()
    queue.put("late", PendingBatch(bytes(16), bytes(40), reports=7))
    assert under_way is not None
    assert queue.totals("late") == Totals(taken=12, dropped=5, left=7)
    queue.acknowledged(under_way)
    assert queue.totals("late") == Totals(12, delivered=5, batches=1, bytes=40, left=7)


def test_reports_do_not_wait_for_a_clock_that_was_set_back() -> None:
    clock = Clock()
    queue, one = ReportQueue(None, clock=clock), np.ones(1, dtype=np.int64)
    reports = Columns(one.astype(np.uint8), one, one)
    queue.add(BatchRule(LATE, reports=9, age_ms=1000), [(0, reports)])
    assert (queue.seal_due(), queue.has_batches()) == (1.0, False)
    clock.now -= 3600
    assert (queue.seal_due(), queue.has_batches()) == (float("inf"), True)


# -- Definitions ----------------------------------------------------------------------------------


def test_every_definition_means_the_same_over_http() -> None:
    for metric in EVERY:
        with row(metric.name):
            found = read_served(served(metric), metric.name)
            assert (found.canonical, found.axes) == (metric.canonical, metric.axes)
            assert (found.pane_ms, found.lateness_ms) == (metric.pane_ms, metric.lateness_ms)
            assert found.max_batch_reports == metric.max_batch_reports
            assert (found.slicing is None) == (metric.slicing is None)
            if found.slicing is not None and metric.slicing is not None:
                assert found.slicing.attributes == metric.slicing.attributes


def test_a_definition_is_fetched_once_and_kept(service: Service, tmp_path: Path) -> None:
    with HttpReporter("late", service.url, queue=tmp_path / "queue") as reporter:
        assert reporter.metric.fingerprint == LATE.fingerprint
    assert service.asked == ["metrics/late"]
    with HttpReporter("late", NOWHERE, queue=tmp_path / "queue") as reporter:
        reporter.report(1.0, epsilon=1)
    with pytest.raises(ValueError, match="closed"):
        reporter.report(1.0, epsilon=1)


def test_a_definition_that_is_not_known_needs_a_gateway_that_has_it(service: Service) -> None:
    with pytest.raises(GatewayError, match=r"no answer .*\): check the address, the network"):
        HttpReporter("late", NOWHERE)
    with pytest.raises(GatewayError, match="GET /v1/metrics/missing: 404"):
        HttpReporter("missing", service.url)
    service.definitions["late"] = service.definitions["delay"]
    with pytest.raises(GatewayError, match=f"{service.url}: .* described 'delay'"):
        HttpReporter("late", service.url)
    headers = {"Location": "https://elsewhere.example/"}
    service.moved["metrics/late"] = PlainTextResponse("", 307, headers=headers)
    with pytest.raises(GatewayError, match=r"redirected to 'https://elsewhere.example/'"):
        HttpReporter("late", service.url)


def test_a_definition_that_changed_its_meaning_is_refused(service: Service, tmp_path: Path) -> None:
    queue, ledger = tmp_path / "queue", Ledger(tmp_path / "ledger", budget=9)
    HttpReporter("late", service.url, queue=queue).close()
    changed = mean_metric("late", "randomized_response", (0, 5), [0.5, 1])
    service.definitions["late"] = served(changed)
    told: list[Failure] = []
    with HttpReporter("late", service.url, queue=queue, on_failure=told.append) as reporter:
        wait_until(lambda: reporter.failures > 0, "the change was noticed")
        with pytest.raises(DefinitionChanged, match="another name"):
            reporter.report(1.0, epsilon=1, ledger=ledger)
        assert reporter.totals.taken == 0
    assert told[0].kind == "definition"
    assert ledger.accounts()[""].spent == 0


def test_what_a_dishonest_gateway_says_is_refused() -> None:
    for lie, told in (
        ({"categories": 10**9}, "expected their names"),
        ({"name": "other"}, "the gateway described 'other'"),
        ({"revision": 7}, r"revision 7: expected \d+, by what the definition says"),
        ({"revision": None}, "revision None"),
        ({"levels": [0.5, 65]}, "levels"),
        ({"levels": ["1"]}, "levels"),
        ({"range": [0, 1e400]}, "not a whole definition"),
        ({"trust": "central"}, "mechanism"),
        ({"mechanism": "none"}, "mechanism"),
        ({"pane_seconds": -1}, "pane"),
        ({"pane_seconds": 1e308}, "not a whole definition"),
        ({"lateness_seconds": -1e308}, "not a whole definition"),
        ({"lateness_seconds": [0]}, "seconds: expected a number"),
        ({"domain": [["range", 1]]}, "not a whole definition"),
        ({"domain": {"name": "x"}}, "late.name"),
        ({"by": ["country"], "attributes": {"country": ["DE\n"]}}, "attributes"),
        ({"axes": 5}, "not a whole definition"),
        ({"axes": {"a": ["x", "y"]}}, "axes of late: expected those whose product"),
        ({"code": {"tokens": [], "lengths": {}}}, "kind|discover|not a whole definition"),
    ):
        with row(lie), pytest.raises(ValueError, match=told):
            read_served(json.dumps(json.loads(served(LATE)) | lie).encode(), "late")
    for axes in LIES:
        with row(axes), pytest.raises(ValueError, match="axes of crash: expected those whose"):
            read_served(json.dumps(json.loads(served(CRASH)) | {"axes": axes}).encode(), "crash")
    hidden = {"domain": {"shares": ["used_x=yes"]}}
    crash = read_served(json.dumps(json.loads(served(CRASH)) | hidden).encode(), "crash")
    assert LocalMetric.require(crash).shares == (), "a device computes nothing for answers"
    for body in (b"", b"[]", b"\xff", b'{"name": "late"}'):
        with row(body), pytest.raises(ValueError, match="not a whole definition"):
            read_served(body, "late")


def test_an_answer_without_end_is_not_read(service: Service) -> None:
    service.definitions["late"] = b" " * 2**22 + b"{}"
    with pytest.raises(GatewayError, match="GET /v1/metrics/late: an answer of more than 4194304"):
        HttpReporter("late", service.url)
    with pytest.raises(ValueError, match="1048577 bytes: expected at most 1048576"):
        decode(b" " * (2**20 + 1))
    asked = Round(
        metric="m", revision=1, number=1, rounds=51, threshold=1, opened_ms=0, decisions=()
    )
    with pytest.raises(ValueError, match="51 rounds of 'm': no metric has them"):
        decode(encode(asked))


DROPS, FLOOD = r"not all of it came within 0\.8 s", "too many bytes around its body"
HEAD = b"HTTP/1.1 100 Continue\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begun", "again", "told"),
    [
        (b"", HEAD, DROPS),
        (b"HTTP/1.1 200 OK\r\n", b"a", DROPS),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"a", DROPS),
        (b"", HEAD * 1000, FLOOD),
        (CHUNKED, b"1;%b\r\na\r\n" % (b"a" * 99) * 1000, FLOOD),
        (CHUNKED + b"0\r\n", b"trailer: a\r\n" * 1000, FLOOD),
    ],
)
def test_a_dripping_answer_is_not_waited_for(
    begun: bytes, again: bytes, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if told == DROPS:
        monkeypatch.setattr(gateway_client, "MOST_STEPS", 0.02)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def drip() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.sendall(begun)
                while True:
                    connection.sendall(again)
                    time.sleep(0.01 if told == DROPS else 0)

        server = threading.Thread(target=drip)
        server.start()
        tracemalloc.start()
        with pytest.raises(GatewayError, match=told):
            GatewayClient(url, timeout=40).post(b"a")
        assert tracemalloc.get_traced_memory()[1] < 4 * LARGEST_ANSWER
        tracemalloc.stop()
        server.join(60)


def test_silent_addresses_share_the_time_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as silent,
        socket.create_server(("127.0.0.1", 0)) as last,
    ):
        full = [socket.socket() for _ in range(3)]  # whoever comes after them waits
        for each in full:
            each.setblocking(False)
            each.connect_ex(silent.getsockname())
        places = [*[silent.getsockname()] * 30, last.getsockname()]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]
        real = socket.getaddrinfo

        def resolved(host: str, *others: Any, **options: Any) -> Any:
            return found if host == "many.example" else real(host, *others, **options)

        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        with pytest.raises(GatewayError, match=r"within 0.4 s"):
            GatewayClient("http://many.example", timeout=0.1).get("late")
        last.setblocking(False)
        with pytest.raises(BlockingIOError):
            last.accept()
        for each in full:
            each.close()


def test_a_device_gives_no_mark_back(service: Service, tmp_path: Path) -> None:
    for asked in (1, 2):
        with HttpReporter("late", service.url, queue=tmp_path / "queue"):
            wait_until(lambda: len(service.requests) == asked, "it asked")  # noqa: B023
    for headers in service.requests:
        assert set(headers) == {"host", "accept-encoding"}


# -- Privacy --------------------------------------------------------------------------------------


def test_nothing_but_reports_is_in_the_file(tmp_path: Path) -> None:
    with HttpReporter(WORDS, NOWHERE, queue=tmp_path / "queue") as reporter:
        reporter.report(["a-secret-word"] * 3, epsilon=1)
    assert all(b"a-secret-word" not in file.read_bytes() for file in tmp_path.iterdir())


def test_a_batch_that_is_gone_is_in_no_file(tmp_path: Path) -> None:
    queue = ReportQueue(tmp_path / "queue", 2000, "drop_old")
    payloads = [bytes([65 + i]) * 900 for i in range(4)]
    for payload in payloads:
        queue.put("pay", PendingBatch(payload[:16], payload, 1))
    oldest = queue.oldest()
    assert oldest is not None
    queue.acknowledged(oldest)
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert [payload[:100] in content for payload in payloads] == [False, False, False, True]
    queue.close()


def test_what_a_reader_keeps_in_the_log_is_gone_after_it(tmp_path: Path) -> None:
    queue, kept = ReportQueue(tmp_path / "queue"), b"A" * 900
    for ending in (queue.left, queue.close):
        queue.put("pay", PendingBatch(bytes(16), kept, 1))
        oldest = queue.oldest()
        assert oldest is not None
        with closing(sqlite3.connect(tmp_path / "queue", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM batches").fetchall()
            queue.acknowledged(oldest)
        ending()
        assert kept not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_a_queue_in_memory_takes_nothing_once_it_is_closed() -> None:
    """A report of another thread would be charged, and lost without a word."""
    queue = ReportQueue(None, 2000)
    queue.close()
    with pytest.raises(QueueError, match="its reports are lost; open a new reporter"):
        queue.put("pay", PendingBatch(b"0" * 16, b"a", 1))


def test_true_values_need_a_word_of_the_application_and_tls() -> None:
    with pytest.raises(ValueError, match="trusted=True"):
        HttpReporter(PAY, "https://telemetry.example.com")
    with pytest.raises(ValueError, match="expected an https:// address"):
        HttpReporter(PAY, "http://telemetry.example.com", trusted=True)
    HttpReporter(PAY, "https://telemetry.example.com", trusted=True).close(0)


def test_a_round_is_answered_once(service: Service, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", budget=9)
    with HttpReporter(LONGEST, service.url) as reporter:
        asked = reporter.open_round()
        assert asked.threshold == 64
        assert [reporter.answer(asked, 17.0, 1, ledger=ledger) for _ in range(3)] == [1, 0, 0]


def test_a_device_loads_no_server_and_sends_what_is_left_at_its_end(service: Service) -> None:
    program = (
        "import sys; from dither import DitherMetricExporter, Gathered, HttpReporter, Ledger\n"
        "for name in ('late', 'delay', 'carrier', 'kept', 'spread', 'found', 'place'):\n"
        "    with HttpReporter(name, sys.argv[1]) as r: pass\n"
        "r = HttpReporter('late', sys.argv[1], batch_age=100); r.report([1, 0], epsilon=1)\n"
        "print([n for n in ('scipy', 'redis', 'starlette', 'uvicorn', 'click', 'structlog', "
        "'prometheus_client', 'pandas', 'confluent_kafka', 'limits', 'producers.gateway', "
        "'requests', 'opentelemetry.proto', 'aggregator') if n in sys.modules])"
    )
    assert run([sys.executable, "-c", program, service.url]) == "[]\n"
    assert service.counted(LATE) == 2


# -- What an application may get wrong ------------------------------------------------------------


def test_what_cannot_be_an_address_or_an_option_is_told() -> None:
    wrong = "localhost:8080 ftp://x https:// http://u:p@x http://x?y http://x:99999 http://x:0 //x"
    for address in (
        *wrong.split(),
        "http://x y",
        "http://[::1",
        "http://x#y",
        "http://x\n",
        "http://x/\xe4",
    ):
        with row(address), pytest.raises(ValueError, match="a gateway's address") as told:
            HttpReporter(LATE, address)
        assert "u:p" not in str(told.value)
    options = {"batch_age": -1, "batch_reports": 0, "timeout": 0, "most_bytes": 0, "when_full": "x"}
    for name, value in options.items():
        with row(name), pytest.raises(ValueError, match=f"{name} = .*: expected"):
            HttpReporter(LATE, NOWHERE, **{name: value})  # type: ignore[arg-type]


# -- The guides -----------------------------------------------------------------------------------


GUIDES = {"python-client": 3, "installing": 1, "roll-ups": 0, "opentelemetry": 0}


@pytest.mark.parametrize("guide", GUIDES)
def test_what_a_guide_prints_works(
    service: Service, guide: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tomllib

    monkeypatch.chdir(tmp_path)
    printed = (ROOT / "docs" / f"{guide}.md").read_text(encoding="utf-8")
    for definitions in re.findall(r"```toml\n(\[metrics\..*?)```", printed, re.DOTALL):
        for name, metric in metrics_of(tomllib.loads(definitions), guide).items():
            others = {"active_day": "1d", "active_month": "28d"} if name == "active_week" else {}
            for each, pane in {name: metric.pane, **others}.items():
                again = define(name=each, **definition_of(metric) | {"pane": pane})
                service.definitions[each] = served(again)
    blocks = re.findall(r"```python\n(.*?)```", printed, re.DOTALL)
    assert blocks
    for block in blocks:
        program = block.replace("http://localhost:8080", service.url)
        assert service.url in program
        exec(compile(program, guide, "exec"), {})  # noqa: S102
    assert service.counted(LATE) == GUIDES[guide]


# -- Coroutines -----------------------------------------------------------------------------------


def test_its_awaitable_twin_does_not_block_the_event_loop(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        reporter = await AsyncHttpReporter(LATE, url, queue=tmp_path / "queue").open()
        await reporter.report([1.0] * 3, epsilon=1)
        closing = asyncio.create_task(reporter.close(1.0))
        await asyncio.sleep(0.01)
        assert not closing.done()
        assert await closing == 3

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(main(f"http://127.0.0.1:{silent.getsockname()[1]}"))


def test_awaitable_twins_report_both_ways(service: Service, broker: Broker, topic: str) -> None:
    async def main() -> None:
        async with AsyncHttpReporter("late", service.url) as over_http:
            await asyncio.gather(*(over_http.report([1.0], epsilon=1) for _ in range(10)))
            await over_http.flush()
            assert (await over_http.delivered()).reports == 10
            assert (await over_http.totals()).left == 0
        reporter = AsyncReporter(LATE, broker.config, topic=topic)
        with pytest.raises(ValueError, match="not open: use `async with`"):
            await reporter.report(1.0, epsilon=1)
        async with reporter:
            await reporter.report([1.0, 0.0], epsilon=1)

    asyncio.run(main())
    assert service.counted(LATE) == 12
