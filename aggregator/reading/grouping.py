"""Selects slices: by the values of some attributes, with fixed values of others."""

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
from estimators.estimate import Counts
from estimators.metrics.attributes import NO_VALUE, Codes, Slicing

Slice = Mapping[str, str | None]
"""The values of a slice by attribute: "other" for one that is not declared, None for none."""


@dataclasses.dataclass(frozen=True)
class Grouping:
    """The slices of an answer: one for each combination of values of the attributes in `by`.

    Attributes
    ----------
    slicing : Slicing
        The metric's.
    by : tuple of str
    where : mapping of str to int
        The place of the only value that counts, by attribute.
    """

    slicing: Slicing
    by: tuple[str, ...]
    where: Mapping[str, int]

    @classmethod
    def of(cls, metric: Metric, query: Query) -> Grouping | None:
        """Return the slices that a query asks for; None if it asks for none.

        Raises
        ------
        ValueError
            If the metric does not have them.
        """
        if not query.is_sliced:
            return None
        slicing = metric.slicing
        if slicing is None:
            raise ValueError(
                f"metric {metric.name!r} has no slices: name attributes as `by` in its definition"
            )
        where: dict[str, int] = {}
        for name in (*query.by, *(name for name, _ in query.conditions)):
            if name not in slicing.attributes:
                raise ValueError(f"attribute {name!r}: {meant(name, slicing.attributes)}")
        for name, value in query.conditions:
            where[name] = _place(slicing, name, value)
        return cls(slicing, tuple(query.by), where)

    @property
    def conditions(self) -> Slice:
        """The attributes in `where`, each with its value."""
        return {name: self.slicing.words(name)[place] for name, place in self.where.items()}

    @property
    def places(self) -> tuple[int, ...]:
        """How many values each attribute of `by` has."""
        return tuple(len(self.slicing.words(name)) for name in self.by)

    @property
    def size(self) -> int:
        """How many slices there can be."""
        return math.prod(self.places)

    def slice(self, group: int) -> Slice:
        """Return the values of one of the slices."""
        indices = np.unravel_index(group, self.places) if self.by else ()
        return {
            name: self.slicing.words(name)[int(place)]
            for name, place in zip(self.by, indices, strict=True)
        }

    def index(self, wanted: Slice) -> int:
        """Return which slice has these values of the attributes in `by`.

        Raises
        ------
        ValueError
            If there is no such value.
        """
        group = 0
        for name, places in zip(self.by, self.places, strict=True):
            group = group * places + _place(self.slicing, name, wanted[name])
        return group

    def fits(self, slicing: Slicing) -> bool:
        """Return whether tables of another definition have the same values for what is asked."""
        return slicing.pane_ms == self.slicing.pane_ms and all(
            slicing.attributes.get(name) == self.slicing.attributes[name]
            for name in (*self.by, *self.where)
        )

    def group(self, slicing: Slicing, statistics: Counts) -> Counts:
        """Return the statistics of the slices that are asked for.

        Parameters
        ----------
        slicing : Slicing
            Of the tables.
        statistics : ndarray of int64, shape (slicing.size, cells)
            Their sums by code.

        Returns
        -------
        ndarray of int64, shape (size, cells)
        """
        digits = slicing.digits(np.arange(slicing.size))
        chosen = np.ones(slicing.size, dtype=np.bool_)
        for name, place in self.where.items():
            chosen &= digits[name] == place
        group: Codes = np.zeros(slicing.size, dtype=np.int64)
        for name, places in zip(self.by, self.places, strict=True):
            group = group * places + digits[name]
        found = np.zeros((self.size, statistics.shape[1]), dtype=np.int64)
        np.add.at(found, group[chosen], statistics[chosen])
        return found

    def order(self, reports: Sequence[int]) -> list[int]:
        """Return the slices with reports: most first, those with `other` or `none` values last.

        Parameters
        ----------
        reports : sequence of int
            Of each slice.
        """

        def rank(group: int) -> tuple[int, int]:
            undeclared = sum(
                value not in self.slicing.attributes[name]
                for name, value in self.slice(group).items()
            )
            return undeclared, -reports[group]

        return sorted((group for group, number in enumerate(reports) if number), key=rank)


def slice_name(one: Slice) -> str:
    """Return a slice in words.

    Examples
    --------
    >>> slice_name({"country": "DE", "version": None})
    'country=DE, version=none'
    """
    return ", ".join(
        f"{name}={NO_VALUE if value is None else value}" for name, value in one.items()
    )


Groupings = Mapping[str, Sequence[tuple[str, ...]]]
"""By metric: the attributes of the slices that are published without a query."""


def queries(groupings: Groupings, metric: Metric, **options: Any) -> Iterator[Query]:
    """Yield what is asked of a metric; nothing that it does not have, since it was redefined.

    Parameters
    ----------
    groupings : mapping
    metric : Metric
    **options
        The other fields of the queries.
    """
    for by in groupings.get(metric.name, ()):
        if metric.slicing is not None and {*by} <= metric.slicing.attributes.keys():
            yield Query(by=by, **options)


def check_groupings(settings: Settings, metrics: Mapping[str, Metric]) -> None:
    """Refuse settings that name slices which no metric has.

    Parameters
    ----------
    settings : Settings
    metrics : mapping of str to Metric

    Raises
    ------
    SettingsError
        Naming the setting, the value and what was expected.
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


def _place(slicing: Slicing, name: str, value: str | None) -> int:
    """Return the place of a value among those of an attribute."""
    words = slicing.words(name)
    if value not in words:
        known = [NO_VALUE if word is None else word for word in words]
        raise ValueError(f"{name} = {value!r}: {meant(str(value), known)}")
    return words.index(value)
