"""Where the search for a minimum or maximum stands, as plain values and in words."""

from __future__ import annotations

import msgspec

from aggregator.windows import Window
from estimators.extremes import tail


class TailShape(msgspec.Struct, frozen=True):
    """How the values thin out towards the extreme: the share within x of it is about C x^alpha.

    `lower` and `upper` are the exponents that fit about as well.
    """

    alpha: float
    lower: float
    upper: float


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """Where a search in rounds stands.

    `round` of `rounds` is open, or was the last one; `threshold` is what it asks about, null at the
    end, and `answers` how many of it are counted. The extreme is searched for within `interval`.
    With probability `certainty`, over all rounds together, somebody's value reaches `certified`:
    an upper bound of the minimum, or a lower bound of the maximum. `tail` is null where the run
    does not show it.
    """

    round: int
    rounds: int
    threshold: float | None
    answers: int
    interval: tuple[float, float]
    certified: float
    certainty: float
    tail: TailShape | None


def searched(window: Window) -> Searched | None:
    """Return where the search of a window stands; None before its first round."""
    metric, asked = window.metric, window.asked
    if asked is None:
        return None
    search, progress = metric.search, asked.progress
    low, high = search.interval(progress)
    shape = tail(search, progress)
    return Searched(
        round=asked.number,
        rounds=asked.rounds,
        threshold=asked.threshold,
        answers=int(metric.counts(window.statistic).sum()),
        interval=(low, high),
        certified=high if metric.kind == "minimum" else low,
        certainty=1 - metric.beta,
        tail=None if shape is None else TailShape(shape.alpha, shape.lower, shape.upper),
    )


def in_words(window: Window) -> list[str]:
    """Return the same in lines for people."""
    found = searched(window)
    if found is None:
        return ["round      none yet: `dither coordinate` opens the first one"]
    unit = f" {window.metric.unit}" if window.metric.unit else ""
    end, side = ("at most", "<=") if window.metric.kind == "minimum" else ("at least", ">=")
    if found.threshold is None:
        lines = [f"round      {found.rounds} of {found.rounds}, all decided"]
    else:
        lines = [
            f"round      {found.round} of {found.rounds}: is it {side} {found.threshold:g}{unit}? "
            f"{found.answers} answers so far"
        ]
    low, high = found.interval
    lines += [
        f"interval   {low:g} to {high:g}{unit}",
        f"certified  {end} {found.certified:g}{unit}, with probability "
        f"{100 * found.certainty:g}% in all rounds at once",
    ]
    if found.tail is not None:
        shape = found.tail
        lines.append(f"tail       alpha {shape.alpha:.2g}, {shape.lower:.2g} to {shape.upper:.2g}")
    return lines
