"""The coordinator: resumes, opens, closes and decides the rounds of minimum and maximum.

Several processes may run a coordinator; a lease in Redis lets one of them work at a time. A
decision is stored with its answers before it is published, so that Redis has all that is published.
docs/decisions/0014 covers a loss of Redis or of the coordinator at any step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from aggregator.clock import SYSTEM_CLOCK, Clock
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
from aggregator.tracing import Attributes, Span, Tracer, ending
from estimators import Metric, SearchMetric
from estimators.estimate import Counts
from estimators.extremes import Progress
from producers.device.round_follower import Rounds
from producers.device.rounds import ROUND_EVENT_TYPE, Round, encode

ROUND_CHECK_SECONDS = 0.25
NOTHING_COUNTED = -1
"""The next offset of a partition in which nothing is counted yet."""

log = structlog.get_logger("dither.coordinator")


class RoundChanged(DitherError):  # noqa: N818
    """Raised if this coordinator did not write the round in Redis, which must be reloaded."""


class PublishedRounds(Rounds):
    """Reads the rounds of a deployment, and records those of other deployments on the same topic.

    Parameters
    ----------
    config, topic
        As for :class:`Rounds`.
    source : str
        The source of the deployment's events.

    Attributes
    ----------
    others : dict of str to str
        The sources of other deployments' rounds, by metric key.
    """

    def __init__(self, config: Mapping[str, Any], topic: str, source: str) -> None:
        super().__init__(config, topic)
        self._source, self.others = source, dict[str, str]()

    def _store_round(self, message: Any) -> int:
        event = Event.parse(message) if message.error() is None else None
        if event is not None and event.source != self._source:
            self.others[event.key] = event.source
        return super()._store_round(message)


class Coordinator(Leader):
    """Opens, closes and decides rounds while it holds the lease.

    Parameters
    ----------
    reader : MetricReader
        A reader of all metrics; those with rounds are coordinated.
    tracer : Tracer, optional
        Records a span of each round.
    """

    work, log = "coordinate", log

    def __init__(
        self,
        settings: Settings,
        reader: MetricReader,
        clock: Clock = SYSTEM_CLOCK,
        tracer: Tracer | None = None,
    ) -> None:
        key = coordinator_key(settings.topics.reports)
        super().__init__(settings, reader, key, settings.coordinate.lease, tracer)
        self._topic, self._clock, self._stored = settings.topics.rounds, clock, f"{key}:stored"
        self._metrics: list[SearchMetric] = []
        self._has_searches: bool | None = None
        self._open: dict[str, Round] = {}
        self._log_ends, self._ends = KafkaLog(settings), dict[str, LogEnds]()

    def _has_task(self) -> bool:
        """Return whether a metric is a minimum or maximum; log once if none is."""
        has_searches = bool(_searches(current(self.reader.metrics)))
        if has_searches != self._has_searches:
            self._has_searches = has_searches
            if not has_searches:
                log.info("waiting", why="no metric is a minimum or maximum")
        return has_searches

    def _lead(self) -> None:
        """Open and decide rounds as the leader, until a failure or a change of the definitions."""
        self._log_step("leading")
        defined = current(self.reader.metrics)
        self._metrics = _searches(defined)
        topic_admin.ensure_topics(self.settings, self._topic)
        identity = f"dither.coordinator.{self.settings.topics.reports}"
        self._producer = EventProducer(self.settings, self._topic, identity)
        with contextlib.closing(self._producer):
            self._log_step("fenced the others")
            published = self._read_published()
            for metric in self._metrics:
                self._resume(metric, published.get(metric_key(metric.name, metric.revision)))
            self._log_start("coordinator started", self._topic)
            while self._still_leads(defined):
                overview = self.reader.store.overview()
                for metric in self._metrics:
                    self._decide_due_round(overview, metric)
                self._verify_lease()
                self._stopping.wait(ROUND_CHECK_SECONDS)

    def _read_published(self) -> Mapping[str, Round]:
        """Return the newest round on the topic, by metric key."""
        group = f"{self.settings.aggregate.group}-coordinator"
        properties = {**self.settings.kafka, "group.id": group}
        source = events.source(self.settings.topics.reports)
        with PublishedRounds(properties, self._topic, source) as rounds:
            try:
                rounds.read_to_end(self._metrics)
            except TimeoutError as error:
                raise DitherError(str(error)) from None
            keys = {metric_key(metric.name, metric.revision): metric for metric in self._metrics}
            for key in keys.keys() & rounds.others.keys():
                raise DitherError(
                    f"topic {self._topic!r} has rounds of {key} from {rounds.others[key]!r}, not "
                    f"from {source!r}: a deployment that asks the same needs its own topic "
                    "(`topics.rounds`)"
                )
            newest = {key: rounds.latest(metric) for key, metric in keys.items()}
            return {key: latest for key, latest in newest.items() if latest is not None}

    def _resume(self, metric: SearchMetric, newest: Round | None) -> None:
        """Resume a search from the newest round on the topic, which devices have answered.

        The stored round is used instead if it has one more decision, which was not published. If
        there is neither round, the search begins.
        """
        key = metric_key(metric.name, metric.revision)
        (text,) = self.reader.store.ask([("HGET", self._stored, key)])
        text = text or b""
        stored = self._decode_stored(text, metric)
        if newest is not None and newest != Round.of(metric, newest.progress, newest.opened_ms):
            raise DitherError(
                f"topic {self._topic!r} has a round of {metric.name!r} that does not follow from "
                f"its decisions: {newest}. Another program wrote it: delete the topic, and it is "
                "written again from Redis"
            )
        if newest is not None and (stored is None or not stored.extends(newest)):
            resumed_round = newest
        else:
            resumed_round = stored or Round.of(metric, Progress(), self._clock.now_ms())
        if resumed_round.opened_ms > (now := self._clock.now_ms()):  # it would not close in time
            log.warning(
                "stored round opens in the future",
                metric=metric.name,
                opened_ms=resumed_round.opened_ms,
            )
            resumed_round = msgspec.structs.replace(resumed_round, opened_ms=now)
        self._log_step("resuming", metric=metric.name, round=resumed_round.number)
        self._store(metric, text, resumed_round)
        if newest is None or newest != resumed_round:
            self._publish(metric, resumed_round)
        self._note_open(metric, resumed_round)
        self._log_step("resumed", metric=metric.name, round=resumed_round.number)

    def _decode_stored(self, text: bytes, metric: SearchMetric) -> Round | None:
        """Return a stored round; None if it is invalid, so that the topic's round is used."""
        try:
            return parsing.open_round(self._stored, text, metric) if text else None
        except StateUnreadable:
            log.warning("stored round is not valid", key=self._stored, metric=metric.name)
            return None

    def _decide_due_round(self, overview: TopicProgress, metric: SearchMetric) -> None:
        """Decide a metric's round, if it is due, and open the next one."""
        open_round = self._open[metric.name]
        if open_round.is_over:
            return
        statistic = self._answers(overview, metric, open_round)
        if not self._is_due(overview, metric, open_round, statistic):
            return
        attributes: Attributes = {"dither.metric": metric.name, "dither.round": open_round.number}
        span = self._tracer.begin("round", attributes, start_ns=open_round.opened_ms * 1_000_000)
        with ending(span):
            self._decide(metric, open_round, statistic, span)

    def _decide(
        self, metric: SearchMetric, open_round: Round, statistic: Counts, span: Span
    ) -> None:
        """Decide a round, and open the next one."""
        self._log_step("deciding", metric=metric.name, round=open_round.number)
        span.note("closed")
        progress = metric.search.decide(open_round.progress, statistic)
        next_round = Round.of(metric, progress, self._clock.now_ms())
        self._store(metric, encode(open_round), next_round)
        self._log_step("stored", metric=metric.name, round=open_round.number)
        span.note("stored")
        self._publish(metric, next_round)
        self._log_step("told", metric=metric.name, round=open_round.number)
        span.note("published")
        self._note_open(metric, next_round)
        self._log_step("noted", metric=metric.name, round=open_round.number)
        decision = progress.decisions[-1]
        span.put({"dither.answers": sum(decision.answers)})
        log.info(
            "decided",
            metric=metric.name,
            round=open_round.number,
            answers=sum(decision.answers),
            threshold=decision.threshold,
            outwards=decision.outwards,
        )

    def _answers(self, overview: TopicProgress, metric: SearchMetric, open_round: Round) -> Counts:
        """Return the statistic of a round's counted answers."""
        described = self.reader.describe(overview, metric.name)
        return self.reader.sums.read_round(metric, open_round.number, [*described.watermarks])

    def _is_due(
        self, overview: TopicProgress, metric: SearchMetric, open_round: Round, statistic: Counts
    ) -> bool:
        """Return whether a round can be decided: it has `round_reports`, or its time is over.

        If its time is over, it also needs `minimum_reports`, and all answers must be counted.
        """
        answers = int(metric.counts(statistic).sum())
        if metric.round_reports is not None and answers >= metric.round_reports:
            return True
        end = open_round.opened_ms + metric.round_ms
        if answers < metric.minimum_reports or self._clock.now_ms() < end:
            return False
        return self._is_counted(overview, metric)

    def _is_counted(self, overview: TopicProgress, metric: SearchMetric) -> bool:
        """Return whether the log is counted up to where it ended after the round's time.

        Kafka is asked for this end once. The answers were read after the overview, so the result is
        valid only if Redis has lost no data since.
        """
        ends = self._ends.get(metric.name)
        if ends is None:
            ends = self._log_ends.ask()
            if ends.unknown:
                self._log_step("waiting for Kafka", metric=metric.name, why=ends.unknown)
                return False
            self._ends[metric.name] = ends
        counted = {number: progress.next_offset for number, progress in overview.partitions.items()}
        is_counted = all(ends.lag(n, counted.get(n, NOTHING_COUNTED)) == 0 for n in ends.ranges)
        return is_counted and self.reader.store.is_same_history(overview)

    def _store(self, metric: SearchMetric, stored_text: bytes, next_round: Round) -> None:
        """Replace the stored round; raise RoundChanged if it is no longer `stored_text`."""
        self._verify_lease()
        key, text = metric_key(metric.name, metric.revision), encode(next_round)
        writes = [("HSET", self._stored, key, text)]
        expected = {key: stored_text}
        if text != stored_text and not self.lease.write(writes, self._stored, expected):
            raise RoundChanged(f"the round of {metric.name!r} changed in Redis: reloading it")

    def _publish(self, metric: SearchMetric, next_round: Round) -> None:
        """Publish a round to the topic."""
        self._verify_lease()
        self._producer.publish([round_event(metric, next_round, self.settings.topics.reports)])

    def _note_open(self, metric: SearchMetric, open_round: Round) -> None:
        """Store a published round for readers, and for devices that use HTTP."""
        key = metric_key(metric.name, metric.revision)
        self.lease.write(
            [["HSET", rounds_key(self.settings.topics.reports), key, encode(open_round)]]
        )
        self._open[metric.name] = open_round
        self._ends.pop(metric.name, None)

    def _log_step(self, step: str, **facts: object) -> None:
        log.debug(step, **facts)


def _searches(metrics: Mapping[str, Metric]) -> list[SearchMetric]:
    return [metric for metric in metrics.values() if isinstance(metric, SearchMetric)]


def round_event(metric: SearchMetric, open_round: Round, reports: str) -> Event:
    """Return the event of a round; compaction keeps the newest event of each metric.

    `metric`: the metric; `open_round`: the round; `reports`: the name of the reports topic, for the
    event's source.
    """
    key, time = metric_key(metric.name, metric.revision), iso(open_round.opened_ms)
    identity = f"{key}/round/{len(open_round.decisions)}"
    origin = events.source(reports)
    return Event(identity, ROUND_EVENT_TYPE, origin, metric.name, time, key, encode(open_round))
