"""Bets on counts of symbols: the remainders against tilted samples, widths, and differences."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from estimators import define
from estimators.bounds.piecewise.bets import log_expected_wealth
from estimators.bounds.piecewise.cells import CellBets, FourierRemainders, limits_in_all_cells
from estimators.bounds.piecewise.knot_gains import COARSE, FINE, log_fourier_remainders
from estimators.bounds.piecewise.limits import symbol_limits
from estimators.mechanisms import Piecewise
from estimators.question import Question
from estimators.weights import WEIGHTINGS
from tests.support.reports.cases import summed
from tests.support.rows import row
from tests.support.windows import Sample, knots_of

LOG_P = math.log(0.025)
FIVE = (0.25, 0.5, 1, 2, 4)
RECORDED = [
    # levels, reports, power of uniform values, beta, limits with four times as many nodes
    (FIVE, 3, 0.1, 0.05, 0.0, 1.0),
    (FIVE, 3, 8, 0.05, 0.0, 1.0),
    (FIVE, 30, 0.1, 0.05, 0.63860056, 1.0),
    (FIVE, 30, 8, 0.05, 0.0, 0.61412307),
    (FIVE, 300, 0.1, 0.05, 0.83123994, 0.97451063),
    (FIVE, 300, 8, 0.05, 0.05017123, 0.22337571),
    (FIVE, 1000, 0.1, 0.05, 0.84819632, 0.92451110),
    (FIVE, 1000, 8, 0.05, 0.09781691, 0.18085581),
    (FIVE, 10000, 0.1, 0.05, 0.89692453, 0.91802981),
    (FIVE, 10000, 8, 0.05, 0.10622822, 0.13115261),
    ((8,), 300, 8, 0.05, 0.06054663, 0.15263299),
    ((8,), 1000, 0.1, 0.3, 0.90529845, 0.91852155),
    ((4,), 100, 1, 0.0001, 0.37829418, 0.69747852),
    ((0.3, 0.6, 2), 100, 0.1, 0.0001, 0.48487790, 1.0),
    ((0.25, 1, 4, 8, 12), 30, 1, 0.05, 0.29152612, 0.69361081),
]


def mixed(n: float, *, free: bool) -> Sample:
    """Three levels of different weights."""
    return Sample(("0.5", "2", "6"), n * np.array([0.5, 0.3, 0.2]), (0.1, 0.3, 0.6), free=free)


@pytest.mark.parametrize("free", [False, True])
def test_the_expected_gain_is_known_whatever_the_data_are(free: bool) -> None:
    """Exactly for one mean, from above for means of their own."""
    rng, sample = np.random.default_rng(1), mixed(1000, free=free)
    law = sample.law
    for _ in range(20):
        means = rng.uniform(-0.9, 0.9, 3) if free else np.full(3, rng.uniform(-0.9, 0.9))
        spreads = rng.uniform(0, 0.1, 3)
        expected = [
            knots_of(shape, np.array([m - d, m + d])) @ chance
            for shape, chance, m, d in zip(law.shapes, sample.chances, means, spreads, strict=True)
        ]
        theta = float((law.counts * law.coefficient) @ means)
        bets = sample.bets([n * of for n, of in zip(law.counts, expected, strict=True)])
        for tilt in np.array([0.01, 0.3, 1.0]) * bets.max_tilt:
            grown = 1 + tilt * law.coefficient[:, None] * law.symbols.values
            of_one = np.einsum("lj,lj->l", bets.counts, grown) / law.counts
            exact = float(law.counts @ np.log(of_one))
            known = float(log_expected_wealth(law, np.array([tilt]), theta).value[0])
            assert known >= exact - 1e-9
            if not free:
                assert known == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "kind", "free"),
    [
        ("1", "narrow", False),
        ("4", "top", False),
        ("8", "ends", False),
        ("4", "uniform", True),
        ("8", "narrow", True),
    ],
)
def test_the_remainder_bounds_that_of_tilted_samples(epsilon: str, kind: str, free: bool) -> None:
    """R is at least E'[e^(x0 + K - W); W >= K + x0] for every x0, measured under the tilted law.

    With free means, users hold fixed values, and e^(K' - K) of the exact cumulant K' counts too.
    """
    n, rng = 400, np.random.default_rng(4)
    sample = Sample((epsilon,), np.array([float(n)]), (1.0,), free=free)
    values = sample.values(kind)
    values = values[::5] if free and len(values) == 200 else values
    law, (shape,), (chance,) = sample.law, sample.law.shapes, sample.chances
    users = [knots_of(shape, np.array([x])) for x in values] if free else [knots_of(shape, values)]
    each = np.array(users) @ chance
    means = each @ shape.values
    theta, spread = float(means.mean()), float((each @ shape.values**2).mean())
    tau2 = (spread - theta**2) / n
    bets, at = sample.bets([np.zeros(shape.symbols)]), np.array([tau2])
    cell = CellBets(
        law.rows(None), at / 1.02, at * 1.02, bets.max_tilt[None], LOG_P, np.zeros(1, dtype=int)
    )
    gain = np.log1p(cell.tilt / n * shape.values)
    tilted = each * np.exp(gain)
    exact = float(np.log(tilted.sum(axis=1)).sum()) * n / len(users)
    tilted /= tilted.sum(axis=1, keepdims=True)
    runs = 4000
    drawn = sum(rng.multinomial(n // len(users), row, size=runs) @ gain for row in tilted)
    known = float(log_expected_wealth(law, cell.tilt, theta).value[0])
    assert exact <= known + 1e-9
    above = np.sort(np.asarray(drawn)) - exact
    found = 0.0
    for x0 in np.quantile(above, np.linspace(0.02, 0.98, 49)):
        part = np.where(above >= x0, np.exp(np.minimum(x0 - above, 0)), 0.0)
        found = max(found, part.mean() - 4 * part.std() / math.sqrt(runs))
    low = np.array([[-1.0 if free else math.floor((theta + 1) * 4 - 1e-12) / 4 - 1]])
    parts = cell.log_berry_esseen(low, low + (2.0 if free else 0.25))
    for spacing in (FINE, COARSE):
        fourier, every = FourierRemainders(cell), np.zeros(1, dtype=int)
        fourier.refine(every, spacing)
        log_bound = float(cell.combine_remainders(every, parts, fourier)[0, 0])
        assert found <= math.exp(log_bound + (known - exact if free else 0.0))


@pytest.mark.parametrize("free", [False, True])
def test_mirrored_reports_have_mirrored_limits(free: bool) -> None:
    rng, sample = np.random.default_rng(2), mixed(900, free=free)
    laws = [
        knots_of(s, np.array([0.1, 0.9])) @ c
        for s, c in zip(sample.law.shapes, sample.chances, strict=True)
    ]
    bets = sample.draw(rng, laws)
    for bound in ("fixed", "anytime", "normal"):
        low, high = symbol_limits(bets, Question(bound=bound), LOG_P, 900.0)
        mirrored = symbol_limits(bets.mirrored(), Question(bound=bound), LOG_P, 900.0)
        assert mirrored == pytest.approx((-high, -low), abs=1e-9)
        assert low < bets.mean < high


def test_limits_are_in_order_around_the_estimate_within_the_range() -> None:
    """All reports are of one symbol: sides that fail half the time may both reject the estimate."""
    mechanism = Piecewise([Fraction(1), Fraction(2)])
    questions = itertools.product((0.9, 0.05), ("fixed", "anytime", "normal"), WEIGHTINGS)
    for symbol, n, (beta, bound, weights) in itertools.product((0, 9, 17), (1, 30), questions):
        table = np.zeros((2, mechanism.columns), dtype=np.int64)
        table[:, [0, 1 + symbol]] = n
        found = mechanism.estimate(table, Question(beta=beta, bound=bound, weights=weights))
        limits: Any = (-1, found.lower, np.clip(found.value, -1, 1), found.upper, 1)
        assert np.all(np.diff(limits) >= 0), (symbol, n, beta, bound, weights)


def test_limits_are_hardly_wider_than_with_all_nodes() -> None:
    """By less than 0.1% of a half-width; they may be narrower, and are by 1% here at most."""
    for levels, n, power, beta, lower, upper in RECORDED:
        metric: Any = define(name="m", kind="mean", range=(0, 1), levels=levels)
        values = np.random.default_rng(1).random(n) ** power
        estimate = metric.estimate(summed(metric, values, np.arange(n) % len(levels)), beta)
        wider = np.array([lower - estimate.lower, estimate.upper - upper]) * 2 / (upper - lower)
        with row(levels, n, power, beta):
            assert -0.01 < wider.min() <= wider.max() < 1e-3


def test_remainders_are_hardly_larger_than_with_short_steps() -> None:
    """Of two symbols, whose modulus comes back before the last node; and of few expected misses."""
    recorded = {"0.25": (1312.0, 0.99224, -1.0969), "16": (21412.0, 0.58394, -0.3383)}
    for spacing, epsilon in ((FINE, "0.25"), (COARSE, "0.25"), (FINE, "16")):
        n, noise_sd, with_short_steps = recorded[epsilon]
        law = Sample((epsilon,), np.array([n]), (1.0,), free=False).law.rows(None)
        tilts = noise_sd / np.sqrt(law.least_variances)
        assert log_fourier_remainders(law, tilts, spacing)[0] < with_short_steps + 0.05


def test_limits_hold_in_all_cells_whichever_cell_decides() -> None:
    """They are the widest ones of each cell by itself; it is not always that of most variance."""
    rng, log_p, deciding = np.random.default_rng(3), math.log(1e-3), set()
    sizes = ((40, False), (300, True))
    for (n, free), values in itertools.product(sizes, ((-1.0, 1.0), (0.1, 0.2))):
        sample = Sample(("8",), np.array([float(n)]), (1.0,), free=free)
        shape, chance = sample.law.shapes[0], sample.chances[0]
        bets = sample.draw(rng, [knots_of(shape, np.array(values)) @ chance]).rows(None)
        ends, no_limits = (bets.law.least_variances, bets.law.worst_variances), -np.ones((2, 1))

        def limits(interval: Any) -> Any:
            cells = CellBets.meeting(bets.law, interval, bets.max_tilt, log_p)  # noqa: B023
            return limits_in_all_cells(bets, cells, (no_limits[0], no_limits[1]))  # noqa: B023

        cells = CellBets.meeting(bets.law, ends, bets.max_tilt, log_p)
        middle = np.sqrt(cells.least_variance * cells.largest_variance)[:, None]
        each = np.array([limits((x, x)) for x in middle])
        deciding |= {*(each[..., 0].argmin(axis=0) == len(each) - 1).tolist()}
        with row(n, free, values):
            assert limits(ends) == pytest.approx(each.min(axis=0), abs=1e-9)
            for first in (0, len(each) - 2):
                pair = each[first : first + 2].min(axis=0)
                assert limits(middle[first : first + 2]) == pytest.approx(pair, abs=1e-9)
    assert deciding == {True, False}
