"""Slices are a function of the log, and their tables sum to the metric's own sums."""

import dataclasses
import itertools
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.state import decoder
from aggregator.state.pane_keys import (
    FOREVER_MS,
    GRAINS_MS,
    SLICES,
    SLICES_DAY,
    SLICES_TOTAL,
    PaneKey,
    retention_ms,
    slices_key,
    width_ms,
)
from aggregator.state.partition import Partition
from aggregator.state.slice_tables import chunk_rows, decode_rows, encode_chunk
from aggregator.storage import parsing
from estimators import Metric
from estimators.estimate import Counts
from producers.wire.reports_pb2 import Attribute, ReportBatch
from tests.support.metrics import frequency_metric, mean_metric
from tests.support.reports.messages import DAY, EPOCH, LogMessage, agreeing, batch, log
from tests.support.reports.partitions import FUTURE_MS, HOUR, MINUTE

BY: dict[str, Any] = {
    "by": ["country", "version"],
    "attributes": {"country": ["DE", "FR"], "version": ["1", "2", "3"]},
}
LATE = mean_metric("late", "randomized_response", (0, 1), [0.5, 1], pane="20m", lateness="1m", **BY)
BROWSER = frequency_metric("browser", "oue", 300, [1], pane="1h", **BY)
PLAIN = mean_metric("plain", "randomized_response", (0, 1), [1], pane="1h")
METRICS = {metric.name: metric for metric in (LATE, BROWSER, PLAIN)}


def sent(
    question: Metric, seed: int, time_ms: int, country: str | None, version: str | None
) -> ReportBatch:
    """Return a batch of a device that says so of itself."""
    values = {"country": country, "version": version}
    pairs = [Attribute(name=name, value=value) for name, value in values.items() if value]
    answers = [seed % 2] * (1 + seed % 3)
    return batch(question, answers, time_ms=time_ms, seed=seed, attributes=pairs)


def new_partition() -> Partition:
    return Partition(METRICS, FUTURE_MS)


def tables(panes: dict[PaneKey, Any], metric: Metric) -> dict[tuple[str, int], Counts]:
    """Return the sums of all slices of each stretch."""
    found: defaultdict[tuple[str, int], Counts] = defaultdict(metric.zero)
    for key, pane in panes.items():
        if key.chunk is not None and pane.metric is metric:
            found[key.grain, key.start] += pane.statistic.sum(axis=0)
    return found


def own_sums(panes: dict[PaneKey, Any], metric: Metric) -> dict[tuple[str, int], Counts]:
    """Return what they have to be: the sums of the metric's own panes."""
    assert metric.slicing is not None
    found: defaultdict[tuple[str, int], Counts] = defaultdict(metric.zero)
    width, day = metric.slicing.pane_ms, GRAINS_MS["day"]
    for key, pane in panes.items():
        if key.grain == "pane" and pane.metric is metric:
            found[SLICES, key.start - key.start % width] += pane.statistic
    closed = {key for key, pane in panes.items() if key.grain == SLICES and pane.closed}
    for start in {key.start for key in closed if panes[key].metric is metric}:
        found[SLICES_DAY, start - start % day] += found[SLICES, start]
        found[SLICES_TOTAL, 0] += found[SLICES, start]
    return found


def everything(panes: dict[PaneKey, Any]) -> dict[str, tuple[bytes, bool]]:
    return {str(key): (bytes(pane.encode(key.chunk)), pane.closed) for key, pane in panes.items()}


def traffic(count: int, seed: int) -> list[LogMessage]:
    """Return a log of three days, in the order of its times, that closes what it has."""
    rng = np.random.default_rng(seed)
    payloads = []
    for number in range(count):
        metric = METRICS[str(rng.choice([*METRICS]))]
        country = str(rng.choice(["DE", "FR", "XX", ""]))
        version = str(rng.choice(["1", "2", "9"]))
        payloads.append(sent(metric, number, EPOCH + 3 * DAY * number // count, country, version))
    for place, metric in enumerate((LATE, BROWSER)):
        payloads += agreeing(metric, EPOCH + 4 * DAY, (place + 1) * 10**6)
    return log(*payloads)


def run(messages: list[LogMessage], cuts: list[int]) -> dict[PaneKey, Any]:
    """Count messages in parts, each followed by a commit; return every pane there ever was."""
    partition, found = new_partition(), dict[PaneKey, Any]()
    for first, last in itertools.pairwise([0, *sorted(cuts), len(messages)]):
        assert partition.count(messages[first:last]) == []
        found |= partition.panes
        partition.mark_committed()
        for key, pane in list(partition.panes.items()):  # as another owner reads it
            stored = bytes(pane.encode(key.chunk))
            pane.statistic = parsing.pane("", key, stored, pane.metric).copy()
        found |= partition.panes
    return found


@settings(max_examples=15)
@given(st.lists(st.integers(0, 150), max_size=4), st.integers(0, 3))
def test_tables_sum_to_the_metrics_sums_however_the_log_is_cut(cuts: list[int], seed: int) -> None:
    messages = traffic(150, seed)
    panes = run(messages, cuts)
    assert everything(panes) == everything(run(messages, []))
    for metric in (LATE, BROWSER):
        found, expected = tables(panes, metric), own_sums(panes, metric)
        assert {grain for grain, _ in found} == {SLICES, SLICES_DAY, SLICES_TOTAL}
        assert found.keys() == expected.keys()
        assert all((found[each] == expected[each]).all() for each in found)
    assert not tables(panes, PLAIN)


def test_a_slice_has_the_reports_of_batches_that_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for least in (1, 10**9):  # read as matrices, and one by one
        monkeypatch.setattr(decoder, "MIN_MATRIX_MESSAGES", least)
        assert LATE.slicing is not None
        partition, expected = new_partition(), np.zeros((LATE.slicing.size, LATE.zero().size), int)
        payloads = []
        for seed, (country, version) in enumerate(
            [("DE", "1"), ("FR", "2"), ("XX", "1"), (None, "3"), ("DE", None), ("DE", "1")] * 9
        ):
            one = sent(LATE, seed, EPOCH, country, version)
            payloads.append(one)
            given = {
                name: value for name, value in (("country", country), ("version", version)) if value
            }
            level = np.frombuffer(one.levels, np.uint8)
            reports = LATE.randomizer.decode(one.values)
            LATE.accumulate(expected[LATE.slicing.code(given)], level, reports)
        assert partition.count(log(*payloads)) == []
        key = PaneKey(SLICES, slices_key(LATE, 0), EPOCH)
        assert (partition.panes[key].statistic[: LATE.slicing.size] == expected).all()


def test_bad_attributes_are_refused_and_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Attribute(name="country", value="DE")
    bad = {
        "order": [Attribute(name="version", value="1"), pair],
        "each once": [pair, pair],
        "64": [Attribute(name="country", value="x" * 65)],
        "16": [Attribute(name=f"a{i:02}") for i in range(17)],
    }
    good = [sent(LATE, 100 + i, EPOCH, "DE", "1") for i in range(20)]
    broken = [
        batch(LATE, [1], seed=seed, attributes=each) for seed, each in enumerate(bad.values())
    ]
    for least in (1, 10**9):
        monkeypatch.setattr(decoder, "MIN_MATRIX_MESSAGES", least)
        partition = new_partition()
        found = partition.count(log(*good, *broken, *good[:1]))
        assert [one.reason for one in found] == ["bad_attributes"] * 4
        assert all(part in one.detail for part, one in zip(bad, found, strict=True))
        assert partition.counts["bad_attributes:late"] == 4
        assert partition.counts["accepted:late"] == sum(len(one.levels) for one in good)


def test_what_hides_behind_attributes_is_parsed_as_protobuf_does() -> None:
    """A later field of the same number overrides: it must not pass as a known layout."""
    honest = [sent(LATE, seed, EPOCH, "DE", "1") for seed in range(0, 60, 3)]
    region = ReportBatch(attributes=honest[0].attributes).SerializeToString()
    forged = ReportBatch(batch_id=b"\1" * (len(region) - 2)).SerializeToString()
    assert len(forged) == len(region)
    payloads = [one.SerializeToString() for one in honest]
    payloads.append(payloads[0].removesuffix(region) + forged)
    (refused,) = new_partition().count(log(*payloads))
    assert refused.reason == "bad_batch_id"


def test_a_large_definition_is_cut_into_chunks() -> None:
    rows = chunk_rows(BROWSER)
    assert BROWSER.slicing is not None
    assert 1 < rows < BROWSER.slicing.size * 2
    cities: dict[str, Any] = {"by": ["city"], "attributes": {"city": [*map(str, range(300))]}}
    many = frequency_metric("many", "grr", 100, [1, 2], pane="1h", **cities)
    partition = Partition({"many": many}, FUTURE_MS)
    payloads = [
        batch(many, [1], seed=i, attributes=[Attribute(name="city", value=str(i))])
        for i in range(300)
    ]
    assert partition.count(log(*payloads)) == []
    chunks = {key.chunk: pane for key, pane in partition.panes.items() if key.chunk is not None}
    assert len(chunks) == -(-300 // chunk_rows(many)) > 1
    counted = []
    for number, pane in chunks.items():
        codes, sums = decode_rows(encode_chunk(number, pane.statistic), many.zero().size)
        counted += codes.tolist()
        assert all(many.counts(row).sum() == 1 for row in sums)
    assert sorted(counted) == list(range(300))


def test_integers_are_as_wide_as_they_need() -> None:
    for largest, width in ((127, 1), (128, 2), (40_000, 4), (2**40, 8)):
        rows = np.zeros((4, 3), dtype=np.int64)
        rows[2] = [largest, -1, 0]
        value = encode_chunk(5, rows)
        assert (value[0], len(value)) == (width, 1 + 4 + 3 * width)
        codes, found = decode_rows(value, 3)
        assert codes.tolist() == [22]
        assert (found == rows[2]).all()


def test_slices_are_kept_as_long_as_they_say() -> None:
    kept = dataclasses.replace(LATE, retention="30d", by_retention="7d")
    assert retention_ms(SLICES, kept) == 7 * DAY
    assert retention_ms(SLICES_DAY, kept) == retention_ms("pane", kept) == 30 * DAY
    assert width_ms(SLICES, kept) == HOUR
    assert width_ms(SLICES_TOTAL, kept) == FOREVER_MS
    assert retention_ms(SLICES, LATE) is None
    assert LATE.pane_ms == MINUTE * 20
