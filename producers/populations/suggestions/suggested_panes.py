"""Suggests the width of panes: the narrowest that is affordable and has enough reports."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from estimators.durations import milliseconds
from estimators.metrics.categories import ANSWERING_MECHANISM
from estimators.metrics.loading import define
from estimators.metrics.metric import Metric
from producers.populations.time_columns import DAY_MS

SUGGESTED_PANES = ("1m", "5m", "15m", "1h", "6h", "1d", "1w", "4w")
MAX_SUGGESTED_PANES = 400
MAX_PANE_BYTES = 64_000_000
"""The most bytes in Redis of all panes in the file's times, with a topic's default partitions."""
DEFAULT_PARTITIONS = 6
TABLE_ROWS = (1024, 512, 256)
"""Rows of an open vocabulary's table to try; the first that fits `MAX_PANE_BYTES` is used."""


def choose_pane(
    keys: dict[str, object], metric_name: str, times: NDArray[np.int64], users_per_day: float | None
) -> tuple[dict[str, object], float, list[str]]:
    """Return the keys of a definition with a pane, the expected reports in a pane, and notes.

    `keys`, `metric_name`: the definition and its name; a table that would be too large gets fewer
    rows; `times`: event times in ms since the epoch, possibly none; `users_per_day`, optional: the
    expected number of users per day; by default the times determine the reports in a pane.
    """
    for rows in TABLE_ROWS if keys.get("mechanism") == ANSWERING_MECHANISM else TABLE_ROWS[:1]:
        fewer = {} if rows == TABLE_ROWS[0] else {"options": {"rows": rows}}
        metric = define(name=metric_name, **keys, **fewer)
        pane, size, reports, pane_notes = _pane(times, metric, users_per_day)
        if size <= MAX_PANE_BYTES:
            break
    if fewer:
        pane_notes[0] += f"; {rows} rows make it smaller"
    return keys | {"pane": pane} | fewer, reports, pane_notes


def _pane(
    times: NDArray[np.int64], metric: Metric, users_per_day: float | None
) -> tuple[str, int, float, list[str]]:
    """Return the narrowest affordable pane with enough reports, and facts about it.

    These are the size of all its panes in bytes, the typical number of reports in a pane, and
    notes.
    """
    valid_times = times[times >= 0]
    for pane in SUGGESTED_PANES:
        width = milliseconds(pane)
        panes, stored = _count_panes(valid_times, width)
        size = stored * metric.zero().nbytes * DEFAULT_PARTITIONS
        reports = _reports(valid_times, width, users_per_day)
        has_enough = reports >= metric.minimum_reports
        if panes <= MAX_SUGGESTED_PANES and size <= MAX_PANE_BYTES and has_enough:
            break
    pane_note = f"pane: {pane}"
    if valid_times.size:
        megabytes = max(1, round(size / 1e6))
        pane_note += (
            f", so that the times span {panes} pane{'s' * (panes != 1)}: at most {megabytes} MB in "
            f"Redis with {DEFAULT_PARTITIONS} partitions (`retention` lets old panes expire)"
        )
    source = "of the file" if users_per_day is None else f"for {users_per_day:,g} users a day"
    pane_note += f"; {reports:,.0f} reports {source} are in one of them, typically"
    too_few_note = (
        f"a step of the history needs {metric.minimum_reports} reports (`minimum_reports`), and "
        f"not even a pane of {pane} has them: the history will show no numbers, but the running "
        "total will. --users-per-day says how many users you expect"
    )
    return pane, size, reports, [pane_note] if has_enough else [pane_note, too_few_note]


def _reports(times: NDArray[np.int64], width_ms: int, users_per_day: float | None) -> float:
    """Return the median number of reports in panes with reports, or the expected number."""
    if users_per_day is not None:
        return users_per_day * width_ms / DAY_MS
    if not times.size:
        return 0.0
    return float(np.median(np.unique(times // width_ms, return_counts=True)[1]))


def _count_panes(times: NDArray[np.int64], width_ms: int) -> tuple[int, int]:
    """Return the number of panes that the times span, and of statistics that Redis stores."""
    if not times.size:
        return 0, 0
    spanned = -(-int(times.max() - times.min()) // width_ms) or 1
    coarser = [grain for grain in (3_600_000, 86_400_000) if width_ms < grain]
    return spanned, 1 + sum(np.unique(times // width).size for width in (width_ms, *coarser))
