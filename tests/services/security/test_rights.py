"""Each role works with exactly its rights: none is missing, and none can be left out."""

import re
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
import redis
from confluent_kafka import KafkaException

from aggregator.cli.roles import roles
from aggregator.config.settings import Settings
from aggregator.counting import committer, worker
from aggregator.errors import DitherError
from aggregator.kafka import clients, topic_admin
from producers.delivery.delivery_errors import DeliveryError
from tests.services.security import exercises
from tests.services.security.conftest import Places
from tests.services.security.exercises import Denied
from tests.support.rows import row

REFUSALS = (Denied, DitherError, DeliveryError, KafkaException, redis.RedisError)
SAYS_SO = re.compile(
    r"authorization failed|permission|ACL failure|can't run this command|can't access at least one"
    r"|AUTHORIZATION_FAILED",
    re.IGNORECASE,
)
SYSTEMS = {"kafka": exercises.ON_KAFKA, "redis": exercises.ON_REDIS}
TIERS = {
    **dict.fromkeys(("reader", "publisher", "coordinator", "verifier"), pytest.mark.slow),
    **dict.fromkeys(("worker", "respondent"), pytest.mark.more),
}
"""Of roles without each of their rights in turn: all of them take a minute."""
ROLES = [
    (system, name)
    for system in SYSTEMS
    for name, role in roles(Settings()).items()
    if getattr(role, system)
]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "DEAD_LETTER_SECONDS", 0.5)
    monkeypatch.setattr(worker, "LEAVE_SECONDS", 0.0)


def prepared(system: str, role: str, places: Places, counted: Places) -> Places:
    """Return places with what a role begins with."""
    if system == "redis":
        return places if role in ("worker", "recounter") else counted
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
        assert producer.flush(60) == 0
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


@pytest.mark.parametrize(("system", "name"), ROLES)
def test_a_role_has_enough_rights(system: str, name: str, places: Places, counted: Places) -> None:
    here = prepared(system, name, places, counted)
    role = here.role(name)
    kafka = role.kafka if system == "kafka" else None
    SYSTEMS[system][name](here.user(name, kafka, role.redis or None), here.metrics)


@pytest.mark.parametrize(
    ("system", "name"), [pytest.param(*role, marks=TIERS.get(role[1], ())) for role in ROLES]
)
def test_a_role_needs_every_right(system: str, name: str, places: Places, counted: Places) -> None:
    here = prepared(system, name, places, counted)
    every: Sequence[Any] = getattr(here.role(name), system)
    for right in every:
        if system == "redis":  # what a refused worker has left there is in the way of the next
            here = prepared(system, name, Places(places.secured, places.metrics_file), counted)
        elif name == "publisher":  # or there would be nothing left to read
            forget_published(here)
        others: Any = {system: [other for other in every if other != right]}
        with here.secured.redis.administrator() as client:
            client.script_flush()
        with row(right), pytest.raises(REFUSALS, match=SAYS_SO) as refusal:
            SYSTEMS[system][name](here.user(name, **others), here.metrics)
        if system == "kafka" and right.resource == "topic":
            told = str(refusal.value)
            assert right.name in told or "Topic authorization failed" not in told
