"""Which answers the bounds cover (one window, several, all times), and how an answer was chosen.

A bound for a window with a fixed start is too weak if the start moves, because each start is
another chance to be wrong. If a weight policy is chosen after its results were seen, the chosen
bound can be wrong if the bound of any policy is. The bounds of a growing window and of the final
one are two statements: each holds with probability 1 - beta, and both with at least 1 - 2 beta.
docs/bounds.md has the guarantees and their costs.
"""

from __future__ import annotations

import numpy as np

from aggregator.reading.query import Query
from aggregator.reading.window import Window
from aggregator.timestamps import iso
from estimators import Estimate, Metric
from estimators.rounding import certainty, percent
from estimators.weights import WEIGHTINGS

THIS_WINDOW = "this window"
ALL_TIMES = "all times from "


def count_distinct_policies(metric: Metric) -> int:
    """Return the number of policies that weigh the metric's levels differently.

    Examples
    --------
    >>> from estimators import define
    >>> count_distinct_policies(define(
    ...     name="m", kind="mean", mechanism="randomized_response", range=(0, 1), levels=[0.5, 4]
    ... ))  # optimal and paper agree
    3
    """
    facts = metric.randomizer.facts
    weighed = np.array([WEIGHTINGS[name](facts) for name in metric.policies])
    shares = weighed / weighed.max(axis=1, keepdims=True)
    return len(np.unique(shares.round(9), axis=0))


def count_alternatives(window: Window, query: Query) -> int:
    """Return the number m of answers from which a reader may have chosen this one after looking.

    By default an answer has the policy in force and the target ``population``. A reader who names a
    policy chooses among all policies. So does a reader who changes the policy in force, for windows
    before the change. Each of the m answers has beta / m. The default answer is not among the m
    answers, and has all of beta: to compare with it, name its policy, too.
    """
    if query.weights_fixed:
        return 1
    is_chosen = query.weights is not None or window.precedes_policy
    policies = count_distinct_policies(window.metric) if is_chosen else 1
    return policies * (1 if query.target == "population" else 2)


def coverage_text(window: Window, estimate: Estimate, query: Query) -> str:
    """Return which answers the bounds cover together with probability 1 - beta.

    While a window grows, these are all its answers until it is final. `window`: the window;
    `estimate`: its estimate; `query`: the query, with its number of windows.
    """
    if query.windows > 1:
        return f"{query.windows} windows"
    if estimate.bound == "normal":
        return f"{THIS_WINDOW}, asymptotically"
    if estimate.bound == "anytime" and window.end_ms is None and not window.slides:
        return ALL_TIMES + (iso(window.start_ms) or "the first report")
    is_single_look = estimate.bound == "fixed" and window.status != "final"
    return f"{THIS_WINDOW}, looked at once" if is_single_look else THIS_WINDOW


def coverage_lines(estimate: Estimate) -> list[str]:
    """Return lines on what the bounds cover, and on how the answer was chosen."""
    share, sure = percent(estimate.beta), certainty(estimate.beta)
    text = estimate.covers
    is_two_statements = text == THIS_WINDOW or text.endswith(" windows")
    if estimate.status == "final" and estimate.bound == "anytime":
        is_two_statements = False  # it was asked for: one statement with the answers before
    if text == THIS_WINDOW and estimate.bound == "anytime":
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
    if is_two_statements and 2 * estimate.beta < 1:
        lines.append(
            "           the bounds of a growing window and those of the final one "
            f"are two statements: each holds with {sure}, both with {certainty(2 * estimate.beta)}"
        )
    if estimate.chosen_among > 1:
        lines.append(
            f"chosen     among {estimate.chosen_among} answers (weights, target), maybe after "
            f"looking: each has beta {share}% / {estimate.chosen_among} (--weights-fixed: chosen "
            "before looking)"
        )
        lines.append(
            "           the answer without --weights is not among them: to compare with it, name "
            "its policy, too"
        )
    if estimate.weights_fixed:
        lines.append("chosen     before looking (--weights-fixed)")
    return lines
