"""Faults that break Dither's promise: the attack has to find each of them."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np

import estimators.mechanisms
import estimators.mechanisms.shared
import producers.device.base_reporter
from estimators.exact.laplace_sampler import DiscreteLaplace, discrete_laplace
from estimators.exact.randomness import SeededBits, SystemBits, Words
from estimators.extremes import Search
from estimators.mechanisms import laplace
from estimators.metrics.metric import ReportedMetric
from producers.wire.batch import encode_randomized

randomize, answer = ReportedMetric.randomize, Search.answer
Replace = Callable[[Any, str, Any], None]


def threshold(replace: Replace) -> None:
    """Compare with thresholds that are a third too low, and draw two thirds of the noise."""
    own, common = vars(estimators.mechanisms), vars(estimators.mechanisms.shared)
    for module in (*own.values(), *common.values()):
        if original := getattr(module, "bernoulli", None):

            def lower(bits: Any, words: Words, *more: Any, of: Any = original) -> Any:
                return of(bits, words - words // np.uint64(3), *more)

            replace(module, "bernoulli", lower)

    def less_noise(rate: Fraction) -> DiscreteLaplace:
        return discrete_laplace(rate * Fraction(3, 2))

    replace(laplace, "noise_of", less_noise)


def bits(replace: Replace) -> None:
    """Draw from a source whose bits are 1 in five of eight cases."""
    honest = SystemBits.integers

    def biased(self: SystemBits, n: int) -> Words:
        return honest(self, n) | (honest(self, n) & honest(self, n))

    replace(SystemBits, "integers", biased)


def restarted(replace: Replace) -> None:
    """Start with the same randomness at each call, as copies of one process would."""

    def again(self: ReportedMetric, values: Any, level: Any, bits: Any = None) -> Any:
        return randomize(self, values, level, SeededBits(7))

    def answer_again(self: Search, values: Any, level: Any, asked: float, bits: Any = None) -> Any:
        return answer(self, values, level, asked, SeededBits(7))

    replace(ReportedMetric, "randomize", again)
    replace(Search, "answer", answer_again)


def shared(replace: Replace) -> None:
    """Use the same randomness for two neighbouring reports."""

    def twice(draw: Callable[..., Any], values: Any, level: Any) -> Any:
        seed = int.from_bytes(os.urandom(8), "big")
        parts = [
            draw(values[i::2], level[i::2], bits=SeededBits(seed))
            for i in range(min(2, len(level)))
        ]
        found = np.empty((len(level), *parts[0].shape[1:]), dtype=parts[0].dtype)
        for i, part in enumerate(parts):
            found[i::2] = part
        return found

    def randomize_twice(self: ReportedMetric, values: Any, level: Any, bits: Any = None) -> Any:
        return twice(functools.partial(randomize, self), values, level)

    def answer_twice(self: Search, values: Any, level: Any, asked: float, bits: Any = None) -> Any:
        return twice(functools.partial(answer, self, threshold=asked), values, level)

    replace(ReportedMetric, "randomize", randomize_twice)
    replace(Search, "answer", answer_twice)


def level(replace: Replace) -> None:
    """Randomize at the next level, and label the report with the demanded one."""

    def weaker(self: ReportedMetric, values: Any, level: Any, bits: Any = None) -> Any:
        return randomize(self, values, np.minimum(level + 1, len(self.levels) - 1), bits)

    def weaker_answer(self: Search, values: Any, level: Any, asked: float, bits: Any = None) -> Any:
        return answer(self, values, np.minimum(level + 1, len(self.levels) - 1), asked, bits)

    replace(ReportedMetric, "randomize", weaker)
    replace(Search, "answer", weaker_answer)


def byte(replace: Replace) -> None:
    """Write a wrong level into the batch instead of the demanded one."""

    def wrong(metric: ReportedMetric, level: Any, *more: Any, **rest: Any) -> bytes:
        higher = np.minimum(level + 1, len(metric.levels) - 1)
        return encode_randomized(metric, higher, *more, **rest)

    replace(producers.device.base_reporter, "encode_randomized", wrong)


FAULTS: dict[str, Callable[[Replace], None]] = {
    fault.__name__: fault for fault in (threshold, bits, restarted, shared, level, byte)
}


@contextlib.contextmanager
def broken(fault: str) -> Iterator[None]:
    """Install a fault until the end of the context."""
    with contextlib.ExitStack() as stack:
        FAULTS[fault](
            lambda place, name, value: stack.enter_context(mock.patch.object(place, name, value))
        )
        yield
