"""Users needed for the same error of a mean, against other libraries at the same epsilon.

A library is used by adding its noise to each user's number, or by its randomized response after
each number in [-1, 1] is rounded at random to one of the ends. For both sides, the variance of a
report is measured; the number of users is this variance divided by the squared error. For numbers,
the variance is about the mean of the population from which users come, so it includes the variance
of the values. Vectors have length 1, and the variance is about the users' own mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import CannotRunError, Figure, NotRun, Outcome, stage
from benchmarks.peers.answering import DATA, DIMENSION, NOISE_EPSILONS, VECTORS, unit_vectors
from benchmarks.peers.process import serving
from benchmarks.places import Places
from estimators import LocalMetric, define
from estimators.mechanisms.caps import Caps
from estimators.mechanisms.hemisphere import Hemisphere
from estimators.mechanisms.shared.means import ScalarMean

ERROR_OF_NUMBERS, ERROR_OF_VECTORS = 0.01, 0.1
"""Standard error of a mean in [-1, 1]; root mean square distance from a mean in the unit ball."""
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
"""The number of reports of a mechanism for numbers; only 3% of them are far away at epsilon = 8."""
DIRECTIONS = 4_000
PEER_REPORTS = 200_000


@stage("users")
def users(places: Places) -> Iterator[Outcome]:
    """Users needed for the same error of a mean, against other libraries at the same epsilon."""
    for data, mechanisms in OURS.items():
        for epsilon in EPSILONS[data]:
            for mechanism in mechanisms:
                if places.wants(name := f"users/{data}/{epsilon:g}/{mechanism}"):
                    noise = measured_noise(mechanism, epsilon, data, places.sized)
                    yield Figure(name, noise / _square_error(data), "users")
    for peer, tasks in THEIRS.items():
        names = {
            f"users/{data}/{epsilon:g}/{peer}: {mechanism}": (data, mechanism, epsilon)
            for data, mechanisms in tasks.items()
            for mechanism in mechanisms
            for epsilon in EPSILONS[data]
        }
        wanted = {name: task for name, task in names.items() if places.wants(name)}
        if wanted:
            with serving(peer, places.sized(PEER_REPORTS)) as process:
                for name, (data, mechanism, epsilon) in wanted.items():
                    side = process.side(f"noise {data} {mechanism} {epsilon:g}")
                    try:
                        yield Figure(name, side(0) / _square_error(data), "users")
                    except CannotRunError as error:
                        yield NotRun(name, str(error))


def _square_error(data: str) -> float:
    return float((ERROR_OF_NUMBERS if data in DATA else ERROR_OF_VECTORS) ** 2)


def measured_noise(mechanism: str, epsilon: float, data: str, sized: Any = int) -> float:
    """Return the variance of one report of ours, the largest of all populations of `data`."""
    if data == VECTORS:
        return _noise_of_vectors(mechanism, epsilon, sized)
    metric = LocalMetric.require(
        define(name="m", kind="mean", mechanism=mechanism, range=(-1, 1), levels=[epsilon])
    )
    noises = []
    for points in DATA[data]:
        held = np.resize(points, sized(REPORTS // len(DATA[data])))
        level = np.zeros(held.size, dtype=np.uint8)
        noises.append(
            _mean_square(estimates(metric, metric.randomize(held, level)) - np.mean(points))
        )
    return max(noises)


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


def _noise_of_vectors(mechanism: str, epsilon: float, sized: Any) -> float:
    metric = LocalMetric.require(
        define(
            name="m",
            kind="vector_mean",
            mechanism=mechanism,
            dimension=DIMENSION,
            radius=1,
            levels=[epsilon],
        )
    )
    drawn = metric.randomizer
    assert isinstance(drawn, Caps | Hemisphere)  # noqa: S101
    held = unit_vectors(sized(DIRECTIONS))
    reports = metric.randomize(held, np.zeros(len(held), dtype=np.uint8))
    errors = reports * (drawn.scale[0] / drawn.grid) - held
    return _mean_square(np.linalg.norm(errors, axis=1))


def _mean_square(errors: NDArray[np.float64]) -> float:
    return float(np.mean(errors**2))
