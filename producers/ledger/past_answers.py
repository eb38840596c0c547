"""What a device has answered: the definitions that it keeps, and the last pane of each metric.

A server may change a definition at any time. This must not make a device forget its answered
rounds, its repeated answers or its drawn threshold. The ledger therefore stores the SHA-256 of the
meaning of a name's first definition, and refuses any other definition.

A device has at most one report in a pane; its ledger remembers this across restarts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from estimators.metrics.metric import Metric
from producers.ledger.accounts import utc_time
from producers.ledger.ledger_file import has_table

NEVER_ANSWERED = -1
NO_THRESHOLD = b""
"""Stored instead of a device's threshold for metrics that need none."""
_CREATE_PINS = """
CREATE TABLE IF NOT EXISTS pins (
    metric TEXT PRIMARY KEY, fingerprint BLOB NOT NULL
) WITHOUT ROWID"""


class DefinitionChanged(ValueError):  # noqa: N818
    """Raised if a metric's definition differs in meaning from the one that the device stores.

    Attributes
    ----------
    metric : str
        The metric.
    """

    def __init__(self, metric: str, detail: str = "") -> None:
        self.metric = metric
        super().__init__(
            detail
            or f"the definition of {metric!r} differs from the one that this device has answered: "
            "expected the same definition while the device remembers its rounds or answers. Give "
            "a new question another name; nothing was reported"
        )


def pin(database: sqlite3.Connection, metric: Metric) -> None:
    """Store a metric's definition, unless there is a stored definition of this name.

    Raises DefinitionChanged if the stored definition has another meaning.
    """
    database.execute(_CREATE_PINS)
    check_pin(database, metric.name, metric.fingerprint)
    database.execute("INSERT OR IGNORE INTO pins VALUES (?, ?)", (metric.name, metric.fingerprint))


def check_pin(database: sqlite3.Connection, name: str, fingerprint: bytes) -> None:
    """Raise DefinitionChanged if another definition of a name is stored.

    `database`: a transaction of the ledger; `name`: the metric's name; `fingerprint`: the
    fingerprint of the definition in use.
    """
    if not has_table(database, "pins"):
        return
    row = database.execute("SELECT fingerprint FROM pins WHERE metric = ?", (name,)).fetchone()
    if row is not None and row[0] != fingerprint:
        raise DefinitionChanged(name)


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
