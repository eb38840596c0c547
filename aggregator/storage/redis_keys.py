"""The names of keys in Redis. docs/data-model.md describes their content.

All keys of a partition have the same hash tag, so that they are in one slot of a Redis Cluster and
one script call can commit them.
"""

from __future__ import annotations


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


CHANGED_SUFFIX = " changed"


def changed_field(metric: str) -> str:
    """Return the field of that hash with the time at which a metric's weights were changed last.

    Examples
    --------
    >>> changed_field("delay")  # no metric's name has a space
    'delay changed'
    """
    return metric + CHANGED_SUFFIX


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


def failed_searches_key(publisher: str) -> str:
    """Return the key of how many panes of each metric wait, because their search failed."""
    return f"{publisher}:failed-searches"


def release_key(publisher: str, metric: str, start: int) -> str:
    """Return the key of a pane's release: drawn, and shown once it has its final event.

    Parameters
    ----------
    publisher : str
        The prefix of the publisher's keys.
    metric : str
    start : int
        The pane's, in ms since the epoch.
    """
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
