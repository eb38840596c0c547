"""What an application with the OpenTelemetry SDK may rely on when it adds Dither's exporter."""

import dataclasses
import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    InMemoryMetricReader,
    MetricExportResult,
    NumberDataPoint,
    PeriodicExportingMetricReader,
    Sum,
)
from opentelemetry.sdk.metrics.view import (
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)
from opentelemetry.sdk.resources import Resource

from estimators import Metric, define
from producers import (
    DitherMetricExporter,
    EachExport,
    Gathered,
    HttpReporter,
    Ledger,
    Reporter,
    RollUp,
)
from producers.gateway import Gateway
from producers.otel.mapping import Of
from tests.support.clocks import Clock
from tests.support.metrics import frequency_metric
from tests.support.noted_reporter import NotedReporter
from tests.support.rows import row
from tests.support.running.broker import DELAY, LATE, PLACE, Broker, count
from tests.support.running.gateway_server import serving
from tests.support.running.processes import run

NOWHERE = "http://127.0.0.1:9"
DAY = 86_400.0
NUMBER = dataclasses.replace(DELAY, name="number", levels=[1, 64], lateness="2d")
PAGE = frequency_metric("page", "grr", ["home", "help", "3", "true"], [64], lateness="2d")
"""At epsilon = 64 a report is the value, but for a chance of 10^-28."""
USED = dataclasses.replace(LATE, name="used", levels=[64], pane="1d", lateness="2d")
LONGEST = define(name="longest", kind="maximum", range=(0, 128), levels=[1, 2], rounds=7)


class App:
    """An application on a device, its meters, and the values that it gave to its reporters."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.noted, self.clock = folder, list[tuple[Any, Any]](), Clock(20_000 * DAY)
        self.providers: list[MeterProvider] = []

    def reporter(self, metric: Metric = NUMBER) -> HttpReporter:
        file = self.folder / f"queue-{metric.name}"
        reporter = NotedReporter(metric, NOWHERE, queue=file, clock=self.clock)
        reporter.noted = self.noted
        return reporter

    def roll_up(self, how: Any, metric: Metric) -> RollUp:
        return RollUp(self.reporter(metric), how, "1d", metric.levels[-1], clock=self.clock)

    def provide(self, exporter: DitherMetricExporter, views: list[View] | None = None) -> Any:
        """Return the SDK with the exporter; it exports when its reader is told to."""
        self.reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)
        provider = MeterProvider([self.reader], shutdown_on_exit=False, views=views or [])
        self.providers.append(provider)
        return provider

    def meter(
        self, of: Of = "mean", category: str | None = None, views: list[View] | None = None
    ) -> Any:
        """Map the instrument "it" to a metric; remember its provider and exporter."""
        one = self.reporter(NUMBER if category is None else PAGE)
        self.exporter = DitherMetricExporter({"it": EachExport(one, 64, None, of, category)})
        self.provider = self.provide(self.exporter, views)
        return self.provider.get_meter("app")

    def gather(self, roll_up: RollUp, of: Of = "mean") -> Any:
        """Map the instrument "it" to a roll-up."""
        self.exporter = DitherMetricExporter({"it": Gathered(roll_up, of)})
        self.provider = self.provide(self.exporter)
        return self.provider.get_meter("app")

    def reported(self) -> list[Any]:
        """Return the values that were reported since the last time."""
        found, self.noted[:] = [value for value, _ in self.noted], []
        return found

    def exported(self) -> list[Any]:
        """Export, and return the values that were reported since the last time."""
        self.reader.collect()
        return self.reported()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    found = App(tmp_path)
    yield found
    for provider in found.providers:
        provider.shutdown()


# -- What is exported twice -----------------------------------------------------------------------


def export(exporter: DitherMetricExporter, start: int, end: int) -> str:
    """Return why an export with an increase in an interval is refused, or nothing."""
    points = [NumberDataPoint({}, start, end, 1)]
    data: list[Any] = [Sum(points, AggregationTemporality.DELTA, is_monotonic=True)]
    error = exporter.check_intervals({"it": data})
    return "" if error is None else error.reason


def test_an_increase_before_a_fork_is_reported_by_one_of_both_processes() -> None:
    # in a process of its own: Kafka's threads in this one may break a forked process
    run([sys.executable, "-c", f"import {__name__} as test; test.fork_after_an_increase()"])


def fork_after_an_increase() -> None:
    exporter = DitherMetricExporter({})
    assert export(exporter, 0, 100) == ""
    with exporter._counting:  # as a thread may hold it
        child = os.fork()
    if not child:
        now = time.time_ns() + 10**9
        told = [export(exporter, 100, now), export(exporter, now, now + 9)]
        os._exit(0 if (exporter.reported, told) == ({}, ["forked", ""]) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert export(exporter, 100, 200) == ""


def test_a_clock_that_was_set_back_stops_no_reports() -> None:
    exporter = DitherMetricExporter({})
    for interval in ((0, 100), (100, 200), (50, 80), (80, 90)):
        assert export(exporter, *interval) == ""
    assert export(exporter, 70, 95) == "several_readers"
    assert export(exporter, 90, 95) == ""


def test_two_readers_of_one_exporter_report_an_increase_once(app: App) -> None:
    app.meter()
    readers = [
        PeriodicExportingMetricReader(app.exporter, export_interval_millis=math.inf)
        for _ in range(2)
    ]
    app.providers.append(MeterProvider(readers, shutdown_on_exit=False))
    counter = app.providers[-1].get_meter("app").create_counter("it")
    for amount in (3, 4):
        counter.add(amount)
        for reader in readers:
            reader.collect()
    assert app.reported() == [3, 4]
    assert app.exporter.dropped == {("it", "several_readers"): 2}


# -- What an instrument means ---------------------------------------------------------------------


def test_what_counters_and_gauges_mean_at_each_export(app: App) -> None:
    counter = app.meter().create_counter("it")
    counter.add(2, {"place": "a"})
    counter.add(3, {"place": "b"})
    assert app.exported() == [5]
    assert app.exported() == [], "nothing was counted"
    counter.add(4)
    assert app.exported() == [4]
    assert (app.exporter.reported, app.exporter.dropped) == ({"it": 2}, {})
    level = app.meter().create_up_down_counter("it")
    level.add(7, {"place": "a"})
    level.add(-2, {"place": "b"})
    assert [app.exported(), app.exported()] == [[5], [5]]
    level.add(-6)
    assert app.exported() == [-1]
    gauge = app.meter().create_gauge("it")
    gauge.set(7)
    gauge.set(3)
    assert [app.exported(), app.exported()] == [[3], []], "then nothing was set"


def test_what_is_observed_is_observed_at_each_export(app: App) -> None:
    totals = iter([10, 25, 25])
    app.meter().create_observable_counter("it", [lambda _: [Observation(next(totals))]])
    assert [app.exported(), app.exported(), app.exported()] == [[10], [15], [0]]
    both = [Observation(4, {"place": "a"}), Observation(8, {"place": "b"})]
    app.meter().create_observable_up_down_counter("it", [lambda _: both])
    assert [app.exported(), app.exported()] == [[12], [12]]
    app.meter().create_observable_gauge("it", [lambda _: both])
    assert [app.exported(), app.exported()] == [[8], [8]]


def test_a_histogram_is_what_was_asked_of_its_recordings(app: App) -> None:
    wide = View(instrument_type=Histogram, aggregation=ExponentialBucketHistogramAggregation())
    asked: dict[Of, float] = {"mean": 4, "sum": 12, "count": 3, "smallest": 1, "largest": 9}
    for (of, expected), views in itertools.product(asked.items(), ([], [wide])):
        with row(of, views):
            histogram = app.meter(of, views=views).create_histogram("it")
            histogram.record(9.0, {"place": "a"})
            histogram.record(1.0, {"place": "b"})
            histogram.record(2.0, {"place": "b"})
            assert [app.exported(), app.exported()] == [[expected], []]
            histogram.record(5.0)
            assert app.exported() == [1 if of == "count" else 5.0]
    blind = ExplicitBucketHistogramAggregation([1], record_min_max=False)
    view = View(instrument_name="it", aggregation=blind)
    app.meter("largest", views=[view]).create_histogram("it").record(3)
    assert app.exported() == []
    assert app.exporter.dropped == {("it", "not_recorded"): 1}


def test_instruments_of_one_name_are_one_if_they_can_be(app: App) -> None:
    app.meter().create_counter("it").add(3)
    app.provider.get_meter("a library").create_counter("it").add(4)
    assert app.exported() == [7]
    app.meter().create_counter("it").add(3)
    app.provider.get_meter("a library").create_up_down_counter("it").add(4)
    assert app.exported() == []
    assert app.exporter.dropped == {("it", "several_kinds"): 2}
    both = [View(instrument_name="it", attribute_keys={"place"}), View(instrument_name="*")]
    app.meter(views=both).create_counter("it").add(3, {"place": "a"})
    assert app.exported() == [], "two views count the same"
    assert app.exporter.dropped == {("it", "several_streams"): 2}


# -- Categories -----------------------------------------------------------------------------------


def test_a_category_is_the_attribute_value_with_the_largest_number(app: App) -> None:
    for value, name in (("help", "help"), (3, "3"), (True, "true")):
        counter = app.meter(category="page").create_counter("it")
        counter.add(3, {"page": "home", "user": "anna"})
        counter.add(2, {"page": value, "user": "anna"})
        counter.add(2, {"page": value, "user": "bob"})
        counter.add(9, {"user": "anna"})
        assert app.exported() == [name]
        counter.add(1, {"page": "home"})
        counter.add(1, {"page": "help"})
        assert app.exported() == ["help"], "of equal ones the first by name"


def test_a_state_is_the_category_of_an_up_down_counter_or_gauge_above_zero(app: App) -> None:
    level = app.meter(category="page").create_up_down_counter("it")
    level.add(1, {"page": "help"})
    level.add(1, {"page": "home"})
    level.add(-1, {"page": "help"})
    assert app.exported() == ["home"]
    level.add(-1, {"page": "home"})
    assert app.exported() == []
    assert app.exporter.dropped == {("it", "not_above_zero"): 2}


def test_other_values_are_counted_by_reason(app: App, caplog: pytest.LogCaptureFixture) -> None:
    attributes: list[tuple[dict[str, Any], str]] = [
        ({}, "no_attribute"),
        ({"page": ["home"]}, "no_attribute"),
        ({"page": "elsewhere"}, "ValueError"),
    ]
    for given, reason in attributes:
        app.meter(category="page").create_counter("it").add(1, given)
        assert app.exported() == []
        assert app.exporter.dropped == {("it", reason): 1}
        assert f"({reason})" in caplog.text
    assert "elsewhere" not in caplog.text, "a log may be exported, too"


# -- What is dropped ------------------------------------------------------------------------------


def test_one_instrument_that_fails_does_not_keep_others_from_being_reported(app: App) -> None:
    ledger = Ledger(app.folder / "ledger", budget=1)
    poor, rich = EachExport(app.reporter(), 1, ledger), EachExport(app.reporter(USED), 64, None)
    exporter = DitherMetricExporter({"poor": poor, "rich": rich})
    meter = app.provide(exporter).get_meter("app")
    for expected in ([5, 1], [1]):
        for name, amount in (("poor", 5), ("rich", 1), ("other", 1)):
            meter.create_counter(name).add(amount)
        assert app.exported() == expected
    assert exporter.dropped == {("poor", "BudgetSpent"): 1, ("other", "unmapped"): 2}
    assert exporter.reported == {"poor": 1, "rich": 2}


def test_the_result_says_whether_everything_mapped_was_reported(app: App) -> None:
    exporter = DitherMetricExporter({"it": EachExport(app.reporter(), 1, None)})
    delta: dict[type, AggregationTemporality] = {Histogram: AggregationTemporality.DELTA}
    for kind, name, expected in (
        ("histogram", "other", MetricExportResult.SUCCESS),
        ("histogram", "it", MetricExportResult.SUCCESS),
        ("counter", "it", MetricExportResult.FAILURE),
    ):
        reader = InMemoryMetricReader(delta)
        meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("app")
        if kind == "counter":
            meter.create_counter(name).add(1)
        else:
            meter.create_histogram(name).record(1)
        data: Any = reader.get_metrics_data()
        assert exporter.export(data) is expected
    assert exporter.dropped == {("other", "unmapped"): 1, ("it", "temporality"): 1}
    exporter.shutdown()
    assert exporter.export(data) is MetricExportResult.FAILURE


# -- Roll-ups -------------------------------------------------------------------------------------


def test_a_roll_up_makes_one_report_of_a_days_exports(app: App) -> None:
    for how, metric, expected in (("sum", NUMBER, 9), ("last", NUMBER, 4), ("active", USED, 1)):
        roll_up = app.roll_up(how, metric)
        counter = app.gather(roll_up).create_counter("it")
        for increase in (5, 4):
            counter.add(increase)
            assert app.exported() == []
        app.clock.now += DAY + 3600
        counter.add(1)
        assert app.exported() == [], "a report at an export would tell that something was measured"
        assert roll_up.report_ended() == 1
        assert app.reported() == [expected]
        assert app.exporter.reported == {"it": 3}
        app.folder = app.folder / how
        app.folder.mkdir()
    for of, dropped in (("mean", {("it", "not_additive"): 1}), ("sum", {})):
        histogram = app.gather(app.roll_up("sum", NUMBER), of).create_histogram("it")  # type: ignore[arg-type]
        histogram.record(3)
        app.exported()
        assert app.exporter.dropped == dropped


# -- Mappings that cannot be ----------------------------------------------------------------------


def test_a_mapping_that_cannot_be_is_refused_at_once(app: App) -> None:
    number, page = app.reporter(), app.reporter(PAGE)
    wrong: Any = 3
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: DitherMetricExporter({"it": wrong}), "expected EachExport or Gathered"),
        (lambda: EachExport(wrong, 1, None), "expected a Reporter"),
        (lambda: EachExport(number, 1, None, of=wrong), "expected one of mean, sum"),
        (lambda: EachExport(number, 0.5, None), "0.5"),
        (lambda: EachExport(number, 1, None, category="page"), "expected none"),
        (lambda: EachExport(page, 64, None), "the key of the attribute"),
        (lambda: EachExport(app.reporter(PLACE), 8, None), "vectors"),
        (lambda: EachExport(app.reporter(LONGEST), 1, None), "rounds"),
        (lambda: Gathered(app.roll_up("count", NUMBER)), "count exports"),
    ]
    for make, expected in refused:
        with pytest.raises((TypeError, ValueError), match=expected):
            make()


# -- The way to the service -----------------------------------------------------------------------


def test_reports_of_instruments_arrive_twofold(broker: Broker, topic: str, tmp_path: Path) -> None:
    with serving(Gateway({"page": PAGE}, broker.config, topic)) as url:
        over_http = HttpReporter(PAGE, url.removesuffix("/v1/reports"), queue=tmp_path / "queue")
        for one in (over_http, Reporter(PAGE, broker.config, topic=topic)):
            exporter = DitherMetricExporter({"it": EachExport(one, 64, None, category="page")})
            reader = PeriodicExportingMetricReader(exporter)
            resource = Resource.create({"service.name": "secret-name"})
            provider = MeterProvider([reader], resource, shutdown_on_exit=False)
            counter = provider.get_meter("secret-meter").create_counter("it")
            for page in ("help", "home", "help"):
                counter.add(1, {"page": page, "secret-key": "secret-value"})
                assert provider.force_flush()
            provider.shutdown()
    assert count(PAGE, broker.batches(topic)).tolist() == [6, 2, 4, 0, 0]
    for batch in broker.batches(topic):
        assert b"secret" not in batch.SerializeToString()
        assert b"help" not in batch.SerializeToString()
    assert b"secret" not in (tmp_path / "queue").read_bytes()
