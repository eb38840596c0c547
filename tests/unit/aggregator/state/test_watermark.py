"""Event time moves when several recent batches agree, and not for a minority of them."""

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.errors import StateUnreadable
from aggregator.state.pane_keys import metric_key
from aggregator.state.partition import Partition
from aggregator.state.watermark import NO_TIME, Watermark
from aggregator.storage import parsing
from aggregator.timestamps import format_time
from estimators import Metric
from producers.wire.batch import heartbeat
from producers.wire.reports_pb2 import ReportBatch
from tests.support.reports.messages import ARRIVAL, DAY, EPOCH, LogMessage, batch, log
from tests.support.reports.partitions import DELAY, FUTURE_MS, MINUTE, PAY
from tests.support.rows import row
from tests.unit.aggregator.state.test_partition import key

ENOUGH, AMONG = 8, 32
"""The rule, told here once more: so many batches among so many."""
LIMITED = dataclasses.replace(DELAY, max_key_reports=10**6)


def told(times: Iterable[int]) -> Iterator[int]:
    """Yield the watermark after each counted batch, as its definition says."""
    last: list[int] = []
    mark = NO_TIME
    for time in times:
        last = [*last, time][-AMONG:]
        if len(last) >= ENOUGH:
            mark = max(mark, sorted(last)[-ENOUGH])
        yield mark


TIMES = st.lists(
    st.one_of(st.integers(0, 40), st.integers(0, 3), st.integers(1_000, 1_010)), max_size=160
)


def check(times: list[int], cuts: list[int]) -> None:
    """However it is cut: one by one, all at once, and in pieces that are stored in between."""
    expected = [NO_TIME, *told(times)]
    one_by_one, array = Watermark(), np.array(times, dtype=np.int64)
    for time, mark in zip(times, expected[1:], strict=True):
        one_by_one.advance(time)
        assert one_by_one.time == mark
    edges = sorted({0, len(times), *(cut for cut in cuts if cut <= len(times))})
    pieces, along = Watermark(), [NO_TIME]
    for begin, end in itertools.pairwise(edges):
        part = array[begin:end]
        for asked in {0, 1, 5, 20, 1_005, *times[begin:end]}:
            places = [i for i, mark in enumerate(expected[begin : end + 1]) if mark >= asked]
            assert pieces.confirming_index(asked, part) == (places[0] - 1 if places else None)
        along += pieces.times_along(part).tolist()[1:]
        pieces.advance_all(part)
        pieces = again(pieces)
    assert pieces == one_by_one
    assert along == expected


@settings(max_examples=60)
@given(times=TIMES, cuts=st.lists(st.integers(0, 160), max_size=6))
def test_a_watermark_is_the_eighth_largest_of_32_times(times: list[int], cuts: list[int]) -> None:
    check(times, cuts)


def test_a_time_is_reached_by_barely_enough_batches_barely_close_to_each_other() -> None:
    check([0] * 20 + [1] * 8 + [0] * 8, [20])
    rng = np.random.default_rng(5)
    for seed in range(120):
        ahead = rng.random(100) < rng.uniform(0.1, 0.4)
        times = np.where(ahead, rng.integers(1, rng.choice([6, 1_000]), 100), 0).tolist()
        with row(seed):
            check(times, [0, int(rng.integers(20, 80))])


def again(mark: Watermark) -> Watermark:
    """Return a watermark as it is read back from the store."""
    return parsing.watermarks("place", {b"m": str(mark).encode()})["m"]


def test_what_is_stored_is_short_and_older_states_are_read() -> None:
    mark = Watermark()
    for time in range(EPOCH, EPOCH + 3_000_000, 1_000):
        mark.advance(time)
    assert len(mark.ahead) == ENOUGH - 1
    assert len(str(mark)) < 100
    assert again(mark) == mark
    older = parsing.watermarks("place", {b"m": b"120000:130000:60000"})["m"]
    assert older == Watermark(120_000, 130_000, 60_000)
    assert older.latest == 120_000


def test_a_watermark_that_nobody_wrote_so_is_not_guessed_at() -> None:
    aheads = ["x", "0", "0+0", "0+-4", "32+4", "1+4,1+4", "0+4,1+4", f"0+{2**63 - 1}"]
    aheads.append(",".join(f"{age}+1" for age in range(7, -1, -1)))
    for value in ("1:2", "1:2:3:4:5", *(f"1:2:3:{ahead}" for ahead in aheads)):
        with row(value), pytest.raises(StateUnreadable, match="field m"):
            parsing.watermarks("place", {b"m": value.encode()})


# -- In a partition -------------------------------------------------------------------------------


def feed(times: Sequence[int], metric: Metric = DELAY, first: int = 0) -> list[LogMessage]:
    """Return batches of one report at these times, with ids of their own."""
    seeds = range(10_000 + first, 10_000 + first + len(times))
    made = (batch(metric, [1.0], time_ms=t, seed=s) for t, s in zip(times, seeds, strict=True))
    return log(*made, first=first)


@pytest.mark.parametrize("metric", [DELAY, LIMITED], ids=["at once", "in turn"])
def test_a_minority_of_batches_of_the_present_makes_no_backfill_late(metric: Metric) -> None:
    """A feed of a year ago, in which one batch, or every fifth, has the time of its arrival."""
    backfill = [EPOCH + minute * MINUTE for minute in range(1_200)]
    for begin, every in ((700, 1_200), (0, 5)):
        times = list(backfill)
        for place in range(begin, 1_200, every):
            times.insert(place, ARRIVAL)
        partition = Partition({metric.name: metric}, FUTURE_MS)
        with row(every):
            assert partition.count(feed(times, metric)) == []
            assert partition.counts == {"accepted:delay": len(times)}
            mark = partition.watermarks[metric_key("delay", metric.revision)]
            assert mark.time == backfill[-ENOUGH], "and panes close as ever"


def test_eight_batches_of_the_present_close_what_is_behind() -> None:
    """What is left to an attacker, docs/abuse.md says so: eight messages, close to each other."""
    partition = Partition({"delay": DELAY}, FUTURE_MS)
    behind = feed([EPOCH + 9 * MINUTE], first=41)
    assert partition.count(feed([*[EPOCH] * 24, *[ARRIVAL] * 7, *[EPOCH] * 10])) == []
    assert partition.count(behind) == []
    assert partition.count(feed([ARRIVAL] * 8, first=42)) == []
    assert [r.reason for r in partition.count(feed([EPOCH], first=50))] == ["late"]


def test_neither_copies_nor_late_nor_refused_batches_confirm_a_time() -> None:
    partition = Partition({"delay": DELAY}, FUTURE_MS)
    ahead = batch(DELAY, [1.0], time_ms=EPOCH + 9 * MINUTE, seed=1)
    wrong = batch(DELAY, [1.0], time_ms=EPOCH + 9 * MINUTE, seed=2, levels=b"\x09")
    partition.count(log(*[ahead] * 20, *[wrong] * 20))
    assert partition.watermarks[metric_key("delay", DELAY.revision)].time == NO_TIME
    assert partition.watermarks[metric_key("delay", DELAY.revision)].latest == EPOCH + 9 * MINUTE
    assert partition.count(feed([EPOCH], first=40)) == []


@pytest.mark.parametrize("metric", [DELAY, LIMITED], ids=["at once", "in turn"])
def test_late_batches_do_not_hold_event_time_back(metric: Metric) -> None:
    """A flood of old ones takes no place among the 32."""
    times = [EPOCH + 20 * MINUTE] * 8
    for minute in range(21, 40):
        times += [*[EPOCH] * 40, EPOCH + minute * MINUTE]
    partition = Partition({metric.name: metric}, FUTURE_MS)
    assert len(partition.count(feed(times, metric))) == 19 * 40
    assert partition.watermarks[metric_key("delay", metric.revision)].time == EPOCH + 32 * MINUTE


def one_after_the_other(
    messages: Sequence[LogMessage], metric: Metric
) -> tuple[list[tuple[int, int]], int]:
    """Return the late batches, each with the watermark before it, and the last watermark."""
    late: list[tuple[int, int]] = []
    counted: list[int] = []
    mark = closed = NO_TIME
    seen: defaultdict[int, set[bytes]] = defaultdict(set)
    for message in messages:
        assert message.payload is not None
        one = ReportBatch.FromString(message.payload)
        begin, beat = one.time_ms - one.time_ms % metric.pane_ms, not one.levels
        if not beat and begin + metric.pane_ms <= closed:
            late.append((message.at, mark))
            continue
        if not beat and one.batch_id in seen[begin]:
            continue
        if not beat:
            seen[begin].add(one.batch_id)
        counted.append(min(one.time_ms, message.arrived))
        mark = max(mark, *told(counted[-AMONG:]))
        closed = max(closed, mark - metric.lateness_ms)
    return late, mark


DRAWS = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from([0, 0, 0, 1, 2, 3, 7, 30]), st.integers(0, 60)),
    max_size=150,
)


@settings(max_examples=100)
@given(
    draws=DRAWS,
    cuts=st.lists(st.integers(0, 150), max_size=4),
    metric=st.sampled_from([PAY, dataclasses.replace(PAY, max_key_reports=10**6)]),
)
def test_each_batch_is_judged_by_the_watermark_that_those_before_it_left(
    draws: list[tuple[int, int, int]], cuts: list[int], metric: Metric
) -> None:
    time, payloads = EPOCH, []
    for step, back, seed in draws:
        time += (step // 4) * 20_000
        at = time - back * MINUTE
        made: Any = batch(metric, [] if step == 1 else [1.0], time_ms=max(0, at), seed=seed)
        payloads.append(made)
    messages = log(*payloads)
    expected, mark = one_after_the_other(messages, metric)
    partition = Partition({metric.name: metric}, FUTURE_MS)
    edges = sorted({0, len(messages), *(cut for cut in cuts if cut <= len(messages))})
    found = []
    for begin, end in itertools.pairwise(edges):
        for refusal in partition.count(messages[begin:end]):
            assert refusal.reason == "late", refusal.detail
            found.append(refusal)
        partition.mark_committed()
    assert [one.message.offset() for one in found] == [offset for offset, _ in expected]
    for one, (_, passed) in zip(found, expected, strict=True):
        assert f"event time reached {format_time(passed)}" in one.detail
    if messages:
        assert partition.watermarks[metric_key("pay", metric.revision)].time == mark


# -- Panes that are held open, and events that are too old ----------------------------------------


@pytest.mark.parametrize("most", [None, 10**6], ids=["at once", "in turn"])
def test_a_metric_that_is_held_open_closes_no_pane_until_let_go(most: int | None) -> None:
    """A backfill of a year ago beside as many batches of the present."""
    held = dataclasses.replace(DELAY, hold_open=True, max_key_reports=most)
    assert held.revision == DELAY.revision, "devices need not know"
    times = [time for minute in range(300) for time in (EPOCH + minute * MINUTE, ARRIVAL)]
    partition = Partition({"delay": held}, FUTURE_MS)
    assert partition.count(feed(times, held)) == []
    assert not any(pane.closed for pane in partition.panes.values())
    mark = partition.watermarks[metric_key("delay", held.revision)]
    assert (mark.time, mark.closed) == (ARRIVAL, NO_TIME)
    ended = dataclasses.replace(held, hold_open=False)
    partition.metrics = {"delay": ended}
    for pane in partition.panes.values():
        pane.metric = ended
    (late,) = partition.count(feed([EPOCH], ended, first=len(times)))
    assert late.reason == "late"
    assert sum(pane.closed for k, pane in partition.panes.items() if k.grain == "pane") == 300


@pytest.mark.parametrize("metric", [DELAY, LIMITED], ids=["at once", "in turn"])
def test_an_event_that_is_too_old_is_refused_and_opens_no_pane(metric: Metric) -> None:
    """Small messages with times from 1970 on would each open a pane, and stay."""
    limit = 400 * DAY
    partition = Partition({metric.name: metric}, FUTURE_MS, past_ms=limit)
    times = [*range(DAY, ARRIVAL - limit, 40 * DAY), ARRIVAL - limit - 1, ARRIVAL - limit, ARRIVAL]
    refused = partition.count(feed(times, metric))
    assert [r.message.offset() for r in refused] == list(range(len(times) - 2))
    assert {r.reason for r in refused} == {"too_old"}
    assert "is 400.0 days before Kafka's timestamp" in refused[-1].detail
    assert "at most 400.0 are allowed (aggregate.past)" in refused[-1].detail
    assert len(partition.panes) == 2


def test_a_heartbeat_for_old_panes_is_not_too_old() -> None:
    partition = Partition({"pay": PAY}, FUTURE_MS, past_ms=DAY)
    partition.count([dataclasses.replace(m, arrived=EPOCH + 1) for m in feed([EPOCH], PAY)])
    assert not partition.count(log(*[heartbeat(PAY, EPOCH + 2 * MINUTE)] * ENOUGH, first=1))
    assert partition.panes[key(PAY, EPOCH)].closed
