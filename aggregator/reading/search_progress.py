"""The progress of a search for a minimum or maximum, for JSON and as text."""

from __future__ import annotations

import msgspec

from aggregator.reading.window import Window
from estimators import Metric, SearchMetric, rounding
from estimators.extremes import tail
from estimators.rounding import certainty


class TailShape(msgspec.Struct, frozen=True):
    """The tail towards the extreme: the share of values within x of it is about C x^alpha.

    `lower` and `upper` are the ends of the range of exponents that fit about as well.
    """

    alpha: float
    lower: float
    upper: float


class SearchProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a search in rounds.

    With probability `certainty`, over all rounds together, somebody's value reaches `certified`: it
    is an upper bound of the minimum ("at most"), or a lower bound of the maximum ("at least");
    `statement` says so in words. Nothing is certain about the other side. `round` of `rounds` is
    open, or was the last; `threshold` is the value that it asks about, null once all rounds are
    decided, and `answers` the number of its counted answers. `bisection` is the range that is left,
    which is not a confidence interval: the extreme may be far outside. `tail` is null if the rounds
    do not suffice to fit it.
    """

    statement: str
    certified: float
    certainty: float
    round: int
    rounds: int
    threshold: float | None
    answers: int
    bisection: tuple[float, float]
    tail: TailShape | None


def search_progress(window: Window) -> SearchProgress | None:
    """Return the progress of a window's search; None without one, or before its first round."""
    metric, current = window.metric, window.round
    if current is None or not isinstance(metric, SearchMetric):
        return None
    search, progress = metric.search, current.progress
    low, high = search.interval(progress)
    shape = tail(search, progress)
    certified = high if metric.kind == "minimum" else low
    unit = f" {metric.unit}" if metric.unit else ""
    return SearchProgress(
        statement=f"{certified_number(metric, certified)}{unit}, "
        f"with probability {certainty(metric.beta)}",
        certified=certified,
        certainty=1 - metric.beta,
        round=current.number,
        rounds=current.rounds,
        threshold=current.threshold,
        answers=int(metric.counts(window.sums).sum()),
        bisection=(low, high),
        tail=None if shape is None else TailShape(shape.alpha, shape.lower, shape.upper),
    )


def certified_number(metric: SearchMetric, certified: float) -> str:
    """Return the certified bound of an extreme as text, without unit and probability."""
    number = rounding.certified(metric.kind, *_ends(metric), metric.search.rounds, certified)
    return f"at {'most' if metric.kind == 'minimum' else 'least'} {number}"


def threshold_text(metric: SearchMetric, threshold: float) -> str:
    """Return the threshold of a round as text, with the decimals of the certified bound."""
    places = rounding.search_decimals(*_ends(metric), metric.search.rounds)
    return rounding.trimmed(rounding.nearest(threshold, places))


def _ends(metric: Metric) -> tuple[float, float]:
    low, high = metric.domain.ends
    return float(low), float(high)


def search_lines(window: Window) -> list[str]:
    """Return the progress of a window's search as lines of text."""
    progress = search_progress(window)
    if progress is None:
        return ["round      none yet: start `dither coordinate`, which opens the first one"]
    unit = f" {window.metric.unit}" if window.metric.unit else ""
    side = "<=" if window.metric.kind == "minimum" else ">="
    if progress.threshold is None:
        lines = [f"round      {progress.rounds} of {progress.rounds}, all decided"]
    else:
        lines = [
            f"round      {progress.round} of {progress.rounds}: is it {side} "
            f"{threshold_text(SearchMetric.require(window.metric), progress.threshold)}{unit}? "
            f"{progress.answers} answers so far"
        ]
    low, high = progress.bisection
    places = rounding.search_decimals(*_ends(window.metric), progress.rounds)
    start, end = rounding.trimmed(rounding.down(low, places)), rounding.up(high, places)
    ends = f"{start} to {rounding.trimmed(end)}{unit}"
    lines += [
        f"certified  {progress.statement} in all rounds at once",
        f"bisection  {ends} remains of the range; the extreme may lie outside "
        "it, where few values are",
    ]
    if progress.tail is not None:
        shape = progress.tail
        lines.append(f"tail       alpha {shape.alpha:.2g}, {shape.lower:.2g} to {shape.upper:.2g}")
    return lines
