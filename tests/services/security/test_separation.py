"""A role can do nothing of another's: what is not listed for it is denied."""

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from aggregator.config.settings import Settings
from aggregator.storage.redis_keys import (
    coordinator_key,
    policies_key,
    publisher_key,
    rounds_key,
    tag,
)
from tests.services.security.conftest import Places
from tests.support.rows import row

Attempt = Callable[[redis.Redis, str], object]


def run_script(client: redis.Redis) -> None:
    """Run a script that nobody has left: that there is none is told to those who might."""
    with contextlib.suppress(redis.exceptions.NoScriptError):
        client.evalsha("0" * 40, 0)


ATTEMPTS: dict[str, tuple[Attempt, set[str]]] = {
    # what, how, and who may
    "read a pane": (
        lambda c, t: c.get(f"{tag(t, 0)}:pane:delay@0:0"),
        {"worker", "reader", "publisher", "coordinator", "verifier"},
    ),
    "write a pane": (lambda c, t: c.set(f"{tag(t, 0)}:pane:x@0:0", "1"), {"worker"}),
    "delete a partition's owner": (lambda c, t: c.delete(f"{tag(t, 0)}:owner:x"), {"worker"}),
    "see who asked for which batch": (
        lambda c, t: c.get(f"{tag(t, 0)}:seen:x"),
        {"worker", "reader", "publisher", "coordinator", "verifier"},
    ),
    "change the weights": (lambda c, t: c.hset(policies_key(t), "delay", "optimal"), {"operator"}),
    "take the publisher's lease": (lambda c, t: c.set(f"{publisher_key(t)}:x", "1"), {"publisher"}),
    "open a round": (lambda c, t: c.hset(f"{rounds_key(t)}:x", "x@0", "?"), {"coordinator"}),
    "take the coordinator's lease": (
        lambda c, t: c.set(f"{coordinator_key(t)}:x", "1"),
        {"coordinator"},
    ),
    "read another topic's sums": (lambda c, t: c.get(f"{tag(t + 'x', 0)}:pane:x"), set()),
    "read a key of somebody else": (lambda c, _: c.get("session:1"), set()),
    "list all keys": (lambda c, _: c.keys("*"), set()),
    "flush everything": (lambda c, _: c.flushall(), set()),
    "read the configuration": (lambda c, _: c.config_get("requirepass"), set()),
    "give itself rights": (lambda c, _: c.acl_setuser("x", enabled=True), set()),
    "watch others' commands": (lambda c, _: c.slowlog_get(), set()),
    "send a script of its own": (lambda c, _: c.eval("return 1", 0), set()),
    "leave a script": (
        lambda c, _: c.script_load("while true do end"),
        {"worker", "publisher", "coordinator"},
    ),
    "run a script": (lambda c, _: run_script(c), {"worker", "publisher", "coordinator"}),
    "run a function": (lambda c, _: c.fcall_ro("f", 0), set()),
    "leave functions": (lambda c, _: c.function_load("#!lua name=f\n"), set()),
}
ROLES = ("gateway", "worker", "reader", "publisher", "coordinator", "verifier", "operator")


def test_a_role_does_nothing_in_redis_but_its_own(counted: Places) -> None:
    for name in ROLES:
        settings = counted.user(name, redis=counted.role(name).redis)
        allowed = set()
        with redis.Redis.from_url(settings.redis.url) as client:
            for what, (attempt, _) in ATTEMPTS.items():
                with contextlib.suppress(redis.exceptions.NoPermissionError):
                    attempt(client, counted.settings.topics.reports)
                    allowed.add(what)
        with row(name):
            assert allowed == {what for what, (_, who) in ATTEMPTS.items() if name in who}


def outcomes(settings: Settings) -> set[str]:
    """Return what a user may do in Kafka, by trying everything at the same time."""
    topics = settings.topics
    properties: dict[str, Any] = {**settings.kafka, "log_level": 0}
    with ThreadPoolExecutor() as pool:
        tried = {
            f"{what} {name.partition('-')[0]}": pool.submit(attempt, properties, name)
            for what, attempt in (("write", can_write), ("read", can_read))
            for name in (topics.reports, topics.deadletters, topics.estimates, topics.rounds)
        }
        return {what for what, allowed in tried.items() if allowed.result()}


def can_write(properties: dict[str, Any], topic: str) -> bool:
    properties = {k: v for k, v in properties.items() if k != "session.timeout.ms"}
    producer = Producer({**properties, "message.timeout.ms": 60_000})
    errors: list[KafkaError | None] = []
    producer.produce(topic, b"?", b"key", on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    producer.close()
    (error,) = errors
    assert error is None or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    return error is None


def can_read(properties: dict[str, Any], topic: str) -> bool:
    consumer = Consumer({**properties, "group.id": "any", "enable.auto.commit": False})
    try:
        about = consumer.list_topics(topic, timeout=60).topics[topic]
        if about.error is not None:
            assert about.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            return False
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            for message in consumer.consume(1, timeout=1.0):
                error = message.error()
                if error is None:
                    return True
                if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    return False
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
        return False
    finally:
        consumer.close()


MAY = {
    "reporter": {"write reports"},
    "worker": {"read reports", "write dead"},
    "publisher": {"read estimates", "write estimates", "write reports"},
    "respondent": {"write reports", "read rounds"},
    "coordinator": {"read rounds", "write rounds"},
    "verifier": {"read reports"},
    "operator": set(),
}


def test_a_role_reads_and_writes_its_own_topics_alone(places: Places) -> None:
    here = places.filled()
    administrator = {**here.administration().kafka}
    topics = here.settings.topics
    for topic in (topics.deadletters, topics.estimates, topics.rounds):
        assert can_write(administrator, topic)
    for name, own in MAY.items():
        with row(name):
            assert outcomes(here.user(name, here.role(name).kafka)) == own


def test_nobody_does_anything_without_a_password(places: Places) -> None:
    url = places.secured.redis.url("administrator")
    client = redis.Redis.from_url("rediss://" + url.partition("@")[2])
    with client, pytest.raises(redis.AuthenticationError):
        client.ping()


def test_a_producer_cannot_lie_about_the_time_that_the_future_is_judged_by(places: Places) -> None:
    """Else one who may write reports could close everybody's panes."""
    here = places.filled()
    settings = here.user("reporter", here.role("reporter").kafka)
    properties = {k: v for k, v in settings.kafka.items() if k != "session.timeout.ms"}
    producer = Producer(properties)
    in_2100 = 4_102_444_800_000
    told: list[Any] = []
    topic = settings.topics.reports
    producer.produce(topic, b"?", timestamp=in_2100, on_delivery=lambda e, m: told.append((e, m)))
    producer.flush(60)
    producer.close()
    ((error, message),) = told
    assert error is None
    kind, timestamp = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert timestamp < in_2100
