"""Takes the final panes of a living comparison in order, and says when it is decided.

After each pane the sums from the start on are compared with bounds that hold at all times. So the
panes at which it looks, and with them its decision, are a function of the log.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import structlog
from msgspec import UNSET

from aggregator.features.comparisons.arms import Arms, compared, read_arms
from aggregator.features.comparisons.compared import Compared, CompareQuery
from aggregator.features.comparisons.decisions import decided
from aggregator.features.comparisons.definitions import ComparisonDefinition, step_ms
from aggregator.features.comparisons.stored import (
    ComparisonDecided,
    Look,
    StoredComparison,
    identity,
    read_state,
)
from aggregator.reading.query import Query
from aggregator.reading.serialization import plain
from aggregator.reading.windows import Window
from aggregator.state.watermark import NO_TIME
from aggregator.storage.progress import TopicProgress
from aggregator.storage.store import Store
from aggregator.timestamps import from_iso, iso
from estimators import LocalMetric, Metric
from estimators.estimate import Counts
from estimators.weights import DEFAULT_POLICY

MOST_LOOKS, MOST_NUMBERS = 256, 8_000
"""Looks that are kept, and numbers in all of them together."""

log = structlog.get_logger("dither.comparisons")


class Source(Protocol):
    """What a comparison needs of a reader."""

    store: Store

    def metric(self, name: str) -> Metric:
        """Return a metric by name."""

    def describe(self, overview: TopicProgress, name: str, query: Query = ...) -> Window:
        """Return a window that is not read.

        Parameters
        ----------
        overview : TopicProgress
            As of now.
        name : str
            Of the metric.
        query : Query, optional
            Left out: all that is counted.
        """

    def read(self, window: Window) -> Window:
        """Return a window with its content."""


def query_of(
    definition: ComparisonDefinition,
    start_ms: int,
    end_ms: int | None = None,
    *,
    each: bool = False,
) -> CompareQuery:
    """Return what a definition asks of a stretch of event time.

    The weights are not those in force, which may change: bounds at all times need one rule.

    Parameters
    ----------
    definition : ComparisonDefinition
    start_ms : int
    end_ms : int, optional
        Open if left out.
    each : bool
        See :class:`CompareQuery`.
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
        each=each,
    )


class ComparisonRun:
    """A living comparison on its way through the final panes of its metrics.

    Parameters
    ----------
    source : Source
    definition : ComparisonDefinition
    stored : StoredComparison, optional
        Where it goes on; by default at the start.

    Attributes
    ----------
    metrics : tuple of LocalMetric
        Of both arms.
    name : str
        Its :func:`aggregator.features.comparisons.stored.identity`.
    next_ms : int
        Where the next pane begins.
    sums : tuple of ndarray of int64
        Of both arms, from the start up to the next pane.
    incomplete : int
        Panes some of whose reports were in no table of slices: these had expired, or the attribute
        was not declared yet.
    history : list of Look
        How it stood, at most :data:`MOST_LOOKS` times.
    decided : list of ComparisonDecided
    """

    def __init__(
        self,
        source: Source,
        definition: ComparisonDefinition,
        stored: StoredComparison | None = None,
    ) -> None:
        self.source, self.definition = source, definition
        self.metrics = arm_metrics(source, definition)
        self.name = identity(definition, *self.metrics)
        self._step_ms = step_ms(*self.metrics)
        self.next_ms, self.incomplete, self._stride = definition.start_ms, 0, 1
        self.sums: tuple[Counts, Counts] = self.metrics[0].zero(), self.metrics[1].zero()
        self.history: list[Look] = []
        self.decided: list[ComparisonDecided] = []
        if stored is not None:
            self._restore(stored)

    @classmethod
    def resumed(cls, source: Source, definition: ComparisonDefinition) -> ComparisonRun:
        """Return a run that goes on from the state in Redis, if there is one."""
        name = identity(definition, *arm_metrics(source, definition))
        return cls(source, definition, read_state(source.store, name))

    @property
    def position(self) -> object:
        """Changes whenever its state does."""
        return self.next_ms

    @property
    def has_begun(self) -> bool:
        """Whether it has looked at a pane."""
        return self.next_ms > self.definition.start_ms

    def advance(
        self, overview: TopicProgress, closed: Mapping[str, int]
    ) -> Iterator[list[ComparisonDecided]]:
        """Take the panes that are final and were not taken, and yield what each of them decides.

        Stops where the state changed while it was read; the next call goes on from there.

        Parameters
        ----------
        overview : TopicProgress
            As of now.
        closed : mapping of str to int
            The event time in ms, by metric, up to which windows are final.
        """
        closed_ms = self._closed(closed)
        while (end_ms := self.next_ms + self._step_ms) <= closed_ms:
            arms = self.read(overview, end_ms)
            whole = [self._whole(overview, window) for window in arms.windows]
            if any(one.status == "provisional" for one in (*arms.windows, *whole)):
                return
            before = self.sums
            self.add(arms)
            self.incomplete += not all(map(_is_complete, whole))
            self.next_ms = end_ms
            found = []
            if any((one != two).any() for one, two in zip(before, self.sums, strict=True)):
                found = self._look(arms.windows, arms)
            yield found

    def is_behind(self, closed: Mapping[str, int]) -> bool:
        """Return whether there are final panes that were not taken; see :meth:`advance`."""
        return self.next_ms + self._step_ms <= self._closed(closed)

    def _closed(self, closed: Mapping[str, int]) -> int:
        return min(closed.get(metric.name, 0) for metric in self.metrics)

    def read(self, overview: TopicProgress, end_ms: int | None = None) -> Arms:
        """Return what both arms have from the next pane on.

        Parameters
        ----------
        overview : TopicProgress
        end_ms : int, optional
            Up to there it is final. Left out: all that is counted.
        """

        def read(name: str, query: Query) -> Window:
            return self._read(overview, name, query)

        query = query_of(self.definition, self.next_ms, end_ms)
        return read_arms(read, self.definition.metric, query)

    def _read(self, overview: TopicProgress, name: str, query: Query) -> Window:
        """Read a window; one with an end is final."""
        window = self.source.describe(overview, name, query)
        if query.end is not None:
            window = dataclasses.replace(window, status="final", arrived_ms=NO_TIME)
        return self.source.read(window)

    def _whole(self, overview: TopicProgress, window: Window) -> Window:
        """Return an arm's window; that of its metric if the slices may be empty, or have expired.

        Parameters
        ----------
        overview : TopicProgress
        window : Window
            As it was read.
        """
        if window.status != "final" or window.grouping is None or window.coverage is not None:
            return window
        assert window.start_ms is not None  # noqa: S101
        assert window.end_ms is not None  # noqa: S101
        query = Query(window.start_ms / 1000, window.end_ms / 1000)
        return self._read(overview, window.metric.name, query)

    def add(self, arms: Arms) -> None:
        """Add the reports of both arms to the sums."""
        self.sums = self.sums[0] + arms.sums[0], self.sums[1] + arms.sums[1]

    def compare(self, arms: Arms, *, each: bool = False) -> Compared:
        """Compare the sums from the start on.

        Parameters
        ----------
        arms : Arms
            As they were read last.
        each : bool
            See :class:`CompareQuery`.
        """
        start_ms = self.definition.start_ms
        one, two = (
            dataclasses.replace(window, start_ms=start_ms, end_ms=None) for window in arms.windows
        )
        query = query_of(self.definition, start_ms, each=each)
        return compared(Arms((one, two), self.sums, arms.where), query)

    def may_have_expired(self, start_ms: int, reached_ms: int) -> bool:
        """Return whether some of what was counted in a stretch may have expired.

        Parameters
        ----------
        start_ms : int
            A moment in it.
        reached_ms : int
            The event time of now.
        """
        kept = [metric.by_retention_ms for metric in self.metrics]
        end_ms = start_ms + self._step_ms - (start_ms - self.definition.start_ms) % self._step_ms
        return any(one is not None and end_ms < reached_ms - one for one in kept)

    def stored(self) -> StoredComparison:
        """Return where the run stands."""
        one, two = (sums.astype("<i8").tobytes() for sums in self.sums)
        return StoredComparison(
            next_ms=self.next_ms,
            sums=(one, two),
            incomplete=self.incomplete,
            stride=self._stride,
            history=self.history,
            decided=self.decided,
        )

    def _restore(self, stored: StoredComparison) -> None:
        """Go on from a state; from the start, if it is not one of this comparison."""
        panes, rest = divmod(stored.next_ms - self.next_ms, self._step_ms)
        sizes = [len(one) for one in stored.sums]
        if rest or panes < 0 or stored.stride < 1 or sizes != [one.nbytes for one in self.sums]:
            log.warning("a comparison begins anew", name=self.name)
            return
        one, two = (np.frombuffer(one, "<i8").astype(np.int64) for one in stored.sums)
        self.sums = one.reshape(self.sums[0].shape), two.reshape(self.sums[1].shape)
        self.next_ms, self.incomplete = stored.next_ms, stored.incomplete
        self._stride = stored.stride
        self.history, self.decided = [*stored.history], [*stored.decided]

    def _look(self, windows: tuple[Window, Window], arms: Arms) -> list[ComparisonDecided]:
        """Compare, and return what is decided now for the first time."""
        provisional = tuple(dataclasses.replace(one, status="provisional") for one in windows)
        found = self.compare(Arms((provisional[0], provisional[1]), self.sums, arms.where))
        if found.comparison is None:
            return []
        at = _moment(self.next_ms)
        self._remember(found, at)
        labels = found.comparison.labels
        known = {one.category for one in self.decided}
        new = []
        for place, p_value in enumerate(np.atleast_1d(np.asarray(found.p_value)).tolist()):
            category = labels[place] if labels else UNSET
            if p_value <= self.definition.beta and category not in known:
                new.append(decided(self.definition, found, place, at, self.incomplete))
        self.decided += new
        return new

    def _remember(self, found: Compared, at: str) -> None:
        """Keep a look, and every second one of those before if there are too many."""
        if self._place(at) % self._stride:
            return
        look = Look(
            at=at,
            value=plain(found.value),
            lower=plain(found.lower),
            upper=plain(found.upper),
            reports=(found.a.estimate.reports, found.b.estimate.reports),
        )
        self.history.append(look)
        numbers = 3 * np.size(found.value)
        if len(self.history) > max(2, min(MOST_LOOKS, MOST_NUMBERS // numbers)):
            self._stride *= 2
            self.history = [one for one in self.history if not self._place(one.at) % self._stride]

    def _place(self, at: str) -> int:
        """Return how many panes from the start on a moment is."""
        return round(from_iso(at) * 1000 - self.definition.start_ms) // self._step_ms


def arm_metrics(
    source: Source, definition: ComparisonDefinition
) -> tuple[LocalMetric, LocalMetric]:
    """Return the metrics of both arms."""
    one = LocalMetric.require(source.metric(definition.metric))
    if definition.other is None:
        return one, one
    return one, LocalMetric.require(source.metric(definition.other))


def _is_complete(window: Window) -> bool:
    """Return whether all reports of a window are in what was read of it."""
    return window.status != "expired" and window.coverage in {None, 1}


def _moment(milliseconds: int) -> str:
    found = iso(milliseconds)
    assert found is not None  # noqa: S101
    return found
