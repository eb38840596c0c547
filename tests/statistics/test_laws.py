"""The real randomizers have the law that the simulations draw from.

Chi-square tests of 100,000 reports with fixed seeds; each would fail for one seed in 10^6. A chance
of 0.4 that is off by 2% is found half of the time; that thresholds are exact is tested with the
certificates.
"""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.special import betainc, betaincc
from scipy.stats import chi2_contingency, chisquare

from estimators import LocalMetric, define
from estimators.estimate import Counts, Floats
from estimators.exact.randomness import SeededBits, SystemBits
from estimators.mechanisms import Piecewise
from estimators.mechanisms.lifted_caps import lift
from estimators.mechanisms.shared.ranked_directions import RankedDirections
from tests.statistics.report_laws import FINITE, MEANS, PACKED, chances_of, metric_of, sketched
from tests.support.reports.directions import vector_reports
from tests.support.reports.populations import LEVELS, Population, symbol_chances
from tests.support.rows import row
from tests.support.windows import knots_of

FALSE_ALARM = 1e-6
N = 100_000


def fits(tally: Counts, chances: Floats) -> bool:
    """Return whether a tally has a law; reports of less than 10 expected are taken together."""
    expected = tally.sum() * chances
    rare = expected < 10
    if not np.array_equal(tally[chances == 0], 0 * tally[chances == 0]):
        return False
    if rare.any():
        tally = np.append(tally[~rare], tally[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    return bool(chisquare(tally[expected > 0], expected[expected > 0]).pvalue > FALSE_ALARM)


def test_each_report_is_as_likely_as_the_definition_says() -> None:
    for name, level in itertools.product(FINITE, range(len(LEVELS))):
        metric, chances = metric_of(name), chances_of(name, level)
        value = 1.0 if name in MEANS else 3
        each = np.full(N, level, dtype=np.uint8)
        reports = metric.randomize(np.full(N, value), each, SeededBits(level))
        if name in PACKED:
            reports = reports[:, 0]
        tally = np.bincount(reports, minlength=chances.shape[1])
        with row(name, LEVELS[level]):
            assert fits(tally, chances[1 if name in MEANS else 3])


@pytest.mark.parametrize("name", ["count_sketch", "projective_sketch", "projection"])
def test_hashes_and_random_signs_do_not_change_how_a_report_is_drawn(name: str) -> None:
    seeded = (("rows", 12), ("seed", 5)) if name == "projection" else ()
    population = Population(name, (0.1,) * 10, (), seeded)
    for level in range(len(LEVELS)):
        value: Any = population.names[6]
        if name == "projection":
            chances, value = symbol_chances(population.metric.randomizer, level)[6], 6
        else:
            chances = sketched(population, level)[6]
        each = np.full(N, level, dtype=np.uint8)
        reports = population.metric.randomize(np.full(N, value), each, SeededBits(level))
        with row(LEVELS[level]):
            assert fits(np.bincount(reports, minlength=chances.size), chances)


def test_means_between_the_ends_are_rounded_and_noise_is_discrete_laplace() -> None:
    """To an end, or by `windows` to a knot. Of `laplace`: 40 cells of a value and noise."""
    signs, windows, noise = (metric_of(name) for name in (*MEANS, "laplace"))
    assert isinstance(windows.randomizer, Piecewise)
    for level, epsilon in enumerate(LEVELS):
        each, bits = np.full(N, level, dtype=np.uint8), SeededBits(level)
        ones = int(signs.randomize(np.full(N, 0.3), each, bits).sum())
        p = (1 + np.tanh(epsilon / 2) * 0.3) / 2
        shape = windows.randomizer.shapes[level]
        symbols = np.bincount(
            windows.randomize(np.full(N, 0.3), each, bits), minlength=shape.symbols
        )
        of_symbols = knots_of(shape, np.array([0.3])) @ shape.chances
        reports = noise.randomize(np.full(N, 0.25 + 0.25 / 1024), each, bits).astype(np.int64)
        q, reach = np.exp(-epsilon / 2048), round(6 * 2048 / epsilon)
        y = np.arange(256 - reach, 258 + reach)
        law = (1 - q) / (1 + q) * (0.75 * q ** np.abs(y - 256) + 0.25 * q ** np.abs(y - 257))
        cells = np.clip((reports - y[0]) // (y.size // 40), -1, 41)
        expected = np.bincount(np.arange(y.size) // (y.size // 40), weights=law)
        tally = np.bincount(cells[(reports >= y[0]) & (reports <= y[-1])], minlength=expected.size)
        with row(epsilon):
            assert fits(np.array([ones, N - ones]), np.array([p, 1 - p]))
            assert fits(symbols, of_symbols)
            assert fits(np.append(tally, N - tally.sum()), np.append(expected, 1 - expected.sum()))


def test_the_operating_systems_bits_have_the_law_too() -> None:
    """Unseeded: fails in one run of a million."""
    metric = metric_of("randomized_response")
    reports = metric.randomize(np.full(N, 1.0), np.full(N, 2, dtype=np.uint8), SystemBits())
    assert fits(np.bincount(reports, minlength=2), chances_of("randomized_response", 2)[1])


def score_tails(mechanism: RankedDirections, z: Floats) -> Floats:
    """P(Z > z) and P(Z < -z) at the only level, z in (0, 1): ranks are order statistics of |Z|."""
    (k, inside), (p, q) = mechanism.sets[0], mechanism.chances[0]
    rank = np.arange(1, k // 2 + 1)[:, None]
    one = betaincc(0.5, (mechanism.dimension - 1) / 2, z**2)  # P(|Z| > z) of one direction
    larger = betainc(rank, k // 2 - rank + 1, one)
    chance = np.where(rank <= inside, float(p), float(q))
    return np.array([(chance * larger).sum(axis=0), float(q) * larger.sum(axis=0)])


@pytest.mark.parametrize(
    ("name", "dimension", "epsilon"),
    [("hemisphere", 3, 1), ("caps", 2, 4), ("caps", 4, 2), ("lifted_caps", 2, 6)],
)
def test_directions_are_drawn_as_they_are_reported(name: str, dimension: int, epsilon: int) -> None:
    """Of 10,000 reports: 20 cells of the score of a unit vector; cells of two coordinates inside.

    The first is for real reports and drawn ones, the second compares them.
    """

    def both(x: Floats, **options: int) -> tuple[LocalMetric, Counts, Counts]:
        keys = {"dimension": dimension, "radius": 1.0, "levels": [epsilon], "options": options}
        metric = define(name="v", kind="vector_mean", mechanism=name, **keys)
        assert isinstance(metric.randomizer, RankedDirections)
        held = np.tile(x[:dimension], (10_000, 1))
        real = metric.randomize(held, np.zeros(len(held), dtype=np.uint8), SeededBits(5))
        drawn = vector_reports(metric.randomizer, held, 0, np.random.default_rng(5))
        return metric, real.astype(np.int64), drawn

    unit, edges = np.array([0.6, -0.8, 0.0, 0.0]), np.linspace(0, 1, 11)[1:-1]
    metric, *samples = both(unit, grid=2**14)
    assert isinstance(metric.randomizer, RankedDirections)
    above, below = score_tails(metric.randomizer, np.append(edges, 0.0))
    law = np.diff([0, *below[:-1][::-1], below[-1], *(1 - above[:-1]), 1])
    along = unit[:dimension]
    along = lift(along[None])[0] if name == "lifted_caps" else along
    for reports in samples:
        score = reports @ along / np.linalg.norm(reports, axis=1)
        assert fits(np.histogram(score, [-2, *-edges[::-1], 0, *edges, 2])[0], law)

    _, real, drawn = both(np.array([0.5, -0.2, 0.1, 0.3]))
    quantiles = [np.quantile(real[:, i], np.linspace(0, 1, 9)[1:-1]) for i in (0, 1)]
    cells = [
        np.ravel_multi_index([np.searchsorted(e, x[:, i]) for i, e in enumerate(quantiles)], (8, 8))
        for x in (real, drawn)
    ]
    tallies = np.array([np.bincount(cell, minlength=64) for cell in cells])
    assert chi2_contingency(tallies[:, tallies.sum(axis=0) > 20]).pvalue > FALSE_ALARM
