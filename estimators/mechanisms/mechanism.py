"""The interface of mechanisms: a local randomizer and its estimator.

A mechanism has its own units (a mean in [-1, 1], a vector in the unit ball, a category as an index)
and serves all privacy levels of a metric. Its statistic is a table of int64, with one row for each
level. The first column is the number of reports; every other cell is an integer sum, so the sum of
two tables is the statistic of both populations.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from estimators.bounds.heterogeneity import MIN_REPORTS
from estimators.errors import ReportError, shortened
from estimators.estimate import AnyIntegers, Array, Bools, Counts, Estimate, Floats, Indices
from estimators.exact.randomness import Bits
from estimators.exact.tallies import tally
from estimators.exact.thresholds import exp_bounds
from estimators.question import Question
from estimators.shuffling.set_laws import SetLaw
from estimators.weights import WEIGHTINGS, LevelFacts, level_weights, total_weight

T = TypeVar("T")
Epsilons = Sequence[Fraction]
Levels = AnyIntegers
Reports = AnyIntegers

REPORTS_AT_A_TIME = 16_384
"""The most reports of several batches that are added together; a larger batch is added alone."""
MAX_LOOP_BYTES = 256
"""Up to this many bytes, a loop of Python is faster than an array."""


class Weighed(NamedTuple):
    """A question with the weights that it gives to reports.

    `counts`, shape (levels,): the reports of each level; `shares`, shape (levels,): the weights of
    the levels, which sum to one unless there are no reports; `total`: the result of
    :func:`estimators.weights.total_weight`.
    """

    question: Question
    counts: Counts
    shares: Floats
    total: float


def largest_byte(data: bytes) -> int:
    """Return the largest byte, or -1 if there is none."""
    if len(data) < MAX_LOOP_BYTES:
        return max(data, default=-1)
    return int(np.frombuffer(data, dtype=np.uint8).max())


def refuse_first(is_invalid: Bools, describe: Callable[[int], str]) -> None:
    """Raise ReportError("bad_value") for the first invalid report, if there is one.

    `is_invalid`, shape (n,); `describe`: a function from the index of a report to what is wrong
    with the report.
    """
    if is_invalid.any():
        raise ReportError("bad_value", describe(int(is_invalid.argmax())))


def rows_by_level(level: Levels, levels: int) -> Iterator[tuple[int, Any]]:
    """Yield the index of each level that occurs, ascending, and the rows that have it.

    `level`, shape (n,): below `levels`. Rows are ascending indices, or a slice of all rows if only
    one level occurs.
    """
    counts = tally(level, levels)
    used = np.flatnonzero(counts).tolist()
    if len(used) == 1:
        yield used[0], slice(None)
    else:
        order, ends = np.argsort(level, kind="stable"), np.cumsum(counts[used])
        yield from zip(used, np.split(order, ends[:-1]), strict=False)


def answers_by_levels(
    tables: Sequence[Counts],
    answer: Callable[[Sequence[Counts]], Sequence[T]],
    min_reports: int = MIN_REPORTS,
) -> list[T]:
    """Return the answer about each window, computed together if reports have the same levels.

    `tables`: of the shape (levels, columns); `answer`: answers for windows in which the same levels
    have reports, and the same have at least `min_reports` reports.
    """
    counts = np.array([table[:, 0] for table in tables])
    used = (counts > 0).astype(np.int64) + (counts >= min_reports)
    patterns, group = np.unique(used, axis=0, return_inverse=True)
    answers: dict[int, T] = {}
    for number in range(len(patterns)):
        rows = np.flatnonzero(group.ravel() == number).tolist()
        answers |= zip(rows, answer([tables[row] for row in rows]), strict=True)
    return [answers[row] for row in range(len(tables))]


class Mechanism(ABC):
    """A local randomizer together with its estimator.

    Parameters
    ----------
    epsilons : sequence of Fraction
        The privacy levels, ascending.

    Attributes
    ----------
    name : str
        The name in a metric's definition.
    kinds : frozenset of str
        The kinds of metric that the mechanism serves.
    open_vocabulary : bool
        Whether the mechanism works without a list of categories: `categories` is then None, values
        are 64-bit keys, and an estimate is for the requested keys.
    closed_vocabulary : bool
        Whether the mechanism works with a list of categories.
    discovers : bool
        Whether the mechanism also finds the frequent strings of an open vocabulary: values are then
        rows of a key and 128 bits, and there is a method ``discover``.
    memoizable : bool
        Whether devices may draw a report once and repeat it. The estimate must then be a mean of
        signs, with bounds that assume only that the signs are independent within a pane.
    rows_are_alike : bool
        Whether :meth:`accumulate` treats all rows of a table alike, however many rows there are.
    is_exact_together : bool
        Whether windows that are estimated together get, to the last bit, the same fixed bounds as
        each window alone.
    dtype, shape : numpy dtype and tuple
        The type and shape of one report: an array of n reports has shape ``(n, *shape)``, and its
        little-endian bytes are the wire format.
    columns : int
        The number of cells of the statistic for each level, including the number of reports.
    facts : LevelFacts
        The constants from which weights are computed.
    """

    name: ClassVar[str]
    kinds: ClassVar[frozenset[str]]
    open_vocabulary: ClassVar[bool] = False
    closed_vocabulary: ClassVar[bool] = True
    discovers: ClassVar[bool] = False
    memoizable: ClassVar[bool] = False
    rows_are_alike: ClassVar[bool] = False
    is_exact_together: ClassVar[bool] = False
    facts: LevelFacts
    dtype: np.dtype[np.integer[Any]]
    shape: tuple[int, ...] = ()
    columns: int

    def __init__(self, epsilons: Epsilons) -> None:
        self.epsilons = tuple(epsilons)
        self._levels = tuple(map(float, self.epsilons))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.level_mechanisms)})"

    @functools.cached_property
    def width(self) -> int:
        """The number of bytes of a report on the wire."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def level_mechanisms(self) -> list[str]:
        """The name of the mechanism that each level uses: `name`, or that of a part of this one."""
        return [self.name] * len(self.epsilons)

    @property
    def public_constants(self) -> dict[str, Any]:
        """Public constants that are computed in floating point, as values for JSON.

        The revision contains them: if a device and a reader compute different constants, their
        revisions differ.
        """
        return {}

    @abstractmethod
    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return one private report for each value.

        `values`, n rows: in the mechanism's own units; `level`, shape (n,): index of each value's
        level; `bits`: the source of randomness.
        """

    @abstractmethod
    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a statistic's table.

        `table`, shape (levels, columns): changed in place; `level`, shape (n,): index of each
        report's level; `reports`, shape (n, *shape): reports that :meth:`check` accepts.
        """

    def accumulate_slices(
        self, tables: Counts, rows: Indices, sizes: Counts, level: Levels, reports: Reports
    ) -> None:
        """Add batches of reports, each to the table of its slice, in place.

        `tables`, shape (slices, levels, columns): changed in place; `rows`, shape (batches,): the
        table of each batch; `sizes`, shape (batches,): the number of reports in each batch; the
        first reports are those of the first batch; `level`, shape (n,): index of each report's
        level; `reports`, shape (n, *shape): reports that :meth:`check` accepts.
        """
        if not self.rows_are_alike:
            order = np.argsort(np.repeat(rows, sizes), kind="stable")
            level, reports = level[order], reports[order]
            sizes = np.bincount(rows, sizes, minlength=len(tables)).astype(np.int64)
            rows = np.arange(len(tables))
        ends, first = np.concatenate([[0], np.cumsum(sizes)]), 0
        flat, at_a_time = tables.reshape(-1, self.columns), max(REPORTS_AT_A_TIME, tables.size)
        while first < len(rows):
            last = first + 1
            if self.rows_are_alike:  # all following small batches at once
                last = max(last, int(np.searchsorted(ends, ends[first] + at_a_time, "right")) - 1)
            part = slice(*ends[[first, last]].tolist())
            if last == first + 1:
                self.accumulate(tables[rows[first]], level[part], reports[part])
            else:
                begin = (rows[first:last] * len(self.epsilons)).astype(np.uint32)
                row = np.repeat(begin, sizes[first:last]) + level[part]
                self.accumulate(flat, row, reports[part])
            first = last

    def estimate(self, table: Counts, question: Question) -> Estimate:
        """Return the estimate for a question from a statistic's table, in the mechanism's units."""
        return self.estimate_alike([table], question)[0]

    def estimate_each(self, tables: Sequence[Counts], question: Question) -> list[Estimate]:
        """Return the estimate of each window from its table, of the shape (levels, columns).

        Windows whose reports have the same levels are estimated together.
        """
        if len(tables) == 1:
            return self.estimate_alike(tables, question)
        return answers_by_levels(tables, lambda alike: self.estimate_alike(alike, question))

    @abstractmethod
    def estimate_alike(self, tables: Sequence[Counts], question: Question) -> list[Estimate]:
        """Return the estimates of windows whose reports have the same levels.

        `tables`: at least one, of the shape (levels, columns).
        """

    @abstractmethod
    def privacy_ratio(self, level: int) -> Fraction:
        """Return the largest ratio of two output probabilities at a level, the certificate.

        It is computed from the integer thresholds that the randomizer uses, and is at most
        e^epsilon. A ratio e^x with a rational x is rounded down; such a mechanism proves x <=
        epsilon in :meth:`is_private`.
        """

    @abstractmethod
    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return the logarithm of each report's probability under one value, up to a constant.

        The constant may depend on the report and its level, but not on the value. The difference of
        the results for two values is the log likelihood ratio, by which an attack orders reports.
        The result has shape (n,). `reports`, shape (n, *shape): reports of this level; `level`: the
        index of the level; `value`: in the mechanism's units: a number, a vector, a category's
        index or a key.
        """

    @abstractmethod
    def report_range(self) -> tuple[Floats, Floats]:
        """Return the least and the largest number that one report of each level can represent.

        An estimate (of each category or coordinate) is the weighted mean of such numbers, one for
        each report, in the mechanism's units. The range limits the effect of a fabricated report.
        The results have shape (levels,).
        """

    def report_weights(self, policy: str) -> Floats:
        """Return the weight of one report of each level, up to a common factor.

        `policy`: one of :data:`estimators.weights.WEIGHTINGS`.
        """
        return WEIGHTINGS[policy](self.facts)

    def report_norm(self) -> Floats | None:
        """Return the l2 norm of the longest vector that one report of each level can represent.

        None if an estimate is not a vector; shape (levels,).
        """
        return None

    def is_private(self, level: int) -> bool:
        """Return whether the largest ratio of output probabilities is at most e^epsilon."""
        return self.privacy_ratio(level) <= exp_bounds(self.epsilons[level])[0]

    def set_laws(self, level: int) -> tuple[SetLaw, ...]:
        """Return the laws of reports, with their probabilities, for the privacy of a crowd.

        By default, this is the law of the worst mechanism with the level's epsilon (theorem 2 of
        docs/proofs/crowds.md).
        """
        return (SetLaw(max(self.privacy_ratio(level), exp_bounds(self.epsilons[level])[1])),)

    def log_ratio(self, level: int) -> float:
        """Return the logarithm of :meth:`privacy_ratio`."""
        ratio = self.privacy_ratio(level)
        return math.log(ratio.numerator) - math.log(ratio.denominator)

    def _weigh(self, counts: Counts, question: Question) -> Weighed:
        """Return a question with the weights of the levels, given their `counts` of reports."""
        shares = level_weights(question.weights, counts, self.facts)
        total = total_weight(question.weights, counts, self.facts)
        return Weighed(question, counts, shares, total)

    def _build_estimate(
        self,
        weighed: Weighed,
        value: float | Floats,
        bounds: tuple[float | Floats, float | Floats],
        effective_reports: float,
        heterogeneity: float | None = None,
        radius: float | None = None,
    ) -> Estimate:
        """Return an estimate with the counts and weights of its levels."""
        question, counts, shares, _ = weighed
        return Estimate(
            value=value,
            lower=bounds[0],
            upper=bounds[1],
            reports=int(counts.sum()),
            effective_reports=effective_reports,
            beta=question.beta,
            bound=question.bound,
            target=question.target,
            policy=question.weights,
            levels=self._levels,
            counts=counts.copy(),
            weights=shares,
            heterogeneity=heterogeneity,
            radius=radius,
        )

    def _empty_estimate(self, weighed: Weighed, numbers: int) -> Estimate:
        """Return the estimate if there are no reports: NaN, with bounds [0, 1]."""
        asked = weighed.question.asked
        nothing = np.zeros(numbers if asked is None else asked.size)
        return self._build_estimate(weighed, nothing * np.nan, (nothing, nothing + 1), 0.0)

    def find_error(self, table: Counts) -> str | None:
        """Return why no reports can give a stored table; None if some can."""
        return "a negative number of reports" if (table[:, 0] < 0).any() else None

    def check_values(self, levels: bytes, values: bytes) -> None:  # noqa: B027
        """Raise ReportError("bad_value") if the mechanism cannot output one of the reports.

        It must be fast for a single report as well as for millions.
        """

    def check(self, levels: bytes, values: bytes) -> None:
        """Raise ReportError unless these bytes can be reports of this mechanism.

        `levels`: one level index per report; `values`: the reports, `width` bytes each.
        """
        if len(values) != len(levels) * self.width:
            raise ReportError(
                "bad_length",
                f"{len(values)} bytes of values for {len(levels)} reports: "
                f"expected {self.width} bytes a report, {len(levels) * self.width} in all",
            )
        if (largest := largest_byte(levels)) >= len(self.epsilons):
            raise ReportError(
                "bad_level", f"level {largest}: expected 0 to {len(self.epsilons) - 1}"
            )
        self.check_values(levels, values)

    def checked(self, level: ArrayLike, reports: ArrayLike) -> tuple[Levels, Reports]:
        """Return levels and reports as arrays of the types that they have on the wire.

        `level`, shape (n,): the index of each report's level; `reports`, shape (n, *shape), of
        integers. Raises ReportError if the shapes do not match, or if :meth:`check` rejects the
        reports.
        """
        levels, rows = np.asarray(level), np.asarray(reports)
        if rows.shape != (*levels.shape, *self.shape) or levels.ndim != 1:
            raise ReportError(
                "bad_length",
                f"reports of shape {rows.shape} with levels of shape {levels.shape}: expected "
                f"levels of shape (n,) and reports of shape (n, *{self.shape})",
            )
        levels = _narrow("levels", levels, np.dtype(np.uint8), "bad_level")
        rows = _narrow("reports", rows, self.dtype, "bad_value")
        self.check(levels.tobytes(), rows.tobytes())
        return levels, rows

    def decode(self, values: bytes) -> Reports:
        """Return checked wire bytes as reports, without copying."""
        return np.frombuffer(values, dtype=self.dtype).reshape(-1, *self.shape)

    def encode(self, reports: Reports) -> bytes:
        """Return reports as their wire bytes."""
        return np.ascontiguousarray(reports, dtype=self.dtype).tobytes()


def _narrow(label: str, integers: Array, dtype: np.dtype[Any], reason: str) -> Array:
    """Return integers in a narrower type; raise ReportError if one of them does not fit."""
    if integers.dtype == dtype:
        return integers.copy()
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    is_whole = integers.dtype.kind in "biu"
    if integers.size and not (is_whole and integers.min() >= low and integers.max() <= high):
        numbers = integers.ravel().tolist()
        misfit = next(
            number for number in numbers if not isinstance(number, int) or not low <= number <= high
        )
        raise ReportError(
            reason,
            f"{label} = {shortened(misfit)}: expected integers from {low} to {high} ({dtype})",
        )
    return integers.astype(dtype)
