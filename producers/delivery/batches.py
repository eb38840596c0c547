"""Reports under way: in columns, in a batch, and the totals of arrived ones."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.metrics.attributes import Attributes


class Columns(NamedTuple):
    """Reports in columns: levels, rows, and event times in ms; and their common attributes."""

    level: NDArray[np.uint8]
    reports: NDArray[np.integer[Any]]
    time_ms: NDArray[np.int64]
    attributes: Attributes = ()

    def part(self, rows: slice | NDArray[np.intp]) -> Columns:
        """Return some of the reports."""
        level, reports, time_ms, attributes = self
        return Columns(level[rows], reports[rows], time_ms[rows], attributes)


@dataclasses.dataclass(frozen=True, slots=True)
class PendingBatch:
    """One Kafka message; with the batch id as its key, a retry goes to the same partition."""

    key: bytes
    payload: bytes
    reports: int


@dataclasses.dataclass(frozen=True, slots=True)
class Delivered:
    """Acknowledged totals so far; `bytes` before compression."""

    reports: int = 0
    batches: int = 0
    bytes: int = 0
