"""The two arms of a comparison, each as a sum of reports with a law."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from estimators.bounds import FlipNoise, Law
from estimators.bounds.normal import chi_square_tail
from estimators.bounds.piecewise.bets import SymbolBets
from estimators.bounds.signs.noise import Noise
from estimators.comparison import streams
from estimators.comparison.vectors import mean_and_noise
from estimators.estimate import Counts, Floats
from estimators.mechanisms.dyadic_hadamard.estimation import worst_scores
from estimators.mechanisms.dyadic_hadamard.mechanism import DyadicHadamard
from estimators.mechanisms.projection import Projection
from estimators.mechanisms.shared.block_differences import BlockDifferences
from estimators.mechanisms.shared.frequencies import SupportCounts
from estimators.mechanisms.shared.means import ScalarMean
from estimators.mechanisms.shared.ranked_directions import RankedDirections
from estimators.metrics.local import LocalMetric
from estimators.question import Question
from estimators.weights import LevelFacts, level_weights, total_weight

STANDARD_WEIGHTS = "standard"
"""The policy that gives each level the same share in both arms."""


@dataclasses.dataclass(frozen=True)
class Arm:
    """One arm of a comparison: a sum S with mean theta in [-1, 1], for each of k numbers.

    Parameters
    ----------
    observed : ndarray of float64, shape (k,)
        S; NaN without reports.
    law : Law or None
        The law of S; None without reports, for a vector, and if `blocks` or `scores` replace it.
    noise : Noise or None
        The noise of S given the users' values, if bounds are computed from it; otherwise None.
    total : float
        The result of :func:`estimators.weights.total_weight`, for bounds that hold at all times.
    failure : float
        A bound on the probability that the reports do not follow the law.
    slack : float
        The most by which rounding can move S.
    blocks : DifferenceStream or None
        The reports of a Hadamard mechanism, in place of `law`.
    scores : ScoreStream or None
        The scores of a distribution's reports, in place of `law`.
    bets : SymbolBets or None
        Bets on the reports' symbols, if these give narrower bounds than S.
    """

    observed: Floats
    law: Law | None
    noise: Noise | None = None
    total: float = 0.0
    failure: float = 0.0
    slack: float = 0.0
    blocks: streams.DifferenceStream | None = None
    scores: streams.ScoreStream | None = None
    bets: SymbolBets | None = None

    @property
    def empty(self) -> bool:
        """Whether there are no reports."""
        return (self.law, self.noise, self.blocks, self.scores) == (None,) * 4

    def stream(self, *, mirrored: bool = False) -> streams.ReportStream:
        """Return S as a stream of reports; -S if `mirrored`."""
        sign = -1.0 if mirrored else 1.0
        if self.noise is not None:
            return streams.NoiseStream(self.noise, sign * self.observed, self.total)
        if self.blocks is not None:
            return dataclasses.replace(self.blocks, sign=sign)
        if self.scores is not None:
            return dataclasses.replace(self.scores, observed=sign * self.observed)
        if self.bets is not None:
            return streams.BetStream(self.bets.mirrored() if mirrored else self.bets, self.total)
        assert self.law is not None  # noqa: S101
        law = self.law.mirrored() if mirrored else self.law
        return streams.LawStream(law, sign * self.observed, self.total)


def has_law(metric: LocalMetric, question: Question, *, ratio: bool) -> bool:
    """Return whether a comparison can use the joint law of both arms.

    `metric`: the metric of the arms; `question`: only its bound and its target matter;
    `ratio`: whether the comparison is a ratio, not a difference.
    """
    mechanism = metric.randomizer
    if isinstance(mechanism, Projection) and mechanism.random:
        return False  # both arms have the same bias by random signs, so they are not independent
    if isinstance(mechanism, BlockDifferences):
        return question.target == "population" and (question.bound == "anytime" or not ratio)
    return isinstance(mechanism, ScalarMean | SupportCounts | RankedDirections)


def arm_of(
    metric: LocalMetric, statistic: Counts, question: Question, shares: Floats | None = None
) -> Arm:
    """Return the arm of a statistic.

    `metric`: one that :func:`has_law` accepts, or a distribution whose edges the question asks for;
    `statistic`: the sums of its reports; `question`: its `beta` is the failure probability of the
    whole comparison; `shares`, shape (levels,): the shares of the levels for the policy
    ``"standard"``; levels may then have different means. None for other policies.
    """
    mechanism = metric.randomizer
    table = metric.table(statistic)
    if shares is None:
        shares = level_weights(question.weights, table[:, 0], mechanism.facts)
    else:  # levels with the share 0 are left out
        table = np.where((shares > 0)[:, None], table, 0)
    counts = table[:, 0]
    if not counts.any():
        numbers = (len(metric.labels) or 1) if question.asked is None else question.asked.size
        return Arm(np.full(numbers, np.nan), None)
    total = total_weight(question.weights, counts, mechanism.facts)
    if isinstance(mechanism, RankedDirections):
        mean, error, failure, slack = mean_and_noise(mechanism, table, shares, question, total)
        return Arm(mean, None, error, total, failure, slack)
    if isinstance(mechanism, DyadicHadamard):
        return _of_scores(mechanism, table, shares, question, total)
    if isinstance(mechanism, BlockDifferences):
        return _of_blocks(mechanism, table, shares, question, total)
    if isinstance(mechanism, ScalarMean):
        law = mechanism.law(counts, shares, question)
        noise = mechanism.noise(law, counts) if question.target == "sample" else None
        mean = np.array([float(shares @ mechanism.level_means(table))])
        failure, bets = mechanism.outside_law(question, counts), mechanism.bets(law, table)
        return Arm(mean, law, noise, total, failure, bets=bets)
    assert isinstance(mechanism, SupportCounts)  # noqa: S101
    support = mechanism.support_of(table, question.asked)
    law = mechanism.signs.law(counts, shares, question)
    noise = None
    if question.target == "sample" and mechanism.signs.offset is None:
        noise = FlipNoise(law.counts, law.coefficient, mechanism.signs.q[counts > 0])
    return Arm(shares @ mechanism.signs.means(counts, support), law, noise, total)


def _of_blocks(
    mechanism: BlockDifferences, table: Counts, shares: Floats, question: Question, total: float
) -> Arm:
    selected = slice(None) if question.asked is None else question.asked
    used = np.flatnonzero(table[:, 0])
    sums, sizes = (x[:, selected] for x in mechanism.differences(table, used))
    law = mechanism.law(table[:, 0], shares, question)
    stream = streams.DifferenceStream(law, sums, sizes, total)
    return Arm(stream.observed, None, None, total, blocks=stream)


def _of_scores(
    mechanism: DyadicHadamard, table: Counts, shares: Floats, question: Question, total: float
) -> Arm:
    """Return the arm of the shares below the question's edges, on the scale of 2 F - 1."""
    assert question.asked is not None  # noqa: S101
    counts = table[:, 0]
    weights = np.divide(shares, counts, out=np.zeros_like(shares), where=shares > 0)
    value, largest, worst = worst_scores(mechanism.tree, table, weights, question.asked)
    stream = streams.ScoreStream(2 * value - 1, 2 * largest, 4 * worst, total)
    return Arm(stream.observed, None, None, total, scores=stream)


def standard_shares(facts: LevelFacts, counts: Sequence[Counts]) -> Floats:
    """Return the shares of the levels with the least variance of a difference of both arms.

    With the share pi_l of level l in both arms, the variance is the sum of pi_l^2 (v_l / n_A +
    v_l / n_B), which is least for pi_l in proportion to the inverse of the bracket. v_l: the
    variance of a report; n_A, n_B: the arms' reports of the level. The share is 0 if one of these
    is 0. `facts`: the constants of the levels; `counts`: for each arm, shape (levels,): n_A or n_B.

    >>> facts = LevelFacts(np.array([1.0, 2.0]), np.array([4.0, 1.0]), np.array([1.0, 4.0]))
    >>> standard_shares(facts, [np.array([100, 100]), np.array([300, 0])])
    array([1., 0.])
    """
    a_counts, b_counts = (np.asarray(x, dtype=np.float64) for x in counts)
    in_both = (a_counts > 0) & (b_counts > 0)
    reports = a_counts * b_counts / np.maximum(a_counts + b_counts, 1)
    shares = np.where(in_both, reports / facts.variances, 0.0)
    total = shares.sum()
    return shares / total if total > 0 else shares


def mixes_differ(counts: Sequence[Counts] | Counts) -> float:
    """Return the p-value of the hypothesis that both arms have the same mix of levels.

    It is that of Pearson's chi-square test. `counts`: for each arm, shape (levels,): the reports of
    each level.

    >>> mixes_differ([np.array([50, 50]), np.array([500, 500])])
    1.0
    >>> mixes_differ([np.array([50, 50]), np.array([900, 100])]) < 1e-20
    True
    """
    table = np.array(counts, dtype=np.float64)
    table = table[:, table.sum(axis=0) > 0]
    if table.shape[1] < 2 or not table.sum(axis=1).all():
        return 1.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    return min(1.0, chi_square_tail(table.shape[1] - 1, statistic))
