"""What the workers will refuse of a population, and what became of its reports, from Redis."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.config.settings import Settings
from aggregator.errors import DitherError
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import NO_TIME
from estimators import Metric
from producers.populations.population import Population

if TYPE_CHECKING:
    from aggregator.storage.progress import TopicProgress

QUIET_SECONDS, LOOK_SECONDS = 3.0, 0.2
"""So long without a newly counted report, the workers are waited for no more; between two looks."""


class Look(NamedTuple):
    """What Redis says: how far everything is counted, and definitions by digest."""

    progress: TopicProgress
    definitions: Mapping[str, bytes]


def look(settings: Settings) -> Look | None:
    """Return what Redis says; None if it does not answer, or its client is not installed."""
    try:
        import redis

        from aggregator.storage.connection import connect
        from aggregator.storage.store import Store
    except ModuleNotFoundError:
        return None
    try:
        with Store(connect(settings.redis.url), settings.topics.reports) as store:
            return Look(store.overview(), store.registry.definitions())
    except (DitherError, redis.RedisError):
        return None


def not_counted(found: Look, settings: Settings, metric: Metric) -> str:
    """Say so if the workers are known not to count a metric; empty if they do, or nobody tells.

    Parameters
    ----------
    found : Look
    settings : Settings
        Where the metric's definition comes from.
    metric : Metric
    """
    from aggregator.state.definition_history import CountingDefinitions, definitions_by_offset

    try:
        histories = [definitions_by_offset(one.owner) for one in found.progress.partitions.values()]
        newest = {history[-1][1] for history in histories if history}
        counted = [
            CountingDefinitions.decode(found.definitions[digest]).metrics for digest in newest
        ]
    except (DitherError, KeyError, ValueError):
        return ""
    revisions = {one[metric.name].revision for one in counted if metric.name in one}
    if not counted or revisions == {metric.revision}:
        return ""
    return (
        f"the workers do not count {metric.name} as {settings.metrics} here defines it: its "
        "reports become dead letters until the workers' own metrics.toml has this definition "
        "(they check it every second). Then send them again with `dither deadletters replay`"
    )


def count_late(progress: TopicProgress, metric: Metric, population: Population) -> int:
    """Return how many rows, the first ones, are in panes that a partition has closed.

    Parameters
    ----------
    progress : TopicProgress
    metric : Metric
    population : Population
        With ascending times.
    """
    key = metric_key(metric.name, metric.revision)
    marks = [one.watermarks.get(key) for one in progress.partitions.values()]
    closed = max((mark.closed for mark in marks if mark is not None), default=NO_TIME)
    return int(np.searchsorted(population.time_ms, closed // metric.pane_ms * metric.pane_ms))


def await_outcome(
    settings: Settings, metric: Metric, before: Look | None, reports: int
) -> dict[str, int] | None:
    """Return the metric's reports since a look by outcome, of all senders; None: not known.

    It waits until so many reports are counted or refused, or the workers are quiet.

    Parameters
    ----------
    settings : Settings
        Where Redis is.
    metric : Metric
    before : Look or None
        From before the first report.
    reports : int
    """
    if before is None:
        return None
    counted, since = Counter[str](), time.monotonic()
    is_counting = bool(before.progress.partitions)
    while is_counting and counted.total() < reports and time.monotonic() - since < QUIET_SECONDS:
        time.sleep(LOOK_SECONDS)
        if (after := look(settings)) is None:
            return None
        new = after.progress.outcomes() - before.progress.outcomes()
        now = Counter({what: count for (name, what), count in new.items() if name == metric.name})
        if now != counted:
            counted, since = now, time.monotonic()
    return dict(counted)


def describe_outcome(metric: str, reports: int, outcome: Mapping[str, int] | None) -> str:
    """Return what became of delivered reports, for people.

    Parameters
    ----------
    metric : str
        Its name.
    reports : int
        How many were delivered.
    outcome : mapping of str to int, or None
        From :func:`await_outcome`.

    Examples
    --------
    >>> describe_outcome("delay", 9, {"accepted": 4, "late": 3})
    "since the start, of all senders' reports of delay: 4 accepted, 3 late (`dither deadletters \
list --metric delay`). Of 2 it is not known: no worker has counted them"
    """
    if outcome is None:
        return "delivered. It is not known what is counted: no Redis answers (see --redis)"
    listed = ", ".join(f"{count:,} {what}" for what, count in outcome.items()) or "0 accepted"
    where = f" (`dither deadletters list --metric {metric}`)" * bool(
        outcome.keys() - {"accepted", "duplicate"}
    )
    rest = reports - sum(outcome.values())
    unknown = f". Of {rest:,} it is not known: no worker has counted them" * (rest > 0)
    return f"since the start, of all senders' reports of {metric}: {listed}{where}{unknown}"
