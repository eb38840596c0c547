"""Events on the estimates topic: each closed pane once, running totals as they change."""

import itertools
from typing import Any

import pytest
import structlog
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka
from cloudevents.core.formats.json import JSONFormat
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from aggregator.kafka import clients, log_reader, topic_admin
from aggregator.publishing import due_events
from aggregator.publishing.event_producer import EventProducer
from aggregator.publishing.events import FINAL_TYPE
from aggregator.publishing.published_log import PublishedLog
from aggregator.publishing.publisher import Publisher
from aggregator.state.pane_keys import metric_key
from aggregator.storage.lease import Lease
from aggregator.storage.redis_keys import final_key, publisher_key
from aggregator.timestamps import iso
from producers.kafka.kafka_errors import ExplainingProducer
from tests.support.events import (
    PANE,
    Found,
    ages,
    all_are_final,
    close,
    final_ids,
    on_topic,
    publishing,
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
    wait_until(lambda: len(final_ids(deployment)) >= panes, f"{panes} final events", pause=0.25)


def forget_the_copy(deployment: Deployment) -> None:
    """Delete what Redis has of the topic: from then on events are known from the topic alone."""
    client: Any = deployment.store.client
    client.delete(*client.scan_iter(match="*publisher*"))


def test_each_closed_pane_or_new_total_is_one_event_with_its_answer(counted: Deployment) -> None:
    """A policy holds for what is published from then on."""

    def totals() -> list[Found]:
        return [event for event in on_topic(counted) if not event.is_final]

    with publishing(counted):
        wait_for_finals(counted, 24)
        wait_until(lambda: len(totals()) == 1, "the first total")
        assert counted.store.registry.publisher_status()[0]
        reader, starts = counted.reader(), [(EPOCH + pane * PANE) / 1000 for pane in range(25)]
        answers = [reader.estimate("age", *each) for each in itertools.pairwise(starts)]
        counted.store.registry.set_policy("age", "uniform")
        wait_until(lambda: len(totals()) == 2, "another policy is a change")
        count(counted, range(24, 26))
        wait_for_finals(counted, 26)
    has_leader, published = counted.store.registry.publisher_status()
    assert not has_leader, "it has let go of the lease"
    assert published["final"] == 26
    with publishing(counted):  # another one knows which total it was
        count(counted, range(26, 27))
        wait_until(lambda: totals()[-1].answer["reports"] == 27 * 120, "the total has grown again")
    last = totals()[-1]
    told = (last.key, last.answer["policy"], last.answer["status"])
    assert told == ("age", "uniform", "provisional")
    found, revision = on_topic(counted), counted.metrics["age"].revision
    assert len({event.id for event in found}) == len(found)
    for event in found:
        cloud: Any = from_kafka(KafkaMessage(event.headers, event.key, event.value), JSONFormat())
        assert (cloud.get_specversion(), cloud.get_id()) == ("1.0", event.id)
        assert (cloud.get_source(), cloud.get_subject()) == (f"/dither/{counted.topic}", "age")
        assert cloud.get_type() in ("dither.estimate.final", "dither.estimate.provisional")
        assert cloud.get_time().tzinfo is not None
        assert cloud.get_datacontenttype() == "application/json"
        assert cloud.get_data() == event.answer
    finals = [event for event in found if event.is_final]
    for number, event in enumerate(finals):
        answer, policy = event.answer, "optimal" if number < 24 else "uniform"
        assert (answer["status"], answer["bound"], answer["reports"]) == ("final", "fixed", 120)
        assert event.headers["ce_time"].decode() == answer["to"]
        assert event.key == f"age@{revision:08x}/{answer['from']}"
        assert (event.id, answer["policy"]) == (f"{event.key}/final/{policy}", policy)
    for event, expected in zip(finals, answers, strict=False):
        answer = event.answer
        assert expected.status == "final"
        assert (answer["value"], answer["unbiased"]) == (expected.shown, expected.value)
        assert (answer["lower"], answer["upper"]) == (expected.lower, expected.upper)


@pytest.mark.more
def test_connects_envelope_and_a_later_start_give_the_same_events(counted: Deployment) -> None:
    begin = str(iso(EPOCH + 20 * PANE))
    with publishing(counted, connect_schemas=True, since=begin):
        wait_for_finals(counted, 4)
        wait_until(lambda: len(on_topic(counted)) == 5, "and the running total of everything")
    framed = [event for event in on_topic(counted) if event.is_final]
    assert {event.answer["schema"]["name"] for event in framed} == {FINAL_TYPE}
    starts = [event.answer["payload"]["from"] for event in framed]
    assert (min(starts), len(starts)) == (begin, 4)
    forget_the_copy(counted)
    count(counted, range(24, 26))
    with publishing(counted, since=begin):
        wait_for_finals(counted, 6)
    assert set(final_ids(counted).values()) == {1}
    bare = [event for event in on_topic(counted) if event.is_final][4:]
    assert [event.answer["status"] for event in bare] == ["final"] * 2
    assert framed[0].answer["payload"].keys() == bare[0].answer.keys()


@pytest.mark.usefixtures("apache_kafka")
def test_whoever_publishes_final_events_are_the_same_bytes_once(counted: Deployment) -> None:
    """First Redis forgets everything, then the topic is deleted and created again."""
    with publishing(counted):
        wait_for_finals(counted, 24)
    counted.store.client.flushdb()
    counted.settings.aggregate.group += "-again"
    count(counted, range(24, 26))
    with publishing(counted):
        wait_for_finals(counted, 26)
    before = [event for event in on_topic(counted) if event.is_final]
    assert len({event.id for event in before}) == len(before) == 26
    admin = AdminClient({"bootstrap.servers": counted.kafka.bootstrap_servers})
    admin.delete_topics([counted.estimates])[counted.estimates].result(60)
    wait_until(lambda: counted.estimates not in admin.list_topics(timeout=60).topics, "it is gone")
    topic_admin.ensure_topics(counted.settings)
    assert not on_topic(counted)
    with publishing(counted):
        wait_for_finals(counted, 26)
    assert [event for event in on_topic(counted) if event.is_final] == before


def test_heartbeats_close_idle_partitions_and_answers_stay(deployment: Deployment) -> None:
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
        shown = deployment.reader().estimate("age", EPOCH / 1000, (EPOCH + 6 * PANE) / 1000)
        assert (shown.status, shown.reports) == ("final", 5 * 120)
        report(0, 7)
        wait_for_finals(deployment, 6)
    assert [event for event in on_topic(deployment) if event.is_final][:5] == before
    assert set(final_ids(deployment).values()) == {1}
    assert deployment.verify().verified


def test_a_publisher_waits_for_kafka(counted: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "SILENT_SECONDS", 0.5)
    settings = settings_of(counted)
    settings.kafka["bootstrap.servers"] = "127.0.0.1:1"
    publisher = Publisher(settings, counted.reader())
    with structlog.testing.capture_logs() as logs:
        publisher.start()
        try:
            wait_until(lambda: len(logs) >= 2, "it has tried twice")
            monkeypatch.undo()
            settings.kafka["bootstrap.servers"] = counted.kafka.bootstrap_servers
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


@pytest.mark.usefixtures("apache_kafka")
def test_events_of_publishers_that_crashed_before_and_after_their_commit_are_published_once(
    counted: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = PublishedLog.note_committed

    def crash_in_the_transaction(self: ExplainingProducer, *_: float) -> None:
        self.flush(60)  # the broker has the events, and nobody is to see them
        raise Crash

    def crash_at_events(self: PublishedLog, committed: Any, positions: dict[int, int]) -> None:
        if any(event.type == FINAL_TYPE for event in committed):
            raise Crash
        note(self, committed, positions)

    for owner, name, crashing, published in (
        (ExplainingProducer, "commit_transaction", crash_in_the_transaction, 0),
        (PublishedLog, "note_committed", crash_at_events, 24),
    ):
        with monkeypatch.context() as broken:
            broken.setattr(owner, name, crashing)
            broken.setattr(Lease, "release", lambda self: None)
            broken.setattr(due_events, "BATCH_SECONDS", 60.0)  # all in one transaction
            publisher = Publisher(settings_of(counted, lease="2s"), counted.reader())
            with pytest.raises(Crash):
                publisher.run()
        assert len(final_ids(counted)) == published
    count(counted, range(24, 30))
    with publishing(counted):
        wait_for_finals(counted, 30)
    found = final_ids(counted)
    assert (len(found), set(found.values())) == (30, {1})


@pytest.mark.more
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
        _, published = counted.store.registry.publisher_status()
        assert (client.zcard(finals), published["final"]) == (panes, panes)
    client.copy(f"{prefix}:metrics", key := f"{prefix}:provisional", replace=True)
    count(counted, range(29, 30))
    with publishing(counted) as publisher:
        wait_for_finals(counted, 30)
        wait_until(lambda: key in publisher.failing, "it is named, and stops no final event")


@pytest.mark.more
@pytest.mark.usefixtures("apache_kafka")
def test_others_messages_hide_nothing(counted: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    def published() -> int:
        return counted.store.registry.publisher_status()[1]["final"]

    other = Producer(
        {
            "bootstrap.servers": counted.kafka.bootstrap_servers,
            "transactional.id": f"other-{counted.topic}",
            "transaction.timeout.ms": 300_000,  # else Kafka ends it after a minute
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
        other.flush(60)
        count(counted, range(24, 25))
        wait_until(lambda: published() == 25, "one behind what is under way")
    forget_the_copy(counted)
    looks, catch_up = [0], PublishedLog.catch_up

    def counting_looks(self: PublishedLog) -> None:
        looks[0] += 1
        catch_up(self)

    monkeypatch.setattr(PublishedLog, "catch_up", counting_looks)
    monkeypatch.setattr(log_reader, "TRANSACTION_SECONDS", 0.3)
    with publishing(counted) as publisher:
        wait_until(lambda: looks[0] > 1, "it reads the topic")
        why = f"topic {counted.estimates!r}: a transaction is open in partition"
        wait_until(lambda: why in "".join(publisher.obstacles()), "it says why it waits")
        other.commit_transaction(30)
        wait_until(lambda: published() == 25, "all are found again")
        count(counted, range(25, 26))
        wait_until(lambda: published() == 26, "and one more")
        wait_until(lambda: publisher.obstacles() == [], "nothing keeps it from publishing")
    source = f"/dither/{counted.topic}".encode()
    own = [event for event in on_topic(counted) if event.headers.get("ce_source") == source]
    finals = [event.id for event in own if event.is_final]
    assert len(finals) == len(set(finals)) == 26
    other.close()


@pytest.mark.usefixtures("apache_kafka")
def test_only_topics_whose_latest_messages_matter_are_compacted(deployment: Deployment) -> None:
    admin = AdminClient(deployment.properties)
    admin.delete_topics([deployment.deadletters])[deployment.deadletters].result(60)
    listed = admin.list_topics
    wait_until(lambda: deployment.deadletters not in listed(timeout=60).topics, "one is missing")
    topic_admin.ensure_topics(deployment.settings)
    expected = {deployment.estimates: "compact", deployment.rounds: "compact"}
    expected[deployment.deadletters] = "delete"
    # A broker may hear of a topic a moment after the controller has made it.
    wait_until(lambda: listed(timeout=60).topics.keys() >= expected.keys(), "all are there")
    for name, policy in expected.items():
        asked = ConfigResource(ConfigResource.Type.TOPIC, name)
        described = admin.describe_configs([asked])[asked].result(60)
        assert described["cleanup.policy"].value == policy, name


@pytest.mark.usefixtures("apache_kafka")
def test_a_producer_of_an_identity_ends_the_transaction_before(deployment: Deployment) -> None:
    topic_admin.ensure_topics(deployment.settings)
    made = [EventProducer(deployment.settings, deployment.estimates, deployment.topic)]
    made[0]._producer.begin_transaction()
    made[0]._producer.produce(deployment.estimates, b"of the first", b"key")
    made[0]._producer.flush(60)
    made.append(EventProducer(deployment.settings, deployment.estimates, deployment.topic))
    with pytest.raises(KafkaException):
        made[0]._producer.commit_transaction(30)
    assert on_topic(deployment) == []
