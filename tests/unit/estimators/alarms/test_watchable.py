"""What is watched: a law of each number, or the share below an edge of a distribution."""

from typing import Any

import numpy as np
import pytest

from estimators import LocalMetric, Metric, define
from estimators.alarms import Detector, check_watchable
from estimators.alarms.evidence import PaneMean
from estimators.estimate import Counts, Floats
from tests.support.reports.cases import CASES, CATEGORIES, metric_for, summed
from tests.support.rows import row

REFUSED = {"count_sketch", "projective_sketch", "caps", "lifted_caps", "hemisphere", "prefix_tree"}
WATCHED = [case for case in CASES if case not in REFUSED]
LEVELS = (0.5, 2.0)
REPORTS = 6_000


def panes(metric: LocalMetric, share: float, number: int, seed: int, reports: int) -> list[Counts]:
    """Draw panes where so many hold the first category, or the largest value."""
    rng, found = np.random.default_rng(seed), []
    for place in range(number):
        held, level = rng.random(reports) < share, rng.integers(0, len(LEVELS), reports)
        values = np.where(held, 0, 1 + rng.integers(0, CATEGORIES - 1, reports))
        if metric.kind == "mean":
            values = np.where(held, 1.0, -1.0)
        elif metric.kind == "distribution":
            values = (values + 0.5) / CATEGORIES
        found.append(summed(metric, values, level, 1000 * seed + place))
    return found


def test_a_move_of_every_mechanism_is_seen_and_nothing_before() -> None:
    for case in WATCHED:
        metric = metric_for(case, LEVELS)
        category = {"mean": None, "frequency": 0, "distribution": 1}[metric.kind]
        known = panes(metric, 0.1, 1, 1, 5 * REPORTS)[0]
        detector = Detector(metric, 1e-3, baseline=known, category=category)
        value = -0.8 if metric.kind == "mean" else 0.1
        stated = Detector(metric, 1e-3, baseline_value=value, category=category)
        still, moved = (panes(metric, *x, REPORTS) for x in ((0.1, 8, 2), (0.4, 6, 3)))
        with row(case):
            assert detector.baseline_estimate == pytest.approx((value, 5 * REPORTS), abs=0.1)
            for one in (detector, stated):
                assert not any(one.update(each).raised for each in still)
                steps = [one.update(each) for each in moved]
                assert any(step.raised and step.direction == "up" for step in steps)


def test_what_cannot_be_watched_is_refused_by_name() -> None:
    keys: dict[str, Any] = {"name": "m", "range": (0, 1), "levels": [1]}
    refused: list[tuple[Metric, str]] = [
        (metric_for("count_sketch"), "count_sketch"),
        (metric_for("prefix_tree"), "prefix_tree"),
        (metric_for("projective_sketch"), "projective_sketch"),
        (metric_for("hemisphere"), "vector_mean"),
        (metric_for("lifted_caps"), "vector_mean"),
        (metric_for("projection", options={"rows": 64}), "projection"),
        (metric_for("randomized_response", memoized=True), "memoized"),
        (define(kind="mean", trust="central", **keys), "central"),
        (define(kind="maximum", rounds=4, **keys), "maximum"),
    ]
    for metric, told in refused:
        with row(told), pytest.raises(ValueError, match=told):
            check_watchable(metric)


MIX = [1.0, 4.0]
EDGE = 5
"""The place of the edge that is watched; the edges are 0 to 8."""
WAIT = LocalMetric.require(
    define(name="wait", kind="distribution", range=(0, 8), bins=8, levels=MIX)
)
WINDOWS = metric_for("windows", MIX)
PEOPLE: dict[str, tuple[LocalMetric, int | None, tuple[float, float]]] = {
    "beside the edge": (WAIT, EDGE, (4.5, 5.5)),
    "at both ends": (WAIT, EDGE, (0.5, 7.5)),
    "below, and in the other half": (WAIT, EDGE, (4.5, 0.5)),
    "signs": (WINDOWS, None, (1.0, -1.0)),
    "near each other": (WINDOWS, None, (0.2, 0.4)),
    "all at an end": (WINDOWS, None, (1.0, 1.0)),
}


@pytest.mark.parametrize("name", PEOPLE)
def test_e_values_have_a_mean_of_one_at_most(name: str) -> None:
    """Within 4 standard errors of 400 panes, for tilts of half, one and three standard errors.

    A pane has 60 users, of whom 30% have the first of two values.
    """
    metric, edge, values = PEOPLE[name]
    holds = np.array(values if edge is None else [2.0 * (value < edge) - 1 for value in values])
    theta, shares = np.array([0.3, 0.7]) @ holds[:, None], np.array([0.3, 0.7])
    draws, found = np.random.default_rng(1), [list[Floats](), list[Floats]()]
    for number in range(400):
        held = np.where(draws.random(60) < 0.3, *values)
        statistic = summed(metric, held, np.arange(60) % len(MIX), 1000 + number)
        pane = PaneMean.of(metric, statistic, shares, edge)
        assert pane is not None
        tilts = np.array([0.5, 1.0, 3.0]) * pane.variance(0.0) ** -0.5
        for side, sign in enumerate((1, -1)):
            found[side].append(np.exp(pane.e_values(theta, tilts, sign).log[0]))
    for logs in found:
        mean, error = np.mean(logs, axis=0), np.std(logs, axis=0) / len(logs) ** 0.5
        assert (mean <= 1 + 4 * error).all()


def test_what_is_no_edge_between_bins_is_refused() -> None:
    for category in (None, 0, 8):
        with row(category), pytest.raises(ValueError, match=f"category = {category}"):
            Detector(WAIT, 1e-3, baseline_value=0.5, category=category)
