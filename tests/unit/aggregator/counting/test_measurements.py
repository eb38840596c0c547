"""Measurements of the counting: cumulative, additive, and readable by the next version."""

import json
from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.counting.measurements import MEASURED_FIELD, Histogram, Measurements
from aggregator.monitoring import metric_definitions

LATENCY = metric_definitions.END_TO_END_LATENCY
SECONDS = st.lists(st.sampled_from([0.0, 0.05, 0.06, 0.1, 9.0, 3600.0, 3601.0, 1e6]), max_size=30)


@given(SECONDS)
def test_a_bucket_has_everything_up_to_its_bound(seconds: list[float]) -> None:
    histogram = Histogram.of(LATENCY.buckets).with_observations(
        LATENCY.buckets, np.array(seconds, dtype=float)
    )
    expected = [sum(s <= bound for s in seconds) for bound in (*LATENCY.buckets, np.inf)]
    assert histogram.cumulative() == expected
    assert histogram.seconds == pytest.approx(sum(seconds))


def test_messages_without_a_timestamp_and_from_clocks_ahead_do_no_harm() -> None:
    found = Measurements().with_arrivals(array("q", [-1, 900, 1_000, 5_000]), 1_000)
    assert sum(found.latencies.counts) == 3
    assert found.latencies.seconds == pytest.approx(0.1)


def test_what_is_stored_is_read_back() -> None:
    measured = Measurements().with_commit(0.3, 5).with_arrivals(array("q", [0, 9]), 10)
    measured = measured.with_refusal("late").with_refusal("late")
    assert Measurements.stored(measured.facts()) == measured
    assert Measurements.stored({"epoch": "1"}) == Measurements()
    assert (measured + measured).deadletters == {"late": 4}
    assert (measured + Measurements()) == measured


def test_a_histogram_with_other_buckets_begins_again_and_the_rest_is_kept() -> None:
    facts = (
        Measurements()
        .with_commit(0.3, 5)
        .with_arrivals(array("q", [0]), 10)
        .with_refusal("late")
        .facts()
    )
    stored = json.loads(facts[MEASURED_FIELD])
    stored["commits"]["counts"].pop()
    found = Measurements.stored({MEASURED_FIELD: json.dumps(stored | {"of a later version": 1})})
    assert found.commits == Histogram.of(metric_definitions.COMMIT_DURATION.buckets)
    assert found.deadletters == {"late": 1}
    assert sum(found.latencies.counts) == 1
