"""Kafka and Redis that trust nobody, and a deployment's names on them."""

from __future__ import annotations

import copy
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from aggregator.cli.roles import KafkaRight, Role, roles
from aggregator.config.settings import Settings
from aggregator.errors import StoreUnreachable
from aggregator.kafka import clients as kafka
from aggregator.kafka import topic_admin
from aggregator.storage.connection import connect
from estimators import load_metrics
from tests.services.security import exercises
from tests.support.reports.messages import EPOCH, agreeing, batch
from tests.support.running.secured import Certificates, Secured, start_secured

HOUR = 3_600_000
METRICS = """
[metrics]
delay = {kind = "mean", mechanism = "randomized_response", range = [-60, 180], levels = [0.5, 1, \
2], pane = "10m", lateness = "10m", retention = "36500d"}
longest = {kind = "maximum", range = [0, 64], levels = [1], rounds = 3}
pay = {kind = "mean", trust = "central", range = [0, 9], levels = [1]}
"""


@pytest.fixture(autouse=True)
def _no_public_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection would read all that the machine trusts: most of its processor time."""
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    monkeypatch.setenv("SSL_CERT_DIR", os.devnull)


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with start_secured(tmp_path_factory.mktemp("secured")) as found:
        yield found


@pytest.fixture(scope="session")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority that has signed nothing here."""
    return Certificates(tmp_path_factory.mktemp("strangers"))


@pytest.fixture(scope="session")
def metrics_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("metrics") / "metrics.toml"
    file.write_text(METRICS)
    return file


def refusal_of(url: str, *secrets: str) -> str:
    """Return why there is no Redis at a URL, told without the secrets."""
    with pytest.raises(StoreUnreachable) as error:
        connect(url)
    for secret in ("wr0ng-pa55word", "secret", *secrets):
        assert secret not in str(error.value)
    return str(error.value)


class Places:
    """Topics and a group of their own, and users for roles, on a secured Kafka and Redis."""

    def __init__(self, secured: Secured, metrics_file: Path) -> None:
        self.secured, self.metrics_file = secured, metrics_file
        self.metrics = load_metrics(metrics_file)
        self.suffix = uuid.uuid4().hex[:8]
        self.settings = Settings(metrics=str(metrics_file))
        self.settings.topics.reports = f"reports-{self.suffix}"
        self.settings.topics.deadletters = f"dead-{self.suffix}"
        self.settings.topics.estimates = f"estimates-{self.suffix}"
        self.settings.topics.rounds = f"rounds-{self.suffix}"
        self.settings.topics.partitions = 2
        self.settings.aggregate.group = f"group-{self.suffix}"
        self.settings.aggregate.commit_interval = "100ms"
        self.settings.aggregate.past = "36500d"  # these events are of 2013
        self.settings.publish.interval = "100ms"

    def role(self, name: str) -> Role:
        """Return a role of this deployment."""
        return roles(self.settings)[name]

    def administration(self) -> Settings:
        """Return settings of one who may do everything."""
        settings = copy.deepcopy(self.settings)
        settings.kafka = self.secured.kafka.administration
        settings.redis.url = self.secured.redis.url("administrator")
        return settings

    def user(
        self,
        name: str,
        kafka: Sequence[KafkaRight] | None = None,
        redis: Sequence[str] | None = None,
        mechanism: str = "SCRAM-SHA-512",
    ) -> Settings:
        """Return settings of a new user, who has these rights and no others; all where None."""
        full = f"{name}-{uuid.uuid4().hex[:8]}"
        settings = self.administration()
        if kafka is not None:
            properties = self.secured.kafka.user(full, mechanism)
            settings.kafka = {**properties, "session.timeout.ms": 6_000}
            self.secured.kafka.allow(full, kafka)
        if redis is not None:
            settings.redis.url = self.secured.redis.user(full, redis)
        return settings

    def variables(self, settings: Settings) -> dict[str, str]:
        """Return the variables that give a command the settings of a user."""
        topics = ("reports", "deadletters", "estimates", "rounds")
        counting = ("group", "past", "commit_interval")
        given: dict[str, Any] = {
            "metrics": settings.metrics,
            "redis_url": settings.redis.url,
            "publish_interval": settings.publish.interval,
            **{f"topics_{name}": getattr(settings.topics, name) for name in topics},
            **{f"aggregate_{name}": getattr(settings.aggregate, name) for name in counting},
            **{f"kafka_{name.replace('.', '_')}": value for name, value in settings.kafka.items()},
        }
        return {f"DITHER_{name.upper()}": str(value) for name, value in given.items()}

    def filled(self) -> Places:
        """Create the topics, and put some batches and a message that is none into them.

        The others close the pane of the first.
        """
        settings = self.administration()
        topic_admin.ensure_topics(settings)
        producer, question = kafka.producer(settings), self.metrics["delay"]
        batches = [batch(question, [1.0]), *agreeing(question, EPOCH + HOUR, 1)]
        for payload in (*(each.SerializeToString() for each in batches), b"?"):
            producer.produce(settings.topics.reports, payload, partition=0)
        assert producer.flush(60) == 0
        producer.close()
        return self


@pytest.fixture
def places(secured: Secured, metrics_file: Path) -> Places:
    return Places(secured, metrics_file)


@pytest.fixture(scope="session")
def counted(secured: Secured, metrics_file: Path) -> Places:
    """Places where everything is counted."""
    places = Places(secured, metrics_file).filled()
    exercises.count(places.administration(), places.metrics)
    return places
