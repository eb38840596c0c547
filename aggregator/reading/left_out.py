"""Counts reports that are in no answer: refused ones, and those of another definition."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from aggregator.reading.reader import MetricReader
from aggregator.reading.status import COUNTED
from aggregator.state.pane_keys import counted_keys, metric_key
from aggregator.storage.progress import TopicProgress
from estimators import Metric

LOOKS = 3
"""How often sums are read again if reports were counted meanwhile."""


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """A metric's reports that the workers have read and its answers do not contain.

    Attributes
    ----------
    metric : str
        Empty: messages that name no metric of the workers.
    refused : mapping of str to int
        Reports by reason, since the beginning.
    earlier : int
        Reports that were counted under other definitions of the metric.
    """

    metric: str
    refused: Mapping[str, int]
    earlier: int = 0

    def lines(self) -> list[str]:
        """Return it in words; nothing, where nothing is left out.

        Examples
        --------
        >>> LeftOut("delay", {"late": 1_200, "future": 7}).lines()
        ['refused    1,207 reports of delay (1,200 late, 7 future): \
`dither deadletters list --metric delay`']
        >>> LeftOut("", {"unknown_metric": 1}).lines()
        ['refused    1 report of no metric that the workers know (1 unknown_metric): \
`dither deadletters list`']
        """
        found = []
        if total := sum(self.refused.values()):
            most_first = sorted(self.refused.items(), key=lambda item: (-item[1], item[0]))
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in most_first)
            whose = self.metric or "no metric that the workers know"
            where = f"dither deadletters list --metric {self.metric}".removesuffix(" --metric ")
            found.append(f"refused    {_reports(total)} of {whose} ({reasons}): `{where}`")
        if self.earlier:
            verb = "was" if self.earlier == 1 else "were"
            found.append(
                f"earlier    {_reports(self.earlier)} {verb} counted under another definition of "
                f"{self.metric}: they stay in Redis and are not part of this answer"
            )
        return found


def find_left_out(reader: MetricReader, overview: TopicProgress, metric: Metric) -> LeftOut:
    """Return what the answers of a metric leave out.

    Parameters
    ----------
    reader : MetricReader
        Where the sums are.
    overview : TopicProgress
        As of now.
    metric : Metric
        Whose answers are meant.
    """
    return LeftOut(
        metric.name, refused_reports(overview, metric.name), _earlier(reader, overview, metric)
    )


def refused_reports(overview: TopicProgress, name: str) -> dict[str, int]:
    """Return a metric's refused reports by reason; of an empty name: those of no known metric."""
    return {
        outcome: count
        for (metric, outcome), count in overview.outcomes().items()
        if metric == name and outcome not in COUNTED and count
    }


def _earlier(reader: MetricReader, overview: TopicProgress, metric: Metric) -> int:
    """Return how many reports were counted under other definitions; at least, while more come."""
    mine = metric_key(metric.name, metric.revision)
    numbers = [
        number
        for number, progress in overview.partitions.items()
        if any(_is_other(key, mine, metric.name) for key in progress.watermarks)
    ]
    least = 0
    for _ in range(LOOKS if numbers else 0):
        before = _accepted(overview, metric, numbers)
        least = max(0, before - _sums(reader, metric, numbers))
        overview = reader.store.overview()
        if _accepted(overview, metric, numbers) == before:
            break
    return least


def _is_other(key: str, mine: str, name: str) -> bool:
    """Return whether a watermark is of this metric by another definition than this one."""
    whose, _, revision = key.partition("@")
    return whose == name and f"{whose}@{revision.partition('.')[0]}" != mine


def _accepted(overview: TopicProgress, metric: Metric, numbers: list[int]) -> int:
    outcome = f"accepted:{metric.name}"
    partitions = (overview.partitions.get(number) for number in numbers)
    return sum(one.counts.get(outcome, 0) for one in partitions if one is not None)


def _sums(reader: MetricReader, metric: Metric, numbers: list[int]) -> int:
    """Return how many reports partitions have counted under this very definition."""
    return sum(reader.sums.reports(metric, key, numbers) for key in counted_keys(metric))


def _reports(count: int) -> str:
    return "1 report" if count == 1 else f"{count:,} reports"
