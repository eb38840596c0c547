"""The ends of a topic's partitions, which show how many messages are not counted."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from aggregator.config.settings import Settings
from aggregator.kafka import clients

ANSWER_SECONDS, MAX_ANSWER_SECONDS = 5.0, 20.0
"""The first and the longest timeout of a query; it doubles after each timeout."""
PATIENCE_FACTOR = 4
"""The next timeout is this multiple of the time that the last answer took."""
FRESH_SECONDS = 1.0
"""Up to this age an answer is used without asking again."""
STALE_SECONDS = 5.0
"""An answer of this age is discarded, unless the broker needs more than a quarter of this time."""
PATIENCE_SECONDS, MAX_PATIENCE_SECONDS = 0.5, 5.0
"""How long a caller waits for an answer: if the last answer is not stale, and if it is. After a
query without an answer, callers do not wait."""
COUNT_SECONDS = 30.0
"""The time between two queries for the number of partitions, which may grow, and for their first
offsets."""
FIRST_TIMEOUT_SECONDS = 0.1
"""The first timeout of a metadata query. It doubles each time, as a distant broker answers no query
whose timeout is shorter than its round trip."""
CERTAIN_SECONDS = 0.5
"""After this time Kafka's client has tried each address, so that no broker is there."""

RENEW_SECONDS = 30.0
"""After this time without a broker, the client is replaced."""

OFFSET_SPECS: Any = OffsetSpec
NO_LEADER = -1
"""The leader of a partition in Kafka's metadata if no broker leads it."""
NO_ANSWER = "Kafka does not answer"
NO_ANSWER_YET = "Kafka has not answered yet"
NO_VISIBLE_TOPIC = (
    "Kafka shows no topic of reports: it is missing, or this user has no permission to see it"
)
QUERY_REFUSED = "Kafka refuses this user's query for the end of the log"


@dataclasses.dataclass(frozen=True)
class LogEnds:
    """The first and next offsets of the partitions' logs, as far as Kafka has stated them."""

    ranges: Mapping[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    unknown: str = NO_ANSWER  # why some are unknown, or empty
    asked_at: float = float("-inf")  # monotonic seconds; the logs may have grown since

    def ends(self, partitions: int) -> dict[int, int | None]:
        """Return the next offset of each of `partitions` partitions; None if unknown."""
        return {n: self.ranges[n][1] if n in self.ranges else None for n in range(partitions)}

    def lag(self, partition: int, next_offset: int) -> int | None:
        """Return how many messages of a partition are not counted; None if unknown.

        `next_offset` is the first uncounted offset; below zero if nothing is counted.

        >>> ends = LogEnds({0: (10, 50)}, "")
        >>> ends.lag(0, 48), ends.lag(0, -1), ends.lag(1, 48)
        (2, 40, None)
        """
        if partition not in self.ranges:
            return None
        low, high = self.ranges[partition]
        return max(0, high - max(low, next_offset))


Ends = Callable[[], LogEnds]
"""Returns the last known ends."""


class KafkaLog:
    """The ends of the reports topic's partitions, from Kafka; calling it returns the last answer.

    A thread queries all partitions at once, at most once a second, so that an unreachable Kafka
    delays no caller.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._topic, self._clock = settings, settings.topics.reports, clock
        self._client: AdminClient | None = None
        self._lost_at: float | None = None
        self._down = threading.Event()
        self._partitions: list[int] = []
        self._leaderless: list[int] = []
        self._low: dict[int, int] = {}
        self._counted_at = float("-inf")
        self._patience, self._seconds_taken = ANSWER_SECONDS, 0.0
        self._log_ends, self._answered_at = LogEnds({}, ""), float("-inf")
        self._asking: threading.Event | None = None
        self._lock = threading.Lock()

    def __call__(self) -> LogEnds:
        """Return the last answer; if it is older than a second, wait briefly for a new answer."""
        with self._lock:
            if self._clock() - self._answered_at < FRESH_SECONDS:
                return self._log_ends
            if self._asking is None or self._asking.is_set():
                self._asking = threading.Event()
                threading.Thread(
                    target=self._refresh, args=[self._asking], name="log-ends", daemon=True
                ).start()
            asking, had_answer = self._asking, not self._log_ends.unknown
        if had_answer:
            asking.wait(self._wait())
        with self._lock:
            if self._answered_at == float("-inf"):
                return LogEnds({}, NO_ANSWER_YET)
            return LogEnds() if self._is_stale() else self._log_ends

    def _wait(self) -> float:
        """Return how long to wait for the answer to the running query, in seconds."""
        if not self._is_stale():
            return PATIENCE_SECONDS
        if self._answered_at == float("-inf"):
            return MAX_PATIENCE_SECONDS
        patience = max(PATIENCE_SECONDS, PATIENCE_FACTOR * self._seconds_taken)
        return min(patience, MAX_PATIENCE_SECONDS)

    def _is_stale(self) -> bool:
        limit = max(STALE_SECONDS, PATIENCE_FACTOR * self._seconds_taken)
        return self._clock() - self._answered_at > limit

    def ask(self, seconds: float | None = None) -> LogEnds:
        """Query Kafka now, and return the ends of the log.

        `seconds`: the longest wait; by default it follows from the times of earlier answers.
        """
        asked_at = self._clock()
        log_ends = self._query(
            asked_at, asked_at + (self._patience if seconds is None else seconds)
        )
        seconds_taken = self._clock() - asked_at
        if not log_ends.unknown:
            self._seconds_taken = seconds_taken
            patience = min(PATIENCE_FACTOR * seconds_taken, MAX_ANSWER_SECONDS)
            self._patience = max(ANSWER_SECONDS, patience)
        elif seconds_taken >= self._patience:
            self._patience = min(2 * self._patience, MAX_ANSWER_SECONDS)
        return log_ends

    def _query(self, asked_at: float, deadline: float) -> LogEnds:
        try:
            self._client = self._client or self._connected()
            is_old = self._clock() - self._counted_at > COUNT_SECONDS
            if is_old or self._leaderless or not self._partitions:
                self._partitions, self._leaderless = self._led_partitions(self._client, deadline)
                self._counted_at, self._low = self._clock(), {}
        except KafkaException as error:
            self._partitions = []
            self._lost_at = asked_at if self._lost_at is None else self._lost_at
            if self._clock() - self._lost_at > RENEW_SECONDS:
                self._client, self._lost_at = None, None
            return LogEnds({}, _explain_failure(error))
        self._lost_at = None
        leaderless = ", ".join(map(str, self._leaderless))
        unknown = f"no broker leads partition {leaderless}" if leaderless else ""
        if not self._partitions:
            return LogEnds({}, unknown or NO_VISIBLE_TOPIC)
        try:
            ask = functools.partial(self._offsets, self._client, deadline)
            low = self._low = self._low or ask(OFFSET_SPECS.earliest())
            high = ask(OFFSET_SPECS.latest())
        except (KafkaException, TimeoutError) as error:
            self._client, self._partitions = None, []  # the client remembers old leaders
            return LogEnds({}, _explain_failure(error))
        return LogEnds({number: (low[number], high[number]) for number in high}, unknown, asked_at)

    def _refresh(self, answered: threading.Event) -> None:
        try:
            log_ends = self.ask()
        except Exception as error:
            clients.LIBRDKAFKA_LOG.warning("where the log ends: %s", error)
            log_ends = LogEnds({}, QUERY_REFUSED)
        with self._lock:
            self._log_ends, self._answered_at = log_ends, self._clock()
        answered.set()

    def _connected(self) -> AdminClient:
        self._down.clear()

        def complain(error: KafkaError) -> None:
            if error.code() == KafkaError._ALL_BROKERS_DOWN:
                self._down.set()

        config: dict[str, Any] = {**clients.admin_properties(self._settings), "error_cb": complain}
        return AdminClient(config, logger=clients.LIBRDKAFKA_LOG)

    def _led_partitions(self, client: AdminClient, deadline: float) -> tuple[list[int], list[int]]:
        """Return the topic's partitions that a broker leads, and the others.

        All topics are listed, as asking for one may create it.
        """
        asked_at, look = self._clock(), FIRST_TIMEOUT_SECONDS
        while True:
            try:
                topics = client.list_topics(timeout=look).topics
            except KafkaException:
                look *= 2
                client.poll(0)
                now = self._clock()
                is_down = self._down.is_set() and now - asked_at > CERTAIN_SECONDS
                look = min(look, max(FIRST_TIMEOUT_SECONDS, deadline - now))
                if is_down or now > deadline:
                    raise
            else:
                self._down.clear()
                topic = topics.get(self._topic)
                if topic is None or topic.error is not None:
                    return [], []
                leaderless = leaderless_partitions(topic)
                return sorted(topic.partitions.keys() - leaderless), sorted(leaderless)

    def _offsets(self, client: AdminClient, deadline: float, spec: OffsetSpec) -> dict[int, int]:
        """Return the first or the next offset of each partition; raise TimeoutError without it."""
        left = max(FIRST_TIMEOUT_SECONDS, deadline - self._clock())
        offsets = {TopicPartition(self._topic, number): spec for number in self._partitions}
        isolation = IsolationLevel.READ_UNCOMMITTED
        futures = client.list_offsets(offsets, isolation_level=isolation, request_timeout=left)
        seconds = left + FIRST_TIMEOUT_SECONDS
        offsets_by_partition = {p.partition: f.result(seconds).offset for p, f in futures.items()}
        if OFFSET_INVALID in offsets_by_partition.values():  # the client's query timed out
            raise TimeoutError
        return offsets_by_partition


def leaderless_partitions(topic: Any) -> set[int]:
    """Return the partitions that no broker leads, given the topic's metadata."""
    return {number for number, about in topic.partitions.items() if about.leader == NO_LEADER}


def _explain_failure(error: Exception) -> str:
    """Return why Kafka has not answered, without addresses and users, which are private."""
    code = error.args[0].code() if isinstance(error, KafkaException) else KafkaError._TIMED_OUT
    if code in clients.TRANSIENT_CODES or code == KafkaError._ALL_BROKERS_DOWN:
        return NO_VISIBLE_TOPIC if code == KafkaError.UNKNOWN_TOPIC_OR_PART else NO_ANSWER
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return NO_VISIBLE_TOPIC
    return f"{QUERY_REFUSED}: {KafkaError(code).str()}"
