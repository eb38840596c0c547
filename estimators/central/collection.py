"""The sums of true values and their releases, with the interface of a mechanism."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from estimators.bounds import Law
from estimators.central.release import ReleaseNoise
from estimators.central.release_bounds import ValueLaw, population_limits, sample_limits
from estimators.central.release_weights import (
    HOPELESS_ERROR,
    ReportWeights,
    affine_error,
    policy_named,
    report_weights,
)
from estimators.estimate import Array, Counts, Estimate, Floats, Limits
from estimators.exact.randomness import Bits
from estimators.mechanisms.laplace import check_grid
from estimators.mechanisms.mechanism import Epsilons, Levels, Mechanism, Reports, Weighed
from estimators.mechanisms.shared.outputs import ReportedSymbols, check_symbols
from estimators.question import Question

MOST_REPORTS = 2**32
"""The most reports that a release may have, so that no sum, weighted or not, overflows 64 bits."""


class TrueValues(Mechanism):
    """Devices send true values to a trusted collector.

    This is not a private mechanism: a report is the value itself. :meth:`release` protects a
    person, and only its result may leave the collector. `sensitivity`: the largest l1 change of the
    sums if one user's value changes, in units of the domain's width.
    """

    name = "true_value"
    sensitivity: ClassVar[int]
    bins: int | None = None
    """The number of categories; None for a mean."""
    numbers: int = 1
    """The number of numbers in a release."""
    slack: float = 0.0
    """The largest change of a value by rounding on the device, in [0, 1]."""

    def estimate_alike(self, tables: Sequence[Counts], question: Question) -> list[Estimate]:
        """Raise ValueError, because an estimate would reveal the sums."""
        raise ValueError("true values: only releases leave a trusted collection; use release")

    def privacy_ratio(self, level: int) -> Fraction:
        """Raise ValueError, because a true value has no bounded ratio of probabilities."""
        raise ValueError("true values: a report is not private; see the losses of a release")

    def is_private(self, level: int) -> bool:
        """Return False, because a report is the value itself."""
        return False

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Raise ValueError, because a report is the value itself."""
        raise ValueError("true values: a report is not private; there is nothing to attack")

    def report_range(self) -> tuple[Floats, Floats]:
        """Raise ValueError, because a release must not appear beside the range of a report."""
        raise ValueError("true values: the influence of a report is known for estimates alone")

    @abstractmethod
    def weighted_sums(self, sums: Counts, noise: ReleaseNoise) -> Counts:
        """Return integers near sum_l d_l S_l, with the sums S_l in units of the domain's width.

        `sums`, shape (levels in use, columns - 1); `noise`: has the weights d_l. The result has
        shape (numbers,). A changed value of level l changes it by at most `sensitivity` d_l, in l1.
        """

    @abstractmethod
    def law(self, counts: Floats, coefficient: Floats, free: bool) -> Law:
        """Return the law of the weighted mean of values as numbers in [-1, 1], without noise.

        `counts`, shape (levels,): reports of each level in use; `coefficient`, shape (levels,): the
        factor of each report in the weighted mean; `free`: whether users may have different
        distributions.
        """

    def release(
        self,
        table: Counts,
        bits: Bits,
        weights: str,
        beta: float = 0.05,
        target: str = "population",
    ) -> Estimate:
        """Return a private release of the sums, with newly drawn noise and with proved bounds.

        The result is in [0, 1], with `privacy` and `saturation`; NaN without reports, and 1/2 for
        ``"adpm"`` with very few reports. `table`, shape (levels, columns); `bits`: the source of
        the noise; `weights`: one of :data:`estimators.central.release_weights.RELEASE_WEIGHTINGS`
        for the kind; `beta`: failure probability of the bounds, over all numbers of the release at
        once; `target`: "population" or "sample". Raises ValueError for unknown weights, or more
        reports than a release permits.
        """
        policy_named(weights, self.bins)
        question = Question(beta=beta, target=target)
        counts = table[:, 0]
        if int(counts.sum()) > MOST_REPORTS:
            raise ValueError(f"{counts.sum()} reports: a release takes at most {MOST_REPORTS}")
        used = counts > 0
        release, noise = self._release_weights(counts, weights, beta)
        # without noise, the release reveals nothing and costs nothing
        value = np.full(self.numbers, math.nan if release is None else 0.5)
        lower, upper, effective = np.zeros(self.numbers), np.ones(self.numbers), 0.0
        shares, losses = np.zeros((2, counts.size))
        if noise is not None:
            total = noise.total(counts[used])
            noisy = self.weighted_sums(table[used, 1:], noise) + noise.draw(bits, self.numbers)
            value = noisy / total
            law = self._weighted_law(noise, counts[used])
            lower, upper = self._limits(noise, law, total, value, question)
            effective = 1 / (law.worst_variance + 4 * noise.variance / total**2)
            parts = counts[used] * np.array(noise.weights, dtype=np.float64)
            shares[used] = parts / parts.sum()
            losses[used] = [float(loss) for loss in noise.losses]
        weighed = Weighed(question, counts, shares, 0.0)
        saturation = None if release is None else release.saturation
        numbers: list[Any] = [value, lower, upper]
        if self.bins is None:
            numbers = [float(number[0]) for number in numbers]
        released = self._build_estimate(weighed, numbers[0], (*numbers[1:],), effective)
        return dataclasses.replace(released, policy=weights, privacy=losses, saturation=saturation)

    def with_beta(self, released: Estimate, beta: float) -> Estimate:
        """Return a release in [0, 1] with bounds at another failure probability.

        No noise is drawn, because its law follows from the numbers of reports. So this costs no
        privacy. Numbers that are NaN remain NaN.
        """
        used, value = released.counts > 0, np.atleast_1d(np.asarray(released.value))
        lower, upper = (np.where(np.isnan(value), np.nan, end) for end in (0.0, 1.0))
        _, noise = self._release_weights(released.counts, released.policy, released.beta)
        if noise is not None:
            counts, question = released.counts[used], Question(beta=beta, target=released.target)
            law, present = self._weighted_law(noise, counts), ~np.isnan(value)
            limits = self._limits(noise, law, noise.total(counts), value[present], question)
            lower[present], upper[present] = limits
        ends = [lower, upper] if np.ndim(released.value) else [float(lower[0]), float(upper[0])]
        return dataclasses.replace(released, lower=ends[0], upper=ends[1], beta=beta)

    def _release_weights(
        self, counts: Counts, weights: str, beta: float
    ) -> tuple[ReportWeights | None, ReleaseNoise | None]:
        """Return the weights of a release with these reports, and its noise.

        The weights are None without reports; the noise is None if a release would be worse than the
        middle of the range.
        """
        used = counts > 0
        if not used.any():
            return None, None
        epsilons = [e for e, is_used in zip(self.epsilons, used.tolist(), strict=True) if is_used]
        levels, n = np.array([float(e) for e in epsilons]), counts[used].astype(np.float64)
        release = report_weights(weights, levels, n, beta, self.bins)
        if weights == "adpm" and affine_error(levels, n, release.per_report) > HOPELESS_ERROR:
            return release, None
        return release, ReleaseNoise.of(epsilons, release.per_report, self.sensitivity)

    def _weighted_law(self, noise: ReleaseNoise, counts: Counts) -> Law:
        """Return the law of the weighted mean without noise; `counts`: reports by level in use."""
        coefficient = np.array(noise.weights) / noise.total(counts)
        free = len(counts) > 1 and len(set(noise.weights)) == 1
        return self.law(counts.astype(np.float64), coefficient, free)

    def _limits(
        self, noise: ReleaseNoise, law: Law, total: int, value: Floats, question: Question
    ) -> Limits:
        """Return bounds on the mean, in [0, 1], for all numbers of a release together."""
        log_p = math.log(question.beta / (2 * self.numbers))
        slack = self.slack + 0.5 / total
        if question.target == "sample":
            return sample_limits(noise, value, total, slack, log_p)
        return population_limits(noise, law, value, total, slack, log_p)


class TrueMean(TrueValues):
    """True values of a mean: integers on a grid, and their sum.

    A value is rounded to the nearest of g + 1 points of its range: an integer from 0 to g. The
    rounding is not random, so the same value always gives the same report. It changes a value, and
    so a mean, by at most 1 / (2 g) of the range, half of 10^-9 by default; the bounds allow for
    this. Statistic of a level: the number of reports and their sum. Source: HDP-WC, Algorithm 2
    (HPM); ADPM, Algorithm 1. `epsilons`: the privacy levels, ascending; `grid`: g, a power of two
    up to 2^30.

    **Privacy.** Theorem 1 of docs/proofs/trusted.md: a value moves the rounded sum by at most d_l.

    >>> from estimators.exact.randomness import SeededBits
    >>> collection = TrueMean([Fraction(1)], grid=8)
    >>> collection.randomize(np.array([-1.0, 0.0, 0.3]), np.zeros(3, dtype=int), SeededBits(1))
    array([0, 4, 5], dtype=uint32)
    """

    kinds = frozenset({"mean"})
    dtype = np.dtype("<u4")
    columns = 2
    sensitivity = 1

    def __init__(self, epsilons: Epsilons, *, grid: int = 2**30) -> None:
        super().__init__(epsilons)
        check_grid(grid)
        if grid > 2**30:
            raise ValueError(f"grid = {grid}: expected at most 2^30")
        self.grid = grid
        self.slack = 0.5 / grid

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return each value in [-1, 1] on the grid, without randomness."""
        scaled: Array = (np.clip(values, -1, 1) + 1) * (self.grid / 2)
        return np.floor(scaled + 0.5).astype(self.dtype)

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Raise ReportError for a report beyond the grid."""
        check_symbols(values, self.dtype, self.grid + 1)

    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a table with columns (reports, sum)."""
        table[:, 0] += np.bincount(level, minlength=len(self.epsilons))
        np.add.at(table[:, 1], level, reports.astype(np.int64))

    def weighted_sums(self, sums: Counts, noise: ReleaseNoise) -> Counts:
        """Return sum_l d_l S_l / g, rounded."""
        exact = sum(s * d for s, d in zip(sums[:, 0].tolist(), noise.weights, strict=True))
        return np.array([(2 * exact + self.grid) // (2 * self.grid)], dtype=np.int64)

    def law(self, counts: Floats, coefficient: Floats, free: bool) -> Law:
        """Return the law of values in [-1, 1] of which only the mean is known."""
        return ValueLaw(counts, coefficient, np.ones_like(counts), free=free)


class TrueFrequency(ReportedSymbols, TrueValues):
    """True categories, and the number of users who hold each category.

    A report is the index of a category. Statistic of a level: the number of reports, and the
    numbers for category 0, 1, and so on. Source: HDP-WC, Algorithm 1 (HPF). `epsilons`: the privacy
    levels, ascending; `categories`: k, at least 2.

    **Privacy.** A user of level l who changes category changes two of the sums sum_l d_l N_l by d_l
    each.

    >>> from estimators.exact.randomness import SeededBits
    >>> collection = TrueFrequency([Fraction(1)], categories=3)
    >>> collection.randomize(np.array([2, 0]), np.zeros(2, dtype=int), SeededBits(1))
    array([2, 0], dtype=uint8)
    """

    kinds = frozenset({"frequency"})
    sensitivity = 2

    def __init__(self, epsilons: Epsilons, *, categories: int) -> None:
        super().__init__(epsilons)
        self.categories = self.bins = self.numbers = categories
        self._count_symbols([categories] * len(epsilons))

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return each category unchanged, without randomness."""
        return values.astype(self.dtype)

    def weighted_sums(self, sums: Counts, noise: ReleaseNoise) -> Counts:
        """Return sum_l d_l N_l, exactly."""
        return np.array(noise.weights, dtype=np.int64) @ sums

    def law(self, counts: Floats, coefficient: Floats, free: bool) -> Law:
        """Return the law of the indicators of categories, as signs."""
        return Law(counts, coefficient, np.ones_like(counts), free=free)


COLLECTIONS: dict[str, type[TrueValues]] = {"mean": TrueMean, "frequency": TrueFrequency}
"""The collection that replaces a mechanism, for each kind that allows trusted collection."""
