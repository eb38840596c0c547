"""What is stored in Redis, and under which name. See docs/data-model.md.

Everything of a partition carries one hash tag, so that it lies in one slot of a Redis Cluster and a
commit is one script call.
"""

from __future__ import annotations

from typing import NamedTuple

from estimators import Metric

GRAINS_MS = {"hour": 3_600_000, "day": 86_400_000}
"""Widths of the panes that closed panes are added to, so that a long window is a few reads."""


def tag(topic: str, partition: int) -> str:
    """Return the prefix of a partition's keys.

    Examples
    --------
    >>> tag("dither.reports", 3)
    '{dither:dither.reports:3}'
    """
    return f"{{dither:{topic}:{partition}}}"


def partitions_key(topic: str) -> str:
    """Return the key of the set of a topic's partitions that were ever counted."""
    return f"dither:{topic}:partitions"


def definitions_key(topic: str) -> str:
    """Return the key of the hash of all definitions by which a topic was counted, by digest."""
    return f"dither:{topic}:definitions"


def policies_key(topic: str) -> str:
    """Return the key of the hash of the weights that are in force, by metric name."""
    return f"dither:{topic}:policies"


CHANGED = " changed"


def changed_field(metric: str) -> str:
    """Return the field of that hash with the time at which a metric's weights were changed last.

    Examples
    --------
    >>> changed_field("delay")  # no metric's name has a space
    'delay changed'
    """
    return metric + CHANGED


def publisher_key(topic: str) -> str:
    """Return the prefix of the keys of whoever publishes estimates: one slot of a Redis Cluster.

    Examples
    --------
    >>> publisher_key("dither.reports")
    'dither:{publisher:dither.reports}'
    """
    return f"dither:{{publisher:{topic}}}"


def coordinator_key(topic: str) -> str:
    """Return the prefix of the keys of whoever opens rounds: one slot of a Redis Cluster.

    Examples
    --------
    >>> coordinator_key("dither.reports")
    'dither:{coordinator:dither.reports}'
    """
    return f"dither:{{coordinator:{topic}}}"


def rounds_key(topic: str) -> str:
    """Return the key of the hash of the rounds that were published, by :func:`metric_key`."""
    return f"{coordinator_key(topic)}:published"


def final_key(publisher: str, metric: str) -> str:
    """Return the key of the sorted set of a metric's panes that have their final event.

    `publisher` is :func:`publisher_key`, `metric` :func:`metric_key`.
    """
    return f"{publisher}:final:{metric}"


def expired_key(publisher: str, metric: str) -> str:
    """Return the key of the panes of a metric that had expired before their final event."""
    return f"{publisher}:expired:{metric}"


def release_key(publisher: str, metric: str, start: int) -> str:
    """Return the key of a pane's release: drawn, and shown once it has its final event."""
    return f"{publisher}:release:{metric}:{start}"


def handled_key(deadletters: str, topic_id: str) -> str:
    """Return the prefix of the keys of a dead-letter topic's marks: one slot of a Redis Cluster.

    Examples
    --------
    >>> handled_key("dither.deadletters", "")
    'dither:{deadletters:dither.deadletters}:handled'
    """
    return f"dither:{{deadletters:{deadletters}}}:handled{topic_id and ':' + topic_id}"


def stuck_key(topic: str) -> str:
    """Return the key of the hash of workers that are stuck, by name."""
    return f"dither:{topic}:stuck"


def deaths_key(topic: str) -> str:
    """Return the key of the number of workers that died and were started again."""
    return f"dither:{topic}:deaths"


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
    if metric.rounds is None:
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
        if metric.pane_ms < width and width % metric.pane_ms == 0 and not metric.has_rounds
    ]
    return [*coarser, PaneKey("total", key.metric, 0)]


def width_ms(grain: str, metric: Metric) -> int | None:
    """Return a grain's width in milliseconds; None for ``total``, which never ends."""
    return metric.pane_ms if grain == "pane" else GRAINS_MS.get(grain)
