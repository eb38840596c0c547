"""What cannot be counted, or no longer safely, halts partitions with a reason, until a repair."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from aggregator.cli.main import cli
from aggregator.config.settings import Settings
from aggregator.counting import assignment
from aggregator.dead_letters.writer import HEADER_PREFIX, UNREADABLE_HEADER
from aggregator.kafka import clients, obstacles, topic_admin
from aggregator.kafka.log_ends import NO_ANSWER, NO_VISIBLE_TOPIC, KafkaLog, LogEnds
from aggregator.state.partition import Partition
from aggregator.storage import eviction
from estimators import Metric, define
from tests.support.reports.messages import EPOCH, batch
from tests.support.reports.traffic import HOUR, traffic
from tests.support.reports.wire import ZSTD, RawProducer, Record, record_batch, zstd
from tests.support.running.deployment import PATIENCE, Deployment, wait_until
from tests.support.running.servers import Kafka

NOBODYS = define(name="nobodys", kind="mean", mechanism="laplace", range=(0, 1), levels=[1])
GARBAGE = batch(NOBODYS, [1.0]).SerializeToString()
"""Of a metric that is not defined: only what a wrong metrics.toml can cause halts a partition."""
BOMB_BYTES = 150_000_000


@pytest.fixture
def delay(deployment: Deployment) -> Metric:
    return deployment.metrics["delay"]


@pytest.fixture
def raw(apache_kafka: Kafka) -> Iterator[RawProducer]:
    with RawProducer(apache_kafka.bootstrap_servers) as producer:
        yield producer


def honest(delay: Metric, seed: int) -> bytes:
    return batch(delay, [1.0], seed=seed).SerializeToString()


def accepted(deployment: Deployment) -> int:
    return deployment.counts().get("accepted:delay", 0)


def wait_until_halted(deployment: Deployment, why: str) -> None:
    wait_until(lambda: all(why in one for one in deployment.owners("halted")), f"halted: {why}")


def wait_until_goes_on(deployment: Deployment) -> None:
    with deployment.worker():
        wait_until(lambda: not any(deployment.owners("halted")), "counting goes on")


def set_policy(deployment: Deployment, policy: str) -> None:
    admin = AdminClient(deployment.properties)
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(
        ConfigResource.Type.TOPIC, deployment.topic, incremental_configs=[entry]
    )
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(timeout=PATIENCE)


@pytest.mark.usefixtures("apache_kafka")
def test_a_compacted_topic_is_refused_at_the_start_and_halts_who_runs(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_policy(deployment, "compact,delete")
    refused = deployment.dither("aggregate")
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr
    assert f"topic {deployment.topic!r} has cleanup.policy = compact,delete" in refused.stderr
    assert "--add-config cleanup.policy=delete" in refused.stderr
    set_policy(deployment, "delete")
    monkeypatch.setattr(topic_admin, "POLICY_CHECK_SECONDS", 0.5)
    deployment.produce(traffic(deployment, 10))
    with deployment.worker():
        deployment.wait_until_counted()
        set_policy(deployment, "compact")
        wait_until_halted(deployment, "cleanup.policy = compact")
    set_policy(deployment, "delete")
    wait_until_goes_on(deployment)


def test_workers_halt_when_redis_may_evict_by_now(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction, "CHECK_SECONDS", 0.2)
    client = deployment.store.client
    deployment.produce(traffic(deployment, 10))
    client.config_set("maxmemory", "1gb")
    try:
        with deployment.worker():
            deployment.wait_until_counted()
            client.config_set("maxmemory-policy", "allkeys-lru")
            wait_until_halted(deployment, "maxmemory-policy = allkeys-lru")
    finally:
        client.config_set("maxmemory", "0")
        client.config_set("maxmemory-policy", "noeviction")
    wait_until_goes_on(deployment)


def halted(deployment: Deployment, delay: Metric, seed: int) -> str:
    """Run a worker until partition 0 is halted, and another has counted; return why."""
    with deployment.worker():
        wait_until(lambda: bool(deployment.owners("halted")[0]), "halted")
        deployment.produce([(1, honest(delay, seed))])
        wait_until(lambda: deployment.owners("next")[1] == str(seed - 999), "others go on")
    return deployment.owners("halted")[0]


def test_nonsense_halts_a_partition_in_time(deployment: Deployment, delay: Metric) -> None:
    good = [honest(delay, seed) for seed in range(6)]
    log = [*good[:3], *[GARBAGE] * 4, *good[3:], *[GARBAGE] * 20]
    deployment.produce([(0, one) for one in log])
    aggregate = deployment.settings.aggregate
    aggregate.deadletter_consecutive, aggregate.deadletter_span = 8, "0s"
    limit = 3 + 4 + 3 + 8 - 1

    def diverted(expected: int) -> set[int]:
        letters = deployment.dead(expected)
        return {int(one["headers"]["__connect.errors.offset"]) for one in letters}

    for seed in (1_000, 1_001):  # nobody has decided before the second worker
        why = halted(deployment, delay, seed)
        assert "messages in a row cannot be counted" in why
        assert "most of them unknown_metric" in why
        assert int(deployment.owners("next")[0]) <= limit
        assert deployment.verify().verified, "it stands at an offset of the log"
        assert max(diverted(0), default=0) < limit, "nothing past it is diverted"
    aggregate.deadletter_consecutive = 0
    deployment.count()
    assert deployment.owners("halted")[0] == ""
    assert diverted(24) == {i for i, one in enumerate(log) if one == GARBAGE}
    assert accepted(deployment) == 6 + 2
    assert deployment.verify().verified


def test_headers_whose_names_are_not_utf8_are_left_out_however_often_others_were_read(
    deployment: Deployment, raw: RawProducer, delay: Metric
) -> None:
    names = (b"fine", b"\xff\xfe", b"\xed\xa0\x80", b"")
    records = [
        Record(b"?", headers=[(b"fine", b"1"), (names[i % 4], b"2"), (b"also", None)])
        for i in range(4_000)
    ]
    with deployment.worker():
        assert raw.produce(deployment.topic, 0, record_batch(records)) == 0
        deployment.produce([(0, honest(delay, 1)), (1, honest(delay, 2))])
        deployment.wait_until_counted()
    found = [letter["headers"] for letter in deployment.dead(len(records))]
    unreadable = [headers for headers in found if UNREADABLE_HEADER in headers]
    assert len(unreadable) == len(records) // 2
    assert sum("also" in headers for headers in found) == len(records) // 2
    assert not any("fine" in headers for headers in unreadable)
    assert {headers[UNREADABLE_HEADER] for headers in unreadable} == {b"a name is not UTF-8"}
    assert {int(headers[HEADER_PREFIX + "offset"]) for headers in found} == set(range(len(records)))
    assert accepted(deployment) == 2
    assert deployment.verify().verified
    explained = deployment.dither("deadletters", "explain", "0:1")
    assert explained.returncode == 0, explained.stderr


def test_a_message_whose_judgement_fails_halts_its_partition_until_it_is_skipped(
    deployment: Deployment, delay: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison, count = b"poison", Partition.count

    def failing(self: Partition, messages: Any) -> Any:
        found = list(messages)
        at = next((i for i, m in enumerate(found) if m.value() == poison), None)
        if at is None:
            return count(self, found)
        count(self, found[: at + 1])  # half done, as a real failure would be
        raise OverflowError("a date too large")

    monkeypatch.setattr(Partition, "count", failing)
    before = [(0, honest(delay, seed)) for seed in range(5)]
    deployment.produce([*before, (0, poison), *[(0, honest(delay, seed)) for seed in range(5, 9)]])
    with deployment.worker() as worker:
        wait_until(lambda: bool(deployment.owners("halted")[0]), "partition 0 halts")
        deployment.produce([(1, honest(delay, 20))])
        wait_until(lambda: accepted(deployment) == 6, "what stands before, and in others, counts")
        assert worker.owned[0].state.next_offset == 5
        assert deployment.owners("next")[0] == "5"
    reason = deployment.owners("halted")[0]
    assert "offset 5 cannot be counted" in reason
    assert "checking it fails (OverflowError)" in reason
    assert "--set aggregate.skip=0:5" in reason
    deployment.settings.aggregate.skip = ["0:2-7"]
    deployment.count()
    assert accepted(deployment) == 10
    owner = deployment.store.owner(0)
    assert (owner["halted"], owner["gap"], owner["skipped"]) == ("", "1", "5-5")
    monkeypatch.undo()
    assert deployment.verify().verified
    assert not deployment.counts().get("malformed:"), "what was skipped was not judged"


@pytest.mark.more
def test_a_batch_that_cannot_be_read_halts_its_partition_until_it_is_skipped(
    deployment: Deployment, raw: RawProducer, delay: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstacles, "HALT_SECONDS", 1.0)
    many = [Record(b"\0" * 10) for _ in range(40)]
    body = b"".join(record.encode(i) for i, record in enumerate(many))
    last = Record(b"\0" * BOMB_BYTES).encode(40)
    head = last[: len(last) - BOMB_BYTES - 1]
    payload = zstd((body + head, 1), (b"\0", BOMB_BYTES + 1))
    records = [*many, Record(None)]
    deployment.produce([(0, honest(delay, 1))])
    assert raw.produce(deployment.topic, 0, record_batch(records, codec=ZSTD, payload=payload)) == 1
    deployment.produce([(0, honest(delay, 2)), (1, honest(delay, 3))])
    with deployment.worker():
        wait_until(lambda: "1 to 41" in deployment.owners("halted")[0], "partition 0 halts")
        wait_until(lambda: accepted(deployment) == 2, "what stands before, and in others, counts")
    reason = deployment.owners("halted")[0]
    assert "offsets 1 to 41 cannot be counted: Kafka's client cannot read it" in reason
    assert "To skip 41 offsets" in reason
    assert "--set aggregate.skip=0:1" in reason
    assert deployment.verify().verified, "what is not counted is no difference"
    deployment.settings.aggregate.skip = ["0:1"]
    deployment.count()
    assert deployment.owners("halted")[0] == ""
    deployment.settings.aggregate.skip = []
    deployment.count([(0, honest(delay, 4))])
    owner = deployment.store.owner(0)
    assert (owner["gap"], owner["skipped"]) == ("41", "1-41"), "the next owner knows it, too"
    assert accepted(deployment) == 4
    assert deployment.verify().verified


@pytest.mark.usefixtures("apache_kafka")
def test_a_client_that_lost_its_place_never_jumps(deployment: Deployment, delay: Metric) -> None:
    deployment.produce([(0, honest(delay, seed)) for seed in range(9)])
    deployment.cut({0: 5})
    found: list[int | None] = []
    with contextlib.closing(clients.consumer(deployment.settings, deployment.topic)) as consumer:
        consumer.assign([TopicPartition(deployment.topic, 0, 2)])

        def told() -> bool:
            for message in consumer.consume(10, 0.2):
                error: Any = message.error()
                found.append(error.code() if error else message.offset())
            return bool(found)

        wait_until(told, "it says so")
    assert found == [KafkaError._AUTO_OFFSET_RESET]


# -- `dither recount`, and how much waits --------------------------------------------------------


@pytest.mark.more
@pytest.mark.usefixtures("apache_kafka")
def test_a_partition_is_counted_again_while_its_worker_runs_and_not_where_its_log_was_cut(
    deployment: Deployment, delay: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignment, "UNREADABLE_RETRY_SECONDS", 0.1)
    hours = [batch(delay, [1.0], 1, EPOCH + i * HOUR, i).SerializeToString() for i in range(1_200)]
    deployment.produce([(0, one) for one in hours])
    with deployment.worker():
        deployment.wait_until_counted()
        found = deployment.dither("recount", "0", "--yes")
        assert found.returncode == 0, found.stderr
        assert "keys deleted; workers count it again from offset 0" in found.stdout
        wait_until(lambda: deployment.owners("next")[0] == "1200", "it is counted again")
        assert deployment.owners("halted")[0] == ""
    assert deployment.verify().verified
    before = deployment.store.client.dbsize()
    assert deployment.dither("recount", "0").returncode == 1, "nobody says yes"
    deployment.cut({0: 5})
    refused = deployment.dither("recount", "0", "--yes")
    assert refused.returncode == 1
    assert "the offsets 0 to 4 are gone from the log, which begins at 5" in refused.stderr
    unknown = deployment.dither("recount", "17", "--yes")
    assert "has no partition 17: expected 0 to 5" in unknown.stderr
    assert deployment.store.client.dbsize() == before
    accepted = deployment.dither("recount", "0", "--yes", "--accept-loss")
    assert accepted.returncode == 0, accepted.stderr
    assert deployment.store.owner(0) == {}


def test_what_is_reported_and_counted_while_a_recount_asks_is_not_taken_for_lost(
    deployment: Deployment, delay: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.produce([(0, honest(delay, 1))])
    monkeypatch.setattr(assignment, "UNREADABLE_RETRY_SECONDS", 0.1)
    with deployment.worker():
        deployment.wait_until_counted()

        def ask(log: KafkaLog) -> LogEnds:
            ends = asked(log)
            deployment.produce([(0, honest(delay, 2))])
            deployment.wait_until_counted()
            return ends

        asked = KafkaLog.ask
        monkeypatch.setattr(KafkaLog, "ask", ask)
        found = CliRunner().invoke(cli, ["recount", "0", "--yes", *deployment.flags])
        assert found.exit_code == 0, found.output
        wait_until(lambda: deployment.owners("next")[0] == "2", "it is counted again")
    assert deployment.verify().verified


def test_what_waits_is_unknown_without_a_topic_or_without_kafka(deployment: Deployment) -> None:
    for topic, servers, why in (
        ("nowhere", deployment.kafka.bootstrap_servers, NO_VISIBLE_TOPIC),
        ("reports", "127.0.0.1:9", NO_ANSWER),
    ):
        settings = Settings(kafka={**deployment.settings.kafka, "bootstrap.servers": servers})
        settings.topics.reports = topic
        log = KafkaLog(settings)
        wait_until(lambda log=log, why=why: log().unknown == why, "it is known to be unknown")  # type: ignore[misc]
        assert log().ranges == {}
    if deployment.kafka.is_real:
        assert "nowhere" not in AdminClient(deployment.properties).list_topics(timeout=60).topics
