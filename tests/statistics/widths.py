"""Print how wide the bounds are, as a multiple of the normal law's width.

``python -m tests.statistics.widths`` prints the table of docs/bounds.md.

Reports are spread evenly over levels 0.25, 0.5, 1, 2 and 4, weights are optimal, beta is 0.05. The
sums are put at their expectation; the normal width takes the true standard deviation there.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri
from scipy.stats import chi2

from estimators.bounds import (
    Directions,
    Law,
    flip_noise_deviation,
    interval,
    laplace_noise_deviation,
)
from estimators.bounds.spheres import width
from estimators.discrete_laplace import variance
from estimators.thresholds import WORD, flip_threshold
from tests.estimators.cases import exact

if TYPE_CHECKING:
    from collections.abc import Callable

LEVELS = np.array([0.25, 0.5, 1, 2, 4])
SIZES = (1_000, 10_000, 100_000, 1_000_000)
GRID = 1024
BETA = 0.05


def signs(n: int, part: int, k: int, *, free: bool) -> Law:
    """Return the law of randomized response (part 1) or RAPPOR (part 2), free: uniform weights."""
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


def ratio(law: Law, theta: float, k: int = 1) -> float:
    """Return the width of the interval over the normal one, the domain's ends taken off both."""
    log_p = np.log(BETA / 2 / k)
    lower, upper = interval(law, np.array([theta]), log_p)
    half = -ndtri(np.exp(log_p)) * np.sqrt(law.largest_variance(np.array([theta])))[0]
    normal = min(1.0, theta + half) - max(-1.0, theta - half)
    return float((upper - lower)[0] / normal)


def noise_ratio(n: int, k: int) -> tuple[float, float]:
    """Return the same for the noise alone: Laplace, and RAPPOR with k categories."""
    law, signed = laplace(n), signs(n, 2, k, free=False)
    assert law.rate is not None
    deviation = laplace_noise_deviation(
        law.counts, law.coefficient, law.rate, law.unit, np.log(BETA / 2)
    )
    sd = np.sqrt(law.counts @ (law.coefficient**2 * variance(law.rate))) * law.unit
    log_p, flip = np.log(BETA / 2 / k), (1 - signed.contrast) / 2
    flips = flip_noise_deviation(signed.counts, signed.coefficient, flip, log_p)
    noise = np.sqrt(signed.counts @ (signed.coefficient**2 * 4 * flip * (1 - flip)))
    return (
        float(deviation / (-ndtri(BETA / 2) * sd)),
        float(flips / (-ndtri(np.exp(log_p)) * noise)),
    )


def vector_ratios(n: int, dimension: int) -> tuple[float, float, float]:
    """Return a coordinate's width, the radius and McDiarmid's, over those of the normal law."""
    contrast, counts = np.tanh(LEVELS / 2), np.full(5, n / 5)
    coefficient = contrast / (counts @ contrast**2) * width(dimension)
    law = Directions(dimension, counts, coefficient, contrast, 2.0**-14)
    sd = np.sqrt(counts @ coefficient**2 / dimension)
    log_p = np.log(BETA / 2 / dimension)
    normal = sd * np.sqrt(chi2.isf(BETA, dimension))
    mcdiarmid = np.sqrt(law.variance) * (1 + np.sqrt(-2 * np.log(BETA)))
    return (
        float(law.coordinate_deviation(log_p) / (-ndtri(np.exp(log_p)) * sd)),
        float(law.radius(np.log(BETA)) / normal),
        float(mcdiarmid / normal),
    )


def main() -> None:
    """Print the table of docs/bounds.md."""
    rows: dict[str, Callable[[int], float]] = {
        "randomized response, mean 0": lambda n: ratio(signs(n, 1, 2, free=False), 0.0),
        "randomized response, mean 0.9": lambda n: ratio(signs(n, 1, 2, free=False), 0.9),
        "randomized response, `uniform` weights, mean 0": lambda n: ratio(
            signs(n, 1, 2, free=True), 0.0
        ),
        "RAPPOR, k = 16, frequency 0.3": lambda n: ratio(signs(n, 2, 16, free=False), -0.4, 16),
        "RAPPOR, k = 1024, frequency 0.3": lambda n: ratio(
            signs(n, 2, 1024, free=False), -0.4, 1024
        ),
        "Laplace, signs with mean 0": lambda n: ratio(laplace(n), 0.0),
        "Laplace, signs with mean 0.9": lambda n: ratio(laplace(n), 0.9),
        "Laplace, `uniform` weights, mean 0": lambda n: ratio(laplace(n, free=True), 0.0),
        "Laplace, users' own values": lambda n: noise_ratio(n, 16)[0],
        "RAPPOR, k = 16, users' own values": lambda n: noise_ratio(n, 16)[1],
    }
    out = sys.stdout
    out.write("| bound | " + " | ".join(f"{n:,} reports" for n in SIZES) + " |\n")
    out.write("|---|" + "---|" * len(SIZES) + "\n")
    for name, measure in rows.items():
        out.write(f"| {name} | " + " | ".join(f"{measure(n):.3f}" for n in SIZES) + " |\n")
    out.write("\nvectors: coordinate / l2 radius, and McDiarmid's radius\n")
    for dimension in (2, 10, 100, 1024, 4096):
        found = [vector_ratios(n, dimension) for n in SIZES]
        cells = [f"{coordinate:.3f} / {radius:.3f}" for coordinate, radius, _ in found]
        out.write(f"| {dimension} | " + " | ".join(cells) + f" | {found[0][2]:.2f} |\n")


if __name__ == "__main__":
    main()
