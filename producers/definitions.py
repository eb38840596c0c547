"""A metric's definition suggested from a column of a CSV file."""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from estimators.domains import OPEN
from estimators.durations import milliseconds
from estimators.metric import Metric
from producers.tables import MISSING, read_columns, read_times

MOST_CATEGORIES = 1_000
"""With more distinct strings the vocabulary is left open."""
WATCHED = 10
LEVELS = (0.5, 1.0, 2.0, 4.0)
PANES = ("1m", "5m", "15m", "1h", "6h", "1d", "1w", "4w")
MOST_PANES = 400
CLOSED = "auto"
"""The mechanism for means and for listed categories."""


def suggest(
    path: str | Path,
    column: str,
    *,
    name: str | None = None,
    unit: str = "",
    time: Sequence[str] = (),
    within: tuple[float, float] | None = None,
    levels: Sequence[float] = LEVELS,
) -> str:
    """Return a table of ``metrics.toml`` that fits a column of a CSV file.

    A column of numbers becomes a mean, one of up to a thousand distinct strings a frequency of
    these categories, one of more strings a frequency of an open vocabulary.

    Parameters
    ----------
    path : path
        A CSV file with a header, plain or zipped.
    column : str
        Of the values.
    name : str, optional
        Of the metric; by default the column's, with underscores for what a name cannot have.
    time : sequence of str, optional
        The columns of event times: panes are then so wide that there are at most 400 of them.
    within : (float, float), optional
        The range of a mean; by default the smallest and the largest value of the file.
    levels : sequence of float
        The epsilons on offer.

    Raises
    ------
    ValueError
        If there is no such column, or no value in it; or as :class:`estimators.Metric` has it.
    """
    columns = read_columns(path, [column, *time])
    cells = [cell.strip() for cell in columns[column]]
    values = [cell for cell in cells if cell not in MISSING]
    if not values:
        raise ValueError(f"{path}: column {column!r} has no value: expected at least one")
    named = name or _name(column)
    keys: dict[str, object] = {"description": f"{column} of {Path(path).name}"}
    if unit:
        keys["unit"] = unit
    numbers = _numbers(values)
    if numbers is not None:
        low, high = within or (float(numbers.min()), float(numbers.max()))
        keys |= {"kind": "mean", "mechanism": CLOSED, "range": [low, high]}
    elif within is not None:
        raise ValueError(f"{path}: column {column!r} is not of numbers: expected no range for it")
    else:
        counts = collections.Counter(values)
        keys["kind"] = "frequency"
        if len(counts) > MOST_CATEGORIES:
            watch = [value for value, _ in counts.most_common(WATCHED)]
            keys |= {"mechanism": "count_sketch", "categories": OPEN, "watch": watch}
        else:
            keys |= {"mechanism": CLOSED, "categories": sorted(counts)}
    keys["levels"] = list(levels)
    keys["pane"] = _pane([" ".join(row) for row in zip(*(columns[c] for c in time), strict=True)])
    Metric(name=named, **keys)  # type: ignore[arg-type]  # raises what loading it would
    lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in keys.items())
    return "\n".join([f"[metrics.{named}]", *lines])


def _name(column: str) -> str:
    """Return a metric's name for a column.

    >>> _name("Departure delay (min)"), _name("2nd")
    ('departure_delay_min', 'm_2nd')
    """
    plain = re.sub(r"[^a-z0-9]+", "_", column.lower()).strip("_")
    return (plain if plain[:1].isalpha() else f"m_{plain}")[:64]


def _numbers(values: Sequence[str]) -> NDArray[np.float64] | None:
    """Return values as numbers, or None if one is none."""
    try:
        numbers = np.array([float(value) for value in values])
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def _pane(times: Sequence[str]) -> str:
    """Return the narrowest pane that needs at most MOST_PANES of them."""
    known = [time for time in read_times(sorted(set(times)), "event times").tolist() if time >= 0]
    span = max(known) - min(known) if known else 0
    return next((pane for pane in PANES if span <= MOST_PANES * milliseconds(pane)), PANES[-1])
