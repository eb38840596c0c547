"""Reports on their way, in columns and in batches, and the totals of acknowledged reports."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.metrics.attributes import Attributes


class Columns(NamedTuple):
    """Reports in columns: levels, encoded values, event times in ms; with common attributes."""

    level: NDArray[np.uint8]
    reports: NDArray[np.integer[Any]]
    time_ms: NDArray[np.int64]
    attributes: Attributes = ()

    def part(self, rows: slice | NDArray[np.intp]) -> Columns:
        """Return the reports in these rows."""
        level, reports, time_ms, attributes = self
        return Columns(level[rows], reports[rows], time_ms[rows], attributes)


@dataclasses.dataclass(frozen=True, slots=True)
class PendingBatch:
    """A batch for Kafka, whose id is the message's key: a retry goes to the same partition."""

    key: bytes
    payload: bytes
    reports: int


@dataclasses.dataclass(frozen=True, slots=True)
class Delivered:
    """The totals acknowledged so far; `bytes` is counted before compression."""

    reports: int = 0
    batches: int = 0
    bytes: int = 0
