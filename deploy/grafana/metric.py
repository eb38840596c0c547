"""The dashboard of one metric."""

from __future__ import annotations

from deploy.grafana.kinds import distribution, releases, search
from deploy.grafana.panels import (
    Json,
    band,
    bars,
    dashboard,
    lines,
    now,
    query,
    row,
    stat,
    steps,
    table,
)
from deploy.grafana.queries import CATEGORY, HETEROGENEITY, JOB, METRIC, REFUSED, age, each, rate


def metric() -> Json:
    """Return the dashboard of one metric."""
    this = ', metric="$metric"'
    one = f'{this}, category="$category"'
    edges = [
        query(f'max({name}{{job="$job"{one}}})', legend)
        for name, legend in (
            ("dither_estimate_lower", "lower"),
            ("dither_estimate", "estimate"),
            ("dither_estimate_upper", "upper"),
        )
    ]
    reports = f"sum({each('dither_level_reports', 'level', where=this)})"
    level = "epsilon {{level}}"
    panels = [
        stat(
            "Estimate",
            "The running total of all counted reports with its bounds, in the metric's unit.",
            *edges,
            unit="none",
            size=(9, 4),
            graph=False,
            decimals=4,
        ),
        stat(
            "Reports",
            "Reports that were counted.",
            query(reports, "reports"),
            unit="short",
            size=(3, 4),
        ),
        stat(
            "Worth",
            "Reports without privacy noise that would have the same worst-case variance.",
            query(f'max(dither_effective_reports{{job="$job"{this}}})', "worth"),
            unit="short",
            size=(3, 4),
        ),
        stat(
            "Last report",
            "Time since the last counted report reached Kafka.",
            query(
                age("dither_estimate_last_update_timestamp_seconds", "metric", where=this), "age"
            ),
            unit="s",
            size=(3, 4),
            thresholds=steps(("green", None), ("red", 3600)),
        ),
        stat(
            "P-value of independence",
            "P-value of the hypothesis that values are independent of the privacy level "
            "(Cochran's Q). If it is tiny, only uniform weights estimate the mean of all "
            "reports. No value: fewer than two levels have enough reports.",
            query(f'min(dither_level_heterogeneity_pvalue{{job="$job"{this}}})', "p-value"),
            unit="sci",
            size=(3, 4),
            thresholds=HETEROGENEITY,
        ),
        stat(
            "Refused",
            "Share of the metric's reports that went to the dead-letter topic.",
            query(f'metric:dither_reports_refused:ratio_rate5m{{job="$job"{this}}}', "refused"),
            unit="percentunit",
            size=(3, 4),
            thresholds=REFUSED,
        ),
        band(
            "$metric $category",
            "The running estimate within its confidence band, in the metric's unit. The bounds "
            "hold at all times at once, so you may look at the band as often as you like.",
            *edges,
            unit="none",
            size=(24, 11),
        ),
        table(
            "Definition",
            "The metric's definition in metrics.toml, and the weights in force.",
            {
                "": each(
                    "dither_metric_info",
                    *(labels := ("metric", "description", "kind", "mechanism", "unit", "levels")),
                    where=this,
                )
            },
            labels=labels,
            unit="none",
            size=(16, 4),
        ),
        table(
            "Weights",
            "The weights in force; `dither weights` changes them.",
            {"": each("dither_weights_info", "policy", where=this)},
            labels=("policy",),
            unit="none",
            size=(4, 4),
        ),
        stat(
            "Not shown",
            "Number of categories or coordinates that are not shown because they are not among "
            "the largest: `serve.top_categories`.",
            query(f'max(dither_categories_left_out{{job="$job"{this}}})', "left out"),
            unit="none",
            graph=False,
        ),
        row("Categories"),
        bars(
            "Largest categories",
            "The largest shares of a frequency, or coordinates of a vector.",
            now(f"sort_desc({each('dither_estimate', 'category', where=this)})", "{{category}}"),
            unit="none",
            size=(8, 10),
            decimals=4,
        ),
        table(
            "Bounds",
            "Estimates of the largest categories. The bounds hold for all categories and at all "
            "times at once.",
            {
                "Estimate": each("dither_estimate", "category", where=this),
                "Lower": each("dither_estimate_lower", "category", where=this),
                "Upper": each("dither_estimate_upper", "category", where=this),
            },
            labels=("category",),
            unit="none",
            decimals=4,
            size=(8, 10),
        ),
        lines(
            "History of the largest categories",
            "Estimates of the largest categories without bands; choose one above to see its band.",
            query(each("dither_estimate", "category", where=this), "{{category}}"),
            unit="none",
            size=(8, 10),
        ),
        row("Reports, levels and weights"),
        lines(
            "Reports per second",
            "Reports by outcome: accepted, duplicate, or the reason for a dead letter.",
            query(rate("dither_reports_total", "outcome", where=this), "{{outcome}}"),
            unit="cps",
            size=(8, 8),
            stacked="normal",
        ),
        lines(
            "Reports by privacy level",
            "Counted reports by privacy level.",
            query(each("dither_level_reports", "level", where=this), level),
            unit="short",
            size=(8, 8),
            stacked="percent",
        ),
        lines(
            "Weight of each privacy level",
            "Share of each privacy level in the estimate, under the policy in force.",
            query(each("dither_level_weight", "level", where=this), level),
            unit="percentunit",
            size=(8, 8),
            stacked="normal",
        ),
        lines(
            "Width of the band",
            "Half the width of the confidence band as a share of the estimate.",
            query(
                f'category:dither_estimate_halfwidth:ratio{{job="$job"{one}}}',
                "relative half width",
            ),
            unit="percentunit",
            size=(8, 8),
        ),
        lines(
            "Do values depend on the privacy level?",
            "P-value of the hypothesis that they are independent (Cochran's Q), on a "
            "logarithmic scale.",
            query(f'min(dither_level_heterogeneity_pvalue{{job="$job"{this}}})', "p-value"),
            unit="sci",
            size=(8, 8),
            thresholds=HETEROGENEITY,
            logarithmic=True,
        ),
        lines(
            "Radius of a vector",
            "The estimated mean vector is within this l2 distance of the true one; vectors only.",
            query(f'max(dither_estimate_radius{{job="$job"{this}}})', "radius"),
            unit="none",
            size=(8, 8),
        ),
        *distribution(this),
        *releases(this),
        *search(this),
    ]
    text = "One metric: its estimate with its band, its reports and its privacy levels."
    return dashboard("dither-metric", "Dither: one metric", text, panels, [JOB, METRIC, CATEGORY])
