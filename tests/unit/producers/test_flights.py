"""The flights of 2013 out of New York."""

from typing import Any

import numpy as np
import pytest

from estimators import LocalMetric, TrustedMetric
from estimators.exact.randomness import SeededBits
from estimators.metrics.categories import OPEN_VOCABULARY
from producers.populations import flights
from producers.populations.produce import produce
from tests.support.running.broker import Broker, count

FLIGHTS, AIRCRAFT, WEEKS = 336_776, 4_043, 53


@pytest.mark.more
def test_the_table_is_as_documented_and_counted_to_the_last(broker: Broker, topic: str) -> None:
    table = flights.flights()
    assert len(table) == FLIGHTS + WEEKS * AIRCRAFT
    times = table.time_ms[table.has_value("carrier")]
    assert times[0].view("datetime64[ms]") == np.datetime64("2013-01-01T10:00")  # 5 in New York
    assert not (times % 3_600_000).any()
    expected = {"dep_delay": 8_255, "carrier": 0, "dest": 0, "tail": 2_512}  # cancelled
    of_arrivals = ("late", "caught_up", "arr_delay", "delays")  # cancelled, diverted
    expected |= dict.fromkeys(of_arrivals, 9_430)
    for name, missing in expected.items():
        assert table.count_missing(name) == missing + WEEKS * AIRCRAFT
    assert table.count_missing("active_week") == FLIGHTS
    assert np.nansum(table.columns["late"]) == 77_630
    steps, quadrants = (table.columns[name] for name in ("journey", "caught_up"))
    assert np.bincount(steps[steps >= 0]).tolist() == [8_255, 1_175, 77_630, 249_716]
    assert np.bincount(quadrants[quadrants >= 0])[[1, 3]].sum() == 77_630
    first = table.columns["delays"][table.columns["tail"] == "N14228"][0]
    assert first.tolist() == [2.0, 11.0, 227.0 - (20 + 1400 / 8)], "227 minutes for 1,400 miles"
    metrics, bits = flights.flight_metrics(), SeededBits(1)
    done = produce(metrics, table, broker.config, flights.MIX, topic=topic, bits=bits)
    assert done.reports == 11 * FLIGHTS - 2 * 8_255 - 4 * 9_430 - 2_512 + WEEKS * AIRCRAFT
    batches = broker.batches(topic)
    for name, metric in metrics.items():
        statistic = count(metric, [batch for batch in batches if batch.metric == name])
        truth = done.truth[name]
        assert metric.counts(statistic).tolist() == truth.levels.tolist()
        if isinstance(metric, TrustedMetric):
            estimate = metric.release(statistic, beta=1e-6).numbers
        else:
            unlisted = metric.categories == OPEN_VOCABULARY and not metric.labels
            asked: dict[str, Any] = {"categories": truth.labels} if unlisted else {}
            estimate = LocalMetric.require(metric).estimate(statistic, beta=1e-6, **asked).numbers
        assert np.all((estimate.lower <= truth.value) & (truth.value <= estimate.upper))
