"""A population plays in order of event time, with the levels and the truth that it says."""

import dataclasses
import math
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators import Metric, define
from estimators.metrics.categories import Vocabulary
from producers import Reporter
from producers.populations.level_distribution import LevelDistribution
from producers.populations.population import Population
from producers.populations.produce import Replay, ReplayProgress, produce
from producers.populations.truth import RunningTruth
from tests.support.clocks import Clock
from tests.support.rows import row
from tests.support.running.broker import CARRIER, DELAY, LATE, PLACE, WORDS, Broker, count

MIX = LevelDistribution.parse("1:0.5,4:0.5")


class Time(Clock):
    """Seconds that pass only while someone sleeps."""

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


class Recorder:
    """Stands for a reporter; notes what was reported, and when."""

    def __init__(self, metric: Metric, time: Time) -> None:
        self.metric, self._time = metric, time
        self.calls: list[tuple[float, list[float], list[float], list[int]]] = []

    def report_groups(self, value: Any, epsilon: Any, time: Any, groups: Any) -> None:
        [(rows, attributes)] = groups
        assert rows.tolist() == [*range(len(value))]
        assert attributes == {}
        self.calls.append(
            (self._time.now, value.tolist(), epsilon.tolist(), time.astype(np.int64).tolist())
        )


def population(times: list[int]) -> Population:
    return Population(np.array(times, dtype=np.int64), {"late": np.arange(float(len(times)))})


def play(who: Population, time: Time, **options: Any) -> tuple[Recorder, Replay]:
    recorder = Recorder(LATE, time)
    reporters = {"late": cast("Reporter", recorder)}
    return recorder, Replay(who, reporters, MIX, timer=time, sleep=time.sleep, **options)


@pytest.mark.parametrize("options", [{"speed": 100.0}, {"seconds": 90.0}])
def test_nobody_reports_before_their_time_nor_much_later(options: dict[str, float]) -> None:
    times = sorted(np.random.default_rng(1).integers(0, 9_000_000, 500).tolist())
    times[0], times[-1] = 0, 9_000_000
    time = Time(0.0)
    recorder, replay = play(population([t + 5 for t in times]), time, **options)
    replay.run()
    late = [
        now - (event - 5) / 1000 / 100 for now, _, _, events in recorder.calls for event in events
    ]
    assert len(late) == 500
    assert min(late) >= -1e-9
    assert max(late) <= 0.06
    assert time.now == pytest.approx(90, abs=0.1)


def test_what_cannot_be_played_is_refused_before_anything_is_sent() -> None:
    for options in ({"speed": 1.0, "seconds": 1.0}, {"speed": 0.0}, {"seconds": float("inf")}):
        with row(options), pytest.raises(ValueError, match="expected"):
            play(population([1]), Time(0.0), **options)
    delay, low = cast("Reporter", Recorder(DELAY, Time(0.0))), LevelDistribution.parse("0.1:1")
    with pytest.raises(ValueError, match="the mix cannot be used"):
        Replay(Population(np.array([1]), {"delay": np.ones(1)}), {"delay": delay}, low)
    _, replay = play(population([]), Time(0.0), seconds=5.0)
    assert replay.run() == ReplayProgress(0, 0, 0)


def test_producing_sends_what_everybody_has_and_says_what_it_is(broker: Broker, topic: str) -> None:
    generator = np.random.default_rng(2)
    delay = generator.uniform(-100, 200, 5000)
    delay[generator.random(5000) < 0.1] = np.nan
    carrier = generator.integers(-1, 9, 5000)
    keys: dict[str, Any] = {"kind": "frequency", "mechanism": "grr", "levels": [1, 4]}
    stars = define(name="stars", categories=["1", "2", "3"], **keys)
    columns = {"delay": delay, "carrier": carrier, "stars": np.full(5000, 2)}
    who = Population(np.arange(5000) * 100 + 1, columns)
    metrics: dict[str, Metric] = {"delay": DELAY, "carrier": CARRIER, "stars": stars}
    done = produce(metrics, who, broker.config, MIX, topic=topic)
    batches = broker.batches(topic)
    for metric in (DELAY, CARRIER):
        own = [batch for batch in batches if batch.metric == metric.name]
        assert metric.counts(count(metric, own)).tolist() == done.truth[metric.name].levels.tolist()
    assert done.truth["delay"].value == pytest.approx(
        np.clip(delay[~np.isnan(delay)], -60, 180).mean()
    )
    assert np.array_equal(done.truth["stars"].value, [0, 0, 1])
    assert done.reports == sum(who.has_value(name).sum() for name in columns)
    assert (done.devices, done.batches) == (5000, len(batches))


def test_a_mix_that_is_none_is_explained() -> None:
    for text, said in (
        ("1", "'1' in the mix '1': expected epsilon:share pairs"),
        ("1:0.5,2:0.4", "add up to 0.9"),
        ("0:1", "epsilon 0.0: expected a finite number above 0"),
        ("1:0.5,1:0.5", "expected each epsilon once"),
        ("0.1:1", r"the mix cannot be used: epsilon = 0.1: metric 'late'"),
    ):
        with row(text), pytest.raises(ValueError, match=said):
            LevelDistribution.parse(text).check(LATE)
    even = LevelDistribution.even(LATE)
    even.check(LATE)
    assert even == LevelDistribution((0.5, 1.0, 2.0, 4.0), (0.25,) * 4)


CHUNKS = st.lists(
    st.lists(
        st.tuples(st.floats(-200, 400, allow_subnormal=False), st.integers(0, 2)), max_size=20
    ),
    max_size=10,
)


@given(CHUNKS)
def test_the_mean_is_that_of_the_clipped_values(chunks: list[list[tuple[float, int]]]) -> None:
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
    vectors = RunningTruth(PLACE)
    vectors.add(np.array([[3.0, 4.0], [30.0, 40.0], [0.0, -1.0]]), np.array([0, 1, 1]))
    assert np.allclose(vectors.now().value, [2, 7 / 3]), "the second is shortened to the radius"


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
