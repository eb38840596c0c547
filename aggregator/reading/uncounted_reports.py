"""Counts the reports that no answer contains: refused ones, and those of earlier definitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from aggregator.reading.reader import MetricReader
from aggregator.reading.status import COUNTED_OUTCOMES
from aggregator.state.pane_keys import counted_keys, metric_key
from aggregator.storage.progress import TopicProgress
from estimators import Metric

MAX_READ_ATTEMPTS = 3
"""How often the sums are read if more reports are counted meanwhile."""
NAMELESS_SOURCE = (
    "in messages that cannot be read, or name a metric that the workers' definitions do not have"
)


@dataclasses.dataclass(frozen=True)
class UncountedReports:
    """The reports of a metric that workers have read, but that its answers do not contain.

    Attributes
    ----------
    metric : str
        The metric's name; "" for messages that name no metric of the workers.
    refused : mapping of str to int
        The number of refused reports, by reason.
    earlier : int
        The number of reports that were counted under other definitions of the metric.
    """

    metric: str
    refused: Mapping[str, int]
    earlier: int = 0

    def lines(self) -> list[str]:
        """Return the numbers as lines of text; zeros are left out.

        Examples
        --------
        >>> UncountedReports("delay", {"late": 1_200, "future": 7}).lines()
        ['refused    1,207 reports of delay (1,200 late, 7 future): \
`dither deadletters list --metric delay`']
        >>> UncountedReports("", {"unknown_metric": 1}).lines()
        ["refused    1 report in messages that cannot be read, or name a metric that the workers' \
definitions do not have (1 unknown_metric): `dither deadletters list`"]
        """
        lines = []
        if total := sum(self.refused.values()):
            most_first = sorted(self.refused.items(), key=lambda item: (-item[1], item[0]))
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in most_first)
            source = f"of {self.metric}" if self.metric else NAMELESS_SOURCE
            command = f"dither deadletters list --metric {self.metric}".removesuffix(" --metric ")
            lines.append(f"refused    {_reports(total)} {source} ({reasons}): `{command}`")
        if self.earlier:
            verb = "was" if self.earlier == 1 else "were"
            lines.append(
                f"earlier    {_reports(self.earlier)} {verb} counted under another definition of "
                f"{self.metric}: they stay in Redis and are not part of this answer"
            )
        return lines


def find_uncounted_reports(
    reader: MetricReader, overview: TopicProgress, metric: Metric
) -> UncountedReports:
    """Return the reports that a metric's answers do not contain.

    `reader`: reads the sums in Redis; `overview`: the progress of counting; `metric`: the metric.
    """
    refused = refused_reports(overview, metric.name)
    return UncountedReports(metric.name, refused, _earlier_reports(reader, overview, metric))


def refused_reports(overview: TopicProgress, name: str) -> dict[str, int]:
    """Return a metric's number of refused reports by reason; "" stands for unknown metrics."""
    return {
        outcome: count
        for (metric, outcome), count in overview.outcomes().items()
        if metric == name and outcome not in COUNTED_OUTCOMES and count
    }


def _earlier_reports(reader: MetricReader, overview: TopicProgress, metric: Metric) -> int:
    """Return the number of reports under earlier definitions; too small while workers count."""
    current_key = metric_key(metric.name, metric.revision)
    numbers = [
        number
        for number, progress in overview.partitions.items()
        if any(_is_other(key, current_key, metric.name) for key in progress.watermarks)
    ]
    earlier_reports = 0
    for _ in range(MAX_READ_ATTEMPTS if numbers else 0):
        accepted = _accepted(overview, metric, numbers)
        keys = counted_keys(metric)
        counted = sum(reader.sums.count_reports(metric, key, numbers) for key in keys)
        earlier_reports = max(0, accepted - counted)
        overview = reader.store.overview()
        if _accepted(overview, metric, numbers) == accepted:
            break
    return earlier_reports


def _is_other(key: str, current_key: str, name: str) -> bool:
    """Return whether a watermark's key is that of another definition of this metric."""
    metric_name, _, revision = key.partition("@")
    return metric_name == name and f"{metric_name}@{revision.partition('.')[0]}" != current_key


def _accepted(overview: TopicProgress, metric: Metric, numbers: list[int]) -> int:
    outcome = f"accepted:{metric.name}"
    partitions = (overview.partitions.get(number) for number in numbers)
    return sum(progress.counts.get(outcome, 0) for progress in partitions if progress is not None)


def _reports(count: int) -> str:
    return "1 report" if count == 1 else f"{count:,} reports"
