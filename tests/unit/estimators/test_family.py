"""Each way of collecting has a class of its own, with what it can do and nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from estimators import DefinitionError, LocalMetric, Metric, SearchMetric, TrustedMetric, define
from estimators.metrics.domains import Ball, Interval
from estimators.metrics.loading import definition_of
from estimators.shapes import Shape

LATE = define(name="late", kind="mean", mechanism="laplace", range=(0, 9), levels=[1])
PAY = define(name="pay", kind="mean", trust="central", range=(0, 9), levels=[1])
AGE = define(name="age", kind="maximum", range=(0, 128), levels=[1], rounds=7)
CARRIER = define(name="c", kind="frequency", mechanism="grr", categories=3, levels=[1])
PLACE = define(
    name="v", kind="vector_mean", mechanism="hemisphere", dimension=2, radius=5, levels=[1]
)
EVERY = [LATE, PAY, AGE, CARRIER, PLACE]
every_metric = pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)


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
        Metric(name="m", kind="mean", domain=Interval(range=(0, 1)), levels=[1])  # type: ignore[abstract]


def test_the_shape_of_an_answer_follows_from_the_kind() -> None:
    shapes = [metric.shape for metric in EVERY]
    assert shapes[:3] == [Shape.NUMBER, Shape.NUMBER, Shape.SEARCH]
    assert shapes[3:] == [Shape.NAMED_NUMBERS, Shape.NAMED_NUMBERS]


def test_shapes_have_the_names_that_answers_show() -> None:
    assert [shape.value for shape in Shape] == [
        "number",
        "named numbers",
        "distribution",
        "search",
    ]


@pytest.mark.parametrize(
    ("wanted", "given", "told"),
    [
        (SearchMetric, LATE, "'late' of kind 'mean' has no rounds: expected one of kind 'minimum'"),
        (LocalMetric, AGE, "'age' is searched for in rounds.*use `search.estimate`"),
        (LocalMetric, PAY, "'pay' is collected in trust.*use `release`"),
        (TrustedMetric, LATE, "'late' is randomized on the device.*use `estimate`"),
    ],
)
def test_a_metric_of_another_class_is_refused_with_what_can_be_done(
    wanted: type[Metric], given: Metric, told: str
) -> None:
    assert type(given).require(given) is given
    with pytest.raises(ValueError, match=told):
        wanted.require(given)


@every_metric
def test_a_metric_can_be_replaced_and_read_again_from_its_definition(metric: Metric) -> None:
    renamed = dataclasses.replace(metric, name="other", pane="2h")
    assert (renamed.name, renamed.domain.metric, renamed.pane_ms) == ("other", "other", 7_200_000)
    assert renamed.revision != metric.revision
    assert dataclasses.replace(renamed, name=metric.name, pane="1m") == metric
    again = define(**{"name": metric.name, **definition_of(metric)})
    assert (type(again), again.canonical) == (type(metric), metric.canonical)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rounds": 3}, "late.rounds = 3: expected no rounds for kind 'mean' where trust is local"),
        ({"radius": 3.0}, "late.radius = 3.0: expected no radius for kind 'mean'"),
        ({"trust": "central"}, "late.mechanism = 'laplace': expected none where trust is central"),
        ({"kind": "maximum"}, "late.rounds is missing: expected the number of rounds"),
        ({"kind": "maximum", "rounds": 2}, "late.mechanism = 'laplace': expected none, or 'rand"),
        ({"domain": 3}, "late.domain = 3: expected a known key: "),
    ],
)
def test_a_key_of_another_class_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        define(**{"name": "late", **definition_of(LATE), **changes})
    assert str(refused.value).startswith(told)


def test_what_another_class_has_by_default_is_no_mistake() -> None:
    same = define(**{"name": "late", **definition_of(LATE), "split": "users", "rounds": None})
    assert same == LATE


def test_a_class_refuses_the_kinds_and_domains_of_others() -> None:
    for kind, domain in (("maximum", LATE.domain), ("mean", Ball(dimension=2, radius=1))):
        with pytest.raises(DefinitionError, match=r"late\.kind = .* expected a kind that can be"):
            dataclasses.replace(LATE, kind=kind, domain=domain)


def test_the_keys_of_a_kind_are_read_from_the_metric() -> None:
    place = define(
        name="place",
        kind="vector_mean",
        mechanism="hemisphere",
        coordinates=["x", "y"],
        radius=2,
        levels=[1],
    )
    assert (place.coordinates, place.dimension, place.radius) == (["x", "y"], 2, 2)
    page = define(
        name="page",
        kind="frequency",
        mechanism="count_sketch",
        categories="open",
        watch=["/"],
        levels=[1],
    )
    assert (page.categories, page.watch, page.category_names) == ("open", ["/"], ("/",))
    assert (page.range, page.coordinates, place.watch) == (None, None, None)
