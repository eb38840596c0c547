"""Mean Estimation Under Heterogeneous Privacy: Some Privacy Can Be Free (ADPM).

Values lie in [-1/2, 1/2]. Errors are mean squared errors, and logarithms are natural. Each user has
the largest of 255 levels that is not above the user's demand.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import Any

import numpy as np

from estimators import define
from estimators.estimate import Floats
from estimators.exact.randomness import SeededBits
from estimators.metrics.trusted import TrustedMetric
from reproduction.baselines import acquisition_rates, sampling_mechanism, separate_noise
from reproduction.outcome import Claim, Curve, Number, Outcome, Plot, Tick, steps
from reproduction.sampling import mean_and_error, summed

POLICIES = {"ADPM": "adpm", "PropDPM": "proportional", "UNI": "uniform-minimum"}
BASELINES = {"LDPE": separate_noise, "SM": sampling_mechanism}
TABLE_2 = {
    "high": {"ADPM": -9.3, "PropDPM": -9.0, "LDPE": -7.2, "SM": -6.5, "UNI": -5.1, "FME": -6.2},
    "low": {"ADPM": -8.1, "PropDPM": -8.1, "LDPE": -1.3, "SM": -7.9, "UNI": -7.1, "FME": -6.2},
}
LOG_EPSILONS = {"high": (-4.0, 2.0), "low": (-3.0, -2.0)}
WITHIN = {"LDPE": 0.3, "FME": 0.3}
USERS, DRAWS = 1000, 4
FME_INFERRED = "FME's formula is inferred from ADPM's description: see the code."
BETA_VARIANCE = 0.04


def trusted(levels: Any, **domain: Any) -> TrustedMetric:
    """Return a trusted metric: a mean, or a frequency if categories are given."""
    kind = "frequency" if "categories" in domain else "mean"
    levels = sorted({math.floor(10_000 * e + 1e-9) / 10_000 for e in levels})
    metric = define(name="m", kind=kind, trust="central", levels=levels, **domain)
    return TrustedMetric.require(metric)


def released_error(
    metric: TrustedMetric, statistic: Any, policy: str, seed: int, variance: float
) -> float:
    """Return the mean squared error of a release of values with this variance, exactly.

    Parameters
    ----------
    metric : TrustedMetric
        The metric.
    statistic : ndarray
        The statistic of the true values.
    policy : str
        The policy of the weights.
    seed : int
        The seed of the release's noise.
    variance : float
        The variance of the values.
    """
    released = metric.release(statistic, SeededBits(seed), policy, target="sample")
    assert released.privacy is not None  # noqa: S101
    used = released.counts > 0
    per_report = released.weights[used] / released.counts[used]
    scale = float((per_report / released.privacy[used]).max())
    return variance * float(released.counts[used] @ per_report**2) + 2 * scale**2


def demanded(spread: str, seed: int) -> tuple[TrustedMetric, Floats]:
    """Return a metric, and the demands of 1000 users with Table II's high or low variance."""
    low, high = LOG_EPSILONS[spread]
    demands = np.exp(np.random.default_rng(seed).uniform(low, high, USERS))
    return trusted(np.exp(np.linspace(low, high, 255)), range=(-0.5, 0.5)), demands


def table_2(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return the ln MSE of the mean of 1000 Beta(2, 3) values, averaged over drawn demands."""
    logs = defaultdict[tuple[str, str], list[float]](list)
    for spread, draw in steps([*itertools.product(TABLE_2, range(DRAWS))], tick):
        metric, demands = demanded(spread, DRAWS * seed + draw)
        errors = _errors(metric, demands, runs, seed + draw)
        for method, squares in errors.items():
            logs[spread, method].append(math.log(np.mean(squares)))
        logs[spread, "FME"].append(math.log(acquisition_error(demands, BETA_VARIANCE)))
    numbers = []
    for spread, papers in TABLE_2.items():
        for method, paper in papers.items():
            value, error = mean_and_error(logs[spread, method])
            name = f"{method}, {spread} variance of epsilon"
            numbers.append(Number(name, value, error, paper, WITHIN.get(method, 0.15)))
    return Outcome(numbers, notes=[FME_INFERRED])


def acquisition_error(demands: Floats, variance: float) -> float:
    """Return the mean squared error of FME on values with this variance, exactly."""
    rates = acquisition_rates(demands)
    return float((variance * (rates**2).sum() + 2) / rates.sum() ** 2)


def _errors(metric: TrustedMetric, demands: Floats, runs: int, seed: int) -> dict[str, list[float]]:
    level, rng, bits = metric.level_of(demands), np.random.default_rng(seed), SeededBits(seed)
    errors = defaultdict[str, list[float]](list)
    for _ in range(runs):
        values = rng.beta(2, 3, USERS)
        statistic = summed(metric, values - 0.5, level)
        for method, policy in POLICIES.items():
            released = metric.release(statistic, bits, policy, target="sample")
            errors[method].append((float(released.value) + 0.1) ** 2)
        for method, mechanism in BASELINES.items():
            errors[method].append((mechanism(values, demands, rng) - 0.4) ** 2)
    return errors


def errors_beyond_sampling(
    runs: int, seed: int, tick: Tick
) -> tuple[list[int], dict[str, list[float]]]:
    """Return the numbers n of users, and each method's MSE - 1/(12 n) for each n.

    Half of the users have epsilon 0.1, the others 0.15; values are uniform on [-1/2, 1/2]. The
    parameters are as for :func:`reproduction.running.run`.
    """
    metric = trusted((0.1, 0.15), range=(-0.5, 0.5))
    sizes, curves = [100, 300, 1000, 3000, 10_000], defaultdict[str, list[float]](list)
    for n in steps(sizes, tick):
        level = np.repeat([0, 1], [n // 2, n - n // 2]).astype(np.uint8)
        statistic = summed(metric, np.zeros(n), level)
        for method in ("ADPM", "UNI"):
            error = released_error(metric, statistic, POLICIES[method], seed, 1 / 12)
            curves[method].append(error - 1 / (12 * n))
        rng, demands = np.random.default_rng([seed, n]), np.array([0.1, 0.15])[level]
        squares = dict.fromkeys(BASELINES, 0.0)
        for _ in range(runs):
            values = rng.random(n)
            plain = (values.mean() - 0.5) ** 2  # subtracted here: of mean 1/(12 n)
            for method, mechanism in BASELINES.items():
                squares[method] += (mechanism(values, demands, rng) - 0.5) ** 2 - plain
        for method, total in squares.items():
            curves[method].append(float(total / runs))
    return sizes, curves


def figure_1a(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return n^2 (MSE - 1/(12 n)) of each method, for half of the users at 0.1, half at 0.15."""
    sizes, excess = errors_beyond_sampling(runs, seed, tick)
    curves = {name: [n**2 * e for n, e in zip(sizes, y, strict=True)] for name, y in excess.items()}
    claims = [
        Claim(
            "ADPM is best at every n",
            all(curves["ADPM"][i] <= min(c[i] for c in curves.values()) for i in range(len(sizes))),
            "at n = 10,000: "
            + ", ".join(f"{name} {curve[-1]:.0f}" for name, curve in curves.items()),
        ),
        Claim(
            "LDPE is worse than ADPM and UNI at every n",
            all(
                a > max(b, c)
                for a, b, c in zip(curves["LDPE"], curves["ADPM"], curves["UNI"], strict=True)
            ),
            f"{curves['LDPE'][0]:.0f} against {curves['ADPM'][0]:.0f} at n = 100",
        ),
        Claim(
            "the curve of SM rises with n",
            curves["SM"][-1] > 1.5 * curves["SM"][0],
            f"{curves['SM'][0]:.0f} at n = 100, {curves['SM'][-1]:.0f} at n = 10,000",
        ),
    ]
    lines = [Curve(method, sizes, y) for method, y in curves.items()]
    return Outcome((), claims, Plot("n", "n^2 (MSE - 1/(12 n))", lines))


def figure_1b(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return MSEs for 700 users at 0.1 and 300 at epsilon_2, with fair coins on -1/2 and 1/2."""
    ratio = 1 + 8 / (0.1**2 * USERS * 0.7)
    floor = ratio / (4 * USERS * (0.7 + 0.3 * ratio))
    seconds = [0.1001, 0.13, 0.16, 0.1 * ratio, 0.3, 0.5, 1.0, 3.0, 10.0]
    group = np.repeat([0, 1], [700, 300]).astype(np.uint8)
    curves = defaultdict[str, list[float]](list)
    for i, second in enumerate(steps(seconds, tick)):
        metric = trusted((0.1, second), range=(-0.5, 0.5))
        demands = np.array([0.1, second])[group]
        level = metric.level_of(demands)
        statistic = summed(metric, np.zeros(USERS), level)
        for method, policy in POLICIES.items():
            curves[method].append(released_error(metric, statistic, policy, seed, 1 / 4))
        rng = np.random.default_rng([seed, i])
        for method, mechanism in BASELINES.items():
            squares = [
                (mechanism(rng.integers(0, 2, USERS).astype(float), demands, rng) - 0.5) ** 2
                for _ in range(runs)
            ]
            curves[method].append(float(np.mean(squares)))
    flat = max(curves["ADPM"][3:]) / min(curves["ADPM"][3:])
    claims = [
        Claim(
            "ADPM's error does not fall for epsilon_2 above R epsilon_1",
            flat < 1.01,
            f"MSE x 10^4 = {1e4 * curves['ADPM'][3]:.3f} at {seconds[3]:.3f}, "
            f"{1e4 * curves['ADPM'][-1]:.3f} at 10; the paper's formula: {1e4 * floor:.3f}",
        ),
        Claim(
            "PropDPM is worse beyond that point",
            curves["PropDPM"][-1] > 1.5 * floor,
            f"{1e4 * curves['PropDPM'][-1]:.3f} at 10",
        ),
    ]
    numbers = [
        Number("MSE x 10^4 of ADPM at 10", 1e4 * curves["ADPM"][-1], 0, 1e4 * floor, 0.02),
        Number(
            "MSE x 10^4 of ADPM at 0.1", 1e4 * curves["ADPM"][0], 0,
            1e4 * (0.25 / USERS + 2 / (0.1 * USERS) ** 2), 0.02,
        ),
    ]  # fmt: skip
    lines = [Curve(method, seconds, y) for method, y in curves.items()]
    return Outcome(numbers, claims, Plot("epsilon_2", "MSE", lines))


RATIOS = (1.0, 1.5, 2.0, 4.0, 8.0, 12.0, 16.0, 17.0, 18.0, 32.0, 128.0, 512.0)
STATED_RATIO = 17.0
"""R = 1 + 8 / (epsilon_1^2 n f) of Example 1: epsilon_1 = 0.01, n = 10,000, f = 1/2."""


def weight_ratio(ratio: float, seed: int) -> float:
    """Return ADPM's w_2 / w_1 in Example 1, where `ratio` is epsilon_2 / epsilon_1."""
    if ratio == 1:
        return 1.0
    metric = trusted((0.01, 0.01 * ratio), range=(-0.5, 0.5))
    level = np.repeat([0, 1], 5000).astype(np.uint8)
    statistic = summed(metric, np.zeros(10_000), level)
    released = metric.release(statistic, SeededBits(seed), "adpm", target="sample")
    return float(released.weights[1] / released.weights[0])


def stretching(runs: int, seed: int) -> tuple[float, float]:
    """Return the squared error of Example 2: values shrunk by epsilon_i / 0.1, noise for 0.1.

    All 1000 users have the value 1/2; half of them have epsilon 0.01, the others 0.1.
    """
    users = 1000
    shrunk = np.repeat([0.1, 1.0], users // 2) * 0.5
    noise = np.random.default_rng([seed, 2]).laplace(scale=1 / (0.1 * users), size=runs)
    return mean_and_error(((shrunk.mean() + noise - 0.5) ** 2).tolist())


def public_half(runs: int, seed: int) -> tuple[float, float]:
    """Return LDPE's squared error of Remark 2: 700 users at 0.1 and 300 whose data are public."""
    rng, demands = np.random.default_rng([seed, 3]), np.repeat([0.1, 1e9], [700, 300])
    squares = []
    for _ in range(runs):
        values = rng.integers(0, 2, demands.size).astype(float)
        squares.append((separate_noise(values, demands, rng) - 0.5) ** 2)
    return mean_and_error(squares)


def figure_3(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return n (MSE - 1/(12 n)), Example 1's ratio of weights, errors of Example 2 and Remark 2."""
    sizes, excess = errors_beyond_sampling(runs, seed, lambda share: tick(0.9 * share))
    curves = {name: [n * e for n, e in zip(sizes, y, strict=True)] for name, y in excess.items()}
    curves["FME"] = [
        n * acquisition_error(np.repeat([0.1, 0.15], [n // 2, n - n // 2]), 1 / 12) - 1 / 12
        for n in sizes
    ]
    rates = acquisition_rates(np.repeat([0.01, 5.12], 5000))
    weight_ratios = [weight_ratio(ratio, seed) for ratio in RATIOS]
    biased, biased_error = stretching(10 * runs, seed)
    public, public_error = public_half(runs, seed)
    saturated = 1 + 8 / (0.1**2 * 700)
    limit = saturated / (4 * 1000 * (0.7 + 0.3 * saturated))
    tick(1.0)
    numbers = [
        Number("w_2 / w_1 of ADPM at epsilon_2 = 5.12", weight_ratios[-1], 0, STATED_RATIO, 0.01),
        Number(
            "w_2 / w_1 of FME at epsilon_2 = 5.12", float(rates[-1] / rates[0]), 0, 2**0.5, 0.01
        ),
        Number("MSE of stretching, n = 1000", biased, biased_error, 0.05 + 200 / 1000**2, 0.001),
        Number(
            "MSE x 10^4 of LDPE, 300 public", 1e4 * public, 1e4 * public_error, 1e4 * limit, 0.1
        ),
    ]
    follows = all(
        abs(w - min(ratio, STATED_RATIO)) < 0.01 * ratio
        for ratio, w in zip(RATIOS, weight_ratios, strict=True)
    )
    better = all(a < b for a, b in zip(curves["ADPM"], curves["LDPE"], strict=True))
    claims = [
        Claim(
            "ADPM is better than LDPE at every n",
            better,
            f"{curves['ADPM'][0]:.3f} against {curves['LDPE'][0]:.3f} at n = 100",
        ),
        Claim(
            "FME is an order of magnitude worse than ADPM at n = 10,000",
            curves["FME"][-1] > 10 * curves["ADPM"][-1],
            f"{curves['FME'][-1]:.3f} against {curves['ADPM'][-1]:.3f}",
        ),
        Claim(
            "the weights follow epsilon_2 / epsilon_1 up to R, and stay there",
            follows,
            f"{weight_ratios[3]:.3f} at 4, {weight_ratios[-1]:.3f} at {RATIOS[-1]:g}; "
            f"R = {STATED_RATIO:g}",
        ),
    ]
    plot = Plot("n", "n (MSE - 1/(12 n))", [Curve(name, sizes, y) for name, y in curves.items()])
    return Outcome(numbers, claims, plot, [FME_INFERRED])
