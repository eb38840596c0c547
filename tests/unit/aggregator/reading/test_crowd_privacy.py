"""What an answer says of the privacy of a crowd, and what it rests on."""

import dataclasses
import json
from typing import Any

import msgspec
import numpy as np

from aggregator.features.reader import Reader
from aggregator.publishing import events
from aggregator.reading import serialization
from aggregator.reading.frames.estimates import with_window
from aggregator.reading.window import Window, WindowStatistic
from aggregator.terminal.estimate_text import EstimateView, as_text
from estimators import LocalMetric
from estimators.metrics import crowd_epsilon
from estimators.shuffling.amplification import is_private
from tests.support.metrics import mean_metric
from tests.support.rows import row


def hidden(level: float = 3, minimum: int = 10_000, **crowd: Any) -> LocalMetric:
    table = {"minimum": minimum, "wait": "12h", **crowd}
    return mean_metric("hidden", "randomized_response", (0, 1), [level], lateness="1d", crowd=table)


def seen(metric: LocalMetric) -> Window:
    statistic = WindowStatistic(np.array([6_000, 4_000]))
    return Window(metric=metric, status="final", content=statistic, start_ms=0, end_ms=60_000)


def test_every_form_of_an_answer_states_both_promises() -> None:
    window = seen(hidden())
    answer = Reader.answer(window)
    figures = {"delta": 1e-8, "crowd": 8999, "minimum": 10_000, "dishonest": 0.1}
    expected = {"local": 3.0, "central": {"epsilon": 0.232, **figures}}
    crowd_epsilon._epsilon.cache_clear()
    assert serialization.as_dict(serialization.answer(window, answer))["privacy"] == expected
    provisional = dataclasses.replace(window, arrived_ms=1)
    for event in (
        events.final_event(window, answer, 4, "/"),
        events.provisional_event(provisional, answer, 4, "/"),
    ):
        assert json.loads(event.data)["privacy"] == expected
    assert crowd_epsilon._epsilon.cache_info().misses == 1, "it takes a second"
    assert msgspec.to_builtins(with_window(window, answer).crowd_privacy) == expected
    text = as_text(EstimateView(window, answer, 4))
    assert "epsilon 3 whoever colludes; among 8,999 others whom a relay shuffled" in text
    assert "0.232 with delta 1e-08, in one pane: times the panes for one person" in text
    alone = seen(dataclasses.replace(hidden(), crowd=None))
    assert "privacy" not in serialization.as_dict(serialization.answer(alone, Reader.answer(alone)))
    assert with_window(alone, Reader.answer(alone)).crowd_privacy is None
    assert "relay" not in as_text(EstimateView(alone, Reader.answer(alone), 4))


def test_the_central_epsilon_is_proved_for_the_honest_reports_of_the_smallest_crowd() -> None:
    """Mutants: the minimum in place of the honest reports; another delta."""
    metric = hidden(1.5, 2_000, delta=1e-6, dishonest=0.5)
    laws, epsilon = metric.randomizer.set_laws(0), crowd_epsilon.crowd_epsilon(metric)
    assert epsilon is not None
    assert is_private(laws, 1_000, epsilon, 1e-6)
    assert not is_private(laws, 1_000, 0.99 * epsilon, 1e-6)


def test_where_a_crowd_adds_nothing_the_answer_says_so() -> None:
    window = seen(hidden(level=12, minimum=100))
    answer = Reader.answer(window)
    assert serialization.answer(window, answer).privacy == serialization.Privacy(12.0, None)
    assert "nothing smaller is proved for its crowd" in as_text(EstimateView(window, answer, 4))
    for level, minimum, told in (
        (12, 100, ["a crowd of 100 proves no epsilon below 12, which", "expected a lower level ("]),
        (3, 100, ["a crowd of 100 proves no epsilon below 3,", "minimum = 400, or a lower level"]),
        (3, 400, []),
    ):
        with row(level, minimum):
            warnings = crowd_epsilon.crowd_warnings([hidden(level, minimum)])
            assert len(warnings) == bool(told)
            assert all(part in warnings[0] for part in told)
