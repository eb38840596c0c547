"""Reports waiting for their batch."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.device.panes import Columns, PaneBuffer

MINUTE = 60_000
LATENESS = 20_000


def columns(ids: range, time_ms: list[int], country: str = "") -> Columns:
    """Reports that carry their own number."""
    return Columns(
        np.array([i % 3 for i in ids], dtype=np.uint8),
        np.array(ids, dtype=np.int64),
        np.array(time_ms, dtype=np.int64),
        (("country", country),) if country else (),
    )


def test_slices_wait_for_batches_of_their_own_and_close_together() -> None:
    buffer = PaneBuffer(MINUTE, LATENESS, batch_reports=3, batch_age=1.0)
    assert buffer.add(columns(range(2), [0, 1], "DE"), now=0.0) == []
    assert buffer.add(columns(range(2, 4), [2, 3], "FR"), now=0.5) == []
    full = buffer.add(columns(range(4, 6), [4, 5], "DE"), now=0.6)
    assert [(batch.reports.tolist(), batch.attributes) for batch in full] == [
        ([0, 1, 4], (("country", "DE"),))
    ]
    assert len(buffer) == 3
    assert [batch.reports.tolist() for batch in buffer.pop_aged(1.5)] == [[2, 3]]
    buffer.add(columns(range(6, 7), [6]), now=1.5)
    closing = buffer.add(columns(range(7, 8), [MINUTE + LATENESS + 6], "FR"), now=1.5)
    assert [(batch.reports.tolist(), batch.attributes) for batch in closing] == [
        ([5], (("country", "DE"),)),
        ([6], ()),
    ], "reports of every slice are late after this one"


def test_a_full_batch_leaves_at_once_and_the_rest_waits() -> None:
    buffer = PaneBuffer(MINUTE, LATENESS, batch_reports=4, batch_age=1.0)
    assert buffer.add(columns(range(3), [1, 2, 3]), now=0.0) == []
    full = buffer.add(columns(range(3, 10), [7] * 7), now=0.5)
    assert [batch.reports.tolist() for batch in full] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(buffer) == 2
    assert buffer.pop_aged(1.4) == []  # the two that wait came at 0.5
    assert [batch.reports.tolist() for batch in buffer.pop_aged(1.5)] == [[8, 9]]


def test_a_batch_leaves_before_the_report_that_would_make_it_late() -> None:
    buffer = PaneBuffer(MINUTE, LATENESS, batch_reports=100, batch_age=1.0)
    assert buffer.add(columns(range(2), [0, 1]), now=0.0) == []
    assert buffer.add(columns(range(2, 3), [MINUTE + LATENESS - 1]), now=0.0) == []
    left = buffer.add(columns(range(3, 4), [MINUTE + LATENESS]), now=0.0)
    assert [batch.reports.tolist() for batch in left] == [[0, 1]]
    assert [batch.reports.tolist() for batch in buffer.pop_all()] == [[2, 3]]


@given(
    calls=st.lists(st.lists(st.integers(0, 5 * MINUTE), min_size=1, max_size=30), max_size=20),
    countries=st.lists(st.sampled_from(["", "DE", "FR"]), min_size=20, max_size=20),
    ordered=st.booleans(),
    batch_reports=st.integers(1, 12),
    age=st.floats(0, 5),
)
@settings(deadline=None)
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

    assert len(buffer) == 0
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
