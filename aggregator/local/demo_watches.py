"""Alarms and comparisons of the demo, beside the truth of its simulated devices."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aggregator.config.definition_tables import Where
from aggregator.features.alarms.alarm_answers import all_alarms
from aggregator.features.alarms.run import AlarmRaised
from aggregator.features.comparisons.definitions import ComparisonDefinition, comparisons_of
from aggregator.features.comparisons.run import ComparisonRun, Look
from aggregator.reading.reader import MetricReader
from aggregator.storage.progress import TopicProgress
from aggregator.timestamps import from_iso, iso
from producers.populations.population import Population


@dataclasses.dataclass(frozen=True)
class TrueAlarm:
    """A raised alarm, and the true means during its baseline and since its change."""

    raised: AlarmRaised
    baseline: float
    now: float

    @property
    def note(self) -> str:
        """The alarm as text, beside the truth."""
        raised_alarm = self.raised
        numbers = raised_alarm.now.value, raised_alarm.baseline.value
        value, baseline = (math.nan if x is None else x for x in numbers)
        return (
            f"alarm {raised_alarm.alarm}: {raised_alarm.metric} went {raised_alarm.direction} "
            f"since {raised_alarm.since[:10]}, from {baseline:.3f} to {value:.3f} "
            f"(truth: from {self.baseline:.3f} to {self.now:.3f})"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the alarm as plain values for JSON."""
        raised_alarm = self.raised
        return {
            "alarm": raised_alarm.alarm,
            "at": raised_alarm.at,
            "since": raised_alarm.since,
            "direction": raised_alarm.direction,
            "value": raised_alarm.now.value,
            "baseline": raised_alarm.baseline.value,
            "truth": self.now,
            "truth_of_baseline": self.baseline,
        }


@dataclasses.dataclass(frozen=True)
class TrueComparison:
    """The last look of a comparison at a final pane, and the true difference."""

    definition: ComparisonDefinition
    look: Look
    truth: float
    decided_at: str | None

    @property
    def note(self) -> str:
        """The comparison as text, beside the truth."""
        first_slice, second_slice = (
            where if isinstance(where, str) else " ".join(f"{k}={v}" for k, v in where.items())
            for where in (self.definition.where, self.definition.against)
        )
        value, lower, upper = (
            f"{x:.3f}" if isinstance(x, float) else "unknown"
            for x in (self.look.value, self.look.lower, self.look.upper)
        )
        at = self.decided_at
        decision = "not decided" if at is None else f"decided on {at[:10]}"
        return (
            f"comparison {self.definition.name}: {self.definition.metric}, "
            f"{first_slice} less {second_slice}: {value} in [{lower}, {upper}] "
            f"(truth: {self.truth:.3f}), {decision}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values for JSON."""
        return {
            "comparison": self.definition.name,
            "at": self.look.at,
            "decided_at": self.decided_at,
            "value": self.look.value,
            "lower": self.look.lower,
            "upper": self.look.upper,
            "truth": self.truth,
        }


def true_alarms(reader: MetricReader, population: Population) -> Iterator[TrueAlarm]:
    """Yield the raised alarms in order, with the true means of the same days."""
    for alarm in all_alarms(reader).alarms:
        for raised_alarm in reversed(alarm.raised):
            edges = (
                (raised_alarm.baseline.start, raised_alarm.baseline.end),
                (raised_alarm.since, raised_alarm.at),
            )
            means = (_true_mean(population, alarm.metric, *edge) for edge in edges)
            yield TrueAlarm(raised_alarm, *means)


def true_comparisons(reader: MetricReader, population: Population) -> Iterator[TrueComparison]:
    """Yield the last look of each comparison of two slices, with the true difference."""
    for definition in comparisons_of(reader.metrics).values():
        run, against = ComparisonRun.resumed(reader, definition), definition.against
        if not run.history or isinstance(against, str):
            continue
        look, at = run.history[-1], min((decision.at for decision in run.decided), default=None)
        start = iso(definition.start_ms)
        first_mean, second_mean = (
            _true_mean(population, definition.metric, start, look.at, where)
            for where in (definition.where, against)
        )
        yield TrueComparison(definition, look, first_mean - second_mean, at)


def watch_notes(alarms: Sequence[TrueAlarm], comparisons: Sequence[TrueComparison]) -> list[str]:
    """Return the comparisons and the first event of each alarm in words."""
    notes = [comparison.note for comparison in comparisons]
    for _, group in itertools.groupby(alarms, lambda alarm: alarm.raised.alarm):
        first, *later_alarms = group
        more = f"; {len(later_alarms)} more since then" if later_alarms else ""
        notes.append(first.note + more)
    return notes


def read_looks(reader: MetricReader, overview: TopicProgress) -> tuple[list[float], bool]:
    """Return how far alarms and comparisons have looked, and whether they have looked at all.

    The first are times: of each alarm in seconds since the epoch, then of each comparison in ms.
    `overview` tells which panes are final.
    """
    closed = reader.finality_watermarks(overview, len(overview.partitions))
    looked_until, behind = list[float](), False
    for alarm in all_alarms(reader).alarms:
        looked_until.append(from_iso(alarm.until or alarm.start))
        waiting_ms = closed.get(alarm.metric, 0) - 1000 * looked_until[-1]
        behind |= waiting_ms >= 1000 * alarm.every_seconds
    for definition in comparisons_of(reader.metrics).values():
        run = ComparisonRun.resumed(reader, definition)
        looked_until.append(run.next_ms)
        behind |= run.is_behind(closed)
    return looked_until, not behind


def _true_mean(
    population: Population,
    metric: str,
    start: str | None,
    end: str | None,
    where: Where | None = None,
) -> float:
    """Return the true mean of a metric in [start, end); NaN if `start` or `end` is None.

    `where`: the attributes of the devices whose values count; by default all devices' values count.
    """
    if start is None or end is None:
        return math.nan
    times = [1000 * from_iso(moment) for moment in (start, end)]
    part = population.part(*np.searchsorted(population.time_ms, times).tolist())
    selected_rows = part.has_value(metric)
    for name, value in (where or {}).items():
        selected_rows = selected_rows & (part.attributes[name] == value)
    return float(part.columns[metric][selected_rows].mean(dtype=np.float64))
