"""Keys of metrics, rounds and panes, within a partition."""

from __future__ import annotations

from typing import NamedTuple

from estimators import Metric, SearchMetric

GRAINS_MS = {"hour": 3_600_000, "day": 86_400_000}
"""Widths of the panes that closed panes are added to, so that a long window is a few reads."""


def metric_key(name: str, revision: int) -> str:
    """Return a metric's name in keys: its definition's revision is part of it.

    Examples
    --------
    >>> metric_key("delay", 0x1F)
    'delay@0000001f'
    """
    return f"{name}@{revision:08x}"


def round_key(metric: str, number: int) -> str:
    """Return the key of one round of a metric, whose answers are summed by themselves.

    Examples
    --------
    >>> round_key(metric_key("delay", 0x1F), 3)
    'delay@0000001f.3'
    """
    return f"{metric}.{number}"


def counted_keys(metric: Metric) -> list[str]:
    """Return the keys under which reports of a metric are counted: one, or one for each round."""
    key = metric_key(metric.name, metric.revision)
    if not isinstance(metric, SearchMetric):
        return [key]
    return [round_key(key, number) for number in range(1, metric.rounds + 1)]


class PaneKey(NamedTuple):
    """Names a pane within its partition.

    Attributes
    ----------
    grain : str
        ``pane`` for the metric's own width, ``hour``, ``day``, or ``total``: all closed panes.
    metric : str
        From :func:`metric_key`, or :func:`round_key`.
    start : int
        Milliseconds since the epoch; 0 for ``total``.
    """

    grain: str
    metric: str
    start: int

    def __str__(self) -> str:
        """Return the key without the partition's tag."""
        return f"{self.grain}:{self.metric}:{self.start}"

    @classmethod
    def parse(cls, text: str) -> PaneKey:
        """Read back what ``str`` wrote."""
        grain, metric, start = text.split(":")
        return cls(grain, metric, int(start))


def rollups(metric: Metric, key: PaneKey) -> list[PaneKey]:
    """Return the coarser panes that a closed pane of a metric is added to."""
    coarser = [
        PaneKey(grain, key.metric, key.start - key.start % width)
        for grain, width in GRAINS_MS.items()
        if metric.pane_ms < width
        and width % metric.pane_ms == 0
        and not isinstance(metric, SearchMetric)
    ]
    return [*coarser, PaneKey("total", key.metric, 0)]


def width_ms(grain: str, metric: Metric) -> int | None:
    """Return a grain's width in milliseconds; None for ``total``, which never ends."""
    return metric.pane_ms if grain == "pane" else GRAINS_MS.get(grain)
