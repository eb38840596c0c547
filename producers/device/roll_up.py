"""Gathers a device's values over a window in a file, and reports once when the window is over.

Gathered values are not randomized: they stay in a file that only the device's owner can read, and
are deleted when their window is reported. The service gets one ordinary report at the end of the
window. `add` only stores a value; the clock decides when to send
(:mod:`producers.device.roll_up_windows`), so the time of a report reveals nothing about values.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from estimators.durations import above_zero
from estimators.metrics.local import LocalMetric
from estimators.metrics.metric import ReportedMetric
from producers.device.base_reporter import BaseReporter, DeviceFile
from producers.device.event_times import event_times
from producers.device.metric_checks import check_ledger
from producers.device.roll_up_windows import Course, Windows
from producers.ledger.accounts import number
from producers.ledger.lottery import KEPT_MS, Lottery
from producers.wire.decoding import decode_json

if TYPE_CHECKING:
    from producers.ledger.ledger import Ledger

logger = logging.getLogger("producers")

How: TypeAlias = Literal["count", "sum", "last", "largest", "active", "furthest", "flags"]
WAYS_TO_GATHER = ("count", "sum", "last", "largest", "active", "furthest", "flags")
OF_CATEGORIES = ("furthest", "flags")
OF_NOTHING = ("count", "sum", "active", *OF_CATEGORIES)
"""For these, a window without values has a result, too: zero, or the first category."""
LONGEST_DELAY_MS = 3_600_000
"""Devices report at a random time within this after a window, so that they do not come at once."""
MOST_AT_A_LOOK = 100
"""The most windows that the thread reports in one turn: closing the reporter, and other metrics'
batches, wait for it."""
AGAIN_SECONDS = 600.0
"""How long the reporter's thread waits after a report that failed."""

_CREATE_TABLES = (
    "CREATE TABLE IF NOT EXISTS courses (name TEXT PRIMARY KEY, course TEXT NOT NULL) "
    "WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS gathered (name TEXT NOT NULL, start_ms INTEGER NOT NULL, "
    "value TEXT NOT NULL, PRIMARY KEY (name, start_ms)) WITHOUT ROWID",
)
_random = random.SystemRandom()


class Ended(NamedTuple):
    """A window that is over: its start, in ms since the epoch, and its result (None: no values)."""

    start: int
    value: Any


@dataclasses.dataclass
class _Gathered:
    """The windows of a roll-up, and what was gathered in each, by the start of the window."""

    course: Course
    values: dict[int, Any]


class RollUp:
    """Gathers a device's values in windows of time, and reports one value for each window.

    Windows are in UTC, and begin at multiples of their length since 1970: days at midnight, weeks
    on Thursdays. A window is reported once, after its end and a random delay (at most an hour, or a
    quarter of the metric's lateness; for a metric with a crowd, half of the crowd's `wait`), by the
    reporter's thread, which checks once a minute, or by `report_ended`. If the process is killed at
    that moment, the window is not reported; it is never reported or charged twice.

    Create it when the program starts, even if there is nothing to add, because the first window
    begins then.

    Gathered values are stored in the file of the reporter's queue; without a queue, in the file of
    the ledger. All methods may be called from any thread, and several processes may use one file.

    With a ledger that has a lottery, only windows whose turn drew this metric are gathered and
    reported, at the largest level that `epsilon` and the budget allow. Other windows cost nothing.
    A drawn window is paid for when its report is first due, whether it has a value or not.

    Parameters
    ----------
    reporter : Reporter or HttpReporter
        Sends the reports.
    how : {"count", "sum", "last", "largest", "active", "furthest", "flags"}
        What is reported: how often `add` was called, the sum of the values, the last or largest of
        them, whether `add` was called (1 or 0), the category that comes last in the metric's list,
        or the category that says for each axis whether the axis was added.
    window : str
        The length of a window, such as ``"1h"``, ``"1d"``, ``"7d"`` or ``"28d"``: a multiple of the
        metric's pane.
    epsilon : float
        The largest epsilon that the device's owner allows for one report.
    ledger : Ledger, optional
        The account of the device's owner, which is charged once for each report.
    nothing : str, optional
        For "furthest" and "flags": the metric's first category, which is reported for a window
        without values.
    attributes, permanent, changes
        Passed to :meth:`producers.Reporter.report`.
    clock : callable
        Returns seconds since the epoch.

    Raises
    ------
    ValueError
        If a parameter cannot be used, or neither reporter nor ledger has a file.
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
        nothing: str | None = None,
        attributes: Mapping[str, str] | None = None,
        permanent: float | None = None,
        changes: int = 1,
        clock: Callable[[], float] = time.time,
    ) -> None:
        metric = reporter.metric
        if how not in WAYS_TO_GATHER:
            raise ValueError(f"how = {how!r}: expected one of {', '.join(WAYS_TO_GATHER)}")
        if not isinstance(metric, ReportedMetric):
            raise ValueError(f"metric {metric.name!r} is asked in rounds: expected one that is not")
        if how in ("count", "sum", "largest") and not metric.domain.of_numbers:
            raise ValueError(f"how = {how!r} for {metric.name!r}: expected a metric of numbers")
        first_category = _first_category(metric, how) if how in OF_CATEGORIES else None
        if nothing != first_category:
            raise ValueError(
                f"nothing = {nothing!r} for how = {how!r}: expected {first_category!r}: what is "
                "reported of a window without values"
            )
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
        self.reporter, self.how, self.epsilon, self.ledger = reporter, how, epsilon, ledger
        self._metric, self._clock, self._nothing = metric, clock, nothing or 0
        self._options: dict[str, Any] = {
            "attributes": attributes,
            "permanent": permanent,
            "changes": changes,
        }
        self._name = f"{metric.name} {how} {self.window_ms}"
        self._lottery = None if ledger is None else ledger.lottery()
        lateness_ms = metric.lateness_ms
        self._longest_delay = min(LONGEST_DELAY_MS, lateness_ms // 4)
        if metric.crowd is not None:
            check_ledger(metric, ledger)
            if how not in OF_NOTHING:
                raise ValueError(
                    f"how = {how!r} for {metric.name!r}, which has a crowd: expected one of "
                    f"{', '.join(OF_NOTHING)}: no value may decide whether a window is reported"
                )
            lateness_ms = metric.crowd.wait_ms
            self._longest_delay = lateness_ms // 2
        if self._lottery is not None:
            self._check_turn(self._lottery)
            lateness_ms = min(lateness_ms, KEPT_MS - self.window_ms)
        level = self._level()
        self._windows = Windows(self.window_ms, lateness_ms)
        self._again_at = 0.0
        file: DeviceFile | None = ledger if reporter.file is None else reporter.file
        if file is None:
            raise ValueError(
                "a roll-up needs a file, where what is gathered survives a restart: expected a "
                "ledger, or an HttpReporter with a queue"
            )
        self._file = file
        first = msgspec.json.encode(Course(self._windows.start(self._now()))).decode()
        with self._file.transaction() as database:
            for schema in _CREATE_TABLES:
                database.execute(schema)
            database.execute("INSERT OR IGNORE INTO courses VALUES (?, ?)", (self._name, first))
        if ledger is not None:
            self._check_budget(ledger, Fraction(str(permanent or level)))
        self._is_drawn(self._now())
        reporter.schedule(self._name, self._report_by_itself)

    def add(self, value: Any = None) -> None:
        """Add a value to the current window; nothing is sent.

        When this returns, the value is on disk, unless the turn's lottery drew another metric.

        Parameters
        ----------
        value : optional
            A value of the metric for "sum", "last", "largest" and "furthest"; an axis for "flags";
            nothing for "count" and "active".

        Raises
        ------
        ValueError
            If the metric cannot have this value. Then nothing is added.
        QueueError, LedgerError
            If the file cannot be used. Then nothing is added.
        """
        if self.how == "flags" and (axes := self._metric.axes) is not None:
            value = axes.flag(value, self._metric.name)
        new_value, now = self._checked_value(value), self._now()
        if not self._is_drawn(now):
            return
        with self._gathered() as gathered:
            start = self._windows.present(gathered.course, now)
            if self._lottery is not None and start != now - now % self.window_ms:
                return  # the clock was set back: another turn's window is open
            if start in gathered.values:
                new_value = self._joined_values(gathered.values[start], new_value)
            gathered.values[start] = new_value

    def report_ended(self) -> int:
        """Report the windows that are over; return the number of reports.

        The reporter's thread does this each minute. A program that runs for less time calls it when
        it starts. The receiver of a report sees its time, so do not call this because a value was
        added. A window is missed once the metric's lateness, or the crowd's `wait`, has passed
        after its end: nobody would count its report, so nothing is charged.

        Raises
        ------
        DefinitionChanged, BudgetSpent, AlreadyAnswered, LedgerError, DeliveryError, QueueError
            As for :meth:`producers.Reporter.report`. The window is kept, unless a lottery has paid
            for its report.
        """
        return self._report_due(sys.maxsize)

    def _report_due(self, limit: int) -> int:
        done = 0
        self._is_drawn(self._now())  # the clock causes the draw, not the turn's first event
        for _ in range(limit):
            if (ended := self._claim_window()) is None:
                break
            epsilon = None
            try:
                epsilon = self._pay_for_window(ended)
                done += epsilon is not None and self._report(ended, epsilon)
            except Exception:
                if self._lottery is None or epsilon is None:
                    self._give_back(ended)
                raise
        return done

    def _report(self, ended: Ended, epsilon: float) -> bool:
        """Report a window, if it has a value; return whether it was reported."""
        has_value = ended.value is not None and self._is_reportable(ended.value)
        if has_value:
            moment = (ended.start + self.window_ms - 1) / 1000
            ledger = self.ledger if self._lottery is None else None  # else the turn is paid for
            self.reporter.report(ended.value, epsilon, moment, ledger=ledger, **self._options)
        return has_value

    def _pay_for_window(self, ended: Ended) -> float | None:
        """Pay for a window's report; return its epsilon, or None if nothing is to be reported.

        In a lottery nothing is reported if the turn drew another metric or is already paid for. The
        turn is paid for before its report is made, whether there is a report or not, so that the
        values in a window do not decide whether the next turn can be paid for.
        """
        if self._lottery is None or self.ledger is None:
            return self.epsilon
        if not self._is_drawn(ended.start, unpaid=True):
            return None
        level = self._level()
        self.ledger.of_turn(ended.start).spend(
            self._metric.name,
            level,
            reports=int(ended.value is not None),
            fingerprint=self._metric.fingerprint,
        )
        return level

    @property
    def missed(self) -> int:
        """How many windows were not reported in time since the file was created."""
        with self._gathered() as gathered:
            return gathered.course.missed

    def _report_by_itself(self) -> None:
        """Report the windows that are over, in the reporter's thread; wait after a failure.

        An error that an application's rule raises may contain the value, so its text is not logged.
        """
        if time.monotonic() < self._again_at:
            return
        try:
            self._report_due(MOST_AT_A_LOOK)
        except Exception as error:
            self._again_at = time.monotonic() + AGAIN_SECONDS
            reason = error if isinstance(error, RuntimeError) else type(error).__name__
            logger.warning("a window of %r is not reported yet: %s", self._metric.name, reason)

    # -- Windows ----------------------------------------------------------------------------------

    def _claim_window(self) -> Ended | None:
        """Remove the oldest window to report, and return it; None if no window is to be reported.

        The removal is durable: a crash loses the window, and never reports it twice. No callback of
        the application is called in the transaction, because it may use this roll-up or its ledger.
        """
        now, ended, count = self._now(), None, 0
        with self._gathered() as gathered:
            old_open = gathered.course.open
            self._close_windows(gathered, now)
            course = gathered.course
            for start in course.due:
                if ended is not None or start > now - self.window_ms - course.delay:
                    break
                count += 1
                default = self._nothing if self.how in OF_NOTHING else None
                value = gathered.values.pop(start, default)
                if value is not None or self._lottery is not None:
                    ended = Ended(start, value)
            gathered.course = replace(course, due=course.due[count:])
        if course.open < old_open:
            logger.warning(
                "the clock was set back: what was gathered of %r is in the present window",
                self._metric.name,
            )
        return ended

    def _is_reportable(self, value: Any) -> bool:
        """Return whether the metric can still report a gathered value; log it if it cannot."""
        if self.how in ("last", *OF_CATEGORIES):
            try:
                self._checked_value(value)
            except Exception as error:  # an application's own rule may raise anything
                logger.warning(
                    "a value of %r that was gathered cannot be reported any more (%s): its window "
                    "is left out; expected that a definition keeps its values",
                    self._metric.name,
                    type(error).__name__,
                )
                return False
        return True

    def _close_windows(self, gathered: _Gathered, now: int) -> None:
        """Close the windows that are over, so that no more values are added to them.

        The values of late windows are deleted. Values that were gathered when the clock was wrong
        move to the current window.
        """
        values, missed = gathered.values, gathered.course.missed
        course = self._windows.look(gathered.course, now, _random.randint(0, self._longest_delay))
        present, counted = self._windows.present(course, now), self._windows.first_counted(now)
        stray = {
            start: values.pop(start) for start in sorted(values.keys() - {present, *course.due})
        }
        moved = [value for start, value in stray.items() if start >= counted]
        if moved and self._lottery is None:  # else another turn's draw decides about that window
            moved += [values[present]] if present in values else []
            values[present] = functools.reduce(self._joined_values, moved)
        if self.how not in OF_NOTHING:
            course = replace(course, missed=missed + sum(start < counted for start in stray))
        gathered.course = course

    def _give_back(self, ended: Ended) -> None:
        """Store a window again because its report failed."""
        with self._gathered() as gathered:
            due = {*gathered.course.due, ended.start}
            gathered.course = replace(gathered.course, due=tuple(sorted(due)))
            if ended.value is not None:
                gathered.values[ended.start] = ended.value

    # -- The lottery ------------------------------------------------------------------------------

    def _check_turn(self, lottery: Lottery) -> None:
        """Raise ValueError if the roll-up cannot take part in a lottery."""
        metric = self._metric
        if self.window_ms != lottery.turn_ms:
            raise ValueError(
                f"window = {self.window_ms} ms: expected the turn of the ledger's lottery, "
                f"{lottery.turn_ms} ms"
            )
        if metric.name not in lottery.tickets:
            names = ", ".join(lottery.tickets)
            raise ValueError(f"metric {metric.name!r} has no tickets: expected one of {names}")
        if not isinstance(metric, LocalMetric) or metric.memoized or metric.crowd is not None:
            raise ValueError(
                f"metric {metric.name!r} is trusted or memoized, or has a crowd: a lottery draws "
                "only metrics that are answered afresh, one by one; use another ledger for it"
            )

    def _is_drawn(self, moment: int, *, unpaid: bool = False) -> bool:
        """Return whether the turn at a time drew this metric (and, for `unpaid`, is not paid yet).

        True without a lottery.
        """
        if self._lottery is None or self.ledger is None:
            return True
        turn = self.ledger.drawn_turn(moment - moment % self.window_ms, self.reporter.bits)
        return turn.metric == self._metric.name and not (unpaid and turn.is_paid)

    def _level(self) -> float:
        """Return the largest level that `epsilon` and, with a lottery, the budget allow.

        Raises ValueError if they allow none.
        """
        metric, budget = self._metric, math.inf if self._lottery is None else float(self._budget())
        if budget < metric.levels[0]:
            raise ValueError(
                f"the budget is {budget:g}, and the lowest level of {metric.name!r} "
                f"{metric.levels[0]:g}: expected a budget of at least that; nothing was reported"
            )
        return metric.levels[int(metric.level_of(min(self.epsilon, budget)))]

    # -- The file ---------------------------------------------------------------------------------

    @contextmanager
    def _gathered(self) -> Iterator[_Gathered]:
        """Provide what the file has for a transaction, at whose end changes are stored."""
        name = (self._name,)
        with self._file.transaction(erasing=True) as database:
            (course,) = database.execute(
                "SELECT course FROM courses WHERE name = ?", name
            ).fetchone()
            rows = database.execute("SELECT start_ms, value FROM gathered WHERE name = ?", name)
            old = dict(rows.fetchall())
            values = {start: json.loads(text) for start, text in old.items()}  # noqa: TID251  inf, too
            gathered = _Gathered(decode_json(course, Course), values)
            yield gathered
            new = {start: json.dumps(value) for start, value in gathered.values.items()}
            deleted = [(*name, start) for start in old.keys() - new.keys()]
            database.executemany("DELETE FROM gathered WHERE name = ? AND start_ms = ?", deleted)
            stored = [(*name, *row) for row in new.items() - old.items()]
            database.executemany("INSERT OR REPLACE INTO gathered VALUES (?, ?, ?)", stored)
            if (text := msgspec.json.encode(gathered.course).decode()) != course:
                database.execute("UPDATE courses SET course = ? WHERE name = ?", (text, *name))

    def _now(self) -> int:
        return int(event_times(self._clock(), 1)[0])

    def _check_budget(self, ledger: Ledger, cost: Fraction) -> None:
        """Warn if the budget is too small for the reports that may be made in one of its periods.

        A device reports when it is on, so the time between two reports varies. It is assumed to be
        at least 5/6 of the window.
        """
        longer = 6 * ledger.period_ms - 5 * self.window_ms
        reports = 1 + max(0, -(-longer // (6 * self.window_ms)))
        if isinstance(self._metric, LocalMetric) and self._metric.memoized:
            reports = min(reports, self._options["changes"] + 1)
        budget = self._budget()
        if reports * cost > budget:
            logger.warning(
                "%d reports of %r may fall into one period of ledger %s, and cost %s; its budget "
                "is %s: windows will be lost. Expected a ledger with a period of at most 5/6 of "
                "the window, as '20h' for '1d', or a larger budget, or a smaller epsilon",
                reports,
                self._metric.name,
                ledger.path,
                number(reports * cost),
                number(Fraction(budget)),
            )

    def _budget(self) -> Fraction | float:
        """Return the budget of this metric, or of all metrics together if that is smaller."""
        accounts = {} if self.ledger is None else self.ledger.accounts()
        budgets = [accounts[name].budget for name in ("", self._metric.name) if name in accounts]
        return min((limit for limit in budgets if limit is not None), default=math.inf)

    # -- Values -----------------------------------------------------------------------------------

    def _checked_value(self, value: Any) -> Any:
        """Return a value in the form for JSON; raise ValueError if it cannot be reported."""
        if self.how in ("count", "active"):
            if value is not None:
                raise ValueError(f"value {value!r} for how = {self.how!r}: expected none")
            return 1
        values = self._metric.domain.rows(value)
        if len(values) != 1:
            raise ValueError(f"value {value!r}: expected one value")
        permitted, _ = self.reporter.permitted(values)
        unit = self._metric.domain.to_unit(permitted)  # raises if it cannot be reported
        if self.how in OF_CATEGORIES:
            return self._metric.labels[int(unit[0])]
        (held_value,) = values.tolist()
        if self.how == "last":
            return held_value
        if not math.isfinite(held_value):
            raise ValueError(f"value {value!r}: expected a finite number")
        return float(held_value)  # a sum of integers could grow beyond what can be reported

    def _joined_values(self, held_value: Any, new_value: Any) -> Any:
        if self.how == "sum":  # stays finite: two infinities could add up to NaN
            return max(-sys.float_info.max, min(sys.float_info.max, held_value + new_value))
        if self.how == "count":
            return held_value + new_value
        if self.how in OF_CATEGORIES:
            order = self._metric.labels
            if held_value not in order or new_value not in order:
                return new_value if new_value in order else held_value
            first, second = order.index(held_value), order.index(new_value)
            # of axes with two values each, an index has a bit for each
            return order[max(first, second) if self.how == "furthest" else first | second]
        return max(held_value, new_value) if self.how in ("largest", "active") else new_value


def _first_category(metric: ReportedMetric, how: How) -> str:
    """Return the first of a metric's listed categories; raise ValueError if it has none."""
    if how == "flags" and (metric.axes is None or {*metric.axes.shape} != {2}):
        raise ValueError(f"how = 'flags' for {metric.name!r}: expected axes with two values each")
    if metric.domain.names != "categories" or not metric.domain.parameters["categories"]:
        raise ValueError(
            f"how = {how!r} for {metric.name!r}: expected a frequency of listed categories"
        )
    return metric.labels[0]
