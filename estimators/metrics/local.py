"""Metrics whose values are randomized on the device."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from estimators.bounds.manipulation import Influence, Reach, largest_shifts, shift_of_values
from estimators.discovery.discoveries import Discovery
from estimators.durations import milliseconds
from estimators.errors import DefinitionError, explain_missing_scipy, nearest
from estimators.estimate import Counts, Estimate
from estimators.limits import MOST_ATTRIBUTES, MOST_SLICES
from estimators.mechanisms import MECHANISMS, Mechanism, PrefixTree, mechanism_class, mechanisms_for
from estimators.metrics.attributes import Slicing, check_attribute
from estimators.metrics.categories import OPEN_VOCABULARY, CodedVocabulary
from estimators.metrics.crowd import Crowd
from estimators.metrics.kinds import KINDS, Way
from estimators.metrics.metric import ReportedMetric
from estimators.metrics.shares import (
    MAX_SHARES,
    ShareAmong,
    defined_shares,
    estimate_shares,
    joined,
    share_shifts,
)
from estimators.metrics.validation import check_duration
from estimators.question import Question

HOUR_MS = 3_600_000
MOST_SLICE_BYTES = 64 << 20
"""The most bytes of the sums of all slices in one stretch of `by_pane`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalMetric(ReportedMetric):
    """A metric whose values are randomized on the device, so raw values never leave it.

    Other parameters are those of :class:`estimators.metrics.metric.Metric`.

    Parameters
    ----------
    mechanism : str
        The local randomizer, one of :data:`estimators.mechanisms.MECHANISMS`; by default that of
        the kind, if the kind has one.
    memoized : bool
        Whether devices may draw an answer once for each value and repeat it, at most once in each
        pane. Reports in different panes are then not independent, and bounds over several panes are
        wider. Only for ``memoizable`` mechanisms.
    shares : sequence of str
        Shares among, as in ``"paid / visit.."``, that readers show beside all categories: see
        :func:`estimators.metrics.shares.parse_share`. They do not change the metric's revision.
    by : sequence of str
        The attributes of devices by which reports are also summed: see
        :class:`estimators.metrics.attributes.Slicing`. No key for slices changes the metric's
        revision, because no such key changes what a report means.
    attributes : mapping of str to sequence of str
        The declared values of these attributes; in a file, the table ``[attributes]`` has them.
    by_pane : str, optional
        The length of a slice's panes in event time, a multiple of `pane`; by default the larger of
        `pane` and one hour.
    by_retention : str, optional
        How long a slice's panes are kept; by default as long as `retention`. Daily sums of slices
        are kept as long as `retention`.
    max_slices : int
        The most slices; a definition with more is refused.
    crowd : Crowd, optional
        Devices seal their reports, and post them to a relay, which shuffles them: see
        :class:`estimators.metrics.crowd.Crowd`. A mapping with its keys is accepted, too.

    Examples
    --------
    >>> from estimators import SeededBits, define
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
    shares: Sequence[str] = ()
    by: Sequence[str] = ()
    attributes: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    by_pane: str | None = None
    by_retention: str | None = None
    max_slices: int = 1_000
    crowd: Crowd | None = None

    def check(self) -> None:
        """Raise DefinitionError if the mechanism and other keys do not fit together."""
        super().check()
        self.require_key(lambda name: mechanism_class(name, self.kind), "mechanism")
        mechanism = self.mechanism_class
        is_open = self.domain.parameters.get("categories", 0) is None
        if is_open and not mechanism.open_vocabulary:
            self.refuse("mechanism", f"one for an open vocabulary: {self._with('open_vocabulary')}")
        if mechanism.discovers != isinstance(self.domain, CodedVocabulary):
            expected = f"true, and only with mechanism {self._with('discovers')}"
            raise DefinitionError(f"{self.name}.discover", not mechanism.discovers, expected)
        if not is_open and not mechanism.closed_vocabulary:
            self.refuse(
                "categories", f"{OPEN_VOCABULARY!r} for {self.mechanism}, which needs no list"
            )
        if self.memoized and self.kind not in KINDS.built_in:
            self.refuse(
                "memoized", f"false for kind {self.kind!r}: Dither cannot repeat its answers"
            )
        if self.memoized and not mechanism.memoizable:
            fitting = self._with("memoizable")
            alternatives = (
                f", or one of the mechanisms {fitting}" if fitting else f" for {self.kind!r}"
            )
            self.refuse("memoized", f"false{alternatives}")
        self._check_attributes()
        if isinstance(self.crowd, Mapping):
            self.require_key(lambda table: self._set("crowd", Crowd.of(table)), "crowd")
        if self.crowd is not None:
            self._check_crowd(self.crowd)

    def _check_crowd(self, crowd: Crowd) -> None:
        """Raise DefinitionError for a key's value that a crowd does not allow.

        The lateness, for example, must be at least twice the crowd's `wait`.
        """
        if len(self.levels) != 1:
            self.refuse("levels", "one level: each would be a crowd of its own")
        if self.by:
            self.refuse("by", "no attributes: each slice would be a crowd of its own")
        if self.memoized:
            self.refuse("memoized", "false: answers that are repeated gain nothing in a crowd")
        if self.mechanism_class.discovers:
            self.refuse("crowd", "none for a metric that discovers strings")
        for key in ("max_batch_reports", "max_key_reports"):
            if getattr(self, key) is not None:
                self.refuse(key, "none: the service itself cuts a crowd into batches")
        if self.lateness_ms < 2 * crowd.wait_ms:
            expected = f"at least 2 wait: a crowd arrives {crowd.wait} after its pane's end"
            self.refuse("lateness", expected)

    def _check_attributes(self) -> None:
        """Raise DefinitionError if the keys for attributes and slices do not fit together.

        For example, all attributes must be declared, `by_pane` must be a multiple of `pane`, and
        there may be at most `max_slices` slices.
        """
        if self.by and self.memoized:
            self.refuse("by", "none for a memoized metric: they would help to link its answers")
        if len(set(self.by)) < len(self.by) or len(self.by) > MOST_ATTRIBUTES:
            self.refuse("by", f"at most {MOST_ATTRIBUTES} attributes, each once")
        for name in self.by:
            if name not in self.attributes:
                self.refuse("by", f"attributes that are declared: {nearest(name, self.attributes)}")
        for name, values in self.attributes.items():
            if name not in self.by:
                self.refuse("attributes", f"only those of `by`, without {name!r}")
            try:
                check_attribute(name, values)
            except ValueError as error:
                raise DefinitionError(f"attributes.{name}", values, str(error)) from None
        self.require_key(check_duration, "by_pane", "by_retention")
        if self.slicing is None:
            return
        if self.slicing.pane_ms % self.pane_ms:
            self.refuse("by_pane", f"a multiple of the metric's pane, {self.pane}")
        if not 1 <= self.max_slices <= MOST_SLICES:
            self.refuse("max_slices", f"1 to {MOST_SLICES}")
        if self.slicing.size > self.max_slices:
            values = " x ".join(str(count) for count in self.slicing.value_counts)
            expected = (
                f"at most {self.max_slices} slices (max_slices), not {self.slicing.size} = "
                f"{values}, each attribute with `other` and `none`"
            )
            self.refuse("by", expected)

    @functools.cached_property
    def slicing(self) -> Slicing | None:
        """How reports are divided into slices; None if the metric has no slices."""
        if not self.by:
            return None
        by_pane = self.by_pane
        stretch = max(self.pane_ms, HOUR_MS) if by_pane is None else milliseconds(by_pane)
        return Slicing({name: tuple(self.attributes[name]) for name in self.by}, stretch)

    @property
    def by_retention_ms(self) -> int | None:
        """How long a slice's panes are kept, in milliseconds; None means forever."""
        return self.retention_ms if self.by_retention is None else milliseconds(self.by_retention)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.slicing is not None:
            slice_bytes = 8 * len(self.levels) * self.randomizer.columns
            if self.slicing.size * slice_bytes > MOST_SLICE_BYTES:
                expected = (
                    f"at most {MOST_SLICE_BYTES >> 20} MiB of sums, not {self.slicing.size} slices "
                    f"of {slice_bytes} bytes each: fewer attributes, values, levels or "
                    "categories, or for strings a smaller table (options)"
                )
                self.refuse("by", expected)
        if self.crowd is not None and (expected := self.crowd.size_fault(self.randomizer.width)):
            self.refuse("crowd", expected)
        self.share_names  # noqa: B018
        if self.mechanism in MECHANISMS.built_in:
            return
        for level, epsilon in enumerate(self.levels):
            if not self.randomizer.is_private(level):
                expected = f"one that proves epsilon = {epsilon:g}: see `privacy_ratio`"
                self.refuse("mechanism", expected)

    @functools.cached_property
    def share_names(self) -> tuple[str, ...]:
        """The canonical names of the definition's shares among.

        Raises DefinitionError if a share is invalid, or if the metric can have none.
        """
        if self.shares and self.domain.names != "categories":
            self.refuse("shares", f"none for kind {self.kind!r}: only a frequency has categories")
        if self.shares and self.memoized:
            self.refuse("shares", "none for a memoized metric: its answers repeat across panes")
        if len(self.shares) > MAX_SHARES:
            self.refuse("shares", f"at most {MAX_SHARES}, not {len(self.shares)}")
        names: list[str] = []
        for text in self.shares:
            try:
                names += defined_shares(text, self.domain, self.randomizer)
            except ValueError as error:
                reason = str(error).removeprefix(f"category {text!r} of {self.name!r}: ")
                expected = f"a share among categories: {reason.removeprefix('expected ')}"
                raise DefinitionError(f"{self.name}.shares", text, expected) from None
            if len({*names}) < len(names):
                raise DefinitionError(f"{self.name}.shares", text, "each share once")
            if len(names) > MAX_SHARES:
                raise DefinitionError(f"{self.name}.shares", text, f"at most {MAX_SHARES}")
        return tuple(names)

    def _with(self, ability: str) -> str:
        """Return the names of this kind's mechanisms with the property `ability`, as text."""
        mechanisms = mechanisms_for(self.kind).items()
        return ", ".join(name for name, mechanism in mechanisms if getattr(mechanism, ability))

    @property
    def mechanism_class(self) -> type[Mechanism]:
        """The class of the mechanism."""
        return mechanism_class(self.mechanism, self.kind)

    @property
    def meaning(self) -> dict[str, Any]:
        """Whether the metric is memoized, and its crowd."""
        memoized = {"memoized": True} if self.memoized else {}
        return memoized if self.crowd is None else memoized | {"crowd": self.crowd.meaning}

    @explain_missing_scipy("an estimate")
    def estimate(
        self,
        statistic: Counts,
        beta: float = 0.05,
        weights: str = "optimal",
        bound: str = "fixed",
        target: str = "population",
        *,
        categories: Sequence[str | float] | None = None,
        quantiles: Sequence[float] | None = None,
        simultaneous: bool = True,
        panes: int | None = 1,
    ) -> Estimate:
        """Return an estimate of the metric from a statistic, with confidence bounds.

        Parameters
        ----------
        statistic : ndarray of int64
            The summed reports, from :meth:`accumulate`.
        beta, weights, bound, target, simultaneous
            See :class:`estimators.question.Question`.
        categories : sequence of str or int, optional
            For a frequency, the requested categories, each once; by default all, or those on watch.
            Bounds are simultaneous over these, so the choice must not depend on the reports.
        quantiles : sequence of float, optional
            For a distribution, the requested quantiles; by default those of the definition.
            Bounds are simultaneous over these, so the choice must not depend on the reports.
        panes : int, optional
            For a memoized metric, the number of panes of the reports; None if it is unknown.

        Returns
        -------
        Estimate
            In the metric's own unit. Its numbers are arrays over categories for a frequency, and
            over coordinates for a vector mean. For a distribution, it is an
            :class:`estimators.DistributionEstimate`.
        """
        asked = {"weights": weights, "target": target, "simultaneous": simultaneous}
        chosen = categories if quantiles is None else quantiles
        return self.estimate_each([statistic], beta, bound, chosen, panes, **asked)[0]

    @explain_missing_scipy("an estimate")
    def estimate_each(
        self,
        statistics: Sequence[Counts],
        beta: float = 0.05,
        bound: str = "fixed",
        chosen: Sequence[str | float] | None = None,
        panes: int | None = 1,
        **asked: Any,
    ) -> list[Estimate]:
        """Return the estimate from each of many statistics, for the same question.

        The bounds of means are computed together, which takes a fraction of the time.

        Parameters
        ----------
        statistics : sequence of ndarray of int64
            The statistics of windows.
        beta, bound, panes
            As for :meth:`estimate`.
        chosen : sequence, optional
            The categories of a frequency, or the quantiles of a distribution.
        **asked
            `weights`, `target` and `simultaneous`, as for :meth:`estimate`.
        """
        labels, selected = self.domain.select(chosen)
        keys: list[Any] = [] if selected is None else selected.tolist()
        shares = [key for key in keys if isinstance(key, ShareAmong)]
        if shares:
            selected = np.array([key for key in keys if key not in shares], dtype=np.int64)
            asked["numbers"] = len(labels)
        panes = panes if self.memoized else 1
        bound = "fixed" if bound == "auto" else bound
        question = Question(beta=beta, bound=bound, asked=selected, panes=panes, **asked)
        tables = [self.table(statistic) for statistic in statistics]
        estimates = self.randomizer.estimate_each(tables, question)
        if shares:
            answers = estimate_shares(self.randomizer, tables, question, shares)
            is_share = [isinstance(key, ShareAmong) for key in keys]
            windows = zip(estimates, answers, strict=True)
            estimates = [joined(estimate, is_share, numbers) for estimate, numbers in windows]
        if question.panes != 1:  # neither of these numbers allows for repeated answers
            divisor = question.panes or math.inf
            estimates = [
                dataclasses.replace(x, heterogeneity=None, effective_reports=effective / divisor)
                for x, effective in ((x, x.effective_reports) for x in estimates)
            ]
        return [dataclasses.replace(self.domain.from_unit(x), labels=labels) for x in estimates]

    @explain_missing_scipy("a discovery")
    def discover(
        self,
        statistic: Counts,
        beta: float = 0.05,
        progress: Callable[[float], None] = lambda _: None,
    ) -> Discovery:
        """Return the frequent strings of an open vocabulary, which nobody has to list.

        Parameters
        ----------
        statistic : ndarray of int64
            The summed reports, from :meth:`accumulate`.
        beta : float
            An upper bound on the probability that nobody holds some returned string, or that some
            interval is wrong, for a number of reports that is fixed in advance, as in a closed
            window.
        progress : callable
            A function that is called with the share of the work done; if it raises, the work ends.

        Returns
        -------
        Discovery
            The most frequent string first; iterating gives rows of string, value, lower, upper.

        Raises
        ------
        ValueError
            If the metric has no ``discover = true``.
        """
        mechanism = self.require_discovery()
        assert isinstance(self.domain, CodedVocabulary)  # noqa: S101
        return mechanism.discover(self.table(statistic), beta, self.domain.keys_of, progress)

    def require_discovery(self) -> PrefixTree:
        """Return the mechanism that discovers strings.

        Raises ValueError if the metric has no ``discover = true``.
        """
        if not isinstance(self.randomizer, PrefixTree):
            raise ValueError(
                f"metric {self.name!r} discovers no strings: expected a frequency with "
                'categories = "open" and discover = true in its definition'
            )
        return self.randomizer

    def manipulation_bound(
        self, estimate: Estimate, reports: int, *, among: bool = False, each: bool = True
    ) -> Influence:
        """Return how far fabricated reports can move an estimate.

        Parameters
        ----------
        estimate : Estimate
            From :meth:`estimate`.
        reports : int
            The number of fabricated reports. They may have any valid content, at any level.
        among : bool
            If True, the fabricated reports are among those of the estimate, and the change is from
            the estimate without them. If False, they are added to the reports of the estimate.
        each : bool
            If False, `shift` has only the largest shift, which is much faster for a million
            categories.

        Returns
        -------
        Influence
            A bound that fabricated reports can attain: see
            :func:`estimators.bounds.manipulation.largest_shifts`. Numbers are NaN without reports,
            and infinite if all reports are fabricated.

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
        keys = None if estimate.denominators is None else self.domain.select(estimate.labels)[1]
        names = enumerate([] if keys is None else keys)
        shares = {i: key for i, key in names if isinstance(key, ShareAmong)}
        extremes = values
        if shares:
            order = [*(i for i in range(values.size) if i not in shares), *shares]
            extremes = values[order[: -len(shares)]]
        if not each and extremes.size:
            extremes = np.array([extremes.min(), extremes.max()])
        offset, scale = self.domain.unit
        low, high = self.randomizer.report_range()
        weights = self.randomizer.report_weights(estimate.policy)
        counts = estimate.counts if estimate.basis is None else estimate.basis
        reach = Reach(weights, offset + scale * low, offset + scale * high)
        shift = largest_shifts(extremes, counts, reach, reports, among=among)
        first, last = self.domain.ends
        farthest = float(np.maximum(extremes - first, last - extremes).max(initial=0.0))
        plain = 0.0
        if extremes.size:
            plain = shift_of_values(farthest, int(counts.sum()), reports, among=among)
        if shares:
            moved, truly = share_shifts(self.randomizer, estimate, shares, reports, among=among)
            shift, plain = np.append(shift, moved), max(plain, *truly)
            shift = shift[np.argsort(order)] if each else shift
        if estimate.basis is not None and not estimate.basis.any():
            shift = np.full_like(shift, np.inf if estimate.reports else np.nan)
        largest = float(shift.max(initial=0.0))
        norm, l2 = self.randomizer.report_norm(), None
        if norm is not None:
            length = np.array([float(np.linalg.norm(values))])
            around = Reach(weights, np.zeros(weights.size), scale * norm)
            l2 = float(largest_shifts(-length, counts, around, reports, among=among)[0])
        shown_shift = shift if each and np.ndim(estimate.value) else largest
        return Influence(reports, shown_shift, largest, l2, plain)
