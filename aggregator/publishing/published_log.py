"""The log of events on the estimates topic: their ids, copied to Redis up to a position.

A final event is published once if the publisher knows all events that were committed before. The
topic is authoritative: a transaction writes all of its events or none. Redis has a copy of the
published panes with the offset up to which the topic was read; a new publisher reads the events
after it. If the copy is lost or old, the publisher reads more of the topic.
"""

from __future__ import annotations

import contextlib
import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import structlog
from confluent_kafka import Consumer

from aggregator.config.settings import Settings
from aggregator.kafka import clients, topic_admin
from aggregator.kafka.log_reader import log_ranges, read_ranges
from aggregator.publishing import events
from aggregator.publishing.events import Event
from aggregator.publishing.leader import EventCacheLost
from aggregator.state.pane_keys import metric_key
from aggregator.storage import parsing
from aggregator.storage.commands import Commands
from aggregator.storage.lease import Lease
from aggregator.storage.redis_keys import expired_key, failed_searches_key, final_key, release_key
from aggregator.timestamps import iso
from estimators import Metric
from producers.wire.decoding import decode_json

Command = list[str | bytes | int]
CENTRAL_TRUST = "central"
"""The `trust` of a release in a final event's data."""
KEY_FIELD_PREFIX = "has:"
"""Prefix of the fields that list the copy's keys besides the offsets, so that a deleted key is
noticed."""

log = structlog.get_logger("dither.publisher")


class _Trust(msgspec.Struct, frozen=True):
    trust: str = "local"


def _is_release(data: bytes) -> bool:
    """Return whether the data of a final event is that of a release.

    Examples
    --------
    >>> _is_release(b'{"metric": "pay", "trust": "central"}'), _is_release(b'{"metric": "age"}')
    (True, False)
    """
    try:
        return decode_json(data, _Trust).trust == CENTRAL_TRUST
    except ValueError:
        return False


class PublishedLog:
    """The copy in Redis of the ids of the events on the estimates topic.

    Parameters
    ----------
    lease : Lease
        Only the holder of this lease changes the copy.
    key : str
        The prefix of the copy's keys, with the lease's hash tag.

    Attributes
    ----------
    keep_ms : mapping of str to int
        The retention of releases by metric key; releases without a retention are kept forever.
    """

    def __init__(self, client: Any, lease: Lease, key: str, settings: Settings) -> None:
        self.keep_ms: Mapping[str, int] = {}
        self.lease, self._key, self._settings = lease, key, settings
        self._commands = Commands(client)
        self._topic = settings.topics.estimates
        self._positions: dict[int, int] = {}
        self._source = events.source(settings.topics.reports)

    def published_panes(self, metric: str, first: int, last: int) -> set[int]:
        """Return the start times of panes in [first, last] ms with a final event.

        Parameters
        ----------
        metric : str
            The metric's key.
        first, last : int
            The first and the last start time, in ms since the epoch.
        """
        key = final_key(self._key, metric)
        (starts,) = self._commands.ask([("ZRANGEBYSCORE", key, first, last)])
        return {parsing.integer(key, start) for start in starts}

    def verify_intact(self) -> None:
        """Verify that Redis has lost no write to the copy, so that all earlier reads were complete.

        All keys are in one slot, so a restored backup sets them back together; if a single key was
        deleted, `position` still names it. Raises EventCacheLost if Redis has lost a part of the
        copy.
        """
        position = self._position()
        for number, offset in self._positions.items():
            if position.get(str(number)) != str(offset):
                lost = f"{self._key}:position has lost offset {offset} of partition {number}"
                raise EventCacheLost(lost)
        if lost := self._lost_key(position):
            raise EventCacheLost(f"{lost} is gone")

    def _position(self) -> dict[str, str]:
        """Return the copy's offsets by partition, its topic, and the names of its other keys."""
        return self._commands.hash(f"{self._key}:position", parsing.texts)

    def _lost_key(self, position: Mapping[str, str]) -> str:
        """Return a key that `position` names and Redis has lost; "" if there is none."""
        keys = [f"{self._key}:{name}" for name in _names(position)]
        existing = self._commands.ask([("EXISTS", key) for key in keys])
        return next((key for key, exists in zip(keys, existing, strict=True) if not exists), "")

    def note_expired(self, metric: Metric, starts: Sequence[int]) -> None:
        """Record that panes expired before their final event.

        `starts`: the starts of these panes, in ms since the epoch, ascending.
        """
        key = expired_key(self._key, metric_key(metric.name, metric.revision))
        self.lease.write([["ZADD", key, *(word for start in starts for word in (start, start))]])
        log.warning(
            "expired before its final event",
            metric=metric.name,
            panes=len(starts),
            first=iso(starts[0]),
            last=iso(starts[-1]),
        )

    def note_failed_searches(self, failed: Mapping[str, int]) -> None:
        """Store the number of panes that wait for a retry of their search, by metric name."""
        key = failed_searches_key(self._key)
        fields = [word for pair in failed.items() for word in pair]
        self.lease.write([["DEL", key], *([["HSET", key, *fields]] if fields else [])])

    def draw_once(self, metric: str, start: int, data: Callable[[], bytes]) -> bytes:
        """Return a pane's release; draw and store it first, unless it was drawn before.

        A publisher that takes over after a crash publishes the same release.

        Parameters
        ----------
        metric : str
            The metric's key.
        start : int
            The pane's start, in ms since the epoch.
        data : callable
            Draws the release, and returns the event's data.

        Raises
        ------
        LeaseLost
            If another process holds the lease; the draw is discarded.
        EventCacheLost
            If Redis has lost the release right after it was stored.
        """
        key = release_key(self._key, metric, start)
        (release,) = self._commands.ask([("GET", key)])
        if release is None:
            self.lease.write([["SET", key, data(), *self._expiry(metric), "NX"]])
            (release,) = self._commands.ask([("GET", key)])
        if release is None:
            raise EventCacheLost(f"{key} was lost as soon as it was written")
        return bytes(release)

    def _expiry(self, metric: str) -> list[str | int]:
        keep_ms = self.keep_ms.get(metric)
        return [] if keep_ms is None else ["PX", keep_ms]

    def provisional_ids(self, metrics: Sequence[str]) -> list[str]:
        """Return the id of each metric's latest provisional event; "" if there was none."""
        if not metrics:
            return []
        (ids,) = self._commands.ask([("HMGET", f"{self._key}:provisional", *metrics)])
        return [(event_id or b"").decode(errors="replace") for event_id in ids]

    def is_known(self, event: Event) -> bool:
        """Return whether the event of a feature is already published."""
        (is_member,) = self._commands.ask([("SISMEMBER", self._ids_key(event.type), event.id)])
        return bool(is_member)

    def _ids_key(self, event_type: str) -> str:
        """Return the key of the ids of a feature's published events."""
        return f"{self._key}:{events.feature_event_types()[event_type].ids_key_name}"

    def note_committed(self, committed: Iterable[Event], positions: dict[int, int]) -> None:
        """Store the ids of committed events, and the offsets after the events, in the copy.

        A copy that Redis has set back stays as it is: newer offsets would hide the lost events,
        which would then be published again.

        Raises
        ------
        LeaseLost
            If another process holds the lease; that process reads these events from the topic.
        EventCacheLost
            If the copy no longer has the offsets that this process last read or stored.
        """
        key = f"{self._key}:position"
        last_positions = {**dict.fromkeys(positions, ""), **self._positions}
        expected = {str(number): str(offset) for number, offset in last_positions.items()}
        if not self.lease.write(self._writes(committed, positions), key, expected):
            raise EventCacheLost(f"{key} no longer has the offsets {self._positions}")
        self._positions |= positions

    def _writes(self, committed: Iterable[Event], positions: dict[int, int]) -> Iterator[Command]:
        of_features = events.feature_event_types()
        types: Counter[str] = Counter()
        names: set[str] = set()
        for event in committed:
            types[event.type] += 1
            if event.type == events.FINAL_TYPE:
                metric, start = _pane(event.key)
                yield ["ZADD", final_key(self._key, metric), start, start]
                if _is_release(event.data):
                    key = release_key(self._key, metric, start)
                    yield ["SET", key, event.data, *self._expiry(metric)]
                yield ["SADD", f"{self._key}:metrics", metric]
                names |= {f"final:{metric}", "metrics", "events"}
            elif event.type in of_features:
                yield ["SADD", self._ids_key(event.type), event.id]
                names |= {of_features[event.type].ids_key_name, "events"}
            else:
                yield ["HSET", f"{self._key}:provisional", event.key, event.id]
                names |= {"provisional", "events"}
        for name, count in types.items():
            yield ["HINCRBY", f"{self._key}:events", name, count]
        for name in sorted(names):
            yield ["HSET", f"{self._key}:position", f"{KEY_FIELD_PREFIX}{name}", 1]
        for partition, offset in positions.items():
            yield ["HSET", f"{self._key}:position", partition, offset]

    def catch_up(self) -> None:
        """Read the committed events that the topic has after the copy's offsets.

        A producer that was fenced before this call can commit no event, so the copy is complete
        afterwards.

        Raises
        ------
        DitherError, KafkaException
            If Kafka does not answer; try again.
        LeaseLost
            If another process holds the lease.
        """
        ranges = self._unread()
        with self._consumer("read_committed") as consumer:
            for messages in read_ranges(consumer, self._topic, ranges):
                positions = {message.partition(): message.offset() + 1 for message in messages}
                parsed = (_event_from(self._source, message) for message in messages)
                self.note_committed([event for event in parsed if event is not None], positions)
        self.note_committed([], {number: end for number, (_, end) in ranges.items()})

    @contextlib.contextmanager
    def _consumer(self, isolation: str) -> Iterator[Consumer]:
        group = f"{self._settings.aggregate.group}-publisher"
        properties = {"isolation.level": isolation, "enable.partition.eof": True}
        with contextlib.closing(clients.consumer(self._settings, group, **properties)) as consumer:
            yield consumer

    def _unread(self) -> dict[int, tuple[int, int]]:
        """Return the ranges of offsets after the copy, by partition.

        The ranges include open transactions, as committed events may come after these.
        """
        with self._consumer("read_uncommitted") as consumer:
            logs = log_ranges(consumer, self._topic)
        identity = f"{self._topic}:{topic_admin.topic_id(self._settings, self._topic)}"
        key, position = f"{self._key}:position", self._position()
        copied = {n: parsing.integer(key, position[str(n)], 0) for n in logs if str(n) in position}
        truncated = any(offset > logs[number][1] for number, offset in copied.items())
        copied_topic, lost = position.get("topic", ""), self._lost_key(position)
        is_replaced = position and (truncated or not _are_same(copied_topic, identity))
        if is_replaced:
            log.warning("the estimates topic was replaced", was=copied_topic, now=identity)
        elif lost:
            log.warning("the estimates topic is read from its beginning", lost=lost)
        if is_replaced or lost or not _names(position):
            self._delete_copy()
            copied = {}
        topic = copied_topic if copied_topic and identity.endswith(":") else identity
        self.lease.write([["HSET", key, "topic", topic]])
        self._positions = copied
        return {n: (max(copied.get(n, 0), low), end) for n, (low, end) in logs.items()}

    def _delete_copy(self) -> None:
        copied_names = _names(self._position())
        key = f"{self._key}:metrics"
        metrics = [parsing.text(key, name) for name in self._commands.members(key)]
        names = {f"final:{metric}" for metric in metrics}  # releases stay, as each is drawn once
        names |= {kind.ids_key_name for kind in events.feature_event_types().values()}
        names |= {"metrics", "provisional", "events", "position", *copied_names}
        self.lease.write([["DEL", f"{self._key}:{name}"] for name in sorted(names)])


def _names(position: Mapping[str, str]) -> list[str]:
    """Return the names of the copy's keys besides the one with the offsets.

    Examples
    --------
    >>> _names({"topic": "events:1", "0": "7", "has:alarms": "1"})
    ['alarms']
    """
    prefix = KEY_FIELD_PREFIX
    return [field.removeprefix(prefix) for field in position if field.startswith(prefix)]


def _event_from(source: str, message: Any) -> Event | None:
    """Return the event in a message; None if it is no event from `source`."""
    event = Event.parse(message)
    if event is None or event.source != source:
        return None
    if event.type == events.FINAL_TYPE:
        try:
            _pane(event.key)
        except ValueError:
            return None
    return event if event.type in events.data_types() else None


def _are_same(topic: str, other_topic: str) -> bool:
    """Return whether two topics, as ``name:id``, are the same; an empty id may be any.

    Examples
    --------
    >>> _are_same("events:1", "events:"), _are_same("events:1", "events:2")
    (True, False)
    """
    name, _, topic_id = topic.rpartition(":")
    other_name, _, other_id = other_topic.rpartition(":")
    return name == other_name and (topic_id == other_id or not (topic_id and other_id))


def _pane(key: str) -> tuple[str, int]:
    """Return the metric's key and the pane's start in ms from a final event's message key.

    Examples
    --------
    >>> _pane("delay@0000001f/2013-01-01T01:00:00Z")
    ('delay@0000001f', 1357002000000)
    """
    metric, _, start = key.partition("/")
    return metric, round(datetime.datetime.fromisoformat(start).timestamp() * 1000)
