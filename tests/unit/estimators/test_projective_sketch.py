"""Projective geometry response, and projective sketches of strings."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from estimators import LocalMetric, ReportError, define
from estimators.bounds.sketches import max_collision_share, min_collision_share
from estimators.exact.finite_fields import prime_power
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import ProjectiveGeometryResponse, ProjectiveSketch
from estimators.mechanisms.projective_geometry_response import LARGEST_SHARE, best_geometry
from estimators.metrics.categories import string_key
from estimators.question import Question
from tests.support.reports.cases import MANY_LEVELS, exact, metric_for
from tests.support.rows import row

EPSILONS = [exact(epsilon) for epsilon in MANY_LEVELS]


def test_every_category_has_a_hyperplane_and_the_statistic_stays_linear() -> None:
    """It is randomized response where the largest ratio asks for single points."""
    for categories in (2, 3, 4, 7, 10, 100, 1000, 65536, 10**6):
        for epsilon in EPSILONS:
            with row(categories, epsilon):
                geometry = best_geometry(epsilon, categories)
                assert categories <= geometry.points <= LARGEST_SHARE * categories
                assert geometry.coordinates == 2 or prime_power(geometry.order)
                if epsilon >= 45:
                    assert (geometry.points, geometry.size, geometry.shared) == (categories, 1, 0)


@pytest.mark.parametrize("categories", [2, 10, 57])
def test_the_support_is_counted_over_each_hyperplane(categories: int) -> None:
    mechanism = ProjectiveGeometryResponse(EPSILONS, categories=categories)
    rng = np.random.default_rng(categories)
    table = np.zeros((len(EPSILONS), mechanism.columns), dtype=np.int64)
    for level, geometry in enumerate(mechanism.geometries[:-1]):
        counts = rng.integers(0, 1000, geometry.points)
        table[level, 1 : 1 + geometry.points] = counts
        table[level, 0] = counts.sum()
    support = mechanism.support(table)
    for level, geometry in enumerate(mechanism.geometries):
        for category in range(categories):
            plane = (geometry.members + category) % geometry.points
            assert support[level, category] == table[level, 1 + plane].sum()


def test_a_number_that_is_no_point_of_the_level_is_refused() -> None:
    randomizer = metric_for("projective_geometry_response", [0.0001, 4.0]).randomizer
    randomizer.check(b"\x00", b"\x0e")
    with pytest.raises(ReportError, match="report 10: expected 0 to 9 at its level"):
        randomizer.check(b"\x00\x01", b"\x0e\x0a")


def sketch(epsilons: Any = (1,), **options: int) -> ProjectiveSketch:
    return ProjectiveSketch([exact(e) for e in epsilons], categories=None, **options)


def strings(levels: Any = (1,), **keys: Any) -> LocalMetric:
    metric = define(name="m", kind="frequency", categories="open", levels=levels, **keys)
    return LocalMetric.require(metric)


def test_the_chances_of_a_report_on_a_hyperplane_are_those_that_are_certified() -> None:
    """Of the own one, and of another string's that shares points with it."""
    mechanism = sketch(MANY_LEVELS, rows=64, points=64)
    for level, rows in enumerate(mechanism.hashed_rows):
        space, ratio = rows.geometry.space, mechanism.privacy_ratio(level)
        off = 1 / (space.size * ratio + space.points - space.size)
        with row(level):
            assert rows.geometry.p == space.size * ratio * off
            shared = space.shared * ratio + space.size - space.shared
            assert rows.geometry.q == shared * off


def test_support_is_the_number_of_reports_that_support_a_string() -> None:
    metric = strings([0.5, 2, 5], options={"rows": 40, "points": 100})
    mechanism = metric.randomizer
    assert isinstance(mechanism, ProjectiveSketch)
    level = np.arange(6000) % 3
    reports = metric.randomize(["a", "b"] * 3000, level, SeededBits(3))
    statistic = metric.zero()
    metric.accumulate(statistic, level, reports)
    keys = np.array([string_key(text) for text in "abc"], dtype=np.uint64)
    found = mechanism.support(metric.table(statistic), keys)
    for index, key in itertools.product(range(3), range(3)):
        named = mechanism.supports(reports[level == index], index, int(keys[key]))
        assert found[index, key] == named.sum()


# -- Collisions -----------------------------------------------------------------------------------


def test_the_collisions_of_one_other_string_are_rarely_beyond_their_bounds() -> None:
    """One other string is the worst case: its exact law is binomial."""
    tilts = np.linspace(0.001, 20, 20_000)
    for (rows, points), p in itertools.product(
        [(1024, 364), (264, 1407), (4659, 80), (2, 64)], [0.1, 0.0125, 1e-7]
    ):
        with row(rows, points, p):
            most = max_collision_share(rows, points, math.log(p))
            least = min_collision_share(rows, points, math.log(p))
            assert binom.sf(math.floor(rows * most), rows, 1 / points) <= p
            assert binom.cdf(math.ceil(rows * least) - 1, rows, 1 / points) <= p
            assert 0 <= least < 1 / points < most
            cumulant = rows * np.log1p(np.expm1(tilts) / points)
            sharpest = min(1, ((cumulant - math.log(p)) / (rows * tilts)).min())
            assert sharpest * (1 - 1e-6) <= most <= sharpest * (1 + 1e-3)


def test_bounds_for_all_times_divide_beta_alike_before_and_after_a_level_comes() -> None:
    """At epsilon 4 collisions are certain, and pay from the upper limit's part as well."""
    mechanism, question = sketch([0.5, 4]), Question(bound="anytime")
    tables = [(rows.rows, rows.geometry.points) for rows in mechanism.hashed_rows]
    assert [min_collision_share(*table, -5.0) > 0 for table in tables] == [False, True]
    uppers = [
        mechanism.estimate_support(
            np.array([10**6, come]), np.array([[4 * 10**5], [0]]), question
        ).upper
        for come in (0, 1)
    ]
    assert uppers[0] == pytest.approx(uppers[1], abs=2e-4)
    few_rows, n = sketch([12], rows=16, points=64), np.array([10**6])  # all may have one point
    assert few_rows.estimate_support(n, n[:, None], Question(beta=1e-9)).lower == 0


# -- Levels that differ ---------------------------------------------------------------------------


def answer(f: tuple[float, float], crowded: tuple[int, int]) -> float:
    """Return the p-value of a string of frequency f at each level, beside a heavy other one."""
    mechanism, n = sketch([1, 4]), 10**8
    support = []
    for rows, own, collisions in zip(mechanism.hashed_rows, f, crowded, strict=True):
        p, q = float(rows.geometry.p), float(rows.geometry.q)
        share = own + (1 - own) * collisions / rows.rows
        support.append([round(n * (q + (p - q) * share))])
    found = mechanism.estimate_support(np.array([n, n]), np.array(support), Question())
    assert found.heterogeneity is not None
    return found.heterogeneity


def test_collisions_that_differ_between_levels_are_no_evidence() -> None:
    """As many collisions as one level can have, and none at the other: an excess of sqrt(n)."""
    assert answer((0.05, 0.05), (0, 0)) > 0.9
    assert answer((0.05, 0.05), (12, 30)) > 0.9
    assert answer((0.05, 0.05), (0, 90)) > 0.9
    assert answer((0.05, 0.08), (0, 0)) < 1e-6
