"""The tables of a queue's file: rows of open batches, batches, and totals."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.metrics.metric import Metric
from producers.delivery.batches import Columns
from producers.wire.batch import new_batch_id
from producers.wire.decoding import decode_json
from producers.wire.reports_pb2 import Attribute, ReportBatch

NO_BATCH_ID = b""
"""Stands for the id of a sealed report, which has none because it is posted to a relay."""
_OF_SENDER = "(:sealed IS NULL OR (id = x'') = :sealed)"


class QueuedBatch(NamedTuple):
    """A batch that waits for the gateway's acknowledgement, or a sealed report, which has no id."""

    number: int
    metric: str
    payload: bytes
    key: bytes
    reports: int
    attempts: int
    refusals: int


def first_batch(
    database: sqlite3.Connection, but: Collection[int] = (), *, sealed: bool | None = None
) -> QueuedBatch | None:
    """Return the oldest waiting batch; None if there is none.

    `database`: the open file of the queue; `but`: numbers of batches to ignore; `sealed`: whether
    to look for a sealed report or for a batch; by default for both.
    """
    row = database.execute(
        "SELECT number, metric, payload, id, reports, attempts, refusals FROM batches "  # noqa: S608
        f"WHERE {_OF_SENDER} AND number NOT IN ({','.join(map(str, but))}) "
        "ORDER BY number LIMIT 1",
        {"sealed": sealed},
    ).fetchone()
    return None if row is None else QueuedBatch(*row)


def count(database: sqlite3.Connection, metric: str, name: str, more: int) -> None:
    """Add a number to a total of a metric.

    `database`: the open file of the queue; `metric`: the metric's name; `name`: the name of the
    total; `more`: the number to add.
    """
    database.execute(
        "INSERT INTO totals VALUES (?, ?, ?) "
        "ON CONFLICT (metric, name) DO UPDATE SET value = value + excluded.value",
        (metric, name, more),
    )


def stored_bytes(database: sqlite3.Connection) -> int:
    """Return the number of bytes of all waiting reports."""
    return int(database.execute("SELECT value FROM settings WHERE name = 'bytes'").fetchone()[0])


def _grow(database: sqlite3.Connection, more: int) -> None:
    database.execute("UPDATE settings SET value = value + ? WHERE name = 'bytes'", (more,))


def waiting(
    database: sqlite3.Connection, metric: str | None, *, sealed: bool | None = None
) -> tuple[int, int]:
    """Return the numbers of waiting reports and batches, for a metric or for all.

    `database`: the open file of the queue; `metric`: the metric's name; None for all metrics;
    `sealed`: as for :func:`first_batch`.
    """
    (reports, batches) = database.execute(
        "SELECT coalesce(sum(reports), 0), count(*) FROM ("  # noqa: S608
        "SELECT metric, reports, id FROM batches "
        "UNION ALL SELECT metric, reports, x'00' AS id FROM open_batches) "
        f"WHERE coalesce(metric = :metric, 1) AND {_OF_SENDER}",
        {"metric": metric, "sealed": sealed},
    ).fetchone()
    return int(reports), int(batches)


def append(database: sqlite3.Connection, batch: int, metric: Metric, columns: Columns) -> None:
    """Add reports to an open batch.

    `database`: the open file of the queue; `batch`: the number of the open batch; `metric`: the
    reports' metric; `columns`: at least one report.
    """
    levels = columns.level.astype(np.uint8).tobytes()
    reports: NDArray[np.integer[Any]] = columns.reports
    values = metric.randomizer.encode(reports)
    database.execute(
        "INSERT INTO rows (batch, levels, reports, time_ms) VALUES (?, ?, ?, ?)",
        (batch, levels, values, int(columns.time_ms.max())),
    )
    database.execute(
        "UPDATE open_batches SET reports = reports + ? WHERE number = ?", (len(levels), batch)
    )
    _grow(database, len(levels) + len(values))


def close_batch(
    database: sqlite3.Connection, number: int, metric: str, revision: int, attributes: str
) -> None:
    """Turn an open batch into a waiting batch, which has an id.

    `database`: the open file of the queue; `number`: the number of the open batch; `metric`,
    `revision`: the name and the revision of its metric; `attributes`: its attributes as JSON.
    """
    rows = database.execute(
        "SELECT levels, reports, time_ms FROM rows WHERE batch = ? ORDER BY number", (number,)
    ).fetchall()
    levels, values = b"".join(row[0] for row in rows), b"".join(row[1] for row in rows)
    key, pairs = new_batch_id(), decode_json(attributes, list[tuple[str, str]])
    payload = ReportBatch(
        metric=metric,
        revision=revision,
        batch_id=key,
        time_ms=max(row[2] for row in rows),
        levels=levels,
        values=values,
        attributes=[Attribute(name=name, value=value) for name, value in pairs],
    ).SerializeToString()
    database.execute("DELETE FROM rows WHERE batch = ?", (number,))
    database.execute("DELETE FROM open_batches WHERE number = ?", (number,))
    _grow(database, -len(levels) - len(values))
    insert(database, metric, payload, key, len(levels))


def insert(
    database: sqlite3.Connection, metric: str, payload: bytes, key: bytes, reports: int
) -> None:
    """Add a batch, or a sealed report, to those that wait.

    `database`: the open file of the queue; `metric`: the metric's name; `payload`: the bytes to
    post; `key`: the batch's id; `reports`: the number of reports.
    """
    database.execute(
        "INSERT INTO batches (metric, payload, id, reports) VALUES (?, ?, ?, ?)",
        (metric, payload, key, reports),
    )
    _grow(database, len(payload))


def remove(database: sqlite3.Connection, batch: QueuedBatch) -> bool:
    """Remove a waiting batch; return whether it was there."""
    database.execute("DELETE FROM failing WHERE number = ?", (batch.number,))
    removed = database.execute("DELETE FROM batches WHERE number = ?", (batch.number,)).rowcount
    if removed:
        _grow(database, -len(batch.payload))
    return bool(removed)
