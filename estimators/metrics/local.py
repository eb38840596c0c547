"""Metrics whose values are randomized on the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from estimators.bounds.manipulation import Influence, Reach, largest_shifts
from estimators.estimate import Counts, Estimate
from estimators.mechanisms import Mechanism, mechanism_class, mechanisms_for
from estimators.metrics.domains import OPEN
from estimators.metrics.kinds import Way
from estimators.metrics.reported import ReportedMetric
from estimators.question import Question


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalMetric(ReportedMetric):
    """A question that each device answers at random: nobody behind it sees a value.

    Parameters
    ----------
    mechanism : str
        The local randomizer, one of :data:`estimators.mechanisms.MECHANISMS`.
    memoized : bool
        Whether devices may draw an answer once for each value and repeat it, at most once a pane.
        Reports of different panes are then not independent, and bounds over several panes are
        wider. For mechanisms that are ``memoizable``.

    See :class:`estimators.metrics.metric.Metric` for the other parameters.

    Examples
    --------
    >>> from estimators import define
    >>> from estimators.exact.randomness import SeededBits
    >>> metric = define(name="late", kind="mean", mechanism="randomized_response",
    ...                 range=(0, 1), levels=[0.5, 1, 2])
    >>> level = metric.level_of([1.0] * 4000 + [3.0] * 4000)
    >>> reports = metric.randomize([0.0, 1.0] * 4000, level, SeededBits(1))
    >>> statistic = metric.zero()
    >>> metric.accumulate(statistic, level, reports)
    >>> estimate = metric.estimate(statistic)
    >>> bool(estimate.lower < 0.5 < estimate.upper), estimate.reports
    (True, 8000)
    """

    way: ClassVar[Way] = Way.LOCAL
    answered: ClassVar[str] = "is randomized on the device, and needs no release: use `estimate`"

    mechanism: str = dataclasses.field(
        metadata={"expected": lambda kind: f"one of {', '.join(mechanisms_for(kind))}"}
    )
    memoized: bool = False

    def check(self) -> None:
        """Refuse a mechanism that does not fit."""
        super().check()
        self.require_key(lambda name: mechanism_class(name, self.kind), "mechanism")
        mechanism = self.mechanism_class
        is_open = self.domain.parameters.get("categories", 0) is None
        if is_open and not mechanism.open_vocabulary:
            self.refuse("mechanism", f"one for an open vocabulary: {self._with('open_vocabulary')}")
        if not is_open and not mechanism.closed_vocabulary:
            self.refuse("categories", f"{OPEN!r} for {self.mechanism}, which needs no list")
        if self.memoized and not mechanism.memoizable:
            fitting = self._with("memoizable") or "(none)"
            self.refuse("memoized", f"false, or one of the mechanisms {fitting}")

    def _with(self, ability: str) -> str:
        """Return the names of the mechanisms for this kind that can do something."""
        known = mechanisms_for(self.kind)
        return ", ".join(name for name, each in known.items() if getattr(each, ability))

    @property
    def mechanism_class(self) -> type[Mechanism]:
        """What the mechanism is an instance of."""
        return mechanism_class(self.mechanism, self.kind)

    @property
    def meaning(self) -> dict[str, Any]:
        """Whether it is memoized."""
        return {"memoized": True} if self.memoized else {}

    def estimate(
        self,
        statistic: Counts,
        beta: float = 0.05,
        weights: str = "optimal",
        bound: str = "fixed",
        target: str = "population",
        *,
        categories: Sequence[str | int] | None = None,
        simultaneous: bool = True,
        panes: int | None = 1,
    ) -> Estimate:
        """Estimate the metric from a statistic, with bounds that hold.

        Parameters
        ----------
        statistic : ndarray of int64
        beta, weights, bound, target, simultaneous
            See :class:`estimators.question.Question`.
        categories : sequence of str or int, optional
            Of a frequency: those that are asked for, each once; all of them by default, or those on
            watch. Bounds are simultaneous over these: which ones must not depend on the reports.
        panes : int, optional
            Of a memoized metric, the panes that the reports come from, or None if nobody knows.

        Returns
        -------
        Estimate
            In the metric's own unit; arrays over categories for a frequency, over coordinates for a
        vector mean.
        """
        labels, asked = self.domain.select(categories)
        question = Question(
            beta=beta,
            weights=weights,
            bound="fixed" if bound == "auto" else bound,
            target=target,
            simultaneous=simultaneous,
            asked=asked,
            panes=panes if self.memoized else 1,
        )
        estimate = self.randomizer.estimate(self._table(statistic), question)
        if question.panes != 1:  # neither knows what repeated answers have in common
            least = estimate.effective_reports / question.panes if question.panes else 0.0
            estimate = dataclasses.replace(estimate, heterogeneity=None, effective_reports=least)
        return dataclasses.replace(self.domain.from_unit(estimate), labels=labels)

    def manipulation_bound(
        self, estimate: Estimate, reports: int, *, among: bool = False, each: bool = True
    ) -> Influence:
        """Say how far reports that somebody made up can move an estimate of this metric.

        Parameters
        ----------
        estimate : Estimate
            From :meth:`estimate`.
        reports : int
            How many are lies: they may say anything that is not refused, at any level.
        among : bool
            True: they are among those that the estimate rests on, which would have been another one
            without them. False: they come in addition.
        each : bool
            False: `shift` is left to be the largest one, which is much faster for a million
            categories.

        Returns
        -------
        Influence
            A bound that holds, and that can be attained: see
            :func:`estimators.bounds.manipulation.largest_shifts`. Numbers are NaN where no report
            has arrived, and infinite where all of them are lies.

        Examples
        --------
        >>> from estimators import define
        >>> metric = define(name="late", kind="mean", mechanism="randomized_response", range=(0, 1),
        ...                 levels=[1])
        >>> statistic = np.array([9_900, 4_950])
        >>> bound = metric.manipulation_bound(metric.estimate(statistic), 100)
        >>> round(bound.largest, 4), round(bound.without_privacy, 4)
        (0.0108, 0.005)
        """
        values = np.atleast_1d(np.asarray(estimate.value, dtype=np.float64))
        extremes = values if each or not values.size else np.array([values.min(), values.max()])
        offset, scale = self.domain.unit
        low, high = self.randomizer.report_range()
        weights, counts = self.randomizer.report_weights(estimate.policy), estimate.counts
        reach = Reach(weights, offset + scale * low, offset + scale * high)
        shift = largest_shifts(extremes, counts, reach, reports, among=among)
        ends = np.array(self.domain.ends)
        true = Reach(np.ones(1), ends[:1], ends[1:])
        plain = largest_shifts(extremes, counts.sum(keepdims=True), true, reports, among=among)
        largest = float(shift.max(initial=0.0))
        norm, l2 = self.randomizer.report_norm(), None
        if norm is not None:
            length = np.array([float(np.linalg.norm(values))])
            around = Reach(weights, np.zeros(weights.size), scale * norm)
            l2 = float(largest_shifts(-length, counts, around, reports, among=among)[0])
        whole = shift if each and np.ndim(estimate.value) else largest
        return Influence(reports, whole, largest, l2, float(plain.max(initial=0.0)))
