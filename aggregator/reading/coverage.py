"""Explains what bounds cover: one window, several, or all times; and how answers were chosen.

A bound for one window with a fixed start is weaker for a window whose start moves: each new start
is another chance to miss. If a policy of weights is chosen after its results were seen, it misses
if any of those policies misses. The bounds of a growing window and of the final one are two
statements: each holds with 1 - beta, both with at least 1 - 2 beta. docs/bounds.md describes what
each choice guarantees, and its price.
"""

from __future__ import annotations

import numpy as np

from aggregator.reading.query import Query
from aggregator.reading.windows import Window
from aggregator.timestamps import iso
from estimators import Estimate, Metric
from estimators.rounding import certainty, percent
from estimators.weights import WEIGHTINGS

THIS_WINDOW = "this window"
ALL_TIMES = "all times from "


def distinct_policies(metric: Metric) -> int:
    """Return how many policies there are that weigh the metric's levels differently.

    Examples
    --------
    >>> from estimators import define
    >>> distinct_policies(define(
    ...     name="m", kind="mean", mechanism="randomized_response", range=(0, 1), levels=[0.5, 4]
    ... ))  # optimal and paper agree
    3
    """
    facts = metric.randomizer.facts
    weighed = np.array([WEIGHTINGS[name](facts) for name in metric.policies])
    shares = weighed / weighed.max(axis=1, keepdims=True)
    return len(np.unique(shares.round(9), axis=0))


def chosen_among(window: Window, query: Query) -> int:
    """Return among how many answers somebody may have chosen this one after looking.

    The policy in force, and the target ``population``, are what is shown unless something else is
    asked for. Naming a policy chooses among all, and so does changing the one in force, for windows
    that begin before that. Each such answer has beta / m, so that all of them together have beta.
    The answer for which nothing is named is none of them, and has a beta of its own: whoever
    compares with it names its policy, too.

    Parameters
    ----------
    window : Window
        What was read.
    query : Query
        What was asked for by name, and whether it was chosen before looking.
    """
    if query.weights_fixed:
        return 1
    start, changed = window.start_ms, window.changed_ms
    was_changed = changed is not None and (start is None or start < changed)
    among = distinct_policies(window.metric) if query.weights is not None or was_changed else 1
    return among * (1 if query.target == "population" else 2)


def covers(window: Window, found: Estimate, query: Query) -> str:
    """Return what the bounds of an answer cover together, with its probability.

    Of a window that grows: the answers until it is final, whose bounds are another statement.

    Parameters
    ----------
    window : Window
        What was read.
    found : Estimate
        Its answer.
    query : Query
        What was asked: how many windows.
    """
    if query.windows > 1:
        return f"{query.windows} windows"
    if found.bound == "normal":
        return f"{THIS_WINDOW}, asymptotically"
    if found.bound == "anytime" and window.end_ms is None and not window.slides:
        return ALL_TIMES + (iso(window.start_ms) or "the first report")
    looked_once = found.bound == "fixed" and window.status != "final"
    return f"{THIS_WINDOW}, looked at once" if looked_once else THIS_WINDOW


def coverage_lines(found: Estimate) -> list[str]:
    """Return lines on what the bounds cover, and on what was chosen."""
    share, sure = percent(found.beta), certainty(found.beta)
    text = found.covers
    two = text == THIS_WINDOW or text.endswith(" windows")
    if found.status == "final" and found.bound == "anytime":
        two = False  # it was asked for: one statement with the answers before
    if text == THIS_WINDOW and found.bound == "anytime":
        text += (
            f": {sure} for each start by itself, however often you look while the window grows; "
            f"of many starts at most {share} in 100 ever show a wrong bound"
        )
    elif text == THIS_WINDOW:
        text += (
            f": {sure} for each window by itself; of many windows at most {share} in 100 are wrong"
        )
    elif text.endswith(" windows"):
        text += f": {sure} for all of them together"
    lines = [f"covers     {text}"] if text else []
    if two and 2 * found.beta < 1:
        lines.append(
            "           the bounds of a growing window and those of the final one "
            f"are two statements: each holds with {sure}, both with {certainty(2 * found.beta)}"
        )
    if found.chosen_among > 1:
        lines.append(
            f"chosen     among {found.chosen_among} answers (weights, target), maybe after "
            f"looking: each has beta {share}% / {found.chosen_among} (--weights-fixed: chosen "
            "before looking)"
        )
        lines.append(
            "           the answer without --weights is not among them: to compare with it, name "
            "its policy, too"
        )
    if found.weights_fixed:
        lines.append("chosen     before looking (--weights-fixed)")
    return lines
