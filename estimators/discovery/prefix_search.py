"""Lists strings with frequent prefixes: a beam search over the bits of their code words.

A candidate's score is the log odds of "a string of frequency f* goes through here" against chance,
saturated at certainty. Compared with keeping the largest counts of each group by itself (PEM; Wang,
Li and Jha, 1708.06674), strings are found from frequencies that are 30 to 40% smaller.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from estimators.discovery.report_layout import DiscoveryLayout
from estimators.discovery.string_code import CODE_BITS, StringCode, as_words
from estimators.estimate import Counts, Floats, Integers
from estimators.exact.randomness import Words

BEAM_WIDTH = 65_536
"""The most prefixes that are kept at each depth."""
MAX_LISTED = 4_096
"""The most strings that are listed."""
SOUGHT_DEVIATIONS = 7.0
"""f*, in units of the noise floor: the frequency that scores suppose."""
MAX_GAIN = 6.0
"""The most that one group adds to a score: e^-6 is about the probability that a prefix has the
point of one of a hundred frequent ones, among 30,000 to 70,000 points."""
LEAST_SHARE = 0.01
"""Levels with a smaller share of the information are left out of the search."""
EXTENDED_AT_A_TIME = 2_048
"""The number of prefixes extended at a time: their continuations fit the processor's cache."""
IMPOSSIBLE_STATE = 1
"""The state of the code's automaton for bits that no string has."""

ReportProgress = Callable[[float], None]
"""A function that is called with the share of the work done; if it raises, the work ends."""


@dataclasses.dataclass(frozen=True)
class TreeEvidence:
    """The estimates from the groups of prefixes, at the levels with enough information.

    `information`, shape (levels, G): the number of reports of each group, divided by the variance
    of one report; `frequencies`: for each of these levels, shape (G, K), the estimated frequency of
    each point, zero on average; `sought`: f*, the frequency that scores suppose.
    """

    levels: list[int]
    information: Floats
    frequencies: list[Floats]
    sought: float

    @classmethod
    def of(cls, layout: DiscoveryLayout, table: Counts) -> TreeEvidence:
        """Return the evidence in a statistic that has reports."""
        counts = [layout.tree_counts(cells, level) for level, cells in enumerate(table[:, 1:])]
        variances = np.array([tree.variance for tree in layout.trees])
        information = np.array([part.sum(axis=1) for part in counts]) / variances[:, None]
        total = information.sum(axis=1)
        used = np.flatnonzero((total > 0) & (total >= LEAST_SHARE * total.sum())).tolist()
        decoded = [layout.trees[level].frequencies(counts[level]) for level in used]
        noise = 1 / math.sqrt(float((table[:, 0] / variances).sum()))
        return cls(used, information[used], decoded, SOUGHT_DEVIATIONS * noise)


@dataclasses.dataclass(frozen=True)
class CandidateStrings:
    """Strings that may be frequent, the best score first.

    `bits`, shape (n, 2), `lengths`, shape (n,): the first 128 bits of their code words, and the
    code words' lengths; `scores`, shape (n,): log odds, at most 6.
    """

    strings: list[str]
    bits: Words
    lengths: Integers
    scores: Floats


def list_candidates(
    code: StringCode, layout: DiscoveryLayout, evidence: TreeEvidence, progress: ReportProgress
) -> CandidateStrings:
    """Return the strings with the best scores; none without information.

    At depth j let z be the mean of the estimates at the candidate's points, weighted by their
    information, in standard deviations, I_j the sum of the information and a = f* I_j^(1/2). Then

        score_j = min(6, a z - a^2 / 2) - b ln 2 + min(0, score_(j-1)),

    with b new bits, 0 for a string that has ended. The best 65,536 are kept; of equal ones the
    first in the order of their bits. `code`: the code of strings as bits; `layout`: the layout of
    the statistic; `evidence`: from the reports of prefixes alone, because the tests of the
    candidates use the reports of whole strings; `progress`: takes the share of the depths that are
    searched.

    The limit 6 is for collisions: a prefix that nobody has may share its point with a very frequent
    one, and its continuations would fill the beam. With the limit, of words (Zipf, 10^6 reports, 5
    phi) 0.89 are listed instead of 0.78 at epsilon 4, and 0.91 instead of 0.81 at epsilon 2. Limits
    from 3 to 8 are as good.
    """
    if not evidence.levels:
        return CandidateStrings([], as_words([]), np.zeros(0, dtype=np.int64), np.zeros(0))
    beam = _Beam(layout, evidence)
    for group in range(len(layout.depths)):
        beam.extend(code, group)
        progress((group + 1) / len(layout.depths))
    listed = []
    for index in beam.best():
        bits = beam.bits(index)
        if (text := code.decode(bits)) is not None:
            listed.append((text, bits, code.encode(text)[1], beam.scores[index]))
    return CandidateStrings(
        [text for text, *_ in listed],
        as_words([bits for _, bits, *_ in listed]),
        np.array([length for *_, length, _ in listed], dtype=np.int64),
        np.array([score for *_, score in listed], dtype=np.float64),
    )


class _Beam:
    """The kept prefixes, in the order of their bits."""

    def __init__(self, layout: DiscoveryLayout, evidence: TreeEvidence) -> None:
        self.layout, self.evidence = layout, evidence
        self.hashes = np.zeros(1, dtype=np.uint64)
        self.states = np.array([2], dtype=np.int32)
        self.scores = np.zeros(1)
        self.parents: list[Integers] = []
        self.words: list[Integers] = []

    def extend(self, code: StringCode, group: int) -> None:
        """Replace the prefixes by the best-scoring of their continuations to the next depth."""
        layout, width = self.layout, self.layout.widths[group]
        scale, charge = self._weights(group)
        words = np.arange(1 << width, dtype=np.uint64)
        scores = np.empty((self.scores.size, words.size))
        states = np.empty(scores.shape, dtype=np.int32)
        prior = np.minimum(0, self.scores)
        prior -= np.where(self.states == 0, 0.0, width * math.log(2))
        for first in range(0, len(scores), EXTENDED_AT_A_TIME):
            part = slice(first, first + EXTENDED_AT_A_TIME)
            hashes = layout.extended(self.hashes[part, None], words, group)
            score = np.full(hashes.shape, -charge)
            for level, table in zip(self.evidence.levels, scale, strict=True):
                score += table.take(layout.tree_points(hashes, level))
            np.minimum(score, MAX_GAIN, out=score)
            score += prior[part, None]
            states[part] = code.steps(self.states[part], width)
            score[states[part] == IMPOSSIBLE_STATE] = -np.inf
            scores[part] = score
        best = _largest(scores.ravel(), BEAM_WIDTH)
        parent, word = np.divmod(best, words.size)
        self.parents.append(parent)
        self.words.append(word)
        self.hashes = layout.extended(self.hashes[parent], words[word], group)
        self.states, self.scores = states[parent, word], scores[parent, word]

    def _weights(self, group: int) -> tuple[list[Floats], float]:
        """Return each level's part of the product a z, for all points, and a^2 / 2.

        The symbols are those of :func:`list_candidates`.
        """
        information = self.evidence.information[:, group]
        sought, total = self.evidence.sought, float(information.sum())
        parts = zip(information, self.evidence.frequencies, strict=True)
        scale = [sought * level_information * table[group] for level_information, table in parts]
        return scale, sought**2 * total / 2

    def best(self) -> list[int]:
        """Return the indices of strings that have ended, the best score first."""
        ended = np.flatnonzero(self.states == 0)
        order = np.argsort(-self.scores[ended], kind="stable")[:MAX_LISTED]
        indices: list[int] = ended[order].tolist()
        return indices

    def bits(self, index: int) -> int:
        """Return the 128 bits of a prefix."""
        bits = 0
        for group in reversed(range(len(self.parents))):
            bits |= int(self.words[group][index]) << (CODE_BITS - self.layout.depths[group])
            index = int(self.parents[group][index])
        return bits


def _largest(values: Floats, size: int) -> Integers:
    """Return the ascending indices of the `size` largest finite values; ties go to the first."""
    indices = np.flatnonzero(values > -np.inf)
    if indices.size > size:
        candidates = values[indices]
        cut = np.partition(candidates, candidates.size - size)[candidates.size - size]
        above = candidates > cut
        equal = np.flatnonzero(candidates == cut)[: size - int(above.sum())]
        above[equal] = True
        indices = indices[above]
    return indices
