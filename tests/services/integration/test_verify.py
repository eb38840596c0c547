"""`dither verify` finds whatever differs from the log, and says where; gaps are never silent."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aggregator.state.pane_keys import metric_key
from aggregator.state.slice_tables import chunk_rows, decode_rows, encode_chunk
from aggregator.storage.redis_keys import partitions_key
from aggregator.verifying.state_differences import NOT_COMPARED
from tests.support.reports.messages import batch
from tests.support.reports.metrics import METRICS
from tests.support.reports.traffic import traffic
from tests.support.rows import row
from tests.support.running.deployment import Deployment, as_json, wait_until

FAR_AHEAD = 4_000_000_000_000
BATCHES = 160
"""Of each metric: those of the first day are closed."""


@pytest.fixture(scope="module")
def kept(lasting: Callable[[str], Deployment]) -> Deployment:
    """A deployment whose log of some days is counted, its workers gone; `altered` changes it."""
    deployment = lasting(METRICS)
    deployment.count(traffic(deployment, BATCHES))
    return deployment


@contextlib.contextmanager
def altered(deployment: Deployment, *name: str) -> Iterator[Any]:
    """Yield a client that may change anything; afterwards all is as it was."""
    client: Any = deployment.store.client
    keys = list(client.scan_iter(count=1_000))
    with client.pipeline() as asked:
        for key in keys:
            asked.dump(key).pttl(key)
        answers = asked.execute()
    before = [*zip(keys, answers[::2], answers[1::2], strict=True)]
    with row(*name):
        yield client
    with client.pipeline() as restored:
        restored.flushdb()
        for key, value, left in before:
            restored.restore(key, max(left, 0), value)
        restored.execute()


def keys_of(deployment: Deployment, pattern: str) -> list[bytes]:
    client: Any = deployment.store.client
    return sorted(client.scan_iter(match=f"{{dither:{deployment.topic}:*}}:{pattern}"))


def number_of(key: bytes) -> int:
    found = re.search(rb":(\d+)}", key)
    assert found is not None
    return int(found[1])


def named(deployment: Deployment) -> str:
    """Return all differences that are found."""
    return "\n".join(str(difference) for difference in deployment.verify().differences)


def test_one_altered_byte_is_named_with_its_partition_and_pane(kept: Deployment) -> None:
    with altered(kept, "a byte of each kind of sum") as client:
        patterns = ("pane:delay@*", "pane:carrier@*", "hour:age@*", "day:delay@*", "total:age@*")
        keys = {pattern: keys_of(kept, pattern)[0] for pattern in patterns}
        for key in keys.values():
            value = client.get(key)
            client.set(key, value[:3] + bytes([value[3] ^ 1]) + value[4:])
        differences = kept.verify().differences
        assert len(differences) == len(keys)
        for pattern, key in keys.items():
            name = key.decode().split("}:")[1]
            with row(pattern):
                (difference,) = (each for each in differences if name in each.where)
                assert difference.partition == number_of(key)
                assert difference.where.startswith(f"{pattern.split(':')[0]} of ")
                assert difference.detail.startswith("1 cells differ")
    with altered(kept, "one report less") as client:
        key = keys_of(kept, "pane:delay@*")[-1]
        vector = np.frombuffer(client.get(key), "<i8").copy()
        vector[2 * int(np.flatnonzero(vector[::2])[0])] -= 1
        client.set(key, vector.tobytes())
        found = kept.dither("verify")
        assert found.returncode == 1
        assert f"partition {number_of(key)}: pane of delay from 2013-01-" in found.stdout
        assert key.decode().split("}:")[1] in found.stdout
        assert "Traceback" not in found.stderr
    proved = kept.dither("verify", "--json")
    assert proved.returncode == 0
    shown = json.loads(proved.stdout)
    assert (shown["verified"], shown["messages"]) == (True, 3 * BATCHES)
    assert shown["differences"] == shown["unverifiable"] == []


def test_a_report_that_was_moved_to_another_slice_is_named(kept: Deployment) -> None:
    delay = kept.metrics["delay"]
    with altered(kept, "a report in another slice") as client:
        expected = set()
        for pattern in ("slices:delay@*", "slices-day:delay@*", "slices-total:delay@*"):
            tables = {key: client.get(key) for key in keys_of(kept, pattern)}
            key, value = max(tables.items(), key=lambda one: len(one[1]))
            codes, rows = decode_rows(value, delay.zero().size)
            table = np.zeros((chunk_rows(delay), delay.zero().size), dtype=np.int64)
            table[codes] = rows
            level = int(np.flatnonzero(rows[0][::2])[0])
            table[codes[0]][2 * level] -= 1
            table[codes[1]][2 * level] += 1
            client.set(key, encode_chunk(0, table))
            expected.add((number_of(key), key.decode().split("}:")[1]))
        found = kept.verify().differences
        assert len(found) == len(expected)
        for number, name in expected:
            (one,) = (one for one in found if one.partition == number and name in one.where)
            assert one.detail.startswith("2 slices differ, the first {'country': ")


def test_whatever_else_redis_has_otherwise_than_the_log_is_named(kept: Deployment) -> None:
    delay, tag = kept.metrics["delay"], f"{{dither:{kept.topic}:0}}"
    name, age = (metric_key(n, kept.metrics[n].revision) for n in ("delay", "age"))
    with altered(kept, "another place") as client:
        index = keys_of(kept, "index:pane:delay@*")[0]
        ((member, start),) = client.zrange(index, 0, 0, withscores=True)
        client.zadd(index, {member: start + 60_000})
        assert "expected its start as score" in named(kept)
    for pattern in ("index:pane:delay@*", "open"):
        with altered(kept, "another first offset", pattern) as client:
            key = keys_of(kept, pattern)[0]
            if pattern == "open":
                member = next(one for one in client.smembers(key) if one.startswith(b"pane:delay@"))
                client.srem(key, member)
                client.sadd(key, member + b"7")
            else:
                ((member, start),) = client.zrange(key, 0, 0, withscores=True)
                client.zrem(key, member)
                client.zadd(key, {member + b"7": start})
            assert "7 by the store, at " in named(kept)
    with altered(kept, "missing panes and an invented one") as client:
        expiring = keys_of(kept, "pane:age@*")[0]
        assert client.pttl(expiring) > 0
        client.delete(keys_of(kept, "pane:carrier@*")[0], expiring)
        client.set(f"{tag}:pane:{name}:0", delay.zero().tobytes())
        client.zadd(f"{tag}:index:pane:{name}", {"0:0": 0})
        details = sorted(difference.detail for difference in kept.verify().differences)
        assert len(details) == 3
        assert sum(detail.startswith("missing in the store") for detail in details) == 2
        assert any("no report of it in the log" in detail for detail in details)
    with altered(kept, "a counter, a watermark, a batch id and a message key") as client:
        client.hincrby(f"{tag}:counts", "accepted:delay", 1)
        client.hset(f"{tag}:watermarks", age, "5:5:5")
        seen = next(k for k in client.scan_iter(match=f"{tag}:seen:*") if client.strlen(k) > 16)
        client.set(seen, client.get(seen)[16:])
        pane = seen.partition(b":seen:")[2].rpartition(b":")[0]
        client.hincrby(f"{tag}:ids", pane, -1)
        client.hset(f"{tag}:keys:".encode() + pane, b"somebody", 7)
        found = named(kept)
        for words in (
            "partition 0: count accepted:delay: stored",
            "partition 0: watermarks: stored",
            "batch ids in the store",
            "1 message keys have other numbers of reports in the store than in the log",
        ):
            assert words in found
    with altered(kept, "an open pane that is not among them") as client:
        member = min(m for m in client.smembers(f"{tag}:open") if m.startswith(b"pane:delay"))
        client.srem(f"{tag}:open", member)
        assert ":open: expected all committed entries" in named(kept)
        client.delete(f"{tag}:sizes")  # as an earlier version left it
        client.hdel(f"{tag}:owner", "sizes")
        assert "not among the open panes: running totals lack it" in named(kept)
    with altered(kept, "a partition that the topic does not have") as client:
        client.sadd(partitions_key(kept.topic), 17)
        assert f"{kept.topic} has no such partition" in named(kept)
        assert [one.partition for one in kept.verify().differences] == [17]
    with altered(kept, "a later begin") as client:
        client.hset(f"{tag}:owner", "begin", client.hget(f"{tag}:owner", "next"))
        outcome = kept.verify()
        assert not outcome.verified
        last = int(client.hget(f"{tag}:owner", "next")) - 1
        assert f"offsets 0 to {last}" in str(outcome.unjudged[0])
        assert kept.dither("verify", "--allow-truncated").returncode == 1
    owner = kept.store.owner(0)
    with altered(kept, "the owners and the mark of a commit") as client:
        place, _, digest = kept.store.owner(0)["last"].rpartition(":")
        changes = {
            "last": f"{place}:{digest[::-1]}",
            "high": str(int(kept.store.owner(1)["high"]) + 1),
            "partitions": str(kept.partitions + 1),
            "cluster": "elsewhere",
            **({"topic_id": "another"} if kept.kafka.is_real else {}),
        }
        for number, (field, other) in enumerate(changes.items()):
            client.hset(f"{{dither:{kept.topic}:{number}}}:owner", field, other)
        client.set(f"{{dither:{kept.topic}:5}}:committed", 7)
        found = named(kept)
        for number, field in enumerate(changes):
            assert f"partition {number}: {field}: " in found
        assert "partition 5: committed: b'7': expected b'1'" in found
    compared = {"next", "begin", "begun", "done", "sizes", "gap", "last", "high", "partitions"}
    fields = {name for name in owner if not name.startswith("definitions:")}
    assert fields <= compared | {"cluster", "topic_id"} | {*NOT_COMPARED}, "or it is named"
    with altered(kept, "skipped offsets") as client:
        client.hset(f"{tag}:owner", "skipped", "0-4")
        assert kept.verify().skipped == {0: "0-4"}
        assert "skipped offsets: Redis has 5 offsets as skipped" in named(kept)
        told = kept.dither("verify").stdout
        assert "partition 0: offsets 0-4 were skipped, and are in no sum" in told
    with altered(kept, "no state") as client:
        ends = kept.log_ends()
        client.delete(*client.scan_iter(match=f"{{dither:{kept.topic}:2}}:*"))
        outcome = kept.verify()
        assert (outcome.verified, outcome.differences) == (False, [])
        assert [one.partition for one in outcome.unjudged] == [2]
        assert outcome.uncounted == {2: ends[2]}
        run = kept.dither("verify", "--allow-truncated")
        assert run.returncode == 1
        told = f"partition 2: everything: no state in Redis, although its log has {ends[2]}"
        assert told in run.stdout
        client.flushdb()
        run = kept.dither("verify", "--json")
        assert run.returncode == 1
        shown = json.loads(run.stdout)
        assert not shown["verified"]
        assert sum(shown["uncounted"].values()) == sum(ends.values())


def test_what_was_refused_or_is_not_counted_yet_is_no_difference(deployment: Deployment) -> None:
    delay = deployment.metrics["delay"]
    ahead = batch(delay, [1.0], time_ms=FAR_AHEAD).SerializeToString()
    deployment.count([(0, ahead), (1, batch(delay, [1.0]).SerializeToString())])
    assert deployment.counts() == {"future:delay": 1, "accepted:delay": 1}
    client: Any = deployment.store.client
    marks = f"{{dither:{deployment.topic}:1}}:watermarks"
    ((name, mark),) = client.hgetall(marks).items()
    deployment.produce([(0, ahead)] * 3)
    client.hset(f"{{dither:{deployment.topic}:1}}:owner", "halted", "offset 7 cannot be counted")
    outcome = deployment.verify()
    assert outcome.verified, outcome.differences
    assert outcome.uncounted == {0: 3}
    run = deployment.dither("verify")
    assert run.returncode == 0
    assert "3 messages of 1 partition" in run.stdout
    assert "partition 1 is halted: offset 7 cannot be counted" in run.stdout
    parts = mark.split(b":")
    assert parts[0] == b"-1"
    client.hset(marks, name, b":".join([*parts[:2], b"%d" % FAR_AHEAD, *parts[3:]]))
    assert "partition 1: watermarks: stored" in named(deployment)


def test_verify_works_beside_a_running_worker(deployment: Deployment) -> None:
    owners, partitions = deployment.store.owner, range(deployment.partitions)
    with deployment.worker():
        wait_until(lambda: all("next" in owners(n) for n in partitions), "all have a state")
        for seed in range(3):
            deployment.produce(traffic(deployment, 60, seed=seed))
            outcome = deployment.verify()
            assert outcome.verified, outcome.differences
        deployment.wait_until_counted()
    assert as_json(deployment.dither("verify", "--json"))["messages"] == 540


@pytest.mark.usefixtures("apache_kafka")
def test_what_a_log_without_its_beginning_does_not_prove_is_told(deployment: Deployment) -> None:
    deployment.count(traffic(deployment, 140))
    deployment.cut({2: 1})
    run = deployment.dither("verify")
    assert run.returncode == 1
    assert "partition 2: pane of" in run.stdout
    assert "no longer in the log, which begins at offset 1" in run.stdout
    outcome = deployment.verify()
    assert outcome.differences == []
    unverifiable = [one.where for one in outcome.unverifiable if one.partition == 2]
    assert {"counts", "watermarks"} <= {*unverifiable}
    assert sum(where.startswith("pane") for where in unverifiable) == 1, "one message opened one"
    assert deployment.dither("verify", "--allow-truncated").returncode == 0
    day = next(key for key in keys_of(deployment, "day:delay@*") if number_of(key) == 2)
    for value in (None, b"", b"short"):
        with altered(deployment, repr(value)) as client:
            client.delete(day)
            if value is not None:
                client.set(day, value)
            assert [one.partition for one in deployment.verify().differences] == [2]

    deployment.cut({2: 40})
    assert deployment.verify().differences == []
    tag = f"{{dither:{deployment.topic}:2}}"

    def delete(client: Any, *patterns: str) -> None:
        for pattern in patterns:
            client.delete(*client.scan_iter(match=f"{tag}:{pattern}"))

    for gone in (["indexed"], ["index:*"], ["index:pane:delay@*"], ["index:*", "indexed"]):
        with altered(deployment, *gone) as client:
            delete(client, *gone)
            assert {one.partition for one in deployment.verify().differences} == {2}
    with altered(deployment, "as an earlier version left it") as client:
        delete(client, "sizes", "index:*", "indexed")
        client.hdel(f"{tag}:owner", "sizes")
        outcome = deployment.verify()
        assert outcome.differences, "panes that are open yet have no late reports"
        lost = [one for one in outcome.unverifiable if "in no index" in one.detail]
        assert lost, "what may have been late is told"


@pytest.mark.usefixtures("apache_kafka")
def test_a_log_that_was_cut_or_created_again_stops_its_partitions(deployment: Deployment) -> None:
    deployment.count(traffic(deployment, 60))
    before = deployment.state()
    deployment.produce(traffic(deployment, 60, seed=1))
    ends = deployment.log_ends()
    deployment.cut({1: ends[1]})
    with deployment.worker():
        wait_until(lambda: bool(deployment.owners("halted")[1]), "1 is halted")
        others = [number for number in ends if number != 1]
        wait_until(
            lambda: all(deployment.owners("next")[n] == str(ends[n]) for n in others),
            "the others go on",
        )
    reason, after = deployment.owners("halted")[1], deployment.state()
    lost = ends[1] - int(deployment.owners("next")[1])
    assert f"{lost} offsets are gone" in reason
    assert "aggregate.on_gap=skip" in reason
    one = f"{{dither:{deployment.topic}:1}}"
    assert {key: value for key, value in after.items() if key.startswith(one)} == {
        key: value for key, value in before.items() if key.startswith(one)
    }
    deployment.settings.aggregate.on_gap = "skip"
    deployment.count([(1, payload) for _, payload in traffic(deployment, 10, seed=9)])
    owner = deployment.store.owner(1)
    assert (int(owner["gap"]), owner["halted"]) == (lost, "")

    deployment.settings.aggregate.on_gap = "stop"
    before = deployment.state()
    deployment.recreate_topic()
    deployment.produce(traffic(deployment, 200, seed=3))
    with deployment.worker() as worker:
        wait_until(
            lambda: (
                len(worker.owned) == deployment.partitions
                and all("created again" in owned.halted for owned in worker.owned.values())
            ),
            "all are halted",
        )
    assert deployment.state() == before
