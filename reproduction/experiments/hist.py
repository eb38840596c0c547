"""Locally Private Histograms in All Privacy Regimes (HIST): largest errors over all categories.

Every report is randomized and decoded as in the product; nothing is clipped or normalised. The
paper's Figure 4 shows only bounds, because simulating every report was too expensive. For a point
mass the counts have a known law, from which they are drawn here; the product computes the
estimates.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from estimators import define
from estimators.bounds.signs.noise import FlipNoise
from estimators.estimate import Floats
from estimators.exact.randomness import SeededBits
from estimators.exact.thresholds import WORD, flip_threshold
from estimators.mechanisms import ProjectiveGeometryResponse
from estimators.metrics.local import LocalMetric
from estimators.shuffling.amplification import largest_level
from reproduction.baselines import clones_epsilon
from reproduction.outcome import Claim, Curve, Number, Outcome, Plot, Tick, steps
from reproduction.sampling import mean_and_error, quantile_and_error, summed

PROTOCOLS = {
    "RAPPOR": "rappor",
    "subset selection": "subset_selection",
    "PGR": "projective_geometry_response",
    "RHR": "recursive_hadamard",
    "HR": "hadamard_response",
    "k-RR": "grr",
}
PROTOCOLS_OF_FIGURE_3 = ("RAPPOR", "subset selection")
QUANTILES = [0.05 * i for i in range(1, 20)]


def zipf(categories: int, alpha: float) -> Floats:
    """Return frequencies in proportion to i^-alpha.

    Examples
    --------
    >>> zipf(2, 1).round(3)
    array([0.667, 0.333])
    """
    logs = -alpha * np.log(np.arange(1, categories + 1))
    weights = np.exp(logs - logs.max())
    frequencies: Floats = weights / weights.sum()
    return frequencies


def histogram(mechanism: str, categories: int, epsilon: float) -> LocalMetric:
    """Return a metric of one privacy level.

    Parameters
    ----------
    mechanism : str
        The mechanism's name.
    categories : int
        The number of categories.
    epsilon : float
        The metric's only level.
    """
    return define(
        name="m", kind="frequency", mechanism=mechanism, categories=categories, levels=[epsilon]
    )


def largest_errors(
    metric: LocalMetric, frequencies: Floats, users: int, runs: int, seed: int
) -> Floats:
    """Return the largest error over all categories in each run, for users drawn anew.

    Parameters
    ----------
    metric : LocalMetric
        A metric with one level.
    frequencies : ndarray of float64, shape (k,)
        The law of the users' categories.
    users : int
        The number of users in each run.
    runs : int
        The number of runs.
    seed : int
        The seed of users and reports.
    """
    rng, errors = np.random.default_rng(seed), np.empty(runs)
    level = np.zeros(users, np.uint8)
    for run in range(runs):
        values = rng.choice(frequencies.size, users, p=frequencies)
        statistic = summed(metric, values, level, SeededBits(seed + run))
        estimate = np.asarray(metric.estimate(statistic, bound="normal").value)
        held = np.bincount(values, minlength=frequencies.size) / users
        errors[run] = np.abs(estimate - held).max()
    return errors


def median(values: Floats, name: str) -> Number:
    """Return a median with its standard error."""
    return Number(name, *quantile_and_error(values, 0.5))


def figure_1(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return the distribution of l_inf errors for a point mass: epsilon = 5, k = 5000, n = 2000."""
    numbers, curves = [], []
    for name, mechanism in steps(PROTOCOLS.items(), tick):
        metric = histogram(mechanism, 5000, 5.0)
        errors = largest_errors(metric, zipf(5000, 2000), 2000, runs, seed)
        numbers.append(median(errors, name))
        curves.append(Curve(name, QUANTILES, np.quantile(errors, QUANTILES).tolist()))
    plot = Plot("share of runs", "l_inf", curves, (False, False))
    values = {number.name: number.ours for number in numbers}
    light, heavy = ("RAPPOR", "subset selection", "PGR"), ("RHR", "HR", "k-RR")
    claim = Claim(
        "RAPPOR, subsets and hyperplanes have half the error of the others, or less",
        2 * max(values[name] for name in light) < min(values[name] for name in heavy),
        ", ".join(f"{name} {value:.4f}" for name, value in values.items()),
    )
    return Outcome(numbers, [claim], plot)


def medians(
    points: dict[float, tuple[int, float, float]], runs: int, seed: int, tick: Tick
) -> tuple[list[Number], list[Curve]]:
    """Return the median of the l_inf error of 1000 users at each point, by protocol.

    `points`: the number of categories, epsilon and Zipf's exponent of each; the others are as for
    :func:`reproduction.running.run`.
    """
    numbers, curves = [], []
    for name, mechanism in PROTOCOLS.items():
        for categories, epsilon, alpha in points.values():
            metric = histogram(mechanism, categories, epsilon)
            errors = largest_errors(metric, zipf(categories, alpha), 1000, runs, seed)
            numbers.append(median(errors, f"{name}, Zipf({alpha:g})"))
            tick(len(numbers) / len(PROTOCOLS) / len(points))
        heights = [number.ours for number in numbers[-len(points) :]]
        curves.append(Curve(name, list(points), heights))
    return numbers, curves


def figure_2(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return medians of l_inf errors by Zipf's exponent: epsilon = 5, k = 500, n = 1000."""
    alphas = [0.0, 0.5, 1.0, 2.0, 2000.0]
    numbers, curves = medians({1 + a: (500, 5.0, a) for a in alphas}, runs, seed, tick)
    values = {number.name: number.ours for number in numbers}
    rappor = [values[f"RAPPOR, Zipf({alpha:g})"] for alpha in alphas]
    spread = max(rappor) / min(rappor)
    rises = {
        name: values[f"{name}, Zipf(2000)"] / values[f"{name}, Zipf(0)"]
        for name in ("subset selection", "PGR")
    }
    claims = [
        Claim("RAPPOR's error is the same for all data", spread < 1.1, f"within {spread:.3f}"),
        Claim(
            "the error of subsets and hyperplanes is larger for a point mass than for even data",
            min(rises.values()) > 1.1,
            ", ".join(f"{name} {ratio:.2f} times" for name, ratio in rises.items()),
        ),
    ]
    return Outcome(numbers, claims, Plot("1 + Zipf's exponent", "median l_inf", curves))


def figure_3(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return medians of l_inf errors for a point mass by epsilon: k = 100, n = 1000."""
    epsilons = [0.25, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0]
    _, curves = medians({e: (100, e, 2000.0) for e in epsilons}, runs, seed, tick)
    falls = {c.name: c.y[2] / c.y[4] for c in curves if c.name in PROTOCOLS_OF_FIGURE_3}
    claims = [
        Claim(
            "from epsilon 1 to 4 the error falls to a third or less",
            min(falls.values()) > 3,
            ", ".join(f"{name} {ratio:.1f}" for name, ratio in falls.items()),
        )
    ]
    return Outcome((), claims, Plot("epsilon", "median l_inf", curves))


def shuffle(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return Theorem 11's epsilon for a million users, and where it does not apply."""
    delta, users = 1e-6, 1_000_000
    epsilons = [0.25 * i for i in range(1, 41)]
    pairs = [(e, clones_epsilon(e, users, delta)) for e in epsilons]
    defined = [(e, shuffled) for e, shuffled in pairs if shuffled is not None]
    limit = math.log(users / (16 * math.log(2 / delta)))
    below = all(after <= epsilon for epsilon, after in defined)
    claims = [
        Claim(
            "the theorem applies exactly up to ln(n / (16 ln(2 / delta)))",
            defined[-1][0] <= limit < epsilons[len(defined)],
            f"{defined[-1][0]:g} <= {limit:.4f} < {epsilons[len(defined)]:g}",
        ),
        Claim("a shuffler never reduces privacy", below, f"{defined[3][1]:.4f} at epsilon = 1"),
    ]
    tick(1.0)
    line = Curve(f"n = {users:,}, delta = {delta:g}", *zip(*defined, strict=True))
    return Outcome((), claims, Plot("epsilon of a report", "epsilon after shuffling", [line]))


def crowd(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return medians of l_inf errors of shuffled PGR: central epsilon 1, k = 100, delta = 1e-8.

    The level is that of Lemma 7, ln(n / (256 ln(4 / delta))), or the largest that is proved here.
    """
    delta, categories = 1e-8, 100
    users = [2**16, 2**18, 2**20]
    levels: dict[str, list[float]] = {"lemma 7": [], "proved here": []}
    for n in users:
        levels["lemma 7"].append(math.floor(100 * math.log(n / (256 * math.log(4 / delta)))) / 100)
        proved = largest_level(
            lambda level: ProjectiveGeometryResponse([level], categories=categories).set_laws(0),
            n,
            1.0,
            delta,
        )
        levels["proved here"].append(float(proved))
    levels["no shuffler"] = [1.0] * len(users)
    numbers, curves = [], []
    for name, of_users in steps(levels.items(), tick):
        heights = []
        for n, level in zip(users, of_users, strict=True):
            metric = histogram("projective_geometry_response", categories, level)
            errors = largest_errors(metric, zipf(categories, 0), n, runs, seed)
            numbers.append(median(errors, f"{name}, n = {n:,}, level {level:g}"))
            heights.append(numbers[-1].ours)
        curves.append(Curve(name, users, heights))
    paper, proved_errors = curves[0].y, curves[1].y
    slope = math.log(paper[-1] / paper[0]) / math.log(users[-1] / users[0])
    gains = [a / b for a, b in zip(paper, proved_errors, strict=True)]
    claims = [
        Claim(
            "at the levels of Lemma 7 the error falls as 1 / n, or faster",
            slope < -0.95,
            f"slope {slope:.2f}",
        ),
        Claim(
            "the same promise holds at levels with a fifth of the error, or less",
            min(gains) > 5,
            ", ".join(f"{gain:.1f} times" for gain in gains),
        ),
    ]
    return Outcome(numbers, claims, Plot("users", "median l_inf", curves))


USERS, CATEGORIES = 10_000, 100_000
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0)
PER_TILT = 2_000


def lower_bound(epsilon: float) -> float:
    """Return the shape of Theorem 10, whose constants are not given."""
    log = math.log(CATEGORIES)
    return max(
        math.sqrt(log / USERS) / math.expm1(epsilon),
        math.sqrt(log / USERS) * math.exp(-epsilon / 2),
        log / (USERS * epsilon),
    )


def sub_gaussian_bound(epsilon: float) -> float:
    """Return Theorem 6's bound for RAPPOR, with ln 2k, because errors have two signs."""
    log = math.log(2 * CATEGORIES)
    return math.sqrt(2 * log / (math.tanh(epsilon / 4) * USERS * epsilon))


def geometry_bound(epsilon: float) -> float:
    """Return Theorem 9's bound for projective geometry response, which a point mass can exceed."""
    log, power = math.log(CATEGORIES + 1), math.exp(-epsilon)
    ratio = (2 + power) / (1 - power)
    first = 4 * ratio * math.sqrt(log * power / USERS)
    return first + 4 * ratio * log * math.log(USERS) / (epsilon * USERS)


def flip_chance(epsilon: float) -> float:
    """Return the probability with which the product flips a bit of RAPPOR."""
    return flip_threshold(Fraction(str(epsilon)) / 2) / WORD


def exact_bound(epsilon: float) -> float:
    """Return an upper bound of the mean largest error, from the law of the flips.

    E max <= min over t of (ln 2k + ln E e^(t noise)) / t, for noise of 2k sides. The noise is that
    of signs, twice as large as that of frequencies.
    """
    flip = flip_chance(epsilon)
    coefficient = 1 / (USERS * (1 - 2 * flip))
    noise = FlipNoise(np.array([float(USERS)]), np.array([coefficient]), np.array([flip]))
    normal = math.sqrt(2 * math.log(2 * CATEGORIES) / noise.variance)
    tilt = np.minimum(normal * np.geomspace(1e-3, 1e3, PER_TILT), noise.max_tilt)
    return float(((math.log(2 * CATEGORIES) + noise.cumulant(tilt)) / tilt).min()) / 2


def point_mass_errors(metric: LocalMetric, runs: int, seed: int) -> Floats:
    """Return the largest error in each run, if all users have the first category.

    Parameters
    ----------
    metric : LocalMetric
        A metric of `rappor` with one level.
    runs : int
        The number of runs.
    seed : int
        The seed of the sums, which are drawn from their law.
    """
    rng, errors = np.random.default_rng(seed), np.empty(runs)
    flip = flip_chance(float(metric.levels[0]))
    held = np.zeros(CATEGORIES)
    held[0] = 1
    for run in range(runs):
        statistic = metric.zero()
        statistic[0] = USERS
        statistic[1] = USERS - rng.binomial(USERS, flip)
        statistic[2:] = rng.binomial(USERS, flip, CATEGORIES - 1)
        estimate = np.asarray(metric.estimate(statistic, bound="normal").value)
        errors[run] = np.abs(estimate - held).max()
    return errors


def figure_4(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return bounds by epsilon, and RAPPOR's mean error: n = 10,000, k = 100,000."""
    numbers, means, lower_ends = [], [], []
    exact = [exact_bound(epsilon) for epsilon in EPSILONS]
    printed = [sub_gaussian_bound(epsilon) for epsilon in EPSILONS]
    for epsilon, bound in steps([*zip(EPSILONS, printed, strict=True)], tick):
        metric = histogram("rappor", CATEGORIES, epsilon)
        mean, error = mean_and_error(point_mass_errors(metric, runs, seed).tolist())
        means.append(mean)
        lower_ends.append(mean - 3 * error)
        numbers.append(Number(f"RAPPOR, epsilon = {epsilon:g}", mean, error, bound))
    high = EPSILONS.index(32.0)
    claims = [
        Claim(
            "the bound by the law holds, and is below Theorem 6's at every epsilon",
            all(m <= e <= p for m, e, p in zip(lower_ends, exact, printed, strict=True)),
            f"at epsilon = 1 {exact[2]:.4f} for {means[2]:.4f}, Theorem 6: {printed[2]:.4f}",
        ),
        Claim(
            "at large epsilons Theorem 6's bound is tens of times too large",
            printed[high] > 30 * means[high],
            f"at 32: error {means[high]:.2g}, the law's bound {exact[high]:.2g}, Theorem 6's "
            f"{printed[high]:.2g}, lower bound ~{lower_bound(32):.2g}",
        ),
    ]
    curves = [
        Curve("RAPPOR, mean error", EPSILONS, means),
        Curve("by the law of the flips", EPSILONS, exact),
        Curve("Theorem 6, RAPPOR", EPSILONS, printed),
        Curve("Theorem 9, PGR", EPSILONS, [geometry_bound(e) for e in EPSILONS]),
        Curve("Theorem 10, no constants", EPSILONS, [lower_bound(e) for e in EPSILONS]),
    ]
    notes = ["The paper's column is Theorem 6's bound; it gives neither k nor n of the figure."]
    return Outcome(numbers, claims, Plot("epsilon", "l_inf", curves), notes)
