"""Distributions: the error of Dither's display, beside that of six rivals, on five data sets."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from estimators import define
from estimators.distribution import DistributionEstimate
from estimators.estimate import Counts, Floats
from estimators.exact.randomness import SeededBits
from estimators.metrics.local import LocalMetric
from reproduction.experiments.distribution.data import populations
from reproduction.experiments.distribution.square_wave import square_wave_cdf
from reproduction.experiments.distribution.trees import ascending, haar_hrr_cdf, tree_cdf
from reproduction.outcome import Claim, Number, Outcome, Tick, mean_and_error

CASES: list[tuple[int, int, float]] = [
    (256, 10_000, 0.5),
    (256, 10_000, 1),
    (256, 100_000, 0.5),
    (256, 100_000, 1),
    (256, 100_000, 2),
    (256, 100_000, 4),
    (256, 1_000_000, 1),
    (64, 100_000, 1),
    (1024, 100_000, 1),
]
"""The number of bins, the number of reports, and epsilon of each case."""
IN_FULL = (256, 100_000, 1)
"""The case for which all measures are shown; for the other cases only the Kolmogorov-Smirnov
distance is shown."""
MEASURES = ("KS", "W1", "p50", "p99")
SMOOTH, ATOM = "beta", 0.1
Rival = Callable[[Counts, float, np.random.Generator], Floats]


def _tree(branching: int) -> Rival:
    return lambda counts, epsilon, rng: ascending(
        tree_cdf(counts, min(branching, counts.size), epsilon, rng)
    )


TREE, HAAR, WAVE = "tree of 2", "HaarHRR", "Square Wave"
RIVALS: dict[str, Rival] = {
    TREE: _tree(2),
    "tree of 4": _tree(4),
    "tree of 16": _tree(16),
    HAAR: lambda counts, epsilon, rng: ascending(haar_hrr_cdf(counts, epsilon, rng)),
    "flat histogram": _tree(1 << 12),
    WAVE: square_wave_cdf,
}


def errors(estimated: Floats, truth: Floats) -> Floats:
    """Return four errors of a distribution function, in %.

    They are the largest distance (KS), the area between the two functions as a share of the range
    (W1), and how far the quantiles 0.5 and 0.99 are off in rank. Within an atom no rank is defined;
    the distance to its ends counts. A bin with more than a tenth of the users counts as an atom.

    Parameters
    ----------
    estimated : ndarray of float64, shape (bins + 1,)
        The estimated distribution function at the edges, ascending.
    truth : ndarray of float64, shape (bins + 1,)
        The true distribution function at the edges.

    Examples
    --------
    >>> errors(np.array([0, 0.4, 1]), np.array([0, 0.5, 1])).round(2)
    array([10.,  5.,  0.,  0.])
    """
    distances = np.abs(estimated - truth)
    ranks = [abs(_rank(estimated, truth, q) - q) for q in (0.5, 0.99)]
    return 100 * np.array([distances.max(), distances[1:-1].sum() / (estimated.size - 1), *ranks])


def _rank(estimated: Floats, truth: Floats, q: float) -> float:
    """Return the true rank of an estimated quantile, linear inside its bin."""
    edge = min(max(int(np.searchsorted(estimated, q)), 1), estimated.size - 1)
    step = estimated[edge] - estimated[edge - 1]
    part = (q - estimated[edge - 1]) / step if step > 0 else 1.0
    low, high = truth[edge - 1], truth[edge]
    if high - low > ATOM:
        return float(np.clip(q, low, high))
    return float(low + np.clip(part, 0, 1) * (high - low))


@functools.lru_cache(maxsize=16)
def _metric(bins: int, epsilon: float) -> LocalMetric:
    metric = define(name="m", kind="distribution", range=(0, bins), bins=bins, levels=[epsilon])
    return LocalMetric.require(metric)


def shown_cdf(counts: Counts, epsilon: float, bits: SeededBits) -> Floats:
    """Return the F that Dither shows, from simulated reports of users in these bins.

    Parameters
    ----------
    counts : ndarray of int64, shape (bins,)
        How many users are in each bin.
    epsilon : float
        The level of all reports.
    bits : SeededBits
        Draws the reports.

    Returns
    -------
    ndarray of float64, shape (bins + 1,)
        F at the edges.
    """
    metric = _metric(counts.size, epsilon)
    values = np.repeat(np.arange(counts.size), counts) + 0.5
    level, statistic = np.zeros(values.size, dtype=np.uint8), metric.zero()
    metric.accumulate(statistic, level, metric.randomize(values, level, bits))
    estimate = metric.estimate(statistic)
    assert isinstance(estimate, DistributionEstimate)  # noqa: S101
    return estimate.shown


def measured(
    case: tuple[int, int, float], runs: int, seed: int, rivals: dict[str, Rival]
) -> dict[str, dict[str, Floats]]:
    """Return the errors of Dither, under the name "", and of rivals.

    Parameters
    ----------
    case : tuple of int, int and float
        The number of bins, the number of reports, and epsilon.
    runs, seed : int
        The number of runs, and the seed of all of them.
    rivals : dict of str to callable
        The rivals, by name.

    Returns
    -------
    dict of str to dict of str to ndarray of float64, shape (runs, 4)
        The errors of each run in %, by method and data set.
    """
    bins, reports, epsilon = case
    rng, bits = np.random.default_rng([seed, bins, reports, int(100 * epsilon)]), SeededBits(seed)
    errors_by_method: dict[str, dict[str, Floats]] = {name: {} for name in ("", *rivals)}
    for data, masses in populations(bins).items():
        truth = np.concatenate([[0.0], np.cumsum(masses)])
        rows: dict[str, list[Floats]] = {name: [] for name in errors_by_method}
        for _ in range(runs):
            counts = rng.multinomial(reports, masses)
            rows[""].append(errors(shown_cdf(counts, epsilon, bits), truth))
            for name, rival in rivals.items():
                rows[name].append(errors(rival(counts, epsilon, rng), truth))
        for name, rows_of_method in rows.items():
            errors_by_method[name][data] = np.array(rows_of_method)
    return errors_by_method


def pooled(errors: dict[str, Floats]) -> Floats:
    """Return the mean over data sets of each run and measure, shape (runs, 4)."""
    mean: Floats = np.mean(list(errors.values()), axis=0)
    return mean


def comparison(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return errors, ours beside each rival's, and the resulting claims."""
    numbers: list[Number] = []
    ratios: dict[str, list[float]] = {name: [] for name in RIVALS}
    of_case = {}
    for done, case in enumerate(CASES):
        errors_by_method = of_case[case] = measured(case, runs, seed, RIVALS)
        own_errors = pooled(errors_by_method[""])
        means = [mean_and_error(own_errors[:, k].tolist()) for k in range(len(MEASURES))]
        for name in RIVALS:
            rival_errors = pooled(errors_by_method[name]).mean(axis=0)
            ratios[name].append(means[0][0] / float(rival_errors[0]))
            for k, measure in enumerate(MEASURES if case == IN_FULL else MEASURES[:1]):
                bins, reports, epsilon = case
                label = f"{bins} bins, n = {reports:,}, epsilon {epsilon:g}, {measure}: {name}"
                numbers.append(Number(label, *means[k], float(rival_errors[k])))
        tick((done + 1) / len(CASES))
    return Outcome(numbers, _claims(of_case, ratios), notes=[NOTE])


def _claims(
    of_case: dict[tuple[int, int, float], dict[str, dict[str, Floats]]],
    ratios: dict[str, list[float]],
) -> list[Claim]:
    """Return the specification's claims about the rivals in these cases."""
    mean = {name: float(np.mean(rival_ratios)) for name, rival_ratios in ratios.items()}
    claims = [
        Claim(
            "as good as the best tree, whose reports have up to a bit for each bin",
            mean[TREE] < 1.08,
            f"{mean[TREE]:.2f} times its KS on average",
        )
    ]
    claims += [
        Claim(f"better than {name}", mean[name] < 0.95, f"{mean[name]:.2f} times its KS")
        for name in ("tree of 16", "flat histogram")
    ]
    at_4 = [ratio for case, ratio in zip(of_case, ratios[HAAR], strict=True) if case[2] == 4]
    claims += [
        Claim(f"better than {HAAR} at epsilon 4", x < 0.6, f"{x:.2f} times its KS") for x in at_4
    ]
    for case, errors_by_method in of_case.items():
        if case[1] < 1_000_000:
            continue
        wave = {data: float(each[:, 0].mean()) for data, each in errors_by_method[WAVE].items()}
        own_ks = {data: float(each[:, 0].mean()) for data, each in errors_by_method[""].items()}
        worst = max(wave, key=wave.__getitem__)
        claims.append(
            Claim(
                f"{WAVE} does not converge: at a million reports it is wrong by more",
                wave[worst] > 5 * own_ks[worst],
                f"{worst}: KS {wave[worst]:.1f}%, ours {own_ks[worst]:.1f}%",
            )
        )
    if IN_FULL in of_case:
        errors_by_method = of_case[IN_FULL]
        smooth = [float(errors_by_method[name][SMOOTH][:, 0].mean()) for name in (WAVE, "")]
        claims.append(
            Claim(
                f"{WAVE} is better where data are smooth",
                smooth[0] < smooth[1],
                f"{SMOOTH}: KS {smooth[0]:.1f}%, ours {smooth[1]:.1f}%",
            )
        )
    return claims


NOTE = (
    "Errors in %, averaged over the data sets. KS: the largest distance of F; W1: the area between "
    "as a share of the range; p50 and p99: in rank. Ours is what is shown. The paper's column is "
    "the named rival, made ascending by isotonic regression; trees have the best probabilities of "
    "depths, OUE or randomized response, and least squares."
)
