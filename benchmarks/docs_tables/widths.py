"""Print how wide the bounds are, as a multiple of the normal law's width.

``python -m benchmarks.docs_tables.widths`` prints the tables of docs/bounds.md.

Reports are spread evenly over levels 0.25, 0.5, 1, 2 and 4, weights are optimal, beta is 0.05. The
sums are put at their expectation; the normal width takes the true standard deviation there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import chi2

from benchmarks.docs_tables import print_table
from estimators.bounds import Directions, Law, interval
from estimators.bounds.block_differences.limits import difference_limits
from estimators.bounds.mixtures import deviation_bound
from estimators.bounds.piecewise.bets import SymbolBets
from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.bounds.piecewise.limits import symbol_limits
from estimators.bounds.signs.own_values import own_value_limits
from estimators.bounds.spheres import inverse_mean_size
from estimators.estimate import Floats
from estimators.exact.discrete_laplace import variance
from estimators.exact.thresholds import WORD, flip_threshold
from estimators.mechanisms import CountSketch, Piecewise, ProjectiveSketch, mechanism_class
from estimators.mechanisms.shared.block_differences import BlockDifferences
from estimators.question import Question
from estimators.weights import level_weights, total_weight
from tests.support.reports.cases import exact
from tests.support.windows import knots_of

Rows = dict[str, Callable[[int], float]]
LEVELS = np.array([0.25, 0.5, 1, 2, 4])
SIZES = (1_000, 10_000, 100_000, 1_000_000)
GRID = 1024
NAMES = (
    "grr",
    "oue",
    "subset_selection",
    "projective_geometry_response",
    "projection",
    "hadamard_response",
    "recursive_hadamard",
)
BETA = 0.05
UNIFORM_WEIGHTS, OWN_VALUES = "`uniform` weights", "users' own values"


def signs(n: int, part: int, k: int, *, free: bool) -> Law:
    """Return the law of randomized response (`part` 1) or RAPPOR (2); `free`: uniform weights."""
    flip = np.array([flip_threshold(exact(e) / part) / WORD for e in LEVELS])
    contrast, counts = 1 - 2 * flip, np.full(5, n / 5)
    share = counts / (flip * (1 - flip) / contrast**2 + (1 - 1 / k) / k)
    if free:
        share = counts
    return Law(counts, share / share.sum() / (counts * contrast), contrast, free=free)


def laplace(n: int, *, free: bool = False) -> Law:
    """Return the law of the Laplace mechanism with optimal weights, or uniform ones."""
    rate, counts = LEVELS / (2 * GRID), np.full(5, n / 5)
    share = counts if free else counts / (1 + variance(rate) / GRID**2)
    return Law(counts, share / share.sum() / counts, np.ones(5), rate, 1 / GRID, free)


def ratio(law: Law, theta: float, k: int = 1, *, ever: bool = False) -> float:
    """Return the width of the interval over the normal width, both within the domain.

    `ever`: whether the bound holds at all times at once.
    """
    log_p, sd, total = np.log(BETA / 2 / k), np.ones_like(law.counts), None
    if ever:
        if law.rate is not None:
            sd = np.sqrt(1 + variance(law.rate) * law.unit**2)
        total = float(1 / (law.coefficient * sd).max())
    lower, upper = interval(law, np.array([theta]), log_p, total)
    half = -ndtri(np.exp(log_p)) * np.sqrt(law.largest_variance(np.array([theta])))[0]
    normal = min(1.0, theta + half) - max(-1.0, theta - half)
    return float((upper - lower)[0] / normal)


def likelihood_ratio(n: int, theta: float) -> float:
    """Return the ratio, for comparison, of likelihood ratios with a uniform prior over theta."""
    law = signs(n, 1, 2, free=False)
    ones = law.counts * (1 + law.contrast * theta) / 2
    grid = np.linspace(-1, 1, 200_001)[1:-1, None]
    log = np.log1p(grid * law.contrast) @ ones + np.log1p(-grid * law.contrast) @ (
        law.counts - ones
    )
    covered = grid[log >= log.max() + np.log(np.exp(log - log.max()).mean()) + np.log(BETA), 0]
    half = -ndtri(BETA / 2) * np.sqrt(law.largest_variance(np.array([theta])))[0]
    return float((covered[-1] - covered[0]) / (min(1.0, theta + half) - max(-1.0, theta - half)))


def normal_mixture(n: int, tuned: int = 100_000) -> float:
    """Return the ratio of the normal mixture of sub-Gaussian sums, tuned to `tuned` reports."""
    law = signs(n, 1, 2, free=False)
    intrinsic, target = 1 / law.worst_variance, 1 / signs(tuned, 1, 2, free=False).worst_variance
    rho = 0.1218 * target
    log = -2 * np.log(BETA) + np.log1p(intrinsic / rho)
    return float(np.sqrt((1 + rho / intrinsic) * log) / -ndtri(BETA / 2))


def window_noise(n: int, levels: Floats, *, ever: bool = False) -> float:
    """Return the ratio for the noise of `windows`; the normal width has the worst variance."""
    mechanism = Piecewise([exact(e) for e in levels])
    counts = np.full(len(levels), n // len(levels))
    law = mechanism.law(counts, level_weights("optimal", counts, mechanism.facts))
    noise, log_p = mechanism.noise(law, counts), float(np.log(BETA / 2))
    assert noise is not None
    margin = noise.deviation(log_p)
    if ever:
        total = total_weight("optimal", counts, mechanism.facts)
        margin = deviation_bound(noise.cumulant, noise.max_tilt, log_p, total)
    return float(margin / (-ndtri(BETA / 2) * np.sqrt(noise.variance)))


def window_population(
    n: int,
    levels: Floats,
    data: tuple[float, float],
    *,
    weights: str = "optimal",
    ever: bool = False,
) -> float:
    """Return the ratio for the mean of a population, from counts of symbols at their expectation.

    Values are uniform in [data[0], data[1]]; if these are -1 and 1 and `weights` is "ends", they
    are -1 or 1.
    """
    ends = weights == "ends"
    question = Question(
        bound="anytime" if ever else "fixed",
        weights="uniform" if weights == "uniform" else "optimal",
    )
    mechanism = Piecewise([exact(e) for e in levels])
    counts = np.full(len(levels), n // len(levels))
    shares = level_weights(question.weights, counts, mechanism.facts)
    law = mechanism.law(counts, shares, question)
    assert isinstance(law, PiecewiseLaw)
    values = np.array(data) if ends else np.linspace(*data, 2001)[:-1] + (data[1] - data[0]) / 4000
    table, theta, spread = np.zeros((len(levels), mechanism.columns - 1)), 0.0, 0.0
    for row, shape, reports, s in zip(
        table, mechanism.shapes, counts, law.coefficient, strict=True
    ):
        chance = knots_of(shape, values) @ shape.chances
        row[: shape.symbols] = reports * chance
        mean = float(chance @ shape.values)
        theta += reports * s * mean
        spread += reports * s**2 * (float(chance @ shape.values**2) - mean**2)
    total = total_weight(question.weights, counts, mechanism.facts)
    lower, upper = symbol_limits(SymbolBets(law, table), question, float(np.log(BETA / 2)), total)
    half = float(-ndtri(BETA / 2) * np.sqrt(spread))
    normal = min(1.0, theta + half) - max(-1.0, theta - half)
    return float(upper - lower) / normal


def supported(name: str, n: int, k: int, f: float, **asked: Any) -> float:
    """Return the ratio for one category of a frequency mechanism, at frequency f."""
    constructor: Any = mechanism_class(name, "frequency")
    mechanism = constructor([exact(e) for e in LEVELS], categories=k)
    counts, question = np.full(5, n // 5), Question(**asked)
    shares = level_weights(question.weights, counts, mechanism.facts)
    target, log_p = question.target, np.log(BETA / 2 / k)
    total = total_weight(question.weights, counts, mechanism.facts)
    if isinstance(mechanism, BlockDifferences):
        law = mechanism.law(counts, shares, question)
        # the block's other categories hold their share of the rest, all alike
        share_of_others = (1 - f) / (k - 1)
        held = np.array(
            [f + share_of_others * (-(-k // blocks) - 1) for blocks in mechanism.blocks]
        )
        block_chance = 2 * mechanism.p_else + held * mechanism.contrast
        sums, sizes = ((counts * x)[None, :, None] for x in (mechanism.contrast * f, block_chance))
        limits = difference_limits(law.rows(None), sums, sizes, question, log_p, np.array([total]))
        lower, upper = (x[0] for x in limits)
        report_variance = block_chance - mechanism.contrast**2 * (f if target == "sample" else f**2)
    else:
        law = mechanism.signs.law(counts, shares, question)
        ever = total if question.bound == "anytime" else None
        lower, upper = interval(law, np.array([2 * f - 1]), log_p, ever)
        if target == "sample":
            means = law.means(np.array([2 * f - 1]))[0]
            signs, totals = (
                (law.counts * means)[None, :, None],
                None if ever is None else np.array([ever]),
            )
            (lower,), (upper,) = own_value_limits(law.rows(None), signs, log_p, totals)
        lower, upper = (1 + lower) / 2, (1 + upper) / 2
        p, q = mechanism.signs.p, mechanism.signs.q
        report_variance = law.variances(np.array([2 * f - 1]))[0] / 4
        if target == "sample":
            report_variance = f * p * (1 - p) + (1 - f) * q * (1 - q)
    spread = law.counts @ (law.coefficient**2 * report_variance)
    half = float(-ndtri(np.exp(log_p)) * np.sqrt(spread))
    normal = min(1.0, f + half) - max(0.0, f - half)
    return float((upper - lower)[0] / normal)


def sketched(n: int, f: float) -> float:
    """Return the ratio for one of ten strings of a count sketch, to the width of noise alone."""
    sketch = CountSketch([exact(e) for e in LEVELS], categories=None)
    counts, question = np.full(5, n // 5), Question()
    law = sketch.law(counts, level_weights("optimal", counts, sketch.facts), question)
    chance, ten = sketch.chance(np.full(5, f)), np.full(10, f)
    sizes, total = np.tile((counts * chance)[:, None], 10), 1.0
    spread = law.counts @ (law.coefficient**2 * (chance - (sketch.contrast * f) ** 2))
    scatter = np.full(10, spread)  # no collisions to speak of, as where no string is frequent
    lower, upper = sketch.collisions.limits(law, ten, scatter, sizes, question, total, free=False)
    half = -float(ndtri(np.exp(question.log_p(10)))) * float(np.sqrt(spread))
    return float((upper - lower)[0] / (min(1.0, f + half) - max(0.0, f - half)))


def looked_up(n: int, f: float) -> float:
    """Return the ratio for one of ten strings of a projective sketch.

    The number of collisions is the average one; the normal width includes only the reports' noise.
    """
    sketch = ProjectiveSketch([exact(e) for e in LEVELS], categories=None)
    counts, p, q = np.full(5, n // 5), sketch.signs.p, sketch.signs.q
    points = np.array([rows.geometry.points for rows in sketch.hashed_rows])
    chance = q + (p - q) * (f + (1 - f) / points)
    support = np.tile(np.rint(counts * chance)[:, None], 10).astype(np.int64)
    estimate = sketch.estimate_support(counts, support, Question())
    scale = estimate.weights / (p - q) / (1 - 1 / points)
    spread = float(scale**2 @ (chance * (1 - chance) / counts))
    half = -float(ndtri(np.exp(Question().log_p(10)))) * float(np.sqrt(spread))
    width = np.asarray(estimate.upper - estimate.lower)[0]
    return float(width / (min(1.0, f + half) - max(0.0, f - half)))


def vector_ratios(n: int, dimension: int) -> tuple[float, float, float]:
    """Return a coordinate's width, the radius and McDiarmid's, over those of the normal law."""
    contrast, counts = np.tanh(LEVELS / 2), np.full(5, n / 5)
    coefficient = contrast / (counts @ contrast**2) * inverse_mean_size(dimension)
    law = Directions(dimension, counts, coefficient, 2.0**-14, contrast)
    sd = np.sqrt(counts @ coefficient**2 / dimension)
    log_p = np.log(BETA / 2 / dimension)
    normal = sd * np.sqrt(chi2.isf(BETA, dimension))
    mcdiarmid = np.sqrt(law.variance) * (1 + np.sqrt(-2 * np.log(BETA)))
    return (
        float(law.coordinate_deviation(log_p) / (-ndtri(np.exp(log_p)) * sd)),
        float(law.radius(np.log(BETA)) / normal),
        float(mcdiarmid / normal),
    )


def _rows(*, ever: bool) -> Rows:
    """Return what both tables have: laws of signs and of noise, and frequency mechanisms."""
    laws: list[tuple[str, Callable[[int], Law], float, int]] = [
        ("randomized response, mean 0", lambda n: signs(n, 1, 2, free=False), 0.0, 1),
        ("randomized response, mean 0.9", lambda n: signs(n, 1, 2, free=False), 0.9, 1),
        (
            f"randomized response, {UNIFORM_WEIGHTS}, mean 0",
            lambda n: signs(n, 1, 2, free=True),
            0.0,
            1,
        ),
        ("RAPPOR, k = 16, frequency 0.3", lambda n: signs(n, 2, 16, free=False), -0.4, 16),
        ("RAPPOR, k = 1024, frequency 0.3", lambda n: signs(n, 2, 1024, free=False), -0.4, 1024),
        ("Laplace, signs with mean 0", laplace, 0.0, 1),
        ("Laplace, signs with mean 0.9", laplace, 0.9, 1),
        (f"Laplace, {UNIFORM_WEIGHTS}, mean 0", functools.partial(laplace, free=True), 0.0, 1),
    ]

    def measured(n: int, law: Callable[[int], Law], theta: float, k: int) -> float:
        return ratio(law(n), theta, k, ever=ever)

    rows: Rows = {
        title: functools.partial(measured, law=law, theta=theta, k=k)
        for title, law, theta, k in laws
    }
    rows[f"`windows`, {OWN_VALUES}"] = functools.partial(window_noise, levels=LEVELS, ever=ever)
    rows |= _populations(ever=ever)
    cases = ((16, 0.3), (1024, 0.0)) if ever else ((16, 0.3), (1024, 0.3), (1024, 0.0))
    rows |= {
        f"`{name}`, k = {k}, frequency {f:g}": functools.partial(
            supported, name, k=k, f=f, bound="anytime" if ever else "fixed"
        )
        for name in NAMES
        for k, f in cases
    }
    return rows


def main() -> None:
    """Print the table of docs/bounds.md."""
    rows = _rows(ever=False)
    for epsilon in (1, 2, 4, 8):
        title = f"`windows`, {OWN_VALUES}, only level {epsilon}"
        rows[title] = functools.partial(window_noise, levels=np.array([epsilon]))
    for f in (0.3, 0.0):
        for name in ("auto", "repetition"):
            rows[f"`{name}`, k = 16, frequency {f:g}"] = functools.partial(
                supported, name, k=16, f=f
            )
        rows[f"`count_sketch`, ten strings, frequency {f:g}"] = functools.partial(sketched, f=f)
        rows[f"`projective_sketch`, ten strings, frequency {f:g}"] = functools.partial(
            looked_up, f=f
        )
    for name in NAMES:
        for weights, suffix in (("optimal", ""), ("uniform", f", {UNIFORM_WEIGHTS}")):
            rows[f"`{name}`, k = 16, frequency 0.3, {OWN_VALUES}{suffix}"] = functools.partial(
                supported, name, k=16, f=0.3, target="sample", weights=weights
            )
    _print("bound", rows)
    compared = "for comparison: likelihood ratios, uniform prior, mean 0"
    rows = _rows(ever=True) | {compared: functools.partial(likelihood_ratio, theta=0.0)}
    rows["for comparison: normal mixture tuned to 100,000 reports"] = normal_mixture
    _print("bound for all times", rows)


def _populations(*, ever: bool) -> Rows:
    """Return the rows of populations of `windows`."""
    rows = [
        ("values -1 and 1", LEVELS, (-1.0, 1.0), "ends"),
        ("values in [-1, 1]", LEVELS, (-1.0, 1.0), "optimal"),
        ("values in [-1, 1], `uniform` weights", LEVELS, (-1.0, 1.0), "uniform"),
        ("values in [0.2, 0.4]", LEVELS, (0.2, 0.4), "optimal"),
    ]
    for epsilon in (1, 2, 4, 8):
        levels = np.array([epsilon])
        rows.append((f"values in [-1, 1], only level {epsilon}", levels, (-1.0, 1.0), "optimal"))
    rows.append(("values -1 and 1, only level 8", np.array([8]), (-1.0, 1.0), "ends"))
    rows.append(("values in [0.2, 0.4], only level 8", np.array([8]), (0.2, 0.4), "optimal"))
    return {
        f"`windows`, {title}": functools.partial(
            window_population, levels=levels, data=data, weights=weights, ever=ever
        )
        for title, levels, data, weights in (rows[:4] if ever else rows)
    }


def _print(title: str, rows: Rows) -> None:
    print_table(
        [title, *(f"{n:,} reports" for n in SIZES)],
        ([name, *(f"{measure(n):.3f}" for n in SIZES)] for name, measure in rows.items()),
    )
    print("\nvectors: coordinate / l2 radius, and McDiarmid's radius")
    for dimension in (2, 10, 100, 1024, 4096):
        ratios = [vector_ratios(n, dimension) for n in SIZES]
        cells = [f"{coordinate:.3f} / {radius:.3f}" for coordinate, radius, _ in ratios]
        print(f"| {dimension} | " + " | ".join(cells) + f" | {ratios[0][2]:.2f} |")
    print()


if __name__ == "__main__":
    main()
