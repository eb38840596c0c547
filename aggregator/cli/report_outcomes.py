"""Reads from Redis how many of a population's reports the workers have counted or refused."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.config.settings import Settings
from aggregator.errors import DitherError, SettingsError
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import NO_TIME
from estimators import Metric
from producers.populations.population import Population

if TYPE_CHECKING:
    from aggregator.storage.progress import TopicProgress

FIRST_SECONDS, QUIET_SECONDS, POLL_SECONDS = 10.0, 3.0, 0.2
"""The wait ends after FIRST_SECONDS without any report, or QUIET_SECONDS without a further one;
POLL_SECONDS is the time between two reads."""


class RedisState(NamedTuple):
    """The progress of a topic, and the stored definitions by digest."""

    progress: TopicProgress
    definitions: Mapping[str, bytes]


def read_redis(settings: Settings) -> RedisState | None:
    """Return the state in Redis; None if none answers; raise SettingsError if its URL is wrong."""
    try:
        import redis

        from aggregator.storage.connection import connect
        from aggregator.storage.store import Store
    except ModuleNotFoundError:
        return None
    try:
        with Store(connect(settings.redis.url), settings.topics.reports) as store:
            return RedisState(store.overview(), store.registry.definitions())
    except SettingsError:
        raise
    except (DitherError, redis.RedisError):
        return None


def describe_mismatch(state: RedisState, settings: Settings, metric: Metric) -> str:
    """Return a warning if the workers have another definition of a metric; else "".

    `state`: the state in Redis; `settings`: the settings, which name the file of the definition,
    for the warning; `metric`: the metric.
    """
    from aggregator.state.definition_history import CountingDefinitions, definitions_by_offset

    try:
        partitions = state.progress.partitions.values()
        histories = [definitions_by_offset(partition.owner) for partition in partitions]
        newest = {history[-1][1] for history in histories if history}
        documents = [state.definitions[digest] for digest in newest]
        counted_metrics = [CountingDefinitions.decode(document).metrics for document in documents]
    except (DitherError, KeyError, ValueError):
        return ""
    revisions = {
        metrics[metric.name].revision for metrics in counted_metrics if metric.name in metrics
    }
    if not counted_metrics or revisions == {metric.revision}:
        return ""
    return (
        f"the workers do not count {metric.name} as {settings.metrics} here defines it: its "
        "reports become dead letters until the workers' own metrics.toml has this definition "
        "(they check it every second). Then send them again with `dither deadletters replay`"
    )


def count_late(progress: TopicProgress, metric: Metric, population: Population) -> int:
    """Return how many of the first rows are in panes that a partition has already closed.

    `progress`: the progress of counting; `metric`: the metric; `population`: the devices, in
    ascending order of their times.
    """
    key = metric_key(metric.name, metric.revision)
    marks = [partition.watermarks.get(key) for partition in progress.partitions.values()]
    closed = max((mark.closed for mark in marks if mark is not None), default=NO_TIME)
    return int(np.searchsorted(population.time_ms, closed // metric.pane_ms * metric.pane_ms))


def await_outcome(
    settings: Settings, metric: Metric, initial_state: RedisState | None, reports: int
) -> dict[str, int] | None:
    """Return how many reports of a metric have had each outcome since a state; None if unknown.

    Reports of all senders are included. The wait ends when `reports` of them are counted or
    refused, or when the workers have counted nothing for some seconds. `settings`: the
    settings, with Redis's address; `metric`: the metric; `initial_state`: the state before the
    first report; `reports`: how many reports to wait for.
    """
    if initial_state is None:
        return None
    counted_metrics, ends_at = Counter[str](), time.monotonic() + FIRST_SECONDS
    while counted_metrics.total() < reports and time.monotonic() < ends_at:
        time.sleep(POLL_SECONDS)
        if (current_state := read_redis(settings)) is None:
            return None
        increase = current_state.progress.outcomes() - initial_state.progress.outcomes()
        counts = Counter(
            {outcome: count for (name, outcome), count in increase.items() if name == metric.name}
        )
        if counts != counted_metrics:
            counted_metrics, ends_at = counts, time.monotonic() + QUIET_SECONDS
    return dict(counted_metrics)


def describe_outcome(metric: str, reports: int, outcome: Mapping[str, int] | None) -> str:
    """Return the outcome of delivered reports as a sentence.

    `metric`: the metric's name; `reports`: the number of delivered reports; `outcome`: the result
    of :func:`await_outcome`.

    >>> describe_outcome("delay", 9, {"accepted": 4, "late": 3})
    "since the start, of all senders' reports of delay: 4 accepted, 3 late (`dither deadletters \
list --metric delay`), 2 not counted by any worker yet: `dither estimate delay` says how many \
messages wait"
    """
    if outcome is None:
        return "delivered. Whether they are counted is unknown: no Redis answers (see --redis)"
    counts = ", ".join(f"{count:,} {name}" for name, count in outcome.items()) or "0 accepted"
    are_refused = bool(outcome.keys() - {"accepted", "duplicate"})
    command = f" (`dither deadletters list --metric {metric}`)" * are_refused
    unaccounted = reports - sum(outcome.values())
    waiting = f": `dither estimate {metric}` says how many messages wait"
    uncounted = f", {unaccounted:,} not counted by any worker yet{waiting}" * (unaccounted > 0)
    return f"since the start, of all senders' reports of {metric}: {counts}{command}{uncounted}"
