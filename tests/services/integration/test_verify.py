"""`dither verify` finds whatever differs from the log, and says where; gaps are never silent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from aggregator.state.pane_keys import metric_key
from aggregator.state.slice_tables import chunk_rows, decode_rows, encode_chunk
from aggregator.storage.redis_keys import partitions_key
from tests.support.reports.messages import EPOCH, batch
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment, as_json, wait_until
from tests.support.running.servers import Kafka


@pytest.fixture
def counted(deployment: Deployment) -> Deployment:
    """A deployment whose log of some days is counted, its workers gone."""
    deployment.produce(traffic(deployment, 240))
    with deployment.worker():
        deployment.wait_until_counted()
    return deployment


def pane_keys(deployment: Deployment, pattern: str) -> list[bytes]:
    client: Any = deployment.store.client
    return sorted(client.scan_iter(match=f"{{dither:{deployment.topic}:*}}:{pattern}"))


def number_of(key: bytes) -> int:
    found = re.search(rb":(\d+)}", key)
    assert found is not None
    return int(found[1])


FAR_AHEAD = 4_000_000_000_000
GRAINS = ["pane:delay@*", "pane:carrier@*", "hour:age@*", "day:delay@*", "total:age@*"]


def test_one_altered_byte_is_named_with_its_partition_and_pane(counted: Deployment) -> None:
    client: Any = counted.store.client
    for pattern in GRAINS:
        key = pane_keys(counted, pattern)[0]
        value = client.get(key)
        client.set(key, value[:3] + bytes([value[3] ^ 1]) + value[4:])
        (difference,) = counted.verify().differences
        assert difference.partition == number_of(key)
        assert difference.where.startswith(f"{pattern.split(':')[0]} of ")
        assert key.decode().split("}:")[1] in difference.where
        assert difference.detail.startswith("1 cells differ")
        client.set(key, value)
    assert counted.dither("verify").returncode == 0


def test_a_report_that_was_moved_to_another_slice_is_named(counted: Deployment) -> None:
    client: Any = counted.store.client
    delay = counted.metrics["delay"]
    for pattern in ("slices:delay@*", "slices-day:delay@*", "slices-total:delay@*"):
        tables = {key: client.get(key) for key in pane_keys(counted, pattern)}
        key, value = max(tables.items(), key=lambda one: len(one[1]))
        codes, rows = decode_rows(value, delay.zero().size)
        assert codes.size > 1
        table = np.zeros((chunk_rows(delay), delay.zero().size), dtype=np.int64)
        table[codes] = rows
        level = int(np.flatnonzero(rows[0][::2])[0])
        table[codes[0]][2 * level] -= 1
        table[codes[1]][2 * level] += 1
        client.set(key, encode_chunk(0, table))
        (difference,) = counted.verify().differences
        assert difference.partition == number_of(key)
        assert difference.detail.startswith("2 slices differ, the first {'country': ")
        client.set(key, value)
    assert counted.verify().verified


def test_a_metric_of_which_all_was_refused_is_no_difference(deployment: Deployment) -> None:
    ahead = batch(deployment.metrics["delay"], [1.0], time_ms=FAR_AHEAD)
    deployment.produce([(0, ahead.SerializeToString())])
    with deployment.worker():
        deployment.wait_until_counted()
    assert deployment.counts() == {"future:delay": 1}
    assert deployment.verify().verified


def test_one_removed_report_is_named_with_its_partition_and_pane(counted: Deployment) -> None:
    client: Any = counted.store.client
    key = pane_keys(counted, "pane:delay@*")[-1]
    vector = np.frombuffer(client.get(key), "<i8").copy()
    level = int(np.flatnonzero(vector[::2])[0])
    vector[2 * level] -= 1
    client.set(key, vector.tobytes())
    found = counted.dither("verify", "--json")
    assert found.returncode == 1
    assert f"partition {number_of(key)}: pane of delay from" in found.stdout
    assert key.decode().split("}:")[1] in found.stdout


@pytest.mark.parametrize("altered", ["place", "offset", "open"])
def test_a_pane_with_another_place_or_first_offset_is_named(
    counted: Deployment, altered: str
) -> None:
    client: Any = counted.store.client
    if altered == "open":
        key = next(client.scan_iter(f"{{dither:{counted.topic}:*}}:open"))
        member = next(one for one in client.smembers(key) if one.startswith(b"pane:delay@"))
        client.srem(key, member)
        client.sadd(key, member + b"7")
    else:
        key = next(client.scan_iter(f"{{dither:{counted.topic}:*}}:index:pane:delay@*"))
        ((member, start),) = client.zrange(key, 0, 0, withscores=True)
        client.zrem(key, member)
        moved = start + 60_000 if altered == "place" else start
        client.zadd(key, {member if altered == "place" else member + b"7": moved})
    (difference,) = counted.verify().differences
    told = "expected it at its start" if altered == "place" else "7 by the store, at "
    assert told in difference.detail


def test_a_missing_pane_and_an_invented_one_are_both_named(counted: Deployment) -> None:
    client: Any = counted.store.client
    key = pane_keys(counted, "pane:carrier@*")[0]
    client.delete(key)
    delay = counted.metrics["delay"]
    name = metric_key("delay", delay.revision)
    tag = key.decode().split("}:")[0] + "}"
    client.set(f"{tag}:pane:{name}:0", delay.zero().tobytes())
    client.zadd(f"{tag}:index:pane:{name}", {"0:0": 0})
    outcome = counted.verify()
    details = {difference.detail for difference in outcome.differences}
    assert len(outcome.differences) == 2
    assert any(detail.startswith("missing in the store") for detail in details)
    assert any("no report of it in the log" in detail for detail in details)


def test_an_altered_counter_a_watermark_and_a_forgotten_batch_are_named(
    counted: Deployment,
) -> None:
    client: Any = counted.store.client
    tag = f"{{dither:{counted.topic}:0}}"
    client.hincrby(f"{tag}:counts", "accepted:delay", 1)
    name = metric_key("age", counted.metrics["age"].revision)
    client.hset(f"{tag}:watermarks", name, "5:5:5")
    several = (k for k in client.scan_iter(match=f"{tag}:seen:*") if client.strlen(k) > 16)
    seen = next(several)
    client.set(seen, client.get(seen)[16:])
    pane = seen.partition(b":seen:")[2].rpartition(b":")[0]
    client.hincrby(f"{tag}:ids", pane, -1)
    client.hset(f"{tag}:keys:".encode() + pane, b"somebody", 7)
    found = as_text(counted)
    assert "partition 0: count accepted:delay: stored" in found
    assert "partition 0: watermarks: stored" in found
    assert "batch ids in the store" in found
    assert "1 message keys have other numbers of reports in the store than in the log" in found


def as_text(deployment: Deployment) -> str:
    return "\n".join(str(difference) for difference in deployment.verify().differences)


def test_verify_works_beside_a_running_worker(deployment: Deployment) -> None:
    deployment.produce(traffic(deployment, 60))
    with deployment.worker():
        deployment.wait_until_counted()
        for seed in range(1, 4):
            deployment.produce(traffic(deployment, 60, seed=seed))
            outcome = deployment.verify()
            assert outcome.verified, outcome.differences
        deployment.wait_until_counted()
    assert as_json(deployment.dither("verify", "--json"))["messages"] == 720


def truncate(deployment: Deployment, partition: int, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": deployment.kafka.bootstrap_servers})
    position = TopicPartition(deployment.topic, partition, before)
    admin.delete_records([position])[position].result(timeout=30)


def test_panes_whose_reports_left_the_log_are_named_as_not_verifiable(
    apache_kafka: Kafka, counted: Deployment
) -> None:
    truncate(counted, 2, 1)
    run = counted.dither("verify")
    assert run.returncode == 1
    assert "partition 2: pane of" in run.stdout
    assert "no longer in the log, which begins at offset 1" in run.stdout
    outcome = counted.verify()
    assert outcome.differences == []
    bases = [d for d in outcome.unverifiable if d.where.startswith("pane")]
    assert len(bases) == 1, "one message was removed, and it opened one pane"
    assert counted.dither("verify", "--allow-truncated").returncode == 0


def test_a_log_that_lost_what_comes_next_stops_its_partition_with_a_reason(
    apache_kafka: Kafka, counted: Deployment
) -> None:
    before = counted.state()
    counted.produce(traffic(counted, 60, seed=1))
    ends = counted.log_ends()
    truncate(counted, 1, ends[1])
    with counted.worker() as worker:
        wait_until(lambda: bool(worker.owned.get(1) and worker.owned[1].halted), "1 is halted")
        wait_until(
            lambda: all(int(counted.store.owner(n)["next"]) == ends[n] for n in (0, 2, 3, 4, 5)),
            "the others go on",
        )
        wait_until(lambda: bool(counted.store.owner(1).get("halted")), "the reason is stored")
    reason = counted.store.owner(1)["halted"]
    lost = ends[1] - int(counted.store.owner(1)["next"])
    assert f"{lost} offsets are gone" in reason
    assert "aggregate.on_gap=skip" in reason
    after = counted.state()
    one = f"{{dither:{counted.topic}:1}}"
    assert {k: v for k, v in after.items() if k.startswith(one)} == {
        k: v for k, v in before.items() if k.startswith(one)
    }

    counted.settings.aggregate.on_gap = "skip"
    with counted.worker():
        counted.produce([(1, payload) for _, payload in traffic(counted, 10, seed=9)])
        counted.wait_until_counted()
    owner = counted.store.owner(1)
    assert int(owner["gap"]) == lost
    assert owner["halted"] == ""


def test_a_topic_that_was_deleted_and_created_again_stops_its_partitions(
    apache_kafka: Kafka, counted: Deployment
) -> None:
    before = counted.state()
    counted.recreate_topic()
    counted.produce(traffic(counted, 300, seed=3))
    with counted.worker() as worker:
        wait_until(
            lambda: (
                len(worker.owned) == counted.partitions
                and all("created again" in owned.halted for owned in worker.owned.values())
            ),
            "all are halted",
        )
    assert counted.state() == before


def test_a_partition_without_state_is_not_verifiable_while_its_log_has_messages(
    counted: Deployment,
) -> None:
    client: Any = counted.store.client
    ends = counted.log_ends()
    client.delete(*client.scan_iter(match=f"{{dither:{counted.topic}:2}}:*"))
    outcome = counted.verify()
    assert not outcome.verified
    assert outcome.differences == []
    assert [one.partition for one in outcome.unjudged] == [2]
    assert outcome.uncounted == {2: ends[2]}
    run = counted.dither("verify", "--allow-truncated")
    assert run.returncode == 1
    told = f"partition 2: everything: no state in Redis, although its log has {ends[2]}"
    assert told in run.stdout
    client.flushall()
    run = counted.dither("verify", "--json")
    assert run.returncode == 1
    found = json.loads(run.stdout)
    assert not found["verified"]
    assert sum(found["uncounted"].values()) == sum(ends.values())


def test_what_is_not_counted_yet_and_what_is_halted_are_told(counted: Deployment) -> None:
    ends = counted.log_ends()
    counted.produce(traffic(counted, 60, seed=1))
    lag = {number: end - ends[number] for number, end in counted.log_ends().items()}
    client: Any = counted.store.client
    client.hset(f"{{dither:{counted.topic}:1}}:owner", "halted", "offset 7 cannot be counted")
    outcome = counted.verify()
    assert outcome.verified, outcome.differences
    assert outcome.uncounted == lag
    run = counted.dither("verify")
    assert run.returncode == 0
    assert f"{sum(lag.values())} messages of 6 partitions are not counted yet" in run.stdout
    assert "partition 1 is halted: offset 7 cannot be counted" in run.stdout


def verified_after(deployment: Deployment, *gone: str, without: str = "") -> Any:
    """Delete keys of partition 2 and look; `without`: what is left of a name that begins so."""
    client: Any = deployment.store.client
    tag = f"{{dither:{deployment.topic}:2}}"
    keys = [key for pattern in gone for key in client.scan_iter(match=f"{tag}:{pattern}")]
    keys = [key for key in keys if not without or without.encode() not in key]
    assert keys
    kept = {key: client.dump(key) for key in keys}
    client.delete(*keys)
    outcome = deployment.verify()
    for key, value in kept.items():
        client.restore(key, 0, value)
    assert {one.partition for one in outcome.differences} <= {2}
    return outcome


def test_a_log_without_its_beginning_proves_nothing_of_what_no_index_knows(
    apache_kafka: Kafka, counted: Deployment
) -> None:
    truncate(counted, 2, 40)
    assert counted.verify().differences == []
    for gone in (["indexed"], ["index:*"], ["index:pane:delay@*"], ["index:*", "indexed"]):
        assert verified_after(counted, *gone).differences, gone
    client: Any = counted.store.client
    client.delete(f"{{dither:{counted.topic}:2}}:sizes")  # as an earlier version left it
    client.hdel(f"{{dither:{counted.topic}:2}}:owner", "sizes")
    outcome = verified_after(counted, "index:*", "indexed")
    assert outcome.differences, "panes that are open yet have no late reports"
    lost = [d for d in outcome.unverifiable if "in no index" in d.detail]
    assert lost, "what may have been late is told"


def test_what_cannot_be_compared_without_the_logs_beginning_is_told(
    apache_kafka: Kafka, counted: Deployment
) -> None:
    truncate(counted, 2, 1)
    told = {one.where for one in counted.verify().unverifiable if one.partition == 2}
    assert {"counts", "watermarks"} <= told


@pytest.mark.parametrize("value", [None, b"", b"short"])
def test_a_pane_that_is_gone_is_named_even_where_it_cannot_be_compared(
    apache_kafka: Kafka, counted: Deployment, value: bytes | None
) -> None:
    truncate(counted, 2, 1)
    client: Any = counted.store.client
    key = next(k for k in pane_keys(counted, "day:delay@*") if number_of(k) == 2)
    client.delete(key)
    if value is not None:
        client.set(key, value)
    assert [one.partition for one in counted.verify().differences] == [2]


def test_an_open_pane_that_is_not_among_them_is_named(counted: Deployment) -> None:
    client: Any = counted.store.client
    tag = f"{{dither:{counted.topic}:0}}"
    member = min(m for m in client.smembers(f"{tag}:open") if m.startswith(b"pane:delay"))
    client.srem(f"{tag}:open", member)
    assert ":open: expected all that was committed" in as_text(counted)
    client.delete(f"{tag}:sizes")  # as an earlier version left it
    client.hdel(f"{tag}:owner", "sizes")
    assert "not among the open panes: running totals lack it" in as_text(counted)


def test_a_partition_that_the_topic_does_not_have_is_named(counted: Deployment) -> None:
    client: Any = counted.store.client
    client.sadd(partitions_key(counted.topic), 17)
    (difference,) = counted.verify().differences
    assert difference.partition == 17
    assert f"{counted.topic} has no such partition" in str(difference)


def test_an_altered_watermark_of_few_batches_is_named(deployment: Deployment) -> None:
    delay = deployment.metrics["delay"]
    deployment.produce([(0, batch(delay, [1.0]).SerializeToString())])
    with deployment.worker():
        deployment.wait_until_counted()
    client: Any = deployment.store.client
    key = f"{{dither:{deployment.topic}:0}}:watermarks"
    ((name, mark),) = client.hgetall(key).items()
    parts = mark.split(b":")
    assert parts[0] == b"-1"
    client.hset(key, name, b":".join([*parts[:2], b"%d" % FAR_AHEAD, *parts[3:]]))
    assert "partition 0: watermarks: stored" in as_text(deployment)


def test_where_counting_is_said_to_have_begun_later_than_the_log_is_not_verifiable(
    counted: Deployment,
) -> None:
    client: Any = counted.store.client
    owner = f"{{dither:{counted.topic}:0}}:owner"
    client.hset(owner, "begin", client.hget(owner, "next"))
    outcome = counted.verify()
    assert not outcome.verified
    assert f"offsets 0 to {int(client.hget(owner, 'next')) - 1}" in str(outcome.unjudged[0])
    assert counted.dither("verify", "--allow-truncated").returncode == 1


def test_offsets_that_are_said_to_be_skipped_are_told_and_are_no_more_than_were_lost(
    counted: Deployment,
) -> None:
    client: Any = counted.store.client
    owner = f"{{dither:{counted.topic}:0}}:owner"
    client.hset(owner, "skipped", "0-4")
    outcome = counted.verify()
    assert outcome.skipped == {0: "0-4"}
    assert "partition 0: skipped offsets: Redis has 5 offsets as skipped" in as_text(counted)
    found = counted.dither("verify")
    assert "partition 0: offsets 0-4 were skipped, and are in no sum" in found.stdout


SHORT_LIVED = """
[metrics.brief]
kind = "mean"
mechanism = "randomized_response"
range = [0, 1]
levels = [1.0]
pane = "1m"
lateness = "1m"
retention = "5m"
"""


def test_a_pane_that_was_deleted_before_it_expires_is_named(
    kafka: Kafka, redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "metrics.toml"
    file.write_text(SHORT_LIVED)
    deployment = Deployment(kafka, redis_url, file, partitions=1)
    brief = deployment.metrics["brief"]
    with deployment.store:
        batches = [batch(brief, [1.0], 1, EPOCH + i * 60_000, i) for i in range(40)]
        deployment.produce([(0, one.SerializeToString()) for one in batches])
        with deployment.worker():
            deployment.wait_until_counted()
        assert deployment.verify().verified
        client: Any = deployment.store.client
        key = pane_keys(deployment, "pane:brief@*")[0]
        assert client.pttl(key) > 120_000
        client.delete(key)
        assert "missing in the store; the log has 1 reports" in as_text(deployment)
