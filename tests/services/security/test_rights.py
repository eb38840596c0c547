"""Each role works with exactly its rights: none is missing, and none can be left out."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis
from confluent_kafka import KafkaException

from aggregator.cli.roles import Role, roles
from aggregator.config.settings import Settings
from aggregator.counting import committer, worker
from aggregator.errors import DitherError
from aggregator.kafka import clients, topic_admin
from producers.delivery.delivery_errors import DeliveryError
from tests.services.security import exercises
from tests.services.security.conftest import Places
from tests.services.security.exercises import Denied

REFUSALS = (Denied, DitherError, DeliveryError, KafkaException, redis.RedisError)
SAYS_SO = re.compile(
    r"authorization failed|permission|ACL failure|can't run this command|can't access at least one"
    r"|AUTHORIZATION_FAILED",
    re.IGNORECASE,
)
KNOWN = roles(Settings())
SLOW = ("reader", "publisher", "coordinator", "verifier")
"""Without each of their rights in turn, as all are once: a minute."""


def each_right(of: Callable[[Role], Sequence[object]]) -> list[Any]:
    """Return each role with the index of each of its rights, and the right as the test's name."""
    return [
        pytest.param(name, i, id=f"{name} without {right}", marks=marks)
        for name, role in KNOWN.items()
        for marks in [[pytest.mark.slow] if name in SLOW else []]
        for i, right in enumerate(of(role))
    ]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "DEAD_LETTER_SECONDS", 0.5)
    monkeypatch.setattr(worker, "LEAVE_SECONDS", 0.0)


def prepared(role: str, places: Places, counted: Places) -> Places:
    """Return places with what a role begins with."""
    if role == "publisher":  # there is something to read, and something new
        counted.settings.topics.estimates = f"estimates-{uuid.uuid4().hex[:8]}"
        topic_admin.ensure_topics(counted.administration())
        forget_published(counted)
        exercises.publish(counted.administration(), counted.metrics)
        forget_published(counted)
        with exercises.open_store(counted.administration()) as store:
            others = {"optimal", "uniform"} - {store.registry.policies().get("delay", "optimal")}
            store.registry.set_policy("delay", others.pop())
    if role in ("respondent", "coordinator"):  # the topic has something, but not all
        counted.settings.topics.rounds = f"rounds-{uuid.uuid4().hex[:8]}"
        settings = counted.administration()
        topic_admin.ensure_topics(settings)
        producer = clients.producer(settings)
        refused: list[object] = []
        producer.produce(
            settings.topics.rounds,
            b"?",
            b"?",  # a compacted topic takes nothing without a key
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
        assert producer.flush(30) == 0
        producer.close()
        assert refused == []
        if role == "respondent":
            exercises.coordinate(settings, counted.metrics)
        return counted
    if role in ("publisher", "verifier"):
        return counted
    return places if role == "operator" else places.filled()


def forget_published(places: Places) -> None:
    with places.secured.redis.administrator() as client:
        for key in client.scan_iter(f"dither:{{publisher:{places.settings.topics.reports}*"):
            client.delete(key)


@pytest.mark.parametrize("name", exercises.ON_KAFKA)
def test_a_role_works_with_its_rights(name: str, places: Places, counted: Places) -> None:
    here = prepared(name, places, counted)
    role = here.role(name)
    settings = here.user(name, role.kafka, role.redis or None)
    exercises.ON_KAFKA[name](settings, here.metrics)


@pytest.mark.parametrize(("name", "left_out"), each_right(lambda role: role.kafka))
def test_a_role_needs_each_of_its_rights_in_kafka(
    name: str, left_out: int, places: Places, counted: Places
) -> None:
    here = prepared(name, places, counted)
    rights = list(here.role(name).kafka)
    right = rights.pop(left_out)
    with pytest.raises(REFUSALS, match=SAYS_SO) as refusal:
        exercises.ON_KAFKA[name](here.user(name, rights), here.metrics)
    if right.resource == "topic" and "Topic authorization failed" in str(refusal.value):
        assert right.name in str(refusal.value)


@pytest.mark.parametrize("name", exercises.ON_REDIS)
def test_a_role_works_with_its_rights_in_redis(name: str, places: Places, counted: Places) -> None:
    here = places if name in ("worker", "recounter") else counted
    settings = here.user(name, redis=here.role(name).redis)
    exercises.ON_REDIS[name](settings, here.metrics)


@pytest.mark.parametrize(("name", "left_out"), each_right(lambda role: role.redis))
def test_a_role_needs_each_of_its_rights_in_redis(
    name: str, left_out: int, places: Places, counted: Places
) -> None:
    here = places if name in ("worker", "recounter") else counted
    rules = list(here.role(name).redis)
    del rules[left_out]
    with here.secured.redis.administrator() as client:
        client.script_flush()
    with pytest.raises(REFUSALS, match=SAYS_SO):
        exercises.ON_REDIS[name](here.user(name, redis=rules), here.metrics)
