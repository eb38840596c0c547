"""Prometheus metrics, read from Redis when they are scraped."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from aggregator import exported
from aggregator.exported import Exported
from aggregator.keys import metric_key
from aggregator.measurements import Histogram, Measurements
from aggregator.partition import Watermark
from aggregator.reader import Reader
from aggregator.store import TORN
from estimators import Estimate, Metric
from estimators.weights import DEFAULT_POLICY


class Sample(NamedTuple):
    """A value of an exported metric, with the labels in the declaration's order."""

    what: Exported
    value: float
    labels: tuple[object, ...] = ()


class Families:
    """The families of one scrape, filled sample by sample."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def put(self, what: Exported, value: float, *labels: object) -> None:
        """Add a sample with its labels in the declaration's order."""
        self._add(what, what.scraped, value, labels)

    def histogram(self, what: Exported, histogram: Histogram, *labels: object) -> None:
        """Add a histogram's samples."""
        counts = histogram.cumulative()
        bounds = [*(str(float(bound)) for bound in what.buckets), "+Inf"]
        for bound, count in zip(bounds, counts, strict=True):
            self._add(what, f"{what.name}_bucket", count, labels, le=bound)
        self._add(what, f"{what.name}_count", counts[-1], labels)
        self._add(what, f"{what.name}_sum", histogram.seconds, labels)

    def filled(self) -> list[Family]:
        """Return the families that have samples, in the order of their declarations."""
        return [self._families[one.name] for one in exported.ALL if one.name in self._families]

    def _add(
        self, what: Exported, name: str, value: float, labels: tuple[object, ...], **more: str
    ) -> None:
        family = self._families.get(what.name)
        if family is None:
            family = self._families[what.name] = Family(what.name, what.help, what.type)
        pairs = dict(zip(what.labels, map(str, labels), strict=True))
        family.add_sample(name, pairs | more, value)


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the store has of a partition beside its sums."""

    owner: dict[str, str]
    watermarks: dict[str, Watermark]
    counts: dict[str, int]


class Exporter(Collector):
    """Collects the running totals of all metrics at each scrape.

    An estimate is computed again only when a report more was counted or its weights were changed.

    Parameters
    ----------
    reader : Reader
    top_categories : int
        At most so many categories of a frequency, or coordinates of a vector, are exported: those
        of the largest estimates, of a vector in absolute value.
    """

    def __init__(self, reader: Reader, top_categories: int) -> None:
        self.reader, self.top_categories = reader, top_categories
        self._known: dict[str, tuple[object, list[Sample]]] = {}
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Family]:
        """Return nothing: names are known at the first scrape."""
        return []

    def collect(self) -> Iterable[Family]:
        """Read everything once and return it as metric families."""
        with self._lock:
            return self._collect()

    def _collect(self) -> list[Family]:
        began = time.perf_counter()
        families, store = Families(), self.reader.store
        partitions = {
            number: Facts(store.owner(number), store.watermarks(number), store.counts(number))
            for number in store.partitions()
        }
        policies = store.policies()
        for name, metric in self.reader.metrics.items():
            policy = policies.get(name, DEFAULT_POLICY)
            for sample in self._metric(metric, policy, partitions.values()):
                families.put(sample.what, sample.value, *sample.labels)
        _reports(families, partitions.values())
        for number, facts in partitions.items():
            _partition(families, number, facts.owner)
        _measurements(families, partitions.values())
        families.put(exported.WORKER_DEATHS, store.deaths())
        families.put(exported.BUILD, 1, _version())
        families.put(exported.COLLECTION_DURATION, time.perf_counter() - began)
        return families.filled()

    def _metric(self, metric: Metric, policy: str, partitions: Iterable[Facts]) -> list[Sample]:
        """Return a metric's samples: those of the last scrape if nothing was counted since."""
        key = metric_key(metric.name, metric.revision)
        accepted = f"accepted:{metric.name}"
        counted = [(facts.counts.get(accepted), facts.watermarks.get(key)) for facts in partitions]
        version = policy, counted
        known, samples = self._known.get(metric.name, (None, []))
        if known != version:
            samples = self._samples(metric, [mark for _, mark in counted if mark is not None])
            self._known[metric.name] = version, samples
        return samples

    def _samples(self, metric: Metric, watermarks: list[Watermark]) -> list[Sample]:
        name = metric.name
        about = (metric.description, metric.kind, metric.mechanism, metric.unit)
        levels = " ".join(f"{epsilon:g}" for epsilon in metric.levels)
        samples = [Sample(exported.METRIC, 1, (name, *about, f"{metric.revision:08x}", levels))]
        if watermarks:
            arrived = max(mark.arrived for mark in watermarks)
            event_time = max(mark.time for mark in watermarks)
            samples.append(Sample(exported.LAST_UPDATE, arrived / 1000, (name,)))
            samples.append(Sample(exported.EVENT_TIME, event_time / 1000, (name,)))
        return [*samples, *self._estimate(metric, self.reader.estimate(name))]

    def _estimate(self, metric: Metric, estimate: Estimate) -> Iterable[Sample]:
        yield Sample(exported.EFFECTIVE_REPORTS, estimate.effective_reports, (metric.name,))
        levels = zip(estimate.levels, estimate.counts, estimate.weights, strict=True)
        for epsilon, count, weight in levels:
            yield Sample(exported.LEVEL_REPORTS, int(count), (metric.name, f"{epsilon:g}"))
            yield Sample(exported.LEVEL_WEIGHT, float(weight), (metric.name, f"{epsilon:g}"))
        yield Sample(exported.WEIGHTS, 1, (metric.name, estimate.policy))
        if estimate.heterogeneity is not None:
            yield Sample(exported.HETEROGENEITY, estimate.heterogeneity, (metric.name,))
        if estimate.status in ("not_ready", "too_few_reports"):
            return
        shown = estimate.top(self.top_categories)
        numbers = (np.atleast_1d(x).tolist() for x in (shown.value, shown.lower, shown.upper))
        categories = shown.labels if np.ndim(shown.value) else ("",)
        for category, value, lower, upper in zip(categories, *numbers, strict=True):
            yield Sample(exported.ESTIMATE, value, (metric.name, category))
            yield Sample(exported.LOWER, lower, (metric.name, category))
            yield Sample(exported.UPPER, upper, (metric.name, category))
        if estimate.radius is not None:
            yield Sample(exported.RADIUS, estimate.radius, (metric.name,))
        if estimate.labels:
            left_out = len(estimate.labels) - len(shown.labels)
            yield Sample(exported.CATEGORIES_LEFT_OUT, left_out, (metric.name,))


def _reports(families: Families, partitions: Iterable[Facts]) -> None:
    outcomes: defaultdict[tuple[str, str], int] = defaultdict(int)
    for facts in partitions:
        for key, count in facts.counts.items():
            outcome, _, name = key.partition(":")
            outcomes[name, outcome] += count
    for (name, outcome), count in sorted(outcomes.items()):
        families.put(exported.REPORTS, count, name, outcome)


def _partition(families: Families, number: int, owner: dict[str, str]) -> None:
    done = int(owner.get("next", 0))
    halted = bool(owner.get("halted")) or done == TORN
    families.put(exported.CONSUMER_LAG, max(0, int(owner.get("high", done)) - done), number)
    families.put(exported.HALTED, int(halted), number)
    families.put(exported.GAP, int(owner.get("gap", 0)), number)
    families.put(exported.EPOCH, int(owner.get("epoch", 0)), number)
    families.put(exported.OWNER, 1, number, owner.get("worker", ""))
    if "updated" in owner:
        families.put(exported.LAST_COMMIT, int(owner["updated"]) / 1000, number)


def _measurements(families: Families, partitions: Iterable[Facts]) -> None:
    measured = sum((Measurements.stored(facts.owner) for facts in partitions), Measurements())
    families.histogram(exported.COMMIT_DURATION, measured.commits)
    families.histogram(exported.END_TO_END_LATENCY, measured.latencies)
    families.put(exported.COMMIT_BYTES, measured.commit_bytes)
    for reason, count in sorted(measured.deadletters.items()):
        families.put(exported.DEADLETTERS, count, reason)


@functools.cache
def _version() -> str:
    return importlib.metadata.version("dither")
