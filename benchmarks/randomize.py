"""Randomizing on the device, against its random bytes alone and against numpy without privacy."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.measure import Benchmark, repeated
from benchmarks.metrics import BY_MECHANISM, CATEGORIES, DIMENSION, SIZES, population
from benchmarks.places import Places
from estimators import LocalMetric
from estimators.exact.randomness import SystemBits, Words


class CountedBits(SystemBits):
    """The operating system's generator, counting the words that were asked for."""

    def __init__(self) -> None:
        self.words = 0

    def integers(self, n: int) -> Words:
        self.words += n
        return super().integers(n)


def benchmarks(places: Places) -> Iterator[Benchmark]:
    for name, metric in BY_MECHANISM.items():
        size = places.sized(SIZES[name])
        values, level = population(metric, size)

        def ours(
            metric: LocalMetric = metric, values: object = values, level: object = level
        ) -> None:
            metric.randomize(values, level)  # type: ignore[arg-type]

        bits = CountedBits()
        metric.randomize(values, level, bits)

        def random_bytes(count: int = 8 * bits.words) -> None:
            os.urandom(count)

        sides: dict[str, Callable[[], object]] = {"urandom": random_bytes}
        if name in NUMPY:
            sides["numpy"] = functools.partial(NUMPY[name], size)
        for baseline, action in sides.items():
            yield Benchmark(
                f"randomize/{name}/{baseline}",
                "reports/s",
                repeated(size, ours),
                repeated(size, action),
            )


RNG = np.random.default_rng(7)


def _coins(size: int) -> object:
    return RNG.random(size) < 0.3


def _laplace(size: int) -> object:
    return RNG.laplace(size=size)


def _unary(size: int) -> object:
    return np.packbits(RNG.random((size, CATEGORIES)) < 0.3, axis=1)


def _normal(size: int) -> object:
    return RNG.standard_normal((size, DIMENSION))


#: Noise of the same shape from numpy: floating point, seeded, and private for nobody.
NUMPY: dict[str, Callable[[int], object]] = {
    "randomized_response": _coins,
    "laplace": _laplace,
    "rappor": _unary,
    "oue": _unary,
    "hemisphere": _normal,
}
