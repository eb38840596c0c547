"""A device's privacy ledger: the epsilon spent in a period, and what is left of the budget.

The ledger is a SQLite file on the device. Epsilon is charged there first, durably, and only then is
a value randomized and reported. A crash between the two steps loses the report, never the charge.
"""

from __future__ import annotations

import copy
import datetime
import operator
import sqlite3
import time as clocks
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

from estimators.durations import above_zero
from estimators.exact.randomness import Bits
from estimators.metrics.metric import Metric
from producers.ledger.accounts import (
    LAST_MS,
    PARTS_PER_EPSILON,
    Account,
    BudgetSpent,
    Number,
    parts_of,
    summarize,
    utc_time,
)
from producers.ledger.ledger_file import LedgerError, create, has_table, transaction
from producers.ledger.lottery import (
    Lottery,
    Turn,
    claim_turn,
    describe_lottery,
    drawn_turn,
    read_lottery,
    read_turn,
    store_lottery,
)
from producers.ledger.past_answers import answer_once, check_pin, pin

ALL_METRICS = ""
"""Stands for all metrics together."""

_SELECT_ACCOUNTS = """
WITH names AS (
    SELECT '' AS name UNION SELECT metric FROM budgets UNION SELECT metric FROM totals
    UNION SELECT metric FROM spent WHERE time_ms > :horizon
)
SELECT name, budgets.parts, coalesce(sum(spent.parts), 0),
    max(0, budgets.parts - coalesce(sum(spent.parts), 0)), coalesce(sum(spent.reports), 0),
    count(spent.answer), min(spent.time_ms),
    (SELECT coalesce(sum(parts), 0) FROM totals WHERE name IN ('', metric)),
    (SELECT coalesce(sum(reports), 0) FROM totals WHERE name IN ('', metric))
FROM names LEFT JOIN budgets ON budgets.metric = name
LEFT JOIN spent ON name IN ('', spent.metric) AND time_ms > :horizon
GROUP BY name ORDER BY name"""
"""Selects for each metric, and for all metrics (the empty name): the budget; the parts, what
is left of the budget, the reports, the permanent answers and the oldest time since the horizon; the
parts and the reports since the ledger was created."""

_SELECT_WHEN_FREED = """
SELECT min(time_ms) FROM (
    SELECT time_ms, sum(parts) OVER (ORDER BY time_ms) AS freed FROM spent WHERE ? IN ('', metric)
) WHERE freed >= ?"""
"""Selects the time of the charge with which enough parts have expired."""


class Ledger:
    """One person's account of epsilon, on their device.

    In **any** interval as long as the period, the total cost of reports is at most the budget. The
    period slides: a charge expires one period later. Costs add up (basic composition), over metrics
    and over time; the guarantee is for the sum.

    Any number of processes and threads may share a file. It has one person's account: a process
    that reports for many people opens a file for each.

    Parameters
    ----------
    path : path
        The file. If it does not exist, it is created, readable by its owner alone.
    budget : number or str, optional
        Epsilon per period, over all metrics, with at most 4 decimal digits. It replaces the budget
        in the file, for every process from the next report on; None keeps the budget. It is
        required to create a file.
    period : str, optional
        A duration such as ``"1d"``, the default. It is fixed when the file is created.
    metrics : mapping of str to number or str, optional
        Budgets of single metrics, in addition to the budget for all metrics.
    turn : str, optional
        With `tickets`, for a lottery: the length of a turn, such as ``"1d"``, at least the period.
        In each turn the device draws one metric, and answers only that metric, by a
        :class:`producers.RollUp` whose window is the turn. The ledger pays for nothing else. The
        length is fixed when it is first given.
    tickets : mapping of str to int, optional
        The tickets of each metric, which is drawn with the probability of its tickets divided by
        all tickets. ``dither plan`` proposes tickets. They replace the tickets in the file, for
        turns that are not drawn yet.
    clock : callable
        Returns seconds since the epoch. Time does not go back: while the clock is behind the latest
        time in the ledger, the ledger uses that time, and no charge expires.

    Raises
    ------
    ValueError
        If a budget, the period, the turn or the tickets cannot be used.
    LedgerError
        If the file cannot be used.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> folder = TemporaryDirectory()
    >>> ledger = Ledger(Path(folder.name) / "ledger", budget=2, metrics={"late": 1})
    >>> ledger.spend("late", "0.75")
    >>> float(ledger.left("late")), float(ledger.left())
    (0.25, 1.25)
    >>> try:
    ...     ledger.spend("late", 0.5)
    ... except BudgetSpent as error:
    ...     float(error.left)
    0.25
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | Path,
        budget: Number | None = None,
        period: str | None = None,
        metrics: Mapping[str, Number] | None = None,
        *,
        turn: str | None = None,
        tickets: Mapping[str, int] | None = None,
        clock: Callable[[], float] = clocks.time,
    ) -> None:
        self.path, self._clock, self._moment_ms = Path(path), clock, 0
        self._turn_start: int | None = None
        budgets = {} if budget is None else {ALL_METRICS: parts_of(budget, "budget")}
        for metric, number in (metrics or {}).items():
            budgets[metric] = parts_of(number, f"budget of {metric!r}")
        wished = None if period is None else above_zero("period", period)
        if budget is not None:
            create(self.path, wished or above_zero("period", "1d"), self._now())
        has_lottery = turn is not None or tickets is not None
        with transaction(self.path, write=bool(budgets) or has_lottery) as database:
            if (fault := database.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(f"malformed: {fault}")
            self.period_ms = _setting(database, "period_ms")
            if wished not in (None, self.period_ms):
                raise ValueError(
                    f"period = {period!r}: ledger {self.path} was created with a period of "
                    f"{self.period_ms} ms; leave period out, or create another file"
                )
            database.executemany(
                "INSERT INTO budgets VALUES (?, ?) "
                "ON CONFLICT (metric) DO UPDATE SET parts = excluded.parts",
                budgets.items(),
            )
            if has_lottery:
                self._draw_present(database, tickets)
                store_lottery(database, self.period_ms, turn, tickets)

    def __str__(self) -> str:
        return self.summary()

    def spend(
        self, metric: str, epsilon: Number, reports: int = 1, *, fingerprint: bytes | None = None
    ) -> None:
        """Charge epsilon for reports of a metric; the charge is on disk when this returns.

        A ledger with a lottery is charged by roll-ups alone. `metric`: the metric's name;
        `epsilon`: the cost of all these reports together, with at most 4 decimal digits; `reports`:
        the number of reports; `fingerprint`, optional: that of the metric's definition.

        Raises
        ------
        ValueError
            If the cost cannot be used, or the ledger has a lottery.
        DefinitionChanged
            If the ledger has answers of another definition of that name.
        BudgetSpent
            If the cost is more than is left. Nothing is charged then.
        LedgerError
            If the file cannot be used. Nothing may be reported then.
        """
        parts = parts_of(epsilon, "epsilon")
        with self.transaction() as database:
            if fingerprint is not None:
                check_pin(database, metric, fingerprint)
            self.pay(database, metric, parts, reports)

    def spend_once(self, metric: Metric, epsilon: Number, times: Sequence[int]) -> None:
        """Charge reports, and record their panes as answered; both are on disk when this returns.

        From then on the ledger accepts no other definition of this name, because with another
        definition the device could answer twice. `metric`: the metric; `epsilon`: the cost of all
        these reports together; `times`: event times in ms since the epoch, one report each.

        Raises
        ------
        AlreadyAnswered
            Unless each report is in a later pane than all earlier reports.
        DefinitionChanged, BudgetSpent, LedgerError
            As for :meth:`spend`.
        """
        with self.transaction() as database:
            pin(database, metric)
            answer_once(database, metric, times)
            self.pay(database, metric.name, parts_of(epsilon, "epsilon"), len(times))

    def left(self, metric: str = ALL_METRICS) -> Fraction | None:
        """Return the epsilon that a report of a metric may cost now; None for no limit.

        Without a metric, return what is left of the budget for all metrics.
        """
        accounts = self.accounts()
        amounts_left = (accounts[name].left for name in {ALL_METRICS, metric} & accounts.keys())
        return min((limit for limit in amounts_left if limit is not None), default=None)

    def accounts(self) -> dict[str, Account]:
        """Return the accounts by metric; the first, with the empty name, is that of all metrics."""
        now = self._now()
        with transaction(self.path, write=False) as database:
            now = max(now, _setting(database, "latest_ms"))
            horizon = {"horizon": now - self.period_ms}
            rows = database.execute(_SELECT_ACCOUNTS, horizon).fetchall()
            trusted = set[str]()
            if has_table(database, "trusted"):
                trusted |= {metric for (metric,) in database.execute("SELECT metric FROM trusted")}
        return {
            name: Account(
                metric=name,
                budget=None if budget is None else Fraction(budget, PARTS_PER_EPSILON),
                spent=Fraction(parts, PARTS_PER_EPSILON),
                left=None if left is None else Fraction(left, PARTS_PER_EPSILON),
                reports=reports,
                permanent=answers,
                ever_spent=Fraction(ever_parts, PARTS_PER_EPSILON),
                ever_reports=ever_reports,
                more_at=None if first is None else utc_time(first + self.period_ms),
                trusted=name in trusted,
            )
            for name, budget, parts, left, reports, answers, first, ever_parts, ever_reports in rows
        }

    def summary(self) -> str:
        """Return a plain summary of what was spent and what it means.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     ledger = Ledger(Path(folder) / "ledger", budget=2)
        ...     ledger.spend("dep_delay", "1.5", reports=3)
        ...     print(ledger)  # doctest: +ELLIPSIS
        In the last 24 hours this device gave 3 randomized answers about dep_delay (1.5). Anyone
        who has seen all of them can be at most e^1.5 = 4.5 times surer of anything about you than
        before. 0.5 of 2 is left. More is free again from ...
        """
        with transaction(self.path, write=False) as database:
            began = _setting(database, "began_ms")
        text = summarize(self.accounts(), self.period_ms, utc_time(began))
        lottery = self.lottery()
        if lottery is None:
            return text
        return f"{text} {describe_lottery(lottery, self.present_turn())}"

    # -- The lottery ------------------------------------------------------------------------------

    def lottery(self) -> Lottery | None:
        """Return the length of a turn and the tickets; None without a lottery."""
        with transaction(self.path, write=False) as database:
            return read_lottery(database)

    def present_turn(self) -> Turn | None:
        """Return the draw of the current turn; None without a lottery, or before the draw."""
        now = self._now()
        with transaction(self.path, write=False) as database:
            lottery = read_lottery(database)
            if lottery is None:
                return None
            return read_turn(database, now - now % lottery.turn_ms)

    def drawn_turn(self, start_ms: int, bits: Bits | None = None) -> Turn:
        """Return the draw of a turn; draw its metric if that was not done before.

        The draw is on disk when this returns, in a separate transaction, so no later failure undoes
        it.

        Parameters
        ----------
        start_ms
            When the turn begins, in ms since the epoch.
        bits
            The source of randomness; the operating system's by default.

        Raises
        ------
        ValueError
            If no turn begins then.
        LedgerError
            If the turn is in the future or more than 62 days ago, or the file cannot be used.
        """
        with self.transaction() as database:
            now = max(self._moment_ms, _setting(database, "latest_ms"))
            return drawn_turn(database, self.path, now, start_ms, bits)

    def of_turn(self, start_ms: int) -> Ledger:
        """Return a copy of this ledger that can pay for a turn, once the turn is over.

        `start_ms`: when the turn begins, in ms since the epoch.
        """
        ledger = copy.copy(self)
        ledger._turn_start = start_ms
        return ledger

    @contextmanager
    def transaction(self, *, erasing: bool = True) -> Iterator[sqlite3.Connection]:
        """Provide the file for one transaction; deleted data is always erased from the file.

        The clock is read before the transaction, so that a slow clock does not delay other users of
        the file. Raises LedgerError if the file cannot be used, or this thread is within a
        transaction.
        """
        now, asked = self._now(), clocks.monotonic()
        with transaction(self.path, write=True) as database:  # one at a time: time can only advance
            self._moment_ms = now + 1000 * int(clocks.monotonic() - asked)
            yield database

    def _draw_present(
        self, database: sqlite3.Connection, tickets: Mapping[str, int] | None
    ) -> None:
        """Draw the current turn, before other tickets replace the ones with which it began."""
        lottery = read_lottery(database)
        if lottery is None or tickets is None or lottery.tickets == tickets:
            return
        now = max(self._now(), _setting(database, "latest_ms"))
        drawn_turn(database, self.path, now, now - now % lottery.turn_ms, None)

    # -- Within a transaction ---------------------------------------------------------------------

    def advance(self, database: sqlite3.Connection) -> int:
        """Advance the ledger's time, never back; delete expired charges; return the time in ms."""
        now = max(self._moment_ms, _setting(database, "latest_ms"))
        database.execute("UPDATE settings SET value = ? WHERE name = 'latest_ms'", (now,))
        database.execute("DELETE FROM spent WHERE time_ms <= ?", (now - self.period_ms,))
        return now

    def pay(self, database: sqlite3.Connection, metric: str, parts: int, reports: int = 1) -> None:
        """Charge reports now, and add them to the metric's total; or raise BudgetSpent.

        `database`, `metric`, `parts`, `reports`: as for :meth:`Ledger.charge`.
        """
        now = self.advance(database)
        self.charge(database, now, metric, parts, reports)
        total(database, now, metric, parts, reports)

    def charge(
        self,
        database: sqlite3.Connection,
        now: int,
        metric: str,
        parts: int,
        reports: int,
        answer: int | None = None,
    ) -> None:
        """Charge the cost of reports; raise BudgetSpent if it exceeds what is left.

        `database`: a transaction of the ledger; `now`: the ledger's time, in ms since the epoch;
        `metric`: the metric's name; `parts`: the cost in ten-thousandths of epsilon; `reports`: the
        number of reports; `answer`, optional: names the permanent answer that is charged.
        """
        claim_turn(database, self.path, now, self._turn_start, metric)
        self._require_budget(database, now, metric, parts)
        database.execute(
            "INSERT INTO spent VALUES (?, ?, ?, ?, ?)", (now, metric, parts, reports, answer)
        )

    def _require_budget(
        self, database: sqlite3.Connection, now: int, metric: str, parts: int
    ) -> None:
        budgets = dict(database.execute("SELECT metric, parts FROM budgets"))
        tight: list[tuple[int, str]] = []
        for name in (name for name in (metric, ALL_METRICS) if name in budgets):
            (spent,) = database.execute(
                "SELECT coalesce(sum(parts), 0) FROM spent WHERE ? IN ('', metric)", (name,)
            ).fetchone()
            amounts_left = max(0, budgets[name] - spent)
            if amounts_left < parts:
                tight.append((amounts_left, name))
        if not tight:
            return
        amounts_left, name = min(tight, key=operator.itemgetter(0))
        budget = budgets[name]
        behind = now - self._moment_ms
        raise BudgetSpent(
            self.path,
            metric,
            Fraction(parts, PARTS_PER_EPSILON),
            Fraction(amounts_left, PARTS_PER_EPSILON),
            Fraction(budget, PARTS_PER_EPSILON),
            self._free_at(database, name, parts - amounts_left) if parts <= budget else None,
            of_metric=name != ALL_METRICS,
            behind=f" (the clock is {behind / 1000:g} s behind the latest report)" * (behind > 0),
        )

    def _free_at(self, database: sqlite3.Connection, name: str, missing: int) -> datetime.datetime:
        """Return the time from which `missing` more parts can be spent."""
        (last,) = database.execute(_SELECT_WHEN_FREED, (name, missing)).fetchone()
        return utc_time(last + self.period_ms)

    def _now(self) -> int:
        seconds = self._clock()
        if not -LAST_MS <= seconds * 1000 <= LAST_MS:  # time never goes back: it would stay there
            expected = "a time before the year 10000: set the clock right"
            raise LedgerError(self.path, f"the clock says {seconds:g} s since 1970: {expected}")
        return round(seconds * 1000)


def total(database: sqlite3.Connection, now: int, metric: str, parts: int, reports: int) -> None:
    """Add reports and their cost to a metric's totals since the ledger was created.

    `database`, `now`, `metric`, `parts`, `reports`: as for :meth:`Ledger.charge`.
    """
    database.execute(
        "INSERT INTO totals VALUES (?, ?, ?, ?) ON CONFLICT (metric) DO UPDATE SET "
        "parts = parts + excluded.parts, reports = reports + excluded.reports",
        (metric, parts, reports, now),
    )


def _setting(database: sqlite3.Connection, name: str) -> int:
    row = database.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise sqlite3.DatabaseError(f"malformed: no {name}")
    return int(row[0])


__all__ = ["Account", "BudgetSpent", "Ledger", "LedgerError"]
