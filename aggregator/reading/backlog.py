"""Counts the messages in Kafka that are not counted yet, for commands that show answers."""

from __future__ import annotations

import dataclasses
import time

from aggregator.config.settings import Settings
from aggregator.kafka.log_ends import KafkaLog, LogEnds
from aggregator.reading.status import START_WORKERS, halted, silence, silence_ms
from aggregator.storage.progress import UNSET, TopicProgress

ANSWER_SECONDS = 3.0
"""Time for which a command waits for Kafka; less, if its client finds no broker."""


@dataclasses.dataclass(frozen=True)
class Backlog:
    """The reports that an answer does not contain yet.

    Attributes
    ----------
    messages : int or None
        Messages of all metrics; None: unknown.
    unknown : str
        Why the number is unknown.
    silence : str
        Since when no worker counts; empty while one does.
    halted : tuple of str
        Which partitions are halted, and why.
    """

    messages: int | None
    unknown: str = ""
    silence: str = ""
    halted: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return it in words; nothing, where all is counted and somebody counts.

        Examples
        --------
        >>> Backlog(1).lines(), Backlog(0).lines()
        (['waiting    1 message in Kafka is not counted yet'], [])
        >>> Backlog(None, "Kafka does not answer").lines()
        ['waiting    it is unknown how many messages are not counted yet: Kafka does not answer']
        """
        found = []
        if self.messages is None:
            found.append(
                f"waiting    it is unknown how many messages are not counted yet: {self.unknown}"
            )
        elif self.messages:
            what = "message in Kafka is" if self.messages == 1 else "messages in Kafka are"
            found.append(f"waiting    {self.messages:,} {what} not counted yet")
        if self.silence:
            found.append(f"warning    {self.silence}: {START_WORKERS}")
        return [*found, *(f"warning    {why}" for why in self.halted)]


def read_backlog(settings: Settings, overview: TopicProgress) -> Backlog:
    """Ask Kafka how much of its log is not counted, and Redis whether somebody counts."""
    ends = KafkaLog(settings).ask(ANSWER_SECONDS)
    silent = silence(overview, time.time_ns() // 10**6, silence_ms(settings))
    messages = uncounted_messages(overview, ends)
    why = ends.unknown or "a partition cannot be read"
    return Backlog(messages, why, silent, tuple(halted(overview)))


def uncounted_messages(overview: TopicProgress, ends: LogEnds) -> int | None:
    """Return how many messages of all partitions are not counted; None: that is not known."""
    total = 0
    for number in {*ends.ranges, *overview.partitions, *overview.unreadable} or {0}:
        progress = overview.partitions.get(number)
        done = UNSET if progress is None else progress.next_offset
        lag = None if number in overview.unreadable else ends.lag(number, done)
        if lag is None:
            return None
        total += lag
    return total
