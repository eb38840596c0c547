"""Comparisons against exact probabilities, their symmetry, their width, and what they refuse."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from estimators import Comparison, compare, define
from estimators.bounds import Law
from estimators.comparison.arms import Arm
from estimators.comparison.joint import anytime, fixed_difference, fixed_ratio
from estimators.estimate import Floats
from tests.support.reports.cases import summed
from tests.support.reports.populations import Population
from tests.support.rows import row

MEAN: dict[str, Any] = {"mechanism": "randomized_response", "range": (0, 1), "levels": [1]}
EVEN, UNEVEN = (400,) * 5, (900, 500, 300, 200, 100)


def drawn(population: Population, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return population.statistic(population.held(rng), rng)


def outcomes(law: Law) -> tuple[Floats, Any]:
    """Return all values of the sum, and a function from a mean to their probabilities."""
    sums, ones = np.zeros(1), [np.arange(int(n) + 1) for n in law.counts]
    for n, s, one in zip(law.counts, law.coefficient, ones, strict=True):
        sums = (sums[:, None] + s * (2 * one - n)).ravel()

    def chances(theta: float) -> Floats:
        found = np.ones(1)
        for n, a, one in zip(law.counts.astype(int), law.contrast, ones, strict=True):
            found = (found[:, None] * binom.pmf(one, n, (1 + a * theta) / 2)).ravel()
        return found

    return sums, chances


ONE = Law(np.array([24.0]), np.array([1 / 24 / 0.6]), np.array([0.6]))
FEW = Law(np.array([12.0]), np.array([1 / 12 / 0.8]), np.array([0.8]))
FAINT = Law(np.array([14.0]), np.array([1 / 14 / 0.6]), np.array([0.6]))
FOUR = Law(np.array([4.0]), np.array([1 / 4 / 0.8]), np.array([0.8]))
LARGE = Law(np.array([30.0]), np.array([1 / 30 / 0.9]), np.array([0.9]))
TWO = Law(np.array([4.0, 7.0]), np.array([0.3, 0.9]) / (4 * 0.09 + 7 * 0.81), np.array([0.3, 0.9]))


def chances_to_miss(a: Law, b: Law, beta: float, origin: float | None) -> Iterator[Any]:
    """Yield the chances to miss a difference, or a ratio, below and above for pairs of means.

    By summing over all outcomes of both arms; the pairs are all over the domain.
    """
    (of_a, chance_a), (of_b, chance_b) = outcomes(a), outcomes(b)
    arms = Arm(np.repeat(of_a, of_b.size), a), Arm(np.tile(of_b, of_a.size), b)
    found = fixed_ratio(*arms, beta, origin) if origin else fixed_difference(*arms, beta)
    null = 1.0 if origin else 0.0
    outside = (found.lower > null) | (found.upper < null)
    assert not origin or np.array_equal(found.p_value <= beta, outside)
    for theta_a in (-1.0, -0.8, -0.3, 0.0, 0.5, 0.95, 1.0):
        for theta_b in (-0.97, -0.2, 0.0, 0.4, 0.9, 1.0):
            chances = np.outer(chance_a(theta_a), chance_b(theta_b)).ravel()
            truth = theta_a - theta_b
            if origin:
                truth = (origin + theta_a) / (origin + theta_b)
            for alpha in (0.01, beta / 4, beta, 0.5) if truth == null and not origin else ():
                assert chances[found.p_value <= alpha].sum() <= alpha
            yield chances[found.lower > truth].sum(), chances[found.upper < truth].sum()


def test_the_exact_chance_to_miss_is_at_most_beta_and_not_by_far() -> None:
    for a, b, beta, origin in (
        (ONE, ONE, 0.05, None),
        (ONE, LARGE, 0.3, None),
        (TWO, LARGE, 0.05, None),
        (FEW, FAINT, 0.2, 1.0),
        (TWO, FOUR, 0.2, 1.5),
    ):
        with row(a, b, beta, origin):
            missed = np.array(list(chances_to_miss(a, b, beta, origin)))
            assert np.all(missed <= 0.5 * beta)
            assert missed.sum(axis=1).max() > (0.1 if origin else 0.15) * beta


PAIRS = [
    *[(name, 0.4, 0.25) for name in ("randomized_response", "auto", "repetition")],
    *[
        (name, (0.3, 0.5, 0.2), (0.38, 0.45, 0.17))
        for name in ("rappor", "grr", "hadamard_response")
    ],
]
"""Their differences are about as large as bounds are wide: p-values are near beta."""
QUESTIONS: list[dict[str, Any]] = [
    {},
    {"weights": "uniform"},
    {"target": "sample"},
    {"independent": False},
    {"pointwise": True, "beta": 0.2},
]


def numbers(found: Comparison) -> list[Any]:
    return [np.asarray(x) for x in (found.value, found.lower, found.upper, found.p_value)]


@pytest.mark.parametrize(("mechanism", "theta", "other"), PAIRS)
def test_swapped_arms_mirror_the_interval_and_agree(mechanism: str, theta: Any, other: Any) -> None:
    one, two = Population(mechanism, theta, EVEN), Population(mechanism, other, UNEVEN)
    a, b = drawn(one, 1), drawn(two, 2)
    for question in QUESTIONS:
        found = compare(one.metric, a, b, **question)
        value, lower, upper, p_value = numbers(found)
        swapped = numbers(compare(one.metric, b, a, **question))
        with row(question):
            assert swapped[0] == pytest.approx(-value, abs=1e-12)
            assert swapped[1] == pytest.approx(-upper, rel=2e-2, abs=1e-3)
            assert swapped[2] == pytest.approx(-lower, rel=2e-2, abs=1e-3)
            assert swapped[3] == pytest.approx(p_value, rel=5e-2)
            assert np.all((lower <= value) & (value <= upper))
            assert np.array_equal(p_value <= found.beta, (lower > 0) | (upper < 0))
            assert np.array_equal(found.decided, p_value <= found.beta)


KNOWN: list[tuple[dict[str, Any], str, list[float]]] = [
    ({}, "joint", [0.06595, 0.04468, 0.08719, 8.164e-10]),
    ({"of": "ratio"}, "joint", [1.13623, 1.09047, 1.18392, 8.164e-10]),
    ({"weights": "uniform"}, "joint", [0.06726, 0.043, 0.0915, 9.715e-08]),
    ({"target": "sample"}, "joint", [0.06595, 0.04317, 0.08869, 1.162e-08]),
    ({"independent": False}, "union", [0.06595, 0.0317, 0.10014, 3.225e-05]),
    ({"bound": "anytime"}, "joint", [0.06595, 0.02574, 0.10609, 1.866e-06]),
    ({"bound": "anytime", "split": 0.5}, "joint", [0.06595, 0.02688, 0.10497, 1.071e-06]),
    ({"bound": "anytime", "of": "ratio"}, "joint", [1.13623, 1.05127, 1.22797, 1.866e-06]),
]


def test_known_cases_stay_as_they_are() -> None:
    metric = define(name="m", kind="mean", **{**MEAN, "levels": [1, 2]})
    a, b = np.array([5000, 2600, 5000, 2700]), np.array([20000, 9800, 1000, 520])
    for question, law, expected in KNOWN:
        found = compare(metric, a, b, **question)
        with row(question):
            assert numbers(found) == pytest.approx(expected, rel=5e-3)
            assert (found.law, found.reports) == (law, (10_000, 21_000))
            assert found.of == question.get("of", "difference")
    shares = np.array([5000, 2500, 2500])
    named = compare(frequency(categories=["x", "y"]), np.array([900, 500, 400]), shares)
    assert np.array(numbers(named)) == pytest.approx(
        np.array([[0.1202, -0.1202], [0.0293, -0.2105], [0.2105, -0.0293], [0.0055, 0.0055]]),
        rel=5e-3,
    )
    assert named.labels == ("x", "y")
    xyz, sums = frequency(categories=["x", "y", "z"]), np.array([900, 500, 400, 0])
    assert not np.any(compare(xyz, sums, sums, bound="anytime", beta=0.001).decided)


def test_an_arm_without_reports_may_be_anything() -> None:
    population = Population("randomized_response", 0.0, EVEN)
    found = compare(population.metric, drawn(population, 1), population.metric.zero())
    assert np.isnan(found.value)
    assert (found.lower, found.upper, found.p_value) == (-2.0, 2.0, 1.0)


def test_standard_shares_compare_like_with_like() -> None:
    """Values go with the level, and the arms have opposite mixes: each level is the same."""
    means, mix = np.array([-0.6, -0.3, 0.0, 0.3, 0.6]), np.array([9000, 5000, 3000, 2000, 1000])
    rng = np.random.default_rng(3)
    population = Population("randomized_response", 0.0, EVEN)

    def statistic(counts: Any) -> Any:
        ones = rng.binomial(counts, (1 + means) / 2)
        return population.statistic(np.stack([counts - ones, ones], axis=1), rng)

    a, b = statistic(mix), statistic(mix[::-1])
    misled = compare(population.metric, a, b)
    assert misled.decided
    assert "standard" in misled.warning
    found = compare(population.metric, a, b, weights="standard")
    assert not found.decided
    assert found.warning == ""
    assert found.lower < 0 < found.upper
    assert compare(population.metric, a, statistic(mix)).warning == ""


def frequency(name: str = "m", **keys: Any) -> Any:
    return define(name=name, **{"kind": "frequency", "mechanism": "grr", "levels": [1], **keys})


def test_another_metric_may_have_the_same_devices_and_other_levels() -> None:
    """Mixes of levels are compared by epsilon, not by place; a single law has the same answer."""
    one, two = frequency(categories=["x", "y"]), frequency("n", categories=["x", "y"])
    a, b = np.array([1000, 600, 400]), np.array([1000, 500, 500])
    union = compare(one, a, b, other=two)
    joint = compare(one, a, b, other=two, independent=True)
    assert (union.law, joint.law, union.labels) == ("union", "joint", ("x", "y"))
    assert np.all(union.upper - union.lower > 1.2 * (joint.upper - joint.lower))
    assert compare(one, a, b, other=two, target="sample").law == "joint"
    wide, c = frequency("n", categories=["x", "y"], levels=[1, 4]), np.append(b, [0, 0, 0])
    found = compare(one, a, c, other=wide, independent=True)
    assert np.array(numbers(found)) == pytest.approx(np.array(numbers(compare(one, a, b))))
    for bound in ("fixed", "anytime"):
        assert compare(one, a, c, other=wide, bound=bound).law == "union"
        assert compare(one, a, c, other=wide, bound=bound, independent=True).law == "joint"
    low = define(name="low", kind="mean", **{**MEAN, "levels": [1, 4]})
    high = define(name="high", kind="mean", **{**MEAN, "levels": [0.5, 1, 4]})
    a, alike = np.array([900, 800, 100, 10]), np.array([0, 0, 900, 800, 100, 10])
    assert compare(low, a, alike, other=high, independent=True).warning == ""
    found = compare(low, a, np.array([0, 0, 100, 90, 900, 100]), other=high, independent=True)
    assert "mixes of levels" in found.warning
    assert "standard" not in found.warning  # which is for the same levels


def test_repeated_answers_may_be_in_both_arms() -> None:
    metric = define(name="m", kind="mean", memoized=True, **MEAN)
    a, b = np.array([4000, 2200]), np.array([4000, 2000])
    once, twice = compare(metric, a, b), compare(metric, a, b, panes=(2, 2))
    assert once.law == twice.law == "union"
    assert twice.upper - twice.lower > 1.3 * (once.upper - once.lower)


NAMED: dict[str, Any] = {"kind": "frequency", "categories": 2, "range": None, "mechanism": "grr"}
INCOMPARABLE: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"kind": "minimum", "mechanism": None, "rounds": 5}, {}, "has no mean to compare"),
    ({"trust": "central", "mechanism": None}, {}, "releases are not compared"),
    ({"range": (-1, 1)}, {"of": "ratio"}, "expected 'difference': .* begins at -1$"),
    ({}, {"of": "product"}, "of = 'product'"),
    ({}, {"bound": "normal"}, "bound = 'normal'"),
    ({}, {"weights": "standard", "bound": "anytime"}, "expected bound = 'fixed'"),
    ({}, {"weights": "standard", "other": {"levels": [2]}}, "different levels"),
    ({}, {"other": {"range": (0, 2)}}, "different range"),
    ({}, {"other": NAMED}, "different kind"),
    ({"memoized": True}, {"weights": "standard"}, "independent arms"),
    ({}, {"split": 1.0}, "bound = 'anytime'"),
    ({}, {"split": 0.0, "bound": "anytime"}, "expected a ratio of reports"),
    ({}, {"split": float("inf"), "bound": "anytime"}, "expected a ratio of reports"),
]


def test_what_cannot_be_compared_is_refused() -> None:
    for keys, changes, message in INCOMPARABLE:
        one, asked = define(**{"name": "m", "kind": "mean", **MEAN, **keys}), dict(changes)
        if "other" in asked:
            asked["other"] = define(**{"name": "n", "kind": "mean", **MEAN, **asked["other"]})
        with row(keys, changes), pytest.raises(ValueError, match=message):
            compare(one, one.zero(), one.zero(), **asked)


@pytest.mark.parametrize("bound", ["fixed", "anytime"])
@pytest.mark.parametrize("mechanism", ["caps", "lifted_caps", "hemisphere", "hadamard_response"])
def test_several_numbers_have_a_joint_law(mechanism: str, bound: str) -> None:
    vectors, rng, arms = mechanism != "hadamard_response", np.random.default_rng(2), []
    keys: dict[str, Any] = {"kind": "frequency", "categories": 3}
    means, truth = ([0.3, 0.5, 0.2], [0.5, 0.3, 0.2]), np.array([-0.2, 0.2, 0.0])
    if vectors:
        keys = {"kind": "vector_mean", "dimension": 3, "radius": 2}
        means, truth = ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]), np.array([1.0, -1.0, 0.0])
    metric = define(name="m", mechanism=mechanism, levels=[1, 4], **keys)
    for seed, mean in enumerate(means):
        level = rng.integers(0, 2, 4000)
        values = np.tile(mean, (4000, 1)) if vectors else rng.choice(3, 4000, p=mean)
        arms.append(summed(metric, values, level, seed))
    found = compare(metric, arms[0], arms[1], bound=bound)
    union = compare(metric, arms[0], arms[1], bound=bound, independent=False)
    sample = compare(metric, arms[0], arms[1], bound=bound, target="sample")
    lower, upper, p_value = (np.asarray(x) for x in (found.lower, found.upper, found.p_value))
    assert (found.law, union.law) == ("joint", "union")
    assert np.all((lower < truth) & (truth < upper))
    assert np.all((sample.lower < truth) & (truth < sample.upper))
    assert np.array_equal(p_value <= 0.05, (lower > 0) | (upper < 0))
    assert list(np.asarray(found.decided)) == [True, True, False]
    apart = (upper - lower) / (np.asarray(union.upper) - np.asarray(union.lower))
    # with caps every coordinate has the bound of the most uneven one, along which the data point
    assert np.all(apart[:2] < 1) if "caps" in mechanism else np.all(apart < 0.82)
    if not vectors:
        assert compare(metric, arms[0], arms[1], of="ratio").law == "union"
        return
    assert found.radius is not None
    assert np.linalg.norm(np.asarray(found.value) - truth) < found.radius < 1
    with pytest.raises(ValueError, match=r"expected 'difference': .* is a vector mean"):
        compare(metric, arms[0], arms[1], of="ratio")


def arm(ones: Any, n: int, contrast: float) -> Arm:
    law = Law(np.array([float(n)]), np.array([1 / (n * contrast)]), np.array([contrast]))
    return Arm((2 * np.asarray(ones) - n) / (n * contrast), law, None, n * contrast)


@pytest.mark.parametrize(
    ("thetas", "split"),
    [
        ((0.0, 0.0), 1.0),
        ((0.95, 0.7), None),
        pytest.param((0.0, 0.0), None, marks=pytest.mark.more),
        pytest.param((0.95, 0.7), 1.0, marks=pytest.mark.more),
    ],
)
def test_the_exact_chance_to_miss_ever(thetas: tuple[float, float], split: float | None) -> None:
    """By walking through all paths of 12 reports an arm, in turns, looking at every second turn."""
    beta, contrast = 0.5, 0.95
    chance = [(1 + contrast * t) / 2 for t in thetas]
    inside, left = np.ones((1, 1)), 0.0
    for n in range(1, 13):
        for axis, p in enumerate(chance):
            padding = [(0, 0), (0, 0)]
            padding[axis] = (0, 1)
            up = [(0, 0), (0, 0)]
            up[axis] = (1, 0)
            inside = np.pad(inside * (1 - p), padding) + np.pad(inside * p, up)
        ones = [x.ravel() for x in np.meshgrid(*[np.arange(n + 1)] * 2, indexing="ij")]
        if n % 2:
            continue
        found = anytime(arm(ones[0], n, contrast), arm(ones[1], n, contrast), beta, split)
        delta = thetas[0] - thetas[1]
        outside = ((delta < found.lower) | (delta > found.upper)).reshape(inside.shape)
        left += inside[outside].sum()
        if delta == 0:
            assert np.array_equal(outside.ravel(), found.p_value <= beta)
        inside[outside] = 0
    assert left <= beta
    assert left + inside.sum() == pytest.approx(1)
