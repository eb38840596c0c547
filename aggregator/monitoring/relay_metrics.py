"""The Prometheus metrics of a relay, each with its help text and labels."""

from __future__ import annotations

from aggregator.monitoring.metric_definitions import Exported, declared

RELAY_REPORTS = Exported(
    "dither_relay_reports{metric,outcome}",
    "Sealed reports of a relay since its start, by outcome.",
    type="counter",
)
RELAY_REFUSED = Exported(
    "dither_relay_refused_posts{status}",
    "Posts that a relay refused, by the status of its answer (docs/crowds.md).",
    type="counter",
)
RELAY_WAITING = Exported(
    "dither_relay_waiting_reports{metric}",
    "Reports in open crowds of a relay, repeated ones included.",
)
RELAY_CROWDS = Exported(
    "dither_relay_crowds{metric,outcome}",
    "Crowds that a relay has closed: `shuffled`, or `too_few` and dropped.",
    type="counter",
)
RELAY_PARTS = Exported(
    "dither_relay_parts{metric}",
    "Parts of closed crowds that the service has not acknowledged; absent without one.",
)
RELAY_OVERDUE_PARTS = Exported(
    "dither_relay_overdue_parts",
    "Parts that have waited for more than half of the time until their reports are late.",
)

RELAY_METRICS = declared(globals())
