"""Slicing: groups reports by some attributes into slices, and requires values of others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from aggregator.config.setting_checks import GROUPING_SETTINGS, parse_groupings
from aggregator.config.settings import Settings
from aggregator.errors import SettingsError
from aggregator.reading.query import Query
from estimators import Metric
from estimators.errors import meant
from estimators.metrics.attributes import NO_VALUE, Codes, Slicing

Slice = Mapping[str, str | None]
"""The value of each attribute: "other" if it is not declared, None if devices sent no value."""


@dataclasses.dataclass(frozen=True)
class Grouping:
    """The slices of an answer: one for each combination of values of the attributes in `by`.

    Attributes
    ----------
    slicing : Slicing
        The metric's declared attributes.
    where : mapping of str to int
        For each attribute with a required value, the index of that value.
    """

    slicing: Slicing
    by: tuple[str, ...]
    where: Mapping[str, int]

    @classmethod
    def of(cls, metric: Metric, query: Query) -> Grouping | None:
        """Return the grouping that a query asks for; None if it asks for no slices.

        Raises ValueError if the metric has no such attribute or value.
        """
        if not query.is_sliced:
            return None
        slicing = metric.slicing
        if slicing is None:
            raise ValueError(
                f"metric {metric.name!r} has no slices: name attributes as `by` in its definition"
            )
        for name in (*query.by, *(name for name, _ in query.conditions)):
            if name not in slicing.attributes:
                raise ValueError(f"attribute {name!r}: {meant(name, slicing.attributes)}")
        where = {name: _value_index(slicing, name, value) for name, value in query.conditions}
        return cls(slicing, tuple(query.by), where)

    @property
    def conditions(self) -> Slice:
        """The required values, by attribute."""
        return {name: self.slicing.words(name)[index] for name, index in self.where.items()}

    @property
    def value_counts(self) -> tuple[int, ...]:
        """The number of values of each attribute in `by`."""
        return tuple(len(self.slicing.words(name)) for name in self.by)

    @property
    def size(self) -> int:
        """The number of possible slices, with reports or without."""
        return math.prod(self.value_counts)

    def slice(self, group: int) -> Slice:
        """Return the values of the attributes in `by`, for the slice with the index `group`."""
        indices = np.unravel_index(group, self.value_counts) if self.by else ()
        return {
            name: self.slicing.words(name)[int(index)]
            for name, index in zip(self.by, indices, strict=True)
        }

    def index(self, values: Slice) -> int:
        """Return the index of the slice with these values, by attribute in `by`.

        Raises ValueError if an attribute has no such value.
        """
        group = 0
        for name, count in zip(self.by, self.value_counts, strict=True):
            group = group * count + _value_index(self.slicing, name, values[name])
        return group

    def fits(self, slicing: Slicing) -> bool:
        """Return whether a definition has the same slice panes and values of these attributes."""
        return slicing.pane_ms == self.slicing.pane_ms and all(
            slicing.attributes.get(name) == self.slicing.attributes[name]
            for name in (*self.by, *self.where)
        )

    def groups(self, slicing: Slicing) -> Codes:
        """Return the index of the slice of this grouping to which each slice of `slicing` belongs.

        The index is `size` if an attribute has not the value that is required of it.
        """
        digits = slicing.digits(np.arange(slicing.size))
        group: Codes = np.zeros(slicing.size, dtype=np.int64)
        for name, count in zip(self.by, self.value_counts, strict=True):
            group = group * count + digits[name]
        for name, index in self.where.items():
            group[digits[name] != index] = self.size
        return group

    def order(self, reports: Sequence[int]) -> list[int]:
        """Return the indices of slices with reports: most reports first, `other` and `none` last.

        `reports`: the number of reports of each slice.
        """

        def rank(group: int) -> tuple[int, int]:
            undeclared = sum(
                value not in self.slicing.attributes[name]
                for name, value in self.slice(group).items()
            )
            return undeclared, -reports[group]

        return sorted((group for group, number in enumerate(reports) if number), key=rank)


def slice_name(values: Slice, separator: str = ", ") -> str:
    """Return a slice as text.

    Examples
    --------
    >>> slice_name({"country": "DE", "version": None})
    'country=DE, version=none'
    """
    return separator.join(
        f"{name}={NO_VALUE if value is None else value}" for name, value in values.items()
    )


Groupings = Mapping[str, Sequence[tuple[str, ...]]]
"""The groupings by attributes whose slices are published or exported, by metric."""


def queries(groupings: Groupings, metric: Metric, **options: Any) -> Iterator[Query]:
    """Yield a query for each grouping of a metric whose attributes the metric still has.

    `groupings`, `metric`: the groupings of all metrics, and the metric; `options`: the other fields
    of the queries.
    """
    for by in groupings.get(metric.name, ()):
        if metric.slicing is not None and {*by} <= metric.slicing.attributes.keys():
            yield Query(by=by, **options)


def check_groupings(settings: Settings, metrics: Mapping[str, Metric]) -> None:
    """Raise an error if the settings name slices that the metrics do not have.

    Raises
    ------
    SettingsError
        It names the setting, the value and what was expected.
    """
    for key in GROUPING_SETTINGS:
        section, _, field = key.partition(".")
        texts = getattr(getattr(settings, section), field)
        for text in texts:
            ((name, (by,)),) = parse_groupings([text]).items()
            source = settings.sources.get(key, "default")
            if name not in metrics:
                raise SettingsError(key, text, f"a metric; {meant(name, metrics)}", source)
            try:
                Grouping.of(metrics[name], Query(by=by))
            except ValueError as error:
                raise SettingsError(key, text, f"its attributes; {error}", source) from None


def _value_index(slicing: Slicing, name: str, value: str | None) -> int:
    """Return the index of a value of an attribute; raise ValueError if there is no such value."""
    words = slicing.words(name)
    if value not in words:
        known_values = [NO_VALUE if word is None else word for word in words]
        raise ValueError(f"{name} = {value!r}: {meant(str(value), known_values)}")
    return words.index(value)
