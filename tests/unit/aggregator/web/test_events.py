"""Live events: each change once, from where a client left off, and for nobody at others' cost."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from aggregator.reading.reader import Reader
from aggregator.reading.status import Rates, status
from aggregator.storage.store import Store
from aggregator.web.event_hub import Hub
from aggregator.web.live import Follower
from estimators import Metric
from tests.support.reports.counted import DEFINITIONS, PATIENCE, Client, Counting, Server, serving
from tests.support.running import http_client
from tests.support.running.servers import Redis

PERIOD = 0.05
Found = tuple[str, str, Any]
"""An event's kind, id and data."""


def parsed(frames: str) -> Iterator[Found]:
    """Yield the events of a stream as the standard reads them."""
    for block in frames.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line)
        if "data" in fields:
            yield fields["event"], fields["id"], json.loads(fields["data"])


class Following:
    """Reads a hub's frames as they come."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.frames: AsyncIterator[bytes] = follower.frames()
        self.seen: list[Found] = []

    async def until(self, enough: Callable[[list[Found]], bool]) -> list[Found]:
        async with asyncio.timeout(PATIENCE):
            while not enough(self.seen):
                self.seen += parsed((await anext(self.frames)).decode())
        return self.seen

    async def estimate(self, metric: str, reports: int) -> Any:
        """Return the first estimate of a metric with as many reports."""

        def found(seen: list[Found]) -> bool:
            return any(
                kind == "estimate" and data["metric"] == metric and data["reports"] == reports
                for kind, _, data in seen
            )

        return (await self.until(found))[-1]


def hub_of(store: Store, metrics: dict[str, Metric], **options: Any) -> Hub:
    reader = Reader(store, metrics)
    rates = Rates()
    return Hub(reader, lambda found: status(found, metrics, rates), **{"period": PERIOD, **options})


def run(hub: Hub, scenario: Callable[[Hub], Awaitable[None]]) -> None:
    async def both() -> None:
        try:
            await scenario(hub)
        finally:
            await hub.close()

    asyncio.run(both())


def never() -> None:
    raise AssertionError("nobody was to be cut off")


ALL = frozenset({"delay", "carrier", "place", "page", "silent"})


def test_a_client_gets_all_there_is_and_then_what_changes(
    counting: Counting, store: Store, metrics: dict[str, Metric]
) -> None:
    counting.some(5)

    async def scenario(hub: Hub) -> None:
        with hub.follow(ALL, 2, "", never) as follower:
            client = Following(follower)
            seen = await client.until(lambda seen: len(seen) >= 11)
            kinds = [kind for kind, _, _ in seen]
            assert sorted(kinds) == ["estimate"] * 5 + ["policy"] * 5 + ["status"]
            answers = {data["metric"]: data for kind, _, data in seen if kind == "estimate"}
            assert answers["delay"]["reports"] == 406
            assert (answers["carrier"]["categories"], answers["carrier"]["left_out"]) == (
                ["AA", "B6"],
                2,
            )
            assert answers["silent"]["status"] == "not_ready"
            await asyncio.to_thread(counting.count, 0, counting.batch("delay", [1.0] * 4, 4))
            _, _, changed = await client.estimate("delay", 410)
            new = client.seen[11:]
            assert {data.get("metric") for kind, _, data in new if kind == "estimate"} == {"delay"}
            assert changed["value"] == Reader(store, metrics).estimate("delay").value
            await asyncio.to_thread(store.registry.set_policy, "carrier", "uniform")
            await client.until(
                lambda seen: any(
                    kind == "policy" and data == {"metric": "carrier", "policy": "uniform"}
                    for kind, _, data in seen
                )
            )
            numbers = [int(number.rpartition("-")[2]) for _, number, _ in client.seen]
            assert numbers == sorted(set(numbers))

    run(hub_of(store, metrics), scenario)


def test_a_metric_that_cannot_be_read_keeps_no_other_from_being_sent(
    counting: Counting, store: Store, metrics: dict[str, Metric]
) -> None:
    counting.some(5)
    (key,) = store.client.keys("*:1}:total:delay@*")
    store.client.set(key, b"cut off")

    def told(found: Found) -> bool:
        return "dither recount 1" in "".join(found[2].get("missing", []))

    async def scenario(hub: Hub) -> None:
        with hub.follow(None, 2, "", never) as follower:
            seen = await Following(follower).until(lambda seen: bool(seen[-1:]) and told(seen[-1]))
            answered = {data["metric"] for kind, _, data in seen if kind == "estimate"}
            assert answered == ALL - {"delay"}
            assert {data["redis"] for kind, _, data in seen if kind == "status"} == {"ok"}

    run(hub_of(store, metrics), scenario)


def test_who_follows_all_metrics_follows_those_that_are_defined_later(
    counting: Counting, store: Store, metrics: dict[str, Metric]
) -> None:
    counting.some(5)
    now = {"delay": metrics["delay"]}

    def named(seen: list[Any]) -> set[str]:
        return {data["metric"] for kind, _, data in seen if kind == "estimate"}

    async def scenario(hub: Hub) -> None:
        with hub.follow(None, 2, "", never) as first:
            client = Following(first)
            await client.until(lambda seen: named(seen) == {"delay"})
            now["carrier"] = metrics["carrier"]
            await client.until(lambda seen: named(seen) == {"delay", "carrier"})
            del now["delay"]
            await client.until(lambda seen: "delay" not in seen[-1][2].get("metrics", {"delay": 0}))
            with hub.follow(None, 2, "", never) as second:
                other = Following(second)
                await other.until(lambda seen: "status" in [kind for kind, _, _ in seen])
                assert named(other.seen) == {"carrier"}
                now["delay"] = metrics["delay"]
                await other.until(lambda seen: named(seen) == {"delay", "carrier"})

    run(hub_of(store, now), scenario)


def test_what_a_client_is_sent_is_the_answer_of_the_api(
    counting: Counting, client: Client, store: Store, metrics: dict[str, Metric]
) -> None:
    counting.some(5)
    found: dict[str, Any] = {}

    async def scenario(hub: Hub) -> None:
        with hub.follow(ALL, 2, "", never) as follower:
            for kind, _, data in await Following(follower).until(lambda seen: len(seen) >= 11):
                if kind == "estimate":
                    found[data["metric"]] = data

    run(hub_of(store, metrics), scenario)
    assert found == {name: client.json(f"/v1/metrics/{name}/estimate", top=2) for name in metrics}


def test_a_client_follows_only_what_it_asked_for(
    counting: Counting, store: Store, metrics: dict[str, Metric]
) -> None:
    counting.some(5)

    async def scenario(hub: Hub) -> None:
        with hub.follow(frozenset({"carrier"}), 9, "", never) as follower:
            seen = await Following(follower).until(lambda seen: len(seen) >= 3)
            assert [kind for kind, _, _ in seen] == ["policy", "status", "estimate"]
            with hub.follow(frozenset({"delay"}), 9, "", never) as other:
                assert (await Following(other).estimate("delay", 406))[0] == "estimate"

    run(hub_of(store, metrics), scenario)


def test_who_comes_back_gets_what_is_newer_and_an_unknown_id_gets_everything(
    counting: Counting, store: Store, metrics: dict[str, Metric]
) -> None:
    counting.some(5)

    async def scenario(hub: Hub) -> None:
        with hub.follow(ALL, 9, "", never) as follower:
            last = (await Following(follower).until(lambda seen: len(seen) >= 11))[-1][1]
        for delays in (407, 408):
            await asyncio.to_thread(counting.count, 0, counting.batch("delay", [1.0], 4))
            with hub.follow(frozenset({"delay"}), 9, "", never) as follower:
                await Following(follower).estimate("delay", delays)
        with hub.follow(ALL, 9, last, never) as follower:
            back = await Following(follower).until(lambda seen: len(seen) >= 2)
            assert sorted(kind for kind, _, _ in back) == ["estimate", "status"]
            assert {d["reports"] for kind, _, d in back if kind == "estimate"} == {408}
        run_id = last.partition("-")[0]
        for unknown in ("", "nonsense", "00000000-3", f"{run_id}-x", f"{run_id}-²", "-1"):
            with hub.follow(ALL, 9, unknown, never) as follower:
                seen = await Following(follower).until(lambda seen: len(seen) >= 11)
                assert len({(kind, d.get("metric", "")) for kind, _, d in seen}) == 11

    run(hub_of(store, metrics), scenario)


def test_a_metric_is_estimated_at_most_once_a_period_for_all_clients_together(
    counting: Counting,
    store: Store,
    metrics: dict[str, Metric],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counting.some(5)
    estimated: list[str] = []
    answer = Reader.answer

    def noted(window: Any, *args: Any, **options: Any) -> Any:
        estimated.append(window.metric.name)
        return answer(window, *args, **options)

    monkeypatch.setattr(Reader, "answer", staticmethod(noted))

    async def scenario(hub: Hub) -> None:
        for _ in range(10):
            with hub.follow(ALL, 9, "", never) as follower:
                await Following(follower).until(lambda seen: len(seen) >= 11)
            await asyncio.to_thread(counting.count, 0, counting.batch("delay", [1.0], 4))

    run(hub_of(store, metrics, period=60), scenario)
    assert sorted(estimated) == sorted(ALL)


def test_nobody_follows_and_nothing_is_read(
    counting: Counting, store: Store, metrics: dict[str, Metric], monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.some(5)
    read: list[float] = []
    overview = Store.overview

    def noted(self: Store) -> Any:
        read.append(time.monotonic())
        return overview(self)

    monkeypatch.setattr(Store, "overview", noted)

    async def scenario(hub: Hub) -> None:
        assert read == []
        with hub.follow(ALL, 9, "", never) as follower:
            await Following(follower).until(lambda seen: len(seen) >= 11)
        await asyncio.wait_for(hub._task or asyncio.sleep(0), PATIENCE)
        before = len(read)
        await asyncio.sleep(5 * PERIOD)
        assert len(read) == before
        with hub.follow(ALL, 9, "", never) as follower:
            await Following(follower).until(lambda seen: len(seen) >= 11)

    run(hub_of(store, metrics), scenario)


def test_who_does_not_read_is_cut_off_and_what_waited_is_forgotten(
    counting: Counting, store: Store, metrics: dict[str, Metric]
) -> None:
    counting.some(5)
    cut: list[int] = []

    async def scenario(hub: Hub) -> None:
        with (
            hub.follow(ALL, 9, "", lambda: cut.append(1)) as idle,
            hub.follow(ALL, 9, "", never) as follower,
        ):
            client = Following(follower)
            reports = 406
            while not cut:
                await asyncio.to_thread(counting.count, 0, counting.batch("delay", [1.0], 4))
                reports += 1
                await client.estimate("delay", reports)
                assert idle.queue.qsize() <= hub.room
            assert idle.queue.qsize() <= 1
            await asyncio.to_thread(counting.count, 0, counting.batch("delay", [1.0], 4))
            await client.estimate("delay", reports + 1)
            assert cut == [1]

    run(hub_of(store, metrics, room=4), scenario)


def test_one_metric_that_fails_does_not_hold_the_others_back(
    counting: Counting, store: Store, metrics: dict[str, Metric], monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.some(5)
    answer = Reader.answer

    def broken(window: Any, *args: Any, **options: Any) -> Any:
        if window.metric.name == "carrier":
            raise ArithmeticError("no estimate")
        return answer(window, *args, **options)

    monkeypatch.setattr(Reader, "answer", staticmethod(broken))

    async def scenario(hub: Hub) -> None:
        with hub.follow(ALL, 9, "", never) as follower:
            await Following(follower).estimate("page", 1000)
            await Following(follower).until(lambda seen: True)

    run(hub_of(store, metrics), scenario)


def test_a_redis_that_is_gone_is_told_and_its_return_too(
    redis_server: Redis, counting: Counting, store: Store, metrics: dict[str, Metric]
) -> None:
    counting.some(5)

    def redis_of(seen: list[Found]) -> str:
        return str(next(d["redis"] for kind, _, d in reversed(seen) if kind == "status"))

    async def scenario(hub: Hub) -> None:
        with hub.follow(ALL, 9, "", never) as follower:
            client = Following(follower)
            await client.until(lambda seen: len(seen) >= 11)
            await asyncio.to_thread(redis_server.kill)
            try:
                await client.until(lambda seen: redis_of(seen).startswith("Redis does not answer"))
            finally:
                await asyncio.to_thread(redis_server.restart)
            await client.until(lambda seen: redis_of(seen) == "ok")

    run(hub_of(store, metrics), scenario)


def test_a_quiet_stream_has_a_heartbeat(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggregator.web.events.HEARTBEAT_SECONDS", PERIOD)
    sent: list[bytes] = []

    async def ask() -> None:
        enough = asyncio.Event()

        async def receive() -> Any:
            await enough.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))
            if b"".join(sent).count(b": ping") >= 2:
                enough.set()

        path = {"path": "/v1/events", "raw_path": b"/v1/events", "query_string": b"metric=silent"}
        headers = [(b"host", b"localhost")]
        scope = {"type": "http", "method": "GET", "headers": headers, **path}
        await asyncio.wait_for(client.app(scope, receive, send), PATIENCE)

    asyncio.run(ask())
    assert sent[-1].startswith(b": ping")


# -- Over the wire -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, redis_server: Redis) -> Iterator[Server]:
    file = tmp_path_factory.mktemp("serve") / "metrics.toml"
    file.write_text(DEFINITIONS)
    redis_server.clear()
    with serving(file, redis_server.url, "--set", "serve.max_streams=3") as running:
        yield running


def test_a_stream_resumes_by_header_or_by_parameter(server: Server, counting: Counting) -> None:
    counting.some(5)

    def events(count: int, path: str = "/v1/events", **headers: str) -> list[Found]:
        text = ""
        with http_client.stream("GET", server.url + path, headers=headers, timeout=60) as answer:
            for piece in answer.iter_text():
                text += piece
                found = list(parsed(text.rpartition("\n\n")[0]))
                if len(found) >= count:
                    return found
        raise AssertionError(text)

    def newer(found: list[Found]) -> set[str]:
        return {data.get("metric", "") for _, _, data in found}

    last = events(11)[-1][1]
    counting.count(0, counting.batch("delay", [1.0], 4))
    assert newer(events(2, **{"Last-Event-ID": last})) <= {"", "delay"}
    counting.count(0, counting.batch("delay", [1.0], 4))
    assert newer(events(2, f"/v1/events?last_event_id={last}")) <= {"", "delay"}
    assert len(newer(events(11, "/v1/events?last_event_id=other-1"))) == 6


def test_streams_are_limited_and_wrong_questions_are_problems(server: Server) -> None:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        assert client.get("/v1/events?metric=dely").status_code == 404
        assert client.get("/v1/events?tpo=1").status_code == 400
        assert client.head("/v1/events").status_code == 200
        first, second, third = (client.stream("GET", "/v1/events") for _ in range(3))
        with first, second, third:
            refused = client.get("/v1/events")
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) > 0
            assert "max_streams" in refused.json()["remedy"]
            assert client.get("/metrics").status_code == 200
        deadline = time.monotonic() + PATIENCE
        while True:
            with client.stream("GET", "/v1/events") as again:
                if again.status_code == 200:
                    break
            assert time.monotonic() < deadline, "whoever has left makes room"


def test_one_client_cannot_hold_all_streams(metrics_file: Path, redis_url: str) -> None:
    proxied = ("--set", "serve.trusted_proxies=127.0.0.1")
    one, other = ({"X-Forwarded-For": address} for address in ("192.0.2.1", "192.0.2.2"))
    with (
        serving(metrics_file, redis_url, "--set", "serve.max_streams_per_client=2", *proxied) as at,
        httpx.Client(base_url=at.url, timeout=60) as client,
        client.stream("GET", "/v1/events", headers=one) as first,
        client.stream("GET", "/v1/events", headers=one) as second,
    ):
        assert [first.status_code, second.status_code] == [200, 200]
        refused = client.get("/v1/events", headers=one)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        told = refused.json()
        assert told["detail"] == "192.0.2.1 already follows 2 streams"
        assert "max_streams_per_client" in told["remedy"]
        with client.stream("GET", "/v1/events", headers=other) as third:
            assert third.status_code == 200
        second.close()
        deadline = time.monotonic() + PATIENCE
        while client.head("/v1/events", headers=one).status_code != 200:
            assert time.monotonic() < deadline, "whoever has left makes room"


def test_a_stream_comes_as_the_standard_has_it_and_ends_with_the_server(
    metrics_file: Path, redis_url: str, counting: Counting
) -> None:
    counting.some(5)
    with serving(metrics_file, redis_url) as server:
        text = followed_to_its_end(server)
    assert text.startswith("retry: 2000\n\n")
    assert {kind for kind, _, _ in parsed(text)} == {"policy", "status", "estimate"}
    (line,) = server.told.read_text().splitlines()
    assert "serving" in line, "nothing else is told"


def followed_to_its_end(server: Server) -> str:
    """Follow until the server is told to leave; return what it sent."""
    ended: list[str] = []
    began = threading.Event()

    def follow() -> None:
        with http_client.stream(
            "GET", f"{server.url}/v1/events?metric=delay", timeout=60
        ) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-accel-buffering"] == "no"
            text = ""
            for piece in answer.iter_text():
                text += piece
                if "event: estimate" in text:
                    began.set()
            ended.append(text)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        assert began.wait(PATIENCE)
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(PATIENCE)
    finally:
        thread.join(PATIENCE)
    assert time.monotonic() - started < 5, "it does not wait for those who follow"
    return ended[0]
