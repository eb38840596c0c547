"""A deployment for tests: topics, a store, workers as processes or threads, and questions."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from aggregator.clock import SYSTEM_CLOCK, Clock
from aggregator.config.definitions import MetricDefinitions
from aggregator.config.settings import Redis as RedisSettings
from aggregator.config.settings import Settings, Topics
from aggregator.counting.worker import Worker
from aggregator.features.reader import Reader
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from aggregator.tracing import Tracer
from aggregator.verifying.state_differences import Verification
from aggregator.verifying.verify import verify
from deploy.kafka.cluster import free_ports
from estimators import Metric
from tests.support.clocks import PATIENCE as PATIENCE
from tests.support.clocks import wait_until as wait_until
from tests.support.running import fleet, http_client
from tests.support.running.servers import Kafka

SESSION_MS = 6_000
"""A worker that gets no processor time for so long loses its partitions."""


@contextlib.contextmanager
def in_a_thread(
    job: Callable[[], object], stop: Callable[[], object] = lambda: None
) -> Iterator[list[BaseException]]:
    """Run a job in a thread, stop it at the end, and raise what it raised meanwhile."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            job()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failures
    finally:
        stop()
        thread.join(2 * PATIENCE)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


def other_database(redis_url: str) -> str:
    """Return the URL of a second database of the same Redis."""
    base, _, query = redis_url.partition("?")
    if base.startswith("unix:"):
        return f"{base}?db=1" + (f"&{query}" if query else "")
    return f"{base.rsplit('/', 1)[0]}/1" + (f"?{query}" if query else "")


def consumer(properties: Mapping[str, Any], topic: str, **more: Any) -> Consumer:
    """Return a consumer for reading a topic, which commits no offsets."""
    looking = {
        "group.id": f"look-{topic}",
        "log_level": 0,  # fault tests take brokers away
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    return Consumer({**looking, **properties, **more})


def read_topic(
    properties: Mapping[str, Any],
    topic: str,
    isolation: str = "read_committed",
    seconds: float = PATIENCE,
) -> list[Message]:
    """Return every message of a topic, up to the end of each partition."""
    found: list[Message] = []
    with contextlib.closing(consumer(properties, topic, **{"isolation.level": isolation})) as read:
        left = set(read.list_topics(topic, timeout=60).topics[topic].partitions)
        read.assign([TopicPartition(topic, number, 0) for number in left])

        def is_read() -> bool:
            for message in read.consume(1_000, timeout=0.2):
                error: Any = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
            return not left

        wait_until(is_read, f"{topic} is read to its end", seconds, pause=0)
    return found


class Deployment:
    """A Dither with its own topics on a shared Kafka, an empty Redis and the metrics of a file."""

    def __init__(
        self,
        kafka: Kafka,
        redis_url: str,
        metrics_file: Path,
        partitions: int = 6,
        max_message_bytes: int = 32_000_000,
    ) -> None:
        self.kafka, self.redis_url, self.metrics_file = kafka, redis_url, metrics_file
        self.metrics: Mapping[str, Metric] = MetricDefinitions.load(metrics_file)
        self.topic = kafka.topic(partitions, max_message_bytes=max_message_bytes)
        self.deadletters = kafka.topic(1, prefix="dead", max_message_bytes=32_000_000)
        self.estimates = self.topic.replace("test", "estimates")
        self.rounds = self.topic.replace("test", "rounds")
        self.partitions = kafka.partitions(self.topic)
        self.settings = Settings(
            metrics=str(metrics_file),
            kafka={
                "bootstrap.servers": kafka.bootstrap_servers,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
            },
            topics=Topics(
                reports=self.topic,
                deadletters=self.deadletters,
                estimates=self.estimates,
                rounds=self.rounds,
                managed=kafka.is_real,
            ),
            redis=RedisSettings(url=redis_url),
        )
        self.settings.aggregate.commit_interval = "200ms"
        self.settings.aggregate.past = "36500d"  # these tests' events are of 2013
        self.settings.aggregate.group = f"group-{self.topic}"
        self.store = Store(connect(redis_url), self.topic)

    def beside(self, redis_url: str) -> Deployment:
        """Return another deployment, which counts the same topic into another store."""
        other = copy.copy(self)
        other.redis_url = redis_url
        other.settings = copy.deepcopy(self.settings)
        other.settings.redis.url = redis_url
        other.settings.aggregate.group += "-beside"
        other.store = Store(connect(redis_url), self.topic)
        return other

    @property
    def flags(self) -> list[str]:
        """The deployment's settings as flags of the command line."""
        shown = {
            "kafka.session.timeout.ms": SESSION_MS,
            "kafka.heartbeat.interval.ms": 500,
            "topics.reports": self.topic,
            "topics.deadletters": self.deadletters,
            "topics.estimates": self.estimates,
            "topics.rounds": self.rounds,
            "topics.managed": str(self.kafka.is_real).lower(),
            "aggregate.commit_interval": self.settings.aggregate.commit_interval,
            "aggregate.group": self.settings.aggregate.group,
            "aggregate.past": self.settings.aggregate.past,
        }
        sets = [word for k, v in shown.items() for word in ("--set", f"{k}={v}")]
        places = ["--kafka", self.kafka.bootstrap_servers, "--redis", self.redis_url]
        return [*places, "--metrics", str(self.metrics_file), *sets]

    def dither(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command until it ends."""
        return fleet.run([*arguments, *self.flags], PATIENCE)

    def log(self, command: str) -> Path:
        """Return the log file of a started command, `aggregate` or `serve`."""
        return self.metrics_file.with_name(f"{command}.log")

    def start_worker(self, *arguments: str) -> BaseProcess:
        """Start `dither aggregate` in a process group of its own."""
        return fleet.start("aggregate", [*self.flags, *arguments], self.log("aggregate"))

    @contextlib.contextmanager
    def serving(self, *arguments: str, port: int = 0) -> Iterator[str]:
        """Run `dither serve`, on a free port by default; yield its address once it answers."""
        port, log = port or free_ports(1)[0], self.log("serve")
        process = fleet.start("serve", [*self.flags, f"--port={port}", *arguments], log)
        url = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            assert process.is_alive(), log.read_text()
            return http_client.status(f"{url}/healthz") == 200

        try:
            wait_until(answers, "the server answers")
            yield url
        finally:
            process.terminate()
            process.join(60)
        assert process.exitcode in (0, -signal.SIGTERM)

    @contextlib.contextmanager
    def worker(
        self, name: str = "worker", clock: Clock = SYSTEM_CLOCK, tracer: Tracer | None = None
    ) -> Iterator[Worker]:
        """Run a worker in a thread; when the block ends, it drains, commits and leaves."""
        worker = Worker(self.settings, self.metrics, self.store, name, clock=clock, tracer=tracer)
        with in_a_thread(worker.run, worker.stop):
            yield worker

    def produce(self, messages: Sequence[tuple[int, bytes | None]], **more: Sequence[Any]) -> None:
        """Put (partition, payload) messages into the reports topic, in order.

        `more` has further arguments by name, such as keys or timestamps: a sequence with one for
        each message.
        """
        if not messages:
            return
        producer = Producer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "enable.idempotence": True,
                "message.max.bytes": 32_000_000,
            }
        )
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is not None:
                failed.append(error)

        for place, (partition, payload) in enumerate(messages):
            facts = {name: each[place] for name, each in more.items()}
            producer.produce(
                self.topic, payload, partition=partition, on_delivery=delivered, **facts
            )
            producer.poll(0)
        assert producer.flush(PATIENCE) == 0
        producer.close()
        assert not failed

    def recreate_topic(self) -> None:
        """Delete the reports topic and create it again."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        admin.delete_topics([self.topic])[self.topic].result(timeout=60)

        def created() -> bool:
            try:
                topic = NewTopic(self.topic, self.partitions, -1)
                admin.create_topics([topic])[self.topic].result(timeout=60)
            except KafkaException:
                return False
            return bool(self.kafka.partitions(self.topic))

        wait_until(created, "the topic is there again")

    def cut(self, before: Mapping[int, int]) -> None:
        """Delete the records of each partition before an offset."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        places = [TopicPartition(self.topic, number, at) for number, at in before.items()]
        for done in admin.delete_records(places).values():
            done.result(timeout=PATIENCE)

    def log_ends(self, topic: str = "") -> dict[int, int]:
        """Return the end offset of each partition of a topic (by default reports)."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self._log_ends(topic or self.topic)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                threading.Event().wait(0.2)

    def _log_ends(self, topic: str) -> dict[int, int]:
        with contextlib.closing(consumer(self.properties, topic)) as looking:
            return {
                number: looking.get_watermark_offsets(TopicPartition(topic, number), timeout=60)[1]
                for number in range(self.kafka.partitions(topic))
            }

    @property
    def properties(self) -> dict[str, Any]:
        """librdkafka's properties for a client of this Kafka."""
        return {"bootstrap.servers": self.kafka.bootstrap_servers}

    def messages(
        self, topic: str = "", at_least: int = 0, seconds: float = PATIENCE
    ) -> list[Message]:
        """Return all messages of a topic (by default reports), in the order of each partition.

        Parameters
        ----------
        topic : str
        at_least : int
            The number of messages to wait for.
        seconds : float
            The longest wait.
        """
        topic, found = topic or self.topic, list[Message]()

        def are_there() -> bool:
            with contextlib.suppress(KafkaException):
                found[:] = read_topic(self.properties, topic, seconds=seconds)
                return len(found) >= at_least
            return False

        wait_until(are_there, f"{at_least} messages of {topic} are read", seconds)
        return found

    def keys(self) -> Counter[bytes]:
        """Return how often each batch id is in the log."""
        return Counter(bytes(message.key() or b"") for message in self.messages())

    def wait_until_counted(self, seconds: float = PATIENCE) -> None:
        """Wait until every message of the log is counted in the store."""
        ends = {number: end for number, end in self.log_ends().items() if end > 0}

        def counted() -> bool:
            return all(
                int(self.store.owner(number).get("next", 0)) >= end for number, end in ends.items()
            )

        wait_until(counted, f"counted up to {ends}", seconds)

    def dead(self, expected: int) -> list[dict[str, Any]]:
        """Return the dead letters, once there are as many as expected."""
        return [
            {"value": message.value(), "headers": dict(message.headers() or [])}
            for message in self.messages(self.deadletters, expected)
        ]

    def count(self, messages: Sequence[tuple[int, bytes | None]] = ()) -> None:
        """Produce messages, and have a worker count everything and leave."""
        self.produce(messages)
        with self.worker():
            self.wait_until_counted()

    def reader(self) -> Reader:
        """Return a reader of the store."""
        return Reader(self.store, self.metrics)

    def owners(self, field: str) -> list[str]:
        """Return a field of the owner's record, for each partition."""
        return [self.store.owner(number).get(field, "") for number in range(self.partitions)]

    def counts(self) -> dict[str, int]:
        """Return reports by ``outcome:metric`` over all partitions."""
        found: dict[str, int] = {}
        for number in self.store.partitions():
            for name, count in self.store.counts(number).items():
                found[name] = found.get(name, 0) + count
        return found

    def verify(self) -> Verification:
        """Replay the log and compare the result with the store."""
        return verify(self.settings, self.metrics, self.store)

    def state(self) -> dict[str, Any]:
        """Return everything in Redis that is a function of the log, byte for byte.

        The records of owners (epochs, names, clocks) are left out, but for the next offset.
        """
        client: Any = self.store.client
        scores = functools.partial(client.zrange, start=0, end=-1, withscores=True)
        read = {b"string": client.get, b"hash": client.hgetall, b"set": client.smembers}
        read |= {b"zset": scores, b"none": lambda _: None}  # a worker may delete it meanwhile
        found: dict[str, Any] = {}
        for key in client.scan_iter(match=f"{{dither:{self.topic}:*"):
            if key.endswith(b":owner"):
                found[key.decode()] = client.hget(key, "next")
            elif not key.endswith(b":committed"):
                found[key.decode()] = read[client.type(key)](key)
        return found


def as_json(run: subprocess.CompletedProcess[str]) -> Any:
    """Return a command's JSON output."""
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)
