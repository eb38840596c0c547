"""When each partition's log last grew, and what its broker's clock says."""

from __future__ import annotations

import dataclasses
from collections import deque

from aggregator.state.watermark import NO_TIME

MOST_ASKED = 1_000
"""Answers that are kept of a partition whose counting is behind."""
ASK_AGAIN_SECONDS = 3_600.0
"""The interval between queries of a broker's clock, which the monotonic clock extends."""
MOST_SKEW_MS = 86_400_000
"""A timestamp so far behind those of other messages is not a broker's clock."""


@dataclasses.dataclass
class PartitionActivity:
    """The growth of a partition's log, from Kafka's answers; times are in monotonic seconds.

    Attributes
    ----------
    since : float or None
        Kafka has answered since then, but for short interruptions; None: not yet. The time of
        these does not count: devices may have been cut off as well.
    is_answered : bool
        Whether it answered the last question.
    end : int
        The end of the log by the last answer.
    still_since, asked_at : float
        Since when the log has had this end, and when Kafka was last asked for it.
    counted_until : float
        Everything is counted that was in the log at this time.
    """

    since: float | None = None
    is_answered: bool = False
    end: int = -1
    still_since: float = 0.0
    asked_at: float = 0.0
    counted_until: float = float("-inf")
    _waiting: deque[tuple[float, int]] = dataclasses.field(default_factory=deque)
    _interruptions: deque[tuple[float, float]] = dataclasses.field(
        default_factory=lambda: deque(maxlen=MOST_ASKED)
    )

    def note_log_ends(self, asked_at: float, end: int | None, short: float) -> None:
        """Note an answer.

        Parameters
        ----------
        asked_at : float
            When Kafka was asked.
        end : int or None
            None: it did not answer.
        short : float
            After so many seconds without an answer the time begins anew.
        """
        was_answered, self.is_answered = self.is_answered, end is not None
        if end is None:
            return
        silent = 0.0 if was_answered else asked_at - self.asked_at
        if silent > short or end < self.end:
            self.since, self.counted_until, self.end = None, float("-inf"), -1
            self._waiting.clear()
        elif silent and self.since is not None:
            self._interruptions.append((asked_at, silent))
        if self.since is None:
            self.since = asked_at
        if end != self.end:
            self.end, self.still_since = end, asked_at
        elif self._waiting:
            self._waiting.pop()
        self.asked_at = asked_at
        self._waiting.append((asked_at, end))
        if len(self._waiting) > MOST_ASKED:
            self._waiting.popleft()

    def counted(self, next_offset: int) -> None:
        """Note up to where the partition is counted."""
        while self._waiting and self._waiting[0][1] <= next_offset:
            self.counted_until = self._waiting.popleft()[0]

    def is_quiet(self, heard_at: float, idle: float) -> bool:
        """Return whether a metric has had no report for `idle` seconds.

        Either all that was in the log is counted, and had none; or the log has not grown at all.

        Parameters
        ----------
        heard_at : float
            When the metric's counts last changed, in monotonic seconds.
        idle : float
            In seconds.
        """
        if self.since is None or not self.is_answered:
            return False
        since = max(self.since, heard_at)
        still = self.asked_at - max(since, self.still_since)
        silent = sum(seconds for until, seconds in self._interruptions if until > since)
        return max(self.counted_until - since, still) - silent >= idle


@dataclasses.dataclass
class BrokerClocks:
    """The least that the brokers' clocks can show, by the timestamps of messages.

    A broker's clock has passed each timestamp that it gave. This machine's wall clock is not used.

    Attributes
    ----------
    asked_at : float
        When a message was last sent only for its timestamp, in monotonic seconds.
    """

    asked_at: float = float("-inf")
    _latest: tuple[int, float] = (NO_TIME, 0.0)
    _own: dict[int, tuple[int, float]] = dataclasses.field(default_factory=dict)

    def seen(self, timestamp: int, now: float) -> None:
        """Note the timestamp of a message that some broker has appended."""
        if timestamp > _since(self._latest, now):
            self._latest = timestamp, now

    def note_timestamp(self, number: int, timestamp: int, now: float) -> None:
        """Note the timestamp that a partition's broker gave to a message just now.

        Parameters
        ----------
        number : int
            The partition's.
        timestamp : int
            Ms since the epoch, by the broker's clock.
        now : float
            Monotonic seconds.
        """
        self.seen(timestamp, now)
        self._own[number] = timestamp, now

    def at_least(self, number: int, now: float) -> int:
        """Return milliseconds since the epoch for a partition's broker; NO_TIME: not known."""
        latest = _since(self._latest, now)
        own = _since(self._own.get(number, (NO_TIME, 0.0)), now)
        return own if own >= latest - MOST_SKEW_MS else latest


def _since(seen: tuple[int, float], now: float) -> int:
    stamp, at = seen
    return NO_TIME if stamp == NO_TIME else stamp + int(1000 * (now - at))
