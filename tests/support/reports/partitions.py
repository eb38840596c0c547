"""Metrics and times that the tests of a partition's state share, and all its content."""

from typing import Any

from aggregator.state.partition import Partition
from estimators import define
from tests.support.metrics import frequency_metric, mean_metric

MINUTE = 60_000
HOUR = 3_600_000
DELAY = mean_metric("delay", "randomized_response", (0, 10), [0.5, 1, 2], pane="1m", lateness="1m")


CARRIER = frequency_metric("carrier", "rappor", 11, [1, 2], pane="1h")


AGE = define(name="age", kind="mean", mechanism="laplace", range=(0, 100), levels=[1, 4])
PAY = define(
    name="pay", kind="mean", trust="central", range=(0, 9), levels=[1, 4], pane="1m", lateness="1m"
)


VOTE = define(
    name="vote",
    kind="frequency",
    trust="central",
    categories=3,
    levels=[1],
    pane="1m",
    max_key_reports=9,
)


METRICS = {metric.name: metric for metric in (DELAY, CARRIER, AGE, PAY, VOTE)}
FUTURE_MS = 10 * MINUTE


def everything(partition: Partition) -> dict[str, Any]:
    """Return the whole content of a store, with closed panes."""
    return {
        "next": partition.next_offset,
        "panes": {
            k: (p.statistic.tobytes(), frozenset(p.batch_ids), p.closed)
            for k, p in partition.panes.items()
        },
        "counts": {k: v for k, v in partition.counts.items() if v},
        "watermarks": {k: str(v) for k, v in partition.watermarks.items()},
    }
