"""Reports waiting for their batch, and event times as people write them."""

import datetime
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.delivery.batches import Columns
from producers.device.base_reporter import by_pane
from producers.device.event_times import event_times
from producers.device.reporter import PaneBuffer
from tests.support.rows import row

MINUTE = 60_000
LATENESS = 20_000


def columns(ids: range, time_ms: list[int], country: str = "") -> Iterator[tuple[int, Columns]]:
    """Reports that carry their own number."""
    reports = Columns(
        np.array([i % 3 for i in ids], dtype=np.uint8),
        np.array(ids, dtype=np.int64),
        np.array(time_ms, dtype=np.int64),
        (("country", country),) if country else (),
    )
    return by_pane(reports, MINUTE)


def test_slices_wait_for_batches_of_their_own_and_close_together() -> None:
    buffer = PaneBuffer(MINUTE, LATENESS, batch_reports=3, batch_age=1.0)
    assert buffer.add(columns(range(2), [0, 1], "DE"), now=0.0) == []
    assert buffer.add(columns(range(2, 4), [2, 3], "FR"), now=0.5) == []
    full = buffer.add(columns(range(4, 6), [4, 5], "DE"), now=0.6)
    assert [(batch.reports.tolist(), batch.attributes) for batch in full] == [
        ([0, 1, 4], (("country", "DE"),))
    ]
    assert [batch.reports.tolist() for batch in buffer.pop_aged(1.5)] == [[2, 3]]
    buffer.add(columns(range(6, 7), [6]), now=1.5)
    closing = buffer.add(columns(range(7, 8), [MINUTE + LATENESS + 6], "FR"), now=1.5)
    assert [(batch.reports.tolist(), batch.attributes) for batch in closing] == [
        ([5], (("country", "DE"),)),
        ([6], ()),
    ], "reports of every slice are late after this one"


@given(
    calls=st.lists(st.lists(st.integers(0, 5 * MINUTE), min_size=1, max_size=30), max_size=20),
    countries=st.lists(st.sampled_from(["", "DE", "FR"]), min_size=20, max_size=20),
    ordered=st.booleans(),
    batch_reports=st.integers(1, 12),
    age=st.floats(0, 5),
)
def test_every_report_leaves_once_in_a_batch_of_its_own_pane_and_slice(
    calls: list[list[int]], countries: list[str], ordered: bool, batch_reports: int, age: float
) -> None:
    if ordered:
        flat = iter(sorted(time for call in calls for time in call))
        calls = [[next(flat) for _ in call] for call in calls]
    buffer = PaneBuffer(MINUTE, LATENESS, batch_reports, age)
    times: list[int] = []
    left: list[Columns] = []
    said: list[str] = []
    for now, (call, country) in enumerate(zip(calls, countries, strict=False)):
        added = columns(range(len(times), len(times) + len(call)), call, country)
        times += call
        said += [country] * len(call)
        left += buffer.add(added, float(now)) + buffer.pop_aged(float(now))
    left += buffer.pop_all()

    assert buffer.pop_all() == []
    assert sorted(i for batch in left for i in batch.reports.tolist()) == list(range(len(times)))
    if times == sorted(times):
        closed = -1  # whoever counts the batches in this order finds none of them late
        for batch in left:
            assert batch.time_ms.min() // MINUTE * MINUTE + MINUTE + LATENESS > closed
            closed = max(closed, int(batch.time_ms.max()))
    for batch in left:
        assert 1 <= batch.level.size <= batch_reports
        assert len(set((batch.time_ms // MINUTE).tolist())) == 1
        assert batch.level.tolist() == [i % 3 for i in batch.reports.tolist()]
        assert {said[i] for i in batch.reports.tolist()} == {
            dict(batch.attributes).get("country", "")
        }
        assert batch.time_ms.tolist() == [times[i] for i in batch.reports.tolist()]


UTC = datetime.UTC
NEW_YORK = datetime.timezone(datetime.timedelta(hours=-5))
MOMENT = datetime.datetime(2013, 1, 1, 5, 15, 0, 250_000, tzinfo=NEW_YORK)
MOMENT_MS = 1_357_035_300_250


def test_every_way_to_write_a_time_means_the_same() -> None:
    times: list[Any] = [
        MOMENT,
        MOMENT.astimezone(UTC),
        MOMENT_MS / 1000,
        np.datetime64("2013-01-01T10:15:00.250999999"),
        np.array([MOMENT_MS / 1000] * 2),
        np.array(["2013-01-01T10:15:00.250"] * 2, dtype="M8[us]"),
        np.array([MOMENT_MS] * 2).view("M8[ms]"),
        [MOMENT, np.datetime64(MOMENT_MS, "ms")],
        [MOMENT_MS / 1000, MOMENT],
    ]
    for time in times:
        with row(repr(time)):
            assert event_times(time, 2).tolist() == [MOMENT_MS] * 2


def test_what_is_no_event_time_is_named() -> None:
    cases: list[tuple[Any, str]] = [
        (0, "time 0: expected a time after 1970"),
        (MOMENT_MS, f"time {MOMENT_MS}: .*not milliseconds"),
        ([5.0, float("nan")], "time nan"),
        (np.datetime64("NaT"), "time NaT"),
        (memoryview(b"12"), "times: a memoryview of bytes"),
        (datetime.datetime(2013, 1, 1), "has no time zone"),
        ([datetime.date(2013, 1, 1)], "expected a datetime with a time zone"),
        ("yesterday", r"time 'yesterday': .* datetime.fromisoformat\(\) reads texts"),
        ([5.0, None], "time None: expected"),
        ([MOMENT, 2**64], "time 18446744073709551616: expected a time after 1970"),
        ([5.0, True], "times: True or False is among them"),
        ([5.0, "5"], r"time '5': .* epoch, as float\(\) makes"),
        ([[5.0], [5.0, 6.0]], r"times \[\[5.0\], .*: expected one time or a flat array"),
        (np.float32(MOMENT_MS / 1000), "times of float32.*expected float64"),
        (2026, "time 2026: an integer of 4 to 8 or 12 digits could be a year"),
        ([MOMENT, 20_261_105], "time 20261105: .*as a float if it is in seconds"),
        (np.array([MOMENT_MS // 1000, 202_611_051_200]), "time 202611051200: an integer"),
        ([1.0, 2.0, 3.0], r"times of shape \(3,\) for 2 reports"),
    ]
    for time, said in cases:
        with row(repr(time)), pytest.raises(ValueError, match=said):
            event_times(time, 2)
