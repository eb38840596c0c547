"""Allows a device at most one report in a pane; its ledger remembers this across restarts."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from estimators.metrics.metric import Metric
from producers.ledger.accounts import utc_time

NEVER_ANSWERED = -1
NO_THRESHOLD = b""
"""Stored instead of a device's threshold for metrics that need none."""


class AlreadyAnswered(RuntimeError):  # noqa: N818
    """Raised for a second report of a metric in a pane, or a report in an earlier pane.

    Reports of a memoized metric in one pane must come from different devices, or bounds would be
    too narrow. Two reports of a trusted metric would reveal more about a person than the release
    states; two reports in a crowd, more than the crowd's epsilon.

    Attributes
    ----------
    metric : str
        The metric.
    next_ms : int
        The start of the first pane that the device may still answer, in ms since the epoch.
    """

    def __init__(self, metric: str, next_ms: int) -> None:
        self.metric, self.next_ms = metric, next_ms
        super().__init__(
            f"this device already answered {metric!r}, in the pane that ends at "
            f"{utc_time(next_ms):%Y-%m-%d %H:%M:%S} UTC: a device answers once per pane, in order "
            "of time; nothing was reported"
        )


def answer_once(database: sqlite3.Connection, metric: Metric, times: Sequence[int]) -> None:
    """Record the panes of event times as answered.

    `database`: a transaction of the ledger; `metric`: the metric; `times`: the event time of each
    report, in ms since the epoch. Raises AlreadyAnswered unless each pane is later than all
    recorded panes.
    """
    key = (metric.name, metric.revision)
    row = database.execute(
        "SELECT answered_ms FROM devices WHERE metric = ? AND revision = ?", key
    ).fetchone()
    answered = NEVER_ANSWERED if row is None else int(row[0])
    for time in times:
        pane = metric.pane_start(time)
        if pane <= answered:
            raise AlreadyAnswered(metric.name, answered + metric.pane_ms)
        answered = pane
    database.execute(
        "INSERT INTO devices VALUES (?, ?, ?, ?) ON CONFLICT (metric, revision) "
        "DO UPDATE SET answered_ms = excluded.answered_ms",
        (*key, NO_THRESHOLD, answered),
    )
