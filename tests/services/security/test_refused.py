"""Whoever is turned away is told which check failed, and what to do, and never the secret."""

import copy
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from aggregator.cli.roles import KafkaRight
from aggregator.config.settings import Settings
from aggregator.errors import BrokerRefused, DitherError
from aggregator.kafka import clients, topic_admin
from aggregator.storage.connection import connect
from producers import Reporter
from producers.delivery.delivery_errors import DeliveryError
from tests.services.security.conftest import Places, refusal_of
from tests.support.rows import row
from tests.support.running.deployment import wait_until
from tests.support.running.secured import Certificates, Secured, SecuredRedis

WRONG = "wr0ng-pa55word"


@pytest.fixture(scope="session")
def somebody(secured: Secured, metrics_file: Path) -> Settings:
    """A user without rights."""
    return Places(secured, metrics_file).user("somebody", [])


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_right_password_gets_in(places: Places, mechanism: str) -> None:
    clients.admin(places.user("reporter", [], mechanism=mechanism))


KAFKA: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "a wrong password": (
        {"sasl.password": WRONG},
        ("invalid credentials", "check sasl.username, sasl.password and sasl.mechanism"),
    ),
    "an unknown user": ({"sasl.username": "nobody"}, ("invalid credentials", "sasl.username")),
    "another mechanism": (
        {"sasl.mechanism": "PLAIN"},
        ("PLAIN mechanism", "SCRAM-SHA-512", "sasl.mechanism"),
    ),
    "an unknown authority": (
        {"ssl.ca.location": "STRANGERS"},
        ("not signed by an authority of [kafka] ssl.ca.location",),
    ),
    "an expired certificate": ({"bootstrap.servers": "EXPIRED"}, ("has expired: renew it",)),
    "another host's certificate": (
        {"bootstrap.servers": "NUMBER"},
        ("for another host: connect by a name in the certificate", "127.0.0.1"),
    ),
    "no TLS": (
        {"security.protocol": "SASL_PLAINTEXT"},
        ("speaks TLS", "security.protocol is SASL_PLAINTEXT: expected SASL_SSL"),
    ),
}


def test_kafka_says_which_check_failed_and_what_to_do(
    somebody: Settings, secured: Secured, strangers: Certificates
) -> None:
    for case, (changed, expected) in KAFKA.items():
        settings = copy.deepcopy(somebody)
        password = str(settings.kafka["sasl.password"])
        values = {
            "EXPIRED": secured.kafka.expired,
            "STRANGERS": str(strangers.ca),
            "NUMBER": secured.kafka.address.replace("localhost", "127.0.0.1"),
        }
        settings.kafka |= {key: values.get(value, value) for key, value in changed.items()}
        with row(case):
            with pytest.raises(BrokerRefused) as error:
                clients.admin(settings)
            told = str(error.value)
            assert told.startswith(f"Kafka at {settings.kafka['bootstrap.servers']} ")
            assert all(words in told for words in expected)
            assert password not in told
            assert WRONG not in told


def test_a_producer_that_died_of_a_missing_right_goes_on_saying_so(counted: Places) -> None:
    topic = counted.settings.topics.deadletters
    producer = clients.producer(counted.user("reader", [KafkaRight("Describe", "topic", topic)]))

    def go_on_producing() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            producer.produce(topic, b"report")
            producer.poll(0.1)

    with pytest.raises(KafkaException) as error:
        go_on_producing()
    assert error.value.args[0].fatal()
    assert "authorization failed" in str(error.value)
    with pytest.raises(KafkaException, match="authorization failed"):
        producer.produce(topic, b"report")


def test_a_reporter_without_the_right_says_so(places: Places) -> None:
    here = places.filled()
    settings = here.user("reporter", [])
    reporter = Reporter(here.metrics["delay"], settings.kafka, topic=here.settings.topics.reports)
    reporter.report(1.0, epsilon=1.0)
    with pytest.raises(DeliveryError, match=r"Topic authorization failed: .*security\.md"):
        reporter.flush(60)
    with pytest.raises(DeliveryError, match="Topic authorization failed"):
        reporter.close(60)


def test_topics_that_may_not_be_created_are_named(places: Places) -> None:
    with pytest.raises(DitherError, match=r"(?i)authorization failed.*`dither topics`") as error:
        topic_admin.ensure_topics(places.user("worker", []), places.settings.topics.reports)
    assert places.settings.topics.reports in str(error.value)
    assert places.settings.topics.estimates not in str(error.value)


# -- Redis --------------------------------------------------------------------------------------


def test_redis_says_which_check_failed_and_why(secured: Secured, strangers: Certificates) -> None:
    store = secured.redis
    password = store.passwords["administrator"]
    good = store.url("administrator")
    connect(good).close()
    told = refusal_of(good.replace(password, WRONG), password)
    assert "Redis does not accept the user or the password" in told
    assert "redis.url" in told
    told = refusal_of(store.url("administrator", ssl_ca_certs=str(strangers.ca)), password)
    assert "certificate that no known authority has signed" in told
    told = refusal_of(store.url("administrator", host="127.0.0.1"), password)
    assert "a certificate for another host" in told
    assert "connect by a name in the certificate" in told
    told = refusal_of(store.url("administrator", ssl_ca_certs="/nowhere.pem"), password)
    assert "ssl_ca_certs, ssl_certfile or ssl_keyfile is not there" in told
    without = good.partition("?")[0].replace("rediss", "redis")
    assert "Redis speaks TLS here" in refusal_of(without, password)
    told = refusal_of(store.user("powerless", ["+get"]))
    assert "the Redis user lacks a permission" in told
    assert "'ping'" in told
    assert "`dither roles`" in told


def test_an_expired_certificate_of_redis_is_told(secured: Secured, tmp_path: Path) -> None:
    with SecuredRedis(tmp_path, secured.certificates, expired=True) as store:
        url, password = store.url("administrator"), store.passwords["administrator"]
        wait_until(lambda: "certificate that has expired" in refusal_of(url, password), "told")
