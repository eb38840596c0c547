"""Permanent answers, drawn once for each value and repeated: their randomness and their cost.

A permanent answer to a value is a report of the metric's mechanism at a permanent epsilon, which is
drawn once and repeated while the value stays the same. Mechanisms that flip bits may flip those of
the permanent answer again for each report (permanent and instantaneous randomized response).
Sources: Erlingsson, Pihur and Korolova, "RAPPOR" (2014); Ding, Kulkarni and Yekhanin, "Collecting
Telemetry Data Privately" (2017); Arcolezi et al., "LOLOHA" (2023).
"""

from __future__ import annotations

import dataclasses
import functools
from fractions import Fraction

import numpy as np

from estimators.estimate import Array
from estimators.exact.randomness import Bits
from estimators.exact.sampling import uniform_below
from estimators.exact.thresholds import WORD
from estimators.limits import LEVEL_DIGITS
from estimators.mechanisms.mechanism import Mechanism, Reports
from estimators.mechanisms.randomized_response import RandomizedResponse
from estimators.mechanisms.rappor import Rappor
from estimators.mechanisms.shared.signs import FlippedSigns
from estimators.metrics.local import LocalMetric
from estimators.metrics.metric import Metric


@dataclasses.dataclass(frozen=True)
class Memoization:
    """Makes reports of a metric at one level from permanent answers.

    `metric`: a metric with ``memoized``; `level`: the index of the level of a single report;
    `epsilon`: the epsilon of a permanent answer. By default it is the epsilon of the level, and a
    report is the permanent answer. If it is larger, bits are flipped again for each report.

    **One report** has exactly the law of the metric's level, so the collector's estimator and
    bounds stay the same.

    **Over time.** Theorems 7 and 8 of docs/proofs/privacy.md. :meth:`ratio_for_ever` compares
    histories of a device's values in which the same pairs of times have equal values;
    :meth:`ratio_of_any` compares any two histories. Two different permanent answers prove that a
    value changed.

    For a mean, the values are the two sides of a threshold that the device drew once
    (:func:`side_of`). A crossing of the threshold is visible.

    Raises ValueError if the metric is not memoized, or the permanent epsilon cannot be used with
    it.

    >>> from math import log
    >>> from estimators import define
    >>> metric = define(name="late", kind="mean", mechanism="randomized_response", range=(0, 1),
    ...                 levels=[1], memoized=True)
    >>> twice = Memoization(metric, 0, Fraction(2))
    >>> round(log(twice.ratio_for_ever(1)), 9), round(log(twice.ratio_of_any(1)), 3)
    (2.0, 1.408)
    >>> Memoization(metric, 0).ratio_of_any(1) is None
    True
    """

    metric: Metric
    level: int
    epsilon: Fraction | None = None

    def __post_init__(self) -> None:
        metric, report_epsilon = self.metric, self.metric.randomizer.epsilons[self.level]
        if not (isinstance(metric, LocalMetric) and metric.memoized):
            raise ValueError(
                f"metric {metric.name!r} is not memoized: repeated answers need `memoized = true` "
                "in its definition, so that bounds over time are wide enough"
            )
        epsilon = self.permanent
        if not report_epsilon <= epsilon <= 64 or (epsilon * 10**LEVEL_DIGITS).denominator != 1:
            raise ValueError(
                f"permanent = {float(epsilon):g}: expected an epsilon from "
                f"{float(report_epsilon):g}, the report's own, to 64, with at most "
                f"{LEVEL_DIGITS} decimal digits"
            )
        flips_bits = isinstance(metric.randomizer, RandomizedResponse | Rappor)
        if epsilon > report_epsilon and not flips_bits:
            raise ValueError(
                f"permanent = {float(epsilon):g} for {metric.mechanism}: expected "
                f"{float(report_epsilon):g}, the report's own; only bits can be flipped again "
                f"({RandomizedResponse.name}, {Rappor.name})"
            )

    @property
    def permanent(self) -> Fraction:
        """The epsilon of a permanent answer."""
        return self.metric.randomizer.epsilons[self.level] if self.epsilon is None else self.epsilon

    # -- On the device ------------------------------------------------------------------------

    def answer(self, value: int, bits: Bits) -> Reports:
        """Draw a permanent answer to a value, and return it as one report, shape (1, ...).

        `value`: a category's index; for a mean, the side from :func:`side_of`.
        """
        array = np.array([value], dtype=np.float64 if self.metric.kind == "mean" else np.int64)
        return self._permanent.randomize(array, np.zeros(1, dtype=np.int64), bits)

    def report(self, answer: Reports, bits: Bits) -> Reports:
        """Return a report made from a permanent answer, or the answer if nothing is flipped.

        `answer`, shape (1, ...): from :meth:`answer`.
        """
        flips = self.second_flip
        if not flips:
            return answer
        below, among = self._words
        drawn = uniform_below(bits, np.full(self.bits_of_a_report, among, dtype=np.uint64))
        again = (drawn < np.uint64(below)).astype(np.uint8)
        if self.metric.kind == "mean":
            return answer ^ again
        return answer ^ np.packbits(again, bitorder="little")[None, :]

    # -- What it costs ------------------------------------------------------------------------

    @property
    def second_flip(self) -> Fraction:
        """The probability g of the second flip; zero if a report is the permanent answer."""
        return Fraction(*self._words)

    @property
    def bits_of_a_report(self) -> int:
        """The number of bits of a report that are flipped again."""
        return 1 if self.metric.kind == "mean" else len(self.metric.labels)

    def ratio_for_ever(self, values: int) -> Fraction:
        """Return a bound on the ratio of probabilities of all reports ever, under two histories.

        The same pairs of times must have equal values in both histories. `values`: the number of
        distinct values in a history; for a mean, the number of distinct sides, at most 2.
        """
        return self._permanent.privacy_ratio(0) ** values

    def ratio_of_any(self, reports: int) -> Fraction | None:
        """Return a bound on the ratio of the probabilities of `reports` reports, for any histories.

        None if there is no bound.
        """
        flip = self.second_flip
        if not flip:
            return None
        return ((1 - flip) / flip) ** (self.bits_of_a_report * reports)

    @functools.cached_property
    def _permanent(self) -> Mechanism:
        parameters = {**self.metric.domain.parameters, **self.metric.options}
        return type(self.metric.randomizer)([self.permanent], **parameters)

    @functools.cached_property
    def _words(self) -> tuple[int, int]:
        """The probability of the second flip, as an integer numerator and denominator."""
        laws = [getattr(m, "signs", None) for m in (self.metric.randomizer, self._permanent)]
        flips = [law.flips for law in laws if isinstance(law, FlippedSigns)]
        if len(flips) < 2:
            return 0, 1
        return flips[0][self.level] - flips[1][0], WORD - 2 * flips[1][0]


def side_of(value: float, word: int) -> int:
    """Return on which side of the device's threshold a value is: +1 or -1.

    Each device draws its threshold once, uniform on [-1, 1], so the mean of the side over devices
    is the value, as with a new random rounding each time. A value that changes without crossing the
    threshold keeps its side, and its answer. `value`: in [-1, 1]; `word`: 64 uniform bits of the
    device, of which 53 give the threshold.

    >>> side_of(0.2, 2**62), side_of(-0.9, 2**62)
    (1, -1)
    """
    return 1 if (word >> 11) < (1 + value) / 2 * 2.0**53 else -1


def answer_values(metric: Metric, values: Array, word: int) -> list[int]:
    """Return the values of permanent answers: category indices, or sides of numbers.

    `metric`: a memoized metric; `values`, shape (n,): in the mechanism's units, from
    ``metric.domain.to_unit``; `word`: a random word that the device keeps for the metric: see
    :func:`side_of`.
    """
    if metric.kind == "mean":
        return [side_of(value, word) for value in values.tolist()]
    return [int(value) for value in values.tolist()]
