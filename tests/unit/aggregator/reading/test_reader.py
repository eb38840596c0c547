"""A window over event time is the sum of its panes, whichever of them were rolled up."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from aggregator import Reader
from aggregator.errors import StateUnreadable
from aggregator.features.comparisons.query import COMPARISON_FIELDS, CompareOptions
from aggregator.reading.pane_sums import PaneSums
from aggregator.reading.query import EstimateOptions, Query, SeriesOptions, SeriesQuery
from aggregator.reading.window import Window
from aggregator.state.pane_keys import PaneKey, metric_key
from aggregator.state.watermark import CONFIRMING_BATCHES
from aggregator.storage.store import Store
from estimators import LocalMetric
from estimators.estimate import Counts
from producers.wire.batch import heartbeat
from tests.support.metrics import mean_metric
from tests.support.reports.counted import HOUR, MINUTE, TOPIC
from tests.support.reports.messages import ARRIVAL, DAY, EPOCH, LogMessage, agreeing, batch, log
from tests.support.rows import row

FUTURE_MS = 10 * MINUTE


def mean(name: str, **fields: Any) -> LocalMetric:
    return mean_metric(name, "randomized_response", (0, 10), [0.5, 1], minimum_reports=3, **fields)


#: Panes that roll up into hours and days, into neither, and into days alone.
DELAY = mean("delay", pane="1m", lateness="90s")
AWKWARD = mean("awkward", pane="7m")
HOURLY = mean("hourly", pane="1h", lateness="30m")
METRICS = {metric.name: metric for metric in (DELAY, AWKWARD, HOURLY)}
Report = tuple[int, str, int]
"""A partition, a metric and an event time in minutes."""


class Counted:
    """Partitions counted into the store, and every pane of theirs in memory.

    Each of these reports comes in so many batches: as many as confirm its time, or one.
    """

    def __init__(
        self,
        store: Store,
        reports: Sequence[Report],
        commit_every: int = 7,
        batches: int = CONFIRMING_BATCHES,
        partitions: int | None = None,
    ) -> None:
        self.store, self.batches = store, batches
        counted = {*store.partitions(), *(report[0] for report in reports)}
        self.partitions = 1 + max(counted, default=0) if partitions is None else partitions
        self.panes: dict[int, dict[PaneKey, Counts]] = {}
        for number in sorted({report[0] for report in reports}):
            self._count(number, [report for report in reports if report[0] == number], commit_every)

    def _count(self, number: int, reports: Sequence[Report], commit_every: int) -> None:
        snapshot = self.store.partition.acquire(number, "test")
        partition = snapshot.partition(METRICS, FUTURE_MS)
        epoch, expected = int(snapshot.owner["epoch"]), snapshot.next_offset
        panes = self.panes.setdefault(number, {})
        for offset, (_, name, minute) in enumerate(reports):
            first = offset * self.batches
            same = [
                batch(METRICS[name], [1.0, 9.0], 1, EPOCH + minute * MINUTE, seed)
                for seed in range(number * 10**6 + first, number * 10**6 + first + self.batches)
            ]
            partition.count(log(*same, first=first))
            panes |= {key: pane.statistic.copy() for key, pane in partition.panes.items()}
            if offset % commit_every == 0 or offset == len(reports) - 1:
                facts = {"high": len(reports) * self.batches, "partitions": self.partitions}
                self.store.partition.commit(number, epoch, expected, partition, facts)
                expected = partition.next_offset

    def by_hand(self, metric: LocalMetric, start: int | None, end: int | None) -> Counts:
        """Sum a metric's own panes that overlap [start, end)."""
        name = metric_key(metric.name, metric.revision)
        total = metric.zero()
        for panes in self.panes.values():
            for key, statistic in panes.items():
                if key.grain != "pane" or key.metric != name:
                    continue
                begins_before_end = end is None or key.start < end
                ends_after_start = start is None or key.start + metric.pane_ms > start
                if begins_before_end and ends_after_start:
                    total += statistic
        return total


def drawn(seed: int, reports: int) -> list[Report]:
    """Return reports of three partitions and all metrics, in any order, half within three hours."""
    rng = np.random.default_rng(seed)
    minutes = np.where(rng.random(reports) < 0.5, 200, 4 * 24 * 60) * rng.random(reports)
    names = rng.choice(sorted(METRICS), reports)
    numbers = rng.integers(0, 3, reports)
    return [
        (int(number), str(name), int(minute))
        for number, name, minute in zip(numbers, names, minutes, strict=True)
    ]


def edge(rng: np.random.Generator) -> int | None:
    """Return an edge of a window: none, any millisecond, a whole hour or a whole day."""
    return [
        None,
        int(rng.integers(-HOUR, 4 * DAY)),
        int(rng.integers(-1, 4 * 24)) * HOUR,
        int(rng.integers(0, 4)) * DAY,
    ][rng.integers(4)]


@pytest.mark.parametrize("in_order", [True, False])
def test_a_window_equals_the_sum_of_panes_of_all_partitions(store: Store, in_order: bool) -> None:
    """In the order of their times nearly all panes are rolled up; otherwise many are late."""
    rng = np.random.default_rng(7)
    for seed, (commit_every, batches) in enumerate([(1, 1), (7, CONFIRMING_BATCHES), (20, 1)]):
        store.client.flushdb()
        reports = drawn(seed, 60)
        if in_order:
            reports.sort(key=lambda report: report[2])
        counted = Counted(store, reports, commit_every, batches)
        reader = Reader(store, METRICS)
        for name, metric in METRICS.items():
            for first, last in [(None, None), *((edge(rng), edge(rng)) for _ in range(15))]:
                if first is not None and last is not None and first >= last:
                    continue
                start = None if first is None else EPOCH + first
                end = None if last is None else EPOCH + last
                with row(seed, name, first, last):
                    found = reader.window(name, Query(seconds(start), seconds(end))).sums
                    assert found.tolist() == counted.by_hand(metric, start, end).tolist()


def seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def every_minute(partition: int, minutes: range, name: str = "delay") -> list[Report]:
    return [(partition, name, minute) for minute in minutes]


def test_days_and_hours_are_read_not_panes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(store, every_minute(0, range(0, 3 * 24 * 60, 15)), commit_every=50, batches=1)
    read: list[PaneKey] = []
    statistics = store.panes.read_statistics

    def noted(keys: Sequence[tuple[int, PaneKey]], *commands: Any) -> Any:
        read.extend(key for _, key in keys)
        return statistics(keys, *commands)

    monkeypatch.setattr(store.panes, "read_statistics", noted)
    start, end = EPOCH - 5 * MINUTE, EPOCH + 2 * DAY + 3 * HOUR + 25 * MINUTE
    found = Reader(store, METRICS).window("delay", Query(seconds(start), seconds(end))).sums
    assert found.tolist() == counted.by_hand(DELAY, start, end).tolist()
    grains = [key.grain for key in read]
    assert {grain: grains.count(grain) for grain in set(grains)} == {"day": 2, "hour": 3, "pane": 2}


def test_the_edges_of_a_window_are_widened_to_whole_panes(store: Store) -> None:
    window = Reader(store, METRICS).window("delay", Query(EPOCH / 1000 + 90, EPOCH / 1000 + 181))
    assert (window.start_ms, window.end_ms) == (EPOCH + MINUTE, EPOCH + 4 * MINUTE)


def test_a_question_that_has_no_window_is_refused(store: Store) -> None:
    reader = Reader(store, METRICS)
    began = "window from 1970-01-01T00:01:40Z to 1970-01-01T00:0"
    rows: list[tuple[dict[str, Any], str]] = [
        ({"start": 100.0, "end": 100.0}, f"{began}1:40Z: expected an end after"),
        ({"start": 100.0, "end": 0.0}, f"{began}0:00Z: expected an end after"),
        ({"start": 20130101}, "time 20130101: expected seconds since the epoch"),
        ({"start": float("nan")}, "time nan: expected seconds since the epoch"),
        ({"end": float("-inf")}, "time -inf: expected seconds since the epoch"),
        *(
            ({"window": window}, f"window = '{window}': expected a duration")
            for window in ("", "1", "0s", "h", "-1h")
        ),
        ({"start": 100.0, "window": "1h"}, "window = '1h' and a start or an end"),
    ]
    for question, told in rows:
        with row(question), pytest.raises(ValueError, match=told):
            reader.window("delay", Query(**question))


def test_options_are_the_fields_of_a_query_and_a_misspelt_one_is_an_error(store: Store) -> None:
    """Mypy refuses an unused `type: ignore`, so it knows these options too."""
    fields = {field.name for field in dataclasses.fields(Query)} | {"quantiles"}
    series_fields = {field.name for field in dataclasses.fields(SeriesQuery)} | {"quantiles"}
    against = {f"against_{key}" for key in ("start", "end", "window")}
    assert {*EstimateOptions.__annotations__} == fields - {"start", "end", "by"}
    assert {*SeriesOptions.__annotations__} == series_fields - {"start", "end", "metric", "step"}
    expected = (fields - {"where", "by"}) | against | {*COMPARISON_FIELDS}
    assert {*CompareOptions.__annotations__} == expected
    reader = Reader(store, METRICS)
    with pytest.raises(TypeError, match="wieghts"):
        reader.estimate("delay", wieghts="paper")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="wieghts"):
        reader.series("delay", wieghts="paper")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="wieghts"):
        reader.compare("delay", wieghts="paper")  # type: ignore[call-arg]


def test_the_last_hour_ends_with_the_pane_of_the_newest_event_time(store: Store) -> None:
    reader = Reader(store, METRICS)
    assert reader.window("delay", Query(window="1h")).end_ms is None
    assert reader.estimate("delay", window="1h").status == "not_ready"
    reports = [*every_minute(0, range(100)), *every_minute(1, range(50, 90))]
    counted = Counted(store, reports, batches=1)
    window = reader.window("delay", Query(window="1h"))
    assert (window.start_ms, window.end_ms) == (EPOCH + 40 * MINUTE, EPOCH + 100 * MINUTE)
    assert window.sums.tolist() == counted.by_hand(DELAY, window.start_ms, window.end_ms).tolist()
    assert reader.estimate("delay", window="1h").reports == 2 * (60 + 40)
    widened = reader.window("delay", Query(window="90s"))
    assert (widened.start_ms, widened.end_ms) == (EPOCH + 98 * MINUTE, EPOCH + 100 * MINUTE)
    year = reader.window("delay", Query(window="52w"))
    assert year.sums.sum() == counted.by_hand(DELAY, None, None).sum()


def test_the_version_of_a_window_changes_with_what_it_says_alone(store: Store) -> None:
    def version(**window: Any) -> str:
        return Reader(store, METRICS).describe(store.overview(), "delay", Query(**window)).version

    end = seconds(EPOCH + 10 * MINUTE)
    found = {version(), version(end=end)}
    Counted(store, every_minute(0, range(5)))
    found |= {version(), version(end=end), version(window="2m"), version(start=end)}
    assert len(found) == 6
    Counted(store, every_minute(1, range(9), "awkward"))
    before = version()
    assert before == version()
    assert before == Reader(store, METRICS).describe(store.overview(), "delay", Query()).version
    store.registry.set_policy("awkward", "uniform")
    assert version() == before
    store.registry.set_policy("delay", "uniform")
    assert version() != before
    before = version()
    store.client.hincrby(f"{{dither:{TOPIC}:0}}:counts", "accepted:delay", 1)
    assert version() != before


def lose(store: Store, partition: int, grain: str, start: int) -> str:
    (key,) = store.client.keys(f"{{dither:{TOPIC}:{partition}}}:{grain}:delay@*:{start}")
    store.client.delete(key)
    return str(key, "utf-8") if isinstance(key, bytes) else key


def test_a_window_of_which_something_has_expired_says_so_and_shows_no_part(store: Store) -> None:
    minutes = range(0, 27 * 60, 10)
    Counted(store, [*every_minute(0, minutes), *every_minute(1, minutes)], 50, batches=1)
    reader = Reader(store, {"delay": dataclasses.replace(DELAY, retention="30d")})
    for grain, length in (("pane", 10 * MINUTE), ("hour", HOUR), ("day", DAY)):
        lose(store, 1, grain, EPOCH)
        first, middle, last = (seconds(EPOCH + n * length) for n in range(3))
        with row(grain):
            found = reader.estimate("delay", first, middle)
            assert (found.status, found.reports) == ("expired", 0)
            assert all(np.isnan(x) for x in (found.value, found.lower, found.upper, found.shown))
            assert reader.estimate("delay", None, last).status == "expired"
            assert reader.estimate("delay", middle, last).status != "expired"
    assert reader.estimate("delay").reports == 2 * len(minutes) * 2, "totals stay"


def test_a_pane_that_was_deleted_and_never_expires_is_named(store: Store) -> None:
    Counted(store, every_minute(0, range(30)), batches=1)
    reader, end = Reader(store, METRICS), seconds(EPOCH + 5 * MINUTE)
    key = lose(store, 0, "pane", EPOCH)
    told = re.escape(f"nothing at {key}: expected a pane that was counted")
    with pytest.raises(StateUnreadable, match=told):
        reader.window("delay", Query(seconds(EPOCH), end))
    reader.window("delay", Query(seconds(EPOCH + MINUTE), end))


def test_what_expired_before_a_retention_was_taken_away_has_expired_after_it(store: Store) -> None:
    kept = dataclasses.replace(DELAY, retention="1h")  # the reports arrived long ago
    partition = store.partition.acquire(0, "test").partition({"delay": kept}, FUTURE_MS)
    minutes = [one for minute in (0, 30) for one in agreeing(kept, EPOCH + minute * MINUTE, minute)]
    partition.count(log(*minutes))
    store.partition.commit(0, 1, -1, partition, {"partitions": 1})
    found = Reader(store, METRICS).estimate("delay", seconds(EPOCH), seconds(EPOCH + MINUTE))
    assert found.status == "expired"


def test_a_metric_that_is_redefined_is_read_by_its_new_definition(store: Store) -> None:
    metrics = dict(METRICS)
    reader = Reader(store, metrics)
    Counted(store, every_minute(0, range(10)), batches=1)
    before = reader.describe(store.overview(), "delay")
    assert reader.estimate("delay").reports == 20
    meaning = reader.definition_hash(metrics["delay"])
    metrics["delay"] = dataclasses.replace(DELAY, levels=[1, 2])
    found = reader.estimate("delay")
    assert (found.levels, found.reports) == ((1, 2), 0)
    assert reader.definition_hash(metrics["delay"]) != meaning
    assert reader.read(before).reports == 20, "what was described before is read as it was"


# -- Status: how far the answer can still change ------------------------------------------------

END = EPOCH + 10 * MINUTE
SETTLED = 10 + 2
"""Minutes after which a window up to END is closed: 90 seconds of lateness."""


def facts_of(store: Store, partition: int, **facts: int) -> None:
    key = f"{{dither:{TOPIC}:{partition}}}:owner"
    store.client.hset(key, mapping={name: str(value) for name, value in facts.items()})


def beat(store: Store, number: int, time_ms: int) -> None:
    """Count heartbeats of `delay` in a partition."""
    snapshot = store.partition.acquire(number, "test")
    partition = snapshot.partition(METRICS, FUTURE_MS)
    epoch, first = int(snapshot.owner["epoch"]), snapshot.next_offset
    for offset in range(first, first + CONFIRMING_BATCHES):
        partition.count([LogMessage(offset, heartbeat(DELAY, time_ms))])
    store.partition.commit(number, epoch, first, partition, {})


def status(store: Store, end: int | None = END) -> str:
    """Return a window's status, which :meth:`Reader.closed` agrees with."""
    reader = Reader(store, METRICS)
    found = reader.estimate("delay", None, seconds(end)).status
    if end is not None and found in ("provisional", "final"):
        closed = reader.finality_watermarks(store.overview()).get("delay", -1)
        assert (closed >= end) == (found == "final")
    return found


def test_before_the_first_report_nothing_is_ready_and_few_are_told_apart(store: Store) -> None:
    assert status(store) == "not_ready"
    Counted(store, every_minute(0, range(20), "awkward"))
    assert status(store) == "not_ready"
    store.client.flushdb()
    for number, told in enumerate(("too_few_reports", "provisional")):
        Counted(store, [(number, "delay", 1)], batches=1)
        assert status(store) == told


def test_a_window_is_final_when_all_partitions_have_passed_its_end(store: Store) -> None:
    Counted(store, [*every_minute(0, range(SETTLED + 1)), *every_minute(1, range(SETTLED - 1))])
    assert status(store) == "provisional"
    Counted(store, every_minute(2, range(SETTLED + 1)))
    assert status(store) == "provisional"
    store.client.flushdb()
    Counted(store, [*every_minute(0, range(SETTLED + 1)), *every_minute(1, range(SETTLED + 9))])
    assert status(store) == "final"
    assert status(store, end=None) == "provisional", "a running total never is"


BEHIND = [*every_minute(0, range(SETTLED + 1)), *every_minute(1, range(3))]


def test_a_heartbeat_makes_a_window_final_and_no_clock_and_no_end_of_log(store: Store) -> None:
    Counted(store, BEHIND)
    for updated in (0, ARRIVAL + DAY):
        facts_of(store, 1, updated=updated, high=3)
        assert status(store) == "provisional"
    for early, told in ((1, "provisional"), (0, "final")):
        beat(store, 1, END + DELAY.lateness_ms - early)
        assert status(store) == told


def test_a_partition_without_the_metric_holds_a_window_back_until_a_heartbeat(store: Store) -> None:
    Counted(store, [*every_minute(0, range(SETTLED + 1)), *every_minute(1, range(3), "awkward")])
    assert status(store) == "provisional"
    beat(store, 1, EPOCH + 5 * HOUR)
    assert status(store) == "final"
    last = Reader(store, METRICS).window("delay", Query(window="2m"))
    assert last.end_ms == EPOCH + (SETTLED + 1) * MINUTE, "heartbeats move no last window"


def test_a_partition_that_was_taken_but_never_committed_holds_a_window_back(store: Store) -> None:
    Counted(store, every_minute(0, range(SETTLED + 1)), partitions=2)
    assert status(store) == "provisional"
    store.partition.acquire(1, "new")
    assert status(store) == "provisional"
    Counted(store, every_minute(1, range(SETTLED + 1)))
    assert status(store) == "final"


def test_nothing_is_final_while_a_partition_is_missing_torn_or_unknown(store: Store) -> None:
    """Redis was emptied, and only one of two workers counts again: the other one is frozen."""
    Counted(store, [*every_minute(0, range(SETTLED + 1)), *every_minute(1, range(SETTLED + 1))])
    assert status(store) == "final"
    for half in ({"begun": 99}, {"next": -2}):
        facts_of(store, 1, **half)
        assert status(store) == "provisional", "a commit was applied by half"
    store.client.flushdb()
    Counted(store, every_minute(0, range(SETTLED + 1)), partitions=2)
    assert status(store) == "provisional"
    store.client.flushdb()
    Counted(store, every_minute(0, range(SETTLED + 1)), partitions=0)
    assert status(store) == "provisional", "nobody says how many partitions there are"
    assert Reader(store, METRICS).finality_watermarks(store.overview(), 1)["delay"] >= END, (
        "to who asked Kafka it is"
    )


def test_what_was_counted_anew_is_not_final(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    every = every_minute(0, range(SETTLED + 1))
    Counted(store, every)
    read = PaneSums.read_window

    def emptied_meanwhile(self: PaneSums, window: Window) -> Any:
        store.client.flushdb()
        found = read(self, window)
        Counted(store, every)
        return found

    reader = Reader(store, METRICS)
    with monkeypatch.context() as torn:
        torn.setattr(PaneSums, "read_window", emptied_meanwhile)
        window = reader.window("delay", Query(end=seconds(END)))
    assert (window.reports, window.status) == (0, "provisional")
    window = reader.window("delay", Query(end=seconds(END)))
    assert (window.reports, window.status) == (20 * CONFIRMING_BATCHES, "final")


def test_answers_are_told_apart_from_those_before_redis_was_emptied(store: Store) -> None:
    versions = []
    for _ in range(2):
        Counted(store, every_minute(0, range(3)))
        versions.append(Reader(store, METRICS).describe(store.overview(), "delay").version)
        store.client.flushdb()
    assert versions[0] != versions[1], "what was read in between may be kept under the first"
