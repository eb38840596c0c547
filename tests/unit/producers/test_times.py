"""Event times as people write them."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest

from producers.device.times import event_times
from tests.support.rows import row

UTC = datetime.UTC
NEW_YORK = datetime.timezone(datetime.timedelta(hours=-5))
MOMENT = datetime.datetime(2013, 1, 1, 5, 15, 0, 250_000, tzinfo=NEW_YORK)
MOMENT_MS = 1_357_035_300_250


def test_every_way_to_write_a_time_means_the_same() -> None:
    times: list[Any] = [
        MOMENT,
        MOMENT.astimezone(UTC),
        MOMENT_MS / 1000,
        np.float64(MOMENT_MS / 1000),
        np.datetime64("2013-01-01T10:15:00.250999999"),
        [MOMENT, MOMENT],
        np.array([MOMENT_MS / 1000] * 2),
        np.array(["2013-01-01T10:15:00.250"] * 2, dtype="M8[us]"),
        np.array([MOMENT_MS] * 2).view("M8[ms]"),
        None,
    ]
    for time in times:
        with row(repr(time)):
            assert event_times(time, 2, now=MOMENT_MS / 1000).tolist() == [MOMENT_MS] * 2


def test_what_is_no_event_time_is_named() -> None:
    cases: list[tuple[Any, str]] = [
        (-1.0, "time -1.0: expected a time after 1970"),
        (0, "time 0: expected a time after 1970"),
        (MOMENT_MS, f"time {MOMENT_MS}: .*not milliseconds"),
        (float("nan"), "time nan"),
        (float("inf"), "time inf"),
        ([5.0, float("nan")], "time nan"),
        (np.datetime64("NaT"), "time NaT"),
        (datetime.datetime(2013, 1, 1), "has no time zone"),
        ([datetime.date(2013, 1, 1)], "expected a datetime with a time zone"),
        ("yesterday", "time .'yesterday'.: expected"),
        ([1.0, 2.0, 3.0], r"times of shape \(3,\) for 2 reports"),
    ]
    for time, said in cases:
        with row(repr(time)), pytest.raises(ValueError, match=said):
            event_times(time, 2, now=0.0)
