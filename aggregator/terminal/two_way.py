"""Two-way tables as text: the numbers of a metric with two axes, a row for each value of one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from estimators.estimate import Estimate
from estimators.metrics.axes import Axes
from estimators.rounding import common_decimals, interval

MAX_ROWS, MAX_COLUMNS = 20, 6
LABEL_FORMS = ("{row}, {column}", "{column} / {row}")
"""The labels of a table of categories, and of one of shares of rows."""
Rows = list[tuple[str, ...]]


def is_two_way(axes: Axes | None) -> TypeGuard[Axes]:
    """Return whether there are two axes whose table fits into a terminal."""
    return axes is not None and len(axes.shape) == 2 and fits(*axes.shape)


def fits(rows: int, columns: int) -> bool:
    """Return whether a table fits into a terminal."""
    return rows <= MAX_ROWS and columns <= MAX_COLUMNS


def two_way_rows(
    axes: Axes, estimate: Estimate, margins: Estimate | None
) -> tuple[tuple[str, ...], Rows] | None:
    """Return the head and rows of a two-way table; None if the numbers are none.

    Parameters
    ----------
    axes : Axes
    estimate : Estimate
        Of all categories, or of the shares of rows, as in ``"crashed / used_x"``.
    margins : Estimate, optional
        Of the values of both axes.
    """
    if not is_two_way(axes):
        return None
    labels = set(estimate.labels)
    for form, (row, column) in itertools.product(LABEL_FORMS, (axes.values, [*axes.values][::-1])):
        rows, columns = axes.values[row], axes.values[column]
        names = [
            [form.format(row=f"{row}={y}", column=f"{column}={x}") for x in columns] for y in rows
        ]
        if fits(len(rows), len(columns)) and labels == {*itertools.chain(*names)}:
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
    table = [(y, *cells(labels)) for y, labels in zip(rows, names, strict=True)]
    if margins is None:
        return head, table
    ends = cells([f"{row}={y}" for y in rows])
    last = ("all", *cells([f"{column}={x}" for x in columns]), "")
    return (*head, "all"), [*((*x, end) for x, end in zip(table, ends, strict=True)), last]
