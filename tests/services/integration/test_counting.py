"""From Kafka to exact sums in Redis, with workers that come and go."""

from __future__ import annotations

import signal
import time

import pytest

from aggregator.counting import worker as worker_module
from aggregator.monitoring.collector import Exporter
from aggregator.reading.reader import Reader
from producers.wire.framing import frame
from producers.wire.reports_pb2 import ReportBatch
from tests.support.reports.bad_batches import bad_batches
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment, wait_until


def test_counted_sums_equal_the_reports_and_the_log_proves_them(deployment: Deployment) -> None:
    deployment.produce(traffic(deployment, 100))
    with deployment.worker():
        deployment.wait_until_counted()
    counts = deployment.counts()
    assert set(counts) == {"accepted:delay", "accepted:carrier", "accepted:age"}
    outcome = deployment.verify()
    assert outcome.verified, outcome.differences
    assert outcome.messages == 300
    assert outcome.partitions == deployment.partitions


def test_two_runs_over_the_same_log_give_the_same_bytes(deployment: Deployment) -> None:
    deployment.produce(traffic(deployment, 60))
    with deployment.worker():
        deployment.wait_until_counted()
    first = deployment.state()
    deployment.store.client.flushdb()
    with deployment.worker("one"), deployment.worker("two"):
        deployment.wait_until_counted()
    assert deployment.state() == first


def test_workers_share_the_partitions_and_hand_them_over_when_they_leave(
    deployment: Deployment,
) -> None:
    with deployment.worker("one") as one:
        wait_until(lambda: len(one.owned) == deployment.partitions, "one owns all")
        with deployment.worker("two") as two:
            wait_until(lambda: len(two.owned) >= 2 and len(one.owned) >= 2, "both own some")
            assert not one.owned.keys() & two.owned.keys()
            deployment.produce(traffic(deployment, 40))
            deployment.wait_until_counted()
        wait_until(lambda: len(one.owned) == deployment.partitions, "one owns all again")
        deployment.produce(traffic(deployment, 40, seed=1))
        deployment.wait_until_counted()
    assert deployment.verify().verified


def test_a_worker_process_drains_commits_and_leaves_on_sigterm(deployment: Deployment) -> None:
    process = deployment.start_worker()
    deployment.produce(traffic(deployment, 30))
    deployment.wait_until_counted()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert deployment.verify().verified


def test_redis_that_lost_everything_is_filled_again_from_the_log(deployment: Deployment) -> None:
    deployment.produce(traffic(deployment, 30))
    with deployment.worker():
        deployment.wait_until_counted()
        before = deployment.state()
        deployment.store.client.flushdb()
        deployment.wait_until_counted()
        wait_until(lambda: deployment.state() == before, "the same state again")


def test_redis_restored_from_an_older_state_is_brought_up_to_date(deployment: Deployment) -> None:
    client = deployment.store.client
    deployment.produce(traffic(deployment, 30))
    with deployment.worker():
        deployment.wait_until_counted()
        older = [(key, client.dump(key) or b"") for key in client.scan_iter()]
        deployment.produce(traffic(deployment, 30, seed=1))
        deployment.wait_until_counted()
        newest = deployment.state()
        with client.pipeline() as restored:  # at once: the worker must not find it half-way
            restored.flushdb()
            for key, value in older:
                restored.restore(key, 0, value)
            restored.execute()
        deployment.wait_until_counted()
        wait_until(lambda: deployment.state() == newest, "the newest state again")
    assert deployment.verify().verified


def test_bad_batches_go_to_the_dead_letters_and_good_ones_are_counted(
    deployment: Deployment,
) -> None:
    good = traffic(deployment, 40)
    kinds = bad_batches(
        deployment.metrics["delay"],
        deployment.metrics["carrier"],
        deployment.metrics["age"],
        noise_bytes=10_000_000 if deployment.kafka.is_real else 100_000,
        now_ms=int(1000 * time.time()),
    )
    assert len(kinds) >= 20
    bad: dict[str, list[bytes | None]] = {}
    for payload, reason in kinds.values():
        bad.setdefault(reason, []).append(payload)
    everything = [(0, payload) for payloads in bad.values() for payload in payloads]
    mixed: list[tuple[int, bytes | None]] = list(good)
    for i, message in enumerate(everything):
        mixed.insert(4 * i, message)
    deployment.produce(mixed)
    with deployment.worker():
        deployment.wait_until_counted()
    letters = deployment.dead(len(everything))
    assert len(letters) == len(everything)
    found: dict[str, list[bytes | None]] = {}
    for letter in letters:
        headers = letter["headers"]
        reason = headers["__connect.errors.exception.class.name"].decode()
        found.setdefault(reason, []).append(letter["value"])
        assert headers["__connect.errors.topic"].decode() == deployment.topic
        assert headers["__connect.errors.partition"] == b"0"
        assert headers["__connect.errors.exception.message"]
    assert {k: sorted(v, key=repr) for k, v in found.items()} == {
        k: sorted(v, key=repr) for k, v in bad.items()
    }
    reader = Reader(deployment.store, deployment.metrics)
    outcomes = reports_total(reader)
    counted = {name: reader.estimate(name).reports for name in deployment.metrics}
    sizes = dict.fromkeys(deployment.metrics, 0)
    for _, payload in good:
        one = ReportBatch.FromString(payload)
        sizes[one.metric] += len(one.levels)
    assert counted == sizes
    assert outcomes.pop("accepted") == sum(sizes.values())
    assert set(outcomes) == set(bad)
    for reason, payloads in bad.items():
        assert outcomes[reason] >= len(payloads)
    assert deployment.verify().verified


def test_framed_batches_are_counted_beside_bare_ones_and_once(deployment: Deployment) -> None:
    messages = traffic(deployment, 30)
    both = [(n, one) for n, payload in messages for one in (payload, frame(7, payload))]
    deployment.produce(both[:90] + [(n, frame(7, payload)) for n, payload in messages[45:]])
    with deployment.worker():
        deployment.wait_until_counted()
    sizes: dict[str, int] = {}
    for _, payload in messages:
        one = ReportBatch.FromString(payload)
        sizes[one.metric] = sizes.get(one.metric, 0) + len(one.levels)
    counts = deployment.counts()
    assert {name: counts[f"accepted:{name}"] for name in sizes} == sizes
    twice = sum(len(ReportBatch.FromString(payload).levels) for _, payload in messages[:45])
    assert sum(count for name, count in counts.items() if name.startswith("duplicate")) == twice
    outcome = deployment.verify()
    assert outcome.verified, outcome.differences


def reports_total(reader: Reader) -> dict[str, int]:
    """Return dither_reports_total as it is scraped, by outcome."""
    found: dict[str, int] = {}
    for family in Exporter(reader, top_categories=5).collect():
        for sample in family.samples:
            if sample.name == "dither_reports_total":
                outcome = sample.labels["outcome"]
                found[outcome] = found.get(outcome, 0) + int(sample.value)
    return found


@pytest.mark.parametrize("copies", [2, 5])
def test_batches_that_come_twice_are_counted_once(deployment: Deployment, copies: int) -> None:
    messages = traffic(deployment, 20)
    latest = {}
    deployment.produce([message for message in messages for _ in range(copies)])
    with deployment.worker():
        deployment.wait_until_counted()
    counts = deployment.counts()
    for name in deployment.metrics:
        latest[name] = counts[f"accepted:{name}"]
        assert counts[f"duplicate:{name}"] == (copies - 1) * latest[name]
    assert deployment.verify().verified


def test_a_backlog_that_changes_many_panes_is_committed_in_parts(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "SLICE_MESSAGES", 3)
    monkeypatch.setattr(worker_module, "MANY_PANES", 2)
    deployment.settings.aggregate.commit_interval = "1h"
    deployment.produce(traffic(deployment, 60))
    with deployment.worker():
        deployment.wait_until_counted()
    outcome = deployment.verify()
    assert outcome.verified, outcome.differences
    assert outcome.messages == 180


def test_a_second_group_on_the_same_redis_says_so_and_disturbs_nobody(
    deployment: Deployment,
) -> None:
    deployment.produce(traffic(deployment, 20))
    with deployment.worker() as first:
        deployment.wait_until_counted()
        epochs = [deployment.store.owner(n)["epoch"] for n in range(deployment.partitions)]
        deployment.settings.aggregate.group += "-second"
        with deployment.worker() as second:
            wait_until(
                lambda: len(second.owned) == deployment.partitions, "the other group has them too"
            )
            assert all("aggregate.group=" in owned.halted for owned in second.owned.values())
            deployment.produce(traffic(deployment, 20, seed=1))
            deployment.wait_until_counted()
        assert not any(owned.halted for owned in first.owned.values())
    found = [deployment.store.owner(n)["epoch"] for n in range(deployment.partitions)]
    assert found == epochs, "nobody was fenced"
