"""Panels of metrics that are collected in trust, of distributions, and of minimum and maximum."""

from __future__ import annotations

from deploy.grafana.panels import Json, band, heatmap, lines, query, row, stat, table
from deploy.grafana.queries import each


def releases(this: str) -> list[Json]:
    """Return the panels of a metric that is collected in trust."""
    level = "epsilon {{level}}"
    return [
        row("Releases of a trusted metric"),
        lines(
            "Privacy loss of each level",
            "Privacy loss of one report of each level by the latest release; at most the "
            "level's epsilon.",
            query(each("dither_level_loss", "level", where=this), level),
            unit="none",
            size=(12, 8),
        ),
        stat(
            "Saturation",
            "Levels above this epsilon did not improve the latest release. No value: its "
            "weights have no such threshold.",
            query(f'max(dither_release_saturation{{job="$job"{this}}})', "epsilon"),
            unit="none",
            size=(4, 8),
            decimals=3,
        ),
        stat(
            "Released up to",
            "End, in event time, of the last released pane.",
            query(f'1000 * max(dither_release_timestamp_seconds{{job="$job"{this}}})', "pane"),
            unit="dateTimeAsIso",
            size=(4, 8),
            graph=False,
        ),
        stat(
            "Waiting for its release",
            "End, in event time, of the oldest pane that is over and not released. No value: "
            "all are released.",
            query(f'1000 * max(dither_release_due_timestamp_seconds{{job="$job"{this}}})', "pane"),
            unit="dateTimeAsIso",
            size=(4, 8),
            graph=False,
        ),
    ]


def distribution(this: str) -> list[Json]:
    """Return the panels of a distribution."""
    return [
        row("Distribution"),
        lines(
            "Quantiles",
            "Quantiles of everything counted so far, in the metric's unit.",
            query(each("dither_quantile", "quantile", where=this), "{{quantile}}"),
            unit="none",
            size=(8, 8),
        ),
        table(
            "Bounds of quantiles",
            "The bounds hold for all quantiles and at all times at once.",
            {
                "Value": each("dither_quantile", "quantile", where=this),
                "Lower": each("dither_quantile_lower", "quantile", where=this),
                "Upper": each("dither_quantile_upper", "quantile", where=this),
            },
            labels=("quantile",),
            unit="none",
            decimals=4,
            size=(8, 8),
        ),
        heatmap(
            "Distribution over time",
            "Share of the users in each range of values, of everything counted until then.",
            query(each("dither_share_below", "le", where=this), "{{le}}"),
            unit="none",
            size=(8, 8),
        ),
    ]


def search(this: str) -> list[Json]:
    """Return the panels of a minimum or maximum."""
    narrowing = [
        query(f'max({name}{{job="$job"{this}}})', legend)
        for name, legend in (
            ("dither_search_bisection_low", "low"),
            ("dither_search_threshold", "asked now"),
            ("dither_search_bisection_high", "high"),
        )
    ]
    return [
        row("Search for a minimum or maximum"),
        stat(
            "Certified end",
            "Somebody's value reaches it, with probability 1 - beta for all rounds at once. "
            "Nothing is certain about the other end.",
            query(f'max by (side) (dither_search_certified{{job="$job"{this}}})', "{{side}}"),
            unit="none",
            size=(4, 8),
        ),
        band(
            "Remaining interval",
            "Each round halves it. It is not a confidence interval: the extreme may lie far "
            "outside, where few values are.",
            *narrowing,
            unit="none",
            size=(8, 8),
        ),
        stat(
            "Round",
            "The open round, and the number of rounds.",
            query(f'max(dither_search_round{{job="$job"{this}}})', "round"),
            query(f'max(dither_search_rounds{{job="$job"{this}}})', "of"),
            unit="none",
            size=(4, 8),
            graph=False,
        ),
        lines(
            "Answers to the open round",
            "Counted answers to the open round; each round starts at zero.",
            query(f'max(dither_search_answers{{job="$job"{this}}})', "answers"),
            unit="short",
            size=(8, 8),
        ),
    ]
