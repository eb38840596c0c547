"""Axes of categories: each category is one value of every axis."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from estimators.errors import FEW_LISTED, MOST_SHOWN
from estimators.limits import MOST_CATEGORIES
from estimators.metrics.validation import check_name

AND_LATER = ".."
"""The mark after a value that adds all later values of its axis, or all later categories."""
JOINING_MARKS = (",", "=", "/", "+", ">", AND_LATER)
"""Marks with a meaning in names of sets of categories, which values must not contain."""


class Condition(NamedTuple):
    """The set of categories that a text names.

    `text`: its canonical form; `members`: the set as bits, the lowest for the first category.
    """

    text: str
    members: int


@dataclasses.dataclass(frozen=True)
class Axes:
    """Axes whose product is a list of categories; the values of the last axis change fastest.

    Parameters
    ----------
    values : mapping of str to sequence of str
        The values of each axis.

    Raises
    ------
    ValueError
        If these cannot be axes; the message says what was expected.

    Examples
    --------
    >>> axes = Axes({"used_x": ["no", "yes"], "crashed": ["no", "yes"]})
    >>> axes.labels[:2]
    ('used_x=no, crashed=no', 'used_x=no, crashed=yes')
    >>> axes.condition("crashed=yes")
    Condition(text='crashed=yes', members=10)
    """

    values: Mapping[str, Sequence[str]]

    def __post_init__(self) -> None:
        for axis, values in self.values.items():
            try:
                check_name(axis)
            except ValueError as error:
                raise ValueError(f"axes with names of {error}, found {axis!r}") from None
            if len(values) < 2 or len(set(values)) < len(values):
                raise ValueError(f"two values or more of axis {axis}, each once")
            if strange := [value for value in values if not _is_plain(value)]:
                raise ValueError(
                    f"values of axis {axis} that are not empty, without {' '.join(JOINING_MARKS)} "
                    f"or blanks at their ends, found {strange[0]!r}"
                )
        if not self.values or math.prod(self.shape) > MOST_CATEGORIES:
            raise ValueError(f"axes with 2 to {MOST_CATEGORIES} categories")

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each axis."""
        return tuple(map(len, self.values.values()))

    @functools.cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the categories, in order."""
        return tuple(self._labels())

    def _labels(self) -> Iterator[str]:
        texts = [[f"{axis}={value}" for value in values] for axis, values in self.values.items()]
        return map(", ".join, itertools.product(*texts))

    # -- On the device ----------------------------------------------------------------------------

    def give(self, categories: object) -> bool:
        """Return whether `categories` is the list of these axes' labels, without building it."""
        if not isinstance(categories, list) or len(categories) != math.prod(self.shape):
            return False
        return all(map(operator.eq, self._labels(), categories))

    def labelled(self, values: Any, metric: str) -> Any:
        """Return an application's values, with each mapping replaced by the label of its category.

        `metric`: the metric's name, for messages. Raises ValueError if a mapping names no category.
        """
        if isinstance(values, Mapping):
            return self._label(values, metric)
        if isinstance(values, list | tuple):
            return [self._label(x, metric) if isinstance(x, Mapping) else x for x in values]
        return values

    def _label(self, values: Mapping[str, str], metric: str) -> str:
        for axis in values:
            if axis not in self.values:
                raise ValueError(f"axis {_shortened(axis)} of {metric}: {one_of(self.values)}")
        for axis, allowed in self.values.items():
            if axis not in values:
                raise ValueError(f"axis {axis} of {metric} is missing: {one_of(allowed)}")
            if values[axis] not in allowed:
                raise ValueError(
                    f"{axis}={_shortened(values[axis])} of {metric}: {one_of(allowed)}"
                )
        return ", ".join(f"{axis}={values[axis]}" for axis in self.values)

    def flag(self, axis: object, metric: str) -> str:
        """Return the category with the second value of `axis`, and the first of all other axes.

        `metric`: the metric's name, for messages. Raises ValueError if there is no such axis.
        """
        if not isinstance(axis, str) or axis not in self.values:
            raise ValueError(f"flag {_shortened(axis)} of {metric}: {one_of(self.values)}")
        return self._label({name: xs[name == axis] for name, xs in self.values.items()}, metric)

    # -- In questions -----------------------------------------------------------------------------

    def spread(self, labels: Sequence[str | float]) -> Iterator[str | float]:
        """Yield a question's labels; one that names an axis alone becomes one for each value.

        >>> axes = Axes({"used_x": ["no", "yes"], "crashed": ["no", "yes"]})
        >>> [*axes.spread(["crashed / used_x=yes", "crashed=no, used_x"])]
        ['crashed=no / used_x=yes', 'crashed=yes / used_x=yes', 'used_x=no, crashed=no', \
'used_x=yes, crashed=no']
        """
        for label in labels:
            sides = label.split("/") if isinstance(label, str) else []
            axis_values = [[axis_text.strip() for axis_text in side.split(",")] for side in sides]
            if len(sides) > 2 or not self.values.keys() & {*itertools.chain(*axis_values)}:
                yield self._in_order(label) if isinstance(label, str) else label
                continue
            options = [
                map(", ".join, itertools.product(*map(self._options, side))) for side in axis_values
            ]
            for spread in itertools.product(*options):
                yield " / ".join(map(self._in_order, spread))

    def _options(self, axis_text: str) -> list[str]:
        return [f"{axis_text}={value}" for value in self.values.get(axis_text, ())] or [axis_text]

    def _in_order(self, text: str) -> str:
        axis_values = self._values_by_axis(text)
        return text if axis_values is None else ", ".join(axis_values.values())

    def condition(self, text: str) -> Condition | None:
        """Return the categories of ``"AXIS=VALUE, AXIS=VALUE.."``; None for any other text."""
        if (axis_values := self._values_by_axis(text)) is None:
            return None
        chosen = [range(size) for size in self.shape]
        for position, (axis, values) in enumerate(self.values.items()):
            if axis in axis_values:
                value = axis_values[axis].partition("=")[2]
                begin = values.index(value.removesuffix(AND_LATER))
                end = len(values) if value.endswith(AND_LATER) else begin + 1
                chosen[position] = range(begin, end)
        is_member = np.zeros(self.shape, dtype=bool)
        is_member[np.ix_(*chosen)] = True
        octets = np.packbits(is_member, bitorder="little").tobytes()
        return Condition(", ".join(axis_values.values()), int.from_bytes(octets, "little"))

    def _values_by_axis(self, text: str) -> dict[str, str] | None:
        """Return the parts of a text of ``"AXIS=VALUE"`` parts, by axis; None for another text."""
        axis_values: dict[str, str] = {}
        for axis_text in text.split(","):
            axis, _, value = (x.strip() for x in axis_text.partition("="))
            first = value.removesuffix(AND_LATER).rstrip()
            if axis in axis_values or first not in self.values.get(axis, ()):
                return None
            axis_values[axis] = f"{axis}={first}{AND_LATER if first != value else ''}"
        return {axis: axis_values[axis] for axis in self.values if axis in axis_values}

    def values_in(self, label: str) -> tuple[str | None, ...]:
        """Return the value of each axis in an answer's label; None if the label lacks the axis.

        >>> axes = Axes({"used_x": ["no", "yes"], "crashed": ["no", "yes"]})
        >>> axes.values_in("crashed=yes"), axes.values_in("crashed=yes / used_x=yes")
        ((None, 'yes'), (None, None))
        """
        is_share = any(mark in label for mark in ("/", "+"))
        axis_values = (
            () if is_share else (axis_text.partition("=") for axis_text in label.split(", "))
        )
        named = {axis: value for axis, _, value in axis_values}
        return tuple(named.get(axis) for axis in self.values)

    def explain(self, text: str, metric: str) -> str:
        """Return why :meth:`condition` does not accept a text, and what was expected."""
        for condition in text.split(","):
            axis, equals, value = (x.strip() for x in condition.partition("="))
            if equals and axis not in self.values:
                return f"axis {_shortened(axis)} of {metric}: {one_of(self.values)}"
            if equals and value.removesuffix(AND_LATER).rstrip() not in self.values[axis]:
                return f"{axis}={_shortened(value)} of {metric}: {one_of(self.values[axis])}"
        axis, values = next(iter(self.values.items()))
        return f"expected AXIS=VALUE, each axis once, as in '{axis}={values[0]}'"


def one_of(words: Sequence[str] | Mapping[str, object]) -> str:
    """Return a message that one of several words was expected; it lists the first of them.

    >>> one_of(["no", "yes"])
    'expected one of no, yes'
    """
    hidden = len(words) - FEW_LISTED
    listed = ", ".join(itertools.islice(words, FEW_LISTED))
    return f"expected one of {listed}{f' and {hidden} more' if hidden > 0 else ''}"


def _is_plain(value: str) -> bool:
    has_marks = any(mark in value for mark in JOINING_MARKS)
    return value != "" and value == value.strip() and not has_marks


def _shortened(value: object) -> str:
    return str(value)[:MOST_SHOWN]
