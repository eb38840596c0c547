"""Every mechanism with a law for each number is watched; the others are refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from estimators import LocalMetric, Metric, define
from estimators.alarms import Detector, check_watchable
from estimators.exact.randomness import SeededBits
from tests.support.reports.cases import CASES, CATEGORIES, metric_for
from tests.support.rows import row

if TYPE_CHECKING:
    from estimators.estimate import Counts

REFUSED = {
    "count_sketch",
    "projective_sketch",
    "caps",
    "lifted_caps",
    "hemisphere",
    "dyadic_hadamard",
    "prefix_tree",
}
WATCHED = [case for case in CASES if case not in REFUSED]
LEVELS = (0.5, 2.0)
REPORTS = 6_000


def panes(metric: LocalMetric, share: float, number: int, seed: int, reports: int) -> list[Counts]:
    """Draw panes where so many hold the first category, or the largest value."""
    rng, bits, found = np.random.default_rng(seed), SeededBits(seed), []
    for _ in range(number):
        held, level = rng.random(reports) < share, rng.integers(0, len(LEVELS), reports)
        values = np.where(held, 0, 1 + rng.integers(0, CATEGORIES - 1, reports))
        statistic = metric.zero()
        drawn = metric.randomize(
            np.where(held, 1.0, -1.0) if metric.kind == "mean" else values,
            level.astype(np.uint8),
            bits,
        )
        metric.accumulate(statistic, level.astype(np.uint8), drawn)
        found.append(statistic)
    return found


def test_a_move_of_every_mechanism_is_seen_and_nothing_before() -> None:
    for case in WATCHED:
        metric = metric_for(case, LEVELS)
        category = 0 if metric.labels else None
        known = panes(metric, 0.1, 1, 1, 5 * REPORTS)[0]
        detector = Detector(metric, 1e-3, baseline=known, category=category)
        value = -0.8 if metric.kind == "mean" else 0.1
        stated = Detector(metric, 1e-3, baseline_value=value, category=category)
        still, moved = (panes(metric, *x, REPORTS) for x in ((0.1, 8, 2), (0.4, 6, 3)))
        with row(case):
            assert detector.baseline_estimate[0] == pytest.approx(value, abs=0.1)
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
