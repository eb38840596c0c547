"""An alarm looks at final panes in order, and its events are a function of them."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from aggregator.config.settings import Settings
from aggregator.errors import StateUnreadable
from aggregator.features.alarms.alarm_answers import alarm_answer
from aggregator.features.alarms.definitions import AlarmDefinition
from aggregator.features.alarms.due_events import ALARM_EVENT
from aggregator.features.alarms.run import AlarmRun, StoredAlarm, WatchedPane
from aggregator.features.reader import Reader
from aggregator.publishing import due_events
from aggregator.publishing.due_events import Publication, RunWatch
from aggregator.publishing.published_log import PublishedLog
from aggregator.reading.window import SliceSums, Window
from aggregator.state.watermark import CONFIRMING_BATCHES
from aggregator.storage.lease import Lease
from aggregator.storage.redis_keys import partitions_key, publisher_key
from aggregator.storage.store import Store
from aggregator.timestamps import iso
from estimators import LocalMetric, Metric, define
from estimators.alarms.detector import Detector
from producers.wire.batch import heartbeat
from producers.wire.reports_pb2 import Attribute, ReportBatch
from tests.support.metrics import BY_COUNTRY, mean_metric
from tests.support.reports.counted import HOUR, Counting
from tests.support.reports.messages import EPOCH, batch

LATE = mean_metric(
    "late", "randomized_response", (0, 1), [2, 4], pane="1h", minimum_reports=30, **BY_COUNTRY
)
METRICS: dict[str, Metric] = {"late": LATE}
BASELINE, MOVED, PANES = 12, 20, 30
"""Hours: the alarm begins after the baseline; FR moves later."""
MOVES = AlarmDefinition(
    name="moved",
    metric="late",
    start_ms=EPOCH + BASELINE * HOUR,
    every_ms=HOUR,
    false_alarms=1e-3,
    by=("country",),
    baseline_ms=BASELINE * HOUR,
    promise="1/1000h",
)


@pytest.fixture(scope="module")
def sent() -> list[ReportBatch]:
    """An hour of reports after another: FR goes from 0.3 to 0.7, DE stays."""
    draws, found = np.random.default_rng(3), []
    for hour in range(PANES + 1):
        for number, country in enumerate(("DE", "FR")):
            mean = 0.7 if country == "FR" and hour >= MOVED else 0.3
            for level, epsilon in enumerate((2.0, 4.0)):
                one = batch(
                    LATE,
                    draws.binomial(1, mean, 150).tolist(),
                    epsilon,
                    EPOCH + hour * HOUR,
                    1 + 4 * hour + 2 * number + level,
                )
                one.attributes.append(Attribute(name="country", value=country))
                found.append(one)
    return found


@pytest.fixture
def reader(store: Store, sent: list[ReportBatch]) -> Reader:
    count(Counting(store, METRICS), sent, PANES)
    return Reader(store, METRICS)


def count(counting: Counting, sent: Sequence[ReportBatch], hours: int) -> None:
    """Count what was sent up to an hour, and close it."""
    before = [one for one in sent if one.time_ms < EPOCH + hours * HOUR]
    end = heartbeat(LATE, EPOCH + hours * HOUR + LATE.lateness_ms)
    counting.count(0, *before, *[end] * CONFIRMING_BATCHES)


def take(reader: Reader, run: AlarmRun) -> list[WatchedPane]:
    overview = reader.store.overview()
    (watermark,) = reader.finality_watermarks(overview).values()
    return [*run.advance(overview, watermark)]


def said(taken: Sequence[WatchedPane]) -> list[tuple[Any, ...]]:
    return [(one.start_ms, one.raised, [step for _, step in one.steps]) for one in taken]


def test_the_share_below_a_limit_raises_an_alarm(store: Store) -> None:
    """Half of the users wait for less than 4 s; from some hour on, all do."""
    known: dict[str, Any] = {"range": (0, 8), "bins": 8, "levels": [4], "unit": "s", "pane": "1h"}
    wait = LocalMetric.require(define(name="wait", kind="distribution", **known))
    definition = dataclasses.replace(MOVES, name="slow", metric="wait", below=(4.0, 6.0), by=())
    counting, draws = Counting(store, {"wait": wait}), np.random.default_rng(9)
    for hour in range(PANES):
        values = draws.uniform(0, 3 if hour >= MOVED else 8, 500).tolist()
        counting.count(0, batch(wait, values, 4.0, EPOCH + hour * HOUR, 1 + hour))
    end = heartbeat(wait, EPOCH + PANES * HOUR + wait.lateness_ms)
    counting.count(0, *[end] * CONFIRMING_BATCHES)
    reader = Reader(store, {"wait": wait})
    raised = [one for pane in take(reader, AlarmRun(reader, definition)) for one in pane.raised]
    assert {one.category for one in raised} == {"below 4", "below 6"}
    first = next(one for one in raised if one.category == "below 4")
    assert (first.direction, first.unit) == ("up", "")
    assert first.baseline.value == pytest.approx(0.5, abs=0.1)
    assert first.now.value == pytest.approx(1.0, abs=0.2)
    assert first.since >= str(iso(EPOCH + (MOVED - 2) * HOUR))
    answer = alarm_answer(reader, definition)
    assert (answer.unit, [one.category for one in answer.series]) == ("", ["below 4", "below 6"])


def test_the_series_that_moves_raises_an_alarm_and_none_without_a_baseline(reader: Reader) -> None:
    run = AlarmRun(reader, MOVES)
    taken = take(reader, run)
    assert [one.start_ms for one in taken] == [
        EPOCH + hour * HOUR for hour in range(BASELINE, PANES)
    ]
    raised = [one for pane in taken for one in pane.raised]
    first = raised[0]
    assert {one.slice["country"] for one in raised} == {"FR"}
    assert first.direction == "up"
    assert (first.since, first.at) == ("2013-01-01T20:00:00Z", "2013-01-01T21:00:00Z")
    assert first.now.value == pytest.approx(0.7, abs=0.1)
    assert first.baseline.value == pytest.approx(0.3, abs=0.05)
    assert first.evidence >= first.needed
    assert first.panes == MOVED - BASELINE + 1
    assert "over 4 series together" in first.promise
    alone = Detector(LATE, MOVES.false_alarms / 4, baseline_value=0.3)
    assert first.needed == pytest.approx(alone.needed), "each series has its part of false alarms"
    state = {tuple(one.slice.values()): one.state.reason for one in run.series}
    assert state == {
        ("DE",): "",
        ("FR",): "",
        ("other",): "its baseline has 0 reports: expected 30",
        (None,): "its baseline has 0 reports: expected 30",
    }
    strict = Reader(reader.store, {"late": dataclasses.replace(LATE, minimum_reports=4_000)})
    run = AlarmRun(strict, MOVES)
    assert not any(one.steps for one in take(strict, run))
    assert run.series[0].state.reason == "its baseline has 3600 reports: expected 4000"
    reader.store.client.set(run.state_key, msgspec.msgpack.encode(run.stored()))
    assert alarm_answer(strict, MOVES).state == "unwatchable", "as each of its series is"


def test_a_run_that_is_resumed_says_the_same(reader: Reader) -> None:
    whole = take(reader, AlarmRun(reader, MOVES))
    run, found = AlarmRun(reader, MOVES), []
    overview = reader.store.overview()
    for closed in range(BASELINE, PANES + 1, 3):
        found += [*run.advance(overview, EPOCH + closed * HOUR)]
        kept = msgspec.msgpack.decode(msgspec.msgpack.encode(run.stored()), type=StoredAlarm)
        run = AlarmRun(reader, MOVES, kept)
    assert said(found) == said(whole)


def test_what_changes_then_is_read_again(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = take(reader, AlarmRun(reader, MOVES))
    read, reads = reader.read, itertools.count()

    def torn(window: Window) -> Window:
        if next(reads) % 4:
            return read(window)
        whole: Any = read(window).content
        part = dataclasses.replace(whole, coverage=0.5)
        return dataclasses.replace(window, status="provisional", content=part)

    monkeypatch.setattr(reader, "read", torn)
    run, found = AlarmRun(reader, MOVES), list[WatchedPane]()
    for _ in range(PANES):
        found += take(reader, run)
    assert said(found) == said(whole)


def test_empty_panes_are_read_until_expiry(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    count(Counting(reader.store, METRICS), [], PANES + 2)
    run = AlarmRun(reader, MOVES)
    assert all(one.steps for one in take(reader, run))
    assert (run.next_ms, run.skipped) == (EPOCH + (PANES + 2) * HOUR, 0)
    expire(reader, EPOCH + (PANES + 1) * HOUR, monkeypatch, slices=False)
    run = AlarmRun(reader, MOVES)
    assert [not one.steps for one in take(reader, run)[-2:]] == [False, True]
    assert AlarmRun(reader, MOVES, run.stored()).skipped == 1


def expire(
    reader: Reader, start_ms: int, monkeypatch: pytest.MonkeyPatch, *, slices: bool = True
) -> None:
    """Have the sums of a window be gone, and those of its slices, if there are any."""
    read = reader.read

    def gone(window: Window) -> Window:
        found = read(window)
        is_it = window.start_ms == start_ms and (slices or not isinstance(found.content, SliceSums))
        return found.expired() if is_it else found

    monkeypatch.setattr(reader, "read", gone)


def test_nothing_is_looked_at_before_it_is_final(store: Store, sent: list[ReportBatch]) -> None:
    reader, counting = Reader(store, METRICS), Counting(store, METRICS)
    count(counting, sent, BASELINE - 1)
    run = AlarmRun(reader, MOVES)
    assert take(reader, run) == []
    assert run.is_learning
    count(counting, sent, BASELINE + 1)
    assert [one.end_ms for one in take(reader, run)] == [EPOCH + (BASELINE + 1) * HOUR]
    assert not run.is_learning


def test_a_state_that_does_not_fit_begins_anew(reader: Reader) -> None:
    """Nor is the state of another alarm continued: it has another name."""
    run = AlarmRun(reader, MOVES)
    take(reader, run)
    others: list[dict[str, Any]] = [
        {"every_ms": 2 * HOUR},
        {"false_alarms": 1e-4},
        {"direction": "up"},
        {"by": ()},
    ]
    names = {AlarmRun(reader, dataclasses.replace(MOVES, **other)).name for other in others}
    assert len({run.name, *names}) == 5
    state = run.stored()
    bad = [msgspec.structs.replace(one, detector=b"x") for one in state.series]
    for change in ({"series": state.series[1:]}, {"next_ms": state.next_ms + 1}, {"series": bad}):
        again = AlarmRun(reader, MOVES, msgspec.structs.replace(state, **change))
        assert (again.next_ms, again.is_learning) == (MOVES.start_ms, True)
    store, key = reader.store, run.state_key
    store.client.set(key, b"\xc1 bad")
    assert run.read_state(reader, MOVES) is None
    store.client.copy(partitions_key(store.topic), key, replace=True)
    assert run.read_state(reader, MOVES) is None, "which stops no publisher"


def test_a_failing_alarm_stops_no_other(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_events, "TURN_SECONDS", 60.0)  # all panes in one turn
    broken, whole = (
        AlarmRun.resumed(reader, dataclasses.replace(MOVES, name=name)) for name in ("one", "two")
    )
    monkeypatch.setattr(broken, "advance", lambda *_: 1 / 0)
    key = publisher_key(reader.store.topic)
    lease = Lease(reader.store.client, key, "publisher", 600)
    assert lease.acquire()
    published = PublishedLog(reader.store.client, lease, key, Settings())
    publication, overview = Publication(reader, published, "/dither/t", 0), reader.store.overview()
    found = RunWatch(publication, ALARM_EVENT, [broken, whole]).due_events(overview, 1)
    assert {one.subject for one in next(found)} == {"two"}
    with pytest.raises(ZeroDivisionError):
        next(found)
    stored = [run.read_state(reader, run.definition) for run in (broken, whole)]
    assert [state is None for state in stored] == [True, False]
    reader.store.client.set(f"{key}:alarms", "spoilt")
    unsure = AlarmRun.resumed(reader, dataclasses.replace(MOVES, name="three"))
    with pytest.raises(StateUnreadable, match=f"{key}:alarms"):
        list(RunWatch(publication, ALARM_EVENT, [unsure]).due_events(overview, 1))
    assert unsure.read_state(reader, unsure.definition) is None, "its events would be lost"


def test_panes_whose_slices_have_expired_are_not_read_as_empty(reader: Reader) -> None:
    """The metric's own sums are kept longer than its tables of slices."""
    client: Any = reader.store.client
    hour = EPOCH + (BASELINE + 2) * HOUR
    (table,) = client.keys(f"*:slices:late@*:{hour}")
    client.delete(table)
    short = dataclasses.replace(LATE, by_retention="1d")
    run = AlarmRun(Reader(reader.store, {"late": short}), MOVES)
    taken = take(reader, run)
    assert [one.steps == () for one in taken[:4]] == [False, False, True, False]
    assert run.skipped == 1
    client.delete(*client.keys(f"*:slices:late@*:{EPOCH + HOUR}"))
    run = AlarmRun(Reader(reader.store, {"late": short}), MOVES)
    assert take(reader, run) == []
    assert "some of it is in no slice" in run.reason


def test_an_alarm_is_raised_though_the_first_panes_of_its_move_have_expired(reader: Reader) -> None:
    patient = dataclasses.replace(MOVES, false_alarms=1e-60)
    short = Reader(reader.store, {"late": dataclasses.replace(LATE, by_retention="1d")})
    (first,) = [one for pane in take(short, AlarmRun(short, patient)) for one in pane.raised][:1]
    run, overview = AlarmRun(short, patient), reader.store.overview()
    assert not [pane for pane in run.advance(overview, EPOCH + (MOVED + 1) * HOUR) if pane.raised]
    client: Any = reader.store.client
    client.delete(*client.keys(f"*:slices:late@*:{EPOCH + MOVED * HOUR}"))
    (later,) = [one for pane in take(short, run) for one in pane.raised][:1]
    assert (later.since, later.at, later.evidence) == (first.since, first.at, first.evidence)
    assert (first.now.reports, later.now.reports) == (900, 300), "those of the last pane are left"


def test_an_expired_baseline_is_said(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    expire(reader, MOVES.start_ms - BASELINE * HOUR, monkeypatch)
    run = AlarmRun(reader, MOVES)
    assert take(reader, run) == []
    assert "from 2013-01-01T00:00:00Z to 2013-01-01T12:00:00Z has expired" in run.reason
    monkeypatch.undo()
    expire(reader, MOVES.start_ms + HOUR, monkeypatch)
    run = AlarmRun(reader, MOVES)
    assert [one.steps == () for one in take(reader, run)[:3]] == [False, True, False]
    assert run.stored().skipped == 1
