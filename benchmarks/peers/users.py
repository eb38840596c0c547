"""Users needed for the same error of a mean, against other libraries at the same epsilon.

A library is used by adding its noise to each user's number, or by its randomized response after
each number in [-1, 1] is rounded at random to one of the ends. For both sides, the variance of a
report is measured; the number of users is this variance divided by the squared error. For numbers,
the variance is about the mean of the population from which users come, so it includes the variance
of the values. Vectors have length 1, and the variance is about the users' own mean.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import CannotRunError, Figure, NotRun, Outcome, stage
from benchmarks.peers.answering import (
    DATA,
    DIMENSION,
    NOISE_EPSILONS,
    VECTORS,
    Randomize,
    noise,
    populations,
)
from benchmarks.peers.process import serving
from benchmarks.places import Places
from estimators import LocalMetric, define
from estimators.mechanisms.caps import Caps
from estimators.mechanisms.hemisphere import Hemisphere
from estimators.mechanisms.shared.means import ScalarMean

SQUARE_ERRORS = {**dict.fromkeys(DATA, 0.01**2), VECTORS: 0.1**2}
"""Of a mean in [-1, 1]; of the distance from a mean in the unit ball."""
EPSILONS = {**dict.fromkeys(DATA, NOISE_EPSILONS), VECTORS: (1, 2, 4, 8)}
OURS = {
    **dict.fromkeys(DATA, ("randomized_response", "laplace", "windows")),
    VECTORS: ("hemisphere", "caps"),
}
THEIRS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "diffprivlib": {**dict.fromkeys(DATA, ("laplace", "staircase")), VECTORS: ("laplace",)},
    "opendp": {**dict.fromkeys(DATA, ("laplace", "randomized_response")), VECTORS: ("laplace",)},
    "pure-ldp": dict.fromkeys(DATA, ("randomized_response",)),
}
REPORTS = 1_000_000
"""The number of reports of ours; only 3% of them are far away at epsilon = 8."""
PEER_REPORTS = 200_000


@stage("users")
def users(places: Places) -> Iterator[Outcome]:
    """Users needed for the same error of a mean, against other libraries at the same epsilon."""
    held = populations(places.sized(REPORTS))
    for data, mechanisms in OURS.items():
        for epsilon in EPSILONS[data]:
            for mechanism in mechanisms:
                if places.wants(name := f"users/{data}/{epsilon:g}/{mechanism}"):
                    ours = functools.partial(estimator, mechanism, data)
                    squares = -noise(ours, epsilon, held[data])
                    yield Figure(name, squares / SQUARE_ERRORS[data], "users")
    for peer, tasks in THEIRS.items():
        names = {
            f"users/{data}/{epsilon:g}/{peer}: {mechanism}": (data, mechanism, epsilon)
            for data, mechanisms in tasks.items()
            for mechanism in mechanisms
            for epsilon in EPSILONS[data]
        }
        wanted = {name: task for name, task in names.items() if places.wants(name)}
        if wanted:
            with serving(peer, places.sized(PEER_REPORTS)) as rate:
                for name, (data, mechanism, epsilon) in wanted.items():
                    try:
                        variance = rate(f"noise {data} {mechanism} {epsilon:g}", 0)
                        yield Figure(name, variance / SQUARE_ERRORS[data], "users")
                    except CannotRunError as error:
                        yield NotRun(name, str(error))


def estimator(mechanism: str, data: str, epsilon: float) -> Randomize:
    """Return what randomizes values by a mechanism of ours, and estimates each from its report."""
    fields: dict[str, Any] = {"kind": "mean", "range": (-1, 1)}
    if data == VECTORS:
        fields = {"kind": "vector_mean", "dimension": DIMENSION, "radius": 1}
    metric = LocalMetric.require(define(name="m", mechanism=mechanism, levels=[epsilon], **fields))
    drawn = metric.randomizer

    def estimated(values: NDArray[Any]) -> NDArray[Any]:
        reports = metric.randomize(values, np.zeros(len(values), dtype=np.uint8))
        if isinstance(drawn, Caps | Hemisphere):
            return np.asarray(reports * (drawn.scale[0] / drawn.grid))
        return estimates(metric, reports)

    return estimated


def estimates(metric: LocalMetric, reports: NDArray[Any]) -> NDArray[np.float64]:
    """Return the estimate of the mean that each report gives by itself."""
    mechanism = metric.randomizer
    assert isinstance(mechanism, ScalarMean)  # noqa: S101
    level, means = np.zeros(1, dtype=np.uint8), []
    different, places_of_reports = np.unique(reports, return_inverse=True)
    for report in different:
        statistic = metric.zero()
        metric.accumulate(statistic, level, np.array([report], dtype=reports.dtype))
        means.append(float(mechanism.level_means(metric.table(statistic))[0]))
    return np.array(means)[places_of_reports]
