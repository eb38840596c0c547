"""The tables of a queue: reports until their batch is sealed, batches until they are acknowledged.

Each operation is one transaction, so a process may be killed at any time. A batch gets its id when
it is sealed, and keeps it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from estimators.metrics.metric import Metric
from producers.delivery.batches import Columns, PendingBatch
from producers.http.queue_file import QueueFile
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
    refusals: int


def first_batch(
    database: sqlite3.Connection, but: Collection[int] = (), *, sealed: bool | None = None
) -> QueuedBatch | None:
    """Return the oldest waiting batch; None if there is none.

    `database`: the open file of the queue; `but`: numbers of batches to ignore; `sealed`: whether
    to look for a sealed report or for a batch; by default for both.
    """
    row = database.execute(
        "SELECT number, metric, payload, id, reports, refusals FROM batches "  # noqa: S608
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
    levels, values = columns.level.tobytes(), metric.randomizer.encode(columns.reports)
    database.execute(
        "INSERT INTO rows (batch, levels, reports, time_ms) VALUES (?, ?, ?, ?)",
        (batch, levels, values, int(columns.time_ms.max())),
    )
    database.execute(
        "UPDATE open_batches SET reports = reports + ? WHERE number = ?", (len(levels), batch)
    )
    _grow(database, len(levels) + len(values))


def insert(database: sqlite3.Connection, metric: str, batch: PendingBatch) -> None:
    """Add a batch, or a sealed report, to those that wait.

    `database`: the open file of the queue; `metric`: the metric's name; `batch`: what to post.
    """
    database.execute(
        "INSERT INTO batches (metric, payload, id, reports) VALUES (?, ?, ?, ?)",
        (metric, batch.payload, batch.key, batch.reports),
    )
    _grow(database, len(batch.payload))


def remove(database: sqlite3.Connection, batch: QueuedBatch) -> bool:
    """Remove a waiting batch; return whether it was there."""
    database.execute("DELETE FROM failing WHERE number = ?", (batch.number,))
    removed = database.execute("DELETE FROM batches WHERE number = ?", (batch.number,)).rowcount
    if removed:
        _grow(database, -len(batch.payload))
    return bool(removed)


WhenFull: TypeAlias = Literal["refuse", "drop_new", "drop_old"]
WHEN_FULL = ("refuse", "drop_new", "drop_old")
MOST_BYTES = 16 * 2**20
MOST_REFUSALS = 3
"""After this many refusals a batch is given up; one refusal may be due to a truncated request."""
MOST_ERRORS = 20
LONGEST_FAILING_MS = 7 * 86_400_000
"""A batch is given up if it alone has failed for this long, and at least MOST_ERRORS times."""


@dataclasses.dataclass(frozen=True, slots=True)
class Totals:
    """The outcomes of a metric's reports since the queue was created.

    Attributes
    ----------
    taken : int
        Reports that were put into the queue.
    delivered, batches, bytes : int
        Reports, batches and bytes that the gateway has acknowledged.
    dropped : int
        Reports that were dropped because the queue was full, either before or after they were put
        into it.
    refused : int
        Reports in batches that the gateway refused for good; sealed reports that the relay refused.
    left : int
        Reports that wait in the queue.
    """

    taken: int = 0
    delivered: int = 0
    batches: int = 0
    bytes: int = 0
    dropped: int = 0
    refused: int = 0
    left: int = 0


@dataclasses.dataclass(frozen=True)
class BatchRule:
    """The most reports of a metric's batch, and how long its first report waits for more, in ms."""

    metric: Metric
    reports: int
    age_ms: int


class ReportQueue:
    """The reports and batches of any number of metrics, in one file.

    Parameters
    ----------
    path : Path or None
        The file; None for a queue in memory.
    most_bytes : int
        The most bytes that may wait. A call that begins with fewer bytes is accepted as a whole.
    when_full : {"refuse", "drop_new", "drop_old"}
        What to do with a full queue: refuse reports, drop new reports, or drop the oldest batches.
    clock : callable
        Returns seconds since the epoch, which determine the age of batches.
    """

    def __init__(
        self,
        path: Path | None,
        most_bytes: int = MOST_BYTES,
        when_full: WhenFull = "refuse",
        clock: Callable[[], float] = time.time,
    ) -> None:
        if most_bytes < 1:
            raise ValueError(f"most_bytes = {most_bytes}: expected 1 or more")
        if when_full not in WHEN_FULL:
            raise ValueError(f"when_full = {when_full!r}: expected one of {', '.join(WHEN_FULL)}")
        self.most_bytes, self.when_full, self._clock = most_bytes, when_full, clock
        self.file = QueueFile(path)

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    # -- Reports come in --------------------------------------------------------------------------

    def is_full(self) -> bool:
        """Return whether no reports are accepted until a batch is acknowledged."""
        if self.when_full == "drop_old":
            return False
        with self.file.transaction() as database:
            return stored_bytes(database) >= self.most_bytes

    def add(self, rule: BatchRule, panes: Iterable[tuple[int, Columns]]) -> bool:
        """Store reports; return whether the sender must wake, as a batch was opened or closed.

        `panes`: the start of each pane in ms, and its reports.
        """
        metric, has_news = rule.metric, False
        with self.file.transaction() as database:
            for start, columns in panes:
                count(database, metric.name, "taken", columns.level.size)
                over = int(columns.time_ms.max()) - metric.pane_ms - metric.lateness_ms
                closed = "metric = ? AND revision = ? AND pane_ms <= ?"
                has_news |= self._seal(database, closed, metric.name, metric.revision, over)
                key = (metric.name, metric.revision, start, json.dumps(columns.attributes))
                done = 0
                while done < columns.level.size:
                    number, held = self._open_batch(database, key, rule.age_ms)
                    has_news |= held == 0
                    fitting = columns.part(slice(done, done + max(0, rule.reports - held)))
                    if fitting.level.size:
                        append(database, number, metric, fitting)
                    done += fitting.level.size
                    if held + fitting.level.size >= rule.reports:
                        has_news |= self._seal(database, "number = ?", number)
            self._make_room(database)
        return has_news

    def put(self, metric: str, batch: PendingBatch) -> None:
        """Store a sealed batch."""
        with self.file.transaction() as database:
            count(database, metric, "taken", batch.reports)
            insert(database, metric, batch)
            self._make_room(database)

    def drop(self, metric: str, reports: int) -> None:
        """Count reports of a metric as dropped; they were not put into the queue."""
        with self.file.transaction() as database:
            count(database, metric, "dropped", reports)

    # -- Batches go out ---------------------------------------------------------------------------

    def seal(self, metric: str | None = None, deadline: float = math.inf) -> None:
        """Close the open batches of a metric, or of all metrics, so that they can be sent.

        If another process locks the file, wait for it until the deadline (monotonic seconds).
        """
        with self.file.transaction(deadline=deadline) as database:
            self._seal(database, "coalesce(metric = ?, 1)", metric)

    def seal_due(self) -> float:
        """Close the open batches that are due; return the seconds until others are, or infinity."""
        now = self._now()
        with self.file.transaction() as database:
            # beyond opened_ms lies the past of a clock that was set back: such a batch is due, too
            self._seal(database, "due_ms <= ? OR opened_ms > ?", now, now)
            (due,) = database.execute("SELECT min(due_ms) FROM open_batches").fetchone()
        return math.inf if due is None else max(0.0, (due - now) / 1000)

    def has_batches(self, *, sealed: bool = False) -> bool:
        """Return whether a batch waits for the gateway; if `sealed`, a report for the relay."""
        with self.file.transaction() as database:
            return first_batch(database, sealed=sealed) is not None

    def oldest(self, but: Collection[int] = (), *, sealed: bool = False) -> QueuedBatch | None:
        """Return the oldest batch whose number is not in `but`; None if there is none.

        If `sealed`, return a sealed report instead. The attempt to send the batch is on disk before
        this returns, so that no other batch can get its id.
        """
        with self.file.transaction(durable=True) as database:
            batch = first_batch(database, but, sealed=sealed)
            if batch is None:
                return None
            database.execute(
                "UPDATE batches SET attempts = attempts + 1 WHERE number = ?", (batch.number,)
            )
        return batch

    def acknowledged(self, batch: QueuedBatch) -> None:
        """Remove a batch that the gateway has acknowledged, and count it."""
        with self.file.transaction(erasing=True) as database:
            if not remove(database, batch):  # it was dropped while under way, but has arrived
                count(database, batch.metric, "dropped", -batch.reports)
            count(database, batch.metric, "delivered", batch.reports)
            count(database, batch.metric, "batches", 1)
            count(database, batch.metric, "bytes", len(batch.payload))

    def failed(self, batch: QueuedBatch, *, refusal: bool, own_words: bool) -> int:
        """Count a failure that only the batch can have caused; the batch may be given up.

        A batch is given up after three refusals, a sealed report after the first. `batch`: the
        batch; `refusal`: whether the gateway says that the batch can never be counted; `own_words`:
        whether the gateway made the answer, and not a proxy. If so, a batch that has failed at
        least 20 times, over a week, is given up, too.

        Returns
        -------
        int
            The number of errors of the batch; 0 if it was given up and removed.
        """
        now = self._now()
        with self.file.transaction(erasing=True) as database:
            errors, failing_since = database.execute(
                "INSERT INTO failing VALUES (?, 1, ?) ON CONFLICT (number) "
                "DO UPDATE SET errors = errors + 1 RETURNING errors, since_ms",
                (batch.number, now),
            ).fetchone()
            is_old = errors >= MOST_ERRORS and now - failing_since >= LONGEST_FAILING_MS
            refusals = batch.refusals + refusal
            if refusals < (MOST_REFUSALS if batch.key else 1) and not (own_words and is_old):
                database.execute(
                    "UPDATE batches SET refusals = ? WHERE number = ?", (refusals, batch.number)
                )
                return int(errors)
            if remove(database, batch):
                count(database, batch.metric, "refused", batch.reports)
        return 0

    # -- What is told -----------------------------------------------------------------------------

    def totals(self, metric: str) -> Totals:
        """Return what became of a metric's reports."""
        with self.file.transaction() as database:
            totals = dict(
                database.execute("SELECT name, value FROM totals WHERE metric = ?", (metric,))
            )
            left, _ = waiting(database, metric)
        return Totals(**totals, left=left)

    def left(self, metric: str | None = None, *, sealed: bool | None = None) -> tuple[int, int]:
        """Return the numbers of waiting reports and batches, for a metric or for all.

        They wait for the gateway if `sealed` is False, for the relay if it is True, and for either
        if it is None.
        """
        with self.file.transaction(write=False) as database:
            return waiting(database, metric, sealed=sealed)

    # -- Within a transaction ---------------------------------------------------------------------

    def _open_batch(
        self, database: sqlite3.Connection, key: tuple[str, int, int, str], age_ms: int
    ) -> tuple[int, int]:
        """Find or open a batch of a pane and slice; return its number, and its count of reports."""
        row = database.execute(
            "SELECT number, reports FROM open_batches "
            "WHERE metric = ? AND revision = ? AND pane_ms = ? AND attributes = ?",
            key,
        ).fetchone()
        if row is not None:
            return int(row[0]), int(row[1])
        now = self._now()
        (number,) = database.execute(
            "INSERT INTO open_batches (metric, revision, pane_ms, attributes, opened_ms, due_ms, "
            "reports) VALUES (?, ?, ?, ?, ?, ?, 0) RETURNING number",
            (*key, now, now + age_ms),
        ).fetchone()
        return int(number), 0

    def _seal(
        self, database: sqlite3.Connection, condition: str, *values: str | float | None
    ) -> bool:
        """Close open batches, in order of event time; return whether there were any."""
        rows = database.execute(
            "SELECT number, metric, revision, attributes FROM open_batches "  # noqa: S608
            f"WHERE {condition} ORDER BY pane_ms, number",
            values,
        ).fetchall()
        for number, metric, revision, attributes in rows:
            parts = database.execute(
                "SELECT levels, reports, time_ms FROM rows WHERE batch = ? ORDER BY number",
                (number,),
            )
            levels, encoded, times = zip(*parts, strict=True)
            key, pairs = new_batch_id(), decode_json(attributes, list[tuple[str, str]])
            batch = ReportBatch(
                metric=metric,
                revision=revision,
                batch_id=key,
                time_ms=max(times),
                levels=b"".join(levels),
                values=b"".join(encoded),
                attributes=[Attribute(name=name, value=value) for name, value in pairs],
            )
            database.execute("DELETE FROM rows WHERE batch = ?", (number,))
            database.execute("DELETE FROM open_batches WHERE number = ?", (number,))
            _grow(database, -len(batch.levels) - len(batch.values))
            pending = PendingBatch(key, batch.SerializeToString(), len(batch.levels))
            insert(database, metric, pending)
        return bool(rows)

    def _make_room(self, database: sqlite3.Connection) -> None:
        """Drop the oldest batches while the queue is too large, if `when_full` says so."""
        while self.when_full == "drop_old" and stored_bytes(database) > self.most_bytes:
            if (batch := first_batch(database)) is not None:
                remove(database, batch)
                count(database, batch.metric, "dropped", batch.reports)
                self.file.empty_log()
            elif not self._seal(database, "1"):
                return

    def _now(self) -> int:
        return round(self._clock() * 1000)
