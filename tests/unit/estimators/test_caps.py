"""Ranked directions: their certificate, their constants, and their variance against PrivUnit's."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import bdtr, betainc, hyp0f1

from estimators import define
from estimators.bounds.ranked_directions.coordinates import CoordinateBounds
from estimators.bounds.ranked_directions.remainder import concave_majorant_at
from estimators.bounds.ranked_directions.report_law import ReportLaw
from estimators.estimate import Floats
from estimators.exact.randomness import SeededBits
from estimators.exact.sampling import normal_numbers
from estimators.mechanisms import Caps
from estimators.mechanisms.caps import MAX_NORMAL_NUMBERS, best_caps
from tests.support.reports.cases import MANY_LEVELS, ScriptedBits, exact
from tests.support.rows import row

WORD = 2**64


def log_area(d: int) -> float:
    """ln of Gamma(d/2) / (sqrt(pi) Gamma((d-1)/2)): the density of a coordinate at zero."""
    return math.lgamma(d / 2) - math.lgamma((d - 1) / 2) - math.log(math.pi) / 2


def mean_of(mechanism: Caps, function: Any) -> float:
    """E f(Z) of a score at the only level, by adaptive quadrature."""
    d, (k, w) = mechanism.dimension, mechanism.sets[0]
    p, q = map(float, mechanism.chances[0])

    def density(angle: float) -> float:
        z, base = math.sin(angle), float(math.exp(log_area(d)) * math.cos(angle) ** (d - 2))
        among = float(bdtr(w - 1, k // 2 - 1, betainc((d - 1) / 2, 0.5, math.cos(angle) ** 2)))
        above, below = float(function(z)), float(function(-z))
        found: float = base * k * ((q + (p - q) * among) * above + q * below)
        return found

    ends = np.linspace(0, min(math.pi / 2, 20 / math.sqrt(d - 1)), 25)
    return sum(
        quad(density, a, b, epsrel=1e-11, epsabs=1e-14)[0] for a, b in itertools.pairwise(ends)
    )


def test_a_report_is_unbiased_by_an_integral_that_another_rule_confirms() -> None:
    for epsilon, d in ((0.5, 2), (8, 2), (4, 3), (10, 10), (2, 100), (8, 4096)):
        mechanism = Caps([exact(epsilon)], dimension=d)
        low, high = mechanism.laws[0].mean_squares
        with row(epsilon, d):
            assert mean_of(mechanism, lambda _: 1.0) == pytest.approx(1, abs=1e-9)
            one = mechanism.scale[0] * mean_of(mechanism, lambda z: z)
            assert one == pytest.approx(1, abs=1e-9)
            assert mean_of(mechanism, lambda z: z * z) == pytest.approx(high, rel=1e-9)
            assert (d - 1) * low + high == pytest.approx(1, rel=1e-12)


def coordinate_bound(law: ReportLaw, n: Floats, square: float, log_p: float) -> float:
    """Return the bound for a mean of unrounded reports of each of n users with c^2 = `square`."""
    laws, squares = (law,) * n.size, np.zeros((n.size, law.dimension))
    shown = CoordinateBounds(law.dimension, n, 1 / n, 1e-9, laws, squares=squares, levels=n.size)
    return shown.uniform_at(law.column_of(np.full(n.size, square))).coordinate_deviation(log_p)


def test_a_coordinates_bound_is_above_the_exact_quantile_and_near_it() -> None:
    """n users across a coordinate, and unrounded: the tail by Fourier inversion on a fine grid."""
    for (epsilon, d), n in itertools.product(((1, 2), (4, 3), (8, 10)), (100, 1000, 10_000)):
        law = Caps([exact(epsilon)], dimension=d).laws[0]
        z, above, below = law.scores
        h = (np.arange(500) + 0.5) * (12 / math.sqrt(n * law.mean_squares[0]) / 500)
        side = np.multiply.outer(h, np.sqrt((1 - z) * (1 + z)))
        across = np.cos(side) if d == 2 else np.asarray(hyp0f1((d - 1) / 2, -(side**2) / 4))
        transform = (across @ (above + below)) ** n
        for p in (0.025, 1e-4):
            bound = coordinate_bound(law, np.array([n]), 0.0, math.log(p)) * n
            tail = 0.5 - float((np.sin(h * bound) / h * transform).sum() * (h[1] - h[0])) / math.pi
            with row(epsilon, d, n, p):
                assert p * (0.5 if n > 100 else 0.2) <= tail <= p * (1 + 1e-3)


def test_very_many_reports_beside_few_add_nothing_to_a_coordinates_bound() -> None:
    law, n = Caps([exact(8)], dimension=2).laws[0], np.array([100.0, 1e12])
    bounds = [coordinate_bound(law, n[:k], 0.0, -4.0) for k in (1, 2)]
    assert bounds[1] == pytest.approx(bounds[0], rel=1e-4)


def test_reports_along_a_coordinate_hardly_vary_so_its_bound_is_far_below_chernoffs() -> None:
    law = Caps([exact(8)], dimension=33).laws[0]
    bound = coordinate_bound(law, np.array([1e5]), 1.0, -3.6)
    assert bound < 0.87 * math.sqrt(2 * 3.6 * law.mean_squares[1] / 1e5)


def test_prices_bound_the_least_concave_and_increasing_function() -> None:
    """It is the largest mean of y over laws of x with a mean of at most that: on two points."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        x = np.concatenate([[0.0], np.cumsum(rng.uniform(0.01, 1.0, 5))])
        y, at = rng.uniform(-2.0, 2.0, 6), rng.uniform(0.0, 4.0)
        exactly = float(y[x <= at].max())
        for left, right in itertools.product(np.flatnonzero(x <= at), np.flatnonzero(x > at)):
            share = (at - x[left]) / (x[right] - x[left])
            exactly = max(exactly, float((1 - share) * y[left] + share * y[right]))
        others = concave_majorant_at(x, y[None], np.array([at / 2, at, 2 * at]))[:, 0]
        with row(seed):
            assert exactly - 1e-9 <= others[1] <= float(y.max()) + 1e-9
            assert np.all(np.diff(others) >= -1e-9)


def test_candidates_are_constants_of_epsilon_and_dimension_within_limits() -> None:
    for epsilon, d in itertools.product(MANY_LEVELS[::2], (1, 2, 3, 1024, 2**14)):
        k, inside = best_caps(exact(epsilon), d)
        assert k % 2 == 0
        assert 1 <= inside <= k // 2
        assert k // 2 * d <= MAX_NORMAL_NUMBERS
    sizes = [best_caps(Fraction(8), 2**i)[0] for i in range(1, 15)]
    assert sizes == sorted(sizes, reverse=True)
    assert Caps([Fraction(1)], dimension=1).scale[0] == pytest.approx(1 / math.tanh(0.5))


def test_the_words_choose_each_candidate_with_its_certified_chance() -> None:
    """All bytes of the coin, and all integers, for one set of candidates and two values.

    The report is one of k different vectors. Those that are sent if the coin does not miss are the
    W nearest to the value; the others are sent if it does.
    """
    mechanism = Caps([Fraction(1)], dimension=3)
    (k, inside), first = mechanism.sets[0], mechanism.misses[0] >> 56
    size = k // 2 * 3 // 2
    directions = np.random.default_rng(3).integers(0, WORD, size, dtype=np.uint64).tolist()
    vectors = normal_numbers(np.array(directions, dtype=np.uint64)).reshape(-1, 3)

    def report(value: list[float], byte: int, integer: int) -> tuple[int, ...]:
        # the coin for v keeps the value; roundings of zero round up what has a fraction
        words = ScriptedBits(directions, [0], [byte], [integer], [2**63, 2**63])
        return tuple(mechanism.randomize(np.array([value]), np.array([0]), words)[0].tolist())

    sent = []
    for value in ([0.6, 0.0, 0.8], [0.0, -1.0, 0.0]):
        near = [report(value, 255, i) for i in range(inside)]
        far = [report(value, 0, i) for i in range(k - inside)]
        assert first not in (0, 255)
        assert len(set(near)) == inside
        assert len(set(far)) == k - inside
        assert not set(near) & set(far)
        along = vectors @ value / np.linalg.norm(vectors, axis=1)
        scores = sorted([*along, *-along])[-inside:]
        assert sorted(np.dot(each, value) / 127 for each in near) == pytest.approx(scores, abs=0.02)
        sent.append(set(near) | set(far))
    assert sent[0] == sent[1]  # the same reports for all values: the ratio bounds what they tell


def test_a_report_of_several_blocks_is_one_of_all_candidates() -> None:
    """Of 512 directions with 4,096 coordinates, drawn in 16 blocks; the words are used once."""
    mechanism = Caps([Fraction(16)], dimension=4096)
    assert mechanism.sets == ((1024, 1),)
    value = np.random.default_rng(1).normal(size=(1, 4096))
    value /= np.linalg.norm(value)
    report = mechanism.randomize(value, np.array([0]), SeededBits(5))[0] / mechanism.grid
    words = SeededBits(5).integers(512 * 4096 // 2).reshape(16, -1)
    vectors = np.concatenate([normal_numbers(block).reshape(-1, 4096) for block in words])
    scores = vectors @ value[0] / np.linalg.norm(vectors, axis=1)
    best = int(np.abs(scores).argmax())
    chosen = np.sign(scores[best]) * vectors[best] / np.linalg.norm(vectors[best])
    assert report == pytest.approx(chosen, abs=1 / mechanism.grid)


def test_what_is_not_on_the_sphere_is_refused() -> None:
    metric = define(
        name="v", kind="vector_mean", mechanism="caps", dimension=3, radius=1.0, levels=[1]
    )
    statistic = metric.zero()
    for report in ([0, 0, 0], [127, 127, 0], [-128, 0, 0], [90, 0, 0]):
        with row(report), pytest.raises(ValueError, match="a vector of squared length"):
            metric.accumulate(statistic, [0], np.array([report], dtype=np.int8))
    assert not statistic.any()
