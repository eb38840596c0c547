"""The Prometheus metrics of a relay, each with its help text and labels."""

from __future__ import annotations

from aggregator.monitoring.metric_definitions import Exported, declared, exported_counter

RELAY_REPORTS = exported_counter(
    "dither_relay_reports{metric,outcome}", "Sealed reports of a relay since its start, by outcome."
)
RELAY_REFUSED = exported_counter(
    "dither_relay_refused_posts{status}",
    "Posts that a relay refused, by the status of its answer (docs/crowds.md).",
)
RELAY_WAITING = Exported(
    "dither_relay_waiting_reports{metric}",
    "Reports in open crowds of a relay, repeated ones included.",
)
RELAY_CROWDS = exported_counter(
    "dither_relay_crowds{metric,outcome}",
    "Crowds that a relay has closed: `shuffled`, or `too_few` and dropped.",
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
