"""What a question costs Redis does not depend on how many other metrics there are."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
from redis.connection import AbstractConnection

from aggregator.config.definitions import MetricDefinitions
from aggregator.config.settings import Settings
from aggregator.features.alarms.alarm_answers import all_alarms
from aggregator.features.alarms.definitions import AlarmDefinition
from aggregator.features.alarms.run import AlarmRun
from aggregator.features.comparisons.changes import Changes
from aggregator.features.comparisons.definitions import ComparisonDefinition
from aggregator.features.comparisons.run import ComparisonRun
from aggregator.features.reader import Reader
from aggregator.monitoring.collector import Exporter
from aggregator.publishing.due_events import Publication
from aggregator.publishing.pane_finalizer import PaneFinalizer
from aggregator.publishing.published_log import PublishedLog
from aggregator.storage.lease import Lease
from aggregator.storage.redis_keys import tag
from aggregator.storage.store import Store
from estimators import Metric, define
from producers.wire.reports_pb2 import Attribute
from tests.support.metrics import BY_COUNTRY
from tests.support.reports.counted import Counting
from tests.support.reports.messages import EPOCH, batch
from tests.support.rows import row

PARTITIONS, HOURS, HOUR_MS = 3, 30, 3_600_000
GERMANY, FRANCE = {"country": "DE"}, {"country": "FR"}
START, CLOSED = EPOCH + 27 * HOUR_MS, EPOCH + 29 * HOUR_MS
WATCH: dict[str, Any] = {"metric": "asked", "start_ms": START}
ARMS = ComparisonDefinition(name="arms", where=GERMANY, against=FRANCE, **WATCH)
HOURLY: dict[str, Any] = {"every_ms": HOUR_MS, "false_alarms": 1e-3, "promise": "1/1000h"}
MOVED = AlarmDefinition(name="moved", baseline_value=0.5, **HOURLY, **WATCH)
MAX_MORE_BYTES = 1.01
"""Offsets and numbers of panes have more digits where more is counted."""


@dataclasses.dataclass
class Cost:
    """What was sent to Redis and received: requests, their commands, and bytes."""

    round_trips: int = 0
    commands: int = 0
    nbytes: int = 0


def nbytes_of(reply: Any) -> int:
    """Return the bytes of a parsed reply; a number has eight."""
    if isinstance(reply, bytes):
        return len(reply)
    if isinstance(reply, dict):
        return sum(nbytes_of(part) for pair in reply.items() for part in pair)
    return sum(map(nbytes_of, reply)) if isinstance(reply, list | tuple | set) else 8


def metrics_of(count: int) -> dict[str, Metric]:
    names = ["asked", *(f"also_{number}" for number in range(count - 1))]
    options: dict[str, Any] = {
        "range": (0, 1),
        "levels": [1, 4],
        "minimum_reports": 1,
        **BY_COUNTRY,
    }
    return {name: define(name=name, kind="mean", **options) for name in names}


def counted(store: Store, count: int) -> Reader:
    """Return a reader of so many metrics, each with reports of 30 hours in every partition."""
    store.client.flushdb()
    metrics = metrics_of(count)
    counting = Counting(store, metrics)
    for number in range(PARTITIONS):
        batches = [
            batch(metric, [0.5] * 3, 4.0, EPOCH + hour * HOUR_MS, seed, attributes=[country])
            for metric in metrics.values()
            for hour in range(0, HOURS, 1 if metric.name == "asked" else 10)
            for seed in range(1000 * hour, 1000 * hour + 8)
            for country in [Attribute(name="country", value="DE" if seed % 2 else "FR")]
        ]
        counting.count(number, *batches, partitions=PARTITIONS)
    features: dict[str, Any] = {"comparisons": {"arms": ARMS}, "alarms": {"moved": MOVED}}
    return Reader(store, MetricDefinitions(metrics, **features))


def compare_panes(reader: Reader) -> list[Any]:
    """Return the decisions of two panes, which the publisher compares."""
    return [*ComparisonRun(reader, ARMS).due(reader.progress("asked"), {"asked": CLOSED})]


def watch_panes(reader: Reader) -> list[Any]:
    """Return two panes that the publisher watches for an alarm."""
    return [*AlarmRun(reader, MOVED).advance(reader.progress("asked"), CLOSED)]


@pytest.fixture
def cost(monkeypatch: pytest.MonkeyPatch) -> Cost:
    """Return what all connections have cost so far."""
    cost, connection = Cost(), AbstractConnection
    send: Any = connection.send_packed_command
    read: Any = connection.read_response

    def noted_send(self: Any, command: Any, *arguments: Any, **options: Any) -> Any:
        cost.round_trips += 1
        cost.nbytes += sum(map(len, [command] if isinstance(command, bytes) else command))
        return send(self, command, *arguments, **options)

    def noted_read(self: Any, *arguments: Any, **options: Any) -> Any:
        reply = read(self, *arguments, **options)
        cost.commands += 1
        cost.nbytes += nbytes_of(reply)
        return reply

    monkeypatch.setattr(connection, "send_packed_command", noted_send)
    monkeypatch.setattr(connection, "read_response", noted_read)
    return cost


def spent(cost: Cost, call: Callable[[], object]) -> Cost:
    before = dataclasses.astuple(cost)
    call()
    return Cost(*(b - a for a, b in zip(before, dataclasses.astuple(cost), strict=True)))


def test_a_question_reads_its_own_metric_whatever_else_there_is(store: Store, cost: Cost) -> None:
    """Of three round trips the first reads the progress, the others the keys of the metric."""
    by = ["country"]
    noon = EPOCH / 1000 + 12 * 3600
    day: dict[str, Any] = {"start": EPOCH / 1000, "end": noon}
    questions: dict[str, tuple[Callable[[Reader], Any], int, int]] = {
        "running total": (lambda reader: reader.estimate("asked"), 3, 51),
        "final window": (lambda reader: reader.estimate("asked", **day), 3, 39),
        "slices": (lambda reader: reader.estimate("asked", by=by), 3, 72),
        "slice": (lambda reader: reader.estimate("asked", where=GERMANY, **day), 3, 57),
        "two slices": (lambda reader: reader.compare("asked", GERMANY, FRANCE), 3, 126),
        "two windows": (
            lambda reader: reader.compare("asked", against={}, **day, against_start=noon),
            3,
            72,
        ),
        "two metrics": (lambda reader: reader.compare("asked", against={}, other="also_0"), 3, 90),
        "change": (lambda reader: Changes(reader).read("asked", None), 3, 60),
        "comparison in the definitions": (lambda reader: reader.comparison("arms"), 3, 130),
        "alarms": (all_alarms, 1, 1),
        "two panes of a comparison": (compare_panes, 5, 174),
        "two panes of an alarm": (watch_panes, 5, 60),
        "series": (lambda reader: reader.series("asked", step="1h"), 3, 39),
        "series of slices": (lambda reader: reader.series("asked", step="1h", by=by), 5, 123),
        "series of final steps": (lambda reader: reader.series("asked", **day), 1, 18),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in questions}
    for count in (4, 20):
        reader = counted(store, count)
        for name, (ask, *_) in questions.items():
            ask(reader)  # what is kept: which partitions and chunks there are, final steps
            costs[name].append(spent(cost, functools.partial(ask, reader)))
    for name, (_, *expected) in questions.items():
        few, many = costs[name]
        with row(name):
            assert [[each.round_trips, each.commands] for each in (few, many)] == [expected] * 2
            assert few.nbytes <= many.nbytes <= MAX_MORE_BYTES * few.nbytes


def test_a_look_at_all_metrics_takes_the_same_round_trips(store: Store, cost: Cost) -> None:
    costs = []
    for count in (4, 20):
        reader = counted(store, count)
        reader.comparison("arms")  # what is kept: which partitions and chunks there are
        exporter, overview = Exporter(reader, 5), store.overview()
        lease = Lease(store.client, "publisher", "test", 60)
        published = PublishedLog(store.client, lease, "publisher", Settings())
        finalizer = PaneFinalizer(Publication(reader, published, "", 0), 5)
        publish = functools.partial(finalizer.provisional_events, overview)
        looks = (exporter.collect, exporter.collect, publish)
        costs.append([spent(cost, look).round_trips for look in looks])
    assert costs == [[14, 9, 3], [14, 9, 3]]


def test_the_names_of_chunks_are_read_again_only_after_there_are_others(store: Store) -> None:
    def scans() -> int:
        statistics: Any = store.client.info("commandstats")
        return int(statistics.get("cmdstat_sscan", {}).get("calls", 0))

    reader = counted(store, 2)
    first = reader.estimate("asked", by=["country"])
    before = scans()
    assert reader.estimate("asked", by=["country"]).to_frame() is not None
    assert scans() == before
    store.client.sadd(f"{tag(store.topic, 0)}:indexed", "pane:other@00000000")
    again = reader.estimate("asked", by=["country"])
    assert scans() == before + PARTITIONS
    assert [*again.to_frame()] == [*first.to_frame()]
