"""What each role does, by the product's own code: as much as needs each of its rights."""

import uuid
from collections.abc import Callable, Mapping
from typing import Any

import redis
import structlog.testing

from aggregator.config.settings import Settings
from aggregator.counting import recount as recounting
from aggregator.counting.worker import Worker
from aggregator.features.reader import Reader
from aggregator.features.rounds.coordinator import Coordinator
from aggregator.kafka import clients, topic_admin
from aggregator.kafka.log_ends import KafkaLog
from aggregator.monitoring.collector import Exporter
from aggregator.publishing import events
from aggregator.publishing.events import Event
from aggregator.publishing.published_log import PublishedLog
from aggregator.publishing.publisher import Publisher
from aggregator.state.watermark import CONFIRMING_BATCHES
from aggregator.storage.connection import connect
from aggregator.storage.eviction import refuse_eviction
from aggregator.storage.lease import Lease
from aggregator.storage.redis_keys import coordinator_key, publisher_key, tag
from aggregator.storage.store import Store
from aggregator.verifying.verify import verify
from estimators import Metric, define
from producers import Reporter, Rounds
from tests.support.reports.messages import EPOCH, batch, log
from tests.support.running.deployment import in_a_thread, wait_until

Metrics = Mapping[str, Metric]
FUTURE_MS = 10**12
HOUR = 3_600_000


class Denied(Exception):  # noqa: N818
    """What a service that goes on trying says of a right that it lacks."""


def open_store(settings: Settings) -> Store:
    return Store(connect(settings.redis.url), settings.topics.reports)


# -- Kafka --------------------------------------------------------------------------------------


def report(settings: Settings, metrics: Metrics) -> None:
    topic_admin.ensure_topics(settings, settings.topics.reports)
    properties = {**clients.reporter_properties(settings), "message.timeout.ms": 60_000}
    with Reporter(metrics["delay"], properties, topic=settings.topics.reports) as reporter:
        reporter.report([1.0, 2.0], epsilon=1.0, time=EPOCH / 1000)
        reporter.flush(60)


def count(settings: Settings, metrics: Metrics) -> None:
    """Count until there is a report, and a dead letter."""
    with open_store(settings) as store:
        worker = Worker(settings, metrics, store, "worker")

        def has_counted() -> bool:
            counts = [store.counts(number) for number in range(settings.topics.partitions)]
            return {"accepted:delay", "malformed:"} <= {name for found in counts for name in found}

        _run_until(worker, done=has_counted)


def publish(settings: Settings, metrics: Metrics) -> None:
    """Publish, until there is something new on the topic."""
    with open_store(settings) as store:
        _run_until(Publisher(settings, Reader(store, metrics)), "published")


def coordinate(settings: Settings, metrics: Metrics) -> None:
    """Coordinate, until the round that is open is on the topic."""
    with open_store(settings) as store:
        _run_until(Coordinator(settings, Reader(store, metrics)), "coordinator started")
    look(settings, metrics)  # as it does before it closes a round


def respond(settings: Settings, metrics: Metrics) -> None:
    properties = {**clients.reporter_properties(settings), "message.timeout.ms": 60_000}
    metric, topics = metrics["longest"], settings.topics
    with (
        Rounds(clients.reporter_properties(settings), topics.rounds) as rounds,
        Reporter(metric, properties, topic=topics.reports) as reporter,
    ):
        rounds.read_to_end([metric])
        asked = rounds.latest(metric)
        assert asked is not None
        reporter.answer(asked, 1.0, epsilon=1.0)
        reporter.flush(60)


def prove(settings: Settings, metrics: Metrics) -> None:
    clients.admin(settings, settings.topics.reports)
    with open_store(settings) as store:
        outcome = verify(settings, metrics, store)
    assert outcome.verified
    assert outcome.messages


def look(settings: Settings, _: Metrics) -> None:
    """Ask where the log ends, as whoever shows lag does."""
    ends = KafkaLog(settings).ask(30.0)
    if ends.unknown:
        raise Denied(ends.unknown)
    assert len(ends.ranges) == settings.topics.partitions


def recount(settings: Settings, _: Metrics) -> None:
    """Ask what `dither recount` asks of Kafka."""
    look(settings, _)
    topic_admin.topic_id(settings, settings.topics.reports)


def delete(settings: Settings, _: Metrics) -> None:
    with open_store(settings) as store:
        recounting.read_owner(store, 0)
        assert recounting.delete_counts(store, 0) == 1


def create(settings: Settings, _: Metrics) -> None:
    assert topic_admin.ensure_topics(settings)


def _run_until(
    service: Worker | Publisher | Coordinator,
    done_when: str = "",
    done: Callable[[], bool] = lambda: False,
) -> None:
    """Run a service until it has done its work, or says that it is not allowed to."""
    with (
        structlog.testing.capture_logs() as told,
        in_a_thread(service.run, service.stop) as failures,
    ):

        def over() -> bool:
            says_so = any(line["event"] == done_when for line in told)
            return bool(failures or _denials(told)) or says_so or done()

        wait_until(over, "done or denied")
    if denials := _denials(told):
        raise Denied(denials[0])


def _denials(told: list[Any]) -> list[str]:
    errors = [str(line.get("error", "")) for line in told]
    return [e for e in errors if "authorization failed" in e or "permission" in e]


# -- Redis --------------------------------------------------------------------------------------


def keep(settings: Settings, metrics: Metrics) -> None:
    """Do all that a worker and its supervisor do in Redis."""
    with open_store(settings) as store:
        refuse_eviction(store.client)
        number = 0
        snapshot = store.partition.acquire(number, "worker")
        assert not snapshot.open
        epoch = int(snapshot.owner["epoch"])
        partition = snapshot.partition(metrics, FUTURE_MS)
        partition.count(log(batch(metrics["delay"], [1.0], seed=1)))
        store.partition.commit(number, epoch, -1, partition, {"high": 1})
        _count_limited(store, number + 1)
        assert store.partition.acquire(number, "worker").open
        hours = range(1, 3 + CONFIRMING_BATCHES)
        later = [batch(metrics["delay"], [1.0], 1, EPOCH + i * HOUR, i) for i in hours]
        partition.count(log(*later, first=1))
        store.partition.commit(number, epoch + 1, 1, partition, {"high": 1 + len(later)})
        store.registry.store_definitions("digest", b"{}")
        store.registry.definitions()
        store.owner(number)
        store.registry.add_worker_death()
        store.registry.note_stuck("worker", "counting", 1.0, 0)
        store.registry.note_stuck("worker", "counting", 0.0, 0)
        _find_faults(store, number)


def _count_limited(store: Store, number: int) -> None:
    """Add twice to an open pane whose message keys are counted."""
    metric = define(
        name="age", kind="mean", mechanism="laplace", range=(0, 9), levels=[1], max_key_reports=9
    )
    snapshot = store.partition.acquire(number, "worker")
    partition = snapshot.partition({"age": metric}, FUTURE_MS)
    for offset, expected in ((0, -1), (1, 1)):
        partition.count(log(batch(metric, [1.0], seed=offset), first=offset))
        store.partition.commit(number, int(snapshot.owner["epoch"]), expected, partition, {})


def _find_faults(store: Store, number: int) -> None:
    """Ask what is asked after a script failed: whether a key is there, and of which type."""
    prefix = tag(store.topic, number)
    store.partition._has_appeared(prefix, f"{prefix}:owner")
    store.partition._diagnose(prefix, redis.ResponseError("WRONGTYPE"))


def read(settings: Settings, metrics: Metrics) -> None:
    """Ask everything that `dither serve`, `estimate`, `watch` and `metrics` ask."""
    with open_store(settings) as store:
        reader = Reader(store, metrics)
        reader.estimate("delay")
        reader.estimate("delay", start=EPOCH / 1000, end=EPOCH / 1000 + 7200)
        overview = store.overview()
        reader.series("delay")
        list(Exporter(reader, 20).collect())
        numbers = list(overview.partitions)
        metric = metrics["delay"]
        key = f"delay@{metric.revision:08x}"
        store.panes.extent(key, numbers)
        store.panes.read_slices(key, numbers, lambda keys, ask: ask([]))
        store._has_earlier_watermark(numbers[0], "delay")
        store.registry.publisher_status()
        store.client.info("memory")
        store.registry.leaders()
        store.registry.worker_deaths()
        store.registry.stuck_workers(0)


def lead(settings: Settings, metrics: Metrics) -> None:
    """Do all that a publisher does in Redis besides reading."""
    with open_store(settings) as store:
        key = f"{publisher_key(settings.topics.reports)}:{uuid.uuid4().hex}"
        lease = Lease(store.client, key, "publisher", 10)
        assert lease.acquire()
        assert lease.renew()
        published = PublishedLog(store.client, lease, key, settings)
        published.note_committed([RELEASE], {0: 1})
        assert published.published_panes("delay", 0, 2 * EPOCH)
        published.provisional_ids(["delay"])
        published.verify_intact()
        assert published.draw_once("delay", 0, lambda: b"drawn") == b"drawn"
        published._delete_copy()
        lease.release()
    read(settings, metrics)


def conduct(settings: Settings, metrics: Metrics) -> None:
    """Do all that a coordinator does in Redis."""
    with open_store(settings) as store:
        key = f"{coordinator_key(settings.topics.reports)}:{uuid.uuid4().hex}"
        lease = Lease(store.client, key, "coordinator", 10)
        assert lease.acquire()
        assert lease.renew()
        assert lease.write([["HSET", f"{key}:stored", "longest", "1"]], f"{key}:stored", {"x": ""})
        lease.write([["HSET", f"{key}:published", "longest", b"1"]])
        assert store.client.hget(f"{key}:stored", "longest") == b"1"
        lease.release()
        overview = store.overview()
        Reader(store, metrics).sums.read_round(metrics["longest"], 1, [*overview.partitions])
        store._has_earlier_watermark(0, "longest")


RELEASE = Event(
    id="1",
    type=events.FINAL_TYPE,
    source="/dither",
    subject="delay",
    time="2013-01-01T01:00:00Z",
    key="delay/2013-01-01T00:00:00Z",
    data=b'{"trust": "central"}',
)


def answer_probes(settings: Settings, _: Metrics) -> None:
    with open_store(settings) as store:
        store.registry.rounds()


def weigh(settings: Settings, _: Metrics) -> None:
    with open_store(settings) as store:
        store.registry.set_policy("delay", "uniform")
        assert store.registry.policies()["delay"] == "uniform"


ON_KAFKA: dict[str, Callable[[Settings, Metrics], None]] = {
    "reporter": report,
    "gateway": report,
    "worker": count,
    "reader": look,
    "publisher": publish,
    "respondent": respond,
    "coordinator": coordinate,
    "verifier": prove,
    "recounter": recount,
    "operator": create,
}
ON_REDIS: dict[str, Callable[[Settings, Metrics], None]] = {
    "gateway": answer_probes,
    "worker": keep,
    "reader": read,
    "publisher": lead,
    "coordinator": conduct,
    "verifier": prove,
    "recounter": delete,
    "operator": weigh,
}
