"""A series is the estimates of its steps, read together, each final one once."""

import dataclasses
import datetime
import itertools
import time
from typing import Any

import pytest

from aggregator.features.reader import Reader
from aggregator.reading.plans import LocalPlan
from aggregator.reading.query import Query
from aggregator.storage.commands import Commands
from aggregator.storage.pane_index import PaneIndex
from aggregator.storage.store import Store
from estimators import LocalMetric, Metric
from tests.support.reports.counted import MINUTE, Counting
from tests.support.reports.messages import EPOCH
from tests.support.rows import row


@pytest.fixture
def reader(store: Store, metrics: dict[str, Metric]) -> Reader:
    return Reader(store, metrics)


def ask(reader: Reader, name: str = "delay", **question: Any) -> Any:
    fresh = Reader(reader.store, reader.metrics)  # which has estimated nothing yet
    return fresh.series(name, **question)


def at(minute: float) -> float:
    """Return a moment in seconds."""
    return (EPOCH + minute * MINUTE) / 1000


FIVE: dict[str, Any] = {"step": "1m", "start": at(0), "end": at(5)}


def seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def test_each_point_is_the_estimate_of_its_step(counting: Counting, reader: Reader) -> None:
    minutes = [0, 3, 59, 60, 61, 150, 400, 1439, 1440, 1500, 2900, 2950]
    for number in (0, 1):
        reports = [counting.batch("delay", [m % 10] * 20, m) for m in minutes[number:]]
        counting.count(number, *reports)
    for step in ("1m", "7m", "30m", "1h", "90m", "1d", "36h"):
        found = ask(reader, start=at(0), end=at(200 if step == "1m" else 3000), step=step)
        spans = [(seconds(point.start), seconds(point.end)) for point in found.points]
        assert all(before[1] == after[0] for before, after in itertools.pairwise(spans))
        whole = reader.estimate("delay", spans[0][0], spans[-1][1])
        assert sum(point.reports for point in found.points) == whole.reports
        every = len(spans) // 20 + 1
        for point, (start, end) in zip(found.points[::every], spans[::every], strict=True):
            expected = reader.estimate("delay", start, end)
            with row(step, point.start):
                assert end - start == found.step_seconds
                assert (point.reports, point.status) == (expected.reports, expected.status)
                numbers = (expected.shown, expected.value) if expected.reports else (None, None)
                assert (point.value, point.unbiased) == numbers
                assert (point.lower, point.upper) == (expected.lower, expected.upper)


def test_where_there_is_no_report_there_are_no_points(counting: Counting, reader: Reader) -> None:
    questions: list[dict[str, Any]] = [{}, {"window": "1h"}, {"start": at(0)}]
    for question in questions:
        assert ask(reader, **question).points == []
    found = ask(reader, start=at(0), end=at(10), step="5m")
    assert [point.status for point in found.points] == ["not_ready", "not_ready"]
    counting.some(5)
    assert ask(reader, start=at(500)).points == []


def test_a_step_is_widened_to_panes_or_refused(counting: Counting, reader: Reader) -> None:
    counting.some(5)
    assert ask(reader, step="61s").step_seconds == 120
    assert ask(reader, step="1ms").step_seconds == 60
    refused: list[tuple[dict[str, Any], str]] = [
        ({"step": "0s"}, "step = '0s': expected a duration above zero"),
        ({"step": "soon"}, "step = 'soon': expected a duration such as"),
        ({"start": 100.0, "end": 50.0}, "expected an end after its start"),
        ({"categories": ("AA",)}, "metric 'delay' has none"),
        ({"bins": 10}, "bins = 10: metric 'delay' is of kind 'mean'"),
    ]
    for question, told in refused:
        with row(question), pytest.raises(ValueError, match=told):
            ask(reader, **question)
    with pytest.raises(ValueError, match="at most 1000: the smallest step that fits is") as error:
        ask(reader, start=0.0, step="1m")
    fits = str(error.value).rpartition(" is ")[2]
    assert 990 <= len(ask(reader, start=0.0, step=fits).points) <= 1000


def test_the_largest_categories_are_in_all_points(counting: Counting, reader: Reader) -> None:
    counting.count(
        0,
        counting.batch("carrier", [0] * 900 + [1] * 100, 1, 8),
        counting.batch("carrier", [3] * 400 + [1] * 100, 2, 8),
    )
    found = ask(reader, "carrier", step="1m", top=2)
    assert (found.categories, found.left_out) == (["AA", "UA"], 2)
    first, second = found.points
    assert first.value[0] > 0.5 > first.value[1]
    assert second.value[1] > 0.5 > second.value[0]
    every = ask(reader, "carrier", step="1m")
    assert every.categories == ["AA", "B6", "DL", "UA"]
    assert every.points[0].value[0] == first.value[0]
    assert every.points[0].upper[3] == first.upper[1]
    assert ask(reader, "carrier", step="1m", categories=("UA", "B6")).categories == ["UA", "B6"]


def test_memory_is_bounded_by_reading_a_group_of_steps_at_a_time(
    counting: Counting, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.some(40)
    expected = ask(reader, step="1m")
    most = []
    statistics = PaneIndex.read_statistics

    def noted(self: PaneIndex, keys: Any, *commands: Any) -> Any:
        most.append(len(keys))
        return statistics(self, keys, *commands)

    monkeypatch.setattr(PaneIndex, "read_statistics", noted)
    for name, value in (("MAX_PANES_PER_READ", 14), ("MAX_READ_BYTES", 5 * 32)):
        monkeypatch.setattr(f"aggregator.reading.pane_sums.{name}", value)
        most.clear()
        assert ask(reader, step="1m") == expected
        assert len(most) > 5
        assert max(most) <= 14


def test_memory_is_bounded_by_reading_a_few_panes_of_a_window_at_a_time(
    counting: Counting, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.some(40)
    queries = Query("2013-01-01", "2013-01-02"), Query()
    expected = [reader.window("delay", query).sums for query in queries]
    most, ask_together = [], Commands.ask

    def noted(self: Commands, commands: Any) -> Any:
        panes = [key for name, *keys in commands if name in ("GET", "MGET") for key in keys]
        most.append(len(panes))
        return ask_together(self, commands)

    monkeypatch.setattr(Commands, "ask", noted)
    monkeypatch.setattr("aggregator.reading.pane_sums.MAX_READ_BYTES", 5 * 32)
    for query, sums in zip(queries, expected, strict=True):
        assert (reader.window("delay", query).sums == sums).all()
    assert max(most) <= 6


@pytest.fixture
def estimated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The starts of the windows that are estimated from here on."""
    found: list[int] = []
    answer_each = LocalPlan.answer_each

    def noted(windows: Any, *args: Any) -> Any:
        found.extend(window.start_ms for window in windows)
        return answer_each(windows, *args)

    monkeypatch.setattr(LocalPlan, "answer_each", noted)
    return found


def test_a_final_point_is_kept(counting: Counting, reader: Reader, estimated: list[int]) -> None:
    counting.some(90)
    question: dict[str, Any] = {"step": "10m"}
    first = reader.series("delay", **question)
    assert [p.status for p in first.points] == ["final"] * 8 + ["provisional"]
    estimated.clear()
    assert reader.series("delay", **question) == first
    assert estimated == []
    reader.series("delay", step="10m", beta=0.1)
    assert len(estimated) == 9
    counting.store.registry.set_policy("delay", "uniform")
    assert reader.series("delay", **question).policy == "uniform"
    assert len(estimated) == 9 + 9


def test_a_final_point_is_told_apart_by_its_width(counting: Counting, store: Store) -> None:
    late = dataclasses.replace(LocalMetric.require(counting.metrics["delay"]), memoized=True)
    counting.metrics = {"delay": late}
    later = [counting.batch("delay", [1.0], minute) for minute in range(200, 220)]
    counting.count(0, counting.batch("delay", [1.0] * 500, 60), *later)
    reader = Reader(store, counting.metrics)
    for step, minutes in (("1m", 1), ("60m", 60)):
        point = reader.series("delay", at(60), at(120), step=step).points[0]
        expected = reader.estimate("delay", at(60), at(60 + minutes))
        assert (point.status, point.reports) == ("final", 500)
        assert (point.lower, point.upper) == (expected.lower, expected.upper)


def test_a_final_point_is_counted_again_after_a_recount(counting: Counting, reader: Reader) -> None:
    batches = [counting.batch("delay", [1.0] * 20, minute) for minute in range(20)]
    for contents in (batches, [*batches[:1], counting.batch("delay", [1.0] * 30), *batches[1:]]):
        reader.store.client.flushdb()
        counting.count(0, *contents)
        first = reader.series("delay", **FIVE).points[0]
        assert (first.status, first.reports) == ("final", 20 + 30 * (len(contents) - 20))


def test_a_final_point_expires_with_its_panes(
    counting: Counting, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.count(0, *(counting.batch("delay", [1.0] * 20, at) for at in range(20)))
    delay = dataclasses.replace(counting.metrics["delay"], retention="36500d")
    reader = Reader(store, {"delay": delay})
    assert reader.series("delay", **FIVE).points[0].status == "final"
    store.client.delete(*store.client.keys("*}:pane:delay@*"))
    later = time.time() + 60
    monkeypatch.setattr(time, "time", lambda: later)
    assert {point.status for point in reader.series("delay", **FIVE).points} == {"expired"}


def test_points_that_were_read_while_redis_was_emptied_are_not_final_and_not_kept(
    counting: Counting, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [counting.batch("delay", [1.0] * 20, minute) for minute in range(20)]
    counting.count(0, *batches)
    find = PaneIndex.find

    def emptied_meanwhile(self: PaneIndex, *arguments: Any) -> Any:
        reader.store.client.flushdb()
        found = find(self, *arguments)
        counting.count(0, *batches)
        return found

    with monkeypatch.context() as torn:
        torn.setattr(PaneIndex, "find", emptied_meanwhile)
        points = reader.series("delay", **FIVE).points
    assert {(p.reports, p.status) for p in points} == {(0, "too_few_reports")}
    assert {(p.reports, p.status) for p in reader.series("delay", **FIVE).points} == {(20, "final")}


def test_a_grown_point_is_redone(counting: Counting, reader: Reader, estimated: list[int]) -> None:
    counting.some(90)
    reader.store.partition.acquire(2, "a partition without a commit holds every window back")
    question: dict[str, Any] = {"step": "10m"}
    first = reader.series("delay", **question)
    assert {p.status for p in first.points} == {"provisional"}
    estimated.clear()
    assert reader.series("delay", **question) == first
    assert estimated == []
    counting.count(0, counting.batch("delay", [1.0], 89))
    reader.series("delay", **question)
    assert estimated == [EPOCH + 80 * MINUTE]


def test_an_expired_step_says_so(counting: Counting, reader: Reader, store: Store) -> None:
    for number in (0, 1):
        counting.count(number, *(counting.batch("delay", [1.0] * 20, at) for at in range(4)))
    (key,) = store.client.keys(f"*:1}}:pane:delay@*:{EPOCH + MINUTE}")
    store.client.delete(key)
    delay = dataclasses.replace(reader.metrics["delay"], retention="36500d")
    found = ask(Reader(store, {"delay": delay}), step="1m")
    assert [point.reports for point in found.points] == [40, 0, 40, 40]
    assert [point.status == "expired" for point in found.points] == [False, True, False, False]
    gone = found.points[1]
    assert (gone.value, gone.lower, gone.upper, gone.unbiased) == (None, None, None, None)
