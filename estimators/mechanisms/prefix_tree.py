"""Prefix tree: discovers the frequent strings of an open vocabulary, and answers for any string."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from estimators.discovery.discoveries import CandidateTests, Discovery, search_and_test
from estimators.discovery.report_layout import DiscoveryLayout, depths_between
from estimators.discovery.string_code import StringCode
from estimators.estimate import Array, Bools, Counts, Estimate, Floats, Indices, Integers, Limits
from estimators.exact.hashing import check_rows_and_seed
from estimators.exact.randomness import Bits, Words
from estimators.exact.sampling import uniform_below
from estimators.limits import LARGEST_TABLE
from estimators.mechanisms.mechanism import Epsilons, Levels, Reports
from estimators.mechanisms.shared.outputs import OutputSets, PointResponses, ReportedSymbols
from estimators.mechanisms.shared.string_lookups import StringLookups
from estimators.question import Question
from estimators.shuffling.set_laws import SetLaw
from estimators.weights import level_weights

LOG_P_GRAIN = 4
"""Limits are computed for failure probabilities of the form e^(-i/4), rounded down."""


class PrefixTree(PointResponses, ReportedSymbols, StringLookups):
    """A report is about the hash of a string, or about the hash of a prefix of its code word.

    A public code (:mod:`estimators.discovery.string_code`) turns a string into bits. With
    probability 1/3, the device draws one of t rows for the whole string, otherwise one of G depths.
    The hash of the string in that row, or of its prefix of that depth, is a point of a projective
    space, reported by projective geometry response with the full epsilon, as one integer of 4
    bytes. Statistic of a level: the number of reports and the number for each integer. Source: PEM
    (Wang, Li and Jha, 1708.06674) for the groups, Feldman, Nelson, Nguyen and Talwar (2022) for the
    response, Pan (2406.03785) for the rows.

    **Privacy.** Theorem 1 of docs/proofs/privacy.md, given group and row, with M = K and W = s. A
    value gives one report, not one for each group.

    **Look-ups** use the reports of whole strings alone; collisions can only add to a frequency. The
    target ``sample`` is the third of the users who reported their whole string. If there are only
    reports of prefixes, estimates are 0, with bounds [0, 1].

    Parameters
    ----------
    epsilons : sequence of Fraction
        The privacy levels, ascending. Levels above 6 report at epsilon 6.
    categories : None
        The vocabulary is open. Values are rows of three words: a string's key, and 128 bits.
    code : StringCode
        The code of the metric's domain.
    first, last, step : int
        The depths in bits: from m_1 = first (8 to 16) in steps (1 to 8) up to m_G = last (at most
        128). A string whose code word is longer than `last` is not discovered, but its frequency
        can be queried.
    rows : int
        t, at least 1.
    seed : int
        The public seed of the hashes; below 2^64. Anyone who knows it can choose strings that
        collide with a given string.

    Examples
    --------
    >>> from estimators import SeededBits, define
    >>> metric = define(name="m", kind="frequency", categories="open", discover=True,
    ...                 preset="upper", levels=[1, 4], options={"last": 32})
    >>> mechanism = metric.randomizer
    >>> mechanism.layout.depths, mechanism.columns, mechanism.width
    ((16, 20, 24, 28, 32), 713413, 4)
    >>> metric.randomize(["N725MQ"] * 4, np.array([0, 0, 1, 1]), SeededBits(1))
    array([ 25546, 397945, 570870, 590698], dtype=uint32)
    """

    name = "prefix_tree"
    open_vocabulary = True
    closed_vocabulary = False
    discovers = True

    def __init__(
        self,
        epsilons: Epsilons,
        *,
        categories: None,
        code: StringCode,
        first: int = 16,
        last: int = 64,
        step: int = 4,
        rows: int = 256,
        seed: int = 0,
    ) -> None:
        super().__init__(epsilons)
        check_rows_and_seed(rows, seed)
        self.code, self.seed = code, seed
        depths = depths_between(first, last, step)
        self.layout = DiscoveryLayout(self.epsilons, depths, rows, seed)
        """The groups and their geometries."""
        if max(self.layout.symbols) >= LARGEST_TABLE:
            raise ValueError(f"rows = {rows}: expected at most {LARGEST_TABLE} cells a level")
        self._count_symbols(self.layout.symbols)
        # each level has a space for prefixes and another for whole strings
        kinds = [*self.layout.trees, *self.layout.sketches]
        self._set_spaces([kind.epsilon for kind in kinds], [kind.space for kind in kinds])
        self._set_rows(self.layout.hashed_rows)

    def privacy_ratio(self, level: int) -> Fraction:
        """Return the larger of the exact privacy ratios for prefixes and for whole strings."""
        return max(self._ratios(level))

    def _ratios(self, level: int) -> list[Fraction]:
        """Return the privacy ratios of a level for prefixes, and for whole strings."""
        return [p / q for p, q in self.chances[level :: len(self.epsilons)]]

    def set_laws(self, level: int) -> tuple[SetLaw, ...]:
        """Return the laws of reports of prefixes (a share of 2/3) and of whole strings (1/3)."""
        spaces = (level, Fraction(2, 3)), (level + len(self.epsilons), Fraction(1, 3))
        laws = ((OutputSets.set_laws(self, part)[0], chance) for part, chance in spaces)
        return tuple(dataclasses.replace(law, chance=chance) for law, chance in laws)

    # -- Reports ------------------------------------------------------------------------------

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return one report for each value, a row of three words: a key, and 128 bits."""
        groups, rows = len(self.layout.depths), self.layout.rows
        index = level.astype(np.int64)
        drawn = uniform_below(bits, np.full(index.size, 3 * groups, dtype=np.uint64))
        group = (drawn.astype(np.int64) - groups) // 2  # negative for whole strings
        is_whole = group < 0
        group[is_whole] = uniform_below(bits, np.full(int(is_whole.sum()), rows, dtype=np.uint64))
        kind = np.where(is_whole, index + len(self.epsilons), index)
        own_points = self._own_points(values, index, is_whole, group)
        point = self._respond(own_points, kind, bits)
        start = np.where(is_whole, groups * self._points[index], 0)
        return np.asarray((start + group * self._points[kind] + point).astype(self.dtype))

    def _own_points(
        self, values: Words, level: Levels, is_whole: Bools, group: Integers
    ) -> Integers:
        """Return the point of each value in its row, or in its group of prefixes."""
        layout, points = self.layout, np.empty(level.size, dtype=np.int64)
        hashes = np.zeros((level.size, len(layout.depths)), dtype=np.uint64)
        hashes[~is_whole] = layout.prefix_hashes(values[~is_whole, 1:])
        for used in np.unique(level).tolist():
            of_tree = np.flatnonzero((level == used) & ~is_whole)
            points[of_tree] = layout.tree_points(hashes[of_tree, group[of_tree]], used)
            of_row = np.flatnonzero((level == used) & is_whole)
            rows = self.hashed_rows[used]
            points[of_row] = rows.points_in(group[of_row], values[of_row, 0])
        return points

    def supports(self, reports: Reports, level: int, key: Any) -> Bools:
        """Return which reports lie on the hyperplane of the value's point in their group.

        `reports`, shape (n,): reports of one `level`; `key`: a value, shape (3,), or only its key,
        which only reports of whole strings can support.
        """
        value, layout = np.atleast_1d(np.asarray(key, dtype=np.uint64)), self.layout
        number, tree = reports.astype(np.int64), layout.trees[level]
        is_supported = np.zeros(number.size, dtype=np.bool_)
        first = len(layout.depths) * tree.points
        is_whole = number >= first
        rows = self.hashed_rows[level]
        is_supported[is_whole] = rows.supports(number[is_whole] - first, int(value[0]))
        if value.size == 3:
            group, point = np.divmod(number[~is_whole], tree.points)
            own_points = layout.tree_points(layout.prefix_hashes(value[None, 1:])[0], level)[group]
            is_supported[~is_whole] = tree.space.contains(point - own_points)
        return is_supported

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return for each report its space's log privacy ratio if it supports the value, else 0."""
        is_whole = reports >= len(self.layout.depths) * self.layout.trees[level].points
        ratios = [float(np.log(float(ratio))) for ratio in self._ratios(level)]
        supported = self.supports(reports, level, value)
        return np.where(supported, np.where(is_whole, ratios[1], ratios[0]), 0.0)

    # -- Answers ------------------------------------------------------------------------------

    def row_counts(self, table: Counts, level: int) -> Counts:
        """Return how many whole-string reports of a level name each point of each row, (t, K)."""
        return self.layout.row_counts(table[level, 1:], level)

    def answering(self, table: Counts) -> Counts:
        """Return the number of each level's reports of whole strings, shape (levels,)."""
        cells = [self.row_counts(table, level) for level in range(len(table))]
        return np.array([part.sum() for part in cells], dtype=np.int64)

    def _estimate(self, table: Counts, question: Question) -> Estimate:
        estimate, counts = super()._estimate(table, question), self.answering(table)
        if table[:, 0].any() and not counts.any():
            estimate = dataclasses.replace(estimate, value=np.zeros_like(estimate.value))
        return dataclasses.replace(estimate, basis=counts)

    # -- Discovery ----------------------------------------------------------------------------

    def discover(
        self,
        table: Counts,
        beta: float,
        keys_of: Callable[[list[str]], Words],
        progress: Callable[[float], None] = lambda _: None,
    ) -> Discovery:
        """Return the frequent strings, without a list to choose from.

        `table`, shape (levels, columns); `beta`: with probability at least 1 - beta each returned
        string is held by some user, and all intervals hold; `keys_of`: a function from strings to
        their keys; `progress`: a function that is called with the share of the work done so far.
        """
        Question(beta=beta)  # raises unless beta is a probability
        if not table[:, 0].any():
            nothing = np.zeros(0)
            return Discovery([], nothing, nothing, nothing, 0, 0)
        tested = search_and_test(self.code, self.layout, table, keys_of, progress)
        rejected = tested.rejected(beta / 2)
        lower, upper = self._found_limits(table, tested, rejected, beta / 2)
        value = np.clip(tested.value[rejected], lower, upper)
        order = np.argsort(-value, kind="stable")
        information = float((table[:, 0] / self.facts.variances).sum())
        strings = [tested.strings[rejected[i]] for i in order.tolist()]
        progress(1.0)
        value, lower, upper = (x[order] for x in (value, lower, upper))
        reports, tested_reports = int(table[:, 0].sum()), int(self.answering(table).sum())
        candidates, noise_floor = len(tested.strings), information**-0.5
        numbers = reports, tested_reports, candidates, noise_floor
        return Discovery(strings, value, lower, upper, *numbers)

    def _found_limits(
        self, table: Counts, tested: CandidateTests, rejected: Indices, beta: float
    ) -> Limits:
        """Return two-sided bounds on the found strings' frequencies; each has a share of beta."""
        lower, upper = np.zeros((2, rejected.size))
        if not rejected.size:
            return lower, upper
        counts = self.answering(table)
        shares = level_weights("optimal", counts, self.facts)
        support = self.support(table, tested.keys[rejected])
        log_p = np.floor(LOG_P_GRAIN * np.log(beta * tested.weights[rejected] / 2)) / LOG_P_GRAIN
        question = Question(beta=beta)
        for log_share in np.unique(log_p).tolist():
            has_share = log_p == log_share
            lower[has_share], upper[has_share] = self.limits(
                counts, shares, support[:, has_share], question, log_share
            )
        return lower, upper
