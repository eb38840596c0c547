"""Keeps the open panes of a worker's partitions within its memory."""

from __future__ import annotations

from collections.abc import Iterable

from aggregator.counting.assigned_partition import AssignedPartition
from aggregator.kafka.worker_clients import QUEUE_SHARE


def limit_memory(partitions: Iterable[AssignedPartition], memory: int, now: float) -> None:
    """Halt the partitions with the largest open panes until the others fit.

    Parameters
    ----------
    partitions : iterable of AssignedPartition
        All partitions of a worker.
    memory : int
        `aggregate.memory`, in bytes.
    now : float
        Monotonic seconds.
    """
    allowed = memory * (QUEUE_SHARE - 1) // QUEUE_SHARE
    counting = [owned for owned in partitions if not (owned.is_fenced or owned.halted)]
    counting.sort(key=lambda owned: owned.open_bytes)
    while (total := sum(owned.open_bytes for owned in counting)) > allowed:
        largest = counting.pop()
        largest.excess = (
            f"the open panes of this worker take {total >> 20} MB, and aggregate.memory "
            f"leaves {allowed >> 20} MB for them. Start more workers, send larger batches, "
            "give the metric narrower panes or a shorter lateness, or allow more memory; "
            "then restart the workers"
        )
        largest.fence(now)
