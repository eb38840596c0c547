"""Chooses at each level the mechanism of least variance, among those whose reports fit."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.errors import ReportError
from estimators.estimate import Counts, Floats
from estimators.exact.randomness import Bits
from estimators.exact.tallies import tally
from estimators.exact.thresholds import at_exp
from estimators.mechanisms.grr import Grr
from estimators.mechanisms.laplace import Laplace, NoisyMean, check_grid
from estimators.mechanisms.mechanism import Levels, Mechanism, Reports
from estimators.mechanisms.oue import Oue
from estimators.mechanisms.projection import Projection
from estimators.mechanisms.projective_geometry_response import ProjectiveGeometryResponse
from estimators.mechanisms.randomized_response import RandomizedResponse
from estimators.mechanisms.rappor import Rappor
from estimators.mechanisms.shared.frequencies import SupportCounts
from estimators.mechanisms.shared.means import ScalarMean
from estimators.mechanisms.shared.signs import ReportedSigns
from estimators.mechanisms.subset_selection import SubsetSelection
from estimators.weights import LevelFacts

CANDIDATES: tuple[Any, ...] = (
    Grr,
    ProjectiveGeometryResponse,
    SubsetSelection,
    Oue,
    Rappor,
    Projection,
)
"""For frequencies, all of which say how often a report supports a category."""


class Auto(Mechanism):
    """At each level the mechanism with the least variance of one report in the worst case.

    A report is the bytes of its level's mechanism, padded with zeros to the widest in use.
    Statistic of a level: that of its mechanism; the other columns stay zero.

    Notes
    -----
    The choice depends on epsilon and the options alone, and uses exact fractions, so that devices
    and aggregators agree on it. Privacy and checks are those of the chosen mechanisms. The weights
    of levels are as if each had a metric of its own; the bounds are those of mixed levels in
    :class:`estimators.bounds.Law`.
    """

    name = "auto"
    memoizable = False
    dtype = np.dtype(np.uint8)
    children: Sequence[ScalarMean | SupportCounts]
    """The mechanism of each level, built for that level alone."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.level_mechanisms)})"

    @property
    def level_mechanisms(self) -> list[str]:
        """The mechanism of each level."""
        return [child.name for child in self.children]

    def _choose(self, children: Sequence[ScalarMean | SupportCounts]) -> LevelFacts:
        """Set these mechanisms, one for each level; return the public constants of the levels."""
        self.children = children
        self.shape = (max(child.width for child in children),)
        self.columns = max(child.columns for child in children)
        facts = [child.facts for child in children]
        variances, paper = np.array([(each.variances[0], each.paper[0]) for each in facts]).T
        return LevelFacts.of(self.epsilons, variances, paper)

    def _by_level(self, level: Levels) -> Iterator[tuple[int, Mechanism, NDArray[np.intp]]]:
        """Yield each level in use, its mechanism, and its rows."""
        order = np.argsort(level, kind="stable")
        ends = np.cumsum(tally(level, len(self.epsilons)))
        for index, rows in enumerate(np.split(order, ends[:-1])):
            if rows.size:
                yield index, self.children[index], rows

    def randomize(self, values: NDArray[Any], level: Levels, bits: Bits) -> Reports:
        """Return the bytes of one report of its level's mechanism for each value."""
        reports = np.zeros((len(level), *self.shape), dtype=np.uint8)
        for _, child, rows in self._by_level(level):
            own = child.randomize(values[rows], np.zeros(rows.size, dtype=np.uint8), bits)
            wire = np.frombuffer(child.encode(own), dtype=np.uint8)
            reports[rows, : child.width] = wire.reshape(rows.size, child.width)
        return reports

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Reject a report that its level's mechanism rejects, or that is not padded with zeros."""
        reports = np.frombuffer(values, dtype=np.uint8).reshape(-1, self.width)
        for _, child, rows in self._by_level(np.frombuffer(levels, dtype=np.uint8)):
            if (rest := reports[rows, child.width :]).any():
                raise ReportError(
                    "bad_value", f"byte {rest.max()} after {child.width} bytes: expected zeros"
                )
            child.check_values(bytes(rows.size), reports[rows, : child.width].tobytes())

    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a table; each row has the columns of its level's mechanism."""
        for index, child, rows in self._by_level(level):
            own = child.decode(reports[rows, : child.width].tobytes())
            child.accumulate(self._row(table, index), np.zeros(rows.size, dtype=np.uint8), own)

    def _row(self, table: Counts, level: int) -> Counts:
        """Return the table of one level's mechanism, not copied."""
        return table[level : level + 1, : self.children[level].columns]

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return the log likelihood of the level's mechanism."""
        child = self.children[level]
        own = child.decode(reports[:, : child.width].tobytes())
        return child.log_likelihood(own, 0, value)

    def report_range(self) -> tuple[Floats, Floats]:
        """Return the ranges of the levels' mechanisms."""
        ranges = [child.report_range() for child in self.children]
        lowest, highest = (np.concatenate(ends) for ends in zip(*ranges, strict=True))
        return lowest, highest

    def privacy_ratio(self, level: int) -> Fraction:
        """Return the ratio of the level's mechanism."""
        return self.children[level].privacy_ratio(0)

    def is_private(self, level: int) -> bool:
        """Return whether the level's mechanism is private."""
        return self.children[level].is_private(0)


class AutoMean(Auto, NoisyMean):
    """Signs at small epsilons, Laplace noise at large ones.

    The mechanism is `randomized_response` or `laplace`, whichever has the smaller worst-case
    variance over all values: they cross at epsilon = 2.32. Source: HLDP, Algorithm 1.

    Parameters
    ----------
    epsilons : sequence of Fraction
        The privacy levels, ascending.
    grid : int
        g of `laplace`.
    report_bytes : int
        The largest size of a report, in bytes.

    Examples
    --------
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = AutoMean([Fraction(1), Fraction(4)])
    >>> mechanism
    AutoMean(randomized_response, laplace)
    >>> mechanism.randomize(np.array([0.5, 0.5]), np.array([0, 1]), SeededBits(1))
    array([[  0,   0,   0,   0],
           [167,   3,   0,   0]], dtype=uint8)
    """

    children: Sequence[RandomizedResponse | Laplace]

    def __init__(
        self, epsilons: Sequence[Fraction], *, grid: int = 1024, report_bytes: int = 16
    ) -> None:
        Mechanism.__init__(self, epsilons)
        check_grid(grid)
        _check_report_bytes(report_bytes)
        self.facts = self._choose([_mean_at(e, grid, report_bytes) for e in self.epsilons])
        self._contrast = np.array(
            [1.0 if isinstance(x, Laplace) else x.signs.contrast[0] for x in self.children]
        )
        self.rate = np.array(
            [x.rate[0] if isinstance(x, Laplace) else np.inf for x in self.children]
        )
        self._unit = 1 / grid

    def level_means(self, table: Counts) -> Floats:
        """Return the unbiased mean of each level, zero without reports."""
        rows = [self._row(table, level) for level in range(len(self.epsilons))]
        parts = [x.level_means(row) for x, row in zip(self.children, rows, strict=True)]
        return np.concatenate(parts)


class AutoFrequency(Auto, SupportCounts):
    """The mechanism of least variance among those that fit.

    It has the smallest variance averaged over the categories, for the worst data (f = 1/k), among
    those whose reports fit; of two with the same variance, the smaller reports. Source: HLDP,
    Algorithm 2; HIST, section 2.

    Parameters
    ----------
    epsilons : sequence of Fraction
        The privacy levels, ascending.
    categories : int
        k, at least 2.
    report_bytes : int
        The largest size of a report, in bytes.

    Raises
    ------
    ValueError
        If no report fits, with the smallest possible size.

    Examples
    --------
    >>> AutoFrequency([Fraction(1), Fraction(4)], categories=16)
    AutoFrequency(subset_selection, grr)
    """

    children: Sequence[SupportCounts]

    def __init__(
        self, epsilons: Sequence[Fraction], *, categories: int, report_bytes: int = 16
    ) -> None:
        _check_report_bytes(report_bytes)
        chosen = [_frequency_at(epsilon, categories, report_bytes) for epsilon in epsilons]
        signs = ReportedSigns(*zip(*(child.signs.exact[0] for child in chosen), strict=True))
        SupportCounts.__init__(self, epsilons, categories, signs)
        self.facts = self._choose(chosen)

    def supports(self, reports: Reports, level: int, category: Any) -> NDArray[np.bool_]:
        """Return which reports support the category, by the level's mechanism."""
        child = self.children[level]
        own = child.decode(reports[:, : child.width].tobytes())
        return child.supports(own, 0, category)

    def support(self, table: Counts) -> Counts:
        """Return how many reports support each category, shape (levels, k)."""
        result = np.zeros((len(self.epsilons), self.categories), dtype=np.int64)
        for mechanism, levels in self._together:
            result[levels] = mechanism.support(table[levels, : mechanism.columns])
        return result

    @functools.cached_property
    def _together(self) -> list[tuple[SupportCounts, list[int]]]:
        """Each chosen mechanism, for all its levels, and these levels."""
        result = []
        kinds: list[Any] = [type(child) for child in self.children]
        for kind in dict.fromkeys(kinds):
            levels = [i for i, each in enumerate(kinds) if each is kind]
            epsilons = [self.epsilons[level] for level in levels]
            result.append((kind(epsilons, categories=self.categories), levels))
        return result


def _check_report_bytes(report_bytes: int) -> None:
    if report_bytes < 1:
        raise ValueError(f"report_bytes = {report_bytes}: expected 1 or more")


def _mean_at(epsilon: Fraction, grid: int, most: int) -> RandomizedResponse | Laplace:
    """Return the mechanism with the smaller worst-case variance, if its report fits.

    That of a sign is 1 / a^2, at the value 0; that of noise with q = e^(-epsilon / 2g), including
    rounding, is (2q / (1 - q)^2 + 1/4) / g^2. The second is irrational, so the comparison
    terminates.

    Examples
    --------
    >>> [_mean_at(Fraction(e), 1024, 4).name for e in ("2.3", "2.32", "2.33")]
    ['randomized_response', 'randomized_response', 'laplace']
    """
    signs = RandomizedResponse([epsilon])
    if Laplace([epsilon], grid=grid).width > most:
        return signs
    ((p, q),) = signs.signs.exact
    variance = 1 / (p - q) ** 2

    def has_less_noise(e: Fraction) -> bool:
        return variance <= (2 * e / (e - 1) ** 2 + Fraction(1, 4)) / grid**2

    return signs if at_exp(epsilon / (2 * grid), has_less_noise) else Laplace([epsilon], grid=grid)


def _frequency_at(epsilon: Fraction, categories: int, most: int) -> SupportCounts:
    """Return the candidate of least variance whose report takes at most this many bytes.

    Examples
    --------
    >>> _frequency_at(Fraction(1), 200, 4).name, _frequency_at(Fraction(1), 200, 25).name
    ('projective_geometry_response', 'subset_selection')
    """
    fitting: list[SupportCounts] = []
    smallest = []
    for candidate in CANDIDATES:
        width = candidate.least_width(categories)
        if width <= most:
            built: SupportCounts = candidate([epsilon], categories=categories)
            width = built.width
            if width <= most:
                fitting.append(built)
        smallest.append(width)
    if not fitting:
        raise ValueError(
            f"report_bytes = {most} at epsilon = {float(epsilon)}: expected {min(smallest)} or "
            f"more for {categories} categories"
        )
    return min(fitting, key=lambda x: (x.signs.exact_even_variance(0, categories), x.width))
