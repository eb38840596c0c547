"""Randomizing on the device, against its random bytes alone and against numpy without privacy."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.measure import Benchmark, repeated
from benchmarks.metrics import BY_MECHANISM, CATEGORIES, DIMENSION, SIZES, population
from benchmarks.places import Places
from estimators.exact.randomness import SystemBits, Words

RNG = np.random.default_rng(7)


def _unary_noise(size: int) -> object:
    return np.packbits(RNG.random((size, CATEGORIES)) < 0.3, axis=1)


NUMPY_NOISE: dict[str, Callable[[int], object]] = {
    "randomized_response": lambda size: RNG.random(size) < 0.3,
    "laplace": lambda size: RNG.laplace(size=size),
    "rappor": _unary_noise,
    "oue": _unary_noise,
    "hemisphere": lambda size: RNG.standard_normal((size, DIMENSION)),
}
"""Noise of the same shape from numpy: floating point, seeded, and private for nobody."""


class CountedBits(SystemBits):
    """The operating system's generator, counting the words that were asked for."""

    words = 0

    def integers(self, n: int) -> Words:
        self.words += n
        return super().integers(n)


def benchmarks(places: Places) -> Iterator[Benchmark]:
    for name, metric in BY_MECHANISM.items():
        size = places.sized(SIZES[name])
        values, level = population(metric, size)
        bits = CountedBits()
        metric.randomize(values, level, bits)
        ours = functools.partial(metric.randomize, values, level)
        baselines: dict[str, Callable[[], object]]
        baselines = {"urandom": functools.partial(os.urandom, 8 * bits.words)}
        if name in NUMPY_NOISE:
            baselines["numpy"] = functools.partial(NUMPY_NOISE[name], size)
        for baseline, action in baselines.items():
            sides = repeated(size, ours), repeated(size, action)
            yield Benchmark(f"randomize/{name}/{baseline}", "reports/s", *sides)
