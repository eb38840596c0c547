"""Randomizing on the device, against its random bytes alone and against numpy without privacy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.measure import Benchmark, repeated
from benchmarks.metrics import BY_MECHANISM, CATEGORIES, SIZES, population
from estimators import Metric
from estimators.randomness import SystemBits, Words


class CountedBits(SystemBits):
    """The operating system's generator, counting the words that were asked for."""

    def __init__(self) -> None:
        self.words = 0

    def integers(self, n: int) -> Words:
        self.words += n
        return super().integers(n)


def benchmarks() -> Iterator[Benchmark]:
    for name, metric in BY_MECHANISM.items():
        size = SIZES[name]
        values, level = population(metric, size)

        def ours(metric: Metric = metric, values: object = values, level: object = level) -> None:
            metric.randomize(values, level)  # type: ignore[arg-type]

        bits = CountedBits()
        metric.randomize(values, level, bits)

        def random_bytes(count: int = 8 * bits.words) -> None:
            os.urandom(count)

        for baseline, action in (("urandom", random_bytes), ("numpy", NUMPY[name])):
            yield Benchmark(
                f"randomize/{name}/{baseline}",
                "reports/s",
                repeated(size, ours),
                repeated(size, action),
            )


RNG = np.random.default_rng(7)


def _coins() -> object:
    return RNG.random(SIZES["randomized_response"]) < 0.3


def _laplace() -> object:
    return RNG.laplace(size=SIZES["laplace"])


def _unary() -> object:
    return np.packbits(RNG.random((SIZES["rappor"], CATEGORIES)) < 0.3, axis=1)


#: Noise of the same shape from numpy: floating point, seeded, and private for nobody.
NUMPY: dict[str, Callable[[], object]] = {
    "randomized_response": _coins,
    "laplace": _laplace,
    "rappor": _unary,
}
