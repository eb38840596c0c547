"""Events on the estimates topic: each closed pane once, running totals as they change."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka
from cloudevents.core.formats.json import JSONFormat
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from aggregator.kafka import clients, topic_admin
from aggregator.publishing import unpublished_panes
from aggregator.publishing.event_producer import EventProducer
from aggregator.publishing.events import FINAL, Event
from aggregator.publishing.published_log import PublishedLog
from aggregator.publishing.publisher import Publisher
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import CONFIRMING_BATCHES
from aggregator.storage.lease import Lease
from aggregator.storage.redis_keys import final_key, publisher_key
from aggregator.timestamps import iso
from producers.wire.batch import heartbeat
from producers.wire.reports_pb2 import Attribute
from tests.support.events import (
    PANE,
    Found,
    ages,
    all_are_final,
    close,
    final_ids,
    on_topic,
    publishing,
    reader_of,
    settings_of,
)
from tests.support.reports.messages import EPOCH, batch
from tests.support.running.deployment import Deployment, wait_until


@pytest.fixture
def counted(deployment: Deployment) -> Deployment:
    """A deployment in which 24 panes of `age` are counted and final."""
    count(deployment, range(24))
    return deployment


def count(deployment: Deployment, panes: range) -> None:
    deployment.produce(ages(deployment, panes))
    close(deployment, panes.stop)
    with deployment.worker():
        deployment.wait_until_counted()
        wait_until(lambda: all_are_final(deployment, panes.stop), "final")


def wait_for_finals(deployment: Deployment, panes: int) -> None:
    wait_until(lambda: len(final_ids(deployment)) >= panes, f"{panes} final events")


def test_events_in_the_envelope_of_connect_are_the_same_events(counted: Deployment) -> None:
    with publishing(counted, connect_schemas=True):
        wait_for_finals(counted, 24)
    framed = [event for event in on_topic(counted) if event.is_final]
    assert {event.answer["schema"]["name"] for event in framed} == {FINAL}
    for key in counted.store.client.keys("*publisher*"):  # it is known from the topic alone
        counted.store.client.delete(key)
    count(counted, range(24, 26))
    with publishing(counted):
        wait_for_finals(counted, 26)
    assert set(final_ids(counted).values()) == {1}
    bare = [event for event in on_topic(counted) if event.is_final][24:]
    assert [event.answer["status"] for event in bare] == ["final"] * 2
    assert framed[0].answer["payload"].keys() == bare[0].answer.keys()


def test_each_closed_pane_has_one_event_with_the_readers_answer(counted: Deployment) -> None:
    with publishing(counted):
        wait_for_finals(counted, 24)
        assert counted.store.registry.publishing()[0]
    has_leader, events = counted.store.registry.publishing()
    assert not has_leader, "it has let go of the lease"
    assert events["final"] == 24
    found = [event for event in on_topic(counted) if event.is_final]
    assert len(found) == 24
    revision = counted.metrics["age"].revision
    for pane, event in enumerate(found):
        start, end = (EPOCH + pane * PANE) / 1000, (EPOCH + (pane + 1) * PANE) / 1000
        expected = reader_of(counted).estimate("age", start, end)
        assert event.answer["status"] == expected.status == "final"
        assert event.answer["bound"] == "fixed"
        assert (event.answer["value"], event.answer["unbiased"]) == (expected.shown, expected.value)
        assert (event.answer["lower"], event.answer["upper"]) == (expected.lower, expected.upper)
        assert event.answer["reports"] == 120
        assert event.headers["ce_time"].decode() == event.answer["to"]
        assert event.key == f"age@{revision:08x}/{event.answer['from']}"
        assert event.id == f"{event.key}/final/optimal"


def test_the_events_are_cloudevents_in_kafkas_binary_mode(counted: Deployment) -> None:
    with publishing(counted):
        wait_for_finals(counted, 24)
        wait_until(lambda: len(on_topic(counted)) == 25, "and a running total")
    for found in on_topic(counted):
        event: Any = from_kafka(KafkaMessage(found.headers, found.key, found.value), JSONFormat())
        assert event.get_specversion() == "1.0"
        assert event.get_id() == found.id
        assert event.get_source() == f"/dither/{counted.topic}"
        assert event.get_type() in ("dither.estimate.final", "dither.estimate.provisional")
        assert event.get_subject() == "age"
        assert event.get_time().tzinfo is not None
        assert event.get_datacontenttype() == "application/json"
        assert event.get_data() == json.loads(found.value)


def test_a_running_total_is_published_under_its_metric_when_it_changes(
    counted: Deployment,
) -> None:
    def totals() -> list[Found]:
        return [event for event in on_topic(counted) if not event.is_final]

    with publishing(counted):
        wait_until(lambda: len(totals()) == 1, "the first total")
        count(counted, range(24, 30))
        wait_until(lambda: totals()[-1].answer["reports"] == 30 * 120, "the total has grown")
        grown = len(totals())
        counted.store.registry.set_policy("age", "uniform")
        wait_until(lambda: len(totals()) == grown + 1, "another policy is a change")
    with publishing(counted):  # another one knows which total it was
        count(counted, range(30, 31))
        wait_until(lambda: totals()[-1].answer["reports"] == 31 * 120, "the total has grown again")
    last = totals()[-1]
    assert last.key == "age"
    assert last.answer["policy"] == "uniform"
    assert last.answer["status"] == "provisional"
    assert len({event.id for event in totals()}) == len(totals())


def test_whoever_publishes_them_final_events_are_the_same_bytes(counted: Deployment) -> None:
    first, second = counted.estimates, f"{counted.estimates}-again"
    with publishing(counted):
        wait_for_finals(counted, 24)
    counted.store.client.flushdb()
    counted.settings.aggregate.group += "-again"
    with counted.worker():
        counted.wait_until_counted()
        wait_until(lambda: all_are_final(counted, 24), "final")
    counted.settings.topics.estimates = second
    with publishing(counted):
        wait_until(lambda: len(final_ids(counted, second)) >= 24, "24 final events")
    one, two = (
        [event for event in on_topic(counted, topic) if event.is_final] for topic in (first, second)
    )
    assert one == two


SLICED = """
[metrics.late]
kind = "mean"
mechanism = "randomized_response"
range = [0, 1]
levels = [4]
pane = "10m"
by = ["country"]
by_pane = "30m"

[attributes]
country = ["DE"]
"""


def test_slices_are_published_once_and_their_events_are_read_back(
    tmp_path: Path, deployment_of: Callable[[Path], Deployment]
) -> None:
    file = tmp_path / "metrics.toml"
    file.write_text(SLICED)
    deployment = deployment_of(file)
    late = deployment.metrics["late"]

    def count(panes: range) -> None:
        sent = []
        for pane in panes:
            attributes = [Attribute(name="country", value="DE" if pane % 2 else "FR")]
            one = batch(late, [1] * 200, 4, EPOCH + pane * PANE, 1 + pane, attributes=attributes)
            sent.append((pane % 2, one.SerializeToString()))
        beats = [heartbeat(late, EPOCH + panes.stop * PANE)] * CONFIRMING_BATCHES
        sent += [(number, beat) for number in range(deployment.partitions) for beat in beats]
        deployment.produce(sent)
        with deployment.worker():
            deployment.wait_until_counted()

    def stretches() -> list[Any]:
        told = [event.answer for event in on_topic(deployment) if event.is_final]
        return [answer.get("slices") and answer["slices"][0]["to"] for answer in told]

    count(range(7))
    with publishing(deployment, slices=["late: country"]):
        wait_for_finals(deployment, 7)
    ends = [None, None, "2013-01-01T00:30:00Z", None, None, "2013-01-01T01:00:00Z", None]
    assert stretches() == ends
    deployment.store.client.delete(*deployment.store.client.keys("*publish*"))
    count(range(7, 9))
    with publishing(deployment, slices=["late: country"]):  # all that it knows is on the topic
        wait_for_finals(deployment, 9)
    assert stretches() == [*ends, None, "2013-01-01T01:30:00Z"]
    assert set(final_ids(deployment).values()) == {1}


def test_a_changed_policy_holds_for_panes_that_become_final_from_then_on(
    counted: Deployment,
) -> None:
    with publishing(counted):
        wait_for_finals(counted, 24)
        counted.store.registry.set_policy("age", "uniform")
        count(counted, range(24, 26))
        wait_for_finals(counted, 26)
    policies = [event.answer["policy"] for event in on_topic(counted) if event.is_final]
    assert policies == ["optimal"] * 24 + ["uniform"] * 2


def test_panes_from_before_since_are_left_alone(counted: Deployment) -> None:
    begin = str(iso(EPOCH + 20 * PANE))
    with publishing(counted, since=begin):
        wait_for_finals(counted, 4)
        wait_until(lambda: len(on_topic(counted)) == 5, "and the running total of everything")
    starts = [event.answer["from"] for event in on_topic(counted) if event.is_final]
    assert min(starts) == begin
    assert len(starts) == 4


def test_idle_partitions_are_closed_by_heartbeats_and_what_comes_then_changes_no_answer(
    deployment: Deployment,
) -> None:
    """Most partitions have no report, one was idle, and then both get reports of old times."""
    age = deployment.metrics["age"]

    def report(partition: int, *panes: int) -> None:
        deployment.produce(
            [
                (partition, batch(age, [1] * 120, 2, EPOCH + pane * PANE, seed).SerializeToString())
                for pane in panes
                for seed in [100 * partition + pane]
            ]
        )

    with deployment.worker(), publishing(deployment):
        report(0, 0)
        report(1, 2, 3, 4, 5)
        wait_for_finals(deployment, 5)
        wait_until(lambda: all_are_final(deployment, 6), "to whoever reads Redis alone")
        before = [event for event in on_topic(deployment) if event.is_final]
        report(0, 1, 5)
        assert [letter["value"] is None for letter in deployment.dead(2)] == [False, False]
        assert deployment.counts()["late:age"] == 240
        shown = reader_of(deployment).estimate("age", EPOCH / 1000, (EPOCH + 6 * PANE) / 1000)
        assert (shown.status, shown.reports) == ("final", 5 * 120)
        report(0, 7)
        wait_for_finals(deployment, 6)
    assert [event for event in on_topic(deployment) if event.is_final][:5] == before
    assert set(final_ids(deployment).values()) == {1}
    assert deployment.verify().verified


def test_a_publisher_waits_for_kafka_and_goes_on_when_it_is_there(
    counted: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "ANSWER_SECONDS", 0.5)
    settings = settings_of(counted)
    settings.kafka["bootstrap.servers"] = "127.0.0.1:1"
    publisher = Publisher(settings, reader_of(counted))
    with structlog.testing.capture_logs() as logs:
        publisher.start()
        try:
            wait_until(lambda: len(logs) >= 2, "it has tried twice")
            settings.kafka["bootstrap.servers"] = counted.kafka.bootstrap_servers
            monkeypatch.setattr(clients, "ANSWER_SECONDS", 10.0)
            wait_for_finals(counted, 24)
        finally:
            publisher.stop()
    assert {entry["event"] for entry in logs[:2]} == {"cannot publish"}
    assert "no Kafka broker answers at 127.0.0.1:1" in logs[0]["error"]
    assert logs[1]["again_in"] > logs[0]["again_in"]
    assert set(final_ids(counted).values()) == {1}


# -- A publisher that ends at the worst moment ---------------------------------------------------


class Crash(BaseException):
    """Ends a publisher's thread where it stands."""


def crash(*_: Any) -> None:
    raise Crash


@pytest.mark.usefixtures("apache_kafka")
def test_events_of_a_publisher_that_crashed_before_its_commit_are_published_once(
    counted: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def produce_and_crash(self: EventProducer, events: Sequence[Event]) -> dict[int, int]:
        producer = self._producer
        producer.begin_transaction()
        for event in events[:7]:
            producer.produce(counted.estimates, event.data, event.key.encode())
        producer.flush(30)
        raise Crash

    with monkeypatch.context() as broken:
        broken.setattr(EventProducer, "publish", produce_and_crash)
        _run_until_it_crashes(counted, broken)
    assert not on_topic(counted)
    _publish_the_rest(counted)


def test_events_of_a_publisher_that_crashed_after_its_commit_are_published_once(
    counted: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = PublishedLog.note_committed

    def crash_at_events(self: PublishedLog, committed: Any, positions: dict[int, int]) -> None:
        if any(event.type == FINAL for event in committed):
            crash()
        note(self, committed, positions)

    with monkeypatch.context() as broken:
        broken.setattr(PublishedLog, "note_committed", crash_at_events)
        _run_until_it_crashes(counted, broken)
    assert len(final_ids(counted)) == 24
    _publish_the_rest(counted)


def test_events_are_published_once_though_redis_forgot_everything(counted: Deployment) -> None:
    with publishing(counted):
        wait_for_finals(counted, 24)
    counted.store.client.flushdb()
    counted.settings.aggregate.group += "-again"
    count(counted, range(24, 26))
    with publishing(counted):
        wait_for_finals(counted, 26)
    assert set(final_ids(counted).values()) == {1}


def test_a_key_of_the_copy_that_somebody_deleted_brings_no_event_twice(counted: Deployment) -> None:
    client, prefix = counted.store.client, publisher_key(counted.topic)
    finals = final_key(prefix, metric_key("age", counted.metrics["age"].revision))
    with publishing(counted):
        wait_for_finals(counted, 24)
        assert client.delete(finals) == 1
        count(counted, range(24, 26))
        wait_for_finals(counted, 26)
    for panes, key in enumerate((finals, f"{prefix}:events", f"{prefix}:position"), 27):
        assert client.delete(key) == 1
        count(counted, range(panes - 1, panes))
        with publishing(counted):
            wait_for_finals(counted, panes)
        assert set(final_ids(counted).values()) == {1}
        _, published = counted.store.registry.publishing()
        assert (client.zcard(finals), published["final"]) == (panes, panes)


@pytest.mark.usefixtures("apache_kafka")
def test_messages_and_transactions_of_others_on_the_topic_hide_nothing(counted: Deployment) -> None:
    def published() -> int:
        return counted.store.registry.publishing()[1]["final"]

    other = Producer(
        {
            "bootstrap.servers": counted.kafka.bootstrap_servers,
            "transactional.id": f"other-{counted.topic}",
        }
    )
    other.init_transactions(30)
    revision = counted.metrics["age"].revision
    foreign = {"ce_id": "x", "ce_source": "/dither/else", "ce_type": "dither.estimate.final"}
    with publishing(counted):
        wait_until(lambda: published() == 24, "24 final events")
        other.begin_transaction()
        for headers in (foreign, {}, {"ce_type": b"\xff"}):
            key = f"age@{revision:08x}/{iso(EPOCH + 25 * PANE)}"
            other.produce(counted.estimates, b"{}", key, headers=dict(headers))
        other.produce(counted.estimates, None, "deleted")
        other.flush(30)
        count(counted, range(24, 25))
        wait_until(lambda: published() == 25, "one behind what is under way")
    counted.store.client.delete(*counted.store.client.keys("dither:{publisher:*"))
    with publishing(counted):
        wait_until(lambda: counted.store.registry.publishing()[0], "the lease is held")
        threading.Event().wait(1)
        other.commit_transaction(30)
        wait_until(lambda: published() == 25, "all are found again")
        count(counted, range(25, 26))
        wait_until(lambda: published() == 26, "and one more")
    other.close()
    source = f"/dither/{counted.topic}".encode()
    own = [event for event in on_topic(counted) if event.headers.get("ce_source") == source]
    finals = [event.id for event in own if event.is_final]
    assert len(finals) == len(set(finals)) == 26
    other.close()


@pytest.mark.usefixtures("apache_kafka")
def test_a_topic_that_was_deleted_and_created_again_gets_every_event(counted: Deployment) -> None:
    with publishing(counted):
        wait_for_finals(counted, 24)
    admin = AdminClient({"bootstrap.servers": counted.kafka.bootstrap_servers})
    admin.delete_topics([counted.estimates])[counted.estimates].result(30)
    wait_until(lambda: counted.estimates not in admin.list_topics(timeout=30).topics, "it is gone")
    topic_admin.ensure_topics(counted.settings)
    assert not on_topic(counted)
    with publishing(counted):
        wait_for_finals(counted, 24)
    assert set(final_ids(counted).values()) == {1}


def _run_until_it_crashes(deployment: Deployment, broken: pytest.MonkeyPatch) -> None:
    broken.setattr(Lease, "release", lambda self: None)
    broken.setattr(unpublished_panes, "BATCH_SECONDS", 60.0)  # all panes in one transaction
    publisher = Publisher(settings_of(deployment, lease="500ms"), reader_of(deployment))
    with pytest.raises(Crash):
        publisher.run()


def _publish_the_rest(deployment: Deployment) -> None:
    count(deployment, range(24, 30))
    with publishing(deployment):
        wait_for_finals(deployment, 30)
    found = final_ids(deployment)
    assert len(found) == 30
    assert set(found.values()) == {1}


@pytest.mark.usefixtures("apache_kafka")
def test_a_publisher_that_was_frozen_in_a_transaction_cannot_commit_it_later(
    counted: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    produced, woken = threading.Event(), threading.Event()
    refused: list[KafkaException] = []

    def freeze(self: EventProducer, events: Sequence[Event]) -> dict[int, int]:
        producer = self._producer
        producer.begin_transaction()
        for event in events:
            producer.produce(counted.estimates, event.data, event.key.encode())
        producer.flush(30)
        monkeypatch.setattr(frozen.lease, "renew", lambda: True)  # a frozen process renews nothing
        produced.set()
        assert woken.wait(60)
        try:
            producer.commit_transaction(30)
        except KafkaException as error:
            refused.append(error)
            raise
        raise AssertionError("committed by a publisher whose time was over")

    frozen = Publisher(settings_of(counted, lease="1s"), reader_of(counted))
    with monkeypatch.context() as freezing:
        freezing.setattr(EventProducer, "publish", freeze)
        frozen.start()
        assert produced.wait(60)
    try:
        with publishing(counted) as heir:
            wait_for_finals(counted, 24)
            epoch = heir.lease.epoch
            assert not frozen.lease.held
            woken.set()
            wait_until(lambda: bool(refused), "the frozen one tries to commit")
            count(counted, range(24, 26))
            wait_for_finals(counted, 26)
            assert heir.lease.held
            assert heir.lease.epoch == epoch, "the other did not even disturb it"
    finally:
        woken.set()
        frozen.stop()
    assert set(final_ids(counted).values()) == {1}
