"""The dashboard for operators."""

from __future__ import annotations

from deploy.grafana.panels import Json, dashboard, lines, override, query, row, stat, steps, table
from deploy.grafana.queries import (
    BACKLOG,
    FIRING,
    JOB,
    NONE_EXPECTED,
    SECONDS,
    age,
    each,
    quantiles,
    rate,
    to_metric,
)


def operations() -> Json:
    """Return the dashboard of those who keep it running."""
    panels = [
        stat(
            "Waiting",
            "Messages in Kafka that are not counted yet. No value: Kafka does not answer.",
            query(f"sum({each('dither_consumer_lag', 'partition')})"),
            unit="short",
        ),
        stat(
            "Backlog",
            "Time to count the waiting messages at the present rate.",
            query('job:dither_consumer_lag:seconds{job="$job"}'),
            unit="s",
            thresholds=BACKLOG,
        ),
        stat(
            "Workers",
            "Workers that have committed a partition within the last minute.",
            query('max(dither_workers{job="$job"})'),
            unit="none",
            thresholds=steps(("red", None), ("green", 1)),
        ),
        stat(
            "Halted partitions",
            "Partitions that stopped and need an operator.",
            query(f"sum({each('dither_partition_halted', 'partition')})"),
            unit="none",
            thresholds=NONE_EXPECTED,
        ),
        stat(
            "Lost offsets",
            "Messages that Kafka deleted before they were counted, and that were accepted as lost.",
            query(f"sum({each('dither_gap_offsets', 'partition')})"),
            unit="short",
            thresholds=NONE_EXPECTED,
        ),
        stat(
            "Alerts",
            "Firing alerts of Dither; docs/operations.md says what to do.",
            query(FIRING),
            unit="none",
            thresholds=NONE_EXPECTED,
        ),
        row("Counting"),
        lines(
            "From Kafka to the commit",
            "Time from Kafka's timestamp of a message to the commit that counts it.",
            *quantiles("dither_end_to_end_latency_seconds"),
            unit="s",
            size=(8, 8),
        ),
        lines(
            "Messages per second",
            "Messages that were counted or rejected.",
            query(rate("dither_end_to_end_latency_seconds_count"), "messages"),
            unit="cps",
            size=(8, 8),
        ),
        lines(
            "Waiting messages",
            "Messages in each partition's log that are not counted yet.",
            query(each("dither_consumer_lag", "partition"), "partition {{partition}}"),
            unit="short",
            size=(8, 8),
            stacked="normal",
        ),
        lines(
            "Time of a commit",
            "Time to write a partition's sums and its next offset to Redis, including the wait "
            "for Redis.",
            *quantiles("dither_commit_duration_seconds"),
            unit="s",
            size=(8, 8),
        ),
        lines(
            "Commits per second",
            "Every partition is committed once in `aggregate.commit_interval`.",
            query(rate("dither_commit_duration_seconds_count"), "commits"),
            unit="cps",
            size=(8, 8),
        ),
        lines(
            "Written to Redis",
            "Bytes of panes and batch ids per second.",
            query(rate("dither_commit_bytes_total"), "written"),
            unit="Bps",
            size=(8, 8),
        ),
        row("Partitions"),
        table(
            "Partitions",
            "The owner and the progress of each partition.",
            {
                "": each("dither_partition_owner_info", "partition", "worker"),
                "Waiting": each("dither_consumer_lag", "partition"),
                "Since commit": age("dither_last_commit_timestamp_seconds", "partition"),
                "Halted": each("dither_partition_halted", "partition"),
                "Lost": each("dither_gap_offsets", "partition"),
                "Owners": each("dither_partition_epoch", "partition"),
            },
            labels=("partition", "worker"),
            unit="none",
            size=(12, 9),
            sort="partition",
            overrides=[override("Since commit", unit="s", decimals=1)],
        ),
        lines(
            "Time since the last commit",
            "It rises if a partition has no worker, or if its worker waits for Redis or Kafka.",
            query(
                age("dither_last_commit_timestamp_seconds", "partition"), "partition {{partition}}"
            ),
            unit="s",
            thresholds=SECONDS,
            size=(6, 9),
        ),
        lines(
            "Changes of owner",
            "Rebalances, restarts and crashes of workers within five minutes.",
            query(
                'max by (partition) (changes(dither_partition_epoch{job="$job"}[5m]))',
                "partition {{partition}}",
            ),
            query('max(increase(dither_worker_deaths_total{job="$job"}[5m]))', "deaths of workers"),
            unit="none",
            size=(6, 9),
        ),
        row("Reports"),
        lines(
            "Reports per second",
            "Reports of all metrics by outcome.",
            query('sum by (outcome) (outcome:dither_reports:rate5m{job="$job"})', "{{outcome}}"),
            unit="cps",
            size=(8, 8),
            stacked="normal",
        ),
        lines(
            "Dead letters per second",
            "Messages that were sent to the dead-letter topic, by reason.",
            query(rate("dither_deadletters_total", "reason"), "{{reason}}"),
            unit="cps",
            size=(8, 8),
            stacked="normal",
        ),
        lines(
            "Reports per message",
            "The more reports a message carries, the more reports are counted per second.",
            query(
                'sum(outcome:dither_reports:rate5m{job="$job"}) '
                '/ sum(job:dither_messages:rate5m{job="$job"} > 0)',
                "reports per message",
            ),
            unit="none",
            size=(8, 8),
        ),
        row("Releases and searches"),
        table(
            "Releases",
            "Trusted metrics: the ends, in event time, of the last released pane, and of the "
            "oldest pane that is over and not released.",
            {
                "Released up to": _milliseconds("dither_release_timestamp_seconds"),
                "Waits": _milliseconds("dither_release_due_timestamp_seconds"),
            },
            labels=("metric",),
            unit="dateTimeAsIso",
            size=(10, 8),
            sort="metric",
            overrides=[to_metric("metric")],
        ),
        table(
            "Searches",
            "Minimum and maximum metrics: the progress of their rounds.",
            {
                "Round": each("dither_search_round", "metric"),
                "Of": each("dither_search_rounds", "metric"),
                "Answers": each("dither_search_answers", "metric"),
                "Open for": age("dither_search_round_opened_timestamp_seconds", "metric"),
                "Over": each("dither_search_over", "metric"),
            },
            labels=("metric",),
            unit="none",
            size=(10, 8),
            sort="metric",
            overrides=[to_metric("metric"), override("Open for", unit="s", decimals=0)],
        ),
        stat(
            "Leaders",
            "Whether a publisher and a coordinator of rounds hold their leases; at most one of "
            "each does.",
            query('max(dither_publisher_leader{job="$job"})', "publisher"),
            query('max(dither_coordinator_leader{job="$job"})', "coordinator"),
            unit="none",
            size=(4, 8),
            graph=False,
        ),
        row("Server"),
        lines(
            "Answers per second",
            "By route and class of status.",
            query(
                "sum by (route, method, status) "
                '(rate(dither_http_requests_total{job="$job"}[$__rate_interval]))',
                "{{method}} {{route}} {{status}}",
            ),
            unit="reqps",
            size=(8, 8),
        ),
        lines(
            "Time to answer",
            "Time until an answer begins, by route; 99% are faster.",
            query(
                "histogram_quantile(0.99, sum by (route, le) (rate("
                'dither_http_request_duration_seconds_bucket{job="$job"}[$__rate_interval])))',
                "{{route}}",
            ),
            unit="s",
            size=(8, 8),
        ),
        lines(
            "Time to scrape",
            "Total time of a scrape, and its part for reading and estimating.",
            query('max(scrape_duration_seconds{job="$job"})', "scrape"),
            query('max(dither_collection_duration_seconds{job="$job"})', "reading and estimating"),
            unit="s",
            size=(8, 8),
        ),
    ]
    text = (
        "The state of counting: lag, latencies, commits, partitions, dead letters and the server."
    )
    return dashboard("dither-operations", "Dither: operations", text, panels, [JOB])


def _milliseconds(name: str) -> str:
    """Return the query for each metric's timestamp as Grafana formats it."""
    return f"1000 * {each(name, 'metric')}"
