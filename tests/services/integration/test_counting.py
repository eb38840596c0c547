"""From Kafka to exact sums in Redis, with workers that come and go."""

import dataclasses
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from aggregator.counting import rival_deployments
from aggregator.errors import BrokerRefused, DitherError
from aggregator.kafka.topic_admin import TopicWatch
from aggregator.monitoring.collector import Exporter
from producers import Reporter
from producers.wire.framing import frame
from producers.wire.reports_pb2 import ReportBatch
from tests.support.events import publishing
from tests.support.reports.bad_batches import bad_batches
from tests.support.reports.messages import EPOCH, batch
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment, as_json, other_database, wait_until
from tests.support.running.servers import Redis


def sizes(messages: list[tuple[int, bytes]]) -> Counter[str]:
    """Return how many reports messages have, by metric."""
    found: Counter[str] = Counter()
    for _, payload in messages:
        one = ReportBatch.FromString(payload)
        found[one.metric] += len(one.levels)
    return found


def test_whoever_counts_a_log_counts_each_report_once_bytes_alike(deployment: Deployment) -> None:
    """Messages come once, twice and five times, bare, framed, and both."""
    messages = traffic(deployment, 60)
    log = [(n, one) for n, payload in messages[:60] for one in (payload, frame(7, payload))]
    log += [one for one in messages[60:90] for _ in range(5)]
    log += [(n, frame(7, payload)) for n, payload in messages[90:]]
    deployment.count(log)
    counts, once = deployment.counts(), sizes(messages)
    twice = sizes(messages[:60]) + Counter({k: 4 * v for k, v in sizes(messages[60:90]).items()})
    assert counts == {
        **{f"accepted:{name}": number for name, number in once.items()},
        **{f"duplicate:{name}": number for name, number in twice.items()},
    }
    outcome = deployment.verify()
    assert outcome.verified, outcome.differences
    assert (outcome.messages, outcome.partitions) == (len(log), deployment.partitions)
    first = deployment.state()
    deployment.store.client.flushdb()
    with deployment.worker("one"), deployment.worker("two"):
        deployment.wait_until_counted()
    assert deployment.state() == first


@pytest.mark.usefixtures("apache_kafka")
def test_workers_share_partitions_and_hand_them_over_at_the_end(deployment: Deployment) -> None:
    unowned = TopicWatch(deployment.settings, deployment.topic).unowned
    with deployment.worker("one") as one:
        wait_until(lambda: len(one.owned) == deployment.partitions, "one owns all")
        numbers, further = range(deployment.partitions), range(deployment.partitions + 1)
        wait_until(lambda: unowned(further) == [deployment.partitions], "nobody has a further one")
        with deployment.worker("two") as two:
            wait_until(lambda: min(len(one.owned), len(two.owned)) >= 2, "both own some")
            wait_until(lambda: not one.owned.keys() & two.owned.keys(), "no partition twice")
            deployment.produce(traffic(deployment, 40))
            deployment.wait_until_counted()
        wait_until(lambda: len(one.owned) == deployment.partitions, "one owns all again")
        deployment.produce(traffic(deployment, 40, seed=1))
        deployment.wait_until_counted()
    wait_until(lambda: unowned(numbers) is None, "a group without members divides nothing")
    assert deployment.verify().verified


def test_bad_batches_are_dead_letters_and_good_ones_are_counted(deployment: Deployment) -> None:
    good = traffic(deployment, 40)
    kinds = bad_batches(
        *(deployment.metrics[name] for name in ("delay", "carrier", "age")),
        noise_bytes=10_000_000 if deployment.kafka.is_real else 100_000,
        now_ms=int(1000 * time.time()),
    )
    assert len(kinds) >= 20
    bad = [*kinds.values()]
    mixed: list[tuple[int, bytes | None]] = list(good)
    for i, (payload, _) in enumerate(bad):
        mixed.insert(4 * i, (0, payload))
    deployment.count(mixed)
    letters = deployment.dead(len(bad))
    about = [letter["headers"] for letter in letters]
    found = [
        (letter["value"], letter["headers"]["__connect.errors.exception.class.name"].decode())
        for letter in letters
    ]
    assert sorted(found, key=repr) == sorted(bad, key=repr)
    for headers in about:
        assert headers["__connect.errors.topic"].decode() == deployment.topic
        assert headers["__connect.errors.partition"] == b"0"
        assert headers["__connect.errors.exception.message"]
    reader, once = deployment.reader(), sizes(good)
    assert {name: reader.estimate(name).reports for name in deployment.metrics} == once
    outcomes: Counter[str] = Counter()
    for family in Exporter(reader, top_categories=5).collect():
        for sample in family.samples:
            if sample.name == "dither_reports_total":
                outcomes[sample.labels["outcome"]] += int(sample.value)
    refused = Counter(reason for _, reason in bad)
    assert outcomes.pop("accepted") == once.total()
    assert outcomes.keys() == refused.keys()
    assert outcomes >= refused
    assert deployment.verify().verified


def test_a_worker_commits_what_it_has_counted_when_it_is_stopped(deployment: Deployment) -> None:
    deployment.settings.aggregate.commit_interval = "1h"
    bad: list[tuple[int, bytes]] = [(n, b"\xff") for n in range(deployment.partitions)]
    deployment.produce([*traffic(deployment, 20), *bad])
    ends = deployment.log_ends()
    with deployment.worker() as worker:

        def counted() -> dict[int, int]:
            return {n: owned.state.next_offset for n, owned in worker.owned.copy().items()}

        wait_until(lambda: counted() == ends, "everything is counted")
        assert deployment.counts() == {}, "and nothing is committed"
    assert deployment.owners("next") == [str(end) for end in ends.values()]
    assert deployment.counts()["malformed:"] == deployment.partitions
    assert deployment.verify().verified


@pytest.mark.more
def test_a_second_deployment_in_a_group_says_so_and_a_redis_that_was_lost_is_no_second_one(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rival_deployments, "RIVAL_CHECK_SECONDS", 0.3)
    other = deployment.beside(other_database(deployment.redis_url))
    other.settings.aggregate.group = deployment.settings.aggregate.group
    deployment.produce(traffic(deployment, 20))
    with other.store:
        other.store.client.flushdb()
        with deployment.worker("first") as first:
            deployment.wait_until_counted()
            with other.worker("second") as second:
                wait_until(
                    lambda: (
                        bool(second.owned)
                        and all("they go on" in one.halted for one in [*second.owned.values()])
                    ),
                    "the second is halted",
                )
                assert not any(owned.halted for owned in first.owned.values())
                assert not any(other.owners("next")), "the second has counted nothing"
    deployment.store.client.flushdb()
    deployment.count()
    assert deployment.verify().verified


@pytest.mark.usefixtures("apache_kafka")
def test_workers_and_publishers_of_another_cluster_are_refused(deployment: Deployment) -> None:
    deployment.count(traffic(deployment, 20))
    before = deployment.state()
    for number in range(deployment.partitions):
        key = f"{{dither:{deployment.topic}:{number}}}:owner"
        deployment.store.client.hset(key, mapping={"cluster": "elsewhere", "topic_id": "T"})
    deployment.settings.aggregate.on_gap = "skip"
    with deployment.worker() as worker:
        wait_until(lambda: len(worker.owned) == deployment.partitions, "they are assigned")
        assert all("'elsewhere'" in owned.halted for owned in worker.owned.values())
        assert all("on_gap" not in reason for reason in deployment.owners("halted"))
    assert deployment.state() == before
    with publishing(deployment) as publisher:
        wait_until(lambda: "'elsewhere'" in publisher.failing, "nothing is published")


@pytest.mark.usefixtures("apache_kafka")
def test_a_refused_worker_waits(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does while the server of its tokens is away."""
    ask, refused = TopicWatch.topic_id, [BrokerRefused("kafka:9092", "refuses: no token")] * 3

    def asked(watch: TopicWatch) -> str:
        if refused:
            raise refused.pop()
        return ask(watch)

    monkeypatch.setattr(TopicWatch, "topic_id", asked)
    deployment.count(traffic(deployment, 20))
    assert not refused
    assert deployment.verify().verified


@pytest.mark.usefixtures("apache_kafka")
def test_a_worker_whose_instance_id_is_taken_names_the_setting(deployment: Deployment) -> None:
    deployment.settings.kafka["group.instance.id"] = "east"
    with ExitStack() as stack:
        fenced = stack.enter_context(deployment.worker("fenced"))
        wait_until(lambda: len(fenced.owned) == deployment.partitions, "the first has all")
        with deployment.worker("heir"):
            wait_until(lambda: not fenced.owned, "the first has ended")
            deployment.produce(traffic(deployment, 10))
            deployment.wait_until_counted()
        with pytest.raises(DitherError, match=r"kafka\.group\.instance\.id = 'east'"):
            stack.close()


def places(deployment: Deployment, messages: list[tuple[bytes, bytes]]) -> list[set[int]]:
    """Send keys and payloads as reporters and the gateway do; return the partitions of each key."""
    keys = [key for key, _ in messages]
    deployment.produce([(PARTITION_UA, payload) for _, payload in messages], key=keys)
    found: defaultdict[Any, set[int]] = defaultdict(set)
    message: Any
    for message in deployment.messages():
        found[message.key()].add(message.partition())
    return [found[key] for key in keys]


def test_a_copy_counts_once_a_partition_and_honest_senders_use_one(deployment: Deployment) -> None:
    delay = deployment.metrics["delay"]
    sent = [batch(delay, [1.0], seed=seed) for seed in range(20)]
    messages = [(one.batch_id, one.SerializeToString()) for one in sent]
    old = batch(delay, [1.0], time_ms=EPOCH - 1, seed=99)
    first = places(deployment, [*messages, (old.batch_id, old.SerializeToString())])
    deployment.settings.aggregate.past = "1d"
    deployment.count()
    assert deployment.counts() == {"too_old:delay": 21}
    deployment.settings.aggregate.past = "36500d"
    assert as_json(deployment.dither("deadletters", "replay", "--json"))["sent"] == 21
    assert places(deployment, messages) == first[:20], "a retry has the same key"
    payload = batch(delay, [1.0] * 7, seed=100).SerializeToString()
    deployment.count([(number, payload) for number in range(deployment.partitions)] * 5)
    found, copies = deployment.counts(), 7 * deployment.partitions
    assert found["accepted:delay"] == 21 + copies
    assert found["duplicate:delay"] == 20 + 4 * copies
    assert deployment.verify().verified


PARTITION_UA = -1
"""Of librdkafka: a message goes to the partition that its key says."""
LIMITED = """
[metrics]
late = {kind = "mean", range = [0, 1], levels = [1], max_batch_reports = 20, max_key_reports = 100}
"""


def test_a_flood_adds_at_most_the_limit_on_any_worker(defined: Callable[..., Deployment]) -> None:
    deployment = defined(LIMITED)
    unlimited = dataclasses.replace(deployment.metrics["late"], max_batch_reports=None)

    def report(key: bytes, batches: int, size: int = 20) -> None:
        servers = deployment.properties
        options: dict[str, Any] = {"topic": deployment.topic, "batch_reports": size, "key": key}
        with Reporter(unlimited, servers, **options) as reporter:
            reporter.report(np.ones(batches * size), epsilon=1, time=EPOCH / 1000)

    report(b"flood", batches=3)
    deployment.count()
    report(b"flood", batches=50)
    report(b"honest", batches=4)
    report(b"large", batches=1, size=21)
    deployment.count()
    assert deployment.counts() == {
        "accepted:late": 100 + 80,
        "over_limit:late": 48 * 20,
        "too_many_reports:late": 21,
    }
    letters = deployment.dead(49)
    reasons = [letter["headers"]["__connect.errors.exception.class.name"] for letter in letters]
    assert sorted(reasons) == [b"over_limit"] * 48 + [b"too_many_reports"]
    outcome = deployment.verify()
    assert outcome.verified, outcome.differences


def test_a_worker_leaves_without_redis_and_the_next_one_counts_what_it_could_not_commit(
    deployment: Deployment, redis_server: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator.counting.worker.LEAVE_SECONDS", 1.0)
    deployment.settings.aggregate.commit_interval = "1h"
    with deployment.worker() as worker:
        wait_until(lambda: len(worker.owned) == deployment.partitions, "it owns all")
        deployment.produce(traffic(deployment, 40))
        wait_until(lambda: any(o.state.unsaved for o in [*worker.owned.values()]), "it counts")
        redis_server.kill()
    redis_server.restart()
    deployment.settings.aggregate.commit_interval = "200ms"
    with deployment.worker("next"):
        deployment.wait_until_counted()
    assert deployment.verify().verified
