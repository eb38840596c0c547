"""Tracks the windows of a roll-up: runs of closed ones, and those that wait for their report.

Only the clock decides this, never a value, so the time and the number of reports reveal no usage.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import msgspec

Run: TypeAlias = tuple[int, int]
"""A run of windows: from the start of the first to the end of the last, in ms since the epoch."""
MOST_RUNS = 8
MOST_DUE = 10_000
"""The most windows that wait for their reports, even if the clock jumps from 1970 to now."""


class Course(msgspec.Struct, frozen=True):
    """The state of a roll-up's windows.

    Attributes
    ----------
    open : int
        The start of the first window that is not over, in ms since the epoch.
    missed : int
        How many windows were not reported in time.
    closed : tuple of (int, int)
        The windows that are over, as runs of neighbours. None of them becomes due again, even if
        the clock is set back.
    due : tuple of int
        The starts of the windows that wait for their report, ascending.
    delay : int
        The time from a window's end to its report in ms, equal in all processes of the device.
    """

    open: int
    missed: int = 0
    closed: tuple[Run, ...] = ()
    due: tuple[int, ...] = ()
    delay: int = 0


@dataclasses.dataclass(frozen=True)
class Windows:
    """Windows of time, which begin at multiples of `length` ms.

    The report of a window counts until `lateness` ms after the window's end.
    """

    length: int
    lateness: int

    def start(self, now: int) -> int:
        """Return the start of the window that contains a time."""
        return now - now % self.length

    def first_counted(self, now: int) -> int:
        """Return the start of the first window that is not late, at most MOST_DUE windows back."""
        return max(self.start(now - self.lateness), self.start(now) - MOST_DUE * self.length)

    def opened(self, course: Course, now: int) -> int:
        """Return the start of the open window: the window of `now`, or a later `course.open`.

        If that is later by more than the lateness and a window, because the clock was set back, the
        window of `now` is open.
        """
        present = self.start(now)
        if course.open - present > self.lateness + self.length:
            return present
        return max(course.open, present)

    def present(self, course: Course, now: int) -> int:
        """Return the start of the window to which a value at `now` is added."""
        return after_closed(course.closed, self.opened(course, now))

    def look(self, course: Course, now: int, delay: int) -> Course:
        """Return the course at `now`: windows that are over are closed, and due or missed.

        `course`: the course so far; `now`: the time in ms; `delay`: the new delay in ms, used if
        windows have ended since the last call.

        Examples
        --------
        >>> windows = Windows(length=10, lateness=20)
        >>> windows.look(Course(open=0), 25, 3)
        Course(open=20, missed=0, closed=((0, 20),), due=(0, 10), delay=3)
        >>> windows.look(windows.look(Course(open=0), 25, 3), 45, 4)
        Course(open=40, missed=2, closed=((0, 40),), due=(20, 30), delay=4)
        """
        opened, closed, counted = self.opened(course, now), course.closed, self.first_counted(now)
        begin, end = min(course.open, opened), self.start(now)
        first = max(begin, counted)
        over = range(first, end, self.length)
        new = [start for start in over if after_closed(closed, start) == start]
        still_due = [start for start in course.due if start >= counted]
        due = sorted([*still_due, *new])[:MOST_DUE]  # under clocks of the future there may be more
        missed = len(course.due) + len(new) - len(due)
        return Course(
            opened,
            course.missed + missed + uncovered(closed, begin, counted) // self.length,
            with_run(closed, (first, end)) if first < end else closed,
            tuple(due),
            delay if new else course.delay,
        )


def after_closed(closed: tuple[Run, ...], start: int) -> int:
    """Return the start of the first window from `start` on that is in no run.

    The runs are ordered and disjoint.

    Examples
    --------
    >>> after_closed(((0, 4), (6, 8)), 2), after_closed(((0, 4), (6, 8)), 4)
    (4, 4)
    """
    for first, end in closed:
        if first <= start < end:
            start = end
    return start


def uncovered(closed: tuple[Run, ...], start: int, end: int) -> int:
    """Return the length of the part of an interval that is in no run.

    `closed`: the runs, which are disjoint; `start`, `end`: where the interval begins and ends.

    Examples
    --------
    >>> uncovered(((0, 4), (6, 8)), 2, 9)
    3
    """
    covered = sum(max(0, min(end, last) - max(start, first)) for first, last in closed)
    return max(0, end - start) - covered


def with_run(closed: tuple[Run, ...], run: Run) -> tuple[Run, ...]:
    """Add a run to ordered runs, and return them; merge the two oldest if there are too many.

    Examples
    --------
    >>> with_run(((0, 4), (6, 8)), (4, 5))
    ((0, 5), (6, 8))
    """
    runs: list[Run] = []
    for first, end in sorted([*closed, run]):
        if runs and first <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], end))
        else:
            runs.append((first, end))
    return tuple(runs if len(runs) <= MOST_RUNS else [(runs[0][0], runs[1][1]), *runs[2:]])
