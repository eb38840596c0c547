"""How much one batch, one key and one captured batch can add to a pane."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.state import decoder
from aggregator.state.admission import digest
from aggregator.state.partition import Partition
from estimators import Metric
from tests.support.reports.cases import CASES, metric_for, values_for
from tests.support.reports.messages import EPOCH, LogMessage, agreeing, batch, log
from tests.support.reports.partitions import DELAY, FUTURE_MS, METRICS, MINUTE, everything
from tests.support.rows import row
from tests.unit.aggregator.state.test_partition import key, of_a_fleet, outcome

LIMITED = dataclasses.replace(DELAY, max_key_reports=5)
SMALL = dataclasses.replace(DELAY, max_batch_reports=3)


def counting(*metrics: Metric) -> Partition:
    return Partition({metric.name: metric for metric in metrics}, FUTURE_MS)


def keyed(messages: list[LogMessage], *keys: bytes | None) -> list[LogMessage]:
    """Return the messages with these keys, in turns."""
    for index, message in enumerate(messages):
        message.about = keys[index % len(keys)]
    return messages


def reports(partition: Partition, start: int = EPOCH) -> int:
    pane = partition.panes.get(key(DELAY, start))
    return 0 if pane is None else int(DELAY.counts(pane.statistic).sum())


def test_a_batch_with_too_many_reports_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    good = [batch(SMALL, [1.0, 2.0, 3.0], seed=seed) for seed in range(20)]
    large = [batch(SMALL, [1.0] * 4, seed=100 + seed) for seed in range(20)]
    for alike in (2, 10**9):
        monkeypatch.setattr(decoder, "MIN_MATRIX_MESSAGES", alike)
        partition = counting(SMALL)
        refused = partition.count(log(*good, *large))
        assert [refusal.reason for refusal in refused] == ["too_many_reports"] * 20
        assert "allows 3" in refused[0].detail
        assert partition.counts == {"accepted:delay": 60, "too_many_reports:delay": 80}


@pytest.mark.parametrize("metric", [DELAY, LIMITED], ids=["delay", "limited"])
def test_a_message_from_beyond_the_calendar_moves_nothing(metric: Metric) -> None:
    partition = counting(metric)
    found = [*agreeing(metric, 0, 1), batch(metric, [], seed=90), batch(metric, [1.0], seed=91)]
    messages = log(*found)
    for message in messages:
        message.arrived = 2**63 - 600_001
    refused = partition.count(messages)
    assert [one.reason for one in refused] == ["bad_time"] * len(messages)
    assert "beyond the year 9999" in refused[0].detail
    assert not partition.panes
    assert partition.watermarks[key(metric, 0).metric].arrived == -1
    assert not partition.count(log(batch(metric, [1.0], seed=92), first=len(messages)))


def test_a_key_adds_so_many_reports_to_a_pane_and_no_more() -> None:
    partition = counting(LIMITED)
    batches = [batch(LIMITED, [1.0, 2.0], seed=seed) for seed in range(8)]
    refused = partition.count(keyed(log(*batches), b"one", b"other"))
    assert [refusal.message.offset() for refusal in refused] == [4, 5, 6, 7]
    assert {refusal.reason for refusal in refused} == {"over_limit"}
    assert "in the pane that begins at 20" in refused[0].detail
    assert "a key that has 4" in refused[0].detail
    assert reports(partition) == 8
    one_more = batch(LIMITED, [1.0], seed=90)
    assert partition.count(keyed(log(one_more, first=8), b"one")) == [], "it still fits"
    assert partition.panes[key(DELAY, EPOCH)].used == {digest(b"one"): 5, digest(b"other"): 4}
    nobodys = [batch(LIMITED, [1.0] * 3, seed=seed) for seed in (91, 92)]
    (over,) = partition.count(keyed(log(*nobodys, first=9), None, b""))
    assert over.reason == "over_limit", "messages without a key share one"
    later = batch(LIMITED, [1.0] * 5, time_ms=EPOCH + MINUTE, seed=93)
    assert partition.count(keyed(log(later, first=11), b"one")) == [], "the next pane"


def test_what_is_over_the_limit_leaves_no_trace() -> None:
    """Neither in the sums, nor among the ids, nor in the watermark."""
    partition, undisturbed = counting(LIMITED), counting(LIMITED)
    full = batch(LIMITED, [1.0] * 5, seed=1)
    over = batch(LIMITED, [1.0] * 6, time_ms=EPOCH + 50 * MINUTE, seed=2)
    late = batch(LIMITED, [1.0], time_ms=EPOCH + MINUTE, seed=3)
    for each, payloads in ((partition, (full, over, over, late)), (undisturbed, (full, late))):
        each.count(keyed(log(*payloads), b"one"))
    assert partition.counts.pop("over_limit:delay") == 12, "the copy as well"
    found, expected = everything(partition), everything(undisturbed)
    del found["next"], expected["next"]
    assert found == expected


def test_a_limit_that_nobody_reaches_changes_nothing() -> None:
    """Judging in turn is judging all at once: the same state, the same refusals."""
    messages = of_a_fleet(np.random.default_rng(1), 600)
    generous = {
        name: dataclasses.replace(metric, max_key_reports=10**9) for name, metric in METRICS.items()
    }
    assert outcome(messages, 150, METRICS) == outcome(messages, 150, generous)


DRAWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 8), st.integers(0, 2)),
    max_size=40,
)


def drawn(draws: Sequence[tuple[int, int, int, int]]) -> list[LogMessage]:
    messages = log(
        *(
            batch(LIMITED, [1.0] * size, time_ms=EPOCH + minute * MINUTE, seed=seed)
            for minute, size, seed, _ in draws
        )
    )
    for message, (*_, name) in zip(messages, draws, strict=True):
        message.about = bytes([name])
    return messages


def with_uses(partition: Partition) -> dict[str, Any]:
    return everything(partition) | {"used": {k: p.used for k, p in partition.panes.items()}}


@settings(max_examples=150)
@given(draws=DRAWS, cuts=st.lists(st.integers(0, 40)))
def test_a_limit_depends_on_the_log_alone_and_not_on_how_it_was_cut(
    draws: list[tuple[int, int, int, int]], cuts: list[int]
) -> None:
    messages = drawn(draws)
    whole, pieces = counting(LIMITED), counting(LIMITED)
    told = whole.count(messages)
    edges = sorted({0, len(messages), *(cut for cut in cuts if cut <= len(messages))})
    parts = [pieces.count(messages[a:b]) for a, b in itertools.pairwise(edges)]
    assert with_uses(pieces) == with_uses(whole)
    assert [r.detail for part in parts for r in part] == [r.detail for r in told]
    for pane in whole.panes.values():
        assert max(pane.used.values(), default=0) <= 5


def test_a_captured_batch_that_is_sent_a_thousand_times_changes_nothing() -> None:
    """Neither while its pane is open nor afterwards, and not under other keys either."""
    captured = batch(DELAY, [10.0] * 50, seed=1)
    others = [batch(DELAY, [1.0, 4.0], seed=seed) for seed in range(2, 40)]
    later = agreeing(DELAY, EPOCH + 5 * MINUTE, 50)
    honest, attacked = counting(DELAY), counting(DELAY)
    honest.count(log(captured, *others))
    attacked.count(keyed(log(captured, *others, *[captured] * 1_000), b"x", b"y", None))
    assert attacked.panes[key(DELAY, EPOCH)].batch_ids == honest.panes[key(DELAY, EPOCH)].batch_ids
    for partition in (honest, attacked):
        partition.count(log(*later, first=partition.next_offset))
    refused = attacked.count(log(*[captured] * 1_000, first=attacked.next_offset))
    assert {refusal.reason for refusal in refused} == {"late"}
    assert attacked.counts.pop("duplicate:delay") == attacked.counts.pop("late:delay") == 50_000
    found, expected = everything(attacked), everything(honest)
    del found["next"], expected["next"]
    assert found == expected


def test_a_level_above_the_list_is_refused_on_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    for case, alike in itertools.product(CASES, (2, 10**9)):
        monkeypatch.setattr(decoder, "MIN_MATRIX_MESSAGES", alike)
        metric = metric_for(case)
        partition = counting(metric)
        values = list(values_for(metric, 3))
        payloads = [
            batch(metric, values, 4.0, seed=seed, levels=bytes([4, level, 4]))
            for seed, level in enumerate([4, *range(5, 256, 50), 255])
        ]
        with row(case, alike):
            refused = partition.count(log(*payloads))
            assert [each.reason for each in refused] == ["bad_level"] * (len(payloads) - 1)
            assert partition.counts["accepted:m"] == 3
