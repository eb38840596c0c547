"""Watermarks: the event time that enough recent batches of a metric have reached to confirm it.

A time is reached when CONFIRMING_BATCHES of the last RECENT_BATCHES counted batches reached it, so
that a few wrong clocks, or one message of an attacker, close no pane.
docs/decisions/0018-watermarks-are-confirmed.md explains the numbers.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from estimators import Metric

NO_TIME = -1
CONFIRMING_BATCHES = 8
"""The number of batches that must have reached a time before the watermark reaches it."""
RECENT_BATCHES = 32
"""The confirming batches must be among this many of the metric's last counted batches."""

Times = NDArray[np.int64]
"""Event times in ms, or positions of batches."""
Ahead = tuple[tuple[int, int], ...]
"""Age and time of batches: the number of later batches, and the reached event time in ms."""


@dataclasses.dataclass
class Watermark:
    """The watermark of a metric in a partition."""

    # The latest event time in ms that CONFIRMING_BATCHES of RECENT_BATCHES successive counted
    # batches, heartbeats included, have reached; a batch reaches no later time than its Kafka
    # timestamp.
    time: int = NO_TIME
    arrived: int = NO_TIME  # the latest Kafka timestamp of a counted batch, ms
    # Panes up to this time, in ms, are closed, and stay closed if the lateness grows.
    closed: int = NO_TIME
    # Age and time of each recent batch ahead of `time`, in order; fewer than CONFIRMING_BATCHES.
    ahead: Ahead = ()

    def __str__(self) -> str:
        """Return the stored form."""
        ahead = ",".join(f"{age}+{time - self.time}" for age, time in self.ahead)
        return f"{self.time}:{self.arrived}:{self.closed}" + (f":{ahead}" if ahead else "")

    @property
    def latest(self) -> int:
        """The latest event time that a recent batch has reached, confirmed or not, in ms."""
        return max((time for _, time in self.ahead), default=self.time)

    def advance(self, batch_time: int) -> None:
        """Record the event time of the next counted batch; it may advance the watermark."""
        if not self.ahead and batch_time <= self.time:
            return
        ahead = [(age + 1, time) for age, time in self.ahead if age + 1 < RECENT_BATCHES]
        if batch_time > self.time:
            ahead.append((0, batch_time))
            if len(ahead) == CONFIRMING_BATCHES:
                self.time = min(time for _, time in ahead)
                ahead = [age_and_time for age_and_time in ahead if age_and_time[1] > self.time]
        self.ahead = tuple(ahead)

    def advance_all(self, batch_times: Times) -> None:
        """Record the event times of the next counted batches; they may advance the watermark."""
        if batch_times.size < MIN_VECTOR_BATCHES:
            for time in batch_times.tolist():
                self.advance(time)
            return
        positions, times = self._batches_ahead(batch_times)
        self.time = max(self.time, _latest_confirmed(positions, times))
        last = batch_times.size - 1
        is_ahead = (times > self.time) & (positions > last - RECENT_BATCHES)
        ahead = zip(positions[is_ahead].tolist(), times[is_ahead].tolist(), strict=True)
        self.ahead = tuple((last - position, time) for position, time in ahead)

    def confirming_index(self, time: int, batch_times: Times) -> int | None:
        """Return the index of the batch that moves the watermark to `time`.

        -1 if the watermark is already there; None if none of the batches moves it there.
        """
        if self.time >= time:
            return -1
        if not (batch_times >= time).any():
            return None
        positions, times = self._batches_ahead(batch_times)
        return _confirming_position(positions, times, time)

    def times_along(self, batch_times: Times) -> Times:
        """Return the watermark's time before each of the next counted batches, and after all."""
        recent = np.full(RECENT_BATCHES, NO_TIME, dtype=np.int64)
        for age, time in self.ahead:
            recent[-1 - age] = time
        spread = np.lib.stride_tricks.sliding_window_view(
            np.concatenate((recent, batch_times)), RECENT_BATCHES
        )
        confirmed = np.partition(spread, -CONFIRMING_BATCHES, axis=1)[:, -CONFIRMING_BATCHES]
        return np.maximum.accumulate(np.maximum(confirmed, self.time))

    def close(self, metric: Metric) -> None:
        """Close the panes that the watermark has passed by the lateness.

        A metric that holds its panes open closes none.
        """
        if not metric.hold_open:
            self.closed = max(self.closed, self.time - metric.lateness_ms)

    def _batches_ahead(self, batch_times: Times) -> tuple[Times, Times]:
        """Return indices and times of batches ahead; earlier batches have negative indices."""
        positions = np.flatnonzero(batch_times > self.time)
        times = batch_times[positions]
        if self.ahead:
            ages, times_ahead = np.array(self.ahead, dtype=np.int64).T
            positions = np.concatenate((-1 - ages, positions))
            times = np.concatenate((times_ahead, times))
        return positions, times


MIN_VECTOR_BATCHES = 16
"""At least this many batches are handled as vectors."""


def _confirming_position(positions: Times, times: Times, time: int) -> int | None:
    """Return the first position at which enough recent batches have reached a time, or None."""
    reached_positions = positions[times >= time]
    more = CONFIRMING_BATCHES - 1
    enough = np.flatnonzero(reached_positions[more:] - reached_positions[:-more] < RECENT_BATCHES)
    return int(reached_positions[more + enough[0]]) if enough.size else None


def _latest_confirmed(positions: Times, times: Times) -> int:
    """Return the latest confirmed time at any of these positions; NO_TIME if none is."""
    falling = np.sort(times)[::-1]

    def is_confirmed(index: int) -> bool:
        return _confirming_position(positions, times, int(falling[index])) is not None

    first = CONFIRMING_BATCHES - 1  # too few batches have reached earlier times in this order
    if times.size > first and is_confirmed(first):  # as usual
        return int(falling[first])
    index = bisect_left(range(falling.size), True, lo=min(first, falling.size), key=is_confirmed)
    return int(falling[index]) if index < falling.size else NO_TIME
