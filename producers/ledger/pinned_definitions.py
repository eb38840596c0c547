"""Pinned definitions: searches and repeated answers keep the first definition of a name.

A server may change a definition at any time. This must not make a device forget its answered
rounds, its repeated answers or its drawn threshold. The ledger therefore stores the SHA-256 of the
meaning of a name's first definition, and refuses any other definition.
"""

from __future__ import annotations

import sqlite3

from estimators.metrics.metric import Metric
from producers.ledger.ledger_file import has_table

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
