"""The names of keys in Redis. docs/data-model.md describes their content.

All keys of a partition share a hash tag, so they are in one slot of a Redis Cluster, and one script
can commit them.
"""

from __future__ import annotations

import functools


@functools.lru_cache(maxsize=10_000)
def tag(topic: str, partition: int) -> str:
    """Return the prefix of a partition's keys.

    >>> tag("dither.reports", 3)
    '{dither:dither.reports:3}'
    """
    return f"{{dither:{topic}:{partition}}}"


@functools.cache
def partitions_key(topic: str) -> str:
    """Return the key of the set of a topic's partitions that were ever counted."""
    return f"dither:{topic}:partitions"


def definitions_key(topic: str) -> str:
    """Return the key of the hash of all definitions that ever counted a topic, by digest."""
    return f"dither:{topic}:definitions"


@functools.cache
def policies_key(topic: str) -> str:
    """Return the key of the hash of weight policies, by metric name."""
    return f"dither:{topic}:policies"


CHANGED_SUFFIX = " changed"


@functools.lru_cache(maxsize=10_000)
def changed_field(metric: str) -> str:
    """Return the field of the weight policies with the time of a metric's last change.

    >>> changed_field("delay")  # no metric's name has a space
    'delay changed'
    """
    return metric + CHANGED_SUFFIX


def publisher_key(topic: str) -> str:
    """Return the prefix of the publisher's keys, in one slot of a Redis Cluster.

    >>> publisher_key("dither.reports")
    'dither:{publisher:dither.reports}'
    """
    return f"dither:{{publisher:{topic}}}"


def coordinator_key(topic: str) -> str:
    """Return the prefix of the coordinator's keys, in one slot of a Redis Cluster.

    >>> coordinator_key("dither.reports")
    'dither:{coordinator:dither.reports}'
    """
    return f"dither:{{coordinator:{topic}}}"


@functools.cache
def rounds_key(topic: str) -> str:
    """Return the key of the hash of published rounds, by :func:`metric_key`."""
    return f"{coordinator_key(topic)}:published"


def final_key(publisher: str, metric: str) -> str:
    """Return the key of the sorted set of a metric key's panes that have their final event."""
    return f"{publisher}:final:{metric}"


def expired_key(publisher: str, metric: str) -> str:
    """Return the key of a metric key's panes that expired before their final event."""
    return f"{publisher}:expired:{metric}"


def failed_searches_key(publisher: str) -> str:
    """Return the key of the hash with the number of panes whose failed search waits, by metric."""
    return f"{publisher}:failed-searches"


def release_key(publisher: str, metric: str, start: int) -> str:
    """Return the key of a pane's release, which is shown after the pane's final event.

    Parameters
    ----------
    publisher : str
        The prefix of the publisher's keys.
    metric : str
        The metric's key.
    start : int
        The pane's start, in ms since the epoch.
    """
    return f"{publisher}:release:{metric}:{start}"


def handled_key(deadletters: str, topic_id: str) -> str:
    """Return the prefix of the marks of a dead-letter topic, in one slot of a Redis Cluster.

    >>> handled_key("dither.deadletters", "")
    'dither:{deadletters:dither.deadletters}:handled'
    """
    return f"dither:{{deadletters:{deadletters}}}:handled{topic_id and ':' + topic_id}"


def stuck_key(topic: str) -> str:
    """Return the key of the hash of stuck workers, by name."""
    return f"dither:{topic}:stuck"


def deaths_key(topic: str) -> str:
    """Return the key of the number of workers that died and were restarted."""
    return f"dither:{topic}:deaths"
