"""Repetition: several reports of a value, each at a part of a large epsilon."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from estimators.errors import ReportError, meant
from estimators.estimate import Array, Bools, Counts, Floats
from estimators.exact.randomness import Bits
from estimators.exact.tallies import tally
from estimators.limits import LARGEST_REPORT
from estimators.mechanisms.auto import FREQUENCY_CANDIDATES
from estimators.mechanisms.mechanism import Epsilons, Levels, Mechanism, Reports
from estimators.mechanisms.randomized_response import RandomizedResponse
from estimators.mechanisms.rappor import Rappor
from estimators.mechanisms.shared.frequencies import SupportCounts
from estimators.mechanisms.shared.signs import RepeatedSigns
from estimators.shuffling.set_laws import SetLaw
from estimators.weights import LevelFacts


class Repetition(Mechanism):
    """r = ceil(epsilon) independent reports by another mechanism, each at epsilon / r.

    A user's reports are stored side by side, in as many slots as the largest level has reports;
    slots that a level does not use are zero. Statistic of a level: the number of users, and the
    sums of the repeated mechanism over all their reports. Source: HIST, Proposition 2 and Corollary
    3.

    **Privacy.** The ratios of independent reports multiply; the share epsilon / r is an exact
    fraction.

    **Variance.** v / r + s for a user, where v is the variance of one report's estimate given the
    value, and s the variance of the values. Most mechanisms have a smaller variance with one report
    at the whole epsilon (docs/mechanisms.md); repetition is for mechanisms that, like `projection`,
    are good only at small epsilons.

    Parameters
    ----------
    of : str, optional
        The mechanism to repeat.

    Raises
    ------
    ValueError
        If the mechanism cannot be repeated, or the reports of a user are too large.
    """

    name = "repetition"
    memoizable = False
    rows_are_alike = False

    def _repeat(self, of: str, repeatable: Sequence[type[Any]], **parameters: int) -> None:
        """Build the mechanism `of`, and set the layout of its reports.

        Raises ValueError if `of` cannot be repeated, or if a user's reports are too large.
        """
        names = {mechanism.name: mechanism for mechanism in repeatable}
        if of not in names:
            raise ValueError(f"of = {of!r}: {meant(str(of), names)}")
        self.repeats = [math.ceil(epsilon) for epsilon in self.epsilons]
        """r, the number of reports, per level."""
        parts = [epsilon / r for epsilon, r in zip(self.epsilons, self.repeats, strict=True)]
        self.repeated: Mechanism = names[of](parts, **parameters)
        """The mechanism that is repeated."""
        self._repeats = np.array(self.repeats, dtype=np.int64)
        self.dtype, self.columns = self.repeated.dtype, self.repeated.columns
        self.shape = (max(self.repeats), *self.repeated.shape)
        if self.width > LARGEST_REPORT:
            raise ValueError(
                f"{max(self.repeats)} reports of {self.repeated.width} bytes for one user: "
                f"expected at most {LARGEST_REPORT} bytes in all; offer smaller epsilons or "
                "repeat another mechanism"
            )

    @property
    def level_mechanisms(self) -> list[str]:
        """For each level, a text with the number of reports and the mechanism's name."""
        return [f"{r} x {self.repeated.name}" for r in self.repeats]

    def _used(self, level: Levels) -> Bools:
        """Return which slots of each report its level uses, shape (n, slots)."""
        return np.arange(self.shape[0]) < self._repeats[level][:, None]

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return one row of independent reports for each value."""
        reports: Reports = np.zeros((len(level), *self.shape), dtype=self.dtype)
        for slot in range(self.shape[0]):  # in the order in which a device draws them
            rows = np.flatnonzero(self._repeats[level] > slot)
            if rows.size:
                reports[rows, slot] = self.repeated.randomize(values[rows], level[rows], bits)
        return reports

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Raise ReportError if a report is invalid for the repeated mechanism.

        It is also raised if a slot that the level does not use is not zero.
        """
        level = np.frombuffer(levels, dtype=np.uint8)
        shape = level.size, self.shape[0], self.repeated.width
        slots = np.frombuffer(values, dtype=np.uint8).reshape(shape)
        used = self._used(level)
        if (unused := slots[~used]).any():
            raise ReportError("bad_value", f"byte {unused.max()} in an unused slot: expected 0")
        times = self._repeats[level]
        self.repeated.check_values(np.repeat(level, times).tobytes(), slots[used].tobytes())

    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a table with the repeated mechanism's columns; the first counts users."""
        users = table[:, 0] + tally(level, len(self.epsilons))
        levels = np.repeat(level, self._repeats[level])
        self.repeated.accumulate(table, levels, reports[self._used(level)])
        table[:, 0] = users

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return the sum of the log likelihoods of a user's reports, which are independent."""
        times = self.repeats[level]
        single = reports[:, :times].reshape(-1, *self.repeated.shape)
        by_report = self.repeated.log_likelihood(single, level, value).reshape(-1, times)
        return np.asarray(by_report.sum(axis=1))

    def privacy_ratio(self, level: int) -> Fraction:
        """Return the r-th power of the ratio of one report, exactly."""
        return self.repeated.privacy_ratio(level) ** self.repeats[level]

    def set_laws(self, level: int) -> tuple[SetLaw, ...]:
        """Return the law of the worst mechanism with the level's epsilon."""
        return Mechanism.set_laws(self, level)


class RepeatedMean(Repetition, RandomizedResponse):
    """The mean of values; the rounding to a sign is drawn again for each report.

    Parameters
    ----------
    of : str, optional
        The mechanism to repeat: only ``"randomized_response"``. Source: HIST, Proposition 2.

    Examples
    --------
    >>> RepeatedMean([Fraction(1), Fraction(5, 2)]).level_mechanisms
    ['1 x randomized_response', '3 x randomized_response']
    """

    repeated: RandomizedResponse

    def __init__(self, epsilons: Epsilons, *, of: str | None = None) -> None:
        Mechanism.__init__(self, epsilons)
        self._repeat(RandomizedResponse.name if of is None else of, [RandomizedResponse])
        signs = RepeatedSigns(self.repeated.signs, self.repeats, values=True)
        self.signs = signs
        paper = signs.repeats * signs.contrast**2
        self.facts = LevelFacts.of(self.epsilons, 1 / paper + 1 - 1 / signs.repeats, paper)


class RepeatedFrequency(Repetition, SupportCounts):
    """Frequencies: every report of a user supports categories.

    Parameters
    ----------
    categories : int
        k, at least 2.
    of : str, optional
        The mechanism to repeat: ``"rappor"`` (default), ``"grr"``, ``"oue"``,
        ``"subset_selection"``, ``"projective_geometry_response"`` or ``"projection"``. Source:
        HIST, Corollary 3.

    Examples
    --------
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = RepeatedFrequency([Fraction(1), Fraction(5, 2)], of="grr", categories=10)
    >>> mechanism.repeats, mechanism.level_mechanisms
    ([1, 3], ['1 x grr', '3 x grr'])
    >>> mechanism.randomize(np.array([3, 3]), np.array([0, 1]), SeededBits(1))
    array([[3, 0, 0],
           [5, 6, 6]], dtype=uint8)
    """

    repeated: SupportCounts

    def __init__(self, epsilons: Epsilons, *, categories: int, of: str | None = None) -> None:
        Mechanism.__init__(self, epsilons)
        self._repeat(Rappor.name if of is None else of, FREQUENCY_CANDIDATES, categories=categories)
        columns = self.repeated.columns
        signs = RepeatedSigns(self.repeated.signs, self.repeats)
        SupportCounts.__init__(self, epsilons, categories, signs)
        self.columns = columns
        paper = signs.repeats * self.repeated.facts.paper
        self.facts = dataclasses.replace(self.facts, paper=paper)

    def supports(self, reports: Reports, level: int, category: Any) -> Bools:
        """Return which users' reports all support the category."""
        times = self.repeats[level]
        single = reports[:, :times].reshape(-1, *self.repeated.shape)
        by_report = self.repeated.supports(single, level, category).reshape(-1, times)
        return np.asarray(np.logical_and.reduce(by_report, axis=1))

    def support(self, table: Counts) -> Counts:
        """Return the number of reports that support each category, shape (levels, k)."""
        reports = table.copy()
        reports[:, 0] *= self._repeats
        return self.repeated.support(reports)
