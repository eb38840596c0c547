"""The change of a metric against the period before, with one error budget for all shown changes."""

from __future__ import annotations

from typing import Literal, get_args

from aggregator.features.comparisons.compared import CompareQuery
from aggregator.reading.reader import MetricReader
from aggregator.reading.window import last_edges
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import NO_TIME
from estimators import LocalMetric

Period = Literal["1h", "24h", "7d", "30d", "90d"]
OFFERED_PERIODS: tuple[str, ...] = get_args(Period)


def change_query(reader: MetricReader, name: str, period: str | None) -> CompareQuery | None:
    """Return the query of a change: the last closed panes against as many panes before them.

    All changes on offer hold together at one look: beta is shared by all metrics that can be
    compared, and by all periods.

    Parameters
    ----------
    reader : MetricReader
    name : str
    period : str or None
        One of :data:`OFFERED_PERIODS`, widened to whole panes; None: the longest that the metric
        has twice.

    Returns
    -------
    CompareQuery or None
        None: no pane is closed, or no period is there twice.

    Raises
    ------
    UnknownMetric
        If there is no such metric.
    ValueError
        If the metric cannot be compared.
    """
    metric = LocalMetric.require(reader.metric(name))
    key = metric_key(name, metric.revision)
    progress = reader.progress(name)
    progress.require_readable()
    extent, closed = progress.extent(key, progress.partitions), progress.closed(key)
    if extent is None or closed == NO_TIME:
        return None
    newest = min(extent[1] + metric.pane_ms, metric.pane_start(closed)) - metric.pane_ms
    for offered in reversed(OFFERED_PERIODS) if period is None else (period,):
        start, end = last_edges(metric, offered, newest)
        if period is not None or 2 * start - end >= extent[0]:
            break
    else:
        return None
    comparable = sum(isinstance(other, LocalMetric) for other in reader.metrics.values())
    return CompareQuery.of_options(
        where={},
        against={},
        start=start / 1000,
        end=end / 1000,
        against_start=(2 * start - end) / 1000,
        against_end=start / 1000,
        windows=comparable * len(OFFERED_PERIODS),
    )
