"""The closed panes of a search for strings."""

from __future__ import annotations

from aggregator.reading.query import Length, Query, Start, Time
from aggregator.reading.reader import MetricReader
from aggregator.reading.window import Window
from aggregator.state.pane_keys import metric_key
from estimators import LocalMetric
from estimators.durations import above_zero


def describe_discovery(
    reader: MetricReader,
    name: str,
    start: Start = None,
    end: Time = None,
    *,
    window: Length | None = None,
) -> tuple[Window, int | None]:
    """Return the window of a search for strings, without its sums, and its number of closed panes.

    `reader`: reads the sums in Redis; `name`: the metric's name; `start`, `end`: as in
    :meth:`aggregator.features.reader.Reader.discover`, which raises the same errors; `window`,
    optional: a duration, in place of start and end. Raises ValueError if there are both a duration
    `window` and a start or an end.

    Returns
    -------
    window : Window
        The window, without its sums.
    reading : int or None
        The number of closed panes if the window is all panes so far; None if its end is fixed.
    """
    metric = LocalMetric.require(reader.metric(name))
    metric.require_discovery()
    start, end, length = Query(start, end, window=window).stretch
    overview = reader.progress(name)
    reading, closed = None, reader.finality_watermarks(overview).get(name)
    if length is not None and (start, end) != (None, None):
        raise ValueError(f"window = {length!r} and a start or an end: expected one of the two")
    if closed is not None:
        closed = metric.pane_start(closed)
    if closed is not None and length is not None:
        end = closed / 1000
        start = (closed - above_zero("window", length)) / 1000
    elif closed is not None and end is None:
        end = closed / 1000
        key = metric_key(metric.name, metric.revision)
        extent = overview.extent(key, overview.partitions)
        first = closed if extent is None else extent[0]
        reading = max(1, (closed - first) // metric.pane_ms)
    return reader.describe(overview, name, Query(start, end)), reading
