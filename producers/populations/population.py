"""The values and event times of simulated devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from estimators.metrics.attributes import OTHER_VALUE, Slicing
from estimators.metrics.metric import Metric

Column = NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Population:
    """Devices in order of event time; row i of each column belongs to device i.

    Parameters
    ----------
    time_ms : ndarray of int64, shape (n,)
        Event times, ascending, in milliseconds since the epoch.
    columns : mapping of str to ndarray, shape (n,); (n, d) for vectors
        By metric name: numbers or vectors (NaN: nothing to report), signed indices of categories
        (-1: nothing to report), or strings of an open vocabulary ("": nothing).
    skipped : int
        How many rows of the source were left out because they have no event time (or no value).
    notes : tuple of str
        Remarks on how the source was read, for display.
    attributes : mapping of str to ndarray of object, shape (n,)
        Public attributes of the devices, by name; "" if a device does not send one.
    """

    time_ms: NDArray[np.int64]
    columns: Mapping[str, Column]
    skipped: int = 0
    notes: tuple[str, ...] = ()
    attributes: Mapping[str, Column] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ValueError if columns differ in length, or times are not ascending.

        >>> Population(np.array([2, 1]), {})
        Traceback (most recent call last):
        ...
        ValueError: event times that are not ascending: use Population.by_time
        """
        for name, column in (*self.columns.items(), *self.attributes.items()):
            if len(column) != len(self.time_ms):
                raise ValueError(
                    f"column {name!r} has {len(column)} rows: expected {len(self.time_ms)}, one "
                    "for each event time"
                )
        if (self.time_ms[1:] < self.time_ms[:-1]).any():
            raise ValueError("event times that are not ascending: use Population.by_time")

    @classmethod
    def by_time(
        cls,
        time_ms: NDArray[np.int64],
        columns: Mapping[str, Column],
        skipped: int = 0,
        attributes: Mapping[str, Column] | None = None,
    ) -> Self:
        """Return the population with its rows sorted by event time.

        `time_ms`, `columns`, `skipped`, `attributes`: as for :class:`Population`, with rows in any
        order.

        Examples
        --------
        >>> population = Population.by_time(np.array([20, 10]), {"x": np.array([2.0, np.nan])})
        >>> population.columns["x"], population.has_value("x")
        (array([nan,  2.]), array([False,  True]))
        """
        rows = np.argsort(time_ms, kind="stable")
        attributes = _rows_of(attributes or {}, rows)
        return cls(time_ms[rows], _rows_of(columns, rows), skipped, attributes=attributes)

    def select(self, rows: slice | NDArray[np.intp]) -> Self:
        """Return the devices in these rows."""
        return dataclasses.replace(
            self,
            time_ms=self.time_ms[rows],
            columns=_rows_of(self.columns, rows),
            attributes=_rows_of(self.attributes, rows),
        )

    def above(self, name: str, limit: float) -> Self:
        """Return the population with 1 for numbers of a column above a limit, and 0 for the others.

        Raises ValueError if the column has no numbers.
        """
        column = self.columns[name]
        if column.dtype != np.float64 or column.ndim > 1:
            raise ValueError(f"above {limit:g}: expected numbers, as of a mean, in {name!r}")
        shares = np.where(np.isnan(column), column, column > limit)
        return dataclasses.replace(self, columns={**self.columns, name: shares})

    @classmethod
    def merged(cls, first: Self, second: Self) -> Self:
        """Return the devices of two populations with disjoint metrics.

        Devices of `second` have no attributes.

        Examples
        --------
        >>> first = Population(np.array([1, 3]), {"x": np.array([2.0, 4.0])})
        >>> merged = Population.merged(first, Population(np.array([2]), {"c": np.array([0])}))
        >>> merged.columns["x"], merged.columns["c"]
        (array([ 2., nan,  4.]), array([-1,  0, -1]))
        """
        columns = {name: _extended(c, 0, len(second)) for name, c in first.columns.items()}
        columns |= {name: _extended(c, len(first), 0) for name, c in second.columns.items()}
        return cls.by_time(
            np.concatenate([first.time_ms, second.time_ms]),
            columns,
            first.skipped + second.skipped,
            {name: _extended(c, 0, len(second)) for name, c in first.attributes.items()},
        )

    def __len__(self) -> int:
        """Return the number of devices."""
        return int(self.time_ms.size)

    @property
    def seconds(self) -> float:
        """The event time between the first and the last device, in seconds."""
        return float(self.time_ms[-1] - self.time_ms[0]) / 1000 if len(self) else 0.0

    def has_value(self, name: str) -> NDArray[np.bool_]:
        """Return which devices have a value for a metric, shape (n,)."""
        return has_value(self.columns[name])

    def with_values(self, name: str) -> Population:
        """Return the devices that have a value for a metric; the others count as skipped.

        Examples
        --------
        >>> population = Population(np.arange(3), {"m": np.array([1.0, np.nan, 3.0])}, skipped=4)
        >>> population.with_values("m").time_ms.tolist(), population.with_values("m").skipped
        ([0, 2], 5)
        """
        skipped = self.skipped + self.count_missing(name)
        present = self.select(np.flatnonzero(self.has_value(name)))
        return dataclasses.replace(present, skipped=skipped)

    def count_missing(self, name: str) -> int:
        """Return how many devices have no value for a metric."""
        return len(self) - int(self.has_value(name).sum())

    def count_clipped(self, metric: Metric) -> int:
        """Return the number of values that devices clip to the metric's range or radius.

        Examples
        --------
        >>> from estimators import define
        >>> metric = define(name="m", kind="mean", mechanism="auto", range=(0, 9), levels=[1])
        >>> Population(np.arange(4), {"m": np.array([-1, 5, np.nan, 9.5])}).count_clipped(metric)
        2
        """
        column = self.columns[metric.name]
        if metric.radius is not None:
            return int((np.linalg.norm(column, axis=1) > metric.radius).sum())
        if not metric.domain.of_numbers:
            return 0
        high, low = metric.domain.opposite
        return int(((column < low) | (column > high)).sum())

    def slices(self, slicing: Slicing) -> NDArray[np.int32]:
        """Return the code of each device's slice, shape (n,).

        Examples
        --------
        >>> country = np.array(["FR", "", "IT"], dtype=object)
        >>> population = Population(np.arange(3), {}, attributes={"country": country})
        >>> population.slices(Slicing({"country": ("DE", "FR")}, 3_600_000)).tolist()
        [1, 3, 2]
        """
        codes = []
        for name in slicing.attributes:
            words = slicing.words(name)
            of_word = {word or "": code for code, word in enumerate(words)}
            column = self.attributes.get(name)
            values = [""] * len(self) if column is None else column.tolist()
            other_code = words.index(OTHER_VALUE)
            codes.append(
                np.array([of_word.get(value, other_code) for value in values], dtype=np.int32)
            )
        return np.ravel_multi_index(tuple(codes), slicing.value_counts).astype(np.int32)

    def part(self, begin: int, end: int) -> Population:
        """Return the devices in rows `begin` to `end` - 1, without copying."""
        return self.select(slice(begin, end))

    def starting(self, start_ms: int) -> Population:
        """Return the population with all times shifted, so that the first is `start_ms`."""
        shift = start_ms - self.time_ms[:1]
        return dataclasses.replace(self, time_ms=self.time_ms + shift)


def has_value(column: Column) -> NDArray[np.bool_]:
    """Return which rows of a column have a value, shape (n,)."""
    is_present: NDArray[np.bool_]
    if column.dtype.kind != "f":
        is_present = column >= 0 if column.dtype.kind in "iu" else column != ""
    elif column.ndim == 1:
        is_present = ~np.isnan(column)
    else:
        is_present = np.logical_and.reduce(~np.isnan(column), axis=1)
    return is_present


@dataclasses.dataclass(frozen=True)
class Arrivals:
    """Evenly spaced event times for a source without event times.

    Parameters
    ----------
    start_ms : int
        The first event time, in milliseconds since the epoch.
    per_second : float
        The number of devices per second of event time.
    """

    start_ms: int
    per_second: float = 1000.0

    def __post_init__(self) -> None:
        """Raise ValueError if the rate or the start is not above 0."""
        if not 0 < self.per_second < float("inf"):
            raise ValueError(f"per_second = {self.per_second}: expected a rate above 0")
        if self.start_ms <= 0:
            raise ValueError(f"start_ms = {self.start_ms}: expected milliseconds since the epoch")

    def times(self, count: int) -> NDArray[np.int64]:
        """Return the event times of `count` devices in ms since the epoch, shape (count,)."""
        offsets = np.arange(count) * (1000 / self.per_second)
        return self.start_ms + offsets.astype(np.int64)


def _rows_of(columns: Mapping[str, Column], rows: slice | NDArray[np.intp]) -> dict[str, Column]:
    return {name: column[rows] for name, column in columns.items()}


def _extended(column: Column, leading: int, trailing: int) -> Column:
    """Return a column with rows without a value added at both ends."""
    nothing = {"f": np.nan, "i": -1}.get(column.dtype.kind, "")
    widths = [(leading, trailing), *[(0, 0)] * (column.ndim - 1)]
    return np.pad(column, widths, constant_values=nothing)
