"""How often the bounds of vectors miss, in thousands of runs of reports drawn from their law.

The bounds of one answer cost some 50 ms, and most errors are nowhere near them. So bounds are
computed for the first runs, whatever their error, and then for every run whose error is not far
below the narrowest bound that was computed. Errors and bounds are compared in standard deviations,
which follow from the run's own sums. What is left has an error below :data:`SAFE` times the
narrowest bound of all runs that were computed.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from estimators.mechanisms.shared.ranked_directions import RankedDirections
from tests.support.reports.directions import vector_statistics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from estimators import LocalMetric
    from estimators.estimate import Counts, Floats

ANYHOW = 60  # runs whose bounds are computed whatever their error
SAFE = 0.8


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: its statistic, the truth, and the error in standard deviations.

    Parameters
    ----------
    statistic : ndarray of int64
    truth, error, sd : ndarray of float64, shape (d,)
        `sd` from the sums of squares.
    spread : float
        The largest root mean square of the error's length.
    """

    statistic: Counts
    truth: Floats
    error: Floats
    sd: Floats
    spread: float

    @property
    def relative(self) -> Floats:
        """The largest error of a coordinate, and the error's length; shape (2,)."""
        length = float(np.linalg.norm(self.error)) / self.spread
        return np.array([np.max(np.abs(self.error) / self.sd), length])


def _run(
    metric: LocalMetric, statistic: Counts, means: Floats, population: Floats, **question: Any
) -> Run:
    mechanism = metric.randomizer
    assert isinstance(mechanism, RankedDirections)
    table = statistic.reshape(len(metric.levels), -1)
    answer = metric.estimate(statistic, **{**question, "bound": "normal"})
    truth = population
    if answer.target == "sample":
        truth = np.clip(answer.weights @ means, -1, 1)  # weights sum to 1 but for 2^-52
    value, law, _ = mechanism.mean_and_law(table, answer.weights)
    sd = np.broadcast_to(np.sqrt(law.coordinate_variance), mechanism.dimension)[: truth.size]
    return Run(statistic, truth, value - truth, np.maximum(sd, 1e-300), math.sqrt(law.variance))


def misses(
    metric: LocalMetric,
    data: Floats,
    counts: tuple[int, ...],
    runs: int,
    seed: int = 4,
    **question: Any,
) -> tuple[Counts, int]:
    """Count the runs in which a coordinate, and the mean vector, is beyond its bound.

    Parameters
    ----------
    metric, data, counts, runs, seed
        As for :func:`tests.support.reports.directions.vector_statistics`.
    question
        Of :meth:`LocalMetric.estimate`.

    Returns
    -------
    misses : ndarray of int64, shape (2,)
        Of all coordinates at once, and of the length.
    computed : int
        How many runs' bounds were computed.
    """
    drawn = vector_statistics(metric, data, counts, runs, seed)
    mean = data.reshape(-1, data.shape[-1]).mean(axis=0)
    return misses_of(metric, drawn, mean, **question)


def misses_of(
    metric: LocalMetric, drawn: Iterable[tuple[Counts, Floats]], mean: Floats, **question: Any
) -> tuple[Counts, int]:
    """Count the same in runs that were drawn: their statistics, and the mean of each level."""
    each = [_run(metric, *of, mean, **question) for of in drawn]
    relative, runs = np.array([run.relative for run in each]), len(each)
    found, narrowest, left = np.zeros(2, dtype=np.int64), np.full(2, np.inf), np.full(runs, True)
    due = np.arange(runs) < ANYHOW
    while due.any():
        largest = relative.max(axis=1)
        run = int(np.argmax(np.where(due, largest, -1.0)))
        missed, bounds = _compare(metric, each[run], **question)
        found += missed
        narrowest = np.minimum(narrowest, bounds)
        left[run] = due[run] = False
        if not due.any():
            due = left & (relative >= SAFE * narrowest).any(axis=1)
    return found, int(runs - left.sum())


def _compare(metric: LocalMetric, run: Run, **question: Any) -> tuple[Counts, Floats]:
    """Return what was missed, and the narrowest bounds in standard deviations; shape (2,) each."""
    answer = metric.estimate(run.statistic, **question)
    assert answer.radius is not None
    outside = bool(np.any((answer.lower > run.truth) | (run.truth > answer.upper)))
    beyond = bool(np.linalg.norm(answer.value - run.truth) > answer.radius)
    # an end of the domain says nothing of a bound's width
    above = np.where(answer.upper < 1, answer.upper - answer.value, np.inf)
    below = np.where(answer.lower > -1, answer.value - answer.lower, np.inf)
    narrowest = float(np.min(np.minimum(above, below) / run.sd))
    return np.array([outside, beyond], dtype=np.int64), np.array(
        [narrowest, answer.radius / run.spread]
    )
