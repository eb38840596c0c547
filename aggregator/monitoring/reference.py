"""All exported metrics, and docs/metrics.md, which this module prints."""

from __future__ import annotations

import sys

from aggregator.feature import features
from aggregator.monitoring.metric_definitions import (
    CORE_METRICS,
    LABEL_MEANINGS,
    SECTION_TITLES,
    Exported,
)
from aggregator.monitoring.relay_metrics import RELAY_METRICS
from aggregator.monitoring.samples import Samples

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
`python -m aggregator.monitoring.reference > docs/metrics.md`.
"""


def all_exported() -> tuple[Exported, ...]:
    """Return the metrics that a server exports: those of the core, then of each feature."""
    return (*CORE_METRICS, *(exported for kind in feature_samples() for exported in kind.exported))


def feature_samples() -> list[type[Samples]]:
    """Return the classes that make the features' samples."""
    kinds = (feature.samples() for feature in features())
    return [kind for kind in kinds if kind is not None]


def reference() -> str:
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
    sys.stdout.write(reference())
