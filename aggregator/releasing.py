"""Releases of metrics that are collected in trust: each pane's once, when it is closed everywhere.

A pane is closed when the log says so in every partition. A partition that gets no reports would
never say it: it is sent a heartbeat, a batch without reports, from which on reports of the pane are
late for whoever reads the log. docs/decisions/0013 says why.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import structlog
from confluent_kafka import KafkaError, Producer

from aggregator import events, kafka, stored
from aggregator.events import Event
from aggregator.keys import PaneKey, metric_key, tag
from aggregator.partition import CONFIRMING_BATCHES, NEVER
from aggregator.published import Published
from aggregator.reader import Reader
from aggregator.settings import Settings
from aggregator.store import Overview, Standing
from aggregator.unpublished import Unpublished
from aggregator.windows import Window
from estimators import Metric
from estimators.estimate import Counts
from producers.batch import heartbeat
from producers.kafka_errors import explained

BATCH_SECONDS = 1.0
"""The bounds of a release take a tenth of a second, or seconds."""
REPEAT_SECONDS = 5.0
"""A heartbeat that was sent so long ago and is not counted yet is sent again."""
CLOSE_SECONDS = 1.0

log = structlog.get_logger("dither.publisher")


class Releasing:
    """Draws what is due to be released, and closes what nobody reports to any more.

    Parameters
    ----------
    reader : Reader
    published : Published
        Knows which panes were released already, and what was drawn and is not published yet.
    source : str
        Of the events.
    since_ms : int
        Panes that begin before are not released.
    """

    def __init__(self, reader: Reader, published: Published, source: str, since_ms: int) -> None:
        self.reader, self.published, self._source = reader, published, source
        self.metrics = {n: m for n, m in reader.metrics.items() if m.trust == "central"}
        self._unpublished = Unpublished(reader.store, published, self.metrics, since_ms)
        self._sent: dict[tuple[str, int], tuple[int, float]] = {}

    def finals(self, overview: Overview, partitions: int) -> Iterator[list[Event]]:
        """Yield the events of panes that are closed everywhere and have none yet, in batches.

        Every batch is to be published, and noted, before the next one is asked for.

        Parameters
        ----------
        partitions : int
            How many the reports topic has.
        """
        numbers = range(partitions)
        for name, closed in self.reader.closed(overview, partitions).items():
            metric, policy = self.metrics[name], self.reader.policy(overview, self.metrics[name])
            for starts in self._unpublished.starts(metric, numbers, closed - metric.pane_ms):
                sums = self._sums(metric, numbers, starts)
                if not _is_same(overview, self.reader.store.overview()):
                    log.info("counted anew while it was read", metric=name)
                    return
                self.published.check()
                yield from self._events(metric, policy, sums)

    def heartbeats(self, overview: Overview, partitions: int) -> Iterator[tuple[int, bytes]]:
        """Yield the heartbeats that close panes, each with the partition that it is for.

        They close what is final for metrics that need no release: where reports still come in, a
        partition closes its panes by itself.
        """
        now = time.monotonic()
        for name, settled in self.reader.settled(overview).items():
            if name not in self.metrics:
                continue
            metric, key = self.metrics[name], metric_key(name, self.metrics[name].revision)
            last = self.reader.store.latest(key, [*overview.partitions], settled - metric.pane_ms)
            if last is None:
                continue
            close = last + metric.pane_ms + metric.lateness_ms
            for number in range(partitions):
                standing = overview.partitions.get(number)
                if standing is None or _reached(standing, key) >= close:
                    continue
                sent, when = self._sent.get((name, number), (NEVER, 0.0))
                if sent < close or now - when > REPEAT_SECONDS:
                    self._sent[name, number] = close, now
                    for _ in range(CONFIRMING_BATCHES):
                        yield number, heartbeat(metric, close)

    def _sums(
        self, metric: Metric, partitions: Sequence[int], starts: Sequence[int]
    ) -> Mapping[int, Counts]:
        """Return the panes' statistics over all partitions; not of those that have expired."""
        store, name = self.reader.store, metric_key(metric.name, metric.revision)
        wanted, first, last = set(starts), starts[0], starts[-1]
        keys = [
            (number, PaneKey("pane", name, start))
            for number in partitions
            for start in store.panes(number, "pane", name, first, last + 1)
            if start in wanted
        ]
        sums: dict[int, Counts] = {start: metric.zero() for start in starts}
        for (number, key), value in zip(keys, store.statistics(keys), strict=True):
            if value is None:
                if sums.pop(key.start, None) is not None:
                    log.error("expired before its release", metric=metric.name, pane=key.start)
            elif key.start in sums:
                place = f"{tag(store.topic, number)}:{key}"
                sums[key.start] += stored.statistic(place, value, metric)
        return sums

    def _events(
        self, metric: Metric, policy: str, sums: Mapping[int, Counts]
    ) -> Iterator[list[Event]]:
        """Yield the events of panes, some of them after a while."""
        batch: list[Event] = []
        deadline = time.monotonic() + BATCH_SECONDS
        for start, statistic in sums.items():
            try:
                batch.append(self._event(metric, policy, start, statistic))
            except ValueError as error:  # too many reports; or something else is in Redis
                log.warning("not released", metric=metric.name, pane=start, reason=str(error))
            if time.monotonic() > deadline:
                yield batch
                batch, deadline = [], time.monotonic() + BATCH_SECONDS
        if batch:
            yield batch

    def _event(self, metric: Metric, policy: str, start: int, statistic: Counts) -> Event:
        """Return a pane's event: the one that was drawn before, if any was."""
        edges = (start, start + metric.pane_ms)
        window = Window(metric, metric.zero()[:0], *edges, "final", NEVER, policy)

        def draw() -> bytes:
            found = metric.release(statistic, weights=policy)
            status = "too_few_reports" if found.reports < metric.minimum_reports else "final"
            return events.drawn(window, dataclasses.replace(found, status=status))

        data = self.published.draw(metric_key(metric.name, metric.revision), start, draw)
        return events.released(window, data, self._source)


class Heartbeats:
    """Sends heartbeats to the reports topic.

    Parameters
    ----------
    settings : Settings
    """

    def __init__(self, settings: Settings) -> None:
        self._topic = settings.topics.reports
        self._producer: Producer = kafka.producer(settings)

    def send(self, beats: Iterator[tuple[int, bytes]]) -> None:
        """Send heartbeats, and do not wait: what is lost is sent again."""
        for partition, payload in beats:
            self._producer.produce(
                self._topic, payload, partition=partition, on_delivery=self._delivered
            )
        self._producer.poll(0)

    def close(self) -> None:
        """Let go."""
        self._producer.flush(CLOSE_SECONDS)
        self._producer.purge()
        self._producer.close()

    @staticmethod
    def _delivered(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            log.warning("heartbeat", partition=message.partition(), error=explained(error))


def _reached(standing: Standing, key: str) -> int:
    return standing.watermarks[key].time if key in standing.watermarks else NEVER


def _is_same(before: Overview, after: Overview) -> bool:
    """Return whether what was read between two looks is of one history: Redis lost nothing."""

    def follows(one: Standing, other: Standing | None) -> bool:
        if other is None or not other.is_whole:
            return False
        is_same_owner = one.owner.get("token") == other.owner.get("token")
        return is_same_owner and int(one.owner["next"]) <= int(other.owner["next"])

    return all(
        follows(one, after.partitions.get(number))
        for number, one in before.partitions.items()
        if one.is_whole
    )
