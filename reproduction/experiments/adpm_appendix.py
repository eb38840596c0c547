"""The appendix of ADPM: Figures 3 and 4, its examples and its remark."""

from __future__ import annotations

import numpy as np

from estimators.exact.randomness import SeededBits
from reproduction.baselines import acquisition_rates, separate_noise
from reproduction.experiments.adpm import (
    FME_INFERRED,
    acquisition_error,
    errors_beyond_sampling,
    trusted,
)
from reproduction.outcome import Claim, Curve, Number, Outcome, Plot, Tick
from reproduction.sampling import mean_and_error, summed

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
