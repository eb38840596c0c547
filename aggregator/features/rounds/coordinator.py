"""The coordinator: opens, closes and decides the rounds of minimum and maximum.

Several processes may run one; a lease in Redis lets one at a time work. A decision is stored with
the answers that it was made from before it is published, and what is published follows from what is
stored. docs/decisions/0014 says what holds when Redis or the coordinator is lost at any step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from aggregator.clock import SYSTEM, Clock
from aggregator.config.live_metrics import current
from aggregator.config.settings import Settings
from aggregator.errors import DitherError, StateUnreadable
from aggregator.kafka import topic_admin
from aggregator.kafka.log_ends import KafkaLog, LogEnds
from aggregator.publishing import events
from aggregator.publishing.event_producer import EventProducer
from aggregator.publishing.events import Event
from aggregator.publishing.leader import Leader
from aggregator.reading.reader import MetricReader
from aggregator.state.pane_keys import metric_key
from aggregator.storage import parsing
from aggregator.storage.progress import TopicProgress
from aggregator.storage.redis_keys import coordinator_key, rounds_key
from aggregator.timestamps import iso
from aggregator.tracing.spans import Attributes, Span, Tracer, ending
from estimators import Metric, SearchMetric
from estimators.durations import milliseconds
from estimators.estimate import Counts
from estimators.extremes import Progress
from producers.device.round_follower import Rounds
from producers.device.rounds import ROUND_EVENT_TYPE, Round, encode
from producers.kafka.connection import PRODUCER_ONLY

LOOK_SECONDS = 0.25
NOTHING = -1
"""The next offset of a partition of which nothing is counted."""

log = structlog.get_logger("dither.coordinator")


class Changed(DitherError):  # noqa: N818
    """Redis has another round than this coordinator has written: to be looked at anew."""


class Coordinator(Leader):
    """Opens, closes and decides rounds, for as long as it has the lease.

    Parameters
    ----------
    settings : Settings
    reader : MetricReader
        Of all metrics; those that are asked in rounds are coordinated.
    clock : Clock
    tracer : Tracer, optional
        Of the spans of rounds; none are recorded if it is left out.
    """

    work, log = "coordinate", log

    def __init__(
        self,
        settings: Settings,
        reader: MetricReader,
        clock: Clock = SYSTEM,
        tracer: Tracer | None = None,
    ) -> None:
        self.settings, self.reader, self._clock = settings, reader, clock
        self._tracer = tracer or Tracer()
        self._topic, self._client = settings.topics.rounds, reader.store.client
        self._key = coordinator_key(settings.topics.reports)
        super().__init__(self._client, self._key, milliseconds(settings.coordinate.lease) / 1000)
        self._metrics: list[SearchMetric] = []
        self._has_searches: bool | None = None
        self._open: dict[str, Round] = {}
        self._log_ends, self._ends = KafkaLog(settings), dict[str, LogEnds]()

    def _has_task(self) -> bool:
        """Whether a metric is a minimum or maximum; said in the log when it changes."""
        has_searches = bool(_searches(current(self.reader.metrics)))
        if has_searches != self._has_searches:
            self._has_searches = has_searches
            if not has_searches:
                log.info("waiting", why="no metric is a minimum or maximum")
        return has_searches

    def _lead(self) -> None:
        """Coordinate as the only one, until something fails."""
        self._at("leading")
        defined = current(self.reader.metrics)
        self._metrics = _searches(defined)
        topic_admin.ensure_topics(self.settings, self._topic)
        identity = f"dither.coordinator.{self.settings.topics.reports}"
        self._producer = EventProducer(self.settings, self._topic, identity)
        with contextlib.closing(self._producer):
            self._at("fenced the others")
            published = self._read_published()
            for metric in self._metrics:
                self._resume(metric, published.get(metric_key(metric.name, metric.revision)))
            log.info("coordinator started", topic=self._topic, epoch=self.lease.epoch)
            while self._still_leads(self.reader.metrics, defined):
                overview = self.reader.store.overview()
                for metric in self._metrics:
                    self._look(overview, metric)
                self._check()
                self._stopping.wait(LOOK_SECONDS)

    # -- Taking over ------------------------------------------------------------------------------

    def _read_published(self) -> Mapping[str, Round]:
        """Return the newest round of each metric that is on the topic, by metric key."""
        config = {k: v for k, v in self.settings.kafka.items() if k not in PRODUCER_ONLY}
        group = f"{self.settings.aggregate.group}-coordinator"
        with Rounds({**config, "group.id": group}, self._topic) as rounds:
            try:
                rounds.read_to_end(self._metrics)
            except TimeoutError as error:
                raise DitherError(str(error)) from None
            found = [(metric, rounds.latest(metric)) for metric in self._metrics]
        return {metric_key(m.name, m.revision): one for m, one in found if one is not None}

    def _resume(self, metric: SearchMetric, newest: Round | None) -> None:
        """Resume a search. The topic has the rounds that devices have answered.

        The stored round wins if it follows from the topic's by a decision that was not published
        yet; otherwise the topic's round wins. If there is neither, the search begins.
        """
        key = metric_key(metric.name, metric.revision)
        text: Any = self._client.hget(self._stored, key) or b""
        stored = self._read(text, metric)
        if newest is not None and newest != Round.of(metric, newest.progress, newest.opened_ms):
            raise DitherError(
                f"topic {self._topic!r} has a round of {metric.name!r} that does not follow from "
                f"its decisions: {newest}. Another program wrote it: delete the topic, and it is "
                "written again from Redis"
            )
        if newest is not None and (stored is None or not stored.extends(newest)):
            current = newest
        else:
            current = stored or Round.of(metric, Progress(), self._clock.now_ms())
        if current.opened_ms > (now := self._clock.now_ms()):  # it would not be over for ever
            log.warning("round of the future", metric=metric.name, opened_ms=current.opened_ms)
            current = msgspec.structs.replace(current, opened_ms=now)
        self._at("resuming", metric=metric.name, round=current.number)
        self._store(metric, text, current)
        if newest is None or newest != current:
            self._tell(metric, current)
        self._note(metric, current)
        self._at("resumed", metric=metric.name, round=current.number)

    @property
    def _stored(self) -> str:
        return f"{self._key}:stored"

    def _read(self, text: bytes, metric: SearchMetric) -> Round | None:
        """Return a round that was stored; None where it is none: the topic has the last one."""
        try:
            return parsing.open_round(self._stored, text, metric) if text else None
        except StateUnreadable:
            log.warning("stored round is not valid", key=self._stored, metric=metric.name)
            return None

    # -- Deciding ---------------------------------------------------------------------------------

    def _look(self, overview: TopicProgress, metric: SearchMetric) -> None:
        """Decide a metric's round, if it is to be closed, and open the next one."""
        opened = self._open[metric.name]
        if opened.is_over:
            return
        statistic = self._answers(overview, metric, opened)
        if not self._is_due(overview, metric, opened, statistic):
            return
        about: Attributes = {"dither.metric": metric.name, "dither.round": opened.number}
        span = self._tracer.begin("round", about, start_ns=opened.opened_ms * 1_000_000)
        with ending(span):
            self._decide(metric, opened, statistic, span)

    def _decide(self, metric: SearchMetric, opened: Round, statistic: Counts, span: Span) -> None:
        """Decide a round, and open the next one."""
        self._at("deciding", metric=metric.name, round=opened.number)
        span.note("closed")
        progress = metric.search.decide(opened.progress, statistic)
        following = Round.of(metric, progress, self._clock.now_ms())
        self._store(metric, encode(opened), following)
        self._at("stored", metric=metric.name, round=opened.number)
        span.note("stored")
        self._tell(metric, following)
        self._at("told", metric=metric.name, round=opened.number)
        span.note("published")
        self._note(metric, following)
        self._at("noted", metric=metric.name, round=opened.number)
        made = progress.decisions[-1]
        span.put({"dither.answers": sum(made.answers)})
        log.info(
            "decided",
            metric=metric.name,
            round=opened.number,
            answers=sum(made.answers),
            threshold=made.threshold,
            outwards=made.outwards,
        )

    def _answers(self, overview: TopicProgress, metric: SearchMetric, opened: Round) -> Counts:
        """Return the statistic of a round's answers that are counted."""
        described = self.reader.describe(overview, metric.name)
        return self.reader.sums.of_round(metric, opened.number, [*described.watermarks])

    def _is_due(
        self, overview: TopicProgress, metric: SearchMetric, opened: Round, statistic: Counts
    ) -> bool:
        """Return whether a round has its answers; or its time is over, and everything counted."""
        answers = int(metric.counts(statistic).sum())
        if metric.round_reports is not None and answers >= metric.round_reports:
            return True
        end = opened.opened_ms + metric.round_ms
        if answers < metric.minimum_reports or self._clock.now_ms() < end:
            return False
        return self._is_counted(overview, metric)

    def _is_counted(self, overview: TopicProgress, metric: SearchMetric) -> bool:
        """Return whether everything is counted that was in the log after the round's time was over.

        Where the log ended then Kafka is asked once; as long as it does not say, nobody knows. The
        answers were read since the overview: not while Redis went back, or was emptied.
        """
        ends = self._ends.get(metric.name)
        if ends is None:
            ends = self._log_ends.ask()
            if ends.unknown:
                self._at("waiting for Kafka", metric=metric.name, why=ends.unknown)
                return False
            self._ends[metric.name] = ends
        counted = {number: one.next_offset for number, one in overview.partitions.items()}
        is_counted = all(ends.lag(n, counted.get(n, NOTHING)) == 0 for n in ends.ranges)
        return is_counted and self.reader.store.is_same_history(overview)

    # -- Storing and telling ----------------------------------------------------------------------

    def _store(self, metric: SearchMetric, before: bytes, following: Round) -> None:
        """Store a round in place of the one before it: of two decisions of one, the first stays."""
        self._check()
        key, text = metric_key(metric.name, metric.revision), encode(following)
        if text != before and not self.lease.swap(self._stored, key, before, text):
            raise Changed(
                f"Redis has another round of {metric.name!r} than before: it is read again"
            )

    def _tell(self, metric: SearchMetric, following: Round) -> None:
        """Put a round on the topic."""
        self._check()
        self._producer.publish([event(metric, following, self.settings.topics.reports)])

    def _note(self, metric: SearchMetric, opened: Round) -> None:
        """Let readers, and devices that ask over HTTP, know of a round that is on the topic."""
        key = metric_key(metric.name, metric.revision)
        place = rounds_key(self.settings.topics.reports)
        self.lease.write([["HSET", place, key, encode(opened)]])
        self._open[metric.name] = opened
        self._ends.pop(metric.name, None)

    def _at(self, step: str, **facts: object) -> None:
        log.debug(step, **facts)


def _searches(metrics: Mapping[str, Metric]) -> list[SearchMetric]:
    return [metric for metric in metrics.values() if isinstance(metric, SearchMetric)]


def event(metric: SearchMetric, opened: Round, reports: str) -> Event:
    """Return a round as an event: the newest of a metric stays on the compacted topic.

    Parameters
    ----------
    metric : SearchMetric
        A minimum or maximum.
    opened : Round
        The round.
    reports : str
        Name of the reports topic, of which the event's source is made.
    """
    key, time = metric_key(metric.name, metric.revision), iso(opened.opened_ms)
    assert time is not None  # noqa: S101
    identity = f"{key}/round/{len(opened.decisions)}"
    origin = events.source(reports)
    return Event(identity, ROUND_EVENT_TYPE, origin, metric.name, time, key, encode(opened))
