"""Permanent answers (memoization): drawn once for a value, stored in the ledger, and repeated.

`estimators.memoization` proves their cost: the permanent epsilon once for each distinct value. The
ledger charges this epsilon in each period that uses the answer, for observers who see only that
period.

**No value decides what is charged, or whether a report appears.** A period has room for a fixed
number of different answers, two by default: the current value, and one change. The ledger charges
the first reports of a period for this room, whether their answers are repeated or not. If there is
no room for a value, the device sends the last answer. There is room again when an answer has not
been used for a period.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.exact.randomness import Bits, SystemBits
from estimators.mechanisms.mechanism import Reports
from estimators.memoization import Memoization, answer_values
from estimators.metrics.metric import Metric
from producers.ledger.accounts import PARTS_PER_EPSILON
from producers.ledger.ledger import Ledger, total
from producers.ledger.past_answers import NEVER_ANSWERED, answer_once, pin

_CREATE_USES = """
CREATE TABLE IF NOT EXISTS uses (
    answer INTEGER PRIMARY KEY, used_ms INTEGER NOT NULL, number INTEGER NOT NULL
)"""
"""When each answer was last sent, on the ledger's clock, and in which order."""
Kept = tuple[int, bytes]
"""A permanent answer: its id, and its bytes."""


def repeat_or_draw(
    ledger: Ledger,
    metric: Metric,
    values: NDArray[Any],
    level: NDArray[np.uint8],
    times: NDArray[np.int64],
    permanent: Fraction | None,
    changes: int,
    bits: Bits | None,
) -> Reports:
    """Return one report for each value, from permanent answers; all of them, or none.

    New answers and charges are on disk when this returns. `ledger`, `metric`: the device's ledger
    and the metric; `values`, `level`, `times`, shape (n,): values, indices of levels, and event
    times in ms, each in a later pane than the one before; `permanent`, `changes`, `bits`: as for
    :meth:`producers.Reporter.report`; if `permanent` is None, each answer is permanent at its
    report's level.

    Raises ValueError if a value, `permanent` or `changes` cannot be used. Raises DefinitionChanged
    if the ledger has answers of another definition of that name. Raises AlreadyAnswered if the
    device has a report in one of the panes, or in a later one. Raises BudgetSpent, LedgerError like
    :meth:`Ledger.spend`.
    """
    if changes < 0:
        raise ValueError(f"changes = {changes}: expected 0 or more a period")
    source = SystemBits() if bits is None else bits
    units = metric.domain.to_unit(values)
    ways = {index: Memoization(metric, index, permanent) for index in set(level.tolist())}
    room = min(changes + 1, 2 if metric.kind == "mean" else len(metric.labels))
    with ledger.transaction() as database:
        database.execute(_CREATE_USES)
        pin(database, metric)
        session = _Session(ledger, database, ledger.advance(database), room, source)
        held = answer_values(metric, units, _threshold(database, metric, source))
        answer_once(database, metric, times.tolist())
        reports = [
            ways[index].report(session.answer(ways[index], value), source)
            for value, index in zip(held, level.tolist(), strict=True)
        ]
    return np.concatenate(reports)


def _threshold(database: sqlite3.Connection, metric: Metric, bits: Bits) -> int:
    """Return the device's threshold, which is drawn once for a metric."""
    key = (metric.name, metric.revision)
    row = database.execute(
        "SELECT threshold FROM devices WHERE metric = ? AND revision = ?", key
    ).fetchone()
    if row is None:
        word = bits.integers(1).tobytes()
        database.execute("INSERT INTO devices VALUES (?, ?, ?, ?)", (*key, word, NEVER_ANSWERED))
        row = (word,)
    return int.from_bytes(row[0], "little")


@dataclasses.dataclass(frozen=True)
class _Session:
    """Answers in one transaction; a period has room for `room` different answers.

    `now`: the ledger's time, in ms since the epoch.
    """

    ledger: Ledger
    database: sqlite3.Connection
    now: int
    room: int
    bits: Bits

    def answer(self, memoization: Memoization, value: int) -> Reports:
        """Return the permanent answer to a value, or the last answer if there is no room."""
        parts = int(memoization.permanent * PARTS_PER_EPSILON)
        (number,) = self.database.execute(
            "SELECT coalesce(max(number), 0) + 1 FROM uses"
        ).fetchone()
        self._charge_report(memoization.metric, parts, number)
        permanent = self._recent_answer(memoization.metric, parts, value)
        is_new = False
        if permanent is None:
            permanent, is_new = self._permanent_answer(memoization, parts, value)
        total(self.database, self.now, memoization.metric.name, parts if is_new else 0, 1)
        use = (permanent[0], self.now, number)
        self.database.execute("INSERT OR REPLACE INTO uses VALUES (?, ?, ?)", use)
        return memoization.metric.randomizer.decode(permanent[1])

    def _charge_report(self, metric: Metric, parts: int, number: int) -> None:
        """Charge a report until a period's room is paid for; then only renew the oldest charge.

        So n reports within a period are charged min(n, room) times, and the latest reports
        determine when the charges expire.
        """
        charged = self.database.execute(
            "SELECT rowid FROM spent WHERE metric = ? AND parts = ? AND answer IS NOT NULL "
            "ORDER BY time_ms, rowid",
            (metric.name, parts),
        ).fetchall()
        if len(charged) < self.room:
            self.ledger.charge(self.database, self.now, metric.name, parts, 1, -number)
            return
        self.database.execute(
            "UPDATE spent SET time_ms = ?, reports = reports + 1 WHERE rowid = ?",
            (self.now, *charged[0]),
        )

    def _recent_answer(self, metric: Metric, parts: int, value: int) -> Kept | None:
        """Return the value's answer if it was used in this period; without room, the last answer.

        Return None if there is room for a new answer.
        """
        period_start = self.now - self.ledger.period_ms
        recent = self.database.execute(
            "SELECT id, report, value FROM answers JOIN uses ON answer = id "
            "WHERE metric = ? AND revision = ? AND parts = ? AND used_ms > ? ORDER BY number DESC",
            (metric.name, metric.revision, parts, period_start),
        ).fetchall()
        same_value = next((row[:2] for row in recent if row[2] == value), None)
        return recent[0][:2] if same_value is None and len(recent) >= self.room else same_value

    def _permanent_answer(
        self, memoization: Memoization, parts: int, value: int
    ) -> tuple[Kept, bool]:
        """Return the permanent answer to a value, and whether it is new."""
        key = (memoization.metric.name, memoization.metric.revision, parts, value)
        stored = self.database.execute(
            "SELECT id, report FROM answers "
            "WHERE metric = ? AND revision = ? AND parts = ? AND value = ?",
            key,
        ).fetchone()
        if stored is not None:
            return stored, False
        drawn = memoization.metric.randomizer.encode(memoization.answer(value, self.bits))
        (identity,) = self.database.execute(
            "INSERT INTO answers (metric, revision, parts, value, report) VALUES (?, ?, ?, ?, ?) "
            "RETURNING id",
            (*key, drawn),
        ).fetchone()
        return (identity, drawn), True
