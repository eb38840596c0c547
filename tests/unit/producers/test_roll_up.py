"""A device gathers over a window and reports once: what it may rely on."""

import dataclasses
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from estimators import Metric, define
from producers import BudgetSpent, HttpReporter, Ledger, Reporter, RollUp
from producers.device import base_reporter, roll_up
from producers.device.roll_up import How
from producers.device.roll_up_windows import MOST_DUE
from tests.support.axes import CRASH
from tests.support.clocks import Clock, wait_until
from tests.support.metrics import frequency_metric, mean_metric
from tests.support.noted_reporter import NotedReporter
from tests.support.paths import ROOT
from tests.support.rows import row
from tests.support.running.broker import CARRIER, DELAY, WORDS, Broker, count

DAY = 86_400.0
BEGIN = 20_000 * DAY
NOWHERE = "http://127.0.0.1:9"
CLICKS = dataclasses.replace(DELAY, name="clicks", levels=[0.5, 1], pane="1h", lateness="2d")
SONG = dataclasses.replace(CARRIER, name="song", pane="1d", lateness="1d")


class Device:
    """A device without a network, and what it has reported: (value, event time)."""

    def __init__(self, folder: Path, metric: Metric = CLICKS) -> None:
        folder.mkdir(exist_ok=True)
        self.clock = Clock(BEGIN)
        self.reporter = NotedReporter(metric, NOWHERE, queue=folder / "queue", clock=self.clock)
        self.reported = self.reporter.noted

    def roll_up(self, how: How, window: str = "1d", **more: Any) -> RollUp:
        return RollUp(self.reporter, how, window, 1, clock=self.clock, **more)

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds


@pytest.fixture
def device(tmp_path: Path) -> Any:
    found = Device(tmp_path)
    with found.reporter:
        yield found


def test_a_window_is_reported_once_at_its_end(tmp_path: Path) -> None:
    given = [2.5, 40, 0.5]
    cases: list[tuple[How, str, float, list[Any], float]] = [
        ("count", "1h", 1 / 24, [None] * 3, 3),
        ("sum", "1d", 1, given, 43.0),
        ("last", "1d", 1, given, 0.5),
        ("largest", "7d", 7, given, 40),
        ("active", "28d", 28, [None] * 2, 1),
    ]
    for how, window, days, values, expected in cases:
        device, length = Device(tmp_path / how), days * DAY
        with row(how), device.reporter:
            device.clock.now -= device.clock.now % length
            end = device.clock.now + length
            gathered = device.roll_up(how, window)
            for value in values:
                gathered.add(value)
            device.pass_time(length - 1)
            assert gathered.report_ended() == 0
            device.pass_time(3601)
            assert [gathered.report_ended(), gathered.report_ended()] == [1, 0]
            assert [each for each in device.reported if each[1] < end] == [(expected, end - 0.001)]


def test_a_window_without_values_is_zero_where_that_means_something(tmp_path: Path) -> None:
    cases: dict[How, list[float]] = {"active": [1, 0, 0], "largest": [5.0]}
    for how, expected in cases.items():
        device = Device(tmp_path / how)
        with row(how), device.reporter:
            gathered = device.roll_up(how, "1h")
            gathered.add(5.0 if how == "largest" else None)
            device.pass_time(4 * 3600)
            gathered.report_ended()
            assert [value for value, _ in device.reported][: len(expected)] == expected
            assert len(device.reported) <= len(expected) + 1


def test_the_furthest_step_of_a_window_is_reported_or_the_first_one(tmp_path: Path) -> None:
    """In any order, by name or index. What is stored is a name."""
    steps = frequency_metric(
        "steps", "grr", ["none", "visit", "paid"], [1], pane="1h", lateness="2d"
    )
    device = Device(tmp_path, steps)
    with device.reporter:
        for nothing in ("visit", None):
            with pytest.raises(ValueError, match="expected 'none'"):
                device.roll_up("furthest", "1h", nothing=nothing)
        with pytest.raises(ValueError, match="expected None"):
            device.roll_up("last", "1h", nothing="none")
        gathered = device.roll_up("furthest", "1h", nothing="none")
        with pytest.raises(ValueError, match="did you mean 'paid'"):
            gathered.add("payed")
        for hour in (["paid", "visit"], [], ["none", 1]):
            for step in hour:
                gathered.add(step)
            device.pass_time(3600)
        device.pass_time(3600)
        gathered.report_ended()
    assert [value for value, _ in device.reported][:3] == ["paid", "none", "visit"]


ADD_IN_A_PROCESS = """
import os, sys
from producers import HttpReporter, RollUp
from tests.support.axes import CRASH
now = float(sys.argv[2])
reporter = HttpReporter(CRASH, sys.argv[1], queue=sys.argv[3], clock=lambda: now)
RollUp(reporter, "flags", "1h", 16, nothing=CRASH.labels[0], clock=lambda: now).add("crashed")
os._exit(9)
"""


def test_flags_are_one_category_of_a_window_whatever_processes_do(tmp_path: Path) -> None:
    """A process ends as soon as its flag is stored. Windows of 1970 are late, and lost."""
    neither, _, used, both = CRASH.labels
    ledger = Ledger(tmp_path / "ledger", budget=9999)

    def hours(clock: Clock, gathered: RollUp, *flags: list[str]) -> None:
        for added in flags:
            for flag in added:
                gathered.add(flag)
            clock.now += 3600

    for queue, clock in (("queue", Clock(1.0)), ("after a reinstallation", Clock(BEGIN))):
        path = tmp_path / queue
        with NotedReporter(CRASH, NOWHERE, queue=path, clock=clock) as reporter:
            gathered = RollUp(
                reporter, "flags", "1h", 16, ledger=ledger, nothing=neither, clock=clock
            )
            if queue == "queue":
                gathered.add("crashed")
                clock.now = BEGIN
                gathered.report_ended()
                assert {value for value, _ in reporter.noted} == {neither}
                reporter.noted.clear()
            hours(clock, gathered, ["crashed", "used_x", "crashed"], [], ["used_x"])
            command = [sys.executable, "-c", ADD_IN_A_PROCESS, NOWHERE, str(clock.now), str(path)]
            assert subprocess.run(command, check=False, cwd=ROOT).returncode == 9
            hours(clock, gathered, ["used_x"], ["crashed"])
            clock.now += 365 * DAY
            gathered.add("used_x")  # in a window that is to come, which the clock has wrong
            clock.now -= 365 * DAY + 3600
            gathered.report_ended()
            clock.now += 2 * 3600
            gathered.report_ended()
        expected = [both, neither, used, both, both]
        reported = [(value, (time - BEGIN) // 3600) for value, time in reporter.noted]
        own = [each for each in reported if each[1] >= 0]
        assert own[:5] == [*zip(expected, range(5), strict=True)], queue
        assert len({hour for _, hour in reported}) == len(reported)
    for metric, words in (
        (CRASH, "expected 'used_x=no, crashed=no'"),
        (SONG, "expected axes with two values each"),
    ):
        with HttpReporter(metric, NOWHERE) as unused, pytest.raises(ValueError, match=words):
            RollUp(unused, "flags", "1d", 16)
    with (
        HttpReporter(CRASH, NOWHERE, queue=tmp_path / "queue") as again,
        pytest.raises(ValueError, match="flag crash of crash: expected one of used_x, crashed"),
    ):
        RollUp(again, "flags", "1h", 16, nothing=neither).add("crash")


def test_what_is_gathered_survives_a_restart_and_is_charged_once(tmp_path: Path) -> None:
    ledger, reported = Ledger(tmp_path / "ledger", budget=2), 0
    for restart in range(4):
        device = Device(tmp_path)
        device.clock.now += 3600 * restart
        with device.reporter:
            gathered = device.roll_up("count", ledger=ledger)
            for _ in range(5):
                gathered.add()
            if restart == 3:
                device.pass_time(DAY)
                assert gathered.report_ended() == 1
                assert gathered.report_ended() == 0
                assert device.reported[0][0] == 20
            reported += len(device.reported)
    assert reported == 1
    assert ledger.accounts()["clicks"].ever_spent == 1


def test_without_a_queue_the_ledger_is_used(broker: Broker, topic: str, tmp_path: Path) -> None:
    ledger, clock = Ledger(tmp_path / "ledger", budget=2), Clock(BEGIN)
    with Reporter(CLICKS, broker.config, topic=topic, clock=clock) as reporter:
        RollUp(reporter, "sum", "1d", 1, ledger=ledger, clock=clock).add(3)
        RollUp(reporter, "sum", "1d", 1, ledger=ledger, clock=clock).add(4)
        clock.now += DAY + 3600
        again = RollUp(reporter, "sum", "1d", 1, ledger=ledger, clock=clock)
        assert (again.report_ended(), again.report_ended()) == (1, 0)
    (batch,) = broker.batches(topic)
    assert (len(batch.levels), batch.time_ms) == (1, round((BEGIN + DAY) * 1000) - 1)
    assert [file.name for file in tmp_path.iterdir()] == ["ledger"]


def test_a_new_process_reports_no_sooner(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    delays = iter([3_600_000, *[0] * 9])
    monkeypatch.setattr(roll_up._random, "randint", lambda *_: next(delays))
    device.roll_up("count")
    device.pass_time(DAY)
    assert device.roll_up("count").report_ended() == 0
    device.pass_time(3599)
    assert device.roll_up("count").report_ended() == 0
    device.pass_time(1)
    assert device.roll_up("count").report_ended() == 1


def test_what_is_sent_or_replaced_is_in_no_file(broker: Broker, topic: str, tmp_path: Path) -> None:
    clock, secrets = Clock(BEGIN), [f"song-{'xyz'[i]}-secret" * 3 for i in range(3)]
    song = dataclasses.replace(WORDS, name="song", pane="1d", lateness="1d")
    ledger = Ledger(tmp_path / "ledger", budget=9, clock=clock)
    own: list[Any] = [
        HttpReporter(song, NOWHERE, queue=tmp_path / "queue", clock=clock),
        Reporter(song, broker.config, topic=topic, clock=clock),
    ]
    for reporter in own:
        with reporter:
            gathered = RollUp(reporter, "last", "1d", 1, ledger=ledger, clock=clock)
            for secret in secrets:
                gathered.add(secret)
                with row(type(reporter), secret):
                    assert held(tmp_path, secrets) == {secret}
            clock.now += DAY + 3600
            assert gathered.report_ended() == 1
            assert held(tmp_path, secrets) == set()


def held(folder: Path, secrets: list[str]) -> set[str]:
    """Return which strings the files of a folder contain, deleted or not."""
    content = b"".join(file.read_bytes() for file in folder.iterdir())
    return {secret for secret in secrets if secret.encode() in content}


def test_a_report_that_is_refused_is_made_later(device: Device, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", budget=1, period="1h")
    ledger.spend("clicks", 1)
    gathered = device.roll_up("count", ledger=ledger)
    gathered.add()
    device.pass_time(DAY + 3600)
    with pytest.raises(BudgetSpent):
        gathered.report_ended()
    Ledger(tmp_path / "ledger", budget=5)
    assert gathered.report_ended() == 1
    assert device.reported == [(1, BEGIN + DAY - 0.001)]


def test_the_reporters_thread_reports_and_tries_again_after_a_failure(
    broker: Broker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(base_reporter, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(roll_up, "AGAIN_SECONDS", 0.02)
    over_http = HttpReporter(CLICKS, NOWHERE, queue=tmp_path / "queue")
    for reporter in (over_http, Reporter(CLICKS, broker.config, topic=topic)):
        name, clock = type(reporter).__name__, Clock(BEGIN)
        ledger = Ledger(tmp_path / name, budget=0.5, clock=clock)
        with row(name), reporter:
            RollUp(reporter, "count", "1d", 1, ledger=ledger, clock=clock)
            clock.now += DAY + 3600
            wait_until(lambda: "of 'clicks' is not reported yet: epsilon" in caplog.text, "refused")
            Ledger(tmp_path / name, budget=1)
            wait_until(lambda one=ledger: "clicks" in one.accounts(), "reported")  # type: ignore[misc]
        caplog.clear()
    assert count(CLICKS, broker.batches(topic)).sum() > 0


def test_a_budget_that_is_too_small_for_reports_of_one_period_is_told(
    device: Device, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cases = [
        ("1d", "1d", 1, "2 reports of 'clicks' may fall into one period"),
        ("22h", "1d", 1.9, "and cost 2; its budget is 1.9"),
        ("20h", "1d", 1, ""),
        ("1d", "1d", 2, ""),
        ("1d", "1h", 24, "25 reports of 'clicks'"),
        ("1d", "7d", 1, ""),
        ("1d", "7d", 0.5, "1 reports of 'clicks'"),
    ]
    for period, window, budget, told in cases:
        with row(f"{period} {window} {budget}"):
            caplog.clear()
            ledger = Ledger(tmp_path / f"{period}{window}{budget}", budget=budget, period=period)
            device.roll_up("count", window, ledger=ledger).report_ended()
            assert len(caplog.messages) == bool(told)
            assert told in caplog.text


def test_a_device_that_is_on_each_evening_loses_no_day_with_20_hours(tmp_path: Path) -> None:
    for period, fewest, most in (("24h", 20, 45), ("20h", 0, 0)):
        device, evenings = Device(tmp_path / period), random.Random(1)
        ledger = Ledger(tmp_path / period / "ledger", 1, period, clock=device.clock)
        with row(period), device.reporter:
            gathered = device.roll_up("active", ledger=ledger)
            for day in range(1, 91):
                device.clock.now = BEGIN + DAY * day + 3600 * evenings.uniform(19, 21)
                with suppress(BudgetSpent):
                    gathered.report_ended()
            assert fewest <= 90 - len(device.reported) <= most


def test_a_removed_value_delays_no_window(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(BEGIN)
    for categories in (["AA", "old"], ["AA", "new"]):
        metric = define(
            name="song", kind="frequency", categories=categories, levels=[1], pane="1d",
            lateness="3d",
        )  # fmt: skip
        with HttpReporter(metric, NOWHERE, queue=tmp_path / "queue", clock=clock) as reporter:
            played = RollUp(reporter, "last", "1d", 1, clock=clock)
            if "old" in categories:
                played.add("old")
                clock.now += DAY
                played.add("AA")
            else:
                clock.now += DAY + 3600
                assert played.report_ended() == 1
                assert "cannot be reported any more (ValueError)" in caplog.text


def test_a_crash_while_reporting_never_reports_twice(device: Device) -> None:
    gathered = device.roll_up("count")
    gathered.add()
    device.pass_time(DAY + 3600)
    report = device.reporter.report

    def crash(*given: Any, **more: Any) -> None:
        report(*given, **more)
        raise SystemExit

    device.reporter.report = crash  # type: ignore[method-assign]
    with pytest.raises(SystemExit):
        gathered.report_ended()
    device.reporter.report = report  # type: ignore[method-assign]
    assert device.roll_up("count").report_ended() == 0
    assert len(device.reported) == 1


def test_a_window_that_nobody_would_count_is_not_charged(device: Device, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", budget=9)
    gathered = device.roll_up("count", ledger=ledger)
    gathered.add()
    device.pass_time(10 * DAY + 3600)
    made = gathered.report_ended()
    assert made == 2  # of the last two days, in which nothing happened: their lateness is 2 days
    assert gathered.missed == 8
    assert ledger.accounts()["clicks"].spent == 2
    assert [value for value, _ in device.reported] == [0, 0]


def test_a_clock_that_comes_from_1970_keeps_few_windows_waiting(tmp_path: Path) -> None:
    metric, clock = dataclasses.replace(CLICKS, lateness="21000d"), Clock(1.0)
    with HttpReporter(metric, NOWHERE, queue=tmp_path / "queue", clock=clock) as reporter:
        count = RollUp(reporter, "count", "1h", 1, clock=clock)
        largest = RollUp(reporter, "largest", "1h", 1, clock=clock)
        clock.now = BEGIN
        assert (count._report_due(3), largest.report_ended()) == (3, 0)
        assert count.missed == BEGIN / 3600 - MOST_DUE


def test_rules_and_handlers_use_roll_ups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, used = Clock(BEGIN), list[int]()

    def use(*_: Any) -> bool:
        used.append(gathered.missed)
        return False

    song = dataclasses.replace(WORDS, name="song", pane="1d", lateness="1d")
    reporter = HttpReporter(song, NOWHERE, queue=tmp_path / "queue", clock=clock, deny=use)
    gathered = RollUp(reporter, "last", "1d", 1, clock=clock)
    gathered.add("x")
    monkeypatch.setattr(roll_up.logger, "warning", use)
    for days in (1.9, -9):
        clock.now = BEGIN + days * DAY
        used.clear()
        look = threading.Thread(target=gathered.report_ended, daemon=True)
        look.start()
        look.join(30)
        assert used
    reporter.close()


YEAR = 365 * DAY


def test_a_clock_that_was_a_year_ahead_stops_nothing(device: Device, tmp_path: Path) -> None:
    """Each window is reported and charged at most once, and those of the present are reported."""
    ledger = Ledger(tmp_path / "ledger", budget=100)
    gathered = device.roll_up("count", ledger=ledger)
    gathered.add()
    device.pass_time(YEAR + 3600)
    gathered.add()
    ahead = gathered.report_ended()  # the last days of that year, which nobody has seen yet
    assert ahead == 2
    device.pass_time(-YEAR)
    gathered.add()
    assert gathered.report_ended() == 0
    for _ in range(5):
        device.pass_time(DAY)
        gathered.report_ended()
    own = device.reported[ahead:]
    assert [round(time + 0.001 - BEGIN) // DAY for _, time in own] == [1, 2, 3, 4, 5]
    assert [value for value, _ in own] == [2, 0, 0, 0, 0], "with that under the wrong clock"
    device.pass_time(YEAR - 4 * DAY)
    gathered.report_ended()
    times = [time for _, time in device.reported]
    assert len(set(times)) == len(times), "a window was reported twice"
    assert ledger.accounts()["clicks"].ever_reports == len(times)


def test_threads_gather_and_report_together(device: Device) -> None:
    gathered = device.roll_up("sum")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(gathered.add, [1] * 40))
        device.pass_time(DAY + 3600)
        assert sum(pool.map(lambda _: gathered.report_ended(), range(8))) == 1
    assert [value for value, _ in device.reported] == [40]


def test_what_cannot_be_gathered_is_told(device: Device) -> None:
    prompt = mean_metric("prompt", "laplace", (0, 1), [1], pane="1h")
    rounds = define(name="most", kind="maximum", range=(0, 1), levels=[1], rounds=3)
    cases: list[tuple[Any, Any, str, float, str]] = [
        (CLICKS, "mean", "1d", 1, "how = 'mean': expected one of count"),
        (CLICKS, "sum", "90m", 1, "window = '90m': expected a multiple of the pane of 'clicks'"),
        (CLICKS, "sum", "1d", 0.1, "epsilon = 0.1"),
        (prompt, "sum", "1d", 1, "has lateness = '0s': expected for how long"),
        (rounds, "sum", "1d", 1, "asked in rounds"),
        (SONG, "sum", "1d", 1, "expected a metric of numbers"),
        (SONG, "last", "1d", 1, "expected a ledger, or an HttpReporter with a queue"),
    ]
    for metric, how, window, epsilon, told in cases:
        with (
            row(told),
            HttpReporter(metric, NOWHERE) as reporter,
            pytest.raises(ValueError, match=told),
        ):
            RollUp(reporter, how, window, epsilon)
    values: list[tuple[How, Any]] = [("sum", "x"), ("sum", float("nan")), ("sum", [1, 2])]
    for how, value in (*values, ("count", 3)):
        with pytest.raises(ValueError, match="value"):
            device.roll_up(how).add(value)
