"""Binary search for a minimum or maximum: the question of each round, and its decision.

Each round halves an interval that starts as the whole range. It asks users whether their value is
at or beyond the midpoint, gets answers by randomized response, and continues in the outer half if
enough of them are "yes". Source: MIN, Algorithm 2.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from estimators.bounds.signs.tails import log_tail
from estimators.errors import DefinitionError, explain_missing_scipy, nearest
from estimators.estimate import Counts, Estimate, Integers
from estimators.exact.randomness import Bits, SystemBits
from estimators.exact.sampling import uniform_below
from estimators.exact.thresholds import exp_bounds
from estimators.limits import MOST_ROUNDS
from estimators.mechanisms import RandomizedResponse
from estimators.mechanisms.mechanism import Reports
from estimators.weights import level_weights

SEARCH_KINDS = ("minimum", "maximum")
SPLIT_KINDS = ("users", "budget")
CRITICAL_RULES = ("law", "hoeffding", "paper")
EXPECTED_ROUNDS = f"the number of rounds, 1 to {MOST_ROUNDS}"
EXPECTED_LEVELS = "ascending epsilons above 0, with at most 4 decimal digits"
CRITICAL_HALVINGS = 30  # the critical value is exact to a billionth of Hoeffding's
SHARE_ROUNDING = 1e-12  # in a share: above the rounding errors of double precision here


@dataclasses.dataclass(frozen=True)
class Decision:
    """The question, the answers and the decision of one round.

    `threshold`: the midpoint in the question, in the range's unit; `answers`, `yes`: per level, the
    answers, and how many of them said "at or beyond", as sent; `share`: the unbiased estimate of
    the share of users at or beyond the threshold; 0 without an answer; `critical`: the share from
    which the search moves outwards; 1 without an answer; `outwards`: whether the search moved
    outwards, because somebody is at or beyond the threshold.
    """

    threshold: float
    answers: tuple[int, ...]
    yes: tuple[int, ...]
    share: float
    critical: float
    outwards: bool


@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of a search: the decided rounds.

    Store it between rounds: ``msgspec.json.encode(progress)`` and ``msgspec.json.decode(text,
    type=Progress)``.
    """

    decisions: tuple[Decision, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """The fixed parameters of a search for a minimum or maximum.

    Parameters
    ----------
    kind : {"minimum", "maximum"}
        Which extreme is searched for.
    range : pair of float
        The domain; the device clips values outside.
    levels : sequence of float
        The epsilons on offer, ascending, with at most 4 decimal digits.
    rounds : int
        The number of rounds; the answer is one of 2^rounds intervals.
    split : {"users", "budget"}
        ``"users"``: each user answers one round, at the full epsilon. ``"budget"``: all users
        answer every round, each time at epsilon / rounds.
    beta : float
        Probability that the certificate fails, over all rounds together.
    critical : {"law", "hoeffding", "paper"}
        The estimated share from which on the search moves outwards: the quantile of the law of the
        noise (default); sqrt(h / (2 A2)) by Hoeffding's inequality, A2 = sum n_l a_l^2; or that of
        MIN, which is two to three times the share by Hoeffding.
    log_term : float, optional
        h; ln(rounds / beta) by default. If nobody is at or beyond the threshold, a round still
        moves outwards with probability e^-h.

    Raises
    ------
    DefinitionError
        If an argument is out of its range.

    Notes
    -----
    **Certificate.** Theorem 3 of docs/proofs/extremes.md: with probability at least 1 - beta some
    user's value reaches the inner end of the interval (for a minimum, the right end), after every
    round, for values that do not change between rounds.

    **Privacy.** Theorem 1 of docs/proofs/extremes.md.

    Examples
    --------
    >>> from estimators.exact.randomness import SeededBits
    >>> search = Search(kind="minimum", range=(0, 64), levels=[1, 4], rounds=4)
    >>> values, level = np.linspace(20, 60, 40_000), np.arange(40_000) % 2
    >>> round_of, bits = search.own_round(40_000, SeededBits(1)), SeededBits(2)
    >>> progress = Progress()
    >>> while not search.finished(progress):
    ...     turn = round_of == len(progress.decisions)
    ...     reports = search.answer(values[turn], level[turn], search.threshold(progress), bits)
    ...     statistic = search.zero()
    ...     search.accumulate(statistic, level[turn], reports)
    ...     progress = search.decide(progress, statistic)
    >>> search.interval(progress)
    (20.0, 24.0)
    """

    kind: str
    range: Sequence[float]
    levels: Sequence[float]
    rounds: int
    split: str = "users"
    beta: float = 0.05
    critical: str = "law"
    log_term: float | None = None

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in itertools.pairwise((0, *self.levels)))
        ends, exact = self.range, all(round(epsilon, 4) == epsilon for epsilon in self.levels)
        is_interval = len(ends) == 2 and ends[0] < ends[1] and math.isfinite(ends[1] - ends[0])
        for key, is_valid, expected in (
            ("kind", self.kind in SEARCH_KINDS, nearest(self.kind, SEARCH_KINDS)),
            ("split", self.split in SPLIT_KINDS, nearest(self.split, SPLIT_KINDS)),
            ("critical", self.critical in CRITICAL_RULES, nearest(self.critical, CRITICAL_RULES)),
            ("range", is_interval, "two finite numbers, the lower one first"),
            ("rounds", 1 <= self.rounds <= MOST_ROUNDS, EXPECTED_ROUNDS),
            ("beta", 0 < self.beta < 1, "a probability between 0 and 1"),
            ("log_term", self.log_term is None or 0 < self.log_term < math.inf, "a number above 0"),
            ("levels", self.levels and ascending and exact, EXPECTED_LEVELS),
        ):
            if not is_valid:
                raise DefinitionError(key, getattr(self, key), expected)

    @functools.cached_property
    def randomizer(self) -> RandomizedResponse:
        """The mechanism for one answer, at each level's epsilon for one round."""
        epsilons = [Fraction(round(e * 10**4), 10**4) / self._answers for e in self.levels]
        return RandomizedResponse(epsilons)

    @property
    def _answers(self) -> int:
        """The number of rounds that one user answers."""
        return self.rounds if self.split == "budget" else 1

    @property
    def risk(self) -> float:
        """The probability e^-h that a round moves outwards although nobody's value is there."""
        return math.exp(-self._log_term)

    @property
    def _log_term(self) -> float:
        return math.log(self.rounds / self.beta) if self.log_term is None else self.log_term

    def privacy_ratio(self, level: int) -> Fraction:
        """Return the largest ratio of the probabilities of a user's answers under two values."""
        return self.randomizer.privacy_ratio(level) ** self._answers

    def is_private(self, level: int) -> bool:
        """Return whether :meth:`privacy_ratio` is at most e^epsilon."""
        epsilon = self.randomizer.epsilons[level] * self._answers
        return self.privacy_ratio(level) <= exp_bounds(epsilon)[0]

    # -- Progress ---------------------------------------------------------------------------------

    def finished(self, progress: Progress) -> bool:
        """Return whether all rounds have been decided."""
        return len(progress.decisions) >= self.rounds

    def interval(self, progress: Progress) -> tuple[float, float]:
        """Return the ends of the interval that the search has reached, the lower one first.

        The search assumes that the extreme is inside. The upper end of a minimum and the lower end
        of a maximum are certified: see the notes of the class.
        """
        index = 0
        for decision in progress.decisions:
            index = 2 * index + (not decision.outwards)
        intervals = 2 ** len(progress.decisions)
        outer, inner = self._point(index, intervals), self._point(index + 1, intervals)
        return (outer, inner) if self.kind == "minimum" else (inner, outer)

    def _point(self, index: int, intervals: int) -> float:
        """Return the point of the range that is `index` / `intervals` of the way inwards."""
        low, high = map(float, self.range)
        if self.kind == "maximum":
            low, high = high, low
        return low + (high - low) * (index / intervals)

    def threshold(self, progress: Progress) -> float:
        """Return the threshold of the next round: the middle of the interval.

        Raises ValueError if the search is finished.
        """
        if self.finished(progress):
            raise ValueError(f"all {self.rounds} rounds have been decided: there is no next one")
        low, high = self.interval(progress)
        return low + (high - low) / 2

    def could_ask(self, number: int, threshold: float) -> bool:
        """Return whether a round can ask about a threshold, for some decisions before it.

        The threshold is the middle of one of the 2^(number - 1) intervals that the search can have
        reached in round `number`, from 1 on. A device answers no other question.

        Examples
        --------
        >>> search = Search(kind="minimum", range=(0, 64), levels=[1], rounds=3)
        >>> [search.could_ask(2, threshold) for threshold in (16, 48, 32, 17)]
        [True, True, False, False]
        >>> search.could_ask(4, 4), search.could_ask(0, 32)
        (False, False)
        """
        if not 1 <= number <= self.rounds:
            return False
        intervals = 2 ** (number - 1)
        sign = 1 if self.kind == "minimum" else -1  # indices grow inwards: upwards for a minimum
        index = bisect.bisect_left(
            range(intervals), sign * threshold, key=lambda i: sign * self._middle(i, intervals)
        )
        return index < intervals and self._middle(index, intervals) == threshold

    def _middle(self, index: int, intervals: int) -> float:
        """Return the middle of an interval, from its index and the number of intervals."""
        low, high = sorted((self._point(index, intervals), self._point(index + 1, intervals)))
        return low + (high - low) / 2

    # -- On the device ----------------------------------------------------------------------------

    def own_round(self, users: int, bits: Bits | None = None) -> Integers:
        """Return the number of the round that each user answers, at random from 0 to rounds - 1.

        This is for ``split="users"``. A device stores its number, and answers only that round.
        `bits`: the source of randomness; the operating system's by default.
        """
        source = SystemBits() if bits is None else bits
        bound = np.full(users, self.rounds, dtype=np.uint64)
        return uniform_below(source, bound).astype(np.int64)

    def answer(
        self, values: ArrayLike, level: ArrayLike, threshold: float, bits: Bits | None = None
    ) -> Reports:
        """Return randomized answers on whether values are at or beyond a threshold.

        Parameters
        ----------
        values : array_like of float, shape (n,)
            The users' values, in the range's unit.
        level : array_like of int, shape (n,)
            Indices into the levels.
        threshold : float
            The threshold of the round.
        bits : Bits, optional
            The source of randomness; the operating system's by default.

        Returns
        -------
        ndarray of uint8, shape (n,)
            1 for "yes" and 0 for "no", each flipped with probability 1 / (1 + e^epsilon); for
            ``split="budget"``, with epsilon / rounds in place of epsilon.

        Raises
        ------
        ValueError
            If a value is not a number, or a level is out of range.
        """
        numbers, levels = np.asarray(values, dtype=np.float64), np.asarray(level)
        if numbers.ndim != 1 or numbers.shape != levels.shape:
            raise ValueError(f"values of shape {numbers.shape}, levels of shape {levels.shape}")
        if np.isnan(numbers).any():
            raise ValueError("a value is not a number: leave it out")
        if levels.size and not (levels.min() >= 0 and levels.max() < len(self.levels)):
            raise ValueError(f"level: expected 0 to {len(self.levels) - 1}")
        clipped = np.clip(numbers, self.range[0], self.range[1])
        is_yes = clipped <= threshold if self.kind == "minimum" else clipped >= threshold
        signs = np.where(is_yes, 1.0, -1.0)
        return self.randomizer.randomize(signs, levels, SystemBits() if bits is None else bits)

    # -- At the coordinator -----------------------------------------------------------------------

    def zero(self) -> Counts:
        """Return the statistic of a round without answers: int64, (answers, yes) for each level."""
        return np.zeros(2 * len(self.levels), dtype=np.int64)

    def accumulate(self, statistic: Counts, level: ArrayLike, reports: ArrayLike) -> None:
        """Add answers to the statistic of their round, in place.

        `statistic`: from :meth:`zero`; `level`, shape (n,): the index of each answer's level;
        `reports`, shape (n,): the answers, 0 or 1. Raises ReportError if a level or an answer is
        invalid.
        """
        answers = self.randomizer.checked(level, reports)
        self.randomizer.accumulate(statistic.reshape(-1, 2), *answers)

    def decide(self, progress: Progress, statistic: Counts) -> Progress:
        """Decide the open round from its answers; the same answers always give the same decision.

        `statistic`: int64, the answers of this round alone. Without answers the search moves
        inwards: the certified end is still valid, but the search may miss the extreme. Raises
        ValueError if the search is finished, or if the statistic is not one of a round.
        """
        table = np.asarray(statistic)
        if table.shape != (2 * len(self.levels),) or table.dtype != np.int64:
            raise ValueError(f"statistic of dtype {table.dtype} and shape {table.shape}")
        threshold = self.threshold(progress)
        table = table.reshape(-1, 2)
        counts = table[:, 0]
        if (table[:, 1] < 0).any() or (table[:, 1] > counts).any():
            raise ValueError(f"statistic {statistic.tolist()}: expected yes from 0 to answers")
        answers, yes = (tuple(column) for column in table.T.tolist())
        share, critical = 0.0, 1.0
        if counts.any():
            weights = level_weights("optimal", counts, self.randomizer.facts)
            share = (1 + float(weights @ self.randomizer.level_means(table))) / 2
            critical = self.critical_share(answers)
        decision = Decision(threshold, answers, yes, share, critical, share >= critical)
        return Progress((*progress.decisions, decision))

    def critical_share(self, answers: tuple[int, ...]) -> float:
        """Return gamma, the estimated share from which on a round moves outwards.

        Theorem 2 of docs/proofs/extremes.md.
        """
        return _critical_share(self.randomizer, self.critical, self._log_term, answers)

    @explain_missing_scipy("an estimate")
    def estimate(self, progress: Progress) -> Estimate:
        """Return the middle of the interval, with the certified end.

        Returns
        -------
        Estimate
            For a minimum, `upper` is an upper bound on the smallest value of those who answered
            (so also of the population) with probability at least 1 - beta, in all rounds at once;
            `lower` is the end of the range, because nothing is certain there. For a maximum, the
            reverse.
        """
        low, high = self.interval(progress)
        counts = np.zeros(len(self.levels), dtype=np.int64)
        for decision in progress.decisions:
            counts += np.array(decision.answers, dtype=np.int64)
        minimum = self.kind == "minimum"
        return Estimate(
            value=low + (high - low) / 2,
            lower=float(self.range[0]) if minimum else low,
            upper=high if minimum else float(self.range[1]),
            reports=int(counts.sum()),
            effective_reports=float(counts @ self.randomizer.signs.contrast**2),
            beta=min(1.0, self.rounds * self.risk),
            bound="anytime",
            target="sample",
            policy="optimal",
            levels=tuple(float(epsilon) for epsilon in self.levels),
            counts=counts,
            weights=level_weights("optimal", counts, self.randomizer.facts),
        )


@functools.lru_cache(maxsize=256)
def _critical_share(
    randomizer: RandomizedResponse, critical: str, log_term: float, answers: tuple[int, ...]
) -> float:
    counts = np.array(answers, dtype=np.int64)
    contrast = randomizer.signs.contrast
    if critical == "paper":
        grown = np.exp(np.array([float(epsilon) for epsilon in randomizer.epsilons]))
        precision = contrast**2 * (1 + grown) / (4 * grown)
        return math.sqrt(log_term / float(counts @ precision))
    hoeffding = math.sqrt(log_term / (2 * float(counts @ contrast**2)))
    if critical == "hoeffding":
        return hoeffding
    weights = level_weights("optimal", counts, randomizer.facts)
    law = randomizer.signs.law(counts, weights)
    nobody = np.array([-1.0])
    spread = float(law.largest_variance(nobody)[0])

    def log_chance(share: float) -> float:
        """Return a bound on ln P(estimate >= share) if nobody is at or beyond the threshold."""
        observed = np.array([2 * share - 1])
        tilt = np.minimum(law.max_tilt, np.array([2 * share / spread]))
        for _ in range(20):
            at = law.cumulant(nobody, tilt)
            moved = tilt + (observed - at.by_tilt) / np.maximum(at.curvature, 1e-300)
            tilt = np.minimum(np.clip(moved, tilt / 4, tilt * 4), law.max_tilt)
        at = law.cumulant(nobody, tilt)
        return float(log_tail(law, nobody, tilt, observed, at)[0])

    low, high = 0.0, hoeffding
    for _ in range(CRITICAL_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if log_chance(middle) <= -log_term - 1e-6 else (middle, high)
    return high + SHARE_ROUNDING


def lower_alpha_setting(users: int) -> dict[str, Any]:
    """Return the arguments `rounds` and `log_term` of a search as in MIN, if alpha is at least 1.

    `users`: the number of users.

    >>> lower_alpha_setting(2**20)
    {'rounds': 10, 'log_term': 6.931471805599453}
    """
    return {"rounds": math.ceil(math.log2(users) / 2), "log_term": math.log(users) / 2}


def unknown_alpha_setting(users: int) -> dict[str, Any]:
    """Return the arguments `rounds` and `log_term` of a search as in MIN, if alpha is unknown.

    `users`: the number of users.

    >>> unknown_alpha_setting(2**20)
    {'rounds': 21, 'log_term': 13.910539517230742}
    """
    return {
        "rounds": math.ceil(math.log2(users) ** 2 / (2 * math.log2(1000))),
        "log_term": math.log(users) ** 2 / (2 * math.log(1000)),
    }
