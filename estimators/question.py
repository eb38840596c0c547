"""The parameters of an estimate from a statistic."""

from __future__ import annotations

import dataclasses
import math

from estimators.errors import meant
from estimators.estimate import Array
from estimators.weights import WEIGHTINGS

BOUND_NAMES = ("auto", "fixed", "anytime", "normal")
TARGET_NAMES = ("population", "sample")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """The parameters of an estimate: failure probability, weights, bound and target.

    Parameters
    ----------
    beta : float
        Failure probability of the two-sided bound, in (0, 1).
    weights : str
        A policy of :data:`estimators.weights.WEIGHTINGS`.
    bound : str
        ``"fixed"``: holds for a number of reports that is fixed in advance, as in a closed window.
        ``"anytime"``: holds at all times at once, for a total that people watch while it grows.
        ``"normal"``: asymptotic bounds, for comparison, which are too narrow for few reports.
        ``"auto"``: what the window needs, ``"fixed"`` or ``"anytime"``; ``"fixed"`` without a
        window.
    target : str
        ``"population"``: bounds cover the distribution that the users come from;
        ``"sample"``: they cover the users' own realised values, so only the noise counts.
    simultaneous : bool
        Whether the bounds hold for all categories, or coordinates, at once. If not, each bound
        holds alone (pointwise): use this for a number that was chosen before the reports were seen.
    asked : ndarray of integers, optional
        The categories to estimate, in the mechanism's units; all by default. Bounds are
        simultaneous over these. The choice must not depend on the reports.
    numbers : int
        The least number of intervals that share `beta`, if categories and shares among are
        estimated separately.
    panes : int or None
        The number of panes, if a device repeats its answer in each: reports are then independent
        within a pane, but not across panes. None if the number is unknown.

    Notes
    -----
    Population bounds assume that all levels share one mean, for every policy except ``"uniform"``:
    with ``"uniform"``, levels may have different means, and the bounds cover the mean of all
    reporting users' distributions (with ``"anytime"``: the mean up to each time, which may change).
    The target ``"sample"`` is the mean of the users' values, with the weights of the policy.
    """

    beta: float = 0.05
    weights: str = "optimal"
    bound: str = "fixed"
    target: str = "population"
    simultaneous: bool = True
    asked: Array | None = None
    numbers: int = 0
    panes: int | None = 1

    def __post_init__(self) -> None:
        if not 0 < self.beta < 1:
            raise ValueError(f"beta = {self.beta!r}: expected a probability between 0 and 1")
        if self.asked is not None and (self.asked.dtype == object or (self.asked < 0).any()):
            raise ValueError(f"categories {self.asked.tolist()}: expected indices or keys")
        if self.panes is not None and self.panes < 1:
            raise ValueError(f"panes = {self.panes}: expected 1 or more, or None")
        for key, allowed in (
            ("weights", WEIGHTINGS),
            ("bound", BOUND_NAMES),
            ("target", TARGET_NAMES),
        ):
            if getattr(self, key) not in allowed:
                raise ValueError(
                    f"{key} = {getattr(self, key)!r}: {meant(str(getattr(self, key)), allowed)}"
                )

    def log_p(self, numbers: int) -> float:
        """Return ln p, where p is the failure probability of each side of `numbers` intervals."""
        intervals = max(1, numbers, self.numbers) if self.simultaneous else 1
        return math.log(self.beta / (2 * intervals))

    def one_mean(self, levels: int) -> bool:
        """Return whether bounds assume the same mean at all `levels` levels with reports."""
        return self.target == "population" and (self.weights != "uniform" or levels == 1)

    @property
    def may_move(self) -> bool:
        """Whether the bounds also hold if the true value changes over time."""
        return self.bound == "anytime" and (self.target == "sample" or self.weights == "uniform")
