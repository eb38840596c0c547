"""The dashboards' Prometheus queries, and their shared variables and limits.

Several `dither serve` export the same numbers, so every query takes the maximum over instances
before it sums.
"""

from __future__ import annotations

from deploy.grafana.panels import Json, override, query, steps, variable

SECONDS = steps(("green", None), ("yellow", 10), ("red", 60))
BACKLOG = steps(("green", None), ("yellow", 60), ("red", 300))
REFUSED = steps(("green", None), ("yellow", 0.01), ("red", 0.05))
NONE_EXPECTED = steps(("green", None), ("red", 1))
HETEROGENEITY = steps(("red", None), ("yellow", 1e-6), ("green", 1e-3))
QUANTILES = (0.5, 0.9, 0.99)
FIRING = 'count(ALERTS{alertname=~"Dither.+", alertstate="firing"}) or vector(0)'

JOB = variable("job", "Deployment", "label_values(dither_build_info, job)")
METRIC = variable("metric", "Metric", 'label_values(dither_metric_info{job="$job"}, metric)')
CATEGORY = variable(
    "category", "Category", 'label_values(dither_estimate{job="$job", metric="$metric"}, category)'
)


def each(name: str, *labels: str, where: str = "") -> str:
    """Return the query for a metric's series by these labels, whichever instance exports them.

    Examples
    --------
    >>> each("dither_gap_offsets", "partition")
    'max by (partition) (dither_gap_offsets{job="$job"})'
    """
    return f'max by ({", ".join(labels)}) ({name}{{job="$job"{where}}})'


def rate(name: str, *labels: str, where: str = "") -> str:
    """Return the query for a counter's rates by these labels, whichever instance exports it."""
    selected = f'{name}{{job="$job"{where}}}[$__rate_interval]'
    return f"max by ({', '.join(labels)}) (rate({selected}))"


def quantiles(name: str) -> list[Json]:
    """Return the queries for the quantiles of a histogram."""
    buckets = rate(f"{name}_bucket", "le")
    return [query(f"histogram_quantile({q}, {buckets})", f"p{100 * q:g}") for q in QUANTILES]


def age(name: str, *labels: str, where: str = "") -> str:
    """Return the query for the seconds since a timestamp."""
    return f"time() - {each(name, *labels, where=where)}"


def to_metric(field: str) -> Json:
    """Return an override that links a table's field to the dashboard of its metric."""
    url = (
        "/d/dither-metric?var-metric=${__value.raw}&${datasource:queryparam}&${job:queryparam}"
        "&${__url_time_range}"
    )
    return override(field, links=[{"title": "Show this metric", "url": url, "targetBlank": False}])
