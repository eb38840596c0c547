"""Slice tables: the statistics of a metric's slices over a stretch, stored in chunks.

A table is cut into chunks of a fixed number of slice codes, so that a commit writes only changed
chunks. In memory a chunk has a row for each slice. Its stored form has the rows that are not empty:
byte 0 is the width of an integer, the smallest of 1, 2, 4 and 8 bytes that fits all; then come the
rows by code, each a uint32 code and the statistic, little endian.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from estimators import Metric
from estimators.estimate import Counts

CHUNK_BYTES = 65_000
"""The size of a chunk with the widest integers; Redis stores up to 64 KiB without waste."""
CODE_BYTES = 4
INTEGER_WIDTHS = (1, 2, 4, 8)

Codes = NDArray[np.int64]
"""The numbers of slices."""


def chunk_rows(metric: Metric) -> int:
    """Return how many of a metric's slices a chunk has: all slices, if they are few."""
    rows = max(1, CHUNK_BYTES // (CODE_BYTES + metric.zero().nbytes))
    return rows if metric.slicing is None else min(rows, metric.slicing.size)


def empty_chunk(metric: Metric) -> Counts:
    """Return a chunk without reports, shape (slices, cells)."""
    return np.zeros((chunk_rows(metric), metric.zero().size), dtype=np.int64)


def by_chunk(metric: Metric, codes: Codes, rows: Counts) -> Iterator[tuple[int, Codes, Counts]]:
    """Yield the number of each chunk, the positions in it, and their rows.

    `metric`: the metric; `codes`, shape (n,): the numbers of slices, ascending; `rows`, shape (n,
    cells): the rows of the slices.
    """
    size = chunk_rows(metric)
    edges = [0, *(np.flatnonzero(np.diff(codes // size)) + 1).tolist(), len(codes)]
    for first, last in itertools.pairwise(edges):
        chunk = int(codes[first]) // size
        yield chunk, codes[first:last] - chunk * size, rows[first:last]


def encode_chunk(number: int, statistics: Counts) -> bytes:
    """Return the stored form of chunk `number`, with statistics of shape (slices, cells)."""
    used = np.flatnonzero(statistics.any(axis=1))
    rows = statistics[used]
    low, high = int(rows.min(initial=0)), int(rows.max(initial=0))
    width = next(w for w in INTEGER_WIDTHS if -(1 << 8 * w - 1) <= low and high < 1 << 8 * w - 1)
    chunk_rows = np.zeros(len(used), dtype=_row_type(width, statistics.shape[1]))
    chunk_rows["code"], chunk_rows["sums"] = used + number * len(statistics), rows
    return bytes([width]) + chunk_rows.tobytes()


def decode_rows(value: bytes, cells: int) -> tuple[Codes, Counts]:
    """Return the codes, shape (n,), and the statistics, shape (n, cells), of a stored chunk.

    Raises ValueError if the bytes are no chunk.
    """
    width = value[0] if value else 0
    if width not in INTEGER_WIDTHS:
        raise ValueError(f"integers of {width} bytes")
    row = _row_type(width, cells)
    if (len(value) - 1) % row.itemsize:
        raise ValueError(f"{len(value)} bytes")
    chunk_rows = np.frombuffer(value, dtype=row, offset=1)
    codes = chunk_rows["code"].astype(np.int64)
    if (np.diff(codes) <= 0).any():
        raise ValueError("codes of slices that do not ascend")
    return codes, chunk_rows["sums"].astype(np.int64)


def decode_chunk(number: int, value: bytes, metric: Metric) -> Counts:
    """Return a stored chunk, shape (slices, cells).

    `number`: the number of the chunk; `value`: the stored bytes; `metric`: the metric. Raises
    ValueError if it is no chunk of this metric.
    """
    statistics = empty_chunk(metric)
    codes, rows = decode_rows(value, statistics.shape[1])
    first, slicing = number * len(statistics), metric.slicing
    size = 0 if slicing is None else slicing.size
    if codes.size and not first <= codes[0] <= codes[-1] < min(first + len(statistics), size):
        raise ValueError(f"slices {codes[0]} to {codes[-1]}")
    statistics[codes - first] = rows
    return statistics


def describe_difference(number: int, stored_chunk: bytes, expected: Counts, metric: Metric) -> str:
    """Return how a stored chunk of slices differs from the expected one.

    `number`: the number of the chunk; `stored_chunk`: the stored bytes; `expected`, shape (slices,
    cells): the statistics that the log gives; `metric`: the metric.
    """
    try:
        chunk_rows = decode_chunk(number, stored_chunk, metric)
    except ValueError as error:
        return f"no slices in the store: {error}"
    rows = np.flatnonzero((chunk_rows != expected).any(axis=1))
    if not rows.size or metric.slicing is None:
        return "stored in another form than Dither writes"
    first = int(rows[0])
    name = metric.slicing.slice(number * len(chunk_rows) + first)
    reports = [int(metric.counts(table[first]).sum()) for table in (chunk_rows, expected)]
    return (
        f"{len(rows)} slices differ, the first {name}: stored {reports[0]} reports, replayed "
        f"{reports[1]}"
    )


def _row_type(width: int, cells: int) -> np.dtype[np.void]:
    return np.dtype([("code", "<u4"), ("sums", f"<i{width}", (cells,))])
