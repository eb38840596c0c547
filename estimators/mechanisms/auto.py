"""Chooses for each level the child mechanism of least variance whose reports are small enough."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from estimators.bounds.shares.bets import CategorySets, SymbolKinds
from estimators.bounds.shares.subsets import SubsetKinds
from estimators.errors import ReportError
from estimators.estimate import Array, Bools, Counts
from estimators.exact.piecewise_shapes import MOST_SYMBOLS, shape_at, two_symbols
from estimators.exact.randomness import Bits
from estimators.mechanisms.grr import Grr
from estimators.mechanisms.mechanism import Epsilons, Levels, Reports, rows_by_level
from estimators.mechanisms.oue import Oue
from estimators.mechanisms.piecewise import Piecewise
from estimators.mechanisms.projection import Projection
from estimators.mechanisms.projective_geometry_response import ProjectiveGeometryResponse
from estimators.mechanisms.rappor import Rappor
from estimators.mechanisms.shared.frequencies import SupportCounts
from estimators.mechanisms.shared.means import ScalarMean
from estimators.mechanisms.shared.signs import ReportedSigns
from estimators.mechanisms.subset_selection import SubsetSelection
from estimators.shuffling.set_laws import SetLaw

FREQUENCY_CANDIDATES: tuple[Any, ...] = (
    Grr,
    ProjectiveGeometryResponse,
    SubsetSelection,
    Oue,
    Rappor,
    Projection,
)
"""The frequency mechanisms from which :class:`AutoFrequency` chooses; each can be repeated."""


class AutoMean(Piecewise):
    """The mechanism `windows` at each level, or a single sign where a sign has less variance.

    A report is a symbol of its level; with two symbols it is that of `randomized_response`.
    Statistic of a level: the number of reports and the number for each symbol. Source: as for
    `windows`.

    Signs are better if E x^2 > c^2 - w (theorem 3 of docs/proofs/mechanisms.md), which is tested in
    exact fractions: from E x^2 = 0.39 at epsilon 0.5, 0.56 at 1, 0.84 at 2, and 0.95 at 4.

    Parameters
    ----------
    values : str
        ``"two"`` if all values are at the ends of the range: then `spread` is 1, and every level
        reports a sign. Otherwise ``"any"``, the default.
    spread : str
        The expected mean of x^2, for values x in [-1, 1], as a decimal number or a fraction: 1/3 by
        default, as for uniform values; 1 for values at both ends. It need not be right: a wrong
        value increases the variance, but no bound becomes wrong.
    symbols : int
        The largest M, as for `windows`.

    Examples
    --------
    >>> mechanism = AutoMean([Fraction(1, 4), Fraction(1), Fraction(4)], spread="0.6")
    >>> mechanism
    AutoMean(randomized_response, randomized_response, windows)
    """

    name = "auto"

    def __init__(
        self,
        epsilons: Epsilons,
        *,
        values: str = "any",
        spread: str = "1/3",
        symbols: int = MOST_SYMBOLS,
    ) -> None:
        ScalarMean.__init__(self, epsilons)
        if values not in ("any", "two"):
            raise ValueError(f"values = {values!r}: expected 'any' or 'two'")
        expected = Fraction(1) if values == "two" else _parse_spread(spread)
        shapes = [(two_symbols(epsilon), shape_at(epsilon, symbols)) for epsilon in self.epsilons]
        self._use(
            [
                sign if expected > sign.worst_variance - windows.worst_variance else windows
                for sign, windows in shapes
            ]
        )

    @property
    def level_mechanisms(self) -> list[str]:
        """The name of each level's mechanism."""
        return ["randomized_response" if x.symbols == 2 else Piecewise.name for x in self.shapes]


def _parse_spread(text: str) -> Fraction:
    """Return a number from 0 to 1, written as a decimal or a fraction; else raise ValueError."""
    try:
        share = Fraction(text)
    except (ValueError, ZeroDivisionError):
        share = Fraction(-1)
    if not 0 <= share <= 1:
        raise ValueError(f"spread = {text!r}: expected a number from 0 to 1 as text, as in '0.9'")
    return share


class AutoFrequency(SupportCounts):
    """The mechanism of least variance among those whose reports take at most `report_bytes` bytes.

    The variance is averaged over the categories, for the worst data (each category has the share
    1/k). Of two mechanisms with the same variance, the one with smaller reports is chosen. Source:
    HLDP, Algorithm 2; HIST, section 2.

    A report is the bytes of its level's mechanism, padded with zeros to the widest report of all
    levels. Statistic of a level: that of its mechanism; columns that it does not use stay zero.

    The choice depends only on epsilon and the options, and is computed in exact fractions, so
    devices and aggregators agree on it. The weight of a level is that of its mechanism.

    Parameters
    ----------
    categories : int
        k, at least 2.
    report_bytes : int
        The largest size of a report, in bytes.

    Raises
    ------
    ValueError
        If all reports are larger than `report_bytes`; the message names the smallest size.

    Examples
    --------
    >>> AutoFrequency([Fraction(1), Fraction(4)], categories=16)
    AutoFrequency(subset_selection, grr)
    """

    name = "auto"
    dtype = np.dtype(np.uint8)
    children: Sequence[SupportCounts]
    """The mechanism of each level, built for that level alone."""

    def __init__(self, epsilons: Epsilons, *, categories: int, report_bytes: int = 16) -> None:
        if report_bytes < 1:
            raise ValueError(f"report_bytes = {report_bytes}: expected 1 or more")
        chosen = [_frequency_at(epsilon, categories, report_bytes) for epsilon in epsilons]
        signs = ReportedSigns(*zip(*(child.signs.exact[0] for child in chosen), strict=True))
        SupportCounts.__init__(self, epsilons, categories, signs)
        self.children = chosen
        self.shape = (max(child.width for child in chosen),)
        self.columns = max(child.columns for child in chosen)

    @property
    def level_mechanisms(self) -> list[str]:
        """The name of each level's mechanism."""
        return [child.name for child in self.children]

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return the bytes of a report for each value, which the mechanism of its level draws."""
        reports = np.zeros((len(level), *self.shape), dtype=np.uint8)
        for index, rows in rows_by_level(level, len(self.epsilons)):
            child, own_values = self.children[index], values[rows]
            level_zero = np.zeros(len(own_values), dtype=np.uint8)
            wire = child.encode(child.randomize(own_values, level_zero, bits))
            octets = np.frombuffer(wire, dtype=np.uint8)
            reports[rows, : child.width] = octets.reshape(-1, child.width)
        return reports

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Raise ReportError for a report not padded with zeros, or rejected by its mechanism."""
        reports = np.frombuffer(values, dtype=np.uint8).reshape(-1, self.width)
        level = np.frombuffer(levels, dtype=np.uint8)
        for index, rows in rows_by_level(level, len(self.epsilons)):
            child, of_level = self.children[index], reports[rows]
            if (padding := of_level[:, child.width :]).any():
                raise ReportError(
                    "bad_value", f"byte {padding.max()} after {child.width} bytes: expected zeros"
                )
            child.check_values(bytes(len(of_level)), of_level[:, : child.width].tobytes())

    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a table; each row has the columns of its level's mechanism."""
        for index, rows in rows_by_level(level, len(self.epsilons)):
            child, decoded = self.children[index], self._decoded(reports[rows], index)
            level_zero = np.zeros(len(decoded), dtype=np.uint8)
            child.accumulate(table[index : index + 1, : child.columns], level_zero, decoded)

    def _decoded(self, reports: Reports, level: int) -> Reports:
        """Return the bytes of one level's reports as reports of the level's mechanism."""
        child = self.children[level]
        return child.decode(reports[:, : child.width].tobytes())

    def privacy_ratio(self, level: int) -> Fraction:
        """Return the exact privacy ratio of the level's mechanism."""
        return self.children[level].privacy_ratio(0)

    def set_laws(self, level: int) -> tuple[SetLaw, ...]:
        """Return the laws of reports of the level's mechanism, for crowds."""
        return self.children[level].set_laws(0)

    def supports(self, reports: Reports, level: int, category: Any) -> Bools:
        """Return which reports support the category, by the level's mechanism."""
        return self.children[level].supports(self._decoded(reports, level), 0, category)

    def report_kinds(self, level: int, sets: CategorySets) -> SymbolKinds | SubsetKinds:
        """Return the kinds of reports of a level: how many categories of each set they support."""
        return self.children[level].report_kinds(0, sets)

    def support(self, table: Counts) -> Counts:
        """Return how many reports support each category, shape (levels, k)."""
        rows = zip(self.children, table[:, None], strict=True)
        return np.concatenate([child.support(row[:, : child.columns]) for child, row in rows])


def _frequency_at(epsilon: Fraction, categories: int, max_bytes: int) -> SupportCounts:
    """Return the candidate of least variance whose report takes at most `max_bytes` bytes.

    Raises ValueError if there is no such candidate.

    >>> _frequency_at(Fraction(1), 200, 4).name, _frequency_at(Fraction(1), 200, 25).name
    ('projective_geometry_response', 'subset_selection')
    """
    fitting: list[SupportCounts] = []
    smallest = []
    for candidate in FREQUENCY_CANDIDATES:
        width = candidate.least_width(categories)
        if width <= max_bytes:
            built: SupportCounts = candidate([epsilon], categories=categories)
            width = built.width
            if width <= max_bytes:
                fitting.append(built)
        smallest.append(width)
    if not fitting:
        raise ValueError(
            f"report_bytes = {max_bytes} at epsilon = {float(epsilon)}: expected {min(smallest)} "
            f"or more for {categories} categories"
        )
    return min(fitting, key=lambda x: (x.signs.exact_even_variance(0, categories), x.width))
