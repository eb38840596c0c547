"""Prometheus metrics, read from Redis when they are scraped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol

import numpy as np
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from aggregator import exported
from aggregator.exported import Exported
from aggregator.partition import NEVER
from aggregator.reader import Reader
from aggregator.store import TORN
from estimators import Estimate, Metric


class Put(Protocol):
    """Adds a sample to its family."""

    def __call__(self, what: Exported, value: float, *labels: object) -> None:
        """Add `value` with the labels in the declaration's order."""


class Exporter(Collector):
    """Collects the running totals of all metrics at each scrape.

    Parameters
    ----------
    reader : Reader
    top_categories : int
        At most so many categories of a frequency, or coordinates of a vector, are exported: those
        of the largest estimates, of a vector in absolute value.
    """

    def __init__(self, reader: Reader, top_categories: int) -> None:
        self.reader, self.top_categories = reader, top_categories

    def describe(self) -> Iterable[Family]:
        """Return nothing: names are known at the first scrape."""
        return []

    def collect(self) -> Iterable[Family]:
        """Read everything once and return it as metric families."""
        families = {e.name: Family(e.name, e.help, e.type) for e in exported.ALL}

        def put(what: Exported, value: float, *labels: object) -> None:
            suffix = {"counter": "_total", "info": "_info"}.get(what.type, "")
            pairs = dict(zip(what.labels, map(str, labels), strict=True))
            families[what.name].add_sample(what.name + suffix, pairs, value)

        for name, metric in self.reader.metrics.items():
            levels = " ".join(f"{e:g}" for e in metric.levels)
            revision = f"{metric.revision:08x}"
            about = (metric.kind, metric.mechanism, metric.unit, revision, levels)
            put(exported.METRIC, 1, name, *about)
            window = self.reader.window(name)
            event_time = self.reader.event_time(name)
            if window.arrived_ms != NEVER and event_time is not None:
                put(exported.LAST_UPDATE, window.arrived_ms / 1000, name)
                put(exported.EVENT_TIME, event_time / 1000, name)
            self._estimate(put, metric, self.reader.answer(window))
        self._partitions(put)
        return [family for family in families.values() if family.samples]

    def _estimate(self, put: Put, metric: Metric, estimate: Estimate) -> None:
        put(exported.EFFECTIVE_REPORTS, estimate.effective_reports, metric.name)
        levels = zip(estimate.levels, estimate.counts, estimate.weights, strict=True)
        for epsilon, count, weight in levels:
            put(exported.LEVEL_REPORTS, int(count), metric.name, f"{epsilon:g}")
            put(exported.LEVEL_WEIGHT, float(weight), metric.name, f"{epsilon:g}")
        if estimate.heterogeneity is not None:
            put(exported.HETEROGENEITY, estimate.heterogeneity, metric.name)
        if estimate.status in ("not_ready", "too_few_reports"):
            return
        shown = estimate.top(self.top_categories)
        numbers = (np.atleast_1d(x).tolist() for x in (shown.value, shown.lower, shown.upper))
        labels = shown.labels if np.ndim(shown.value) else ("",)
        for label, value, lower, upper in zip(labels, *numbers, strict=True):
            put(exported.ESTIMATE, value, metric.name, label)
            put(exported.LOWER, lower, metric.name, label)
            put(exported.UPPER, upper, metric.name, label)
        if estimate.radius is not None:
            put(exported.RADIUS, estimate.radius, metric.name)
        if estimate.labels:
            left_out = len(estimate.labels) - len(shown.labels)
            put(exported.CATEGORIES_LEFT_OUT, left_out, metric.name)

    def _partitions(self, put: Put) -> None:
        outcomes: defaultdict[tuple[str, str], int] = defaultdict(int)
        for partition in self.reader.store.partitions():
            for key, count in self.reader.store.counts(partition).items():
                outcome, _, name = key.partition(":")
                outcomes[name, outcome] += count
            owner = self.reader.store.owner(partition)
            done = int(owner.get("next", 0))
            put(exported.CONSUMER_LAG, max(0, int(owner.get("high", done)) - done), partition)
            put(exported.HALTED, int(bool(owner.get("halted")) or done == TORN), partition)
            put(exported.GAP, int(owner.get("gap", 0)), partition)
            put(exported.EPOCH, int(owner.get("epoch", 0)), partition)
            if "updated" in owner:
                put(exported.LAST_COMMIT, int(owner["updated"]) / 1000, partition)
        for (name, outcome), count in sorted(outcomes.items()):
            put(exported.REPORTS, count, name, outcome)
