"""Watermarks: the event time that several recent batches of a metric have reached.

A time is reached when CONFIRMING_BATCHES of the last RECENT_BATCHES counted batches have reached
it, so that a few devices with a wrong clock, or one message of an attacker, close nobody's pane.
docs/decisions/0018-watermarks-are-confirmed.md says why these numbers.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from aggregator.state.rows import Integers

if TYPE_CHECKING:
    from estimators import Metric

NO_TIME = -1
CONFIRMING_BATCHES = 8
"""The number of batches of a metric that must reach a time before its watermark does."""
RECENT_BATCHES = 32
"""Among how many counted batches of the metric these must be, the newest included."""

Ahead = tuple[tuple[int, int], ...]
"""Age and time of batches: how many batches came after one, and the event time it reached, ms."""


@dataclasses.dataclass
class Watermark:
    """The watermark of a metric in a partition."""

    # The latest event time that CONFIRMING_BATCHES of RECENT_BATCHES counted batches in
    # succession, heartbeats included, have reached (none reaches further than Kafka's own
    # timestamp for it), ms.
    time: int = NO_TIME
    arrived: int = NO_TIME  # the latest Kafka timestamp of a counted batch, ms
    # Panes that end by then are closed, ms, and stay so if more lateness is allowed later on.
    closed: int = NO_TIME
    # Those of the last RECENT_BATCHES batches that have reached a later time, in their order:
    # age and time. They are fewer than CONFIRMING_BATCHES.
    ahead: Ahead = ()

    def __str__(self) -> str:
        """Return it as the store keeps it."""
        ahead = ",".join(f"{age}+{time - self.time}" for age, time in self.ahead)
        return f"{self.time}:{self.arrived}:{self.closed}" + (f":{ahead}" if ahead else "")

    @property
    def latest(self) -> int:
        """The latest event time that any recent batch has reached, confirmed or not, ms."""
        return max((time for _, time in self.ahead), default=self.time)

    def advance(self, reached: int) -> None:
        """Note the event time that the next counted batch has reached."""
        if not self.ahead and reached <= self.time:
            return
        ahead = [(age + 1, time) for age, time in self.ahead if age + 1 < RECENT_BATCHES]
        if reached > self.time:
            ahead.append((0, reached))
            if len(ahead) == CONFIRMING_BATCHES:
                self.time = min(time for _, time in ahead)
                ahead = [age_and_time for age_and_time in ahead if age_and_time[1] > self.time]
        self.ahead = tuple(ahead)

    def advance_all(self, reached: Integers) -> None:
        """Note the event times that the next counted batches have reached, in their order."""
        if reached.size < MIN_VECTOR_BATCHES:
            for time in reached.tolist():
                self.advance(time)
            return
        places, times = self._climbing(reached)
        self.time = max(self.time, _highest(places, times))
        last = reached.size - 1
        is_ahead = (times > self.time) & (places > last - RECENT_BATCHES)
        ahead = zip(places[is_ahead].tolist(), times[is_ahead].tolist(), strict=True)
        self.ahead = tuple((last - position, time) for position, time in ahead)

    def reaches(self, time: int, reached: Integers) -> int | None:
        """Return at which of the next counted batches it will be at `time`; None: at none of them.

        -1 means that it is there already.
        """
        if self.time >= time:
            return -1
        if not (reached >= time).any():
            return None
        places, times = self._climbing(reached)
        return _confirmed(places, times, time)

    def along(self, reached: Integers) -> Integers:
        """Return its time before each of the next counted batches, and after the last."""
        recent = np.full(RECENT_BATCHES, NO_TIME, dtype=np.int64)
        for age, time in self.ahead:
            recent[-1 - age] = time
        spread = np.lib.stride_tricks.sliding_window_view(
            np.concatenate((recent, reached)), RECENT_BATCHES
        )
        confirmed = np.partition(spread, -CONFIRMING_BATCHES, axis=1)[:, -CONFIRMING_BATCHES]
        return np.maximum.accumulate(np.maximum(confirmed, self.time))

    def close(self, metric: Metric) -> None:
        """Close the panes that it has left behind by the lateness, unless they are held open."""
        if not metric.hold_open:
            self.closed = max(self.closed, self.time - metric.lateness_ms)

    def _climbing(self, reached: Integers) -> tuple[Integers, Integers]:
        """Return the places and times of batches beyond `time`; those that were before are < 0."""
        places = np.flatnonzero(reached > self.time)
        times = reached[places]
        if self.ahead:
            ages, times_ahead = np.array(self.ahead, dtype=np.int64).T
            places = np.concatenate((-1 - ages, places))
            times = np.concatenate((times_ahead, times))
        return places, times


MIN_VECTOR_BATCHES = 16
"""So few are sooner taken one after the other."""


def _confirmed(places: Integers, times: Integers, time: int) -> int | None:
    """Return the place at which enough batches close to each other have reached a time."""
    reached_positions = places[times >= time]
    more = CONFIRMING_BATCHES - 1
    enough = np.flatnonzero(reached_positions[more:] - reached_positions[:-more] < RECENT_BATCHES)
    return int(reached_positions[more + enough[0]]) if enough.size else None


def _highest(places: Integers, times: Integers) -> int:
    """Return the latest time that is confirmed at any of these places; NO_TIME if none is."""
    if times.size < CONFIRMING_BATCHES:
        return NO_TIME
    falling = np.sort(times)[::-1]
    low, high = CONFIRMING_BATCHES - 2, CONFIRMING_BATCHES - 1  # the first is never confirmed
    while _confirmed(places, times, int(falling[high])) is None:
        if high == falling.size - 1:
            return NO_TIME
        low, high = high, min(2 * high, falling.size - 1)
    while high - low > 1:
        middle = (low + high) // 2
        if _confirmed(places, times, int(falling[middle])) is None:
            low = middle
        else:
            high = middle
    return int(falling[high])
