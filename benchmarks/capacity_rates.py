"""The rates of a recorded run that the capacity of a fleet is reckoned from."""

from __future__ import annotations

import dataclasses
from typing import Self

from benchmarks.record import Record

CELL_BYTES = 8
MEBIBYTE = 2**20
"""What the recorded memory of a worker is in."""
POSTS = 1_000.0
"""A second, of one gateway process: until the stage ``gateway`` is recorded."""
OPENED = 5_000.0
"""Sealed reports a second, of one core: until the stage ``crowds`` is recorded."""


@dataclasses.dataclass(frozen=True)
class Rates:
    """What one process of each kind was measured to do.

    Attributes
    ----------
    message_seconds, report_seconds : float
        A worker's time for each message, and for each report in it.
    commit_bytes : float
        Bytes of panes a second that one connection writes to Redis.
    id_bytes : float
        Redis's memory for the id of a batch, as long as it is remembered.
    idle_bytes : float
        A worker's memory without wide metrics.
    held_id_bytes : float
        A worker's memory for the id of a batch.
    posts : float
        Small posts a second that one gateway process takes.
    opened : float
        Sealed reports a second that a gateway opens on one core.
    """

    message_seconds: float
    report_seconds: float
    commit_bytes: float
    id_bytes: float
    idle_bytes: float
    held_id_bytes: float
    posts: float = POSTS
    opened: float = OPENED

    @classmethod
    def of(cls, record: Record) -> Self:
        """Return the rates of a recorded run.

        A worker's time is its processor time, where that is recorded: what the machine does besides
        is not in it. Else it is that of the clock. A line goes through the costs of messages with 1
        and with 1,000 reports, from fetch to commit.
        """
        single, batched = (_message_seconds(record, reports) for reports in (1, 1_000))
        per_report = max(0.0, (batched - single) / 999)
        commits = record.results["commit/4096 cells/set"].ours
        posting = record.results.get("gateway/small posts/bare route")
        opening = record.results.get("crowds/open a crowd of 10000/HPKE library")
        return cls(
            single - per_report,
            per_report,
            4_096 * CELL_BYTES * commits,
            record.figures["memory/Redis, id of a batch"].value,
            MEBIBYTE * record.figures["memory/10 small metrics"].value,
            record.figures["memory/worker, id of a batch"].value,
            posting.ours if posting else POSTS,
            opening.ours if opening else OPENED,
        )


def _message_seconds(record: Record, reports: int) -> float:
    cost = record.figures.get(f"end to end/cost, batches of {reports}/a message")
    if cost is not None:
        return cost.value / 1e6
    return reports / record.results[f"end to end/batches of {reports}, workers 1/raw"].ours
