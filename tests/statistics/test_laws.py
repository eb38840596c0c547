"""The real randomizers have the law that the simulations draw from.

Chi-square tests with fixed seeds; each would fail for one seed in 10^6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.special import betainc, betaincc
from scipy.stats import chi2_contingency, chisquare

from estimators import LocalMetric, define
from estimators.exact.randomness import SeededBits, SystemBits
from estimators.exact.thresholds import WORD, flip_threshold
from estimators.mechanisms import (
    CountSketch,
    Laplace,
    Projection,
    ProjectiveSketch,
    SubsetSelection,
)
from estimators.mechanisms.lifted_caps import lift
from estimators.mechanisms.shared.ranked_directions import RankedDirections
from tests.support.reports.directions import vector_reports
from tests.support.reports.populations import (
    LEVELS,
    Population,
    Symbols,
    sketch_chances,
    symbol_chances,
)

if TYPE_CHECKING:
    from estimators.estimate import Counts, Floats

FALSE_ALARM = 1e-6
N = 100_000
every_level = pytest.mark.parametrize("index", range(len(LEVELS)))


@every_level
@pytest.mark.parametrize("x", [-1.0, 0.3, 1.0])
def test_randomized_response(index: int, x: float) -> None:
    metric = Population("randomized_response", 0.0, ()).metric
    level = np.full(N, index, dtype=np.uint8)
    ones = int(metric.randomize(np.full(N, x), level, SeededBits(index)).sum())
    contrast = 1 - 2 * flip_threshold(metric.randomizer.epsilons[index]) / WORD
    p = (1 + contrast * x) / 2
    assert chisquare([ones, N - ones], [N * p, N * (1 - p)]).pvalue > FALSE_ALARM


@every_level
def test_laplace(index: int) -> None:
    metric = Population("laplace", 0.0, ()).metric
    assert isinstance(metric.randomizer, Laplace)
    level, x, grid = np.full(N, index, dtype=np.uint8), 0.25 + 0.25 / 1024, metric.randomizer.grid
    reports = metric.randomize(np.full(N, x), level, SeededBits(index)).astype(np.int64)
    q = np.exp(-LEVELS[index] / (2 * grid))
    reach = round(6 * 2 * grid / LEVELS[index])
    y = np.arange(256 - reach, 258 + reach)
    law = (1 - q) / (1 + q) * (0.75 * q ** np.abs(y - 256) + 0.25 * q ** np.abs(y - 257))
    inside = reports[(reports >= y[0]) & (reports <= y[-1])]
    cells = np.arange(y.size) // (y.size // 40)
    tally = np.bincount(cells[inside - y[0]], minlength=cells[-1] + 1)
    expected = N * np.bincount(cells, weights=law)
    rest = N - expected.sum()
    assert chisquare([*tally, N - inside.size], [*expected, rest]).pvalue > FALSE_ALARM


@every_level
def test_rappor_flips_its_bits_independently(index: int) -> None:
    metric = Population("rappor", (0.2,) * 5, ()).metric
    level, values = np.full(N, index, dtype=np.uint8), np.full(N, 3)
    rows = metric.randomize(values, level, SeededBits(index))[:, 0].astype(np.int64) ^ (1 << 3)
    flip = flip_threshold(metric.randomizer.epsilons[index] / 2) / WORD
    flips = np.array([pattern.bit_count() for pattern in range(32)])
    expected = N * flip**flips * (1 - flip) ** (5 - flips)
    tally = np.bincount(rows, minlength=32)
    rare = expected < 10
    observed = [*tally[~rare], *([tally[rare].sum()] if rare.any() else [])]
    wanted = [*expected[~rare], *([expected[rare].sum()] if rare.any() else [])]
    assert chisquare(observed, wanted).pvalue > FALSE_ALARM


@every_level
def test_grr_names_the_other_categories_alike(index: int) -> None:
    metric = Population("grr", (0.2,) * 5, ()).metric
    level, values = np.full(N, index, dtype=np.uint8), np.full(N, 3)
    tally = np.bincount(metric.randomize(values, level, SeededBits(index)), minlength=5)
    e = np.exp(LEVELS[index])
    expected = N * np.array([1, 1, 1, e, 1]) / (e + 4)
    assert chisquare(tally, expected).pvalue > FALSE_ALARM


@every_level
def test_oue_draws_its_bits_independently(index: int) -> None:
    metric = Population("oue", (0.2,) * 5, ()).metric
    level, values = np.full(N, index, dtype=np.uint8), np.full(N, 3)
    rows = metric.randomize(values, level, SeededBits(index))[:, 0].astype(np.int64)
    q = 1 / (1 + np.exp(LEVELS[index]))
    ones = np.array([(pattern & ~8).bit_count() for pattern in range(32)])
    expected = N * q**ones * (1 - q) ** (4 - ones) / 2
    tally = np.bincount(rows, minlength=32)
    rare = expected < 10
    observed = [*tally[~rare], *([tally[rare].sum()] if rare.any() else [])]
    wanted = [*expected[~rare], *([expected[rare].sum()] if rare.any() else [])]
    assert chisquare(observed, wanted).pvalue > FALSE_ALARM


@every_level
def test_subsets_of_a_size_with_or_without_the_category_are_alike(index: int) -> None:
    metric = Population("subset_selection", (0.2,) * 5, ()).metric
    assert isinstance(metric.randomizer, SubsetSelection)
    size = metric.randomizer.sizes[index]
    level, values = np.full(N, index, dtype=np.uint8), np.full(N, 3)
    rows = metric.randomize(values, level, SeededBits(index))[:, 0]
    tally = np.bincount(rows, minlength=32)
    subsets = [pattern for pattern in range(32) if pattern.bit_count() == size]
    odds = np.array([np.exp(LEVELS[index]) if pattern & 8 else 1.0 for pattern in subsets])
    assert tally.sum() == tally[subsets].sum()
    assert chisquare(tally[subsets], N * odds / odds.sum()).pvalue > FALSE_ALARM


@every_level
@pytest.mark.parametrize("category", [0, 9])
@pytest.mark.parametrize(
    "name", ["hadamard_response", "recursive_hadamard", "projective_geometry_response"]
)
def test_symbols_of_a_set_or_not_are_alike(index: int, category: int, name: str) -> None:
    mechanism = Population(name, (0.1,) * 10, ()).metric.randomizer
    assert isinstance(mechanism, Symbols)
    level, values = np.full(N, index, dtype=np.uint8), np.full(N, category)
    reports = mechanism.randomize(values, level, SeededBits(index))
    chances = symbol_chances(mechanism, index)[category]
    tally = np.bincount(reports, minlength=chances.size)
    assert chisquare(tally, N * chances).pvalue > FALSE_ALARM


@every_level
@pytest.mark.parametrize("options", [(), (("rows", 12), ("seed", 5))], ids=["hadamard", "random"])
def test_projection(index: int, options: tuple[tuple[str, int], ...]) -> None:
    mechanism = Population("projection", (0.1,) * 10, (), options).metric.randomizer
    assert isinstance(mechanism, Projection)
    level, values = np.full(N, index, dtype=np.uint8), np.full(N, 6)
    reports = mechanism.randomize(values, level, SeededBits(index))
    tally = np.bincount(reports, minlength=2 * mechanism.rows)
    expected = N * symbol_chances(mechanism, index)[6]
    assert chisquare(tally, expected).pvalue > FALSE_ALARM


@every_level
@pytest.mark.parametrize("name", [0, 1])
def test_count_sketch(index: int, name: int) -> None:
    population = Population("count_sketch", (0.5, 0.5), ())
    mechanism = population.metric.randomizer
    assert isinstance(mechanism, CountSketch)
    level, values = np.full(N, index, dtype=np.uint8), np.full(N, population.names[name])
    reports = population.metric.randomize(values, level, SeededBits(index))
    tally = np.bincount(reports, minlength=mechanism.symbols)
    expected = N * sketch_chances(population, index)[name]
    assert chisquare(tally, expected).pvalue > FALSE_ALARM


@every_level
def test_projective_sketch(index: int) -> None:
    """Rows are alike, and so are the points of the hyperplane in each, and those off it."""
    population = Population("projective_sketch", (0.5, 0.5), ())
    mechanism = population.metric.randomizer
    assert isinstance(mechanism, ProjectiveSketch)
    level, values = np.full(N, index, dtype=np.uint8), np.full(N, population.names[1])
    reports = population.metric.randomize(values, level, SeededBits(index))
    rows = mechanism.hashed_rows[index]
    symbols, space = np.arange(rows.symbols), rows.geometry.space
    own = rows.points(population.metric.domain.to_unit(np.array(population.names[1:])))[0]
    row, point = np.divmod(symbols, space.points)
    inside = np.isin((point - own[row]) % space.points, space.members)
    odds = np.where(inside, np.exp(LEVELS[index]), 1.0)
    tally = np.bincount(reports, minlength=symbols.size)
    assert tally.size == symbols.size
    assert chisquare(tally, N * odds / odds.sum()).pvalue > FALSE_ALARM


def score_tails(mechanism: RankedDirections, z: Floats) -> Floats:
    """P(Z > z) and P(Z < -z) at the only level, z in (0, 1): ranks are order statistics of |Z|."""
    (k, inside), p, q = mechanism.sets[0], mechanism.inside[0], mechanism.outside[0]
    rank = np.arange(1, k // 2 + 1)[:, None]
    one = betaincc(0.5, (mechanism.dimension - 1) / 2, z**2)  # P(|Z| > z) of one direction
    larger = betainc(rank, k // 2 - rank + 1, one)
    chance = np.where(rank <= inside, float(p), float(q))
    return np.array([(chance * larger).sum(axis=0), float(q) * larger.sum(axis=0)])


every_vector = pytest.mark.parametrize(
    ("name", "dimension", "epsilon"),
    [
        *((name, d, e) for e in (1, 4) for name, d in (("hemisphere", 3), ("caps", 2))),
        *((name, d, e) for e in (2, 6) for name, d in (("lifted_caps", 2), ("caps", 4))),
    ],
)


def vectors(name: str, dimension: int, epsilon: int, **options: int) -> LocalMetric:
    keys = {"dimension": dimension, "radius": 1.0, "levels": [epsilon], "options": options}
    metric: LocalMetric = define(name="v", kind="vector_mean", mechanism=name, **keys)
    return metric


def both(metric: LocalMetric, x: Floats) -> tuple[Counts, Counts]:
    """Return 10,000 real reports of one value, and as many that are drawn from their law."""
    mechanism, held = metric.randomizer, np.tile(x, (10_000, 1))
    assert isinstance(mechanism, RankedDirections)
    real = metric.randomize(held, np.zeros(len(held), dtype=np.uint8), SeededBits(5))
    return real.astype(np.int64), vector_reports(mechanism, held, 0, np.random.default_rng(5))


@every_vector
def test_scores_of_vectors(name: str, dimension: int, epsilon: int) -> None:
    """On the sphere, with a fine grid: 20 cells of the score, the least of them from -1 on."""
    metric = vectors(name, dimension, epsilon, grid=2**14)
    mechanism, x = metric.randomizer, np.array([0.6, -0.8, 0.0, 0.0])[:dimension]
    assert isinstance(mechanism, RankedDirections)
    edges = np.linspace(0, 1, 11)[1:-1]
    above, below = score_tails(mechanism, np.append(edges, 0.0))
    law = np.diff([0, *below[:-1][::-1], below[-1], *(1 - above[:-1]), 1])
    along = lift(x[None])[0] if name == "lifted_caps" else x
    for reports in both(metric, x):
        score = reports @ along / np.linalg.norm(reports, axis=1)
        tally = np.histogram(score, [-2, *-edges[::-1], 0, *edges, 2])[0]
        assert chisquare(tally, law * len(reports)).pvalue > FALSE_ALARM


@every_vector
def test_vectors_are_drawn_as_they_are_reported(name: str, dimension: int, epsilon: int) -> None:
    """Inside the ball, rounded: cells of the first two coordinates; of two samples."""
    real, drawn = both(
        vectors(name, dimension, epsilon), np.array([0.5, -0.2, 0.1, 0.3])[:dimension]
    )
    edges = [np.quantile(real[:, i], np.linspace(0, 1, 9)[1:-1]) for i in (0, 1)]
    cells = [
        np.ravel_multi_index([np.searchsorted(e, x[:, i]) for i, e in enumerate(edges)], (8, 8))
        for x in (real, drawn)
    ]
    tallies = np.array([np.bincount(cell, minlength=64) for cell in cells])
    assert chi2_contingency(tallies[:, tallies.sum(axis=0) > 20]).pvalue > FALSE_ALARM


def test_the_operating_systems_bits_have_the_law_too() -> None:
    """Unseeded: fails in one run of a million."""
    metric = Population("randomized_response", 0.0, ()).metric
    level = np.full(N, 2, dtype=np.uint8)
    ones = int(metric.randomize(np.full(N, 1.0), level, SystemBits()).sum())
    p = 1 - flip_threshold(metric.randomizer.epsilons[2]) / WORD
    assert chisquare([ones, N - ones], [N * p, N * (1 - p)]).pvalue > FALSE_ALARM
