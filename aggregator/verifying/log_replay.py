"""Counts a partition's log again, with the definitions that were in force at each offset."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from aggregator.counting.continuity import Mark
from aggregator.errors import DitherError
from aggregator.kafka import clients, worker_clients
from aggregator.kafka.obstacles import is_of_data, skipped_spans, unskipped_ranges
from aggregator.state.admission import ANY_AGE
from aggregator.state.batch_ids import BatchIds
from aggregator.state.definition_history import CountingDefinitions, retired_panes_by_offset
from aggregator.state.pane import Pane
from aggregator.state.pane_keys import PaneKey, counted_metric
from aggregator.state.partition import Partition
from aggregator.storage.snapshot import Snapshot
from estimators.durations import milliseconds
from producers.kafka.kafka_errors import of_topic

CONSUME_MESSAGES = 10_000
CONSUME_SECONDS = 0.5
SILENCE_SECONDS = 60.0

Progress = Callable[[int, int], None]
"""Called with a partition and the offset that the replay has reached in it."""


class LogReplay:
    """The replay of one partition.

    Parameters
    ----------
    history : sequence of (int, CountingDefinitions)
        Definitions, each with the first offset at which they were in force.
    snapshot : Snapshot
        The state to prove; the replay ends at its next offset.
    judged_from : int
        The first offset whose definitions are known.

    Attributes
    ----------
    state : Partition
        The sums of the open panes, and the counters.
    closed : dict of PaneKey to (Pane, int)
        Closed panes, without ids and keys, each with a Kafka time in ms that is no later than the
        time from which its retention runs: the log does not tell which commit closed the pane.
    begin : int
        The first replayed offset.
    last : Mark or None
        The mark of the last replayed message.
    end : int
        The end of the log, open transactions included, read after the snapshot.
    """

    def __init__(
        self,
        topic: str,
        number: int,
        history: Sequence[tuple[int, CountingDefinitions]],
        snapshot: Snapshot,
        judged_from: int,
    ) -> None:
        self._position, self.snapshot = TopicPartition(topic, number), snapshot
        self.judged_from = self.begin = judged_from
        self._history = deque(history)
        self._retired = deque(retired_panes_by_offset(snapshot.owner))
        self.state = _empty_partition(self._history.popleft()[1])
        self._left: dict[PaneKey, Pane] = {}
        self.closed: dict[PaneKey, tuple[Pane, int]] = {}
        self.messages, self.end = 0, 0
        self.last: Mark | None = None

    @property
    def is_truncated(self) -> bool:
        """Whether some counted messages are not in the log, or cannot be judged."""
        return self.begin > int(self.snapshot.owner.get("begin", 0))

    @property
    def panes(self) -> dict[PaneKey, Pane]:
        """All panes, including those of old definitions."""
        return self._left | {key: pane for key, (pane, _) in self.closed.items()} | self.state.panes

    def run(self, consumer: Consumer, uncommitted: Consumer, progress: Progress) -> None:
        """Count the log up to the snapshot's next offset, and pass the offsets to `progress`.

        `consumer` reads the committed messages; `uncommitted` tells where the log ends.
        """
        answer_seconds = clients.ANSWER_SECONDS
        low, self.end = uncommitted.get_watermark_offsets(self._position, timeout=answer_seconds)
        self.begin = max(low, int(self.snapshot.owner.get("begin", 0)), self.judged_from)
        self.state.next_offset = self.begin
        for messages in self._log(consumer, progress):
            self.messages += len(messages)
            self.last = Mark.of(messages[-1])
            for part in self._by_definitions(messages):
                arrived_before = {key: mark.arrived for key, mark in self.state.watermarks.items()}
                first = min(message.timestamp()[1] for message in part)
                self.state.count(part)
                for key, pane in self.state.mark_committed().items():
                    # Only the ids and keys of open panes are compared.
                    pane.batch_ids, pane.used = BatchIds(), {}
                    self.closed[key] = (pane, max(first, arrived_before.get(key.question, first)))
        self._apply_changes(self.snapshot.next_offset)

    def _by_definitions(self, messages: list[Any]) -> Iterator[list[Any]]:
        """Yield messages in parts; before each part, apply the changes due at its first offset."""
        while (at := self._next_change) is not None and _offset(messages[-1]) >= at:
            earlier_messages = [m for m in messages if _offset(m) < at]
            if earlier_messages:
                yield earlier_messages
            messages = messages[len(earlier_messages) :]
            self._apply_changes(at)
        yield messages

    @property
    def _next_change(self) -> int | None:
        """The next offset at which definitions change, or panes are retired."""
        return min((e[0][0] for e in (self._history, self._retired) if e), default=None)

    def _apply_changes(self, offset: int) -> None:
        """Repeat the changes that the workers made at an offset."""
        self._redefine(offset)
        while self._retired and self._retired[0][0] <= offset:
            for question, end in self._retired.popleft()[1].items():
                self._retire(question, end)

    def _retire(self, question: str, end: int) -> None:
        """Close the panes of a question up to `end`, as a worker that retired them did."""
        left = {key: pane for key, pane in self._left.items() if key.question == question}
        state = self.state
        if left:  # panes of a definition that is no longer in force
            state = Partition({}, 0)
            state.watermarks[question] = self.state.watermarks[question]
            for key, pane in left.items():
                del self._left[key]
                state.restore(key, pane)
        state.close_until(question, end)
        arrived = self.state.watermarks[question].arrived
        self.closed |= {key: (pane, arrived) for key, pane in state.mark_committed().items()}
        if left:
            self._left |= state.panes

    def _redefine(self, offset: int) -> None:
        """Apply the definitions in force from an offset on, like a worker that reloads them."""
        while self._history and self._history[0][0] <= offset:
            state, definitions = self.state, self._history.popleft()[1]
            self._left |= state.panes
            self.state = _empty_partition(definitions)
            self.state.next_offset = state.next_offset
            self.state.watermarks.update(state.watermarks)
            self.state.counts.update(state.counts)
            for key in [*self._left]:
                metric = counted_metric(definitions.metrics, key.metric)
                if metric is not None:
                    pane = dataclasses.replace(self._left.pop(key), metric=metric)
                    self.state.restore(key, pane)

    def _log(self, consumer: Consumer, progress: Progress) -> Iterator[list[Any]]:
        passed, end = skipped_spans(self.snapshot.owner), self.snapshot.next_offset
        for start, stop in unskipped_ranges(self.state.next_offset, end, passed):
            yield from self._read_range(consumer, progress, start, stop)
        consumer.unassign()

    def _read_range(
        self, consumer: Consumer, progress: Progress, start: int, end: int
    ) -> Iterator[list[Any]]:
        """Yield the messages in [start, end); messages after `end` may be unreadable."""
        number = self._position.partition
        consumer.assign([TopicPartition(self._position.topic, number, start)])
        heard = time.monotonic()
        reached = start
        while reached < end:
            wanted = min(CONSUME_MESSAGES, end - reached)
            messages = consumer.consume(wanted, timeout=CONSUME_SECONDS)
            is_over = False
            sorted_events = worker_clients.sort_events(messages)
            for message in sorted_events.errors:
                error = message.error()
                if error.code() == KafkaError._PARTITION_EOF:
                    continue
                if not is_of_data(error, message.offset()) or _offset(message) < end:
                    raise of_topic(error, message.topic())
                is_over = True  # it follows the last readable message
            fetched = sorted_events.messages.get(number, [])
            good = [message for message in fetched if _offset(message) < end]
            if good:
                heard = time.monotonic()
                yield good
            passed = [_offset(message) + 1 for message in fetched[-1:]]
            reached = max(reached, sorted_events.ends.get(number, 0), *passed, is_over * end)
            progress(number, min(reached, end))
            if time.monotonic() - heard > SILENCE_SECONDS:
                raise DitherError(
                    f"partition {number}: the log delivered nothing for {SILENCE_SECONDS:g} s at "
                    f"offset {reached}, and the state ends at {end}"
                )


def _empty_partition(definitions: CountingDefinitions) -> Partition:
    """Return an empty partition under some definitions."""
    rules = definitions.rules
    past_ms = milliseconds(rules["past"]) if "past" in rules else ANY_AGE
    return Partition(definitions.metrics, milliseconds(rules["future"]), past_ms=past_ms)


def _offset(message: Any) -> int:
    return int(message.offset())
