"""Series of panes for alarms, and how many false alarms there are."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from estimators import LocalMetric, define
from estimators.alarms import Detector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from estimators.estimate import Counts, Floats

LEVELS = (0.25, 0.5, 1.0, 2.0, 4.0)
PANE = 10_000


@functools.cache
def metric(levels: tuple[float, ...] = LEVELS) -> LocalMetric:
    """Return the metric: randomized response of values in [-1, 1]."""
    return LocalMetric.require(
        define(name="m", kind="mean", mechanism="randomized_response", range=(-1, 1), levels=levels)
    )


def contrast(one: LocalMetric) -> Floats:
    """Return a_l, the mean of a report of the value 1 at each level."""
    result: Floats = np.tanh(np.array(one.levels, dtype=np.float64) / 2)
    return result


def pane(
    one: LocalMetric, rng: np.random.Generator, counts: Counts | int, mean: Floats | float
) -> Counts:
    """Draw the sums of a pane.

    Parameters
    ----------
    one : LocalMetric
    rng : Generator
    counts : int, or ndarray of int64, shape (levels,)
        Reports, in all (equally many a level) or of each level.
    mean : float, or ndarray of float64, shape (levels,)
        The mean of the values, of all levels or of each.
    """
    statistic = one.zero()
    table = one.table(statistic)
    table[:, 0] = counts if np.ndim(counts) else np.floor_divide(counts, len(table))
    table[:, 1] = rng.binomial(table[:, 0], (1 + contrast(one) * mean) / 2)
    return statistic


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
        Its panes; 0: it is stated.
    alpha : float
    series, panes : int
    means : sequence of float
        Of the values of each level.
    seed : int
    """
    one, rng, raised = metric(LEVELS[: len(means)]), np.random.default_rng(seed), 0
    mix = np.arange(1.0, 1 + len(means))
    mixes = [part / mix.sum() for part in np.linspace(mix, mix[::-1], panes)]
    for _ in range(series):
        first = pane(one, rng, rng.multinomial(PANE * baseline, mixes[0]), np.array(means))
        stated = None if baseline else means[0]
        known = first if baseline else None
        detector = Detector(one, alpha, baseline=known, baseline_value=stated)
        for now in mixes:
            counts = rng.multinomial(rng.poisson(PANE), now)
            raised += detector.update(pane(one, rng, counts, np.array(means))).raised
    return raised
