"""What bounds cover: one window, several, or all times; and what was chosen among how many.

A bound that holds for one window whose start is fixed says less of a window whose start moves: each
new start is a new chance to miss. And a policy of weights that was chosen after looking at several
misses as often as any of them. What is shown while a window grows, and what is shown once it is
final, are two statements: each holds by itself with 1 - beta, both with at least 1 - 2 beta.
docs/bounds.md has what each choice promises, and its price.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from aggregator.reading.windows import Window
from aggregator.timestamps import iso
from estimators import Estimate, Metric
from estimators.rounding import certainty, percent
from estimators.weights import WEIGHTINGS

MOST_WINDOWS = 1_000_000
THIS_WINDOW = "this window"
ALL_TIMES = "all times from "


@dataclasses.dataclass(frozen=True, kw_only=True)
class Looks:
    """How often somebody looks, and what they chose before they did.

    Attributes
    ----------
    windows : int
        So many windows, stated in advance, are all covered together: each has beta / windows. The
        final answers are right together with 1 - beta, and so are all answers while they grow.
    weights_fixed : bool
        Weights and target were chosen before looking: beta is not shared among what there is.
    """

    windows: int = 1
    weights_fixed: bool = False

    def __post_init__(self) -> None:
        """Refuse a number of windows that cannot be."""
        if not 1 <= self.windows <= MOST_WINDOWS:
            raise ValueError(f"windows = {self.windows}: expected 1 to {MOST_WINDOWS:,}")

    def check(self, window: Window) -> None:
        """Refuse several windows of what is no window."""
        if window.is_running_total and not window.slides:
            self.refuse_several(
                "expected a window, or a start and an end; a running total has one start"
            )

    def refuse_several(self, why: str) -> None:
        """Raise ValueError if there are several windows, which cannot share bounds."""
        if self.windows > 1:
            raise ValueError(f"windows = {self.windows}: {why}")


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


def chosen_among(window: Window, weights: str | None, target: str, looks: Looks) -> int:
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
    weights : str, optional
        The policy that was asked for by name.
    target : {"population", "sample"}
    looks : Looks
        What was said about other looks.
    """
    if looks.weights_fixed:
        return 1
    start, changed = window.start_ms, window.changed_ms
    was_changed = changed is not None and (start is None or start < changed)
    among = distinct_policies(window.metric) if weights is not None or was_changed else 1
    return among * (1 if target == "population" else 2)


def covers(window: Window, found: Estimate, looks: Looks, *, looked_once: bool = False) -> str:
    """Return what the bounds of an answer cover together, with its probability.

    Of a window that grows: the answers until it is final, whose bounds are another statement.

    Parameters
    ----------
    window : Window
        What was read.
    found : Estimate
        Its answer.
    looks : Looks
        What was said about other looks.
    looked_once : bool
        Whether bounds for a closed window were asked for of one that may still grow.
    """
    if looks.windows > 1:
        return f"{looks.windows} windows"
    if found.bound == "normal":
        return f"{THIS_WINDOW}, asymptotically"
    if found.bound == "anytime" and window.end_ms is None and not window.slides:
        return ALL_TIMES + (iso(window.start_ms) or "the first report")
    return f"{THIS_WINDOW}, looked at once" if looked_once else THIS_WINDOW


def coverage_lines(found: Estimate) -> list[str]:
    """Return lines on what the bounds cover, and on what was chosen."""
    share, sure = percent(found.beta), certainty(found.beta)
    told = found.covers
    two = told == THIS_WINDOW or told.endswith(" windows")
    if found.status == "final" and found.bound == "anytime":
        two = False  # it was asked for: one statement with the answers before
    if told == THIS_WINDOW and found.bound == "anytime":
        told += (
            f": {sure} for each start by itself, however often you look while the window grows; "
            f"of many starts at most {share} in 100 ever show a wrong bound"
        )
    elif told == THIS_WINDOW:
        told += (
            f": {sure} for each window by itself; of many windows at most {share} in 100 are wrong"
        )
    elif told.endswith(" windows"):
        told += f": {sure} for all of them together"
    lines = [f"covers     {told}"] if told else []
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
