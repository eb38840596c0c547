"""A crowd's epsilon is proved: never below an exact attack, and close to it."""

import dataclasses
import itertools
import math
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from estimators import mechanisms
from estimators.exact.thresholds import exp_bounds
from estimators.mechanisms.mechanism import Mechanism
from estimators.shuffling import amplification as crowds
from estimators.shuffling.amplification import blanket_divergence, excess_masses
from estimators.shuffling.set_laws import SetLaw
from tests.support.reports.cases import CASES, metric_for
from tests.support.reports.populations import symbol_chances
from tests.support.rows import row

DELTA = 1e-8
CROWDS = (10**3, 10**4, 10**5)


def in_sets(sets: Iterable[Collection[int]], outputs: int, ratio: float) -> Any:
    """Return the odds of each output for each value, from its set."""
    return [[ratio if y in members else 1 for y in range(outputs)] for members in sets]


def law_of(odds: Any, blanket: Any = None) -> SetLaw:
    """Return the law of reports with these odds, shape (values, outputs)."""
    table = np.array(odds, dtype=object)
    blanket = np.full_like(table[0], table.min()) if blanket is None else blanket
    inside = table > blanket * Fraction(1000001, 1000000)
    shared = [[Fraction((blanket * (a & b)).sum()) / blanket.sum() for a in inside] for b in inside]
    least = min(itertools.chain.from_iterable(shared))
    return SetLaw(Fraction((table / blanket).max()), shared[0][0], least)


def shuffled_odds(rows: Iterable[Sequence[int]]) -> dict[Any, int]:
    """Return the odds of each count of outputs, of reports with these odds."""
    law = {(): 1}
    for odds in rows:
        grown: Counter[Any] = Counter()
        for outputs, mass in law.items():
            for output, chance in enumerate(odds):
                grown[tuple(sorted((*outputs, output)))] += mass * chance
        law = dict(grown)
    return law


def delta_of(first: dict[Any, int], second: dict[Any, int], growth: Fraction) -> Fraction:
    """Return delta between two laws of the same total."""
    excess = sum((max(first[c] - growth * second[c], Fraction(0)) for c in first), Fraction(0))
    return excess / sum(first.values())


def exact_delta(odds: Sequence[Sequence[int]], reports: int, growth: Fraction) -> Fraction:
    """Return the largest delta over all datasets and pairs of values, by enumeration."""
    worst = Fraction(0)
    for others in itertools.combinations_with_replacement(odds, reports - 1):
        pairs = itertools.permutations([shuffled_odds((*others, row)) for row in odds], 2)
        worst = max(worst, *(delta_of(p, q, growth) for p, q in pairs))
    return worst


FANO = [[(x + shift) % 7 for x in (1, 2, 4)] for shift in range(7)]
PAIRS = [
    [y for y, pair in enumerate(itertools.combinations(range(4), 2)) if x in pair] for x in range(4)
]
WINDOWS = [range(s, s + 3) for s in range(3)]
SMALL = {
    "3 categories": (in_sets([[0], [1], [2]], 3, 3), 4, Fraction(5, 4)),
    "4 categories": (in_sets([[0], [1], [2], [3]], 4, 4), 4, Fraction(2)),
    "windows": (in_sets(WINDOWS, 5, 3), 4, Fraction(5, 4)),
    "pairs": (in_sets(PAIRS, 6, 4), 3, Fraction(2)),
    "planes": (in_sets(FANO, 7, 5), 3, Fraction(3)),
}


def test_no_dataset_is_less_private_than_the_bound() -> None:
    for name, (odds, reports, growth) in SMALL.items():
        with row(name):
            law, exact = law_of(odds), float(exact_delta(odds, reports, growth))
            bounds = [
                blanket_divergence([x], reports, math.log(growth)) for x in (law, SetLaw(law.ratio))
            ]
            assert exact <= bounds[0] <= bounds[1]
            assert bounds[0] <= (1.1 if "categories" in name else 2) * exact


def test_laws_of_a_public_draw_are_mixed() -> None:
    parts = in_sets([[0], [1], [2]], 3, 3), in_sets([[0, 1], [1, 2], [2, 3]], 4, 5)
    drawn = [[24 * x for x in a] + [5 * y for y in b] for a, b in zip(*parts, strict=True)]
    chances = Fraction(2, 3), Fraction(1, 3)
    laws = [dataclasses.replace(law_of(x), chance=c) for x, c in zip(parts, chances, strict=True)]
    exact = float(exact_delta(drawn, 3, Fraction(5, 4)))
    assert exact <= blanket_divergence(laws, 3, math.log(1.25)) <= 1.2 * exact


def test_the_variation_ratio_reduction_is_convicted() -> None:
    """It lets the others' remainders hide the first one's; Wang et al., 2304.05007, section 4."""
    growth = Fraction(2)
    laws = [shuffled_odds([[1, 1, 5]] * 3 + [first]) for first in ([4, 1, 2], [1, 4, 2])]
    assert float(delta_of(laws[0], laws[1], growth)) == pytest.approx(0.104123, abs=1e-6)
    exact = exact_delta(SMALL["4 categories"][0], 4, growth)
    assert float(exact) == pytest.approx(0.105789, abs=1e-6)


@pytest.mark.parametrize("reports", [1, 2, 6])
def test_the_bound_is_the_mean_of_the_positive_part(reports: int) -> None:
    """The rounding of an excess costs at most 2% of delta; nothing is lost."""
    for law in (SetLaw(Fraction(3)), SetLaw(Fraction(20), Fraction(1, 5), Fraction(1, 20))):
        for growth in (Fraction(1), Fraction(5, 4), Fraction(5, 2)):
            masses = excess_masses([law], growth)
            masses[Fraction(0)] = masses.get(Fraction(0), Fraction(0)) + 1 - sum(masses.values())
            sums = {Fraction(0): Fraction(1)}
            for _ in range(reports):
                more = defaultdict[Fraction, Fraction](Fraction)
                for (x, p), (y, q) in itertools.product(sums.items(), masses.items()):
                    more[x + y] += p * q
                sums = more
            exact = float(sum(max(x, Fraction(0)) * p for x, p in sums.items())) / reports
            with row(law, growth):
                bound = blanket_divergence([law], reports, math.log(growth))
                assert exact * (1 - 1e-12) <= bound <= 1.02 * exact + 1e-15


def sign_delta(ratio: float, ones: int, zeros: int, epsilon: float) -> float:
    """Return delta of one report among others that hold so many ones and zeros."""
    flip = 1 / (ratio + 1)
    held = ((ones, 1 - flip), (zeros, flip))
    first, second = (binom.pmf(np.arange(n + 1), n, chance) for n, chance in held)
    others = np.convolve(first, second)
    zero, one = (np.convolve(others, x) for x in ((1 - flip, flip), (flip, 1 - flip)))
    return float(np.maximum(zero - math.exp(epsilon) * one, 0).sum())


@pytest.mark.parametrize(
    ("ratio", "reports", "epsilon"), [(2, 41, math.log(1.1)), (3, 150, 0.4), (50, 300, 1.0)]
)
def test_signs_are_as_private_as_the_worst_data(ratio: int, reports: int, epsilon: float) -> None:
    deltas = [sign_delta(ratio, ones, reports - 1 - ones, epsilon) for ones in range(reports)]
    worst = max(deltas)
    assert crowds.are_signs_private(Fraction(ratio), reports, epsilon, worst * (1 + 1e-6))
    assert not crowds.are_signs_private(Fraction(ratio), reports, epsilon, worst * (1 - 1e-6))
    if ratio == 2:
        assert deltas.index(worst) == 1, "all others alike are not the worst dataset"


@pytest.mark.parametrize(("level", "reports"), [(1, 500), (4, 500), (4, 5000)])
def test_explicit_attacks_come_close(level: int, reports: int) -> None:
    """All others hold 0."""
    delta, law = 1e-6, SetLaw(exp_bounds(Fraction(level))[1], is_sign=True)
    epsilon = crowds.shuffled_epsilon([law], reports, delta)
    attacks = [sign_delta(math.exp(level), 0, reports - 1, x * epsilon) for x in (1, 0.99)]
    assert attacks[0] <= delta < attacks[1]


TABLE = {
    1: (0.189, 0.0567, 0.0169, 0.163, 0.0471, 0.0139, 0.130, 0.0392, 0.0116),
    2: (0.497, 0.146, 0.0438, 0.416, 0.113, 0.0329, 0.316, 0.0959, 0.0286),
    4: (2.85, 0.515, 0.151, 2.64, 0.406, 0.110, 0.907, 0.293, 0.0883),
    8: (8, 8, 1.55, 8, 8, 1.40, 6.65, 4.92, 1.49),
}
"""By level: any mechanism, signs, projective geometry response of 100 categories, for CROWDS."""


@pytest.mark.parametrize("level", TABLE)
def test_the_published_figures_are_met(level: int) -> None:
    ratio = exp_bounds(Fraction(level))[1]
    geometry = mechanisms.ProjectiveGeometryResponse([Fraction(level)], categories=100).set_laws(0)
    columns = [SetLaw(ratio)], [SetLaw(ratio, is_sign=True)], geometry
    cells = itertools.product(columns, CROWDS)
    for (laws, reports), figure in zip(cells, TABLE[level], strict=True):
        with row(level, laws, reports):
            assert 0.97 * figure <= crowds.shuffled_epsilon(laws, reports, DELTA) <= 1.01 * figure


LEVELS = [Fraction(1, 2), Fraction(1), Fraction(3)]
STATED: dict[str, Mechanism] = {
    "grr": mechanisms.Grr(LEVELS, categories=5),
    "windows": mechanisms.Piecewise(LEVELS),
    "planes": mechanisms.ProjectiveGeometryResponse(LEVELS, categories=7),
    "hadamard": mechanisms.HadamardResponse(LEVELS, categories=9),
    "recursive": mechanisms.RecursiveHadamard(LEVELS, categories=9),
    "projection": mechanisms.Projection(LEVELS, categories=9),
    "subsets": mechanisms.SubsetSelection(LEVELS, categories=6),
    "rappor": mechanisms.Rappor(LEVELS, categories=3),
    "oue": mechanisms.Oue(LEVELS, categories=3),
}


def actual_law(mechanism: Any, level: int) -> SetLaw:
    """Return the law from the mechanism's description."""
    e = math.exp(mechanism.epsilons[level])
    if isinstance(mechanism, mechanisms.SubsetSelection):
        subsets = itertools.combinations(range(6), mechanism.sizes[level])
        return law_of(np.array(in_sets(subsets, 6, e)).T)
    if isinstance(mechanism, mechanisms.Rappor | mechanisms.Oue):
        q = 1 / (1 + (math.sqrt(e) if isinstance(mechanism, mechanisms.Rappor) else e))
        p = 1 - q if isinstance(mechanism, mechanisms.Rappor) else 0.5
        reports = np.array(list(itertools.product((0, 1), repeat=3)))
        ones = np.where(np.eye(3, dtype=bool), p, q)[:, None, :]
        chances = np.where(reports, ones, 1 - ones).prod(axis=2)
        return law_of(chances, chances[0] / np.where(reports[:, 0], e, 1))
    chances = symbol_chances(mechanism, level)
    return law_of(chances[:, chances.max(axis=0) > 0])


def test_mechanisms_state_the_law_that_they_have() -> None:
    for name, mechanism in STATED.items():
        for level in range(len(LEVELS)):
            with row(name, level):
                actual = actual_law(mechanism, level)
                (stated,) = mechanism.set_laws(level)
                fields = [(float(x.ratio), float(x.inside)) for x in (stated, actual)]
                assert fields[0] == pytest.approx(fields[1])
                assert float(stated.overlap) == pytest.approx(float(actual.overlap))
                assert not stated.is_sign
    for mechanism in (
        mechanisms.RandomizedResponse(LEVELS),
        mechanisms.Grr(LEVELS, categories=2),
        mechanisms.AutoMean(LEVELS, values="two"),
    ):
        assert mechanism.set_laws(0)[0].is_sign


def test_every_mechanism_states_laws() -> None:
    for name in CASES:
        mechanism = metric_for(name).randomizer
        for level, epsilon in enumerate(mechanism.epsilons):
            with row(name, level):
                laws = mechanism.set_laws(level)
                assert sum(law.chance for law in laws) == 1
                assert all(law.ratio <= exp_bounds(epsilon)[1] for law in laws)
                assert all(0 <= law.overlap <= law.inside <= Fraction(1, 2) for law in laws)


def test_the_largest_level_is_found_where_a_lower_one_fails() -> None:
    def geometry(level: Fraction) -> Sequence[SetLaw]:
        return mechanisms.ProjectiveGeometryResponse([level], categories=100).set_laws(0)

    assert crowds.largest_level(geometry, 7400, 0.25, DELTA) == Fraction(365, 100)
    assert not crowds.is_private(geometry(Fraction(7, 2)), 7400, 0.25, 100 * DELTA)
    assert crowds.largest_level(geometry, 10_000, 1.0, DELTA) == Fraction(55, 10)
    windows = crowds.largest_level(
        lambda level: mechanisms.Piecewise([level]).set_laws(0), 10_000, 1.0, DELTA
    )
    assert windows == Fraction(51, 10)
    assert crowds.largest_level(lambda level: None, 10_000, 1.5, DELTA) == Fraction(3, 2)


def test_a_crowd_of_one_has_its_level_and_bad_sizes_are_refused() -> None:
    for is_sign in (True, False):
        law = SetLaw(Fraction(3), is_sign=is_sign)
        assert crowds.shuffled_epsilon([law], 1, DELTA) == pytest.approx(math.log(3), rel=1e-3)
        assert crowds.shuffled_epsilon([law], 100, 1.0) == 0
        for reports, delta in ((0, 0.1), (10, 0.0), (10, 1.1)):
            with pytest.raises(ValueError, match="expected"):
                crowds.shuffled_epsilon([law], reports, delta)


def test_a_crowd_needs_no_scipy_and_a_p_value_not_its_optimizer() -> None:
    """`scipy.optimize` would take 26 MB and half a second of each server with a crowd."""
    program = """import sys
from fractions import Fraction
from estimators.comparison.joint import smallest_p_value
from estimators.mechanisms import RandomizedResponse
from estimators.shuffling.amplification import shuffled_epsilon
assert shuffled_epsilon(RandomizedResponse([Fraction(2)]).set_laws(0), 450, 1e-6) < 2
assert 0.02 < smallest_p_value(lambda beta: 1.03 - beta, 1.0) < 0.04
print({"scipy", "scipy.optimize"} & sys.modules.keys())"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert told.stdout == "set()\n", told.stderr
