"""The dashboard of all metrics."""

from __future__ import annotations

from deploy.grafana.panels import (
    Json,
    bars,
    dashboard,
    lines,
    now,
    override,
    query,
    stat,
    steps,
    table,
)
from deploy.grafana.queries import (
    BACKLOG,
    FIRING,
    HETEROGENEITY,
    JOB,
    NONE_EXPECTED,
    REFUSED,
    SECONDS,
    age,
    each,
    to_metric,
)


def overview() -> Json:
    """Return the dashboard of all metrics."""
    means = ', category=""'
    panels = [
        stat(
            "Reports per second",
            "Counted reports of all metrics.",
            query('sum(metric:dither_reports_accepted:rate5m{job="$job"})'),
            unit="cps",
        ),
        stat(
            "Metrics with an estimate",
            "Metrics that show an estimate. The others have no reports yet, or fewer than their "
            "minimum.",
            query(f"count({each('dither_estimate', 'metric')})"),
            unit="none",
        ),
        stat(
            "Refused",
            "Share of all reports that went to the dead-letter topic.",
            query('job:dither_reports_refused:ratio_rate5m{job="$job"}'),
            unit="percentunit",
            thresholds=REFUSED,
        ),
        stat(
            "Time until counted",
            "Time from Kafka to the commit; 99% of messages are faster.",
            query('job:dither_end_to_end_latency_seconds:p99_rate5m{job="$job"}'),
            unit="s",
            thresholds=SECONDS,
        ),
        stat(
            "Backlog",
            "Time to count the waiting messages at the present rate.",
            query('job:dither_consumer_lag:seconds{job="$job"}'),
            unit="s",
            thresholds=BACKLOG,
        ),
        stat(
            "Alerts",
            "Firing alerts of Dither; docs/operations.md says what to do.",
            query(FIRING),
            unit="none",
            thresholds=NONE_EXPECTED,
        ),
        table(
            "Metrics",
            "Running totals of all counted reports: means in their own unit, with bounds that "
            "hold at all times at once. Frequencies and vectors are below.",
            {
                "": f"{each('dither_metric_info', 'metric', 'description', 'unit')}",
                "Estimate": each("dither_estimate", "metric", where=means),
                "Lower": each("dither_estimate_lower", "metric", where=means),
                "Upper": each("dither_estimate_upper", "metric", where=means),
                "Reports": f"sum by (metric) ({each('dither_level_reports', 'metric', 'level')})",
                "Worth": each("dither_effective_reports", "metric"),
                "Age": age("dither_estimate_last_update_timestamp_seconds", "metric"),
            },
            labels=("metric", "description", "kind", "unit"),
            unit="none",
            decimals=3,
            sort="metric",
            overrides=[
                to_metric("metric"),
                override("Reports", unit="short", decimals=0),
                override("Worth", unit="short", decimals=0),
                override("Age", unit="s", decimals=0),
            ],
        ),
        table(
            "Largest categories",
            "The largest shares of frequencies and coordinates of vectors, with bounds that hold "
            "for all categories of a metric and at all times at once.",
            {
                "Estimate": each("dither_estimate", "metric", "category", where=', category!=""'),
                "Lower": each(
                    "dither_estimate_lower", "metric", "category", where=', category!=""'
                ),
                "Upper": each(
                    "dither_estimate_upper", "metric", "category", where=', category!=""'
                ),
            },
            labels=("metric", "category"),
            unit="none",
            decimals=4,
            sort="metric",
            size=(12, 10),
            overrides=[to_metric("metric")],
        ),
        bars(
            "Do values depend on the privacy level?",
            "P-value of the hypothesis that they are independent (Cochran's Q). Below 0.000001 "
            "only uniform weights estimate the mean of all reports.",
            now(each("dither_level_heterogeneity_pvalue", "metric"), "{{metric}}"),
            unit="sci",
            size=(12, 10),
            thresholds=HETEROGENEITY,
        ),
        lines(
            "Reports per second",
            "Counted reports by metric.",
            query(
                'sum by (metric) (metric:dither_reports_accepted:rate5m{job="$job"})', "{{metric}}"
            ),
            unit="cps",
            stacked="normal",
        ),
        lines(
            "Width of the bands",
            "Half the width of the confidence band as a share of the estimate, for the 20 widest.",
            query(
                'topk(20, category:dither_estimate_halfwidth:ratio{job="$job"} < Inf)',
                "{{metric}} {{category}}",
            ),
            unit="percentunit",
            logarithmic=True,
        ),
        lines(
            "Age of the estimates",
            "Time since the last counted report of a metric reached Kafka.",
            query(age("dither_estimate_last_update_timestamp_seconds", "metric"), "{{metric}}"),
            unit="s",
            thresholds=steps(("green", None), ("red", 3600)),
        ),
        lines(
            "Refused reports",
            "Share of a metric's reports that went to the dead-letter topic.",
            query('metric:dither_reports_refused:ratio_rate5m{job="$job"}', "{{metric}}"),
            unit="percentunit",
            thresholds=REFUSED,
        ),
    ]
    text = "Every metric of a Dither deployment: its estimate, bounds, reports and freshness."
    return dashboard("dither-overview", "Dither: overview", text, panels, [JOB])
