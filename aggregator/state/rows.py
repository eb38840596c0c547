"""Selects rows of columns by pane; fast for a single pane."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
RowIndices = NDArray[np.intp]


def by_start(start: Integers, rows: RowIndices) -> list[tuple[int, RowIndices]]:
    """Return the rows of each start, in order; mostly there is one start."""
    if start.size and (start == start[0]).all():
        return [(int(start[0]), rows)]
    order = np.argsort(start, kind="stable")
    first = np.flatnonzero(np.diff(start[order], prepend=-1))
    starts = start[order][first].tolist()
    return list(zip(starts, np.split(rows[order], first[1:]), strict=False))


def distinct(times: Integers) -> list[int]:
    """Return the distinct times, ascending; mostly there is one."""
    if times.size and (times == times[0]).all():
        return [int(times[0])]
    return sorted(set(times.tolist()))
