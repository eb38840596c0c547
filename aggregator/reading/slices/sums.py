"""Reads the tables of a metric's slices: the sums of the slices of windows."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from aggregator.errors import StateUnreadable
from aggregator.reading.grouping import Grouping
from aggregator.reading.pane_sums import (
    MAX_READ_BYTES,
    PaneSums,
    ReadPane,
    batched,
    open_panes,
    total_request,
)
from aggregator.reading.window import SliceSums, Window
from aggregator.state.definition_history import CountingDefinitions
from aggregator.state.pane_keys import SLICES, metric_key, width_ms
from aggregator.state.slice_tables import CHUNK_BYTES, Codes, decode_rows
from aggregator.storage.pane_index import Total
from aggregator.storage.parsing import Ask
from estimators import Metric
from estimators.estimate import Counts
from estimators.metrics.attributes import Slicing


class SliceTables:
    """Reads the tables of a metric's slices."""

    def __init__(self, sums: PaneSums, metric: Metric) -> None:
        self._sums, self._store, self._metric = sums, sums.store, metric
        self._key = metric_key(metric.name, metric.revision)

    def read(self, windows: Sequence[Window], grouping: Grouping) -> list[Window]:
        """Return windows with the sums of their slices; none is final if Redis lost data meanwhile.

        `windows`: a window, or ascending steps of the same length; `grouping`: their grouping.
        Raises StateUnreadable if a table is missing that was counted and does not expire.
        """

        def read(keys: list[str], ask: Ask) -> tuple[Counts, list[Counts | None], bool]:
            groups = {
                key: grouping.groups(slicing)
                for key in keys
                if (slicing := self._slicing(_name(key))) and grouping.fits(slicing)
            }
            sums = np.zeros((len(windows), grouping.size + 1, cells), dtype=np.int64)
            read_all = self._read_totals if windows[0].is_running_total else self._read_panes
            return sums, *read_all(windows, groups, sums, ask)

        partitions, cells = [*windows[0].watermarks], self._metric.zero().size
        all_sums, totals, is_same = self._store.panes.read_slices(self._key, partitions, read)
        read_windows = []
        for window, sums, total in zip(windows, all_sums, totals, strict=True):
            counted = int(self._metric.counts(sums.sum(axis=0)).sum())
            reports = 0 if total is None else int(self._metric.counts(total).sum())
            content = SliceSums(sums[:-1], min(1.0, counted / reports) if reports else None)
            read_windows.append(window.with_content(content, is_same=is_same))
        return read_windows

    def _read_totals(
        self, windows: Sequence[Window], groups: Mapping[str, Codes], sums: Counts, ask: Ask
    ) -> tuple[list[Counts | None], bool]:
        """Add running totals of chunks to the sums; return the running total of the metric."""
        partitions, metric = [*windows[0].watermarks], self._metric
        size, width = max(CHUNK_BYTES, metric.zero().nbytes), width_ms(SLICES, metric)
        wanted: list[Total[Any]] = [
            Total(key, partitions, size, self._merged, width, open_panes(width, metric))
            for key in groups
        ]
        wanted.append(total_request(metric, self._key, partitions))
        total = metric.zero()
        for group in batched(wanted, 1 + MAX_READ_BYTES // (size * max(1, len(partitions)))):
            for request, parts in zip(group, self._store.panes.totals(group, ask), strict=True):
                for part in parts:
                    if request.metric == self._key:
                        total += part
                    else:
                        self._add(sums[0], groups[request.metric], *part)
        return [total], True

    def _read_panes(
        self, windows: Sequence[Window], groups: Mapping[str, Codes], sums: Counts, ask: Ask
    ) -> tuple[list[Counts | None], bool]:
        """Add chunks of windows' panes to the sums; return the sums of the metric's panes."""
        zero = self._metric.zero()
        totals: list[Counts | None] = [zero] * len(windows)
        add_to_totals = self._sums.adder(self._metric, totals)

        def add(panes: Sequence[ReadPane]) -> None:
            add_to_totals([pane for pane in panes if pane[1][1].chunk is None])
            for index, (number, key), (redis_key, value) in panes:
                if key.chunk is None:
                    continue
                if value is not None:
                    self._add(sums[index], groups[key.metric], *self._merged([(redis_key, value)]))
                elif not self._store.panes.may_expire(number, key, self._metric):
                    raise StateUnreadable(redis_key, "nothing", "slices that were counted")

        max_panes = 1 + MAX_READ_BYTES // max(CHUNK_BYTES, zero.nbytes)
        return totals, self._sums.read_each(windows, max_panes, add, [*groups], ask)

    def _merged(self, values: Iterable[tuple[str, bytes]]) -> tuple[str, Codes, Counts]:
        """Add up a chunk; return its last Redis key, and the codes and the sums of its slices."""
        cells, redis_key = self._metric.zero().size, ""
        codes, sums = np.zeros(0, dtype=np.int64), np.zeros((0, cells), dtype=np.int64)
        for redis_key, value in values:
            try:
                chunk_codes, rows = decode_rows(value, cells)
            except ValueError as error:
                raise self._unreadable(redis_key, error) from None
            known_count, codes = len(codes), np.concatenate([codes, chunk_codes])
            codes, row_indices = np.unique(codes, return_inverse=True)
            merged_sums = np.zeros((len(codes), cells), dtype=np.int64)
            merged_sums[row_indices[:known_count]] += sums
            merged_sums[row_indices[known_count:]] += rows
            sums = merged_sums
        return redis_key, codes, sums

    def _add(self, sums: Counts, groups: Codes, redis_key: str, codes: Codes, rows: Counts) -> None:
        """Add a chunk's rows to the sums of their groups."""
        try:
            np.add.at(sums, groups[codes], rows)
        except IndexError as error:
            raise self._unreadable(redis_key, error) from None

    def _unreadable(self, redis_key: str, error: Exception) -> StateUnreadable:
        return StateUnreadable(redis_key, str(error), f"slices of {self._metric.name!r}")

    def _slicing(self, name: str) -> Slicing | None:
        """Return the slicing that gives a table's codes their meaning; None if it is unknown."""
        current_slicing = self._metric.slicing
        if current_slicing is not None and current_slicing.key == name:
            return current_slicing
        return self._earlier_slicings.get(name)

    @functools.cached_property
    def _earlier_slicings(self) -> dict[str, Slicing]:
        """The slicings of all definitions that were ever in force, by name."""
        slicings: dict[str, Slicing] = {}
        for document in self._store.registry.definitions().values():
            try:
                metric = CountingDefinitions.decode(document).metrics.get(self._metric.name)
            except ValueError:
                continue
            if metric is not None and metric.slicing is not None:
                slicings[metric.slicing.key] = metric.slicing
        return slicings


def _name(key: str) -> str:
    """Return the name of a table's slicing from a chunk's key."""
    return key.partition("~")[2].partition(".")[0]
