"""Each way of collecting has a class of its own, with what it can do and nothing else."""

import dataclasses

import pytest

from estimators import LocalMetric, Metric, SearchMetric, TrustedMetric, define
from estimators.metrics.domains import ValueRange
from estimators.metrics.loading import definition_of
from tests.support.rows import row

LATE = define(name="late", kind="mean", mechanism="laplace", range=(0, 9), levels=[1])
PAY = define(name="pay", kind="mean", trust="central", range=(0, 9), levels=[1])
AGE = define(name="age", kind="maximum", range=(0, 128), levels=[1], rounds=7)
CARRIER = define(name="c", kind="frequency", mechanism="grr", categories=3, levels=[1])
PLACE = define(
    name="v", kind="vector_mean", mechanism="hemisphere", dimension=2, radius=5, levels=[1]
)
EVERY = [LATE, PAY, AGE, CARRIER, PLACE]


def test_a_class_can_do_what_its_way_of_collecting_can() -> None:
    abilities = {
        LocalMetric: {"randomize", "estimate", "manipulation_bound", "memoized"},
        TrustedMetric: {"randomize", "release"},
        SearchMetric: {"search", "rounds", "split", "beta", "critical", "round_ms"},
    }
    every = set().union(*abilities.values())
    for metric in (LATE, PAY, AGE):
        assert {name for name in every if hasattr(metric, name)} == abilities[type(metric)]
    assert [metric.sends_true_values for metric in EVERY] == [False, True, False, False, False]
    with pytest.raises(TypeError, match="abstract"):
        Metric(name="m", kind="mean", domain=ValueRange(range=(0, 1)), levels=[1])  # type: ignore[abstract]


def test_a_metric_of_another_class_is_refused_with_what_can_be_done() -> None:
    refused: list[tuple[type[Metric], Metric, str]] = [
        (SearchMetric, LATE, "'late' of kind 'mean' has no rounds: expected one of kind 'minimum'"),
        (LocalMetric, AGE, "'age' is searched for in rounds.*use `search.estimate`"),
        (LocalMetric, PAY, "'pay' is collected in trust.*use `release`"),
        (TrustedMetric, LATE, "'late' is randomized on the device.*use `estimate`"),
    ]
    for wanted, given, told in refused:
        assert type(given).require(given) is given
        with row(wanted, given.name), pytest.raises(ValueError, match=told):
            wanted.require(given)


def test_a_metric_can_be_replaced_and_read_again_from_its_definition() -> None:
    for metric in EVERY:
        renamed = dataclasses.replace(metric, name="other", pane="2h")
        told = (renamed.name, renamed.domain.metric, renamed.pane_ms)
        again = define(**{"name": metric.name, **definition_of(metric)})
        with row(metric.name):
            assert told == ("other", "other", 7_200_000)
            assert renamed.revision != metric.revision
            assert dataclasses.replace(renamed, name=metric.name, pane="1m") == metric
            assert (type(again), again.canonical) == (type(metric), metric.canonical)
