"""Runs a living comparison over the final panes of its metrics, until it is decided.

After each pane the run compares the sums since the start, with bounds that hold at all times. So
the log determines the numbers at each pane, the decision, and the state in Redis.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from aggregator.features.comparisons.arms import Arms, compared, read_arms
from aggregator.features.comparisons.comparison_answers import ComparedArm, comparison_answer
from aggregator.features.comparisons.definitions import ComparisonDefinition, step_ms
from aggregator.features.comparisons.query import Compared, CompareQuery, number_list
from aggregator.lazy_log import LazyLog
from aggregator.publishing.runs import Run
from aggregator.reading.query import Query
from aggregator.reading.reader import MetricReader
from aggregator.reading.serialization import Moment, Numbers, plain
from aggregator.reading.window import Window
from aggregator.storage.progress import TopicProgress
from aggregator.timestamps import from_iso, iso
from estimators import LocalMetric
from estimators.estimate import Counts
from estimators.weights import DEFAULT_POLICY

SHARED_FIELDS = ("metric", "unit", "of", "bound", "beta", "covers", "law", "split", "rest")
"""Fields of a decision's event that are those of the comparison's answer."""
MAX_LOOKS, MAX_HISTORY_NUMBERS = 256, 8_000
"""The most looks in a history, and the most numbers in them."""

log = LazyLog("dither.comparisons")


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison as it stood at the end of a final pane, with both arms' numbers of reports."""

    at: Moment
    value: Numbers
    lower: Numbers
    upper: Numbers
    reports: tuple[int, int]


class ComparisonDecided(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a comparison's event: its arms are proved to be different.

    `at` is the end of the first final pane at which `lower` and `upper` exclude 0 (for a ratio, 1).
    The numbers are those of all final panes from the start to `at`. `incomplete` is the number of
    these panes with reports that are in no table of slices. Each category or coordinate has a
    separate event; the bounds hold for all together. The estimate at the time of a decision is too
    large on average, but the bounds are valid.
    """

    comparison: str
    metric: str
    unit: str
    of: str
    category: str | UnsetType = UNSET
    at: Moment
    value: Numbers
    lower: Numbers
    upper: Numbers
    p_value: Numbers
    bound: str
    beta: float
    covers: str
    law: str
    split: float | None
    a: ComparedArm
    b: ComparedArm
    rest: bool
    incomplete: int = 0


class StoredComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a comparison: the next pane, and both arms' sums from the start up to it.

    Attributes
    ----------
    sums : tuple of bytes
        The sums of both arms, int64, little-endian.
    incomplete : int
        The number of panes with reports in no table of slices.
    stride : int
        The number of panes between two looks in `history`.
    """

    next_ms: int
    sums: tuple[bytes, bytes]
    incomplete: int
    stride: int
    history: list[Look]
    decided: list[ComparisonDecided]


def query_of(
    definition: ComparisonDefinition,
    start_ms: int,
    end_ms: int | None = None,
    *,
    with_arm_bounds: bool = False,
) -> CompareQuery:
    """Return the query that a definition asks about a window.

    The weight policy in force is not used, because it may change, and bounds at all times need a
    fixed rule. `definition`: the definition; `start_ms`: the start of the window, in ms since the
    epoch; `end_ms`: the end of the window; by default there is none; `with_arm_bounds`: whether
    both arms have bounds, too.
    """
    return CompareQuery.of_options(
        definition.where,
        definition.against,
        start=start_ms / 1000,
        end=None if end_ms is None else end_ms / 1000,
        beta=definition.beta,
        bound="anytime",
        weights=DEFAULT_POLICY,
        weights_fixed=True,
        categories=definition.categories,
        of=definition.of,
        split=definition.split,
        other=definition.other,
        independent=definition.independent,
        below=definition.below,
        each=with_arm_bounds,
    )


class ComparisonRun(Run[ComparisonDefinition, StoredComparison]):
    """A run of a living comparison over the final panes of its metrics.

    Attributes
    ----------
    metrics : tuple of LocalMetric
        The metrics of both arms.
    next_ms : int
        The start of the next pane, in ms since the epoch.
    sums : tuple of ndarray of int64
        The sums of both arms, from the start up to the next pane.
    incomplete : int
        The number of panes with reports that are in no table of slices: the tables had expired, or
        the attribute was not declared yet.
    history : list of Look
        The comparison at the ends of panes: at most :data:`MAX_LOOKS` looks, the oldest first.
    """

    kind, noun, state_class = "comparison", "a comparison", StoredComparison
    published = "info", "comparison decided"

    def __init__(
        self,
        reader: MetricReader,
        definition: ComparisonDefinition,
        stored: StoredComparison | None = None,
    ) -> None:
        super().__init__(reader, definition)
        self.metrics = arm_metrics(reader, definition)
        self._step_ms = step_ms(*self.metrics)
        self.next_ms, self.incomplete, self._stride = definition.start_ms, 0, 1
        self.sums: tuple[Counts, Counts] = self.metrics[0].zero(), self.metrics[1].zero()
        self.history: list[Look] = []
        self.decided: list[ComparisonDecided] = []
        if stored is not None:
            self._restore(stored)

    @property
    def position(self) -> object:
        """A value that changes whenever the run's state does."""
        return self.next_ms

    @property
    def has_begun(self) -> bool:
        """Whether a pane was processed."""
        return self.next_ms > self.definition.start_ms

    def event_key(self, data: ComparisonDecided) -> str:
        """Return the key of the event of a decision, which may be about a single category."""
        return self.name if data.category is UNSET else f"{self.name}/{data.category}"

    def due(
        self, overview: TopicProgress, closed: Mapping[str, int]
    ) -> Iterator[list[ComparisonDecided]]:
        """Process the next final panes, and yield the new decisions of each pane."""
        closed_ms = self._closed_by_all(closed)
        while (end_ms := self.next_ms + self._step_ms) <= closed_ms:
            arms = self.read(overview, end_ms)
            metric_windows = [
                self._metric_window(overview, window, end_ms) for window in arms.windows
            ]
            if any(window.status == "provisional" for window in (*arms.windows, *metric_windows)):
                return
            previous_sums = self.sums
            self.add(arms)
            self.incomplete += not all(map(_is_complete, metric_windows))
            self.next_ms = end_ms
            decisions = []
            if any((old != new).any() for old, new in zip(previous_sums, self.sums, strict=True)):
                decisions = self._compare_sums(arms)
            yield decisions

    def is_behind(self, closed: Mapping[str, int]) -> bool:
        """Return whether final panes are still to be processed; `closed`: see :meth:`due`."""
        return self.next_ms + self._step_ms <= self._closed_by_all(closed)

    def _closed_by_all(self, closed: Mapping[str, int]) -> int:
        return min(closed.get(metric.name, 0) for metric in self.metrics)

    def read(self, overview: TopicProgress, end_ms: int | None = None) -> Arms:
        """Return both arms from the next pane on: up to `end_ms` if it is given, or up to now."""
        query, are_final = query_of(self.definition, self.next_ms, end_ms), end_ms is not None
        read = functools.partial(self.reader.windows, overview=overview, are_final=are_final)
        return read_arms(read, self.definition.metric, query)

    def _metric_window(self, overview: TopicProgress, window: Window, end_ms: int) -> Window:
        """Return an arm's window; if its slices may be empty or expired, the metric's window."""
        if window.status != "final" or window.grouping is None or window.coverage is not None:
            return window
        query = Query(self.next_ms / 1000, end_ms / 1000)
        return self.reader.read_final(overview, window.metric.name, query)

    def add(self, arms: Arms) -> None:
        """Add the sums of both arms to those since the start."""
        self.sums = self.sums[0] + arms.sums[0], self.sums[1] + arms.sums[1]

    def compare(self, arms: Arms, *, with_arm_bounds: bool = False) -> Compared:
        """Compare the sums since the start; `arms` gives the windows and slices."""
        start_ms = self.definition.start_ms
        window_a, window_b = (
            dataclasses.replace(window, start_ms=start_ms, end_ms=None) for window in arms.windows
        )
        query = query_of(self.definition, start_ms, with_arm_bounds=with_arm_bounds)
        return compared(Arms((window_a, window_b), self.sums, arms.where), query)

    def may_have_expired(self, start_ms: int, reached_ms: int) -> bool:
        """Return whether the pane that contains `start_ms` may have expired at `reached_ms`."""
        retentions = [metric.by_retention_ms for metric in self.metrics]
        end_ms = start_ms + self._step_ms - (start_ms - self.definition.start_ms) % self._step_ms
        age_ms = reached_ms - end_ms
        return any(retention is not None and age_ms > retention for retention in retentions)

    def stored(self) -> StoredComparison:
        """Return the state of the run in its stored form."""
        sums_a, sums_b = (sums.astype("<i8").tobytes() for sums in self.sums)
        return StoredComparison(
            next_ms=self.next_ms,
            sums=(sums_a, sums_b),
            incomplete=self.incomplete,
            stride=self._stride,
            history=self.history,
            decided=self.decided,
        )

    def _restore(self, stored_run: StoredComparison) -> None:
        """Resume a stored state; begin anew if it does not fit this comparison."""
        panes, remainder = divmod(stored_run.next_ms - self.next_ms, self._step_ms)
        sizes = [len(sums) for sums in stored_run.sums]
        is_of_size = sizes == [sums.nbytes for sums in self.sums]
        if remainder or panes < 0 or stored_run.stride < 1 or not is_of_size:
            log.warning("a comparison starts again", name=self.name)
            return
        sums_a, sums_b = (np.frombuffer(data, "<i8").astype(np.int64) for data in stored_run.sums)
        self.sums = sums_a.reshape(self.sums[0].shape), sums_b.reshape(self.sums[1].shape)
        self.next_ms, self.incomplete = stored_run.next_ms, stored_run.incomplete
        self._stride = stored_run.stride
        self.history, self.decided = [*stored_run.history], [*stored_run.decided]

    def _compare_sums(self, arms: Arms) -> list[ComparisonDecided]:
        """Compare the sums, and return the new decisions."""
        a, b = (dataclasses.replace(window, status="provisional") for window in arms.windows)
        compared_sums = self.compare(Arms((a, b), self.sums, arms.where))
        if compared_sums.comparison is None:
            return []
        at = iso(self.next_ms)
        self._add_to_history(compared_sums, at)
        labels = compared_sums.comparison.labels
        decided_categories = {decision.category for decision in self.decided}
        decisions = []
        for index, p_value in enumerate(number_list(compared_sums.p_value)):
            category = labels[index] if labels else UNSET
            if p_value <= self.definition.beta and category not in decided_categories:
                decisions.append(
                    decided(self.definition, compared_sums, index, at, self.incomplete)
                )
        self.decided += decisions
        return decisions

    def _add_to_history(self, compared_sums: Compared, at: str) -> None:
        """Add a look to the history if its pane is due; of too many looks, keep every second."""
        if self._pane_number(at) % self._stride:
            return
        look = Look(
            at=at,
            value=plain(compared_sums.value),
            lower=plain(compared_sums.lower),
            upper=plain(compared_sums.upper),
            reports=(compared_sums.a.estimate.reports, compared_sums.b.estimate.reports),
        )
        self.history.append(look)
        numbers = 3 * np.size(compared_sums.value)
        if len(self.history) > max(2, min(MAX_LOOKS, MAX_HISTORY_NUMBERS // numbers)):
            self._stride *= 2
            history, stride = self.history, self._stride
            self.history = [look for look in history if not self._pane_number(look.at) % stride]

    def _pane_number(self, at: str) -> int:
        """Return the number of panes from the start to a moment."""
        return round(from_iso(at) * 1000 - self.definition.start_ms) // self._step_ms


def arm_metrics(
    reader: MetricReader, definition: ComparisonDefinition
) -> tuple[LocalMetric, LocalMetric]:
    """Return the metrics of both arms."""
    a, b = (LocalMetric.require(reader.metric(name)) for name in definition.metric_names)
    return a, b


def _is_complete(window: Window) -> bool:
    """Return whether the sums of a window contain all of its reports."""
    return window.status != "expired" and window.coverage in {None, 1}


def decided(
    definition: ComparisonDefinition, compared: Compared, index: int, at: str, incomplete: int
) -> ComparisonDecided:
    """Return the event data of a decision at the end of a pane.

    `definition`: the definition of the comparison; `compared`: the comparison, whose arms have
    enough reports; `index`: the index of the decided category or coordinate; `at`: the pane's end;
    `incomplete`: the number of panes with reports that were in no table of slices.
    """
    answer, labels = comparison_answer(compared), compared.labels
    facts: dict[str, Any] = {name: getattr(answer, name) for name in SHARED_FIELDS}
    for name in ("value", "lower", "upper", "p_value"):
        facts[name] = plain(number_list(getattr(compared, name))[index])
    for name, arm in (("a", compared.a), ("b", compared.b)):
        value = plain(number_list(arm.estimate.value)[index])
        arm_facts = {"end": at, "value": value, "lower": UNSET, "upper": UNSET}
        facts[name] = msgspec.structs.replace(getattr(answer, name), **arm_facts)
    return ComparisonDecided(
        comparison=definition.name,
        category=labels[index] if labels else UNSET,
        at=at,
        incomplete=incomplete,
        **facts,
    )
