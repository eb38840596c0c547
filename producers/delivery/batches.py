"""A batch on its way, and the totals of those that have arrived."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class PendingBatch:
    """One Kafka message; with the batch id as its key, a retry goes to the same partition."""

    key: bytes
    payload: bytes
    reports: int


@dataclasses.dataclass(frozen=True, slots=True)
class Delivered:
    """Totals that are acknowledged so far; `bytes` before compression."""

    reports: int = 0
    batches: int = 0
    bytes: int = 0
