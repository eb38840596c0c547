"""The demo: simulated devices, Kafka, a worker, Redis and a reader; the truth beside estimates."""

from __future__ import annotations

import bisect
import contextlib
import importlib.resources
import signal
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import numpy as np

from aggregator.config.definitions import MetricDefinitions
from aggregator.config.settings import Settings
from aggregator.errors import DitherError
from aggregator.features.trusted.plan import newest_releases
from aggregator.kafka import clients
from aggregator.local.demo_discoveries import TrueDiscoveries, discovers
from aggregator.local.demo_relay import DemoRelay
from aggregator.local.demo_view import Outcome, View
from aggregator.local.demo_watches import read_looks, true_alarms, true_comparisons
from aggregator.local.deployment import LocalDeployment, allow_any_past, free_port
from aggregator.reading.reader import MetricReader
from aggregator.reading.window import Window
from aggregator.state.pane_keys import metric_key
from aggregator.storage.connection import connect
from aggregator.storage.progress import TopicProgress
from aggregator.storage.store import Store
from aggregator.verifying.verify import verify
from estimators import Metric, SearchMetric, TrustedMetric
from producers.populations.flights import MIX, flight_table, flights
from producers.populations.population import Population
from producers.populations.produce import Produced, ReplayProgress, produce, respond
from producers.populations.truth import RunningTruth, Truth

REFRESH_SECONDS = 0.5
ANSWERING_SHARE = 0.8
"""The share of the replay in which the flights answer rounds."""
DECIDING_SECONDS = 1.5
"""The approximate time from the last answer of a round to the first answer of the next."""
DRAIN_SECONDS = 180.0
"""After this time without progress the demo gives up."""
MIN_TRUTH_SHARE = 0.9
"""A truth is shown beside an estimate if it covers at least this share of the counted reports."""


class Demonstration:
    """Everything that the demo runs; a context manager, which starts and stops it.

    Parameters
    ----------
    settings : Settings
        The settings, which may name a broker or a store; otherwise they are started here.
    seconds : float
        Duration of the year's replay.
    workers : int
        Number of counting processes.
    seed : int
        The seed of the flights' choice of levels; the reports are random in any case.
    first_port : int
        The dashboard's port; if it is taken, the next free port is used. 0 for any free port.
    """

    def __init__(
        self, settings: Settings, seconds: float, workers: int, seed: int, first_port: int = 0
    ) -> None:
        self.seconds, self.workers, self.seed = seconds, workers, seed
        self.settings = _isolate_settings(settings, first_port)
        allow_any_past(self.settings)
        self._stack = contextlib.ExitStack()
        self._stop = threading.Event()
        self._produced: Produced | None = None
        self._progress: ReplayProgress | None = None
        self._truths: defaultdict[str, list[Truth]] = defaultdict(list)
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        flight_table()  # or say what to install, before anything is started
        with self._stack:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
            definitions = MetricDefinitions.load(self.settings.metrics)
            [shuffled] = [metric for metric in definitions.values() if metric.crowd is not None]
            self._relay = DemoRelay(shuffled, self.settings, folder)
            local = LocalDeployment(self.settings, self.workers, searches=True)
            self._deployment = self._stack.enter_context(local)
            self._stack.enter_context(self._relay)
            self._population = flights()  # while the processes start
            self._searches = {n: m for n, m in definitions.items() if isinstance(m, SearchMetric)}
            self.metrics = {n: m for n, m in definitions.items() if n not in self._searches}
            self._extremes = {
                name: _truth_of(metric, self._population) for name, metric in self._searches.items()
            }
            store = Store(connect(self.settings.redis.url), self.settings.topics.reports)
            self._store = self._stack.enter_context(store)
            self.reader = MetricReader(self._store, definitions)
            self._discoveries = TrueDiscoveries(self.reader, self._population)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """The address of the dashboard."""
        return self._deployment.url

    def run(self, show: Callable[[View], object] | None = None) -> None:
        """Let the devices report until they are done or Ctrl-C; show a view twice a second."""
        threads = ThreadPoolExecutor(2 + len(self._searches), "devices")
        searches = self._searches.values()
        self._began = time.monotonic()
        interrupt = signal.signal(signal.SIGINT, lambda *_: self._stop.set())
        try:
            reporting = threads.submit(self._report)
            futures = [reporting, threads.submit(self._report_sealed)]
            futures += [threads.submit(self._answer, metric) for metric in searches]
            while not reporting.done():
                time.sleep(REFRESH_SECONDS)
                if show is not None:
                    show(self.view())
        finally:
            self._stop.set()
            threads.shutdown()
            signal.signal(signal.SIGINT, interrupt)
        for future in futures:
            future.result()

    def finish(self) -> Outcome:
        """Wait until all is counted, released and looked at; replay the log; return the outcome.

        Raises DitherError if nothing moves for `DRAIN_SECONDS` before that.
        """
        assert self._produced is not None  # noqa: S101
        sent_reports = self._produced.reports + self._relay.reports
        reached, deadline, counted_at = None, 0.0, 0.0
        while True:
            overview = self._store.overview()
            counted = self._counted(overview)
            looked_until, is_complete = read_looks(self.reader, overview)
            if counted >= sent_reports and not counted_at:
                counted_at = time.monotonic()
                self._relay.stop()  # others need its memory
            if counted >= sent_reports and is_complete and self._is_released(overview):
                break
            _, events = self._store.registry.publisher_status()
            if (now := (counted, looked_until, events["final"])) != reached:
                reached, deadline = now, time.monotonic() + DRAIN_SECONDS
            if time.monotonic() > deadline:
                raise DitherError(
                    f"{sent_reports} reports were sent and {counted} counted, but for "
                    f"{DRAIN_SECONDS:g} s nothing moved: reports or a release are missing, or "
                    "alarms or comparisons have not looked at all panes"
                )
            time.sleep(REFRESH_SECONDS)
        outcome = verify(self.settings, self.reader.metrics, self._store)
        return Outcome(
            view=self.view(),
            reports=sent_reports,
            reports_per_second=sent_reports / (counted_at - self._began),
            verified=outcome.verified,
            differences=[
                str(d) for d in (*outcome.differences, *outcome.unverifiable, *outcome.unjudged)
            ],
        )

    def view(self) -> View:
        """Return the current estimates: running totals, with bounds that hold at all times.

        The last view needs such bounds, too, because Ctrl-C may end the demo at any time.
        """
        overview = self._store.overview()
        windows = {
            name: self.reader.read(self.reader.describe(overview, name))
            for name, metric in self.reader.metrics.items()
            if not discovers(metric)
        }
        estimates = {name: self.reader.answer(window).numbers for name, window in windows.items()}
        outcomes = overview.outcomes()
        return View(
            progress=self._progress,
            truths={
                name: self._metric_truth(name, estimate.reports)
                if estimate.privacy is None
                else self._truth_of_pane(windows[name])
                for name, estimate in estimates.items()
            },
            windows=windows,
            estimates=estimates,
            devices=len(self._population),
            counted=self._counted(overview),
            answers=sum(outcomes[name, "accepted"] for name in self._searches),
            seconds=time.monotonic() - self._began,
            url=self.url,
            places=self._deployment.places,
            alarms=tuple(true_alarms(self.reader, self._population)),
            comparisons=tuple(true_comparisons(self.reader, self._population)),
            discoveries=self._discoveries.now(),
        )

    def _counted(self, overview: TopicProgress) -> int:
        """Return the number of counted reports, without the answers to rounds."""
        outcomes = overview.outcomes()
        return sum(outcomes[name, "accepted"] for name in self.metrics)

    def _metric_truth(self, name: str, counted: int) -> Truth:
        """Return a metric's truth about its first `counted` reports, or nearly as many."""
        if name in self._searches:
            return self._extremes[name]
        truths = self._relay.truths if name == self._relay.metric.name else self._truths[name]
        return latest_truth(truths, counted) or RunningTruth(self.metrics[name]).now()

    def _answer(self, metric: SearchMetric) -> None:
        """Let the flights answer the rounds of a search, spread over the replay."""
        pause = ANSWERING_SHARE * self.seconds / metric.search.rounds - DECIDING_SECONDS
        respond(
            metric,
            self._population,
            self._reporting,
            MIX,
            topic=self.settings.topics.reports,
            rounds_topic=self.settings.topics.rounds,
            round_seconds=max(0.0, pause),
            seed=self.seed,
            stop=self._stop,
        )

    def _truth_of_pane(self, window: Window) -> Truth:
        """Return the truth of a release's pane; before the first release, it has no reports."""
        if window.start_ms is None or window.end_ms is None:
            return RunningTruth(window.metric).now()
        edges = np.searchsorted(self._population.time_ms, [window.start_ms, window.end_ms])
        return _truth_of(window.metric, self._population.part(*edges.tolist()))

    def _is_released(self, overview: TopicProgress) -> bool:
        """Return whether every closed pane with trusted collection is released."""
        store = self._store
        closed_everywhere = self.reader.finality_watermarks(overview, len(overview.partitions))
        for name, closed in closed_everywhere.items():
            metric, key = self.metrics[name], metric_key(name, self.metrics[name].revision)
            if not isinstance(metric, TrustedMetric):
                continue
            last = store.panes.latest_start(key, [*overview.partitions], closed - metric.pane_ms)
            release = next(iter(newest_releases(store, metric, key)), None)
            if last is not None and (release is None or (release.start_ms or 0) < last):
                return False
        return True

    @property
    def _reporting(self) -> dict[str, Any]:
        """Kafka's properties for devices, which send each batch to a random partition.

        By default Kafka's client sends a burst to one partition, but each partition needs batches
        after the end of a pane to close it.
        """
        return clients.reporter_properties(self.settings) | {"sticky.partitioning.linger.ms": 0}

    def _report_sealed(self) -> None:
        values = self._population.columns["late"]
        self._relay.report(values[~np.isnan(values)], self._stop)

    def _report(self) -> None:
        def progress(now: ReplayProgress, truths: dict[str, Truth]) -> None:
            self._progress = now
            for name, truth in truths.items():
                self._truths[name].append(truth)

        self._produced = produce(
            {name: metric for name, metric in self.metrics.items() if metric.crowd is None},
            self._population,
            self._reporting,
            MIX,
            seconds=self.seconds,
            seed=self.seed,
            topic=self.settings.topics.reports,
            stop=self._stop,
            progress=progress,
        )


def latest_truth(history: list[Truth], counted: int) -> Truth | None:
    """Return the latest truth that covers at most the first `counted` reports.

    `history` is in ascending order of reports. Return None if no truth covers at least 90% of the
    counted reports.
    """
    later = bisect.bisect_right(history, counted, key=lambda truth: truth.reports)
    if not later or history[later - 1].reports < MIN_TRUTH_SHARE * counted:
        return None
    return history[later - 1]


def _truth_of(metric: Metric, part: Population) -> Truth:
    truth = RunningTruth(metric)
    values = part.columns[metric.name][part.has_value(metric.name)]
    truth.add(values, np.zeros(values.size, dtype=np.intp))
    return truth.now()


def _isolate_settings(settings: Settings, first_port: int) -> Settings:
    """Give the settings topics, a group, metrics and a port that only this demo uses."""
    topic = f"dither.demo.{uuid.uuid4().hex[:8]}"
    settings.topics.reports, settings.topics.deadletters = topic, f"{topic}.deadletters"
    settings.topics.estimates = f"{topic}.estimates"
    settings.topics.rounds = f"{topic}.rounds"
    settings.aggregate.group = topic
    settings.metrics = str(
        importlib.resources.files("producers").joinpath("populations", "flights.toml")
    )
    if "serve.port" not in settings.sources:
        settings.serve.port = free_port(first_port)
    return settings
