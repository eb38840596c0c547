"""Finds the frequent strings in a statistic: lists candidates, estimates and tests them.

Theorem 3 of docs/proofs/discovery.md. Neither the list nor the weights may depend on earlier
reports of whole strings under the same seed, because a string keeps its points.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from estimators.discovery.own_points import RowPopulations, TailBound
from estimators.discovery.prefix_search import (
    CandidateStrings,
    ReportProgress,
    TreeEvidence,
    list_candidates,
)
from estimators.discovery.report_layout import DiscoveryLayout
from estimators.discovery.string_code import StringCode
from estimators.estimate import Counts, Floats, Indices
from estimators.exact.randomness import Words

EVEN_SHARE = 0.1
"""The share of the failure probability that is divided evenly among candidates, not by scores."""
CLEAR_DEVIATIONS, MAX_PEELED = 5.0, 1_000
"""Strings are peeled if their estimate is at least 5 standard deviations; 1,000 at most."""
PREFIX_MARGIN = 3.0
"""By how many standard deviations an estimate may be above that of one of its prefixes."""


@dataclasses.dataclass(frozen=True)
class CandidateTests:
    """The candidates and their test results.

    `strings`: the best score first; `keys`, shape (n,): their keys; `value`, shape (n,): the
    estimate of each frequency, unbiased over hashes; `log_p`, shape (n,): ln of the p-value of
    "nobody holds it"; `weights`, shape (n,): the share of the failure probability; sums to one.
    """

    strings: list[str]
    keys: Words
    value: Floats
    log_p: Floats
    weights: Floats

    def rejected(self, beta: float) -> Indices:
        """Return the indices of the strings that the tests find to be held by somebody.

        With probability at least 1 - `beta` all of them are.
        """
        return np.flatnonzero(self.log_p <= math.log(beta) + np.log(self.weights))


def search_and_test(
    code: StringCode,
    layout: DiscoveryLayout,
    table: Counts,
    keys_of: Callable[[list[str]], Words],
    progress: ReportProgress,
) -> CandidateTests:
    """Return strings suggested by the groups of prefixes, tested on reports of whole strings.

    `code`: the code of strings; `layout`: the layout of the statistic; `table`, shape (levels,
    columns): the statistic; `keys_of`: a function from strings to their keys; `progress`: a
    function that is called with the share of the work done so far.
    """
    evidence = TreeEvidence.of(layout, table)
    candidates = list_candidates(code, layout, evidence, lambda share: progress(0.8 * share))
    keys = keys_of(candidates.strings)
    rows = RowPopulations.of(layout, table)
    if not keys.size or not rows.levels:
        nothing = np.zeros(0)
        return CandidateTests([], keys[:0], nothing, nothing, nothing)
    peeled = peeling(layout, evidence, candidates)
    points = rows.points(keys)
    rows.peel([row_points[peeled > 0] for row_points in points], peeled[peeled > 0])
    progress(0.85)
    tail = TailBound(rows.tables, rows.information)
    progress(0.95)
    row_values = rows.values(points)
    own_values = row_values + peeled[:, None] * np.concatenate(rows.unit)
    sums = own_values.sum(axis=1)
    log_p, is_peeled = tail.log_p(sums), peeled > 0
    of_peeled = (x[is_peeled] for x in (sums, row_values, own_values))
    log_p[is_peeled] = tail.log_p_with(*of_peeled)
    value = sums + (peeled.sum() - peeled) * rows.peeling_bias
    weights = weights_of_tests(candidates.scores)
    return CandidateTests(candidates.strings, keys, value, log_p, weights)


def peeling(
    layout: DiscoveryLayout, evidence: TreeEvidence, candidates: CandidateStrings
) -> Floats:
    """Return the frequencies of candidates to subtract from the table, shape (n,); 0 if unclear.

    A frequency is the mean of the estimates at the depths that contain the whole code word,
    weighted by their information, and at most that of any prefix of the string plus three standard
    errors. Without this limit, a string that nobody holds would be peeled with the frequency of
    another one that has its point at the only depth of its whole code word. `layout`: the layout of
    the statistic; `evidence`: the estimates from its groups of prefixes; `candidates`: the n
    strings.
    """
    is_complete = candidates.lengths[:, None] <= np.array(layout.depths)
    hashes = layout.prefix_hashes(candidates.bits)
    groups = np.arange(len(layout.depths))
    weighted = np.zeros(is_complete.shape)
    levels = zip(evidence.information, evidence.frequencies, evidence.levels, strict=True)
    for level_information, table, level in levels:
        weighted += level_information * table[groups, layout.tree_points(hashes, level)]
    of_group = np.maximum(evidence.information.sum(axis=0), 1e-300)
    information = np.maximum((is_complete * of_group).sum(axis=1), 1e-300)
    estimate = (is_complete * weighted).sum(axis=1) / information
    upper_bound = (weighted / of_group + PREFIX_MARGIN / np.sqrt(of_group)).min(axis=1)
    clear = estimate * np.sqrt(information) > CLEAR_DEVIATIONS
    estimate = np.clip(estimate, 0.0, upper_bound.clip(0.0, 1.0))
    return np.where(clear & (np.cumsum(clear) <= MAX_PEELED), estimate, 0.0)


def weights_of_tests(scores: Floats) -> Floats:
    """Return the candidates' shares of the failure probability, from their log odds."""
    from scipy.special import expit

    odds = expit(scores)
    return np.asarray(EVEN_SHARE / scores.size + (1 - EVEN_SHARE) * odds / odds.sum())


class FoundString(NamedTuple):
    """A found string, with its estimated frequency and bounds."""

    string: str
    value: float
    lower: float
    upper: float


@dataclasses.dataclass(frozen=True)
class Discovery:
    """The found strings, most frequent first.

    Attributes
    ----------
    strings : list of str
        The found strings.
    value, lower, upper : ndarray of float64, shape (n,)
        The estimated share of people who hold each string, and its bounds. A lower bound of zero
        means that the share is above zero, because somebody holds the string.
    reports : int
        The number of reports in the statistic.
    tested : int
        The number of reports of whole strings, on which tests and bounds rest.
    candidates : int
        The number of strings that were tested.
    noise_floor : float
        phi, the standard error of a frequency if all reports were about it; infinite without
        reports. Of strings with the frequency 10 phi nearly all are found, at 7 phi about half.
    """

    strings: list[str]
    value: Floats
    lower: Floats
    upper: Floats
    reports: int
    tested: int
    candidates: int = 0
    noise_floor: float = math.inf

    def __iter__(self) -> Iterator[FoundString]:
        numbers = (self.value.tolist(), self.lower.tolist(), self.upper.tolist())
        yield from map(FoundString, self.strings, *numbers)

    def __len__(self) -> int:
        return len(self.strings)
