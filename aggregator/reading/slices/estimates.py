"""Answers by attributes of devices: the sums of the slices of a window, and their estimates."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from aggregator.errors import PaneExpired, StateUnreadable
from aggregator.reading.coverage import covers
from aggregator.reading.frames.columns import BY, NUMBER, STATEMENT, WINDOW
from aggregator.reading.frames.estimates import about, by_columns, number_rows
from aggregator.reading.frames.frame import Frame
from aggregator.reading.frames.pictures import Interval, Intervals, Picture, Pictured
from aggregator.reading.grouping import Grouping, Slice
from aggregator.reading.pane_sums import BYTES_AT_ONCE, PaneSums, batched
from aggregator.reading.query import Query
from aggregator.reading.windows import SliceSums, Window
from aggregator.state.definition_history import CountingDefinitions
from aggregator.state.pane_keys import SLICES, SLICES_DAY, PaneKey, metric_key, retention_ms
from aggregator.state.rows import Integers
from aggregator.state.slice_tables import CHUNK_BYTES, decode_rows
from aggregator.storage.pane_index import Total
from aggregator.storage.redis_keys import tag
from aggregator.timestamps import iso
from estimators import Estimate, Metric
from estimators.estimate import Counts
from estimators.metrics.attributes import NO_VALUE, Slicing
from estimators.rounding import certainty


@dataclasses.dataclass(frozen=True)
class SliceEstimate:
    """One slice's reports, and its estimate; None if it has too few reports, or is not read."""

    slice: Slice
    reports: int
    estimate: Estimate | None


@dataclasses.dataclass(frozen=True)
class Slices(Pictured):
    """A metric by attributes of devices, over one window.

    Attributes
    ----------
    window : Window
        What was read.
    query : Query
    slices : tuple of SliceEstimate
        Those with reports, most first; after these, those with a value that is not declared, or
        none.
    simultaneous : int
        Over how many slices the bounds hold together.
    left_out : int
        Slices with reports that are not shown.
    """

    window: Window
    query: Query
    slices: tuple[SliceEstimate, ...]
    simultaneous: int
    left_out: int

    def first(self, count: int) -> Slices:
        """Return so many of the slices at most, and the others as left out."""
        kept = self.slices[:count]
        left_out = self.left_out + len(self.slices) - len(kept)
        return dataclasses.replace(self, slices=kept, left_out=left_out)

    def to_frame(self) -> Frame:
        """Return them as a table: a row for each number of each slice."""
        window, query = self.window, self.query
        labels, _ = window.metric.domain.select(query.categories)
        names = [f"{BY}{name}" for name in query.by]
        fixed = by_columns(query.conditions)
        rows = []
        for one in self.slices:
            numbers: Iterable[tuple[Any, ...]] = (
                (label, None, None, None, None, one.reports, "too_few_reports")
                for label in (labels if window.metric.domain.names else [None])
            )
            if one.estimate is not None:
                numbers = number_rows(window, one.estimate)
            places = (*about(window), *(one.slice[name] for name in query.by), *fixed.values())
            stated = (query.beta, self.bound, query.target, self.covers, self.policy)
            rows += [(*places, *number, *stated, self.coverage) for number in numbers]
        return Frame.of((*WINDOW, *names, *fixed, *NUMBER, *STATEMENT, "coverage"), rows)

    @property
    def picture(self) -> Picture:
        """Their intervals, below each other."""
        metric, by = self.window.metric, [f"{BY}{name}" for name in self.query.by]
        frame = self.to_frame()
        labels = [
            " · ".join(NO_VALUE if word is None else word for word in words if word != "")
            for words in zip(*(frame[name] for name in by), _blank(frame["label"]), strict=True)
        ]
        columns = ([math.nan if x is None else x for x in frame[n]] for n in NUMBER[1:4])
        rows = tuple(Interval(*row) for row in zip(labels, *columns, strict=True))
        begin, end = iso(self.window.start_ms) or "the first report", iso(self.window.end_ms)
        facts = (
            f"{self.status.replace('_', ' ')}; from {begin} to {end or 'now'}",
            f"{certainty(self.query.beta)} {self.bound} bounds, {self.query.target}; "
            f"covers {self.covers}",
        )
        title = f"{metric.name}: {metric.description or metric.kind}"
        return Intervals(title, facts, rows, metric.unit)

    @property
    def bound(self) -> str:
        """The bound that holds."""
        return self.window.bound if self.query.bound == "auto" else self.query.bound

    @property
    def policy(self) -> str:
        """The weights."""
        return self.window.policy if self.query.weights is None else self.query.weights

    @property
    def covers(self) -> str:
        """What the bounds cover together; empty if there are none."""
        known = [one.estimate for one in self.slices if one.estimate is not None]
        if not known:
            return ""
        together = f", for {self.simultaneous} slices together" if self.simultaneous > 1 else ""
        return covers(self.window, known[0], self.query) + together

    @property
    def status(self) -> str:
        """The status of the window."""
        return self.window.status

    @property
    def coverage(self) -> float | None:
        """The share of the window's reports that is in tables of slices; None: not known."""
        assert isinstance(self.window.content, SliceSums)  # noqa: S101
        return self.window.content.coverage


def _blank(labels: Iterable[str | None]) -> Iterator[str]:
    return ("" if label is None else label for label in labels)


class SliceTables:
    """Reads the tables of a metric's slices.

    Parameters
    ----------
    sums : PaneSums
    metric : Metric
    """

    def __init__(self, sums: PaneSums, metric: Metric) -> None:
        self._sums, self._store, self._metric = sums, sums.store, metric
        self._key = metric_key(metric.name, metric.revision)

    def read(self, window: Window, grouping: Grouping) -> SliceSums:
        """Return the sums of the slices of a window.

        Raises
        ------
        StateUnreadable
            If something that was counted is not there, and does not expire.
        """
        tables = self._tables(window)
        cells = self._metric.zero().size
        found, counted = np.zeros((grouping.size, cells), dtype=np.int64), 0
        for name, statistics in tables.items():
            slicing = self._slicing(name)
            if slicing is not None and grouping.fits(slicing):
                found += grouping.group(slicing, statistics[: slicing.size])
                counted += int(self._metric.counts(statistics.sum(axis=0)).sum())
        try:
            whole = int(self._metric.counts(self._sums.of_window(window)).sum())
        except PaneExpired:
            return SliceSums(found, None)
        return SliceSums(found, min(1.0, counted / whole) if whole else None)

    def _tables(self, window: Window) -> dict[str, Counts]:
        """Return the sums of all slices by code, for each meaning of the codes."""
        keys = self._store.panes.slice_keys(self._key, [*window.watermarks])
        totals: dict[str, Counts] = {}
        for key in keys:
            name = _name(key)
            if name not in totals:
                slicing = self._slicing(name)
                size = 0 if slicing is None else slicing.size
                totals[name] = np.zeros((size, self._metric.zero().size), dtype=np.int64)
        keys = [key for key in keys if len(totals[_name(key)])]  # nobody knows the codes of others
        size = max(CHUNK_BYTES, self._metric.zero().nbytes)
        if window.is_running_total:
            partitions = [*window.watermarks]
            for group in batched(keys, 1 + BYTES_AT_ONCE // (size * max(1, len(partitions)))):
                wanted = [Total(key, partitions, size, self._merged) for key in group]
                for key, parts in zip(group, self._store.panes.totals(wanted), strict=True):
                    for part in parts:
                        self._add(totals[_name(key)], *part)
            return totals
        for key in keys:
            places = self._sums.find(window, (SLICES_DAY, SLICES), key)
            for some in batched(places, 1 + BYTES_AT_ONCE // size):
                stored = self._store.panes.statistics(some)
                for (number, pane), found in zip(some, stored, strict=True):
                    place = f"{tag(self._store.topic, number)}:{pane}"
                    if found is not None:
                        self._add(totals[_name(key)], *self._merged([(place, found)]))
                    elif not self._may_expire(number, pane):
                        raise StateUnreadable(place, "nothing", "slices that were counted")
        return totals

    def _may_expire(self, number: int, pane: PaneKey) -> bool:
        if retention_ms(pane.grain, self._metric) is not None:
            return True
        return self._store.panes.has_expiring(number, pane.metric)

    def _merged(self, values: Iterable[tuple[str, bytes]]) -> tuple[str, Integers, Counts]:
        """Return the sums of a chunk's slices, after its last place and their codes."""
        cells, place = self._metric.zero().size, ""
        codes, sums = np.zeros(0, dtype=np.int64), np.zeros((0, cells), dtype=np.int64)
        for place, value in values:
            try:
                more, rows = decode_rows(value, cells)
            except ValueError as error:
                raise self._unreadable(place, error) from None
            known, codes = len(codes), np.concatenate([codes, more])
            codes, where = np.unique(codes, return_inverse=True)
            added = np.zeros((len(codes), cells), dtype=np.int64)
            added[where[:known]] += sums
            added[where[known:]] += rows
            sums = added
        return place, codes, sums

    def _add(self, total: Counts, place: str, codes: Integers, rows: Counts) -> None:
        try:
            total[codes] += rows
        except IndexError as error:
            raise self._unreadable(place, error) from None

    def _unreadable(self, place: str, error: Exception) -> StateUnreadable:
        return StateUnreadable(place, str(error), f"slices of {self._metric.name!r}")

    def _slicing(self, name: str) -> Slicing | None:
        """Return what the codes of a table mean; None if no definition of it is known."""
        own = self._metric.slicing
        if own is not None and own.key == name:
            return own
        return self._earlier.get(name)

    @functools.cached_property
    def _earlier(self) -> dict[str, Slicing]:
        """The slicings of the definitions that were ever in force."""
        found: dict[str, Slicing] = {}
        for document in self._store.registry.definitions().values():
            try:
                metric = CountingDefinitions.decode(document).metrics.get(self._metric.name)
            except ValueError:
                continue
            if metric is not None and metric.slicing is not None:
                found[metric.slicing.key] = metric.slicing
        return found


def _name(key: str) -> str:
    """Return what the codes of a table mean, from a chunk's key."""
    return key.partition("~")[2].partition(".")[0]
