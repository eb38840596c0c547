"""What asks for much keeps nobody else waiting, and ends when nobody waits for it."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import uvloop

from aggregator.config.settings import Settings
from aggregator.features.reader import Reader
from aggregator.reading.reader import MetricReader
from aggregator.storage.store import Store
from aggregator.web.application import application
from aggregator.web.event_routes import Abortable
from aggregator.web.http import middleware, pools
from aggregator.web.http.middleware import UnreadLimit
from aggregator.web.http.small_posts import PostProtocol
from estimators import load_metrics
from estimators.metrics.domains import Domain
from tests.support.reports.counted import Client, Counting, serving
from tests.support.rows import row
from tests.support.running.deployment import wait_until
from tests.support.running.served_application import Answer, Raw, served, served_application

SERIES = "/v1/metrics/delay/series?step=1m"
LIGHT = ("/v1/metrics", "/v1/metrics/delay", "/v1/metrics/delay/estimate", "/v1/status", "/metrics")


def get(path: str, **headers: str) -> bytes:
    given = {"Host": "localhost", **{name.replace("_", "-"): it for name, it in headers.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode()


class Held:
    """Series that begin, and go on when they may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.ended, self.go_on = threading.Semaphore(0), list[str](), threading.Event()
        read = MetricReader.read_series

        def held(reader: MetricReader, plan: Any, progress: Any) -> Any:
            self.began.release()
            assert self.go_on.wait(90)
            try:
                found = read(reader, plan, progress)
            except BaseException as error:
                self.ended.append(type(error).__name__)
                raise
            self.ended.append("answered")
            return found

        monkeypatch.setattr(MetricReader, "read_series", held)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


@pytest.fixture
def port(counting: Counting) -> Iterator[int]:
    counting.some(5)
    settings = Settings()
    settings.serve.trusted_proxies = ["127.0.0.1"]
    with served_application(application(Reader(counting.store, counting.metrics), settings)) as it:
        yield it


def ask(port: int, path: str, **headers: str) -> Answer:
    with Raw(port) as raw:
        raw.send(get(path, **headers))
        return raw.answer()


def test_series_of_one_client_do_not_keep_lookups_waiting(held: Held, port: int) -> None:
    other = {"X_Forwarded_For": "192.0.2.2"}
    with contextlib.ExitStack() as stack:
        asking = [stack.enter_context(Raw(port)) for _ in range(20)]
        for raw in asking:
            raw.send(get(SERIES))
        assert held.began.acquire(timeout=90)
        for path in LIGHT:
            assert [ask(port, path).status, ask(port, path, **other).status] == [200, 200], path
        with Raw(port) as raw:
            raw.send(get(SERIES, **other))
            assert held.began.acquire(timeout=90), "it has a share of its own"
            held.go_on.set()
            assert raw.answer().status == 200
        assert {raw.answer().status for raw in asking} == {200}


def test_questions_are_read_beside_the_loop(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names in a question can be sets of many categories."""
    select, threads = Domain.select, set[str]()

    def selected(domain: Domain, labels: Any) -> Any:
        threads.add(threading.current_thread().name)
        return select(domain, labels)

    monkeypatch.setattr(Domain, "select", selected)
    for path in ("metrics/carrier/estimate?", "metrics/carrier/series?", "compare?metric=carrier&"):
        ask(port, f"/v1/{path}category=AA")
    assert threads
    assert "http" not in threads


def test_a_greedy_client_is_told_so(held: Held, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MAX_WAITING", 5)
    monkeypatch.setattr(pools, "MAX_WAITING_PER_CLIENT", 3)
    found: list[Answer] = []
    with contextlib.ExitStack() as stack:

        def crowd(client: str, count: int) -> None:
            for _ in range(count):
                raw = stack.enter_context(Raw(port))
                raw.send(get(SERIES, X_Forwarded_For=client))
                reading = threading.Thread(target=lambda raw=raw: found.append(raw.answer()))
                reading.start()
                stack.callback(reading.join)

        crowd("192.0.2.1", 7)
        wait_until(lambda: len(found) == 3, "one is computed, three wait")
        crowd("192.0.2.2", 4)
        wait_until(lambda: len(found) == 4, "and one of another client, whose next two may wait")
        held.go_on.set()
    refused = [answer for answer in found if answer.status != 200]
    assert [answer.status for answer in refused] == [429] * 3 + [503]
    assert b"3 requests of 192.0.2.1 are already waiting" in refused[0].body
    assert all(int(answer.headers["retry-after"]) > 0 for answer in refused)


def test_what_nobody_waits_for_any_more_is_dropped(held: Held, port: int) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(Raw(port)).send(get(SERIES))
        assert held.began.acquire(timeout=90)
    ask(port, "/healthz")  # after they have left
    held.go_on.set()
    assert ask(port, SERIES).status == 200
    assert held.ended == ["CancelledError", "answered"]


DISTRIBUTION = """
[metrics]
wait = {kind = "distribution", range = [0, 60], bins = 64, levels = [0.5, 1, 2, 4, 8]}
"""


async def large(scope: Any, receive: Any, send: Any) -> None:
    """Answer with more than buffers take."""
    headers = [(b"content-length", b"%d" % len(BODY))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


BODY = bytes(8_000_000)


def test_unread_answers_are_limited_from_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three are too much, whoever has them; a client is told by a header."""
    monkeypatch.setattr(middleware, "UNREAD_BYTES", 2 * len(BODY) + 100_000)

    async def named(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope["client"] = (dict(scope["headers"])[b"name"].decode(), 1)
        await limit(scope, receive, send)

    limit = Abortable(UnreadLimit(large))
    config = uvicorn.Config(named, port=0, lifespan="off", http=PostProtocol, log_level="critical")
    with served(config, uvloop.run) as port, contextlib.ExitStack() as stack:

        def asked(client: str) -> Raw:
            raw = stack.enter_context(Raw(port))
            raw.send(get("/", Name=client))
            assert raw.socket.recv(1, socket.MSG_PEEK), "it has begun to answer"
            return raw

        def is_whole(raw: Raw) -> bool:
            try:
                return len(raw.answer().body) == len(BODY)
            except AssertionError:  # it was closed
                return False

        hoards = [asked("192.0.2.1") for _ in range(2)]
        refused = asked("192.0.2.1").answer()
        assert (refused.status, refused.headers["retry-after"]) == (429, "10")
        assert b"16000000 bytes of others wait for 192.0.2.1" in refused.body
        assert is_whole(asked("192.0.2.2"))
        assert sorted(map(is_whole, hoards)) == [False, True]
        assert all(is_whole(asked("192.0.2.1")) for _ in range(3)), "what is read does not count"


@pytest.mark.more
def test_large_series_wait_for_small_requests(store: Store, redis_url: str, tmp_path: Path) -> None:
    """A server of its own, one client: each series needs a processor for a second or more."""
    file = tmp_path / "metrics.toml"
    file.write_text(DISTRIBUTION)
    counting = Counting(store, load_metrics(file))
    each = enumerate([[minute % 60 + 0.5] * (minute + 1) for minute in range(500)])
    counting.count(0, *[counting.batch("wait", values, minute) for minute, values in each])
    with serving(file, redis_url) as server, contextlib.ExitStack() as stack:
        port, answered = int(server.url.rpartition(":")[2]), list[int]()

        def read(raw: Raw) -> None:
            with contextlib.suppress(AssertionError):  # at last the server is killed
                answered.append(raw.answer().status)

        for number in range(20):
            raw = stack.enter_context(Raw(port))
            raw.send(get(f"/v1/metrics/wait/series?step=1m&beta=0.0{number + 1}"))
            reading = threading.Thread(target=read, args=(raw,))
            reading.start()
            stack.callback(reading.join)
        for path in (*["/v1/metrics/wait", "/v1/metrics/wait/estimate"] * 10, "/readyz"):
            assert ask(port, path).status == 200
        assert len(answered) <= 10, "at most half of them come before"
        server.process.kill()


def test_addresses_that_are_too_long_are_refused_unread(client: Client) -> None:
    for status, path in ((404, "x" * 2_000), (400, "status?" + "a&" * 1_025)):
        answer = client.get(f"/v1/{path}")
        assert (answer.status_code, answer.json()["status"]) == (status, status)


def test_a_question_that_takes_too_long_is_refused(counting: Counting, tmp_path: Path) -> None:
    """Nothing is estimated before: no report was counted."""
    file = tmp_path / "metrics.toml"
    file.write_text(LARGE)
    client = Client(counting.store, load_metrics(file), Settings())
    day = "from=2013-01-01&to=2013-01-02"
    shares = "category=c1..%2Fc0..&category=c2..%2Fc0.."
    two = f"{day}&against-from=2013-01-02&against-to=2013-01-03"
    for path, told in (
        (f"wide/series?{day}&step=1m&top=1", "1440 points, expected at most 48 of an answer of"),
        (f"wide/series?{day}&step=1m", "the smallest step that fits is 31m"),
        (f"wait/series?{day}&step=1m&quantile=0.5", "expected at most 486 of an answer of so many"),
        (f"open/series?{day}&step=1m", "1440 points, expected at most 26"),
        (f"huge/estimate?{shares}", "203002 numbers, expected at most 200000: ask for some cat"),
        (f"huge/series?{day}&{shares}", "203002 numbers, expected at most 200000: ask for some"),
        ("huge/estimate", "101000 numbers, expected at most 100000: ask for the largest (top=1"),
        ("sliced/estimate?by=a&by=b", "by: 1024 slices, expected at most 1000: ask for the larg"),
    ):
        with row(path):
            assert told in client.problem(400, f"/v1/metrics/{path}")["detail"]
    for path, told in (
        ("metric=sliced&by=a&by=b", "1024 slices, expected at most 100: ask for the largest"),
        (f"metric=huge&{two}", "101000 numbers, expected at most 20000: ask for some categories"),
    ):
        with row(path):
            assert told in client.problem(400, f"/v1/compare?{path}")["detail"]
    assert client.get(f"/v1/compare?metric=huge&{two}&category=c1").status_code == 200
    for path in (
        f"wide/series?{day}&step=2m&category=c1",
        f"wide/series?{day}&step=31m",
        f"wide/series?{day}",
        f"open/series?{day}",
        "sliced/estimate?by=a&by=b&top=1000",
    ):
        assert client.get(f"/v1/metrics/{path}").status_code == 200, path


LARGE = f"""
attributes.a = {[f"a{number}" for number in range(30)]}
attributes.b = {[f"b{number}" for number in range(30)]}
[metrics]
wide.categories = {[f"c{number}" for number in range(4096)]}
wide.kind = "frequency"
wide.levels = [0.5, 1, 2, 4, 8]
huge.categories = {[f"c{number}" for number in range(101_000)]}
huge.kind = "frequency"
huge.levels = [0.5, 1, 2, 4, 8]
wait = {{ kind = "distribution", range = [0, 60], levels = [0.25, 0.5, 1, 2, 4, 6, 7, 8] }}
open = {{ kind = "frequency", categories = "open", levels = [0.5, 1, 2, 4, 8] }}
sliced = {{kind = "mean", range = [0, 1], levels = [0.5, 1, 2, 4, 8], max_slices = 2000, \
by = ["a", "b"]}}
"""
