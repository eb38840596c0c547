"""True values of one person for a trusted collector: one per pane, under a pseudonym.

A release protects a single report, so a device sends one report per pane, under a fixed id. A
second report, from a copied or restored ledger, has the same id, and the collector counts only one
of the two.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from estimators.metrics.metric import Metric
from producers.ledger.accounts import parts_of
from producers.ledger.ledger import Ledger
from producers.ledger.pane_participation import answer_once
from producers.ledger.pinned_definitions import check_pin
from producers.wire.batch import BATCH_ID_BYTES

SECRET_BYTES = 32
_CREATE_TABLES = (
    "CREATE TABLE IF NOT EXISTS secret (word BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS trusted (metric TEXT PRIMARY KEY) WITHOUT ROWID",
)


def entrusted(
    ledger: Ledger, metric: Metric, level: NDArray[np.uint8], times: NDArray[np.int64]
) -> list[bytes]:
    """Record and charge one person's reports, all or none; return the ids of their batches.

    A report costs its level's epsilon, the most that its pane's release reveals about it.

    Parameters
    ----------
    ledger, metric
        The person's ledger, and a metric with ``trust = "central"``.
    level, times : ndarray, shape (n,)
        Levels, and event times in ms; each time must be in a later pane than the one before.

    Raises
    ------
    AlreadyAnswered
        If the device has a report in one of the panes, or in a later one.
    DefinitionChanged, BudgetSpent, LedgerError
        As for :meth:`Ledger.spend`.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from estimators import define
    >>> metric = define(name="pay", kind="mean", trust="central", range=(0, 9), levels=[1])
    >>> with TemporaryDirectory() as folder:
    ...     ledger = Ledger(f"{folder}/ledger", budget=2)
    ...     ids = entrusted(ledger, metric, np.zeros(2, np.uint8), np.array([0, 60_000]))
    ...     len(set(ids)), float(ledger.accounts()["pay"].spent)
    (2, 2.0)
    """
    starts = [metric.pane_start(time) for time in times.tolist()]
    with ledger.transaction() as database:
        for schema in _CREATE_TABLES:
            database.execute(schema)
        check_pin(database, metric.name, metric.fingerprint)
        answer_once(database, metric, starts)
        for index in level.tolist():
            parts = parts_of(Fraction(metric.randomizer.epsilons[index]), "epsilon")
            ledger.pay(database, metric.name, parts)
        database.execute("INSERT OR IGNORE INTO trusted VALUES (?)", (metric.name,))
        secret = _secret(database)
    return [pseudonym(secret, metric.name, start) for start in starts]


def pseudonym(secret: bytes, metric: str, start: int) -> bytes:
    """Return a device's id in a pane; ids of different panes are like independent random bytes.

    `secret`: the device's secret; `metric`: the metric's name; `start`: the start of the pane in
    ms.
    """
    message = f"{metric} {start}".encode()
    return hashlib.blake2b(message, digest_size=BATCH_ID_BYTES, key=secret).digest()


def _secret(database: sqlite3.Connection) -> bytes:
    """Return the secret from which a device's pseudonyms follow; draw it at the first call."""
    row = database.execute("SELECT word FROM secret").fetchone()
    if row is None:
        row = (os.urandom(SECRET_BYTES),)
        database.execute("INSERT INTO secret VALUES (?)", row)
    return bytes(row[0])
