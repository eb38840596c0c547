"""When partitions are sent heartbeats: by what Kafka says and what is counted, by no wall clock."""

import dataclasses
from collections.abc import Callable

import pytest

from aggregator.publishing.quiet_partitions import (
    MAX_REPEAT_SECONDS,
    REPEAT_SECONDS,
    Beat,
    HeartbeatSchedule,
)
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import CONFIRMING_BATCHES, NO_TIME
from aggregator.storage.store import Store
from estimators import Metric
from producers.wire.batch import heartbeat
from producers.wire.reports_pb2 import ReportBatch
from tests.support.clocks import Hands
from tests.support.reports.counted import MINUTE
from tests.support.reports.messages import ARRIVAL, DAY, EPOCH, LogMessage, batch

IDLE_SECONDS = 30
LATENESS = MINUTE
"""Of `delay`."""


class Topic:
    """A topic of three partitions, a worker that counts it, and who sends heartbeats to it."""

    def __init__(self, store: Store, metrics: dict[str, Metric]) -> None:
        self.store, self.metrics, self.clock = store, metrics, Hands()
        self.closing = HeartbeatSchedule(store, metrics, 1000 * IDLE_SECONDS, self.clock)
        self.logs: list[list[LogMessage]] = [[], [], []]
        self.broker = ARRIVAL  # what time it is for the brokers
        self.unanswered: set[int] = set()  # partitions whose end Kafka does not tell
        self.uncounted: set[int] = set()
        self.counted: dict[int, int] = {}
        self.extra = [0, 0, 0]  # by how much each log is longer than its messages
        self.lost = False  # whether heartbeats are not delivered
        self.sent: list[Beat] = []
        self._seed = 0

    def report(self, number: int, time_ms: int, name: str = "delay") -> None:
        """Write a report, confirmed at once."""
        for _ in range(CONFIRMING_BATCHES):
            self._seed += 1
            self._append(number, batch(self.metrics[name], [1.0], 1, time_ms, self._seed))

    def _append(self, number: int, payload: ReportBatch | bytes) -> int:
        log = self.logs[number]
        data = payload.SerializeToString() if isinstance(payload, ReportBatch) else payload
        log.append(LogMessage(len(log), data, self.broker))
        return len(log) - 1

    def look(self) -> list[Beat]:
        """Count what is there, ask, and send what is due."""
        for number in {0, 1, 2} - self.uncounted:
            self._count(number)
        ends = {
            number: None if number in self.unanswered else len(log) + self.extra[number]
            for number, log in enumerate(self.logs)
        }
        self.closing.note_log_ends(self.clock.now, ends)
        beats = list(self.closing.heartbeats(self.store.overview(), 3))
        for beat in beats:
            for _ in range(CONFIRMING_BATCHES):
                if self.lost:
                    self.closing.note_delivery(beat, None)
                    continue
                offset = self._append(beat.partition, heartbeat(beat.metric, beat.time_ms))
                self.closing.note_delivery(beat, offset, self.broker)
        self.sent += beats
        return beats

    def _count(self, number: int) -> None:
        if self.counted.get(number) == len(self.logs[number]):
            return
        self.counted[number] = len(self.logs[number])
        snapshot = self.store.partition.acquire(number, "test")
        state = snapshot.partition(self.metrics, 10 * MINUTE)
        state.count(self.logs[number])
        epoch = int(snapshot.owner["epoch"])
        self.store.partition.commit(number, epoch, snapshot.next_offset, state, {"halted": ""})

    def wait(self, seconds: float, every: Callable[[], None] = lambda: None) -> list[Beat]:
        """Let time pass, looking every second; return what was sent."""
        before = len(self.sent)
        for _ in range(round(seconds)):
            self.clock.now += 1.0
            self.broker += 1000
            every()
            self.look()
        return self.sent[before:]

    def closed(self, name: str = "delay") -> int:
        """Return up to where the log has closed a metric's panes."""
        for number in {0, 1, 2} - self.uncounted:
            self._count(number)
        return self.store.overview().closed(metric_key(name, self.metrics[name].revision), 3)


@pytest.fixture
def topic(store: Store, metrics: dict[str, Metric]) -> Topic:
    return Topic(store, {"delay": metrics["delay"]})


def partitions(beats: list[Beat]) -> list[int]:
    return sorted(beat.partition for beat in beats)


def test_quiet_partitions_follow_those_in_which_reports_come_in(topic: Topic) -> None:
    """Of data of long ago; the partition of the newest report closes the rest by itself."""
    minute = [0]

    def one_a_second() -> None:
        minute[0] += 1
        topic.report(0, EPOCH + minute[0] * MINUTE)

    assert topic.wait(IDLE_SECONDS - 1, one_a_second) == []
    beats = topic.wait(10, one_a_second)
    assert set(partitions(beats)) == {1, 2}
    assert topic.closed() >= EPOCH + (minute[0] - 3) * MINUTE
    busy = topic.store.overview().partitions[0].watermarks
    assert topic.closed() <= next(iter(busy.values())).closed
    assert len(beats) <= 2 * 10, "one a pane"


def test_a_quiet_partition_follows_the_slowest_of_the_others(topic: Topic) -> None:
    minute = [0]

    def two() -> None:
        minute[0] += 1
        topic.report(0, EPOCH + (minute[0] + 20) * MINUTE)
        topic.report(1, EPOCH + minute[0] * MINUTE)

    beats = topic.wait(IDLE_SECONDS + 10, two)
    assert set(partitions(beats)) == {2}
    assert max(beat.time_ms for beat in beats) <= EPOCH + minute[0] * MINUTE


def test_the_last_pane_is_closed_when_all_are_quiet_and_then_nothing_sent(topic: Topic) -> None:
    topic.report(1, EPOCH)
    assert topic.wait(IDLE_SECONDS - 5) == []
    topic.report(1, EPOCH)
    assert topic.wait(IDLE_SECONDS - 1) == [], "the partition with reports has closed nothing"
    assert partitions(topic.wait(3)) == [0, 1, 2]
    assert topic.closed() == EPOCH + MINUTE
    assert topic.wait(3 * IDLE_SECONDS) == []


def test_who_does_not_answer_is_not_quiet(topic: Topic) -> None:
    topic.report(1, EPOCH)
    topic.wait(IDLE_SECONDS - 2)
    topic.unanswered = {2}
    assert topic.wait(5 * IDLE_SECONDS) == []
    topic.unanswered = set()
    assert topic.wait(IDLE_SECONDS - 1) == [], "it may have been cut off from devices as well"
    assert partitions(topic.wait(3)) == [0, 1, 2]


def test_an_unanswered_question_delays_a_heartbeat_and_no_more(topic: Topic) -> None:
    topic.report(1, EPOCH)
    seconds = 0
    while not topic.sent:
        topic.unanswered = {0, 1, 2} if seconds % 5 == 4 else set()
        topic.wait(1)
        seconds += 1
        assert seconds < 2 * IDLE_SECONDS
    assert seconds > IDLE_SECONDS * 5 / 4, "what could not be known does not count"
    assert partitions(topic.sent) == [0, 1, 2]


@pytest.mark.parametrize("state", ["lost", "halted", "torn"])
def test_nothing_is_sent_beyond_a_partition_that_is_not_counted(topic: Topic, state: str) -> None:
    topic.report(1, EPOCH)
    topic.look()
    client, prefix = topic.store.client, f"{{dither:{topic.store.topic}:2}}"
    topic.uncounted = {0, 1, 2}
    if state == "halted":
        client.hset(f"{prefix}:owner", "halted", "why")
    elif state == "torn":
        client.hset(f"{prefix}:owner", "next", -2)
    else:
        client.delete(*client.keys(f"{prefix}*"))
    assert topic.wait(2 * IDLE_SECONDS) == []
    topic.uncounted, topic.counted = set(), {}
    if state == "torn":
        client.delete(*client.keys(f"{prefix}*"))
    topic.wait(2 * IDLE_SECONDS)
    assert topic.closed() == EPOCH + MINUTE


def test_other_metrics_do_not_make_it_busy(store: Store, metrics: dict[str, Metric]) -> None:
    topic = Topic(store, {name: metrics[name] for name in ("delay", "silent")})
    topic.report(0, EPOCH, "silent")
    beats = topic.wait(IDLE_SECONDS + 3, lambda: topic.report(0, ARRIVAL))
    assert {beat.partition for beat in beats if beat.metric.name == "silent"} == {0, 1, 2}


def test_a_pane_not_over_for_the_broker_is_waited_for_with_few_messages(topic: Topic) -> None:
    """Live reports: it is over when the broker's clock has passed its end and the lateness."""
    topic.broker = ARRIVAL + DAY + 5_000
    topic.report(1, topic.broker)
    over = ARRIVAL + DAY + MINUTE + LATENESS
    assert len(topic.wait(IDLE_SECONDS + 2)) == 1, "it asks one broker what time it is"
    assert topic.wait((over - topic.broker) / 1000 - 2) == []
    assert partitions(topic.wait(5)) == [0, 1, 2]
    assert topic.closed() == ARRIVAL + DAY + MINUTE


def test_panes_before_one_that_is_not_over_are_closed(topic: Topic) -> None:
    """One report of now does not hold back what is long over."""
    topic.broker = ARRIVAL + DAY + 5_000
    for number, minute in ((0, 0), (2, 3), (1, 7)):
        topic.report(number, ARRIVAL + minute * MINUTE)
    topic.report(1, topic.broker)
    over = ARRIVAL + DAY + MINUTE + LATENESS
    beats = topic.wait(IDLE_SECONDS + 10)
    assert topic.broker < over
    assert topic.closed() == ARRIVAL + 8 * MINUTE
    assert len(beats) <= 1 + 3, "it asks one broker what time it is, and closes what is over"
    topic.wait((over - topic.broker) / 1000 + 5)
    assert topic.closed() == ARRIVAL + DAY + MINUTE


def test_what_is_not_delivered_is_sent_again_ever_more_seldom(topic: Topic) -> None:
    topic.report(1, EPOCH)
    topic.lost = True
    topic.wait(IDLE_SECONDS + REPEAT_SECONDS - 1)
    assert partitions(topic.sent) == [0, 1, 2]
    topic.wait(10 * MAX_REPEAT_SECONDS)
    assert len(topic.sent) <= 3 * 15
    topic.lost = False
    topic.wait(MAX_REPEAT_SECONDS)
    assert topic.closed() == EPOCH + MINUTE


def test_what_is_in_the_log_and_not_counted_yet_is_not_sent_again(topic: Topic) -> None:
    topic.report(1, EPOCH)
    topic.look()
    topic.uncounted = {2}
    topic.wait(10 * IDLE_SECONDS)
    assert partitions(topic.sent) == [0, 1, 2]
    topic.uncounted = set()
    topic.wait(2)
    assert topic.closed() == EPOCH + MINUTE


def test_nothing_is_sent_of_a_metric_that_nobody_reports_or_that_is_held_open(
    topic: Topic, store: Store, metrics: dict[str, Metric]
) -> None:
    assert topic.wait(2 * IDLE_SECONDS) == []
    assert topic.closed() == NO_TIME
    held = {name: dataclasses.replace(one, hold_open=True) for name, one in metrics.items()}
    assert HeartbeatSchedule(store, held, 1000)._metrics == {}
    assert HeartbeatSchedule(store, metrics, 1000)._metrics != {}
