"""The features of the service besides counting and estimating, one folder each."""

from __future__ import annotations

from typing import Final

from aggregator.feature import Feature

FEATURES: Final = (
    Feature(
        "comparisons",
        *("definitions", "due_events", "samples", "routes"),
        commands={
            "compare": ("Ask", "Compare two slices, windows or metrics."),
            "comparisons": ("Ask", "Show how the comparisons of the definitions stand."),
        },
    ),
    Feature(
        "alarms",
        *("definitions", "due_events", "samples", "routes"),
        commands={"alarms": ("Ask", "Show whether metrics have moved from their baselines.")},
    ),
    Feature(
        "discovery",
        "routes",
        commands={"discover": ("Ask", "Find the frequent strings of an open vocabulary.")},
    ),
    Feature("trusted", "plan", "due_events", metric_class="TrustedMetric"),
    Feature(
        "rounds",
        *("plan", "routes"),
        metric_class="SearchMetric",
        commands={"coordinate": ("Run", "Run the rounds of minimum and maximum metrics.")},
    ),
)
"""The features, in the order in which events, samples and operations appear."""
