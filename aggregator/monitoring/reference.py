"""All exported metrics, and their tables in docs/metrics.md, which this module writes."""

from __future__ import annotations

from pathlib import Path

from aggregator.feature import features
from aggregator.monitoring.metric_definitions import (
    CORE_METRICS,
    LABEL_MEANINGS,
    SECTION_TITLES,
    Exported,
)
from aggregator.monitoring.relay_metrics import RELAY_METRICS
from aggregator.monitoring.samples import Samples

METRICS_PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
"""The page, in a clone."""


def all_exported() -> tuple[Exported, ...]:
    """Return the metrics that a server exports: those of the core, then of each feature."""
    return (*CORE_METRICS, *(exported for kind in feature_samples() for exported in kind.exported))


def feature_samples() -> list[type[Samples]]:
    """Return the classes that make the features' samples."""
    kinds = (feature.samples() for feature in features())
    return [kind for kind in kinds if kind is not None]


def reference(page: str) -> str:
    """Return docs/metrics.md with its present text before the tables, and tables of all metrics."""
    parts = [page.partition("\n\n## ")[0]]
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
    METRICS_PAGE.write_text(reference(METRICS_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
