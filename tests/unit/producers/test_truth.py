"""The truth beside the estimate is exact."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.metrics.categories import Vocabulary
from producers.populations.truth import RunningTruth
from tests.support.running.broker import CARRIER, DELAY, PLACE, WORDS

CHUNKS = st.lists(
    st.lists(
        st.tuples(st.floats(-200, 400, allow_subnormal=False), st.integers(0, 2)), max_size=20
    ),
    max_size=10,
)


@given(CHUNKS)
@settings(deadline=None)
def test_the_mean_is_that_of_the_clipped_values_however_they_are_chunked(
    chunks: list[list[tuple[float, int]]],
) -> None:
    truth = RunningTruth(DELAY)
    for chunk in chunks:
        values, level = np.array([v for v, _ in chunk]), np.array([i for _, i in chunk], dtype=int)
        truth.add(values, level)
    flat = [pair for chunk in chunks for pair in chunk]
    now = truth.now()
    assert now.reports == len(flat)
    assert now.levels.tolist() == [sum(i == level for _, i in flat) for level in range(3)]
    assert isinstance(now.value, float)
    if not flat:
        assert math.isnan(now.value)
        return
    exact = sum((Fraction(min(max(v, -60.0), 180.0)) for v, _ in flat), Fraction()) / len(flat)
    assert math.isclose(now.value, float(exact), rel_tol=2**-51, abs_tol=1e-27)


def test_frequencies_are_counts_over_reports() -> None:
    truth = RunningTruth(CARRIER)
    before = truth.now()
    truth.add(np.array([0, 0, 1]), np.array([0, 1, 1]))
    truth.add(np.array([8]), np.array([1]))
    now = truth.now()
    assert np.asarray(now.value).tolist() == [0.5, 0.25, 0, 0, 0, 0, 0, 0, 0.25]
    assert (now.reports, now.levels.tolist()) == (4, [1, 3])
    assert before.levels.tolist() == [0, 0], "what was handed out does not change"


def test_strings_are_counted_for_those_on_watch_or_else_for_the_most_frequent() -> None:
    values = np.array(["snow", "rain", "rain", "sun", "snow", "rain", "rain", "hail"], dtype=object)
    unwatched = dataclasses.replace(WORDS, domain=Vocabulary(categories="open"))
    watched, open_ended = RunningTruth(WORDS), RunningTruth(unwatched)
    for truth in (watched, open_ended):
        assert np.isnan(truth.now().value).all()
        for part in np.split(values, 2):
            truth.add(part, np.zeros(4, dtype=int))
    now = watched.now()
    assert now.labels == ("sun", "snow")
    assert np.asarray(now.value).tolist() == [1 / 8, 2 / 8]
    assert open_ended.now().labels == ("rain", "snow", "sun", "hail")
    assert np.asarray(open_ended.now().value).tolist() == [4 / 8, 2 / 8, 1 / 8, 1 / 8]


def test_the_mean_of_vectors_is_that_of_the_shortened_ones() -> None:
    truth = RunningTruth(PLACE)
    assert np.isnan(truth.now().value).all()
    truth.add(np.array([[3.0, 4.0], [30.0, 40.0]]), np.array([0, 1]))
    truth.add(np.array([[0.0, -1.0], [1e308, 1e308]]), np.array([0, 1]))
    now = truth.now()
    assert now.labels == ("0", "1")
    diagonal = 5 / math.sqrt(2)
    assert np.allclose(now.value, [(6 + diagonal) / 4, (7 + diagonal) / 4], rtol=1e-15)
