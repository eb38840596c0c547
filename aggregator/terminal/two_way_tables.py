"""Two-way tables as text: the numbers of a metric with two axes, a row for each value of one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from estimators.estimate import Estimate
from estimators.metrics.axes import Axes
from estimators.rounding import common_decimals, interval

MAX_ROWS, MAX_COLUMNS = 20, 6
LABEL_FORMS = ("{row}, {column}", "{column} / {row}")
"""The labels of the numbers: of pairs of categories, and of shares of rows."""


def axes_of_table(
    axes: Axes | None, categories: Sequence[str | float] | None
) -> tuple[str, ...] | None:
    """Return the two axes of the table that a question asks for.

    None if it asks for no table, or if the table does not fit into a terminal.

    `axes`: the metric's axes, if it has any; `categories`: what the question asks for: a pair of
    axes such as ``"used_x, crashed"``; by default all axes, which form a table if there are two.
    """
    if axes is None or (categories and len(categories) > 1):
        return None
    asked = str(categories[0]).split(",") if categories else axes.values
    axis_pair = tuple(axis.strip() for axis in asked)
    if len(axis_pair) != 2 or not axes.values.keys() >= {*axis_pair}:
        return None
    return axis_pair if fits(*(len(axes.values[axis]) for axis in axis_pair)) else None


def fits(rows: int, columns: int) -> bool:
    """Return whether a table with these numbers of rows and columns fits into a terminal."""
    return rows <= MAX_ROWS and columns <= MAX_COLUMNS


class TwoWayTable(NamedTuple):
    """The axes of the rows and of the columns, and the head and the rows as text."""

    axes: tuple[str, str]
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]


def two_way_table(axes: Axes, estimate: Estimate, margins: Estimate | None) -> TwoWayTable | None:
    """Return a two-way table of the numbers of two axes; None if they do not form one.

    `axes`: the metric's axes; `estimate`: numbers of all pairs of values, or of the shares of rows,
    as in ``"crashed / used_x"``; `margins`, optional: numbers of the values of both axes.
    """
    labels = set(estimate.labels)
    for form, axis_pair in itertools.product(LABEL_FORMS, itertools.permutations(axes.values, 2)):
        row, column = axis_pair
        values, columns = axes.values[row], axes.values[column]
        names = [
            [form.format(row=f"{row}={y}", column=f"{column}={x}") for x in columns] for y in values
        ]
        if fits(len(values), len(columns)) and labels == {*itertools.chain(*names)}:
            break
    else:
        return None
    numbers: dict[str, list[float]] = {}
    for answer in (estimate,) if margins is None else (estimate, margins):
        triple = [np.asarray(x).tolist() for x in (answer.shown, answer.lower, answer.upper)]
        numbers |= zip(answer.labels, map(list, zip(*triple, strict=True)), strict=True)
    places = common_decimals((x[1] for x in numbers.values()), (x[2] for x in numbers.values()))

    def cells(labels: Sequence[str]) -> list[str]:
        return ["{} in [{}, {}]".format(*interval(numbers[label], places)) for label in labels]

    head = (f"{row} \\ {column}", *columns)
    table = [(y, *cells(labels)) for y, labels in zip(values, names, strict=True)]
    if margins is None:
        return TwoWayTable(axis_pair, head, table)
    ends = cells([f"{row}={y}" for y in values])
    last = ("all", *cells([f"{column}={x}" for x in columns]), "")
    rows = [*((*x, end) for x, end in zip(table, ends, strict=True)), last]
    return TwoWayTable(axis_pair, (*head, "all"), rows)
