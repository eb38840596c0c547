"""Print how soon alarms see moves of various sizes, and how many false alarms there are.

``python -m benchmarks.docs_tables.alarms`` prints the tables of docs/alarms.md.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from benchmarks.docs_tables import print_table
from estimators import LocalMetric, define
from estimators.alarms import Detector
from estimators.estimate import Counts, Floats

LEVELS = (0.25, 0.5, 1.0, 2.0, 4.0)
RATES = (1 / 8_760, 1 / 876_000)
"""One false alarm a year by hours, in one series and in each of a hundred."""
BASELINES = (0, 28, 168, 720)
"""Lengths of baselines in panes; 0 for a stated baseline."""
SHIFTS = (1, 2, 4)
PANE, MAX_PANES, BEFORE, RUNS = 10_000, 400, 50, 200


@functools.cache
def metric(levels: tuple[float, ...] = LEVELS) -> LocalMetric:
    """Return the metric: randomized response of values in [-1, 1]."""
    return LocalMetric.require(
        define(name="m", kind="mean", mechanism="randomized_response", range=(-1, 1), levels=levels)
    )


def contrast(mean_metric: LocalMetric) -> Floats:
    """Return a_l, the mean of a report of the value 1 at each level."""
    result: Floats = np.tanh(np.array(mean_metric.levels, dtype=np.float64) / 2)
    return result


def pane(
    mean_metric: LocalMetric, rng: np.random.Generator, counts: Counts | int, mean: Floats | float
) -> Counts:
    """Draw the sums of a pane.

    Parameters
    ----------
    mean_metric : LocalMetric
        The metric.
    rng : Generator
        Draws the sums.
    counts : int, or ndarray of int64, shape (levels,)
        The number of reports, in all (equally many at each level) or at each level.
    mean : float, or ndarray of float64, shape (levels,)
        The mean of the values, at all levels or at each level.
    """
    statistic = mean_metric.zero()
    table = mean_metric.table(statistic)
    table[:, 0] = counts if np.ndim(counts) else np.floor_divide(counts, len(table))
    table[:, 1] = rng.binomial(table[:, 0], (1 + contrast(mean_metric) * mean) / 2)
    return statistic


def delays(panes: int, shift: float, alpha: float) -> list[int]:
    """Return after how many panes each run sees a move, at most :data:`MAX_PANES`.

    Parameters
    ----------
    panes : int
        The length of the baseline in panes; 0 if the baseline, a value of 0, is stated.
    shift : float
        The size of the move, in standard errors of a pane.
    alpha : float
        The expected number of false alarms in a pane.
    """
    mean_metric, rng, waits = metric(), np.random.default_rng(5), []
    moved = shift / np.sqrt(PANE // len(LEVELS) * (contrast(mean_metric) ** 2).sum())
    for _ in range(RUNS):
        baseline = pane(mean_metric, rng, PANE * panes, 0.0) if panes else None
        stated = None if panes else 0.0
        detector = Detector(mean_metric, alpha, baseline=baseline, baseline_value=stated)
        for _ in range(BEFORE):
            detector.update(pane(mean_metric, rng, PANE, 0.0))
        moved_panes = (pane(mean_metric, rng, PANE, moved) for _ in range(MAX_PANES))
        seen = (
            number for number, sums in enumerate(moved_panes, 1) if detector.update(sums).raised
        )
        waits.append(next(seen, MAX_PANES))
    return waits


def false_alarms(
    baseline: int,
    alpha: float,
    series: int,
    panes: int,
    means: Sequence[float] = (0.0,) * len(LEVELS),
    seed: int = 7,
) -> int:
    """Return how many alarms there are in all, although no level's mean ever moves.

    The mix of levels is reversed from the first pane to the last, and the number of reports varies.

    Parameters
    ----------
    baseline : int
        The length of the baseline in panes; 0 if it is stated.
    alpha : float
        The expected number of false alarms in a pane.
    series, panes : int
        The number of series, and of panes in each.
    means : sequence of float
        The mean of the values at each level.
    seed : int
        The seed of all draws.
    """
    mean_metric, rng, raised = metric(LEVELS[: len(means)]), np.random.default_rng(seed), 0
    mix = np.arange(1.0, 1 + len(means))
    mixes = [part / mix.sum() for part in np.linspace(mix, mix[::-1], panes)]
    for _ in range(series):
        first = pane(mean_metric, rng, rng.multinomial(PANE * baseline, mixes[0]), np.array(means))
        stated = None if baseline else means[0]
        baseline_sums = first if baseline else None
        detector = Detector(mean_metric, alpha, baseline=baseline_sums, baseline_value=stated)
        for now in mixes:
            counts = rng.multinomial(rng.poisson(PANE), now)
            raised += detector.update(pane(mean_metric, rng, counts, np.array(means))).raised
    return raised


def text_of(waits: list[int]) -> str:
    """Return the mean delay as text, with the share of moves that were not seen."""
    mean, unseen = float(np.mean(waits)), waits.count(MAX_PANES) / len(waits)
    return f"{mean:.{1 if mean < 20 else 0}f}" + (f" ({unseen:.0%} unseen)" if unseen else "")


def delays_row(shift: float) -> list[str]:
    """Return the delays for each baseline, with both rates of false alarms."""
    cells = []
    for panes in BASELINES:
        waits = [delays(panes, shift, alpha) for alpha in RATES]
        cells.append(" / ".join(map(text_of, waits)))
    return [f"{shift}", *cells]


def main() -> None:
    """Print the tables."""
    heads = ["stated" if not panes else f"{panes} panes" for panes in BASELINES]
    print_table(["shift", *heads], map(delays_row, SHIFTS))
    for title, baseline, means in (
        ("stated", 0, (0.0,) * 5),
        ("28 panes", 28, (0.0,) * 5),
        ("28 panes, values by level", 28, (0.3, 0.25, 0.2, 0.15, 0.1)),
    ):
        alpha, series, panes = 1e-3, 400, 365
        false = false_alarms(baseline, alpha, series, panes, means)
        print(f"{title}: {false} false alarms, {alpha * series * panes:g} promised", flush=True)


if __name__ == "__main__":
    main()
