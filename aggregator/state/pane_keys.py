"""The keys of metrics, rounds and panes within a partition."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

from aggregator.timestamps import format_time
from estimators import Metric, SearchMetric

GRAINS_MS = {"hour": 3_600_000, "day": 86_400_000}
"""Widths of the coarse panes, which sum closed panes, so that a long window takes few reads."""
FOREVER_MS = 2**62
SLICES, SLICES_DAY, SLICES_TOTAL = "slices", "slices-day", "slices-total"
"""The grains of slice tables: the metric's own `by_pane`, days, and the total of closed tables."""
GRAINS = ("pane", *GRAINS_MS, "total", SLICES, SLICES_DAY, SLICES_TOTAL)


@functools.lru_cache(maxsize=10_000)
def metric_key(name: str, revision: int) -> str:
    """Return the key of a metric, with the revision of its definition.

    >>> metric_key("delay", 0x1F)
    'delay@0000001f'
    """
    return f"{name}@{revision:08x}"


def round_key(metric: str, number: int) -> str:
    """Return the key of a metric's round, which has its own sums.

    >>> round_key(metric_key("delay", 0x1F), 3)
    'delay@0000001f.3'
    """
    return f"{metric}.{number}"


def counted_keys(metric: Metric) -> list[str]:
    """Return the keys that count a metric's reports: a single key, or one for each round."""
    key = metric_key(metric.name, metric.revision)
    if not isinstance(metric, SearchMetric):
        return [key]
    return [round_key(key, number) for number in range(1, metric.rounds + 1)]


def slices_key(metric: Metric, chunk: int) -> str:
    """Return the key of a chunk of a metric's slices; it names the slicing that defines the codes.

    Raises ValueError if the metric has no slices.
    """
    if metric.slicing is None:
        raise ValueError(f"metric {metric.name!r} has no slices")
    return f"{metric_key(metric.name, metric.revision)}~{metric.slicing.key}.{chunk}"


def counted_metric(metrics: Mapping[str, Metric], key: str) -> Metric | None:
    """Return the metric whose definition counts under a key; None if the definition has changed.

    `key` is from :func:`metric_key`, :func:`round_key` or :func:`slices_key`.
    """
    metric = metrics.get(key.partition("@")[0])
    question, _, slices = key.partition("~")
    if metric is None or question not in counted_keys(metric):
        return None
    slicing = metric.slicing
    if slices and (slicing is None or slices.partition(".")[0] != slicing.key):
        return None
    return metric


class PaneKey(NamedTuple):
    """The key of a pane within its partition."""

    grain: str  # pane, hour, day or total, or a grain of slice tables: one of `GRAINS`
    metric: str  # from `metric_key`, `round_key` or `slices_key`
    start: int  # ms since the epoch; 0 for totals

    def __str__(self) -> str:
        """Return the key without the partition's tag."""
        return f"{self.grain}:{self.metric}:{self.start}"

    @property
    def question(self) -> str:
        """The key of the metric, or of its round, whose watermark closes the pane."""
        return self.metric.partition("~")[0]

    @property
    def chunk(self) -> int | None:
        """The number of a chunk of slices; None for other panes."""
        _, _, slices = self.metric.partition("~")
        return int(slices.rpartition(".")[2]) if slices else None

    @classmethod
    def parse(cls, text: str) -> PaneKey:
        """Return the key that ``str`` wrote."""
        grain, metric, start = text.split(":")
        return cls(grain, metric, int(start))


def rollups(metric: Metric, key: PaneKey) -> list[PaneKey]:
    """Return the coarse panes to which a closed pane is added."""
    coarser = GRAINS_MS
    if isinstance(metric, SearchMetric):
        coarser = {}
    if key.grain == SLICES:
        coarser = {SLICES_DAY: GRAINS_MS["day"]}
    pane_width_ms = width_ms(key.grain, metric)
    coarse_keys = [
        PaneKey(grain, key.metric, key.start - key.start % width)
        for grain, width in coarser.items()
        if pane_width_ms < width and width % pane_width_ms == 0
    ]
    return [*coarse_keys, PaneKey(SLICES_TOTAL if key.grain == SLICES else "total", key.metric, 0)]


def width_ms(grain: str, metric: Metric) -> int:
    """Return a grain's width in ms; the width of totals, which never end, is `FOREVER_MS`."""
    if grain == SLICES and metric.slicing is not None:
        return metric.slicing.pane_ms
    if grain == "pane":
        return metric.pane_ms
    return GRAINS_MS.get(grain.removeprefix("slices-"), FOREVER_MS)


def retention_ms(grain: str, metric: Metric) -> int | None:
    """Return how long a closed pane is stored, in ms; None if it is never deleted."""
    return metric.by_retention_ms if grain == SLICES else metric.retention_ms


def describe(key: PaneKey) -> str:
    """Return a pane in words, followed by its key.

    >>> describe(PaneKey("pane", "delay@0000001f", 1357000200000))
    'pane of delay from 2013-01-01T00:30:00Z (pane:delay@0000001f:1357000200000)'
    >>> describe(PaneKey("day", "delay@0000001f", 2**62))  # beyond the calendar
    'day of delay from 4611686018427387904 ms (day:delay@0000001f:4611686018427387904)'
    """
    metric = key.metric.split("@")[0]
    if key.grain.endswith("total"):
        return f"{key.grain.replace('-', ' ')} of {metric} ({key})"
    return f"{key.grain.replace('-', ' ')} of {metric} from {format_time(key.start)} ({key})"
