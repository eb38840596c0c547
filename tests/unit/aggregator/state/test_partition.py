"""A partition's state is a function of its log, and counts every report once."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.state import decoder
from aggregator.state.pane_keys import PaneKey, metric_key
from aggregator.state.partition import Partition
from aggregator.state.watermark import CONFIRMING_BATCHES
from estimators import Metric, define
from producers.wire.batch import heartbeat
from tests.support.metrics import frequency_metric
from tests.support.reports.bad_batches import bad_batches
from tests.support.reports.messages import ARRIVAL, DAY, EPOCH, LogMessage, agreeing, batch, log
from tests.support.reports.partitions import (
    AGE,
    CARRIER,
    DELAY,
    FUTURE_MS,
    METRICS,
    MINUTE,
    PAY,
    VOTE,
    everything,
)
from tests.support.rows import row


def new_partition() -> Partition:
    return Partition(METRICS, FUTURE_MS)


def key(metric: Metric, start: int, grain: str = "pane") -> PaneKey:
    return PaneKey(grain, metric_key(metric.name, metric.revision), start)


def test_the_sum_equals_accumulating_the_reports_directly() -> None:
    partition, expected = new_partition(), CARRIER.zero()
    sent = [batch(CARRIER, [seed, 3], 1 + seed % 2, seed=seed) for seed in range(10)]
    for one in sent:
        levels = np.frombuffer(one.levels, np.uint8)
        CARRIER.accumulate(expected, levels, CARRIER.randomizer.decode(one.values))
    assert partition.count(log(*sent)) == []
    assert (partition.panes[key(CARRIER, EPOCH)].statistic == expected).all()


def test_the_ids_that_a_pane_remembers_are_of_what_it_counted() -> None:
    """The store is told their place among all of the pane's, so that none may be there besides."""
    first, after = batch(DELAY, [1.0], seed=1), batch(DELAY, [1.0], seed=2)
    end = agreeing(DELAY, EPOCH + 2 * MINUTE, 3)
    partition = new_partition()
    refused = partition.count(log(first, first, *end, first, after, after))
    assert [refusal.reason for refusal in refused] == ["late", "late", "late"]
    assert partition.counts["duplicate:delay"] == 1
    pane = partition.panes[key(DELAY, EPOCH)]
    assert set(pane.batch_ids) == set(pane.unsaved) == {first.batch_id}
    assert len(pane.unsaved) == 1


def test_an_offset_that_comes_again_among_others_is_passed_over() -> None:
    messages = log(*(batch(DELAY, [1.0], seed=seed) for seed in range(4)))
    partition = new_partition()
    for again in (messages[:1] * 2, [*messages[:3], *messages[1:3]], messages[1:]):
        partition.count(again)
    assert partition.counts == {"accepted:delay": 4}, "and no duplicate"
    assert partition.next_offset == 4


def test_a_pane_closes_when_event_time_passes_its_end_and_the_allowed_lateness() -> None:
    partition = new_partition()
    partition.count(log(batch(DELAY, [1.0], seed=1)))
    almost = agreeing(DELAY, EPOCH + 2 * MINUTE - 1, 2)
    *before, last = agreeing(DELAY, EPOCH + 2 * MINUTE, 10)
    partition.count(log(*almost, *before, first=1))
    assert not partition.panes[key(DELAY, EPOCH)].closed
    partition.count(log(last, first=partition.next_offset))
    assert partition.panes[key(DELAY, EPOCH)].closed
    assert set(partition.mark_committed()) == {key(DELAY, EPOCH)}
    assert key(DELAY, EPOCH) not in partition.panes


def test_a_wrong_clock_ahead_of_kafka_does_not_make_others_late() -> None:
    partition = new_partition()
    ahead = agreeing(DELAY, ARRIVAL + 9 * MINUTE, 1)
    assert partition.count(log(*ahead, batch(DELAY, [1.0], time_ms=ARRIVAL))) == []


def test_a_refusal_tells_its_times_as_iso_8601() -> None:
    times = [EPOCH + 1, -5_000, ARRIVAL + 11 * MINUTE, 2**63 - 1]
    batches = [batch(DELAY, [1.0], time_ms=time, seed=i) for i, time in enumerate(times)]
    refused = new_partition().count(log(*agreeing(DELAY, EPOCH + 5 * MINUTE, 9), *batches))
    assert [refusal.detail for refusal in refused] == [
        "the pane that begins at 2013-01-01T00:00:00Z was closed when event time reached "
        "2013-01-01T00:05:00Z: delay allows a lateness of 1m",
        "event time 1969-12-31T23:59:55Z is before the epoch",
        "event time 2014-01-01T00:11:00Z is 660000 ms ahead of Kafka's timestamp: at most 600000 "
        "ms are allowed; the device's clock is wrong",
        f"event time {2**63 - 1} ms is {2**63 - 1 - ARRIVAL} ms ahead of Kafka's timestamp: "
        "at most 600000 ms are allowed; the device's clock is wrong",
    ]


@settings(max_examples=100)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**62))
def test_a_batch_of_any_time_is_counted_or_refused_with_words(time: int, arrived: int) -> None:
    one, two = (batch(DELAY, [1.0], time_ms=each, seed=each == time) for each in (time, EPOCH))
    messages = [dataclasses.replace(m, arrived=arrived) for m in log(two, one)]
    refused = new_partition().count(messages)
    assert all(refusal.detail for refusal in refused)


def test_time_zero_means_kafkas_timestamp() -> None:
    partition = new_partition()
    partition.count(log(batch(DELAY, [1.0], time_ms=0)))
    assert list(partition.panes) == [key(DELAY, ARRIVAL - ARRIVAL % MINUTE)]


GOOD = batch(DELAY, [1.0, 2.0, 3.0], seed=77)
WIDE = batch(CARRIER, [1, 2, 3], seed=78)
BAD = bad_batches(DELAY, CARRIER, AGE, noise_bytes=1_000)


def test_a_bad_batch_is_refused_with_its_reason_and_changes_no_sum() -> None:
    undisturbed = new_partition()
    undisturbed.count(log(GOOD, WIDE))
    expected = {k: p.statistic.tobytes() for k, p in undisturbed.panes.items()}
    for kind, (payload, reason) in BAD.items():
        partition = new_partition()
        refused = partition.count(log(GOOD, payload, WIDE))
        with row(kind):
            assert [(r.reason, r.message.offset()) for r in refused] == [(reason, 1)]
            assert refused[0].detail
            assert {k: p.statistic.tobytes() for k, p in partition.panes.items()} == expected
            counts = dict(partition.counts)
            assert counts.pop("accepted:delay") == counts.pop("accepted:carrier") == 3
            ((told, count),) = counts.items()
            assert told.split(":")[0] == reason
            assert count >= 1


@pytest.mark.parametrize("metric", [VOTE, DELAY], ids=["in turn", "at once"])
def test_a_heartbeat_closes_a_metric_s_panes_and_is_nothing_else(metric: Metric) -> None:
    partition, time = new_partition(), EPOCH + MINUTE + metric.lateness_ms
    partition.count(log(batch(metric, [1], time_ms=EPOCH, seed=1)))
    before = everything(partition)
    early, enough = heartbeat(metric, time - 1), [heartbeat(metric, time)] * CONFIRMING_BATCHES
    assert not partition.count(log(*[early] * 20, *enough[1:], first=1))
    assert everything(partition)["panes"] == before["panes"]
    arrived = partition.watermarks[metric_key(metric.name, metric.revision)].arrived
    assert not partition.count([LogMessage(partition.next_offset, enough[0], arrived=ARRIVAL + 1)])
    assert partition.panes[key(metric, EPOCH)].closed
    assert {k.grain for k in partition.panes} == {"pane", "hour", "day", "total"}, "no other pane"
    assert partition.watermarks[metric_key(metric.name, metric.revision)].arrived == arrived
    straggler = batch(metric, [1], time_ms=EPOCH, seed=2)
    (refusal,) = partition.count(log(straggler, first=partition.next_offset))
    assert refusal.reason == "late"
    assert dict(partition.counts) == {f"accepted:{metric.name}": 1, f"late:{metric.name}": 1}


def test_a_heartbeat_is_never_ahead_of_kafka_never_late_and_of_no_search() -> None:
    partition = new_partition()
    mark = partition.watermarks[metric_key("pay", PAY.revision)]
    partition.count(log(*[heartbeat(PAY, ARRIVAL + MINUTE)] * CONFIRMING_BATCHES))
    assert mark.time == ARRIVAL
    assert not partition.count(log(*[heartbeat(PAY, EPOCH)] * CONFIRMING_BATCHES, first=8))
    assert mark.time == ARRIVAL
    (future,) = partition.count([LogMessage(16, heartbeat(PAY, ARRIVAL + 2 * FUTURE_MS))])
    assert future.reason == "future"
    longest = define(name="longest", kind="maximum", range=(0, 64), levels=[2], rounds=4)
    searched = Partition({"longest": longest}, FUTURE_MS)
    (empty,) = searched.count([LogMessage(0, heartbeat(longest, EPOCH))])
    assert empty.reason == "empty"


def of_a_fleet(rng: np.random.Generator, batches: int) -> list[LogMessage]:
    """Return a log as many devices of a few sorts write it, with some of every kind of fault."""
    payloads: list[Any] = []
    for seed in rng.integers(0, 4 * batches, batches).tolist():
        metric = (DELAY, CARRIER, AGE)[seed % 3]
        answers: list[Any] = [[1.0, 4.0], [3, 5, 7], [40.0]][seed % 3]
        time = EPOCH + seed // 3 % 4 * MINUTE
        kind = int(rng.integers(0, 60))
        made: dict[str, Any] = {"time_ms": time, "seed": seed}
        if kind == 2:
            made["levels"] = b"\x09" * len(answers)
        elif kind == 3 and metric is AGE:
            made["time_ms"] = 0
        elif kind == 4:
            made["time_ms"] = ARRIVAL + DAY
        one = batch(metric, answers, **made)
        unknown = one.SerializeToString() + b"\x48\x01"  # another layout, the same batch
        payloads.append({0: rng.bytes(40), 1: None, 5: unknown}.get(kind, one))
    return log(*payloads)


def outcome(
    messages: list[LogMessage], step: int, metrics: Mapping[str, Metric] = METRICS
) -> tuple[dict[str, Any], list[Any]]:
    """Count a log in steps; return the state and the refusals."""
    partition, refusals = Partition(metrics, FUTURE_MS), []
    for begin in range(0, len(messages), step):
        refusals += partition.count(messages[begin : begin + step])
    return everything(partition), [(r.message.offset(), r.reason, r.detail) for r in refusals]


def test_batches_read_as_columns_count_like_parsed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        messages = of_a_fleet(np.random.default_rng(seed), 600)
        monkeypatch.setattr(decoder, "MIN_MATRIX_MESSAGES", 10**9)
        parsed = outcome(messages, 1)
        assert {why for _, why, _ in parsed[1]} >= {"late", "future", "malformed", "bad_level"}
        assert parsed[0]["counts"].keys() >= {"duplicate:delay", "duplicate:carrier"}
        for alike, step in ((10**9, 600), (2, 600), (2, 97), (16, 250)):
            monkeypatch.setattr(decoder, "MIN_MATRIX_MESSAGES", alike)
            with row(seed, alike, step):
                assert outcome(messages, step) == parsed


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """What is parsed by itself from here on."""
    payloads: list[bytes | None] = []
    parse = decoder._parse

    def noted(payload: bytes | None) -> Any:
        payloads.append(payload)
        return parse(payload)

    monkeypatch.setattr(decoder, "_parse", noted)
    return payloads


@pytest.mark.parametrize(
    "mixing", [decoder.NAME_HASH_FACTORS, np.zeros_like(decoder.NAME_HASH_FACTORS)]
)
def test_many_metrics_in_one_log_are_told_apart_and_read_as_columns(
    mixing: Any, parsed: list[bytes | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of one length and of others; and where their sums of bytes tell nothing apart."""
    monkeypatch.setattr(decoder, "NAME_HASH_FACTORS", mixing)
    names = [*(f"delay{i:02d}" for i in range(12)), "delay", "delayed_by"]
    metrics = {name: dataclasses.replace(DELAY, name=name) for name in names}
    rng = np.random.default_rng(5)
    which = [*rng.permutation(350), *rng.permutation(350)]
    batches = [
        batch(metrics[names[i % len(names)]], [1.0, 9.0], seed=seed) for seed, i in enumerate(which)
    ]
    together, apart = Partition(metrics, FUTURE_MS), Partition(metrics, FUTURE_MS)
    for offset, one in enumerate(batches):
        apart.count(log(one, first=offset))
    parsed.clear()
    for start in range(0, 700, 350):
        assert together.count(log(*batches[start : start + 350], first=start)) == []
    assert everything(together) == everything(apart)
    if mixing.any():
        assert len(parsed) == len(names), "each layout is found once"


def test_a_field_that_is_not_known_here_moves_nothing() -> None:
    open_minded = frequency_metric("any", "grr", 256, [*range(1, 61)])
    batches = [batch(open_minded, [7, 8, 9], 2.0, seed=seed) for seed in range(40)]
    plain, longer = Partition({"any": open_minded}, 0), Partition({"any": open_minded}, 0)
    plain.count(log(*batches))
    longer.count(log(*(one.SerializeToString() + b"\x48\x01" for one in batches)))
    assert everything(longer) == everything(plain)
    assert longer.counts == {"accepted:any": 120}
