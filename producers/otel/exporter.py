"""The exporter: mapped instruments are reported, all others are dropped and counted."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.metrics import Counter, Histogram, ObservableCounter, ObservableGauge, _Gauge
from opentelemetry.sdk.metrics import export as sdk

from producers.delivery.delivery_errors import DeliveryError
from producers.device.base_reporter import BaseReporter
from producers.otel.mapping import Data, EachExport, Gathered, UnusableError, points_of

logger = logging.getLogger("producers")

DELTA_TEMPORALITY: dict[type, sdk.AggregationTemporality] = dict.fromkeys(
    (Counter, ObservableCounter, Histogram, _Gauge, ObservableGauge),
    sdk.AggregationTemporality.DELTA,
)
"""These instruments report what was measured since the last export; others their present level."""
FORKED_REASON = (
    "its interval began before this process was forked, so the process that forked reports what "
    "was measured until then. The next export of this process is whole; make the MeterProvider "
    "after the fork, and nothing is dropped"
)
SEVERAL_READERS = (
    "its interval overlaps with one that was exported: expected one metric reader with this "
    "exporter"
)
UNMAPPED_REASON = "unmapped"
SHUT_DOWN = "shut_down"
SEVERAL_STREAMS = "several_streams"
TEXT_NOT_LOGGED = "the error's text is not logged, because it may hold the value"
"""A handler of the application may send its log to a server."""
ONE_STREAM = (
    "expected one stream of this name in a meter: two views of one instrument would count its "
    "measurements twice, and two instruments may have different units"
)


class DitherMetricExporter(sdk.MetricExporter):
    """Exports one device's OpenTelemetry measurements as randomized reports.

    An export makes at most one value of each mapped instrument, whatever attributes it was recorded
    with: the increase of a counter, the level of an up-down counter, the last value of a gauge, or
    what `of` names for a histogram. Names, attributes, resources, exemplars and times of
    measurements never leave. Instruments that are not mapped are dropped, and counted.

    Before `export` returns, a value is randomized, or put into a roll-up's file on the device.

    Parameters
    ----------
    mapped : mapping of str to EachExport or Gathered
        What to do with the values of an instrument, by its name.

    Raises
    ------
    TypeError
        If a value of `mapped` is neither an EachExport nor a Gathered.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from opentelemetry.sdk.metrics import MeterProvider
    >>> from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    >>> from estimators import define
    >>> from producers import HttpReporter, Ledger
    >>> metric = define(name="clicks", kind="mean", mechanism="auto", range=(0, 50), levels=[1])
    >>> with TemporaryDirectory() as folder:
    ...     reporter = HttpReporter(metric, "http://127.0.0.1:9", queue=f"{folder}/queue")
    ...     ledger = Ledger(f"{folder}/ledger", budget=2)
    ...     exporter = DitherMetricExporter({"app.clicks": EachExport(reporter, 1.0, ledger)})
    ...     reader = PeriodicExportingMetricReader(exporter)
    ...     meters = MeterProvider([reader], shutdown_on_exit=False)
    ...     meters.get_meter("app").create_counter("app.clicks").add(3, {"user": "anna"})
    ...     meters.get_meter("app").create_counter("app.errors").add(1)
    ...     meters.shutdown()
    ...     exporter.reported, exporter.dropped
    ({'app.clicks': 1}, {('app.errors', 'unmapped'): 1})
    """

    def __init__(self, mapped: Mapping[str, EachExport | Gathered]) -> None:
        for name, export in mapped.items():
            if not isinstance(export, EachExport | Gathered):
                raise TypeError(f"mapped[{name!r}] = {export!r}: expected EachExport or Gathered")
        super().__init__(preferred_temporality=dict(DELTA_TEMPORALITY))
        self._mapped = dict(mapped)
        self._reported, self._dropped = Tally[str](), Tally[tuple[str, str]]()
        self._counting, self._is_shut_down = threading.Lock(), False
        self._ends: dict[str, int] = {}
        """Until when the increases of each instrument were exported, in ns."""
        self._forked_at = 0
        _OPEN_EXPORTERS.add(self)

    @property
    def reported(self) -> dict[str, int]:
        """The number of values that were reported or gathered, by instrument."""
        with self._counting:
            return dict(self._reported)

    @property
    def dropped(self) -> dict[tuple[str, str], int]:
        """The number of data points that are in no report, by instrument and reason.

        The reason is ``"unmapped"``, another word listed in docs/opentelemetry.md, or the name of
        an error that `report` or `add` raised.
        """
        with self._counting:
            return dict(self._dropped)

    def export(
        self, metrics_data: sdk.MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> sdk.MetricExportResult:
        """Report the values of mapped instruments; never raise.

        Nothing is sent over a network, so the timeout is ignored.

        Returns
        -------
        MetricExportResult
            FAILURE if the value of a mapped instrument could not be reported. It is counted in
            `dropped` and lost; the SDK does not export it again.
        """
        data_by_name, repeated = defaultdict[str, list[Data]](list), set[str]()
        for resource in metrics_data.resource_metrics:
            for scope in resource.scope_metrics:
                names = Tally(metric.name for metric in scope.metrics)
                repeated.update(name for name, times in names.items() if times > 1)
                for metric in scope.metrics:
                    data_by_name[metric.name].append(metric.data)
        old = self.check_intervals({n: d for n, d in data_by_name.items() if n in self._mapped})
        results = [
            self._export(name, streams, name in repeated, old)
            for name, streams in data_by_name.items()
        ]
        return sdk.MetricExportResult.SUCCESS if all(results) else sdk.MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Send all reports, and wait until they are acknowledged.

        Returns
        -------
        bool
            False if a report is not acknowledged in time. It is kept, and sent later.
        """
        deadline, done = time.monotonic() + timeout_millis / 1000, True
        for reporter in self._reporters():
            try:
                reporter.flush(max(0.0, deadline - time.monotonic()))
            except (DeliveryError, ValueError) as error:
                logger.warning("reports of %r are not sent: %s", reporter.metric.name, error)
                done = False
        return done

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Close the reporters; later exports report nothing."""
        if self._is_shut_down:
            return
        self._is_shut_down = True
        milliseconds = kwargs.get("timeout", timeout_millis)  # as the SDK's readers call it
        deadline = time.monotonic() + milliseconds / 1000
        for reporter in self._reporters():
            try:
                reporter.close(max(0.0, deadline - time.monotonic()))
            except DeliveryError as error:
                logger.warning("reports of %r are lost: %s", reporter.metric.name, error)

    def after_fork(self) -> None:
        """Remember that this process has just been forked; replace the lock of the parent."""
        self._forked_at, self._counting = time.time_ns(), threading.Lock()

    def check_intervals(self, mapped: Mapping[str, list[Data]]) -> UnusableError | None:
        """Return why the increases of an export cannot be reported; else remember their end.

        `mapped`: the data of mapped instruments, by name. The intervals of a reader follow each
        other. If an interval ends before the last one, the clock was set back, and the export is
        accepted.
        """
        intervals = {
            name: interval for name, streams in mapped.items() if (interval := _interval(streams))
        }
        forked_at = self._forked_at
        is_parents = any(start < forked_at for start, _ in intervals.values())
        if intervals:
            self._forked_at = 0
        for name, (start, end) in intervals.items():
            if not is_parents and start < self._ends.get(name, 0) <= end:
                return UnusableError("several_readers", SEVERAL_READERS)
        self._ends |= {name: end for name, (_, end) in intervals.items()}
        return UnusableError("forked", FORKED_REASON) if is_parents else None

    def _export(
        self, name: str, streams: list[Data], is_repeated: bool, old: UnusableError | None
    ) -> bool:
        """Report an instrument's value, or drop its points; return False if reporting failed."""
        mapped = self._mapped.get(name)
        if mapped is None:
            self._drop(name, streams, UNMAPPED_REASON, "no metric is mapped to it")
            return True
        failure = None
        if self._is_shut_down:
            failure = SHUT_DOWN, "the exporter is shut down"
        elif old is not None:
            failure = old.reason, str(old)
        elif is_repeated:
            failure = SEVERAL_STREAMS, ONE_STREAM
        else:
            try:
                mapped.take(streams)
            except UnusableError as error:
                failure = error.reason, str(error)
            except Exception as error:  # an application's own deny rule may raise anything
                failure = type(error).__name__, TEXT_NOT_LOGGED
        if failure is not None:
            self._drop(name, streams, *failure)
            return False
        with self._counting:
            self._reported[name] += 1
        return True

    def _drop(self, name: str, streams: list[Data], reason: str, detail: str) -> None:
        """Count dropped data points; log the first for each instrument and reason."""
        with self._counting:
            is_new = (name, reason) not in self._dropped
            self._dropped[name, reason] += len(points_of(streams))
        if is_new:
            level = logging.INFO if reason == UNMAPPED_REASON else logging.WARNING
            logger.log(level, "instrument %r is not reported (%s): %s", name, reason, detail)

    def _reporters(self) -> list[BaseReporter]:
        """Return the reporters without repetition."""
        return [*dict.fromkeys(export.reporter for export in self._mapped.values())]


def _interval(streams: list[Data]) -> tuple[int, int] | None:
    """Return the start and the end of an instrument's increases, in ns; None without increases."""
    delta = sdk.AggregationTemporality.DELTA
    sums = (stream for stream in streams if not isinstance(stream, sdk.Gauge))
    points = points_of(stream for stream in sums if stream.aggregation_temporality is delta)
    if not points:
        return None
    starts = [point.start_time_unix_nano or 0 for point in points]
    return min(starts), max(point.time_unix_nano for point in points)


_OPEN_EXPORTERS: weakref.WeakSet[DitherMetricExporter] = weakref.WeakSet()


def _after_fork() -> None:
    for exporter in _OPEN_EXPORTERS:
        exporter.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
