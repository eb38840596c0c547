"""The messages in Kafka that are not counted yet, for commands that show answers."""

from __future__ import annotations

import dataclasses
import time

from aggregator.config.settings import Settings
from aggregator.kafka.log_ends import KafkaLog, LogEnds
from aggregator.reading.status import START_WORKERS, halted_partitions, silence_ms, silence_text
from aggregator.storage.progress import UNSET, TopicProgress

ANSWER_SECONDS = 3.0
"""The longest time to wait for Kafka; the wait is shorter if the client finds no broker."""


@dataclasses.dataclass(frozen=True)
class Backlog:
    """The messages that no answer contains yet.

    Attributes
    ----------
    messages : int or None
        The number of uncounted messages of all metrics; None if unknown.
    unknown : str
        Why the number is unknown.
    silence : str
        Since when no worker has counted, as text; "" while a worker counts.
    halted : tuple of str
        The halted partitions, with reasons.
    """

    messages: int | None
    unknown: str = ""
    silence: str = ""
    halted: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return the backlog as lines of text; none if all is counted and a worker counts.

        Examples
        --------
        >>> Backlog(1).lines(), Backlog(0).lines()
        (['waiting    1 message in Kafka is not counted yet'], [])
        >>> Backlog(None, "Kafka does not answer").lines()
        ['waiting    it is unknown how many messages are not counted yet: Kafka does not answer']
        """
        lines = []
        if self.messages is None:
            lines.append(
                f"waiting    it is unknown how many messages are not counted yet: {self.unknown}"
            )
        elif self.messages:
            subject = "message in Kafka is" if self.messages == 1 else "messages in Kafka are"
            lines.append(f"waiting    {self.messages:,} {subject} not counted yet")
        if self.silence:
            lines.append(f"warning    {self.silence}: {START_WORKERS}")
        return [*lines, *(f"warning    {reason}" for reason in self.halted)]


def read_backlog(settings: Settings, overview: TopicProgress) -> Backlog:
    """Return the backlog, from the ends of Kafka's log and the progress in Redis."""
    ends = KafkaLog(settings).ask(ANSWER_SECONDS)
    silent = silence_text(overview, time.time_ns() // 10**6, silence_ms(settings))
    messages = uncounted_messages(overview, ends)
    unknown = ends.unknown or "a partition cannot be read"
    return Backlog(messages, unknown, silent, tuple(halted_partitions(overview)))


def uncounted_messages(overview: TopicProgress, ends: LogEnds) -> int | None:
    """Return the number of uncounted messages in all partitions; None if unknown."""
    total = 0
    for number in {*ends.ranges, *overview.partitions, *overview.unreadable} or {0}:
        progress = overview.partitions.get(number)
        done = UNSET if progress is None else progress.next_offset
        lag = None if number in overview.unreadable else ends.lag(number, done)
        if lag is None:
            return None
        total += lag
    return total
