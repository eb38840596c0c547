"""The growth of partitions' logs, and the brokers' clocks."""

from __future__ import annotations

import dataclasses
from collections import deque

from aggregator.state.watermark import NO_TIME

MAX_PENDING_LOG_ENDS = 1_000
"""Kept log ends of a partition that is counted with a lag."""
CLOCK_QUERY_SECONDS = 3_600.0
"""Between queries of a broker's clock; the monotonic clock extrapolates it."""
MAX_CLOCK_SKEW_MS = 86_400_000
"""A timestamp further behind those of other messages is not a broker's clock."""


@dataclasses.dataclass
class PartitionActivity:
    """The growth of a partition's log, from Kafka's answers; times are in monotonic seconds.

    Attributes
    ----------
    answered_since : float or None
        Kafka has answered since then, but for short interruptions; None: not yet. Interruptions
        do not count as idle time, since devices may have been cut off as well.
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
        """Note an answer of Kafka.

        Parameters
        ----------
        asked_at : float
        end : int or None
            None: Kafka did not answer.
        max_interruption : float
            Seconds; a longer interruption restarts the idle time.
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
        """Note the offset up to which the partition is counted."""
        while self._waiting and self._waiting[0][1] <= next_offset:
            self.counted_until = self._waiting.popleft()[0]

    def is_quiet(self, heard_at: float, idle: float) -> bool:
        """Return whether a metric, heard at `heard_at`, has had no report for `idle` seconds.

        Either the log is counted and had no report, or the log has not grown.
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

    A broker's clock has passed every timestamp that it gave. This machine's wall clock is unused.

    Attributes
    ----------
    asked_at : float
        When a message was last sent for its timestamp alone, in monotonic seconds.
    """

    asked_at: float = float("-inf")
    _latest: tuple[int, float] = (NO_TIME, 0.0)
    _readings: dict[int, tuple[int, float]] = dataclasses.field(default_factory=dict)

    def note_any_timestamp(self, timestamp: int, now: float) -> None:
        """Note the timestamp that an unknown broker gave to a message."""
        if timestamp > _since(self._latest, now):
            self._latest = timestamp, now

    def note_timestamp(self, number: int, timestamp: int, now: float) -> None:
        """Note the timestamp that a partition's broker just gave to a message.

        Parameters
        ----------
        number : int
        timestamp : int
            In ms since the epoch.
        now : float
        """
        self.note_any_timestamp(timestamp, now)
        self._readings[number] = timestamp, now

    def earliest_ms(self, number: int, now: float) -> int:
        """Return the lower bound on the broker's time, ms since the epoch; NO_TIME: unknown."""
        latest_ms = _since(self._latest, now)
        partition_ms = _since(self._readings.get(number, (NO_TIME, 0.0)), now)
        return partition_ms if partition_ms >= latest_ms - MAX_CLOCK_SKEW_MS else latest_ms


def _since(reading: tuple[int, float], now: float) -> int:
    stamp, at = reading
    return NO_TIME if stamp == NO_TIME else stamp + int(1000 * (now - at))
