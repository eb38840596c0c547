"""Which final events are on the estimates topic already; Redis keeps a copy.

A final event is published once if the publisher knows all events that were committed before. The
topic is authoritative: a transaction writes all of its events or none. Redis has a copy of the
published panes, with the offset up to which the topic was read, so that a new publisher reads only
the events after it. If the copy is lost or old, the publisher reads more of the topic.
"""

from __future__ import annotations

import contextlib
import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import structlog
from confluent_kafka import Consumer

from aggregator.config.settings import Settings
from aggregator.kafka import clients, topic_admin
from aggregator.kafka.log_reader import log_ranges, read_ranges
from aggregator.publishing import events
from aggregator.publishing.events import Event
from aggregator.publishing.leader import CopyLost
from aggregator.state.pane_keys import metric_key
from aggregator.storage import parsing
from aggregator.storage.lease import Lease
from aggregator.storage.redis_keys import expired_key, failed_searches_key, final_key, release_key
from aggregator.timestamps import iso
from estimators import Metric
from estimators.estimate import Counts
from producers.wire.decoding import decode_json

Command = list[str | bytes | int]
CENTRAL = "central"
"""The trust of a release, in a final event's data."""
HAS = "has:"
"""Before the name of a key of the copy, as a field beside its offsets: whoever reads the offsets
knows which other keys belong to them, and misses those that somebody deleted."""

log = structlog.get_logger("dither.publisher")


class _Trust(msgspec.Struct, frozen=True):
    """The part of an event's data that says whether it is a release."""

    trust: str = "local"


def _is_release(data: bytes) -> bool:
    """Return whether the data of a final event is a release.

    Examples
    --------
    >>> _is_release(b'{"metric": "pay", "trust": "central"}'), _is_release(b'{"metric": "age"}')
    (True, False)
    """
    try:
        return decode_json(data, _Trust).trust == CENTRAL
    except ValueError:
        return False


class PublishedLog:
    """The copy in Redis of which events are on the estimates topic.

    Parameters
    ----------
    client : redis.Redis
    lease : Lease
        Only its holder changes the copy.
    key : str
        With the lease's hash tag.
    settings : Settings

    Attributes
    ----------
    keep_ms : mapping of str to int
        How long releases are kept, by the metric's key; others are kept for ever.
    """

    def __init__(self, client: Any, lease: Lease, key: str, settings: Settings) -> None:
        self.keep_ms: Mapping[str, int] = {}
        self._client, self.lease, self._key, self._settings = client, lease, key, settings
        self._topic = settings.topics.estimates
        self._positions: dict[int, int] = {}
        self._source = events.source(settings.topics.reports)

    def finals(self, metric: str, first: int, last: int) -> set[int]:
        """Return which panes of a metric, that begin in [first, last], have their final event.

        Parameters
        ----------
        metric : str
            Name and revision, as in keys.
        first, last : int
            Starts of panes, in ms since the epoch.
        """
        key = final_key(self._key, metric)
        return {parsing.integer(key, one) for one in self._client.zrangebyscore(key, first, last)}

    def check(self) -> None:
        """See whether the copy still is what this publisher has made of it.

        All of it is in one slot, and goes back in time as a whole; a key of it that was deleted by
        itself is missed. What was read of it before this call is then all that there is on the
        topic.

        Raises
        ------
        CopyLost
            If Redis has lost some of it.
        """
        place = f"{self._key}:position"
        known = parsing.texts(place, self._client.hgetall(place))
        for number, offset in self._positions.items():
            if known.get(str(number)) != str(offset):
                raise CopyLost(f"{place} has lost offset {offset} of partition {number}")
        if lost := self._lost_key(known):
            raise CopyLost(f"{lost} is gone")

    def _lost_key(self, position: Mapping[str, str]) -> str:
        """Return a key of the copy that is gone; empty if all are there.

        Parameters
        ----------
        position : mapping of str to str
            The fields beside which they are named.
        """
        keys = [f"{self._key}:{name}" for name in _names(position)]
        if not keys or self._client.exists(*keys) == len(keys):
            return ""
        return next((key for key in keys if not self._client.exists(key)), "")

    def pass_expired(self, metric: Metric, sums: Mapping[int, Counts | None]) -> dict[int, Counts]:
        """Return the panes that are whole; note those of which something has expired.

        These never get a final event: it would be of a part.

        Parameters
        ----------
        metric : Metric
            Whose panes they are.
        sums : mapping
            From :meth:`aggregator.reading.reader.MetricReader.closed_panes`.
        """
        gone = [start for start, statistic in sums.items() if statistic is None]
        if gone:
            key = expired_key(self._key, metric_key(metric.name, metric.revision))
            words = [word for start in gone for word in (start, start)]
            self.lease.write([["ZADD", key, *words]])
            log.warning(
                "expired before its final event",
                metric=metric.name,
                panes=len(gone),
                first=iso(gone[0]),
                last=iso(gone[-1]),
            )
        return {start: found for start, found in sums.items() if found is not None}

    def note_failed_searches(self, failed: Mapping[str, int]) -> None:
        """Say how many panes of each metric wait, because the search for their strings failed.

        Parameters
        ----------
        failed : mapping of str to int
            By the metric's name: of all whose panes are searched.
        """
        key = failed_searches_key(self._key)
        fields = [word for pair in failed.items() for word in pair]
        self.lease.write([["DEL", key], *([["HSET", key, *fields]] if fields else [])])

    def draw(self, metric: str, start: int, data: Callable[[], bytes]) -> bytes:
        """Return a pane's release as it was drawn, if it ever was; else draw it.

        Whoever publishes it after a crash, it is the same.

        Parameters
        ----------
        metric : str
            Name and revision, as in keys.
        start : int
            The pane's, in ms since the epoch.
        data : callable
            Draws it, and returns the event's data.

        Raises
        ------
        LeaseLost
            If another holds the lease. Nothing was drawn then that anybody will see.
        CopyLost
            If Redis lost it at once.
        """
        key = release_key(self._key, metric, start)
        known = self._client.get(key)
        if known is None:
            self.lease.write([["SET", key, data(), *self._expiry(metric), "NX"]])
            known = self._client.get(key)
        if known is None:
            raise CopyLost(f"{key} was lost as soon as it was written")
        return bytes(known)

    def _expiry(self, metric: str) -> list[str | int]:
        keep_ms = self.keep_ms.get(metric)
        return [] if keep_ms is None else ["PX", keep_ms]

    def provisional(self, metric: str) -> str:
        """Return the id of a metric's latest provisional event; empty if there was none."""
        found = self._client.hget(f"{self._key}:provisional", metric)
        return "" if found is None else str(found.decode())

    def is_known(self, event: Event) -> bool:
        """Return whether the event of a feature is published already."""
        return bool(self._client.sismember(self._ids_key(event.type), event.id))

    def _ids_key(self, event_type: str) -> str:
        """Return the key of the ids of a feature's events that are published."""
        return f"{self._key}:{events.feature_event_types()[event_type].kept_as}"

    def note_committed(self, committed: Iterable[Event], positions: dict[int, int]) -> None:
        """Remember events that are committed, and the offsets that follow them.

        Raises
        ------
        LeaseLost
            If another holds the lease: it has read these events, or will.
        """
        self.lease.write(self._writes(committed, positions))
        self._positions |= positions

    def _writes(self, committed: Iterable[Event], positions: dict[int, int]) -> Iterator[Command]:
        of_features = events.feature_event_types()
        types: Counter[str] = Counter()
        names: set[str] = set()
        for event in committed:
            types[event.type] += 1
            if event.type == events.FINAL:
                metric, start = _pane(event.key)
                yield ["ZADD", final_key(self._key, metric), start, start]
                if _is_release(event.data):
                    key = release_key(self._key, metric, start)
                    yield ["SET", key, event.data, *self._expiry(metric)]
                yield ["SADD", f"{self._key}:metrics", metric]
                names |= {f"final:{metric}", "metrics", "events"}
            elif event.type in of_features:
                yield ["SADD", self._ids_key(event.type), event.id]
                names |= {of_features[event.type].kept_as, "events"}
            else:
                yield ["HSET", f"{self._key}:provisional", event.key, event.id]
                names |= {"provisional", "events"}
        for name, count in types.items():
            yield ["HINCRBY", f"{self._key}:events", name, count]
        for name in sorted(names):
            yield ["HSET", f"{self._key}:position", f"{HAS}{name}", 1]
        for partition, offset in positions.items():
            yield ["HSET", f"{self._key}:position", partition, offset]

    # -- Reading the topic ----------------------------------------------------------------------

    def catch_up(self) -> None:
        """Read what the topic has beyond the copy.

        Only committed events are seen. Whoever was fenced before this call cannot add any: after
        it, the copy is complete.

        Raises
        ------
        DitherError, KafkaException
            If Kafka does not answer; to be tried again.
        LeaseLost
        """
        ranges = self._unread()
        with self._consumer("read_committed") as consumer:
            for messages in read_ranges(consumer, self._topic, ranges):
                own = (_own(message, self._source) for message in messages)
                positions = {message.partition(): message.offset() + 1 for message in messages}
                self.note_committed([event for event in own if event is not None], positions)
        self._positions.clear()
        self.note_committed([], {number: end for number, (_, end) in ranges.items()})

    @contextlib.contextmanager
    def _consumer(self, isolation: str) -> Iterator[Consumer]:
        group = f"{self._settings.aggregate.group}-publisher"
        properties = {"isolation.level": isolation, "enable.partition.eof": True}
        with contextlib.closing(clients.consumer(self._settings, group, **properties)) as consumer:
            yield consumer

    def _unread(self) -> dict[int, tuple[int, int]]:
        """Return the offsets to read in each partition: from where the copy ends to the end.

        Transactions under way are included: what somebody else has under way there must not hide
        what is committed behind it.
        """
        with self._consumer("read_uncommitted") as consumer:
            logs = log_ranges(consumer, self._topic)
        identity = f"{self._topic}:{topic_admin.topic_id(self._settings, self._topic)}"
        place = f"{self._key}:position"
        known = parsing.texts(place, self._client.hgetall(place))
        positions = {n: parsing.integer(place, known.get(str(n), "0"), 0) for n in logs}
        truncated = any(positions[number] > end for number, (_, end) in logs.items())
        before = known.get("topic", "")
        if known and (truncated or not _are_same(before, identity)):
            log.warning("the estimates topic was replaced", was=before, now=identity)
            self._forget()
            positions = dict.fromkeys(logs, 0)
        elif not _names(known):  # nothing was copied, or by an earlier version
            self._forget()
            positions = dict.fromkeys(logs, 0)
        elif lost := self._lost_key(known):
            log.warning("the estimates topic is read from its beginning", lost=lost)
            self._forget()
            positions = dict.fromkeys(logs, 0)
        kept = before if before and identity.endswith(":") else identity
        self.lease.write([["HSET", f"{self._key}:position", "topic", kept]])
        return {n: (max(positions[n], low), end) for n, (low, end) in logs.items()}

    def _forget(self) -> None:
        place = f"{self._key}:position"
        known = _names(parsing.texts(place, self._client.hgetall(place)))
        metrics = [name.decode() for name in self._client.smembers(f"{self._key}:metrics")]
        names = [f"final:{metric}" for metric in metrics]  # not what was drawn: it stays the same
        kept = [kind.kept_as for kind in events.feature_event_types().values()]
        names += ["metrics", "provisional", *kept, "events", "position"]
        names += [name for name in known if name not in names]
        self.lease.write([["DEL", f"{self._key}:{name}"] for name in names])


def _names(position: Mapping[str, str]) -> list[str]:
    """Return the names of the copy's other keys.

    Examples
    --------
    >>> _names({"topic": "events:1", "0": "7", "has:alarms": "1"})
    ['alarms']
    """
    return [field.removeprefix(HAS) for field in position if field.startswith(HAS)]


def _own(message: Any, source: str) -> Event | None:
    """Return the event of a message; None if it is none from `source`."""
    found = Event.parse(message)
    if found is None or found.source != source:
        return None
    if found.type == events.FINAL:
        try:
            _pane(found.key)
        except ValueError:
            return None
    return found if found.type in events.data_types() else None


def _are_same(one: str, other: str) -> bool:
    """Return whether two topics, as ``name:id``, are the same; an id may not be known.

    Examples
    --------
    >>> _are_same("events:1", "events:"), _are_same("events:1", "events:2")
    (True, False)
    """
    (name, _, known), (other_name, _, other_known) = one.rpartition(":"), other.rpartition(":")
    return name == other_name and (known == other_known or not (known and other_known))


def _pane(key: str) -> tuple[str, int]:
    """Return the metric's key and the pane's start, in ms, of a final event's message key.

    Examples
    --------
    >>> _pane("delay@0000001f/2013-01-01T01:00:00Z")
    ('delay@0000001f', 1357002000000)
    """
    metric, _, start = key.partition("/")
    moment = datetime.datetime.fromisoformat(start)
    return metric, round(moment.timestamp() * 1000)
