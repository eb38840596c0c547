"""Prints docs/metrics.md: the metrics that a server and a relay export."""

from __future__ import annotations

import sys

from aggregator.monitoring.families import all_exported, feature_samples
from aggregator.monitoring.metric_definitions import (
    BOUNDED_ESTIMATE,
    BOUNDED_SLICE,
    CONSUMER_LAG,
    HTTP_REQUESTS,
    LEVEL_LOSS,
    PUBLISHED_EVENTS,
    REPORT_OUTCOMES,
    SEARCH_ROUND,
)
from aggregator.monitoring.relay_metrics import RELAY_METRICS

PAGE_HEAD = """\
# Exported metrics

For people who write queries, dashboards and alerts: every metric that `dither serve` exports at
`/metrics`, in Prometheus' text format or OpenMetrics, and [those of a relay](#relays).
[monitoring.md](monitoring.md) shows how to scrape them, and [operations.md](operations.md) what the
alerts mean.

Estimates, reports and progress are read from Redis at each scrape, so all servers of a deployment
export the same values: take the maximum over instances before you sum. Counters of reports,
messages and commits survive restarts and changes of owner, because they are committed together with
what they count. These counters decrease only if Redis lost writes.

The metrics of [Serving](#serving), `dither_kafka_up` and `dither_definitions_unusable` are about
one server: sum requests over instances. A gateway that does not publish exports only these metrics
if it cannot read Redis, because Redis is unreachable or the gateway's role lacks the right.

Generated from `aggregator/monitoring/metric_definitions.py` and the features' `samples.py`:
`python -m deploy.metrics_page > docs/metrics.md`.
"""

SECTION_TITLES = {
    BOUNDED_ESTIMATE.value: "Estimates",
    LEVEL_LOSS: "Releases",
    SEARCH_ROUND: "Searches",
    BOUNDED_SLICE.value: "Slices",
    REPORT_OUTCOMES: "Reports",
    CONSUMER_LAG: "Counting",
    PUBLISHED_EVENTS: "Publishing",
    HTTP_REQUESTS: "Serving",
}
"""Titles of sections, by the first metric of each section."""

LABEL_MEANINGS = {
    "fate": "`accepted`, `unopened`, `invalid` or `refused`",
    "side": "`at_least` of a maximum, `at_most` of a minimum",
    "metric": "name of a metric in `metrics.toml`",
    "category": "a category of a frequency or a coordinate of a vector; at most the "
    "`serve.top_categories` largest are exported; empty for a mean",
    "share": "a share among of the definition's `shares`, as in `paid / visit..`",
    "quantile": "a quantile of the definition, as in `0.99`",
    "le": "an edge of a distribution's bins, below which the share is, as in `250`; `+Inf`: all",
    "slice": "the values of attributes of devices, as in `country=DE,version=other`; at most the "
    "`serve.top_slices` with most reports",
    "by": "the attributes of a grouping in `serve.slices`, as in `country,version`",
    "level": "the epsilon of a privacy level",
    "outcome": "`accepted`, `duplicate`, or the reason of a dead letter. At a relay: `taken`, "
    "`repeated` (a retry, which counts once), `damaged` (by a crash), `too_few` (dropped with its "
    "crowd), `delivered`, or `refused` by the service for good",
    "reason": "why a message could not be counted; docs/data-model.md lists the reasons",
    "partition": "number of a partition of the reports topic",
    "worker": "host and process of a worker; at any time at most as many as partitions",
    "step": "what a worker does: consuming, counting, committing, sending dead letters, taking "
    "over, leaving",
    "type": "`final`, `provisional`, `alarm` or `decided`",
    "route": "template of a path",
    "method": "HTTP method",
    "status": "`2xx`, `3xx`, `4xx` or `5xx`; of a post that a relay refused, the whole number",
    "result": "`delivered`, `refused` (the collector did not take it) or `unreadable` (nothing was "
    "sent)",
    "policy": "`optimal`, `paper`, `proportional` or `uniform`; with trusted collection one of "
    "docs/trusted.md",
    "description": "from the metric's definition, like kind, mechanism, unit, levels and revision",
    "version": "of Dither",
}
"""Meanings of labels, by name."""


def metrics_page() -> str:
    """Return the text of docs/metrics.md."""
    parts = [PAGE_HEAD.rstrip()]
    titles, labels_of_all = {**SECTION_TITLES, RELAY_METRICS[0]: "Relays"}, dict(LABEL_MEANINGS)
    for kind in feature_samples():
        titles[kind.exported[0]] = kind.title
        labels_of_all |= kind.labels
    for exported in (*all_exported(), *RELAY_METRICS):
        if title := titles.get(exported):
            parts.append(f"\n## {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|")
        labels = ", ".join(f"`{label}`" for label in exported.labels)
        buckets = ", ".join(f"{bound:g}" for bound in exported.buckets)
        meaning = exported.help + (f" Buckets up to {buckets} s." if buckets else "")
        parts.append(f"| `{exported.scraped}` | {exported.type} | {labels} | {meaning} |")
    parts.append("\n## Labels\n\n| label | values |\n|---|---|")
    parts += [f"| `{label}` | {meaning} |" for label, meaning in labels_of_all.items()]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(metrics_page())
