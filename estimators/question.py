"""What is asked of a statistic."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from numpy.typing import NDArray

from estimators.errors import meant
from estimators.weights import POLICIES

BOUNDS = ("auto", "fixed", "anytime", "normal")
TARGETS = ("population", "sample")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a statistic: the failure probability, the weights, the bound and its target.

    Parameters
    ----------
    beta : float
        Failure probability of the two-sided bound, in (0, 1).
    weights : str
        A policy of :data:`estimators.weights.POLICIES`.
    bound : str
        ``"fixed"``: holds for a number of reports that was fixed in advance, as in a closed window.
        ``"anytime"``: holds at all times at once, for a total that is looked at while it grows.
        ``"normal"``: asymptotic, for comparison: too short for few reports. ``"auto"``: chosen by
        the window, where there is one; ``"fixed"`` otherwise.
    target : str
        ``"population"``: bounds cover the distribution that the users come from;
        ``"sample"``: they cover the users' own realised values, so only the noise counts.
    simultaneous : bool
        Whether the bounds hold for all categories, or coordinates, at once; else for each by itself
        (pointwise), which is for one that was singled out before looking.
    asked : ndarray of integers, optional
        The categories that are asked for, in the mechanism's units; all of them by default. Bounds
        are simultaneous over these. Which ones they are must not depend on the reports.
    panes : int or None
        Above 1: the reports come from so many groups, and are independent only within each of them
        (a device has one report in each, and repeats its answer). None: nobody knows of how many.

    Notes
    -----
    Population bounds take the level to be independent of the value, as every policy but
    ``"uniform"`` does: all levels then share one mean. With ``"uniform"`` each level may have a
    mean of its own, and what is covered is the mean of all reporting users' distributions (with
    ``"anytime"``: the mean up to each time, which may move). The
    target ``"sample"`` is the mean of the users' values weighted as the policy says: their plain
    mean for ``"uniform"``.
    """

    beta: float = 0.05
    weights: str = "optimal"
    bound: str = "fixed"
    target: str = "population"
    simultaneous: bool = True
    asked: NDArray[Any] | None = None
    panes: int | None = 1

    def __post_init__(self) -> None:
        """Refuse a question that has no answer."""
        if not 0 < self.beta < 1:
            raise ValueError(f"beta = {self.beta!r}: expected a probability between 0 and 1")
        if self.panes is not None and self.panes < 1:
            raise ValueError(f"panes = {self.panes}: expected 1 or more, or None")
        for key, known in (("weights", POLICIES), ("bound", BOUNDS), ("target", TARGETS)):
            if getattr(self, key) not in known:
                raise ValueError(
                    f"{key} = {getattr(self, key)!r}: {meant(str(getattr(self, key)), known)}"
                )

    def log_p(self, numbers: int) -> float:
        """Return ln p, the failure probability of one side of one of `numbers` intervals."""
        return math.log(self.beta / (2 * (max(1, numbers) if self.simultaneous else 1)))

    def one_mean(self, levels: int) -> bool:
        """Return whether the values of all `levels` in use may be taken to have the same mean."""
        return self.target == "population" and (self.weights != "uniform" or levels == 1)
