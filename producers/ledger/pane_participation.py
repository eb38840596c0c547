"""Allows at most one report of a device in a pane; its ledger records this over restarts."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from estimators.metrics.metric import Metric
from producers.ledger.accounts import parts_of, utc_time
from producers.ledger.pinned_definitions import pin

if TYPE_CHECKING:
    from producers.ledger.ledger import Ledger

NEVER_ANSWERED = -1
NO_THRESHOLD = b""
"""In place of a device's own threshold, for metrics that need none."""


class AlreadyAnswered(RuntimeError):  # noqa: N818
    """Raised for a second report of a metric in a pane, or a report in an earlier pane.

    Reports of a memoized metric in one pane must come from different devices, or bounds would be
    too narrow. With two reports to a trusted metric, a person would lose more than the release
    states; with two in a crowd, more than the crowd's epsilon.

    Attributes
    ----------
    metric : str
    next_ms : int
        The start of the next pane, in ms since the epoch.
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

    Parameters
    ----------
    database, metric, times
        Event times in ms since the epoch, one report each.

    Raises
    ------
    AlreadyAnswered
        Unless each is later than all recorded panes.
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


def spend_once(ledger: Ledger, metric: Metric, epsilon: Fraction, times: Sequence[int]) -> None:
    """Charge reports, and record their panes as answered; it is on disk when this returns.

    The ledger accepts no other definition of this name from then on: by another one a device could
    answer twice.

    Parameters
    ----------
    ledger, metric
    epsilon : Fraction
        The cost of all these reports together.
    times : sequence of int
        Event times in ms since the epoch, one report each.

    Raises
    ------
    AlreadyAnswered
        Unless each is in a later pane than all reports before.
    DefinitionChanged, BudgetSpent, LedgerError
        As for :meth:`Ledger.spend`.
    """
    with ledger.transaction() as database:
        pin(database, metric)
        answer_once(database, metric, times)
        ledger.pay(database, metric.name, parts_of(epsilon, "epsilon"), len(times))
