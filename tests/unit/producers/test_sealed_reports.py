"""A device with a relay: what leaves it, and where it goes, when a metric has a crowd."""

import asyncio
import json
import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.responses import Response

from aggregator.reading.serialization import definition
from estimators import define
from estimators.exact.randomness import SeededBits
from estimators.metrics.loading import definition_of
from estimators.metrics.local import LocalMetric
from producers import (
    AlreadyAnswered,
    AsyncHttpReporter,
    BudgetSpent,
    DefinitionChanged,
    DeliveryError,
    Failure,
    HttpConnection,
    HttpReporter,
    Ledger,
    Reporter,
    RollUp,
)
from producers.device import roll_up
from producers.gateway.problems import Problem
from producers.http import gateway_answers
from producers.sealing import decode_post
from tests.support.clocks import Clock, wait_until
from tests.support.metrics import frequency_metric, mean_metric
from tests.support.rows import row
from tests.support.running.broker import Broker
from tests.support.running.scripted_server import KEY, OTHER_KEY, ScriptedServer
from tests.support.running.served_application import served_plainly

DAY = 86_400.0
BEGIN = 20_000 * DAY
CROWD = {"minimum": 1000, "wait": "12h"}
TIMES: dict[str, Any] = {"pane": "1d", "lateness": "1d"}
NOWHERE = "http://127.0.0.1:9"
LATE = mean_metric("late", "randomized_response", (0, 1), [2], crowd=CROWD, **TIMES)  # fmt: skip
PAGES = frequency_metric("pages", "rappor", 999, [1], crowd=CROWD, **TIMES)  # fmt: skip
OPEN = define(name="open", kind="mean", mechanism="laplace", range=(0, 1), levels=[1], pane="1d")


@pytest.fixture
def relay() -> Iterator[ScriptedServer]:
    server = ScriptedServer(LATE, PAGES, OPEN)
    with served_plainly(Starlette(routes=[server.route()])) as server.url:
        yield server


gateway = relay


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger", budget=100)


@pytest.fixture(autouse=True)
def _prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_answers, "FIRST_PAUSE", 0.01)


def opened_reporter(
    metric: LocalMetric | str, relay: ScriptedServer, **options: Any
) -> HttpReporter:
    return HttpReporter(metric, NOWHERE, relay=relay.url, key=KEY, **options)


def test_reports_leave_sealed_alike(relay: ScriptedServer, ledger: Ledger, tmp_path: Path) -> None:
    times = (BEGIN + DAY * np.arange(8)).tolist()
    for metric, values in ((LATE, [0.0, 1.0] * 4), (PAGES, [*range(0, 999, 125)])):
        with row(metric.name):
            queue = tmp_path / f"{metric.name}-queue"
            options: dict[str, Any] = {"relay": NOWHERE, "key": KEY, "queue": queue}
            with HttpReporter(metric, NOWHERE, bits=SeededBits(1), **options) as reporter:
                reporter.report(values, epsilon=3, time=times, ledger=ledger)
            reports = metric.randomize(values, np.zeros(8, np.uint8), SeededBits(1))
            plain = [metric.randomizer.encode(reports[i : i + 1]) for i in range(8)]
            on_disk = b"".join(file.read_bytes() for file in tmp_path.glob(f"{queue.name}*"))
            assert on_disk.count(metric.fingerprint) == 8
            if metric is PAGES:
                assert not any(report[i : i + 8] in on_disk for report in plain for i in (0, 64))
            relay.posted.clear()
            with opened_reporter(metric, relay, queue=queue) as reporter:
                reporter.flush()
                assert reporter.totals.delivered == 8
            assert relay.opened == plain
            assert len({len(post) for post in relay.posted}) == 1
            labels, sealed = zip(*map(decode_post, relay.posted), strict=True)
            assert [label.pane_start_ms for label in labels] == [int(1000 * time) for time in times]
            pieces = [{each[i : i + 5] for i in range(len(each) - 4)} for each in sealed]
            assert sum(map(len, pieces)) == len(set().union(*pieces))  # they share no five bytes


def test_a_retry_is_the_same_bytes_and_only_the_relay_hears_of_it(
    relay: ScriptedServer, gateway: ScriptedServer, ledger: Ledger
) -> None:
    relay.answers = [
        Response(status_code=503, headers={"Retry-After": "0"}),
        Response("<html>", 400),  # a proxy's
        Response("<html>", 202),  # a login page's
        Problem(429, "later").response("/"),
        Problem(500, "broken").response("/"),
    ]
    options: dict[str, Any] = {"relay": relay.url, "key": KEY, "token": "secret"}
    with HttpConnection(gateway.url, **options) as connection:
        late, ordinary = HttpReporter("late", connection), HttpReporter(OPEN, connection)
        late.report(1.0, epsilon=2, ledger=ledger)
        ordinary.report(1.0, epsilon=1)
        gateway.answers = [Response(status_code=500) for _ in range(99)]
        with pytest.raises(DeliveryError, match=f"the gateway {gateway.url}"):
            connection.flush(timeout=1)
        wait_until(lambda: late.totals.delivered == 1, "a gateway that fails holds back no relay")
        gateway.answers.clear()
    assert len(relay.posted) == 6
    assert len(set(relay.posted)) == 1
    assert not any("authorization" in headers for headers in relay.headers)
    assert set(gateway.asked) == {"reports"}
    assert set(relay.asked) == {"key", "metrics/late", "sealed"}


def test_what_can_not_be_accepted_any_more_is_dropped_counted_and_told_once(
    relay: ScriptedServer, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Failure] = []
    statuses = [400, 409, 410, 413, 415]
    relay.answers = [Problem(status, "no").response("/") for status in statuses]
    with opened_reporter(LATE, relay, on_failure=told.append) as reporter:
        for day in range(5):
            reporter.report(1.0, epsilon=2, time=BEGIN + day * DAY, ledger=ledger)
        reporter.flush()
        assert (reporter.totals.refused, reporter.totals.left) == (5, 0)
        with pytest.raises(AlreadyAnswered):
            reporter.report(1.0, epsilon=2, time=BEGIN + 4 * DAY, ledger=ledger)
    assert float(ledger.accounts()["late"].spent) == 10
    assert [(each.kind, each.status) for each in told] == [("refused", each) for each in statuses]
    assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) == 1
    assert len(relay.posted) == 5


def test_a_metric_with_a_crowd_never_leaves_unsealed(
    relay: ScriptedServer, gateway: ScriptedServer, broker: Broker, ledger: Ledger, tmp_path: Path
) -> None:
    asked = r"^not_sealed: .*expected HttpReporter\(\.\.\., relay="
    with pytest.raises(ValueError, match=asked):
        Reporter(LATE, broker.config)
    for metric in (LATE, "late"):
        with row(metric), pytest.raises(ValueError, match=asked):
            HttpReporter(metric, gateway.url)
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"relay": relay.url}, "expected both, or neither"),
        ({"relay": "relay", "key": KEY}, "expected a relay's address"),
        ({"relay": relay.url, "key": "00" * 32}, "a public key of X25519"),
    )
    for options, told in wrong:
        with row(options), pytest.raises(ValueError, match=told):
            HttpReporter(LATE, gateway.url, **options)
    with pytest.raises(ValueError, match="'open' has no crowd, as relay"):
        opened_reporter("open", relay)
    with opened_reporter(LATE, relay, queue=tmp_path / "queue") as reporter:
        with pytest.raises(ValueError, match="expected a ledger"):
            reporter.report(1.0, epsilon=2)
        with pytest.raises(ValueError, match="expected a ledger"):
            RollUp(reporter, "active", "1d", 2)
        for how in ("last", "largest"):
            with row(how), pytest.raises(ValueError, match="no value may decide"):
                RollUp(reporter, how, "1d", 2, ledger=ledger)
        with pytest.raises(AlreadyAnswered):
            reporter.report([1.0, 0.0], epsilon=2, time=BEGIN, ledger=ledger)
        other = define(name="late", **definition_of(LATE) | {"levels": [1]})
        poor = Ledger(tmp_path / "poor", budget=1)
        with pytest.raises(BudgetSpent):
            reporter.report(1.0, epsilon=2, time=BEGIN, ledger=poor)
        reporter.report(1.0, epsilon=2, time=BEGIN, ledger=ledger)
        with opened_reporter(other, relay) as second, pytest.raises(DefinitionChanged):
            second.report(1.0, epsilon=2, time=BEGIN, ledger=ledger)
    assert not gateway.posted


def test_a_relay_of_another_key_gets_nothing(relay: ScriptedServer, ledger: Ledger) -> None:
    def is_refused(reporter: HttpReporter) -> bool:
        return bool(reporter.connection.relay and reporter.connection.relay.background.changed)

    weaker = define(name="late", **definition_of(LATE) | {"crowd": CROWD | {"minimum": 100}})
    for key, served, told in ((OTHER_KEY, LATE, "for key"), (KEY, weaker, "differs")):
        relay.key = key
        relay.definitions["late"] = msgspec.json.encode(definition(served))
        with row(told), opened_reporter(LATE, relay) as reporter:
            wait_until(lambda: is_refused(reporter), "key and definition are compared")
            with pytest.raises(DefinitionChanged, match=told):
                reporter.report(1.0, epsilon=2, ledger=ledger)
    relay.key = OTHER_KEY
    with pytest.raises(DefinitionChanged, match="for key"):
        opened_reporter("late", relay)
    assert not relay.posted
    assert "late" not in ledger.accounts()


def test_a_roll_up_waits_for_up_to_half_of_the_crowds_time_and_is_missed_after_it(
    relay: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roll_up, "_random", random.Random(1))
    clock, delays = Clock(BEGIN), list[int]()
    ledger = Ledger(tmp_path / "ledger", budget=1000, clock=clock)
    with opened_reporter(LATE, relay, queue=tmp_path / "queue", clock=clock) as reporter:
        seen = RollUp(reporter, "active", "1d", 2, ledger=ledger, clock=clock)
        for day in range(1, 41):
            clock.now = BEGIN + day * DAY + 1
            seen.report_ended()
            with reporter.connection.queue.file.transaction() as database:
                (course,) = database.execute("SELECT course FROM courses").fetchone()
            delays.append(json.loads(course)["delay"])
            clock.now += DAY / 4  # half of wait
            assert seen.report_ended() == int(delays[-1] > 1000)
        clock.now = BEGIN + 41.5 * DAY - 1  # nearly all of wait has passed since a window's end
        assert (seen.report_ended(), seen.missed) == (1, 0)
        clock.now += DAY + 1
        assert (seen.report_ended(), seen.missed) == (0, 1)
        reporter.flush()
    assert len(relay.posted) == 41
    hour = 3_600_000
    assert 0 <= min(delays) < hour < 5 * hour < max(delays) <= 6 * hour


def test_coroutines_seal_too(relay: ScriptedServer, ledger: Ledger) -> None:
    async def main() -> int:
        options: dict[str, Any] = {"relay": relay.url, "key": KEY}
        async with AsyncHttpReporter("late", NOWHERE, **options) as reporter:
            await reporter.report(1.0, epsilon=2, ledger=ledger)
            await reporter.flush()
            return (await reporter.totals()).delivered

    assert asyncio.run(main()) == 1
    assert len(relay.opened) == 1
