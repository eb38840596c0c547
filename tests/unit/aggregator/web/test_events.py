"""Live events: each change once, from where a client left off, and for nobody at others' cost."""

import asyncio
import contextlib
import dataclasses
import json
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from aggregator.features.reader import Reader
from aggregator.reading.status import Rates, status
from aggregator.storage.store import Store
from aggregator.web.event_hub import (
    CALM_PERIODS,
    CALM_SHARE,
    DUE_SHARE,
    MAX_PROCESSOR_SHARE,
    Hub,
    Turns,
)
from aggregator.web.live_followers import Follower, Live
from estimators import Metric
from tests.support.reports.counted import PATIENCE, Client, Counting, Server, serving
from tests.support.rows import row
from tests.support.running import http_client
from tests.support.running.deployment import wait_until
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
WHOLE = 2 * len(ALL) + 1
"""Events of all that there is: a policy and an estimate of each, and the status."""


@contextlib.contextmanager
def following(
    hub: Hub, metrics: frozenset[str] | None = ALL, top: int = 9, last_id: str = ""
) -> Iterator[Following]:
    with hub.follow(metrics, top, last_id, never) as follower:
        yield Following(follower)


async def all_there_is(client: Following) -> list[Found]:
    return await client.until(lambda seen: len(seen) >= WHOLE)


def test_a_client_gets_all_there_is_as_the_api_answers_it_and_then_what_changes(
    counting: Counting, client: Client, store: Store, metrics: dict[str, Metric]
) -> None:
    counting.some(5)
    answers: dict[str, Any] = {}

    async def scenario(hub: Hub) -> None:
        with following(hub, top=2) as one:
            seen = await all_there_is(one)
            kinds = [kind for kind, _, _ in seen]
            assert sorted(kinds) == ["estimate"] * 5 + ["policy"] * 5 + ["status"]
            answers.update({data["metric"]: data for kind, _, data in seen if kind == "estimate"})
            await asyncio.to_thread(counting.count_on, 0, counting.batch("delay", [1.0] * 4, 4))
            _, _, changed = await one.estimate("delay", 410)
            assert changed["value"] == Reader(store, metrics).estimate("delay").value
            await asyncio.to_thread(store.registry.set_policy, "carrier", "uniform")
            told = {"metric": "carrier", "policy": "uniform"}
            await one.until(lambda seen: ("policy", told) in [(k, data) for k, _, data in seen])
            numbers = [int(number.rpartition("-")[2]) for _, number, _ in one.seen]
            assert numbers == sorted(set(numbers))
            new = {data["metric"] for kind, _, data in one.seen[WHOLE:] if kind == "estimate"}
            assert new - {"carrier"} == {"delay"}
            metrics["delay"] = dataclasses.replace(metrics["delay"], minimum_reports=1000)
            await one.until(lambda seen: "too_few_reports" in [d.get("status") for *_, d in seen])

    asked = {name: client.json(f"/v1/metrics/{name}/estimate", top=2) for name in metrics}
    run(hub_of(store, metrics), scenario)
    assert answers == asked
    assert (answers["delay"]["reports"], answers["silent"]["status"]) == (406, "not_ready")


def test_metrics_that_cannot_be_read_or_estimated_keep_no_other_from_being_sent(
    counting: Counting, store: Store, metrics: dict[str, Metric], monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.some(5)
    (key,) = store.client.keys("*:1}:total:delay@*")
    store.client.set(key, b"cut off")
    answer = Reader.cached_answer

    def broken(reader: Reader, window: Any) -> Any:
        if window.metric.name == "carrier":
            raise ArithmeticError("no estimate")
        return answer(reader, window)

    monkeypatch.setattr(Reader, "cached_answer", broken)

    def told(found: Found) -> bool:
        return "dither recount 1" in "".join(found[2].get("missing", []))

    async def scenario(hub: Hub) -> None:
        with following(hub, None) as client:
            seen = await client.until(lambda seen: bool(seen[-1:]) and told(seen[-1]))
            answered = {data["metric"] for kind, _, data in seen if kind == "estimate"}
            assert answered == ALL - {"delay", "carrier"}
            assert {data["redis"] for kind, _, data in seen if kind == "status"} == {"ok"}

    run(hub_of(store, metrics), scenario)


def test_who_comes_back_gets_what_is_newer_and_an_unknown_id_gets_everything(
    counting: Counting, store: Store, metrics: dict[str, Metric]
) -> None:
    counting.some(5)

    async def scenario(hub: Hub) -> None:
        with following(hub) as client:
            last = (await all_there_is(client))[-1][1]
        for delays in (407, 408):
            await asyncio.to_thread(counting.count_on, 0, counting.batch("delay", [1.0], 4))
            with following(hub, frozenset({"delay"})) as client:
                await client.estimate("delay", delays)
                assert {data.get("metric", "delay") for _, _, data in client.seen} == {"delay"}
        with following(hub, last_id=last) as client:
            back = await client.until(lambda seen: len(seen) >= 2)
            assert sorted(kind for kind, _, _ in back) == ["estimate", "status"]
            assert {d["reports"] for kind, _, d in back if kind == "estimate"} == {408}
        run_id = last.partition("-")[0]
        for unknown in ("", "nonsense", "00000000-3", f"{run_id}-x", f"{run_id}-²", "-1"):
            with row(unknown), following(hub, last_id=unknown) as client:
                seen = await all_there_is(client)
                assert len({(kind, d.get("metric", "")) for kind, _, d in seen}) == WHOLE

    run(hub_of(store, metrics), scenario)


def test_who_does_not_read_is_cut_off_and_what_waited_is_forgotten(
    counting: Counting, store: Store, metrics: dict[str, Metric]
) -> None:
    counting.some(5)
    cut: list[int] = []

    async def scenario(hub: Hub) -> None:
        with hub.follow(ALL, 9, "", lambda: cut.append(1)) as idle, following(hub) as client:
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


def test_encoding_an_event_holds_up_nobody(
    counting: Counting, store: Store, metrics: dict[str, Metric], monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.some(5)
    go_on, data = threading.Event(), Live.data

    def slow(live: Live, top: int) -> Any:
        assert go_on.wait(60), "the server did nothing else"
        return data(live, top)

    monkeypatch.setattr(Live, "data", slow)

    async def scenario(hub: Hub) -> None:
        asyncio.get_running_loop().call_later(0.2, go_on.set)
        with following(hub) as client:
            await all_there_is(client)

    run(hub_of(store, metrics), scenario)


def test_a_costly_metric_is_estimated_seldom_and_cheap_ones_stay_fresh() -> None:
    now, minutes = 0.0, 20
    turns = Turns(1.0, lambda: now)
    costs = {"costly": 2.0, **{f"cheap {number}": 0.005 for number in range(11)}}
    refreshes = dict.fromkeys(costs, 0)
    for _ in range(60 * minutes):
        for name in filter(turns.is_due, costs):
            turns.note(name, costs[name])
            refreshes[name] += 1
        now += 1.0
    costly, cheapest = refreshes.pop("costly"), min(refreshes.values())
    assert cheapest >= 60 * minutes / CALM_PERIODS - 1
    assert minutes < costly <= 60 * minutes * MAX_PROCESSOR_SHARE / DUE_SHARE / costs["costly"] + 1
    for name in [*costs][2:]:
        turns.rest(name)
    now += turns.period
    assert turns.is_due("cheap 0"), "metrics that do not change make no other wait"


def test_a_costly_estimate_holds_up_no_other(
    counting: Counting, store: Store, metrics: dict[str, Metric], monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.some(5)
    go_on, answer = threading.Event(), Reader.cached_answer

    def slow(reader: Reader, window: Any) -> Any:
        assert window.metric.name != "carrier" or go_on.wait(PATIENCE), "the others waited"
        return answer(reader, window)

    monkeypatch.setattr(Reader, "cached_answer", slow)

    async def scenario(hub: Hub) -> None:
        hub.turns.note("carrier", 2.0)
        with following(hub) as client:
            await client.estimate("delay", 406)
            await asyncio.to_thread(counting.count_on, 0, counting.batch("delay", [1.0] * 4, 4))
            await client.estimate("delay", 410)
            assert "carrier" not in {d["metric"] for k, _, d in client.seen if k == "estimate"}
            go_on.set()
            await all_there_is(client)

    run(hub_of(store, metrics), scenario)


def test_reads_take_a_small_share_of_a_core(store: Store, metrics: dict[str, Metric]) -> None:
    overview = store.overview
    for period, cost, share in ((0.0, 0.01, MAX_PROCESSOR_SHARE), (PERIOD, 0.002, CALM_SHARE)):
        spent = [0.0]

        def costly(spent: list[float] = spent, cost: float = cost) -> Any:
            began = time.thread_time()
            while time.thread_time() - began < cost:
                pass
            spent[0] += time.thread_time() - began
            return overview()

        store.overview = costly  # type: ignore[method-assign]

        async def scenario(hub: Hub) -> None:
            began = time.monotonic()
            with following(hub) as client:
                await client.until(bool)
                await asyncio.sleep(1)
            seconds = time.monotonic() - began
            assert 0 < spent[0] <= share * seconds + 2 * cost  # noqa: B023

        with row(str(period)):
            run(hub_of(store, metrics, period=period), scenario)


def test_a_redis_that_is_gone_is_told_and_its_return_too(
    redis_server: Redis, counting: Counting, store: Store, metrics: dict[str, Metric]
) -> None:
    counting.some(5)

    def redis_of(seen: list[Found]) -> str:
        return str(next(d["redis"] for kind, _, d in reversed(seen) if kind == "status"))

    async def scenario(hub: Hub) -> None:
        with following(hub) as client:
            await all_there_is(client)
            await asyncio.to_thread(redis_server.kill)
            try:
                await client.until(lambda seen: redis_of(seen).startswith("Redis does not answer"))
            finally:
                await asyncio.to_thread(redis_server.restart)
            await client.until(lambda seen: redis_of(seen) == "ok")

    run(hub_of(store, metrics), scenario)


# -- Over the wire -------------------------------------------------------------------------------


def read(server: Server, enough: Callable[[list[Found]], bool], **asked: Any) -> list[Found]:
    """Return the events of a stream up to where they are enough."""
    text = ""
    with http_client.stream("GET", f"{server.url}/v1/events", **asked, timeout=60) as answer:
        for piece in answer.iter_text():
            text += piece
            found = list(parsed(text.rpartition("\n\n")[0]))
            if enough(found):
                return found
    raise AssertionError(text)


def has_all(found: list[Found]) -> bool:
    return len(found) >= WHOLE


def test_streams_resume_are_limited_and_end_with_the_server(
    metrics_file: Path, redis_url: str, counting: Counting
) -> None:
    counting.some(5)
    flags = ("max_streams=3", "max_streams_per_client=2", "trusted_proxies=127.0.0.1")
    words = [word for flag in flags for word in ("--set", f"serve.{flag}")]
    with serving(metrics_file, redis_url, *words) as server:
        resume(server, counting)
        with httpx.Client(base_url=server.url, timeout=60) as client:
            limit(client)
        text = followed_to_its_end(server)
    assert text.startswith("retry: 2000\n\n")
    assert {kind for kind, _, _ in parsed(text)} == {"policy", "status", "estimate"}
    (line,) = server.told.read_text().splitlines()
    assert "serving" in line, "nothing else is told"


def resume(server: Server, counting: Counting) -> None:
    """Follow from the last event on, by header and by parameter."""
    last = read(server, has_all)[-1][1]
    ways: list[dict[str, Any]] = [
        {"headers": {"Last-Event-ID": last}},
        {"params": {"last_event_id": last}},
    ]
    for way in ways:
        counting.count_on(0, counting.batch("delay", [1.0], 4))
        newer = read(server, lambda found: len(found) >= 2, **way)
        assert {data.get("metric", "") for _, _, data in newer} <= {"", "delay"}
    read(server, has_all, params={"last_event_id": "other-1"})


def limit(client: httpx.Client) -> None:
    """Hold all streams that one client may, and all that there are."""
    one, other = ({"X-Forwarded-For": address} for address in ("192.0.2.1", "192.0.2.2"))
    assert client.get("/v1/events?metric=dely").status_code == 404
    assert client.get("/v1/events?tpo=1").status_code == 400

    def stream(headers: dict[str, str]) -> Any:
        return client.stream("GET", "/v1/events", headers=headers)

    with stream(one) as first, stream(one) as second:
        assert [first.status_code, second.status_code] == [200, 200]
        refused = client.get("/v1/events", headers=one)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        assert refused.json()["detail"] == "192.0.2.1 already follows 2 streams"
        assert "max_streams_per_client" in refused.json()["remedy"]
        with stream(other) as third:
            assert third.status_code == 200
            refused = client.get("/v1/events", headers=other)
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) > 0
            assert "max_streams" in refused.json()["remedy"]
            assert client.get("/metrics").status_code == 200
        second.close()
        wait_until(
            lambda: client.head("/v1/events", headers=one).status_code == 200,
            "whoever has left makes room",
        )


def followed_to_its_end(server: Server) -> str:
    """Follow until the server is told to leave; return what it sent."""
    text = ""
    with http_client.stream("GET", f"{server.url}/v1/events?metric=delay", timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-accel-buffering"] == "no"
        for piece in answer.iter_text():
            text += piece
            if "event: estimate" in text and server.process.poll() is None:
                server.process.send_signal(signal.SIGTERM)
    server.process.wait(PATIENCE)
    return text
