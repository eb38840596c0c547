"""Rates are over recent readings, and over nothing else."""

from aggregator.reading.status import Rates
from aggregator.reading.window import EventTimes
from aggregator.state.watermark import Watermark
from tests.support.running.broker import LATE


def test_a_rate_needs_two_readings_and_is_over_the_last_seconds() -> None:
    now = [0.0]
    rates = Rates(lambda: now[0])
    assert rates.note({"a": 1000}) == {}
    now[0] = 0.1
    assert rates.note({"a": 1100}) == {}, "too soon to tell"
    now[0] = 2
    assert rates.note({"a": 1200, "b": 4}) == {"a": 100, "b": 2}
    for second in range(3, 40):
        now[0] = second
        found = rates.note({"a": 1200})
    assert found == {"a": 0}
    now[0] = 40
    assert rates.note({"a": 50}) == {"a": 0}, "a store that lost its last second"


def test_the_newest_event_time_does_not_go_back() -> None:
    mark, times = Watermark(), EventTimes()
    assert times.note(LATE, {}) is None
    for reached in (2000, *range(1000, 1040)):  # the first one is never confirmed
        mark.advance(reached)
        assert times.note(LATE, {0: Watermark(), 1: mark}) == 2000
    assert mark.latest == 1039


def test_an_old_reading_says_nothing_of_now() -> None:
    now = [0.0]
    rates = Rates(lambda: now[0])
    rates.note({"a": 0})
    now[0] = 3600
    assert rates.note({"a": 3600}) == {}
    now[0] = 3601
    assert rates.note({"a": 3700}) == {"a": 100}
