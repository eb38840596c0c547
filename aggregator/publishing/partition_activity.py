"""The growth of partitions' logs, and the brokers' clocks."""

from __future__ import annotations

import dataclasses
from collections import deque

from aggregator.state.watermark import NO_TIME

MAX_PENDING_LOG_ENDS = 1_000
"""The most log ends that are remembered of a partition whose messages are not counted yet."""
CLOCK_QUERY_SECONDS = 3_600.0
"""The time between queries of a broker's clock; in between, the monotonic clock extrapolates it."""
MAX_CLOCK_SKEW_MS = 86_400_000
"""A timestamp that is further behind those of other messages is not from a broker's clock."""


@dataclasses.dataclass
class PartitionActivity:
    """The growth of a partition's log, from Kafka's answers; times are in monotonic seconds.

    Attributes
    ----------
    answered_since : float or None
        Since when Kafka has answered without a long interruption; None if it has not answered yet.
        Short interruptions do not count as idle time, because devices may have been cut off, too.
    is_answered : bool
        Whether Kafka answered the last query.
    end : int
        The end of the log by the last answer.
    still_since, asked_at : float
        When the log reached this end, and when Kafka was last asked for it.
    counted_until : float
        All messages that were in the log at this time are counted.
    """

    answered_since: float | None = None
    is_answered: bool = False
    end: int = -1
    still_since: float = 0.0
    asked_at: float = 0.0
    counted_until: float = float("-inf")
    _waiting: deque[tuple[float, int]] = dataclasses.field(default_factory=deque)
    _interruptions: deque[tuple[float, float]] = dataclasses.field(
        default_factory=lambda: deque(maxlen=MAX_PENDING_LOG_ENDS)
    )

    def note_log_end(self, asked_at: float, end: int | None, max_interruption: float) -> None:
        """Record Kafka's answer to a query for the end of the log.

        Parameters
        ----------
        asked_at : float
            When Kafka was asked, in monotonic seconds.
        end : int or None
            The end of the log; None if Kafka did not answer.
        max_interruption : float
            A time without answers, in seconds; after a longer time the idle time begins again.
        """
        was_answered, self.is_answered = self.is_answered, end is not None
        if end is None:
            return
        silent = 0.0 if was_answered else asked_at - self.asked_at
        if silent > max_interruption or end < self.end:
            self.answered_since, self.counted_until, self.end = None, float("-inf"), -1
            self._waiting.clear()
        elif silent and self.answered_since is not None:
            self._interruptions.append((asked_at, silent))
        if self.answered_since is None:
            self.answered_since = asked_at
        if end != self.end:
            self.end, self.still_since = end, asked_at
        elif self._waiting:
            self._waiting.pop()
        self.asked_at = asked_at
        self._waiting.append((asked_at, end))
        if len(self._waiting) > MAX_PENDING_LOG_ENDS:
            self._waiting.popleft()

    def note_counted(self, next_offset: int) -> None:
        """Record the offset up to which the partition is counted."""
        while self._waiting and self._waiting[0][1] <= next_offset:
            self.counted_until = self._waiting.popleft()[0]

    def is_quiet(self, heard_at: float, idle: float) -> bool:
        """Return whether a metric, last heard at `heard_at`, has had no report for `idle` seconds.

        Either all of the log is counted and had no report, or the log has not grown.
        """
        if self.answered_since is None or not self.is_answered:
            return False
        quiet_since = max(self.answered_since, heard_at)
        still = self.asked_at - max(quiet_since, self.still_since)
        silent = sum(seconds for end, seconds in self._interruptions if end > quiet_since)
        return max(self.counted_until - quiet_since, still) - silent >= idle


@dataclasses.dataclass
class BrokerClocks:
    """Lower bounds on the brokers' clocks, from the timestamps of messages.

    A broker's clock has passed every timestamp that it gave. This machine's wall clock is not used.

    Attributes
    ----------
    asked_at : float
        When a message was last sent for its timestamp alone, in monotonic seconds.
    """

    asked_at: float = float("-inf")
    _latest: tuple[int, float] = (NO_TIME, 0.0)
    _readings: dict[int, tuple[int, float]] = dataclasses.field(default_factory=dict)

    def note_any_timestamp(self, timestamp: int, now: float) -> None:
        """Record a timestamp that any of the brokers gave to a message."""
        if timestamp > _since(self._latest, now):
            self._latest = timestamp, now

    def note_timestamp(self, number: int, timestamp: int, now: float) -> None:
        """Record the timestamp that a partition's broker has just given to a message.

        Parameters
        ----------
        number : int
            The partition.
        timestamp : int
            The timestamp, in ms since the epoch.
        now : float
            The present time, in monotonic seconds.
        """
        self.note_any_timestamp(timestamp, now)
        self._readings[number] = timestamp, now

    def earliest_ms(self, number: int, now: float) -> int:
        """Return the least possible time of a broker, in ms since the epoch; NO_TIME if unknown."""
        latest_ms = _since(self._latest, now)
        partition_ms = _since(self._readings.get(number, (NO_TIME, 0.0)), now)
        return partition_ms if partition_ms >= latest_ms - MAX_CLOCK_SKEW_MS else latest_ms


def _since(reading: tuple[int, float], now: float) -> int:
    stamp, at = reading
    return NO_TIME if stamp == NO_TIME else stamp + int(1000 * (now - at))
