"""Permanent answers on the device: drawn once for each value, kept in its ledger, and repeated.

What they cost is what `estimators.memoization` proves: the permanent epsilon once for each distinct
value, however often it is reported. The ledger charges it in each period in which the answer is
used, because whoever sees only that period learns it there.
"""

from __future__ import annotations

import sqlite3
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.mechanisms.mechanism import Reports
from estimators.memoization import Memoization, values_of
from estimators.metric import Metric
from estimators.randomness import Bits, SystemBits
from producers.ledger import PARTS, Ledger, moment, total
from producers.ledger_file import transaction

NEVER = -1


class AlreadyAnswered(RuntimeError):  # noqa: N818
    """A second report of a memoized metric in a pane, or one of an earlier pane: it was refused.

    Reports of one pane have to come from different devices, or bounds would be too narrow.

    Attributes
    ----------
    metric : str
    next_ms : int
        Where the next pane begins, in ms since the epoch.
    """

    def __init__(self, metric: str, next_ms: int) -> None:
        self.metric, self.next_ms = metric, next_ms
        super().__init__(
            f"this device has answered {metric!r} already, in the pane that ends at "
            f"{moment(next_ms):%Y-%m-%d %H:%M:%S} UTC: a memoized metric takes one answer for each "
            "pane, in order of time; nothing was reported"
        )


def remembered(
    ledger: Ledger,
    metric: Metric,
    values: NDArray[Any],
    level: NDArray[np.uint8],
    times: NDArray[np.int64],
    permanent: Fraction | None,
    bits: Bits | None,
) -> Reports:
    """Return one report for each value, made from permanent answers; all of them, or none.

    The answers that are new, and what they cost, are on disk when this returns.

    Parameters
    ----------
    ledger : Ledger
    metric : Metric
        With ``memoized``.
    values, level, times : ndarray, shape (n,)
        As reported, levels and event times in ms; each time in a later pane than the one before.
    permanent : Fraction, optional
        The epsilon of the answers; by default that of each level.
    bits : Bits, optional
        The source of randomness; the operating system's by default.

    Raises
    ------
    ValueError
        If a value or `permanent` cannot be used.
    AlreadyAnswered
        If the device has a report in one of the panes, or in a later one.
    BudgetSpent, LedgerError
        As for :meth:`Ledger.spend`.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> metric = Metric(name="carrier", kind="frequency", mechanism="grr", categories=50,
    ...                 levels=[1], pane="1m", memoized=True)
    >>> values, level, times = np.full(3, 7), np.zeros(3, np.uint8), 60_000 * np.arange(3)
    >>> with TemporaryDirectory() as folder:
    ...     ledger = Ledger(f"{folder}/ledger", budget=2)
    ...     reports = remembered(ledger, metric, values, level, times, None, None)
    ...     len(set(reports.tolist())), float(ledger.accounts()[""].spent)
    (1, 1.0)
    """
    source = SystemBits() if bits is None else bits
    own = metric.domain.own_units(values)
    ways = {index: Memoization(metric, index, permanent) for index in set(level.tolist())}
    with transaction(ledger.path, write=True) as database:
        now = ledger.advance(database)
        held = values_of(metric, own, _threshold(database, metric, source))
        _answer_once(database, metric, times)
        reports = [
            ways[index].report(_answer(ledger, database, now, ways[index], value, source), source)
            for value, index in zip(held, level.tolist(), strict=True)
        ]
    return np.concatenate(reports)


def _threshold(database: sqlite3.Connection, metric: Metric, bits: Bits) -> int:
    """Return the device's own threshold, drawn once for a metric."""
    key = (metric.name, metric.revision)
    found = database.execute(
        "SELECT threshold FROM devices WHERE metric = ? AND revision = ?", key
    ).fetchone()
    if found is None:
        word = bits.integers(1).tobytes()
        database.execute("INSERT INTO devices VALUES (?, ?, ?, ?)", (*key, word, NEVER))
        found = (word,)
    return int.from_bytes(found[0], "little")


def _answer_once(database: sqlite3.Connection, metric: Metric, times: NDArray[np.int64]) -> None:
    """Note the panes as answered; AlreadyAnswered unless each is later than all before."""
    key = (metric.name, metric.revision)
    (answered,) = database.execute(
        "SELECT answered_ms FROM devices WHERE metric = ? AND revision = ?", key
    ).fetchone()
    for time in times.tolist():
        pane = metric.pane_start(time)
        if pane <= answered:
            raise AlreadyAnswered(metric.name, answered + metric.pane_ms)
        answered = pane
    database.execute(
        "UPDATE devices SET answered_ms = ? WHERE metric = ? AND revision = ?", (answered, *key)
    )


def _answer(
    ledger: Ledger,
    database: sqlite3.Connection,
    now: int,
    way: Memoization,
    value: int,
    bits: Bits,
) -> Reports:
    """Return the permanent answer to a value, charged to this period."""
    metric, mechanism = way.metric, way.metric.randomizer
    assert way.epsilon is not None  # noqa: S101
    parts = int(way.epsilon * PARTS)
    key = (metric.name, metric.revision, parts, value)
    found = database.execute(
        "SELECT id, report FROM answers "
        "WHERE metric = ? AND revision = ? AND parts = ? AND value = ?",
        key,
    ).fetchone()
    if found is None:
        kept = mechanism.encode(way.answer(value, bits))
        identity = database.execute(
            "INSERT INTO answers (metric, revision, parts, value, report) VALUES (?, ?, ?, ?, ?)",
            (*key, kept),
        ).lastrowid
    else:
        identity, kept = found
    total(database, now, metric.name, parts if found is None else 0, 1)
    repeated = database.execute(
        "UPDATE spent SET time_ms = ?, reports = reports + 1 WHERE answer = ?", (now, identity)
    ).rowcount
    if not repeated:
        ledger.charge(database, now, metric.name, parts, 1, identity)
    return mechanism.decode(kept)
