"""The fixtures `kafka` and `redis_url` hand out servers that work, whichever they found."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
import redis
from confluent_kafka import Producer

from deploy.kafka import launcher
from tests.support.running import servers
from tests.support.running.shared_kafka import SharedKafka, ask_for_kafka

if TYPE_CHECKING:
    from pathlib import Path


def test_a_topic_is_new_and_takes_messages(kafka: servers.Kafka) -> None:
    topic = kafka.topic(partitions=3, retention_ms=60_000)
    assert topic != kafka.topic()
    assert kafka.partitions(topic) == (3 if kafka.is_real else 4)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, value=b"report")
    assert producer.flush(30) == 0
    producer.close()


@pytest.mark.parametrize("test", ["first", "second"])
def test_every_test_finds_an_empty_store(redis_url: str, test: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set(test, 1)


def test_a_store_that_a_test_has_killed_is_there_again_for_the_next(
    redis_server: servers.Redis,
) -> None:
    redis_server.kill()
    redis_server.clear()
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.ping()


def test_processes_that_ask_for_kafka_at_once_get_the_same(kafka: servers.Kafka) -> None:
    started: list[Path] = []

    def start(folder: Path, _: ExitStack) -> servers.Kafka:
        started.append(folder)
        return kafka

    with SharedKafka(start) as shared, ThreadPoolExecutor(4) as pool:
        assert not started, "nobody has asked"
        found = list(pool.map(ask_for_kafka, [shared.address] * 4))
    assert {each.bootstrap_servers for each in found} == {kafka.bootstrap_servers}
    assert len(started) == 1
    assert not started[0].exists()


def test_a_shared_kafka_that_did_not_start_fails_every_test_that_needs_it() -> None:
    def start(_: Path, __: ExitStack) -> servers.Kafka:
        raise launcher.KafkaUnavailableError("no space left on device")

    with SharedKafka(start) as shared:
        for _ in range(2):
            with pytest.raises(pytest.fail.Exception, match="did not start: no space left"):
                ask_for_kafka(shared.address)


def test_without_java_and_docker_the_broker_is_in_process_unless_the_real_one_is_required(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("DITHER_TEST_BROKER", "DITHER_TEST_KAFKA", "DITHER_REQUIRE_REAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(launcher, "missing", lambda: "no java")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    with ExitStack() as stack:
        assert servers.start_kafka(tmp_path, stack).kind == "in-process"
        monkeypatch.setenv("DITHER_REQUIRE_REAL", "1")
        with pytest.raises(pytest.fail.Exception, match="needs Apache Kafka: no java"):
            servers.start_kafka(tmp_path, stack)


def test_an_external_server_is_taken_as_it_is_but_never_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DITHER_TEST_BROKER", raising=False)
    monkeypatch.setenv("DITHER_TEST_KAFKA", "kafka.example:9092")
    monkeypatch.setenv("DITHER_TEST_REDIS", "redis://redis.example/3")
    monkeypatch.delenv("DITHER_REQUIRE_REAL", raising=False)
    with ExitStack() as stack:
        kafka = servers.start_kafka(tmp_path, stack)
        assert (kafka.kind, kafka.bootstrap_servers) == ("external", "kafka.example:9092")
        store = servers.start_redis(tmp_path, stack)
        assert (store.kind, store.url) == ("external", "redis://redis.example/3")
        with pytest.raises(pytest.skip.Exception, match="a Redis server of its own"):
            store.kill()
