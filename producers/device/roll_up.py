"""Gathers a device's values over a window, and reports once when the window is over.

What is gathered is not randomized yet: it stays in a file on the device that only its owner can
read, and is deleted when the window's report is made. The service knows nothing of windows; it gets
one ordinary report, whose time is the end of its window.
"""

from __future__ import annotations

import json
import logging
import math
import random
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from estimators.durations import above_zero
from estimators.metrics.reported import ReportedMetric
from producers.device.base_reporter import BaseReporter
from producers.device.closed_windows import Run, after_closed, uncovered, with_run
from producers.device.randomizing import values_of
from producers.device.times import event_times

if TYPE_CHECKING:
    from producers.ledger.ledger import Ledger

logger = logging.getLogger("producers")

How: TypeAlias = Literal["count", "sum", "last", "largest", "active"]
HOW = ("count", "sum", "last", "largest", "active")
OF_NOTHING = ("count", "sum", "active")
"""A window without values has a result, too: zero."""
LONGEST_DELAY_MS = 3_600_000
"""Devices report at random within this time after a window, so that they do not come together."""
AGAIN_MS = 60_000
"""How long `add` waits after a report that failed."""

_SCHEMAS = (
    "CREATE TABLE IF NOT EXISTS gatherings (name TEXT PRIMARY KEY, open_ms INTEGER NOT NULL, "
    "missed INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS gathered (name TEXT NOT NULL, start_ms INTEGER NOT NULL, "
    "value TEXT NOT NULL, PRIMARY KEY (name, start_ms)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS closed_windows (name TEXT NOT NULL, from_ms INTEGER NOT NULL, "
    "to_ms INTEGER NOT NULL, PRIMARY KEY (name, from_ms)) WITHOUT ROWID",
)
"""`open_ms`: the start of the first window that is not over. `closed_windows`: runs of windows that
are over; none of them is reported twice, also if the clock went forward and then back."""
_random = random.SystemRandom()


class Ended(NamedTuple):
    """A window that is over: its start, in ms since the epoch, and its result."""

    start: int
    value: Any


class RollUp:
    """One number or value of a device for each window of time.

    Windows are in UTC, and begin at multiples of their length since 1970: days at midnight, weeks
    on Thursdays. A window is reported once, by the first `add` or `report_ended` after its end and
    a random delay (at most an hour, or a quarter of the metric's lateness). If the process is
    killed in that moment, the window is not reported; it is never reported or charged twice.

    What is gathered is stored in the file of the reporter's queue, or else in that of the ledger.
    All methods may be called from any thread, and any number of processes may gather together.

    Parameters
    ----------
    reporter : Reporter or HttpReporter
    how : {"count", "sum", "last", "largest", "active"}
        What is reported: how often `add` was called, the sum of the values, the last or largest of
        them, or whether `add` was called (1, or else 0).
    window : str
        Such as ``"1h"``, ``"1d"``, ``"7d"`` or ``"28d"``: a multiple of the metric's pane.
    epsilon : float
        The largest epsilon that the device's owner allows for one report.
    ledger : Ledger, optional
        The owner's account. Each report is charged once.
    attributes, permanent, changes
        As for :meth:`producers.Reporter.report`.
    clock : callable
        Seconds since the epoch.

    Raises
    ------
    ValueError
        If a parameter cannot be used, or there is no file.
    QueueError, LedgerError
        If the file cannot be used.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from estimators import define
    >>> from producers import Ledger, Reporter
    >>> metric = define(name="clicks", kind="mean", mechanism="auto", range=(0, 100),
    ...                 levels=[1], pane="1d", lateness="2d")
    >>> now = 86_400.0 * 20_000
    >>> with TemporaryDirectory() as folder, Reporter(metric, {"test.mock.num.brokers": 1}) as r:
    ...     ledger = Ledger(f"{folder}/ledger", budget=2)
    ...     clicks = RollUp(r, "count", "1d", epsilon=1, ledger=ledger, clock=lambda: now)
    ...     for _ in range(17):
    ...         clicks.add()
    ...     now += 86_400 + 3_600
    ...     clicks.report_ended(), float(ledger.accounts()["clicks"].spent)
    (1, 1.0)
    """

    def __init__(
        self,
        reporter: BaseReporter,
        how: How,
        window: str,
        epsilon: float,
        *,
        ledger: Ledger | None = None,
        attributes: Mapping[str, str] | None = None,
        permanent: float | None = None,
        changes: int = 1,
        clock: Callable[[], float] = time.time,
    ) -> None:
        metric = reporter.metric
        if how not in HOW:
            raise ValueError(f"how = {how!r}: expected one of {', '.join(HOW)}")
        if not isinstance(metric, ReportedMetric):
            raise ValueError(f"metric {metric.name!r} is asked in rounds: expected one that is not")
        if how in ("count", "sum", "largest") and not metric.domain.of_numbers:
            raise ValueError(f"how = {how!r} for {metric.name!r}: expected a metric of numbers")
        self.window_ms = above_zero("window", window)
        if self.window_ms % metric.pane_ms:
            raise ValueError(
                f"window = {window!r}: expected a multiple of the pane of {metric.name!r}, "
                f"{metric.pane}"
            )
        if not metric.lateness_ms:
            raise ValueError(
                f"metric {metric.name!r} has lateness = {metric.lateness!r}: expected for how long "
                "after a window's end its reports may still come, as in lateness = '1d'"
            )
        metric.level_of(epsilon)
        self.reporter, self.how, self.epsilon, self.ledger = reporter, how, epsilon, ledger
        self._metric, self._clock = metric, clock
        self._options: dict[str, Any] = {
            "attributes": attributes,
            "permanent": permanent,
            "changes": changes,
        }
        self._name = f"{metric.name} {how} {self.window_ms}"
        self._due_ms = 0
        self._delay = _random.randint(0, min(LONGEST_DELAY_MS, metric.lateness_ms // 4))
        if not reporter.has_file and ledger is None:
            raise ValueError(
                "a roll-up needs a file, where what is gathered survives a restart: expected a "
                "ledger, or an HttpReporter with a queue"
            )
        with self._transaction() as database:
            for schema in _SCHEMAS:
                database.execute(schema)
            database.execute(  # of a file of an earlier version: what is over is closed
                "INSERT INTO closed_windows SELECT name, 0, open_ms FROM gatherings "
                "WHERE name = ? AND name NOT IN (SELECT name FROM closed_windows)",
                (self._name,),
            )
            database.execute(
                "INSERT OR IGNORE INTO gatherings VALUES (?, ?, 0)", (self._name, self._start())
            )
            database.execute(  # no window: this file needs no such row again
                "INSERT OR IGNORE INTO closed_windows VALUES (?, 0, 0)", (self._name,)
            )

    def add(self, value: Any = None) -> None:
        """Add a value to the present window; then report windows that are over.

        The value is on disk when this returns. If a report fails, this logs the reason, and the
        next call tries again.

        Parameters
        ----------
        value : optional
            A value of the metric for "sum", "last" and "largest"; nothing for "count" and "active".

        Raises
        ------
        ValueError
            If the metric cannot have this value. Nothing is added then.
        QueueError, LedgerError
            If the file cannot be used. Nothing is added then.
        """
        given = self._checked(value)
        with self._transaction(erasing=True) as database:
            start = max(self._start(), self._open(database))
            self._join(database, after_closed(self._closed(database), start), given)
        if self._now() < self._due_ms:
            return
        try:
            self.report_ended()
        except (RuntimeError, ValueError) as error:
            logger.warning("a window of %r is not reported yet: %s", self._metric.name, error)

    def report_ended(self) -> int:
        """Report the windows that are over; return how many reports were made.

        Call it when the program starts, and from time to time: a device that did nothing in a
        window has something to report, too. A window is missed once the metric's lateness has
        passed after its end: nobody would count its report, so it is not charged.

        Raises
        ------
        DefinitionChanged, BudgetSpent, AlreadyAnswered, LedgerError, DeliveryError, QueueError
            As for :meth:`producers.Reporter.report`. The window is kept.
        """
        done = 0
        while (ended := self._claim()) is not None:
            moment = (ended.start + self.window_ms - 1) / 1000
            try:
                self.reporter.report(
                    ended.value, self.epsilon, moment, ledger=self.ledger, **self._options
                )
            except Exception:
                self._give_back(ended)
                raise
            done += 1
        return done

    @property
    def missed(self) -> int:
        """How many windows were not reported in time, since the file was created."""
        with self._transaction() as database:
            found = database.execute(
                "SELECT missed FROM gatherings WHERE name = ?", (self._name,)
            ).fetchone()
        return int(found[0])

    # -- Windows ----------------------------------------------------------------------------------

    def _claim(self) -> Ended | None:
        """Return the oldest window to report, and forget it; None if there is none.

        This is on disk before it returns: a crash loses the window, and never reports it twice.
        """
        now = self._now()
        with self._transaction(erasing=True) as database:
            self._end_windows(database, now)
            found = database.execute(
                "SELECT start_ms, value FROM gathered WHERE name = ? AND start_ms <= ? "
                "ORDER BY start_ms LIMIT 1",
                (self._name, now - self.window_ms - self._delay),
            ).fetchone()
            if found is None:
                self._due_ms = self._open(database) + self.window_ms + self._delay
                return None
            self._delete(database, "start_ms = ?", found[0])
        return Ended(int(found[0]), json.loads(found[1]))

    def _end_windows(self, database: sqlite3.Connection, now: int) -> None:
        """Close the windows that are over: nothing is added to them any more."""
        start, end = self._open(database), now - now % self.window_ms
        closed = self._closed(database)
        late = now - self._metric.lateness_ms
        counted = late - late % self.window_ms  # the start of the first that is not late
        rows = database.execute(
            "SELECT start_ms FROM gathered WHERE name = ? AND start_ms < ?", (self._name, counted)
        ).fetchall()
        missed = len(rows)
        if self.how in OF_NOTHING:
            missed = sum(each < start or after_closed(closed, each) > each for (each,) in rows)
            missed += uncovered(closed, start, counted) // self.window_ms
            for each in range(max(start, counted), end, self.window_ms):
                if after_closed(closed, each) == each:
                    row = (self._name, each, json.dumps(0))
                    database.execute("INSERT OR IGNORE INTO gathered VALUES (?, ?, ?)", row)
        self._delete(database, "start_ms < ?", counted)
        if (first := max(start, counted)) < end:
            runs = with_run(closed, (first, end))
            database.execute("DELETE FROM closed_windows WHERE name = ?", (self._name,))
            database.executemany(
                "INSERT INTO closed_windows VALUES (?, ?, ?)", [(self._name, *run) for run in runs]
            )
        database.execute(
            "UPDATE gatherings SET open_ms = max(open_ms, ?), missed = missed + ? WHERE name = ?",
            (end, missed, self._name),
        )

    def _delete(self, database: sqlite3.Connection, which: str, start: int) -> int:
        """Delete windows by their start; return how many there were."""
        return database.execute(
            f"DELETE FROM gathered WHERE name = ? AND {which}",  # noqa: S608
            (self._name, start),
        ).rowcount

    def _give_back(self, ended: Ended) -> None:
        """Keep a window whose report failed."""
        self._due_ms = self._now() + AGAIN_MS
        with self._transaction() as database:
            database.execute(
                "INSERT OR REPLACE INTO gathered VALUES (?, ?, ?)",
                (self._name, ended.start, json.dumps(ended.value)),
            )

    def _open(self, database: sqlite3.Connection) -> int:
        """Return the start of the first window that is not over.

        If the clock was set back by more than the lateness, what was in the future is not waited
        for: windows go on at the present.
        """
        (found,) = database.execute(
            "SELECT open_ms FROM gatherings WHERE name = ?", (self._name,)
        ).fetchone()
        present = self._start()
        if found - present <= self._metric.lateness_ms + self.window_ms:
            return int(found)
        start = after_closed(self._closed(database), present)
        held = database.execute(
            "SELECT value, start_ms FROM gathered WHERE name = ? AND start_ms >= ?",
            (self._name, found),
        ).fetchall()
        for value, place in held:
            if place != start:
                self._delete(database, "start_ms = ?", place)
                self._join(database, start, json.loads(value))
        database.execute("UPDATE gatherings SET open_ms = ? WHERE name = ?", (present, self._name))
        self._due_ms = 0
        logger.warning(
            "the clock was set back: what was gathered of %r is in the present window",
            self._metric.name,
        )
        return present

    def _closed(self, database: sqlite3.Connection) -> list[Run]:
        return database.execute(
            "SELECT from_ms, to_ms FROM closed_windows WHERE name = ? ORDER BY from_ms",
            (self._name,),
        ).fetchall()

    def _join(self, database: sqlite3.Connection, start: int, given: Any) -> None:
        key = (self._name, start)
        found = database.execute(
            "SELECT value FROM gathered WHERE name = ? AND start_ms = ?", key
        ).fetchone()
        held = given if found is None else self._joined(json.loads(found[0]), given)
        database.execute(
            "INSERT OR REPLACE INTO gathered VALUES (?, ?, ?)", (*key, json.dumps(held))
        )

    def _now(self) -> int:
        return int(event_times(None, 1, self._clock())[0])

    def _start(self) -> int:
        now = self._now()
        return now - now % self.window_ms

    def _transaction(self, *, erasing: bool = False) -> AbstractContextManager[sqlite3.Connection]:
        if self.reporter.has_file:
            return self.reporter.transaction(erasing=erasing)
        from producers.ledger.ledger_file import transaction

        assert self.ledger is not None  # noqa: S101
        return transaction(self.ledger.path, write=True)

    # -- Values -----------------------------------------------------------------------------------

    def _checked(self, value: Any) -> Any:
        """Return a value as JSON can have it."""
        if self.how in ("count", "active"):
            if value is not None:
                raise ValueError(f"value {value!r} for how = {self.how!r}: expected none")
            return 1
        values = values_of(self._metric, value)
        if len(values) != 1:
            raise ValueError(f"value {value!r}: expected one value")
        self._metric.domain.to_unit(values)  # what cannot be reported is an error now
        (held,) = values.tolist()
        if self.how != "last" and not math.isfinite(held):
            raise ValueError(f"value {value!r}: expected a finite number")
        return held

    def _joined(self, held: Any, given: Any) -> Any:
        if self.how in ("count", "sum"):
            return held + given
        return max(held, given) if self.how in ("largest", "active") else given
