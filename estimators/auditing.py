"""Empirical privacy: a valid lower bound on epsilon, by trials with reports of two values.

Theorem 9 of docs/proofs/privacy.md: an attack chooses an event that distinguishes two values, and
counts it in other reports. Sources: Ding, Wang, Wang, Zhang and Kifer, "Detecting violations of
differential privacy" (2018); Bichsel, Steffen, Bogunovic and Vechev, "DP-Sniper" (2021); Jagielski,
Ullman and Oprea, "Auditing differentially private machine learning" (2020).
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.estimate import Floats, Integers
from estimators.mechanisms.mechanism import Reports
from estimators.metrics.metric import Metric

LEARNING_SHARE = CHOOSING_SHARE = 0.125
"""The shares of the trials for learning scores and for choosing the event. The remaining trials
bound the probabilities of the event."""
MAX_THRESHOLDS = 128
WHOLE_BYTES = 2
"""The widest report, in bytes, that is learned as one symbol; wider ones are learned bit by bit."""
MOST_BYTES = 64
"""The widest report, in bytes, of which bits are learned."""


class Trials(NamedTuple):
    """Reports of one value, each with two reports of other devices to compare it with.

    `reports`, shape (n, *shape): the reports under attack; `beside`, `across`, shape (n, *shape):
    the next report in the same batch, and the report with the same index in another batch. Both
    depend on the value under attack only if randomness was used twice.
    """

    reports: Reports
    beside: Reports
    across: Reports


@dataclasses.dataclass(frozen=True)
class Leak:
    """The result of an attack.

    `lower`: a lower bound on epsilon, wrong with probability at most 1 - confidence; `event`: a
    description of the event; `hits`, `trials`: the number of trials in which the event occurred,
    and of all trials, first under the value that it indicates, then under the other value.
    """

    lower: float
    event: str
    hits: tuple[int, int]
    trials: tuple[int, int]


def opposite_values(metric: Metric) -> tuple[Any, Any]:
    """Return two values of a metric whose reports' probabilities have the largest ratio.

    These are the ends of the range of a mean, minimum or maximum; opposite vectors of full length;
    the first and the last category, or two strings. For every mechanism here, such a pair attains
    the largest ratio.

    >>> from estimators import define
    >>> opposite_values(define(name="m", kind="frequency", mechanism="grr", categories=["a", "b"],
    ...                        levels=[1]))
    ('a', 'b')
    """
    return metric.domain.opposite


def epsilon_bound(
    hits: ArrayLike, trials: int, other_hits: ArrayLike, other_trials: int, confidence: float
) -> Floats:
    """Return lower bounds on epsilon from the counts of events under two values.

    The result, of shape (n,), is ln(p_low / q_high), but at least 0. p_low and q_high are limits of
    Clopper and Pearson (1934), each wrong with probability (1 - confidence) / 2.

    `hits`, `other_hits`, shape (n,): how often each event occurred under the value that it
    indicates, and under the other value; `trials`, `other_trials`: the numbers of independent
    trials; `confidence`: the confidence of each bound alone. A bound is not valid for an event that
    was chosen by these counts.

    >>> epsilon_bound([7311, 0], 10_000, [2689, 0], 10_000, 0.999).round(3)
    array([0.926, 0.   ])
    """
    return np.maximum(_log_ratio(hits, trials, other_hits, other_trials, confidence), 0.0)


def _log_ratio(
    hits: ArrayLike, trials: int, other_hits: ArrayLike, other_trials: int, confidence: float
) -> Floats:
    """Return ln(p_low / q_high); it is negative if the counts show no difference."""
    from scipy.special import betaincinv

    indicated, alternative = np.asarray(hits, np.float64), np.asarray(other_hits, np.float64)
    miss = (1 - confidence) / 2
    low = np.where(
        indicated > 0, betaincinv(np.maximum(indicated, 1), trials - indicated + 1, miss), 0.0
    )
    left = np.maximum(other_trials - alternative, 1)
    high = np.where(alternative < other_trials, betaincinv(alternative + 1, left, 1 - miss), 1.0)
    with np.errstate(divide="ignore"):
        bounds: Floats = np.log(low) - np.log(high)
    return bounds


def largest_leak(
    metric: Metric, level: int, first: Trials, second: Trials, confidence: float = 0.999
) -> Leak:
    """Attack a level of a metric: return a lower bound on the epsilon of its reports.

    Events are thresholds of scores: the likelihood ratio that the mechanism states (the best score
    by Neyman and Pearson's lemma, if the statement is true); that of the next level; a ratio
    learned from the bytes alone; and whether a report repeats another report, which shows that
    randomness was used twice. An eighth of the trials is for learning. The event with the largest
    bound on another eighth is evaluated on the rest.

    `metric`: its reports are attacked; `level`: the index of the level; `first`, `second`: trials
    of the two :func:`opposite_values`, whose `beside` and `across` are reports of the first value;
    `confidence`: the returned bound is too large with probability at most 1 - `confidence`.
    """
    learning, choosing, testing = zip(_parts(first), _parts(second), strict=True)
    events = []
    for name, score in _scores(metric, level, learning):
        choosing_scores, testing_scores = [score(x) for x in choosing], [score(x) for x in testing]
        for sign, words in ((1, ">="), (-1, "<=")):
            indicated, alternative = (sign * x for x in choosing_scores[::sign])
            levels = _thresholds(np.concatenate([indicated, alternative]))
            both = indicated, alternative
            hits, other_hits = (x.size - np.searchsorted(np.sort(x), levels) for x in both)
            bounds = _log_ratio(hits, indicated.size, other_hits, alternative.size, confidence)
            index = int(bounds.argmax())
            limit = float(levels[index])
            event = f"{name} {words} {sign * limit:.4g}"
            events.append((float(bounds[index]), event, sign, limit, testing_scores[::sign]))
    _, event, sign, limit, pair = max(events, key=operator.itemgetter(0))
    (hit, trials), (other_hit, other_trials) = (
        (int((sign * x >= limit).sum()), x.size) for x in pair
    )
    lower = epsilon_bound(hit, trials, other_hit, other_trials, confidence)
    return Leak(float(lower), event, (hit, other_hit), (trials, other_trials))


Score = Callable[[Trials], Floats]
Bytes = NDArray[np.uint8]


def _parts(trials: Trials) -> list[Trials]:
    shares = LEARNING_SHARE, LEARNING_SHARE + CHOOSING_SHARE
    ends = [int(share * len(trials.reports)) for share in (0, *shares, 1)]
    return [Trials(*(x[begin:end] for x in trials)) for begin, end in itertools.pairwise(ends)]


def _scores(
    metric: Metric, level: int, learning: tuple[Trials, Trials]
) -> Iterator[tuple[str, Score]]:
    """Yield each score's name, and the score, which is large for reports of the first value."""
    first, second = (
        metric.domain.to_unit(np.asarray([value]))[0] for value in opposite_values(metric)
    )

    def likelihood_ratio(trials: Trials, level: int = level) -> Floats:
        mechanism, reports = metric.randomizer, trials.reports
        under = [mechanism.log_likelihood(reports, level, value) for value in (first, second)]
        with np.errstate(invalid="ignore"):  # -inf - -inf: reports that neither value can give
            return np.nan_to_num(under[0] - under[1], nan=0.0)

    def repeats(trials: Trials, other_reports: Reports) -> Floats:
        is_same = (trials.reports == other_reports).reshape(len(other_reports), -1)
        return np.asarray(np.logical_and.reduce(is_same, axis=1).astype(np.float64))

    yield "likelihood ratio", likelihood_ratio
    if level + 1 < len(metric.levels):
        yield "likelihood ratio of the next level", lambda t: likelihood_ratio(t, level + 1)
    yield "repeats its neighbour", lambda trials: repeats(trials, trials.beside)
    yield "repeats the batch before", lambda trials: repeats(trials, trials.across)
    if metric.randomizer.width <= MOST_BYTES:
        learn = _symbols if metric.randomizer.width <= WHOLE_BYTES else _bits
        ratio = learn(*(_bytes(metric, trials) for trials in learning))
        yield "learned ratio", lambda trials: ratio(_bytes(metric, trials))


def _bytes(metric: Metric, trials: Trials) -> Bytes:
    wire = np.frombuffer(metric.randomizer.encode(trials.reports), dtype=np.uint8)
    return wire.reshape(-1, metric.randomizer.width)


def _symbols(first: Bytes, second: Bytes) -> Callable[[Bytes], Floats]:
    """Return a score of reports: the log ratio of a symbol's frequencies in the two sets."""

    def symbols(rows: Bytes) -> Integers:
        return rows.astype(np.int64) @ (256 ** np.arange(rows.shape[1]))

    size = 256 ** first.shape[1]
    counts = [np.bincount(symbols(rows), minlength=size) + 1.0 for rows in (first, second)]
    ratio: Floats = np.log(counts[0] / len(first)) - np.log(counts[1] / len(second))
    return lambda rows: ratio[symbols(rows)]


def _bits(first: Bytes, second: Bytes) -> Callable[[Bytes], Floats]:
    """Return a score of reports: the sum of log ratios of the bits' frequencies in both sets."""
    ones, zeros = np.empty((2, 2, 8 * first.shape[1]))
    for i, rows in enumerate((first, second)):
        one_counts = np.unpackbits(rows, axis=1).sum(axis=0)
        ones[i] = np.log((one_counts + 1) / (len(rows) + 2))
        zeros[i] = np.log((len(rows) - one_counts + 1) / (len(rows) + 2))
    weights = (ones[0] - ones[1]) - (zeros[0] - zeros[1])

    return lambda rows: np.unpackbits(rows, axis=1) @ weights


def _thresholds(scores: Floats) -> Floats:
    values = np.unique(scores)
    if values.size <= MAX_THRESHOLDS:
        return values
    return np.unique(np.quantile(scores, np.linspace(0, 1, MAX_THRESHOLDS), method="nearest"))
