"""Metrics whose values are randomized on the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from estimators.bounds.manipulation import Influence, Reach, largest_shifts
from estimators.estimate import Counts, Estimate
from estimators.mechanisms import MECHANISMS, Mechanism, mechanism_class, mechanisms_for
from estimators.metrics.domains import OPEN
from estimators.metrics.kinds import KINDS, Way
from estimators.metrics.reported import ReportedMetric
from estimators.question import Question


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalMetric(ReportedMetric):
    """A metric whose values are randomized on the device, so raw values never leave it.

    Other parameters are those of :class:`estimators.metrics.metric.Metric`.

    Parameters
    ----------
    mechanism : str
        The local randomizer, one of :data:`estimators.mechanisms.MECHANISMS`.
    memoized : bool
        Whether devices may draw an answer once for each value and repeat it, at most once a pane.
        Reports in different panes are then not independent, and bounds over several panes are
        wider. Only for ``memoizable`` mechanisms.

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
        """Reject a mechanism that does not fit."""
        super().check()
        self.require_key(lambda name: mechanism_class(name, self.kind), "mechanism")
        mechanism = self.mechanism_class
        is_open = self.domain.parameters.get("categories", 0) is None
        if is_open and not mechanism.open_vocabulary:
            self.refuse("mechanism", f"one for an open vocabulary: {self._with('open_vocabulary')}")
        if not is_open and not mechanism.closed_vocabulary:
            self.refuse("categories", f"{OPEN!r} for {self.mechanism}, which needs no list")
        if self.memoized and self.kind not in KINDS.built_in:
            self.refuse(
                "memoized", f"false for kind {self.kind!r}: Dither cannot repeat its answers"
            )
        if self.memoized and not mechanism.memoizable:
            fitting = self._with("memoizable") or "(none)"
            self.refuse("memoized", f"false, or one of the mechanisms {fitting}")

    def __post_init__(self) -> None:
        """Refuse also a mechanism from another distribution that says more than a level allows."""
        super().__post_init__()
        if self.mechanism in MECHANISMS.built_in:
            return
        for level, epsilon in enumerate(self.levels):
            if not self.randomizer.is_private(level):
                expected = f"one that proves epsilon = {epsilon:g}: see `privacy_ratio`"
                self.refuse("mechanism", expected)

    def _with(self, ability: str) -> str:
        """Return the names of the mechanisms for this kind with some property."""
        known = mechanisms_for(self.kind)
        return ", ".join(name for name, each in known.items() if getattr(each, ability))

    @property
    def mechanism_class(self) -> type[Mechanism]:
        """The class of the mechanism."""
        return mechanism_class(self.mechanism, self.kind)

    @property
    def meaning(self) -> dict[str, Any]:
        """Whether the metric is memoized."""
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
        """Estimate the metric from a statistic, with confidence bounds.

        Parameters
        ----------
        statistic : ndarray of int64
        beta, weights, bound, target, simultaneous
            See :class:`estimators.question.Question`.
        categories : sequence of str or int, optional
            For a frequency, the requested categories, each once; by default all, or those on watch.
            Bounds are simultaneous over these, so the choice must not depend on the reports.
        panes : int, optional
            For a memoized metric, the number of panes of the reports; None if it is unknown.

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
        estimate = self.randomizer.estimate(self.table(statistic), question)
        if question.panes != 1:  # neither knows what repeated answers have in common
            least = estimate.effective_reports / question.panes if question.panes else 0.0
            estimate = dataclasses.replace(estimate, heterogeneity=None, effective_reports=least)
        return dataclasses.replace(self.domain.from_unit(estimate), labels=labels)

    def manipulation_bound(
        self, estimate: Estimate, reports: int, *, among: bool = False, each: bool = True
    ) -> Influence:
        """Return how far fabricated reports can move an estimate of this metric.

        Parameters
        ----------
        estimate : Estimate
            From :meth:`estimate`.
        reports : int
            The number of fabricated reports. They may have any valid content, at any level.
        among : bool
            True: they are among the reports of the estimate, and the change is from the estimate
            without them. False: they are added.
        each : bool
            False: `shift` is only the largest one, which is much faster for a million categories.

        Returns
        -------
        Influence
            A valid and attainable bound: see :func:`estimators.bounds.manipulation.largest_shifts`.
            Numbers are NaN without reports, and infinite if all reports are fabricated.

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
